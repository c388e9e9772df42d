//! README's tables are what the library renders: this test compares the marked regions, and rewrites them on request.
//!
//! A region stands between `<!-- BEGIN name -->` and `<!-- END name -->`. `HIGHWATER_UPDATE_README=1 cargo test --test readme`
//! writes them anew. A new region is a row of [`REGIONS`].

use std::{env, fs, path::Path};

type Render = fn() -> String;

/// The regions and what renders them.
const REGIONS: &[(&str, Render)] = &[
    ("configs", highwater::config::readme_tables),
    ("apis", highwater::api::readme_table),
    ("metrics", highwater::telemetry::names::readme_table),
    ("endpoints", highwater::http::json::readme_table),
];

#[test]
fn tables_are_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(&path).expect("README.md");
    let fresh = REGIONS
        .iter()
        .fold(text.clone(), |text, (name, render)| replace(&text, name, &render()).unwrap_or_else(|e| panic!("README.md: {e}")));
    if env::var_os("HIGHWATER_UPDATE_README").is_some() {
        fs::write(&path, fresh).expect("write README.md");
        return;
    }
    for (line, (old, new)) in text.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(old, new, "README.md:{}: run `HIGHWATER_UPDATE_README=1 cargo test --test readme`", line + 1);
    }
    assert_eq!(text.len(), fresh.len(), "README.md: run `HIGHWATER_UPDATE_README=1 cargo test --test readme`");
}

#[test]
fn every_region_has_a_renderer() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).expect("README.md");
    let marked = text.lines().filter_map(|line| line.trim().strip_prefix("<!-- BEGIN ")?.strip_suffix(" -->"));
    let unknown: Vec<_> = marked.filter(|name| !REGIONS.iter().any(|(known, _)| known == name)).collect();
    assert_eq!(unknown, Vec::<&str>::new(), "no renderer in tests/readme.rs");
}

/// The text with the region's inside replaced.
fn replace(text: &str, name: &str, inside: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- BEGIN {name} -->\n"), format!("<!-- END {name} -->"));
    let (before, rest) = text.split_once(&begin).ok_or(format!("no line {}", begin.trim()))?;
    let (_, after) = rest.split_once(&end).ok_or(format!("no {end} after its beginning"))?;
    Ok(format!("{before}{begin}{}\n{end}{after}", inside.trim_end()))
}

#[test]
fn a_region_is_replaced_and_the_rest_is_kept() {
    let text = "a\n<!-- BEGIN x -->\nold\nold\n<!-- END x -->\nb\n";
    let once = replace(text, "x", "new\n").unwrap();
    assert_eq!(once, "a\n<!-- BEGIN x -->\nnew\n<!-- END x -->\nb\n");
    assert_eq!(replace(&once, "x", "new\n").unwrap(), once);
    assert!(replace(text, "y", "").is_err());
    assert!(replace("<!-- BEGIN x -->\n", "x", "").is_err());
}
