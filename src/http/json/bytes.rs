//! Keys, values and headers for people: text as it came, JSON as it came, anything else in hexadecimal; long ones are cut.

use super::super::view::Bytes;

/// What is shown of one key or value.
const SHOWN_MAX: usize = 16 << 10;

pub fn shown(bytes: &[u8]) -> Bytes {
    let cut = bytes.len() > SHOWN_MAX;
    let (format, text) = match readable(bytes) {
        Some(text) if !cut && is_json(text) => ("json", text.to_owned()),
        Some(text) => ("text", text.get(..boundary(text, SHOWN_MAX)).unwrap_or_default().to_owned()),
        None => ("hex", bytes.iter().take(SHOWN_MAX / 2).map(|byte| format!("{byte:02x}")).collect()),
    };
    let cut = cut || format == "hex" && bytes.len() > SHOWN_MAX / 2;
    Bytes { format: format.to_owned(), text, size_bytes: bytes.len(), cut }
}

/// Text that people can read: UTF-8 without control characters but for white space.
fn readable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t')).then_some(text)
}

/// An object or an array: a number or a word is as well text.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// The last boundary of characters at or before a place.
fn boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> (String, String) {
        let Bytes { format, text, .. } = shown(bytes);
        (format, text)
    }

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        let is = |format: &str, text: &str| (format.to_owned(), text.to_owned());
        assert_eq!(of(b"order-7"), is("text", "order-7"));
        assert_eq!(of(b""), is("text", ""));
        assert_eq!(of("grün\n".as_bytes()), is("text", "grün\n"));
        assert_eq!(of(b" {\"a\": [1]}"), is("json", " {\"a\": [1]}"));
        assert_eq!(of(b"{\"a\": "), is("text", "{\"a\": "));
        assert_eq!(of(b"12"), is("text", "12"));
        assert_eq!(of(b"\x00\xff"), is("hex", "00ff"));
        assert_eq!(of(b"a\x07"), is("hex", "6107"), "a bell is no text");
    }

    #[test]
    fn long_ones_are_cut_between_characters() {
        let long = shown("é".repeat(SHOWN_MAX).as_bytes());
        assert!(long.cut && long.text.len() <= SHOWN_MAX && long.text.chars().all(|c| c == 'é') && long.size_bytes == 2 * SHOWN_MAX);
        let binary = shown(&vec![0xff; SHOWN_MAX]);
        assert!(binary.cut && binary.text.len() == SHOWN_MAX);
        let json = shown(format!("[{}]", " ".repeat(SHOWN_MAX)).as_bytes());
        assert_eq!((json.format.as_str(), json.cut), ("text", true), "half of it is none");
        assert!(!shown(&[b'a'; SHOWN_MAX]).cut);
    }
}
