//! Each rule is tried on a planted offence, and on something close to it that is fine.

use crate::{offences, tree::Tree};

const ROOT: &str = "//! A root for the rules' own tests.\n#![forbid(unsafe_code)]\n";

/// The offences of files planted beside a root which declares the given modules.
fn found(mods: &str, files: &[(&str, &str)]) -> Vec<String> {
    let mut sources = std::collections::BTreeMap::from([("src/lib.rs".to_owned(), format!("{ROOT}{mods}"))]);
    sources.extend(files.iter().map(|(path, text)| ((*path).to_owned(), format!("//! A planted file.\n{text}"))));
    offences(&Tree::new(sources)).iter().map(ToString::to_string).collect()
}

/// The offences of one planted file `src/types.rs`.
fn in_types(text: &str) -> Vec<String> {
    found("mod types;\n", &[("src/types.rs", text)])
}

fn clean(offences: Vec<String>) {
    assert_eq!(offences, Vec::<String>::new());
}

fn one(offences: Vec<String>, start: &str) {
    assert!(offences.len() == 1 && offences[0].starts_with(start), "{start} in {offences:#?}");
}

#[test]
fn a_file_says_what_it_is_for() {
    let tree = |text: &str| offences(&Tree::new([("src/lib.rs".to_owned(), text.to_owned())].into())).len();
    assert_eq!(tree(ROOT), 0);
    assert_eq!(tree(&ROOT.replacen("//! ", "// ", 1)), 1);
    assert_eq!(tree(&format!("use std::fmt;\n{ROOT}")), 1);
    assert_eq!(tree("//! A root that allows what it should not.\n"), 1, "no forbid");
}

#[test]
fn files_have_a_size_and_tests_do_not_count() {
    one(in_types(&"const A: u8 = 0;\n".repeat(600)), "src/types.rs:601: 601 lines without tests");
    clean(in_types(&"const A: u8 = 0;\n".repeat(599)));
    clean(in_types(&format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    const A: u8 = 0;\n".repeat(900))));
    let beside = "// x\n".repeat(900);
    clean(found("mod types;\n", &[("src/types.rs", "#[cfg(test)]\nmod tests;\n"), ("src/types/tests.rs", &beside)]));
}

#[test]
fn functions_have_a_size() {
    let function = |body: usize| format!("pub fn a(x: [u8; 4]) -> char {{\n{}    '}}'\n}}\n", "    // {\n".repeat(body));
    one(in_types(&function(68)), "src/types.rs:2: a function of 71 lines");
    clean(in_types(&function(67)));
    clean(in_types(&format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(100))));
    clean(in_types(&format!("pub trait T {{\n    fn a(&self);\n{}}}\n", "    // x\n".repeat(100))));
}

#[test]
fn words_are_banned_in_code_and_some_anywhere() {
    for word in [concat!("todo", "!()"), concat!("unimplemented", "!()"), concat!("dbg", "!(1)")] {
        one(in_types(&format!("fn a() {{\n    {word};\n}}\n")), "src/types.rs:3: `");
        clean(in_types(&format!("const A: &str = \"{word}\"; // {word}\n")));
    }
    one(in_types(concat!("#[", "ignore]\nfn a() {}\n")), "src/types.rs:2: ");
    one(in_types(concat!("// TO", "DO: later\n")), "src/types.rs:2: ");
    one(in_types(concat!("// FIX", "ME(x)\n")), "src/types.rs:2: ");
    clean(in_types(concat!("const TO", "DOS: u8 = 0;\n")));
}

#[test]
fn nothing_is_unsafe() {
    one(in_types(concat!("fn a() {\n    un", "safe { b() }\n}\n")), "src/types.rs:3: unsafe code");
    clean(in_types(concat!("// un", "safe\nconst A: &str = r#\"un", "safe \"{\"#;\n")));
}

#[test]
fn metrics_and_error_codes_have_one_place() {
    let net = |text: &str| found("mod net;\n", &[("src/net.rs", text)]);
    one(net("fn a() {\n    metrics::counter!(\"x\").increment(1);\n}\n"), "src/net.rs:3: metrics are moved");
    one(net("use metrics::Counter;\n"), "src/net.rs:2: metrics are moved");
    one(net("const A: &str = \"highwater_lag_records\";\n"), "src/net.rs:2: \"highwater_lag_records\"");
    clean(net("const A: &str = \"highwater-data\"; use crate::net::metrics::Counter;\n"));
    let names = ("src/telemetry/names.rs", "const A: &str = \"highwater_lag_records\";\n");
    clean(found("mod telemetry;\n", &[("src/telemetry/mod.rs", "mod names;\n"), names]));
    for bad in ["r.error_code = 35;", "if r.error_code == -1 {}", "R { error_code: 3 }", "r.with_error_code(3)", "if error.code() == 3 {}"]
    {
        one(net(&format!("fn a() {{\n    {bad}\n}}\n")), "src/net.rs:3: an error code by its number");
    }
    clean(net("fn a() {\n    r.error_code = ErrorCode::None.code();\n    if r.error_code != 0 {}\n}\n"));
}

#[test]
fn config_keys_have_one_place() {
    let with = |net: &str| {
        let keys = ("src/config/keys.rs", "pub const A: &str = \"log.dirs\";\n");
        found("mod config;\nmod net;\n", &[("src/config/mod.rs", "mod keys;\n"), keys, ("src/net.rs", net)])
    };
    one(with("const A: &str = \"log.dirs\";\n"), "src/net.rs:2: \"log.dirs\": keys are spelled");
    clean(with("const A: &str = \"log.dirs is a key\"; // \"log.dirs\"\n"));
    clean(with("#[cfg(test)]\nmod tests {\n    const A: &str = \"log.dirs\";\n}\n"));
}

#[test]
fn every_file_is_reached() {
    one(found("mod types;\n", &[("src/types.rs", ""), ("src/old.rs", "")]), "src/old.rs:1: no `mod` reaches");
    clean(found(
        "pub mod types;\n",
        &[("src/types/mod.rs", "pub(crate) mod a;\n"), ("src/types/a.rs", "mod b;\n"), ("src/types/a/b.rs", "")],
    ));
    let elsewhere = "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\n";
    clean(found("mod types;\n", &[("src/types.rs", elsewhere), ("src/a_tests.rs", "use crate::net::A;\n")]));
    one(found("// mod types;\n", &[("src/types.rs", "")]), "src/types.rs:1: no `mod` reaches");
    clean(found("", &[("tests/a.rs", "mod b;\n"), ("tests/b.rs", ""), ("tests/c/main.rs", "mod d;\n"), ("tests/c/d.rs", "")]));
    one(found("", &[("compat-tests/src/lib.rs", ""), ("compat-tests/src/a.rs", "")]), "compat-tests/src/a.rs:1: no `mod`");
}

#[test]
fn imports_point_down() {
    let two = |record: &str, types: &str| found("mod record;\nmod types;\n", &[("src/record.rs", record), ("src/types.rs", types)]);
    clean(two("use crate::types::Offset;\nuse std::fmt;\n", ""));
    one(two("", "use crate::record::Batch;\n"), "src/types.rs:2: types may not use record::Batch");
    one(two("", "use super::record::Batch;\n"), "src/types.rs:2: types may not use record::Batch");
    one(two("", "fn a() {\n    crate::record::b();\n}\n"), "src/types.rs:3: types may not use record::b");
    one(two("use crate::{\n    types::{A, b::C},\n    net::{D as E},\n};\n", ""), "src/record.rs:4: record may not use net::D");
    clean(two("", "#[cfg(test)]\nmod tests {\n    use crate::record::Batch;\n}\n"));
    clean(two("", "// use crate::record::Batch;\nconst A: &str = \"crate::record\";\n"));
    one(found("mod odd;\n", &[("src/odd.rs", "")]), "src/odd.rs:1: module odd has no row");
}

#[test]
fn the_logs_pure_parts_see_no_disk() {
    let log = |text: &str| {
        found(
            "mod log;\n",
            &[
                ("src/log/mod.rs", "mod validate;\nmod partition;\n"),
                ("src/log/partition.rs", "use super::io::Disk;\n"),
                ("src/log/validate.rs", text),
            ],
        )
    };
    clean(log("use super::{AppendError, error::ReadError};\nuse crate::config::TopicConfig;\n"));
    one(log("use super::io::Disk;\n"), "src/log/validate.rs:2: log::validate may not use log::io::Disk");
    one(log("use super::partition::PartitionLog;\n"), "src/log/validate.rs:2: log::validate may not use log::partition");
    one(log("use std::fs::File;\n"), "src/log/validate.rs:2: log::validate only decides: no std::fs");
}
