//! Who may import whom. The table is the design's "imports point down this list only", row by row: a module may use itself, what it
//! contains and what its row names, and a row names only rows above it.

use crate::{Offence, scan::Scan, tree::File};

/// A module (with what it contains) and what it may use. The longest row that fits a file counts.
const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("record", &["types"]),
    ("config::topic", &["types", "record"]),
    ("config", &["types", "record", "config::topic"]),
    ("telemetry", &["types"]),
    // The log's pure parts: no disk, no waiting, no partition.
    ("log::io", &["types"]),
    ("log::error", &["types"]),
    ("log::epochs", &["types", "log::error"]),
    ("log::model", &["types", "record", "config::topic", "config::TopicConfig", "log::error"]),
    ("log::retention", &["types", "config::topic", "config::TopicConfig", "log::model"]),
    ("log::arrivals", &["types"]),
    ("log::index", &["types", "log::model"]),
    ("log::verification", &["types"]),
    (
        "log::validate",
        &["types", "record", "config::topic", "config::TopicConfig", "config::CompressionType", "log::error", "log::verification"],
    ),
    ("log::producer_state", &["types", "record", "log::error", "log::validate", "log::verification"]),
    ("log::txn_index", &["types", "log::producer_state"]),
    ("log", &["types", "record", "config", "telemetry"]),
    ("codec", &["types", "record", "log::io"]),
    ("cluster", &["types", "record", "config", "log::io", "telemetry"]),
    ("group", &["types"]),
    ("txn", &["types"]),
    ("coordinator", &["types", "record", "config", "codec", "cluster", "group", "txn", "log"]),
    // What decides in the lag: no log, no lock.
    ("lag::rate", &["types"]),
    ("lag::filter", &[]),
    ("lag::fetches", &["types"]),
    ("lag::partition", &["types", "lag::rate"]),
    ("lag::topic", &["types", "lag::rate", "lag::partition"]),
    ("lag::group", &["types", "group", "lag::fetches", "lag::partition", "lag::topic"]),
    ("lag::state", &["types", "group", "lag::fetches", "lag::group", "lag::partition", "lag::topic"]),
    ("lag", &["types", "telemetry", "cluster", "group", "log", "coordinator"]),
    ("net", &["types", "codec", "telemetry"]),
    ("api", &["types", "record", "config", "telemetry", "codec", "cluster", "group", "txn", "log", "coordinator", "lag", "net"]),
    ("http", &["types", "record", "config", "telemetry", "cluster", "group", "log", "coordinator", "lag", "api"]),
    (
        "broker",
        &["types", "record", "config", "telemetry", "codec", "cluster", "group", "txn", "log", "coordinator", "lag", "net", "api", "http"],
    ),
    ("cli", &["types", "record", "config", "telemetry", "log", "cluster", "api", "http", "broker"]),
];

/// Names that modules re-export at their top: `use crate::log::AppendError` means `log::error`.
const REEXPORTS: &[(&str, &str)] = &[
    ("log::AppendError", "log::error"),
    ("log::ReadError", "log::error"),
    ("log::RecordError", "log::error"),
    ("config::TopicConfig", "config::topic"),
    ("config::CompressionType", "config::topic"),
];

/// Modules that decide and do nothing: what they may not even name.
const PURE: &[&str] = &[
    "types",
    "record",
    "config::topic",
    "codec",
    "group",
    "txn",
    "lag::filter",
    "lag::group",
    "lag::partition",
    "lag::rate",
    "lag::state",
    "lag::topic",
    "log::arrivals",
    "log::epochs",
    "log::index",
    "log::model",
    "log::producer_state",
    "log::retention",
    "log::txn_index",
    "log::validate",
    "log::verification",
];
const EFFECTS: &[&str] = &["std::fs", "std::net", "std::thread", "tokio::", "rustix::", "Instant::now", "SystemTime::now"];

pub fn check(file: &File, offences: &mut Vec<Offence>) {
    let Some(module) = file.module.as_deref().filter(|m| !m.is_empty() && *m != "?" && !file.test) else { return };
    let mut offend = |line: usize, what: String| offences.push(Offence { path: file.path.clone(), line, what });
    let Some((row, allowed)) = LAYERS.iter().filter(|(row, _)| within(module, row)).max_by_key(|(row, _)| row.len()) else {
        offend(1, format!("module {module} has no row in the table of layers (tests/tidy/layers.rs)"));
        return;
    };
    for (line, path) in imports(&file.scan, module) {
        let meant = REEXPORTS.iter().find(|(name, _)| within(&path, name)).map_or(path.as_str(), |(_, module)| module);
        let fine = within(meant, row) || within(row, meant) && meant.contains("::") || allowed.iter().any(|up| within(meant, up));
        if !fine && !file.scan.is_test_line(line) {
            offend(line, format!("{module} may not use {path}: its layer has only {}", allowed.join(", ")));
        }
    }
    if PURE.iter().any(|pure| within(module, pure)) {
        for (line, code) in file.scan.code_lines() {
            for effect in EFFECTS.iter().filter(|effect| code.contains(**effect) && !file.scan.is_test_line(line)) {
                offend(line, format!("{module} only decides: no {effect}"));
            }
        }
    }
}

/// Rows that name a row which is not above them; empty when the table points down.
pub fn upward_rows() -> Vec<String> {
    let known = |row: usize, name: &str| {
        let name = REEXPORTS.iter().find(|(export, _)| *export == name).map_or(name, |(_, module)| module);
        LAYERS[..row].iter().any(|(above, _)| *above == name)
    };
    let upward = |(row, (module, allowed)): (usize, &(&str, &[&str]))| {
        let wrong: Vec<_> = allowed.iter().filter(|name| !known(row, name)).copied().collect();
        (!wrong.is_empty()).then(|| format!("{module} names {}", wrong.join(", ")))
    };
    LAYERS.iter().enumerate().filter_map(upward).collect()
}

/// Whether a path is `outer` or something in it.
fn within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every path of this crate that a file names, by `crate::`, `super::` or `self::`, with its line; groups are spelled out.
fn imports(scan: &Scan, module: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let code = &scan.code;
    for at in 0..code.len() {
        let before = at.checked_sub(1).and_then(|i| code.get(i)).copied().unwrap_or(' ');
        if before.is_alphanumeric() || matches!(before, '_' | ':') {
            continue;
        }
        let rest = &code[at..code.len().min(at + 12)];
        let starts = |word: &str| rest.starts_with(&word.chars().collect::<Vec<_>>());
        if starts("crate::") || starts("super::") || starts("self::") {
            let mut walk = Walk { code, at, module, found: Vec::new() };
            walk.path(Vec::new());
            found.extend(walk.found.into_iter().map(|(place, path)| (scan.line_at(place), path)));
        }
    }
    found
}

struct Walk<'a> {
    code: &'a [char],
    at: usize,
    module: &'a str,
    found: Vec<(usize, String)>,
}

impl Walk<'_> {
    fn skip_spaces(&mut self) {
        while self.code.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while self.code.get(self.at).is_some_and(|c| c.is_alphanumeric() || *c == '_') {
            self.at += 1;
        }
        self.code[start..self.at].iter().collect()
    }

    /// Follows a path from here; `prefix` is what it continues.
    fn path(&mut self, mut prefix: Vec<String>) {
        let start = self.at;
        loop {
            match self.word().as_str() {
                "crate" => prefix.clear(),
                "self" if prefix.is_empty() => prefix = self.module.split("::").map(str::to_owned).collect(),
                "self" => {}
                "super" if prefix.is_empty() => {
                    prefix = self.module.split("::").map(str::to_owned).collect();
                    prefix.pop();
                }
                "super" => {
                    prefix.pop();
                }
                word => prefix.push(word.to_owned()),
            }
            if self.code.get(self.at..self.at + 2) != Some(&[':', ':']) {
                break;
            }
            self.at += 2;
            match self.code.get(self.at) {
                Some('{') => return self.group(&prefix),
                Some('*' | '<') => break,
                _ => {}
            }
        }
        prefix.retain(|word| !word.is_empty());
        if !prefix.is_empty() {
            self.found.push((start, prefix.join("::")));
        }
    }

    fn group(&mut self, prefix: &[String]) {
        self.at += 1;
        loop {
            self.skip_spaces();
            match self.code.get(self.at) {
                None => return,
                Some('}') => {
                    self.at += 1;
                    return;
                }
                Some(c) if c.is_alphanumeric() || *c == '_' => self.path(prefix.to_vec()),
                Some(_) => self.at += 1,
            }
            // `as name` is no path.
            self.skip_spaces();
            if self.code.get(self.at..self.at + 3) == Some(&['a', 's', ' ']) {
                self.at += 3;
                self.word();
            }
        }
    }
}
