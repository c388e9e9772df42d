//! The rules that look at one file at a time: sizes, words, and things that have one place.

use crate::{
    Offence,
    tree::{File, Tree},
};
use std::collections::BTreeSet;

/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, from its signature to its closing bracket.
const FUNCTION_LINES_MAX: usize = 70;

/// Words that may not stand in code, and where the exceptions are. Split, so that this file does not hold them.
const BANNED: &[(&str, &str)] = &[
    (concat!("todo", "!"), "finish it, or write an issue"),
    (concat!("unimplemented", "!"), "finish it, or write an issue"),
    (concat!("dbg", "!"), "log through tracing"),
    (concat!("#[", "ignore"), "a test that does not run shows nothing"),
];
/// Words that may not even stand in comments.
const BANNED_ANYWHERE: &[&str] = &[concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];

pub fn check(file: &File, offences: &mut Vec<Offence>) {
    let mut offend = |line: usize, what: String| offences.push(Offence { path: file.path.clone(), line, what });
    doc(file, &mut offend);
    file_size(file, &mut offend);
    function_size(file, &mut offend);
    words(file, &mut offend);
    unsafe_code(file, &mut offend);
    if file.path.starts_with("src/") && !file.test {
        one_place(file, &mut offend);
    }
}

type Offend<'a> = &'a mut dyn FnMut(usize, String);

fn doc(file: &File, offend: Offend<'_>) {
    let first = file.scan.text.lines().next().unwrap_or("");
    if first.strip_prefix("//! ").is_none_or(|doc| doc.trim().len() < 10) {
        offend(1, "the first line does not say what the file is for (`//! …`)".into());
    }
}

fn file_size(file: &File, offend: Offend<'_>) {
    if file.test && file.path.starts_with("src/") {
        return;
    }
    let lines = file.scan.text.lines().enumerate().filter(|(i, _)| !file.scan.is_test_line(i + 1)).count();
    if lines > FILE_LINES_MAX {
        offend(FILE_LINES_MAX + 1, format!("{lines} lines without tests; at most {FILE_LINES_MAX}"));
    }
}

fn function_size(file: &File, offend: Offend<'_>) {
    let code = &file.scan.code;
    for at in words_at(code, "fn") {
        let named = code.get(at + 2) == Some(&' ') && code.get(at + 3).is_some_and(|c| c.is_alphabetic() || *c == '_');
        let line = file.scan.line_at(at);
        if !named || (file.path.starts_with("src/") && (file.test || file.scan.is_test_line(line))) {
            continue;
        }
        let Some(end) = file.scan.block_end(at) else { continue };
        let lines = file.scan.line_at(end) - line + 1;
        if lines > FUNCTION_LINES_MAX {
            offend(line, format!("a function of {lines} lines; at most {FUNCTION_LINES_MAX}"));
        }
    }
}

fn words(file: &File, offend: Offend<'_>) {
    for (line, code) in file.scan.code_lines() {
        for (word, instead) in BANNED {
            if code.contains(word) {
                offend(line, format!("`{word}`: {instead}"));
            }
        }
    }
    for (i, text) in file.scan.text.lines().enumerate() {
        for word in BANNED_ANYWHERE {
            if text.split(|c: char| !c.is_alphanumeric()).any(|w| w == *word) {
                offend(i + 1, format!("`{word}`: do it now, or write an issue"));
            }
        }
    }
}

fn unsafe_code(file: &File, offend: Offend<'_>) {
    for at in words_at(&file.scan.code, concat!("un", "safe")) {
        offend(file.scan.line_at(at), "unsafe code: rustix and bytes have what is needed".into());
    }
    let root = matches!(file.path.as_str(), "src/lib.rs" | "src/main.rs");
    if root && !file.scan.text.contains("#![forbid(unsafe_code)]") {
        offend(1, "a crate root without `#![forbid(unsafe_code)]`".into());
    }
}

/// Metric names, metric macros and error codes' numbers each have their one module.
fn one_place(file: &File, offend: Offend<'_>) {
    let module = file.module.as_deref().unwrap_or("");
    let telemetry = module == "telemetry" || module.starts_with("telemetry::");
    for (line, code) in file.scan.code_lines() {
        if file.scan.is_test_line(line) {
            continue;
        }
        if !telemetry && ["metrics::", "counter!", "gauge!", "histogram!"].iter().any(|word| has_path(&code, word)) {
            offend(line, "metrics are moved by telemetry::events only".into());
        }
        if module != "types::error_code" && numbers_an_error(&code) {
            offend(line, "an error code by its number: types::ErrorCode has the names".into());
        }
    }
    for (line, string) in &file.scan.strings {
        let named = ["highwater_", "process_"].iter().any(|prefix| string.starts_with(prefix));
        let name = string.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if named && name && module != "telemetry::names" && !file.scan.is_test_line(*line) {
            offend(*line, format!("\"{string}\": metric names stand in telemetry::names"));
        }
    }
}

/// The modules of the two tables of configuration keys.
const KEY_TABLES: &[&str] = &["config::keys", "config::topic_keys"];
/// Modules outside of `config` that may spell a key, and why.
const KEY_SPELLERS: &[(&str, &str)] = &[
    ("cluster::meta", "meta.properties has keys of the same names"),
    ("cluster::adopt", "gives Kafka's internal topics the overrides that they have there"),
    ("coordinator::groups", "creates the offsets topic with the overrides that it has in Kafka"),
    ("coordinator::transactions", "creates the transaction topic with the overrides that it has in Kafka"),
];

/// The keys of the tables: dotted names that stand there as strings.
pub fn config_keys(tree: &Tree) -> BTreeSet<String> {
    let dotted = |s: &&String| s.contains('.') && s.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase()));
    let tables = tree.files.iter().filter(|file| KEY_TABLES.iter().any(|table| file.module.as_deref() == Some(table)));
    tables.flat_map(|file| file.scan.strings.iter().map(|(_, string)| string).filter(dotted).cloned()).collect()
}

/// Code asks the typed configuration; only the tables know how a key is spelled.
pub fn config_keys_elsewhere(file: &File, keys: &BTreeSet<String>, offences: &mut Vec<Offence>) {
    let module = file.module.as_deref().unwrap_or("");
    let speller = module == "config" || module.starts_with("config::") || KEY_SPELLERS.iter().any(|(speller, _)| *speller == module);
    if !file.path.starts_with("src/") || file.test || speller {
        return;
    }
    for (line, string) in file.scan.strings.iter().filter(|(line, string)| keys.contains(string) && !file.scan.is_test_line(*line)) {
        offences.push(Offence {
            path: file.path.clone(),
            line: *line,
            what: format!("\"{string}\": keys are spelled in config's tables only"),
        });
    }
}

/// Whether `word` stands in the line and doesn't continue another word or path.
fn has_path(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
}

/// `error_code: 35`, `error_code = 35`, `error_code == 35`, `with_error_code(35)` and the like. `!= 0` is fine: it asks for any error.
fn numbers_an_error(code: &str) -> bool {
    let number = |rest: &str| {
        let compared = rest.trim_start_matches([' ', ')']).starts_with("!= ");
        let rest = rest.trim_start_matches(['=', '!', ':', '(', ')', ' ']).trim_start_matches('-');
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let any_error = digits == "0" && compared;
        !digits.is_empty() && !any_error
    };
    let after = |word: &str| code.match_indices(word).any(|(at, _)| number(&code[at + word.len()..]));
    after("error_code") || after("error.code()") || after("ErrorCode::from")
}

/// Where a word stands by itself.
fn words_at(code: &[char], word: &str) -> Vec<usize> {
    let word: Vec<char> = word.chars().collect();
    let part = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let stands = |at: &usize| !part(at.checked_sub(1).and_then(|i| code.get(i))) && !part(code.get(at + word.len()));
    code.windows(word.len()).enumerate().filter(|(_, w)| *w == word.as_slice()).map(|(at, _)| at).filter(stands).collect()
}
