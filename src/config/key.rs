//! What a configuration key is: its type, default, valid range and documentation, and the check of a value's text.
//!
//! Knows no key by name (they stand in [`super::keys`] and [`super::topic_keys`]) and reads no file.

use std::{collections::HashSet, fmt::Write};

/// A key's type (`org.apache.kafka.common.config.ConfigDef.Type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Boolean,
    String,
    Int,
    Long,
    Double,
    List,
}

impl Kind {
    /// DescribeConfigs' number of the type (`DescribeConfigsResponse.ConfigType`).
    pub fn wire(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
        }
    }

    /// Kafka's name, as in its documentation and its error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
        }
    }
}

/// Which values a key takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Valid {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    /// Gzip's levels: a range, or −1 for the codec's own choice.
    BetweenOrMinusOne(i64, i64),
    /// One of these words, or a list of them.
    OneOf(&'static [&'static str]),
    /// The same in any case.
    OneOfAnyCase(&'static [&'static str]),
    /// `*`, or a list of `PARTITION:BROKER`.
    Replicas,
}

impl Valid {
    /// For documentation: `[1,...]`, `[0,...,1]`, `[compact, delete]`.
    pub fn describe(self) -> String {
        match self {
            Self::Any => String::new(),
            Self::AtLeast(min) => format!("[{min},...]"),
            Self::Between(min, max) => format!("[{min},...,{max}]"),
            Self::BetweenOrMinusOne(min, max) => format!("[{min},...,{max}] or -1"),
            Self::OneOf(words) | Self::OneOfAnyCase(words) => format!("[{}]", words.join(", ")),
            Self::Replicas => "* or [partitionId]:[brokerId],...".to_owned(),
        }
    }
}

/// How much a key matters, in Kafka's three steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Importance {
    High,
    Medium,
    Low,
}

impl Importance {
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// One row of a table of keys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// The default's text, as [`Key::check`] returns it; `None` where Kafka has null.
    pub default: Option<&'static str>,
    pub valid: Valid,
    pub importance: Importance,
    /// Can be changed while the broker runs (`DynamicBrokerConfig.AllDynamicConfigs`); a topic's configs always can.
    pub dynamic: bool,
    pub doc: &'static str,
}

/// A value that a key refuses; the texts are Kafka's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    #[error("Invalid value {value} for configuration {key}: {why}")]
    Value { key: String, value: String, why: String },
    #[error("Configuration '{0}' values must not be empty.")]
    EmptyItem(&'static str),
}

/// A value in its type.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Boolean(bool),
    String(String),
    Integer(i64),
    Double(f64),
    List(Vec<String>),
}

impl Value {
    /// The text as Kafka prints the parsed value: lists joined by commas, numbers without leading zeros.
    pub fn text(&self) -> String {
        match self {
            Self::Boolean(b) => b.to_string(),
            Self::String(s) => s.clone(),
            Self::Integer(n) => n.to_string(),
            Self::Double(d) => {
                // As Java prints it.
                let large = d.abs() >= 1e7 && d.is_finite();
                let text = if large { format!("{d:E}") } else { d.to_string() };
                match text.split_once('E') {
                    Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
                    None if d.is_finite() && !text.contains('.') => text + ".0",
                    _ => text,
                }
            }
            Self::List(items) => items.join(","),
        }
    }
}

impl Key {
    pub const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        valid: Valid,
        importance: Importance,
        doc: &'static str,
    ) -> Self {
        Self { name, kind, default, valid, importance, dynamic: false, doc }
    }

    pub const fn dynamic(mut self) -> Self {
        self.dynamic = true;
        self
    }

    /// Reads a value's text by the key's type and range. Of items that stand in a list twice the first counts.
    pub fn check(&self, text: &str) -> Result<Value, InvalidValue> {
        let value = self.parse(text.trim())?;
        match &value {
            Value::Integer(n) => self.check_number(&value, *n as f64)?,
            Value::Double(d) => self.check_number(&value, *d)?,
            Value::String(word) => self.check_word(word)?,
            Value::List(items) if self.valid == Valid::Replicas => self.check_replicas(items)?,
            Value::List(items) => items.iter().try_for_each(|item| self.check_word(item))?,
            Value::Boolean(_) => {}
        }
        Ok(value)
    }

    fn invalid(&self, value: &str, why: impl Into<String>) -> InvalidValue {
        // A peer's value may be long; the message only has to show which it was.
        let mut shown: String = value.chars().take(256).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        InvalidValue::Value { key: self.name.to_owned(), value: shown, why: why.into() }
    }

    fn parse(&self, text: &str) -> Result<Value, InvalidValue> {
        let not_a_number = || self.invalid(text, format!("Not a number of type {}", self.kind.name()));
        match self.kind {
            Kind::Boolean if text.eq_ignore_ascii_case("true") => Ok(Value::Boolean(true)),
            Kind::Boolean if text.eq_ignore_ascii_case("false") => Ok(Value::Boolean(false)),
            Kind::Boolean => Err(self.invalid(text, "Expected value to be either true or false")),
            Kind::String => Ok(Value::String(text.to_owned())),
            Kind::Int => text.parse::<i32>().map(|n| Value::Integer(n.into())).map_err(|_| not_a_number()),
            Kind::Long => text.parse().map(Value::Integer).map_err(|_| not_a_number()),
            Kind::Double => text.parse().ok().filter(|d: &f64| d.is_finite()).map(Value::Double).ok_or_else(not_a_number),
            Kind::List if text.is_empty() => Ok(Value::List(Vec::new())),
            Kind::List => {
                let mut seen = HashSet::new();
                let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| seen.insert(*item)).collect();
                if items.contains(&"") {
                    return Err(InvalidValue::EmptyItem(self.name));
                }
                Ok(Value::List(items.into_iter().map(str::to_owned).collect()))
            }
        }
    }

    fn check_number(&self, value: &Value, n: f64) -> Result<(), InvalidValue> {
        let refuse = |why: String| Err(self.invalid(&value.text(), why));
        match self.valid {
            Valid::AtLeast(min) | Valid::Between(min, _) if n < min as f64 => refuse(format!("Value must be at least {min}")),
            Valid::Between(_, max) if n > max as f64 => refuse(format!("Value must be no more than {max}")),
            Valid::BetweenOrMinusOne(min, max) if n != -1.0 && (n < min as f64 || n > max as f64) => {
                refuse(format!("Value must be between {min} and {max} or equal to -1"))
            }
            _ => Ok(()),
        }
    }

    fn check_word(&self, word: &str) -> Result<(), InvalidValue> {
        match self.valid {
            Valid::OneOfAnyCase(words) if !words.iter().any(|one| one.eq_ignore_ascii_case(word)) => {
                Err(self.invalid(word, format!("String must be one of (case insensitive): {}", words.join(", ").to_uppercase())))
            }
            Valid::OneOf(words) if !words.contains(&word) => {
                Err(self.invalid(word, format!("String must be one of: {}", words.join(", "))))
            }
            _ => Ok(()),
        }
    }

    /// `ThrottledReplicaListValidator`.
    fn check_replicas(&self, items: &[String]) -> Result<(), InvalidValue> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let pair = |item: &String| item.split_once(':').is_some_and(|(partition, broker)| digits(partition) && digits(broker));
        if items.iter().all(pair) || matches!(items, [all] if all == "*") {
            return Ok(());
        }
        let why = format!(
            "{} must be the literal '*' or a list of replicas in the following format: \
             [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            self.name
        );
        Err(self.invalid(&format!("[{}]", items.join(", ")), why))
    }
}

/// Rows of a markdown table, escaped; the README's config tables are made with it.
pub(super) fn markdown_table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(head.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: Key = Key::new("compression.gzip.level", Kind::Int, Some("-1"), Valid::BetweenOrMinusOne(1, 9), Importance::Medium, "");
    const SEGMENT_MS: Key = Key::new("segment.ms", Kind::Long, Some("1"), Valid::AtLeast(1), Importance::Medium, "");
    const RATIO: Key = Key::new("min.cleanable.dirty.ratio", Kind::Double, Some("0.5"), Valid::Between(0, 1), Importance::Medium, "");
    const POLICY: Key =
        Key::new("cleanup.policy", Kind::List, Some("delete"), Valid::OneOf(&["compact", "delete"]), Importance::Medium, "");
    const PREALLOCATE: Key = Key::new("preallocate", Kind::Boolean, Some("false"), Valid::Any, Importance::Medium, "");

    fn why(key: Key, text: &str) -> String {
        key.check(text).unwrap_err().to_string()
    }

    #[test]
    fn refusals_read_as_kafkas_do() {
        assert_eq!(why(SEGMENT_MS, "0"), "Invalid value 0 for configuration segment.ms: Value must be at least 1");
        assert_eq!(why(SEGMENT_MS, "soon"), "Invalid value soon for configuration segment.ms: Not a number of type LONG");
        assert_eq!(
            why(LEVEL, "0"),
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"
        );
        assert_eq!(why(LEVEL, "2147483648"), "Invalid value 2147483648 for configuration compression.gzip.level: Not a number of type INT");
        assert_eq!(why(RATIO, "1.5"), "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1");
        assert_eq!(why(RATIO, "NaN"), "Invalid value NaN for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE");
        assert_eq!(
            why(POLICY, "delete, Compact"),
            "Invalid value Compact for configuration cleanup.policy: String must be one of: compact, delete"
        );
        assert_eq!(why(POLICY, "delete,"), "Configuration 'cleanup.policy' values must not be empty.");
        let replicas = Key::new("r", Kind::List, Some(""), Valid::Replicas, Importance::Medium, "");
        let refused = "Invalid value [0:1, x] for configuration r: r must be the literal '*' or a list of replicas in the following \
                       format: [partitionId]:[brokerId],[partitionId]:[brokerId],...";
        assert_eq!(why(replicas, "0:1,x"), refused);
        assert!(["", "*", "0:1", "0:1,12:3"].iter().all(|text| replicas.check(text).is_ok()));
        assert_eq!(why(PREALLOCATE, "yes"), "Invalid value yes for configuration preallocate: Expected value to be either true or false");
    }

    #[test]
    fn values_are_trimmed_and_printed_in_one_form() {
        assert_eq!(POLICY.check(" compact , delete,compact ").unwrap().text(), "compact,delete");
        assert_eq!(POLICY.check("").unwrap().text(), "");
        assert_eq!(PREALLOCATE.check(" TRUE ").unwrap(), Value::Boolean(true));
        assert_eq!(SEGMENT_MS.check(" 0042 ").unwrap().text(), "42");
        assert_eq!(RATIO.check("1").unwrap().text(), "1.0");
        let rate = Key::new("log.cleaner.io.max.bytes.per.second", Kind::Double, None, Valid::Any, Importance::Medium, "");
        for (given, printed) in [("1e7", "1.0E7"), ("12345678", "1.2345678E7"), ("1048576", "1048576.0"), ("0.25", "0.25")] {
            assert_eq!(rate.check(given).unwrap().text(), printed);
        }
        assert_eq!(rate.check("1.7976931348623157E308").unwrap(), Value::Double(f64::MAX));
        assert_eq!(LEVEL.check("-1").unwrap().text(), "-1");
    }
}
