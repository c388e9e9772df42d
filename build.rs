//! Embeds the console: every file under `console/` becomes an entry of `ASSETS`, which `src/http/assets.rs` serves. Needs nothing but the compiler.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

/// Directories that hold no part of the page.
const LEFT_OUT: &[&str] = &["node_modules", "test", "tests"];

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("console");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=console");
    let mut files = Vec::new();
    if root.is_dir() {
        collect(&root, &mut files)?;
    }
    let name = |file: &Path| file.strip_prefix(&root).unwrap_or(file).to_string_lossy().replace('\\', "/");
    files.sort_by_key(|file| name(file));
    let mut table = String::from("pub static ASSETS: &[Asset] = &[\n");
    for file in &files {
        let name = name(file);
        let mut hasher = DefaultHasher::new();
        fs::read(file)?.hash(&mut hasher);
        let (tag, path) = (hasher.finish(), file.to_string_lossy());
        table.push_str(&format!("    Asset {{ path: {name:?}, etag: \"\\\"{tag:016x}\\\"\", bytes: include_bytes!({path:?}) }},\n"));
    }
    table.push_str("];\n");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("assets.rs"), table)
}

/// All files below a directory but for hidden ones.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        if !entry.file_type()?.is_dir() {
            files.push(entry.path());
        } else if !LEFT_OUT.contains(&name.as_str()) {
            println!("cargo::rerun-if-changed={}", entry.path().display());
            collect(&entry.path(), files)?;
        }
    }
    Ok(())
}
