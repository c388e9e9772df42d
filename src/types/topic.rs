//! Topic names and ids: the checks that Kafka makes on them (`org.apache.kafka.common.internals.Topic`).

use super::PartitionIndex;
use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

/// A legal topic name: 1 to 249 of `[a-zA-Z0-9._-]`, not `.` or `..`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Why a topic name is refused (INVALID_TOPIC_EXCEPTION).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTopicName {
    #[error("the topic name is empty")]
    Empty,
    #[error("the topic name cannot be \".\" or \"..\"")]
    Dots,
    #[error("the topic name is {0} characters long; at most {max} are allowed", max = TopicName::LEN_MAX)]
    TooLong(usize),
    #[error("the topic name contains a character other than ASCII letters, digits, '.', '_' and '-'")]
    Character,
}

impl TopicName {
    /// The longest name: `NAME-PARTITION` plus a deletion suffix must still be a file name.
    pub const LEN_MAX: usize = 249;

    /// Checks and takes a name.
    pub fn new(name: &str) -> Result<Self, BadTopicName> {
        match name {
            "" => return Err(BadTopicName::Empty),
            "." | ".." => return Err(BadTopicName::Dots),
            _ => {}
        }
        if name.len() > Self::LEN_MAX {
            return Err(BadTopicName::TooLong(name.len()));
        }
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if !name.bytes().all(legal) {
            return Err(BadTopicName::Character);
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Kafka's internal topics, flagged `is_internal` in Metadata and protected from clients' writes.
    pub fn is_internal(&self) -> bool {
        matches!(self.as_str(), "__consumer_offsets" | "__transaction_state")
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for TopicName {
    type Err = BadTopicName;
    fn from_str(name: &str) -> Result<Self, BadTopicName> {
        Self::new(name)
    }
}

/// A topic's id: it stays when a name is deleted and created again as another topic (KIP-516).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub uuid::Uuid);

impl TopicId {
    /// "No id": what requests that go by name carry.
    pub const ZERO: Self = Self(uuid::Uuid::nil());

    pub fn is_zero(self) -> bool {
        self.0.is_nil()
    }
}

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Kafka prints ids as 22 characters of URL-safe base64 without padding (`org.apache.kafka.common.Uuid`).
impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.as_u128();
        (0..22).try_for_each(|i| {
            // 21 characters of 6 bits from the top, then the last 2 bits padded with zeros.
            let six = if i < 21 { (bits >> (122 - 6 * i)) & 63 } else { (bits & 3) << 4 };
            let letter = BASE64_URL.get(six as usize).copied().unwrap_or(b'A');
            fmt::Write::write_char(f, char::from(letter))
        })
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 22 characters of URL-safe base64.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a topic id: {0:?}")]
pub struct BadTopicId(String);

impl FromStr for TopicId {
    type Err = BadTopicId;
    fn from_str(text: &str) -> Result<Self, BadTopicId> {
        let bad = || BadTopicId(text.chars().take(64).collect());
        let text_bytes = text.trim_end_matches('=').as_bytes();
        if text_bytes.len() != 22 {
            return Err(bad());
        }
        let mut bits: u128 = 0;
        for (i, byte) in text_bytes.iter().enumerate() {
            let six = BASE64_URL.iter().position(|b| b == byte).ok_or_else(bad)? as u128;
            bits = if i < 21 { bits << 6 | six } else { bits << 2 | six >> 4 };
        }
        Ok(Self(uuid::Uuid::from_u128(bits)))
    }
}

/// One partition of one topic; prints as its directory is called, `TOPIC-N`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: TopicName,
    pub partition: PartitionIndex,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rules() {
        assert!(TopicName::new("a.B_c-9").is_ok());
        assert_eq!(TopicName::new(""), Err(BadTopicName::Empty));
        assert_eq!(TopicName::new(".."), Err(BadTopicName::Dots));
        assert_eq!(TopicName::new("a/b"), Err(BadTopicName::Character));
        assert_eq!(TopicName::new("é"), Err(BadTopicName::Character));
        assert!(TopicName::new(&"x".repeat(249)).is_ok());
        assert_eq!(TopicName::new(&"x".repeat(250)), Err(BadTopicName::TooLong(250)));
    }

    proptest::proptest! {
        #[test]
        fn an_id_survives_its_text(bits: u128) {
            let id = TopicId(uuid::Uuid::from_u128(bits));
            proptest::prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn an_id_prints_as_kafka_prints_it() {
        // Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAQ") is Kafka's METADATA_TOPIC_ID, 0…01.
        assert_eq!(TopicId(uuid::Uuid::from_u128(1)).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
    }
}
