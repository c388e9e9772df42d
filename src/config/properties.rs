//! Java's `.properties` syntax, as `java.util.Properties.load` reads it: comments, continued lines, escapes, `=`, `:` or blanks between
//! key and value.
//!
//! Reads and writes text only; knows no key.

/// A `\u` escape without four hexadecimal digits after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: a \\u escape needs four hexadecimal digits")]
pub struct BadEscape {
    /// From 1.
    pub line: usize,
}

/// The pairs in their order; of a key that is there more than once the last counts, as the caller's map will have it.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, BadEscape> {
    let mut pairs = Vec::new();
    let text = text.replace("\r\n", "\n");
    let mut lines = text.split(['\n', '\r']).enumerate();
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start_matches(BLANKS);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = line.to_owned();
        while continues(&whole) {
            whole.pop();
            let Some((_, next)) = lines.next() else { break };
            whole.push_str(next.trim_start_matches(BLANKS));
        }
        let (key, value) = split(&whole);
        let bad = || BadEscape { line: number + 1 };
        pairs.push((unescape(key).ok_or_else(bad)?, unescape(value).ok_or_else(bad)?));
    }
    Ok(pairs)
}

const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// An odd number of backslashes at the end: the next line belongs to this one.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// The key ends at the first `=`, `:` or blank that is not escaped; blanks around the one separator belong to neither.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c: char| {
        let ends = !escaped && (c == '=' || c == ':' || BLANKS.contains(&c));
        escaped = !escaped && c == '\\';
        ends
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start_matches(BLANKS);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start_matches(BLANKS))
}

fn unescape(text: &str) -> Option<String> {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut buffer = [0; 2];
    while let Some(c) = chars.next() {
        if c != '\\' {
            units.extend_from_slice(c.encode_utf16(&mut buffer));
            continue;
        }
        match chars.next() {
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                units.push(u16::from_str_radix(&digits, 16).ok()?);
            }
            Some('t') => units.push(u16::from(b'\t')),
            Some('n') => units.push(u16::from(b'\n')),
            Some('r') => units.push(u16::from(b'\r')),
            Some('f') => units.push(0xc),
            Some(other) => units.extend_from_slice(other.encode_utf16(&mut buffer)),
            None => {}
        }
    }
    // Java's escapes are UTF-16 units: a character beyond U+FFFF is two of them.
    Some(String::from_utf16_lossy(&units))
}

/// A value as [`parse`] reads it back; keys here are plain words.
pub fn escape_value(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for (i, c) in value.chars().enumerate() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{c}' => out.push_str("\\f"),
            ' ' if i == 0 => out.push_str("\\ "),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str) -> (String, String) {
        let mut pairs = parse(text).unwrap();
        assert_eq!(pairs.len(), 1, "{text:?}");
        pairs.remove(0)
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn reads_what_java_reads() {
        assert_eq!(one("a.b=c"), pair("a.b", "c"));
        assert_eq!(one("  a.b \t=  c d  "), pair("a.b", "c d  "));
        assert_eq!(one("a:b=c"), pair("a", "b=c"));
        assert_eq!(one("a b"), pair("a", "b"));
        assert_eq!(one("a"), pair("a", ""));
        assert_eq!(one("a\\=b\\ c=d"), pair("a=b c", "d"));
        assert_eq!(one("a=x\\\n   y"), pair("a", "xy"));
        assert_eq!(one("a=x\\\r\n   y\r\n"), pair("a", "xy"));
        assert_eq!(one("a=x\\\\\n"), pair("a", "x\\"));
        assert_eq!(one("a=x\\\n# not a comment"), pair("a", "x# not a comment"));
        assert_eq!(one("a=\\u00e9\\ud83d\\ude00\\t\\q"), pair("a", "é😀\tq"));
        assert_eq!(one("a=1\\"), pair("a", "1"));
        assert_eq!(parse("# one\n! two\n\n   # three\n").unwrap(), []);
        assert_eq!(parse("a=1\nb=\\u12g4"), Err(BadEscape { line: 2 }));
        assert_eq!(parse("a=1\na=2").unwrap(), [pair("a", "1"), pair("a", "2")]);
    }

    proptest! {
        #[test]
        fn an_escaped_value_reads_back(value in "\\PC*|[\\\\ \t\r\n=:#!]*") {
            let text = format!("key={}\n", escape_value(&value));
            prop_assert_eq!(parse(&text).unwrap(), vec![pair("key", &value)]);
        }

        #[test]
        fn no_text_panics(text in "[a-c=:#!\\\\ \t\r\nu0-9]*") {
            let _ = parse(&text);
        }
    }
}
