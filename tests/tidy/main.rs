//! Holds the tree to the design's rules: layers, sizes, one place for each thing. Reads the sources as text and compiles nothing.
//!
//! `cargo test --test tidy` lists every offence at once, as `file:line: what`. Each rule is also tried on a planted offence.

mod layers;
mod rules;
mod scan;
mod self_test;
mod tree;

use std::{fmt, path::Path};

/// Something that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offence {
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Every offence of a tree, in order of files and lines.
pub fn offences(tree: &tree::Tree) -> Vec<Offence> {
    let mut offences = tree.unreachable();
    let keys = rules::config_keys(tree);
    for file in &tree.files {
        rules::check(file, &mut offences);
        rules::config_keys_elsewhere(file, &keys, &mut offences);
        layers::check(file, &mut offences);
    }
    offences.sort();
    offences.dedup();
    offences
}

#[test]
fn the_tree_is_tidy() {
    let tree = tree::Tree::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    let offences = offences(&tree);
    assert!(tree.files.len() > 10, "only {} files were found", tree.files.len());
    assert!(offences.is_empty(), "{} offences:\n{}\n", offences.len(), offences.iter().map(|o| format!("  {o}\n")).collect::<String>());
}

#[test]
fn the_layers_point_down() {
    assert_eq!(layers::upward_rows(), Vec::<String>::new());
}
