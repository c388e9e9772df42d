//! The tree of sources: which files there are, which module each is, and which of them no `mod` reaches.

use crate::{Offence, scan::Scan};
use std::{collections::BTreeMap, fs, path::Path};

/// A source file in its place.
pub struct File {
    /// From the repository's root, with `/`.
    pub path: String,
    /// Its path of modules in the library (`log::validate`; empty for `lib.rs`); `None` outside of the library.
    pub module: Option<String>,
    /// Compiled for tests only.
    pub test: bool,
    pub scan: Scan,
}

pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    /// Reads the `.rs` files below the root, save for what is built or installed.
    pub fn read(root: &Path) -> Self {
        let mut sources = BTreeMap::new();
        for top in ["src", "tests", "benches", "examples", "compat-tests"] {
            collect(root, &root.join(top), &mut sources);
        }
        Self::new(sources)
    }

    /// From paths and texts; what the tests of the rules plant.
    pub fn new(sources: BTreeMap<String, String>) -> Self {
        let scans: BTreeMap<_, _> = sources.iter().map(|(path, text)| (path.clone(), Scan::new(text))).collect();
        let mut reached = BTreeMap::new();
        let roots: Vec<String> = scans.keys().filter(|path| is_root(path)).cloned().collect();
        for root in roots {
            let module = (root == "src/lib.rs").then(String::new);
            let test = root.starts_with("tests/") || root.contains("/tests/");
            reach(&scans, root, module, test, &mut reached);
        }
        let files = scans.into_iter().map(|(path, scan)| {
            let (module, test) = reached.remove(&path).unwrap_or((Some("?".into()), false));
            File { module, test, path, scan }
        });
        Self { files: files.collect() }
    }

    /// Files that no `mod` item reaches: nobody compiles them.
    pub fn unreachable(&self) -> Vec<Offence> {
        let lost = self.files.iter().filter(|file| file.module.as_deref() == Some("?"));
        lost.map(|file| Offence { path: file.path.clone(), line: 1, what: "no `mod` reaches this file".into() }).collect()
    }
}

/// What Cargo compiles by itself: library and binary roots, each test, example and bench.
fn is_root(path: &str) -> bool {
    let path = path.strip_prefix("compat-tests/").unwrap_or(path);
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    match dir {
        "src" => matches!(file, "lib.rs" | "main.rs"),
        "" => file == "build.rs",
        "src/bin" | "tests" | "benches" | "examples" | "bench" => true,
        _ => file == "main.rs" && ["src/bin/", "tests/", "benches/", "examples/"].iter().any(|top| dir.starts_with(top)),
    }
}

fn collect(root: &Path, dir: &Path, sources: &mut BTreeMap<String, String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules", "clients"].contains(&name.as_str()) {
            collect(root, &path, sources);
        } else if name.ends_with(".rs") {
            let relative = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            sources.insert(relative, fs::read_to_string(&path).unwrap());
        }
    }
}

type Reached = BTreeMap<String, (Option<String>, bool)>;

fn reach(scans: &BTreeMap<String, Scan>, path: String, module: Option<String>, test: bool, reached: &mut Reached) {
    let Some(scan) = scans.get(&path) else { return };
    if reached.insert(path.clone(), (module.clone(), test)).is_some() {
        return;
    }
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", &path));
    let children = if is_root(&path) || file == "mod.rs" { dir.to_owned() } else { path.trim_end_matches(".rs").to_owned() };
    for Item { line, name, at } in mod_items(scan) {
        let child = module.as_ref().map(|m| if m.is_empty() { name.clone() } else { format!("{m}::{name}") });
        let test = test || scan.is_test_line(line);
        let candidates = match at {
            Some(at) => vec![format!("{dir}/{at}")],
            None => vec![format!("{children}/{name}.rs"), format!("{children}/{name}/mod.rs")],
        };
        for candidate in candidates {
            reach(scans, candidate, child.clone(), test, reached);
        }
    }
}

/// `mod name;`, and the file that a `#[path]` before it names.
struct Item {
    line: usize,
    name: String,
    at: Option<String>,
}

fn mod_items(scan: &Scan) -> Vec<Item> {
    let named = |line: &str| {
        let (visibility, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
        let plain = visibility.is_empty() || visibility.starts_with("pub") || visibility.starts_with("#[");
        (plain && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then(|| name.to_owned())
    };
    let mut items = Vec::new();
    let mut at = None;
    for (line, code) in scan.code_lines() {
        if code.trim_start().starts_with("#[path = ") {
            at = scan.strings.iter().find(|(at, _)| *at == line).map(|(_, path)| path.clone());
        } else if let Some(name) = named(&code) {
            items.push(Item { line, name, at: at.take() });
        } else if !code.trim_start().starts_with("#[") {
            at = None;
        }
    }
    items
}
