//! The small text files of the log, in Kafka's formats: offset checkpoints of a data directory, a partition's metadata, the mark of a
//! clean stop. Pure: text to values and back.

use crate::types::{Offset, PartitionIndex, TopicId, TopicName, TopicPartition};
use std::{collections::HashMap, fmt::Write};

/// A checkpoint's text can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("unknown version {0:?}")]
    Version(String),
    #[error("malformed line {0:?}")]
    Line(String),
    #[error("says it has {said:?} entries, but has {found}")]
    Count { said: String, found: usize },
}

/// `OffsetCheckpointFile`: the version, the count, then `TOPIC PARTITION OFFSET` lines. The order is the caller's.
pub fn encode_offsets<'a>(offsets: impl ExactSizeIterator<Item = (&'a TopicPartition, Offset)>) -> String {
    let mut text = format!("0\n{}\n", offsets.len());
    for (tp, offset) in offsets {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{} {} {offset}", tp.topic, tp.partition);
    }
    text
}

/// Reads an offset checkpoint; an empty file has no entries, as in Kafka.
pub fn decode_offsets(text: &str) -> Result<HashMap<TopicPartition, Offset>, CheckpointError> {
    let quote = |line: &str| line.chars().take(300).collect::<String>();
    let mut lines = text.lines();
    let Some(version) = lines.next() else { return Ok(HashMap::new()) };
    if version.trim() != "0" {
        return Err(CheckpointError::Version(quote(version)));
    }
    let Some(said) = lines.next() else { return Ok(HashMap::new()) };
    let mut offsets = HashMap::new();
    let mut found: usize = 0;
    for line in lines {
        let bad = || CheckpointError::Line(quote(line));
        let mut words = line.split_whitespace();
        let (Some(topic), Some(partition), Some(offset), None) = (words.next(), words.next(), words.next(), words.next()) else {
            return Err(bad());
        };
        let tp = TopicPartition {
            topic: TopicName::new(topic).map_err(|_| bad())?,
            partition: PartitionIndex(partition.parse().map_err(|_| bad())?),
        };
        offsets.insert(tp, Offset(offset.parse().map_err(|_| bad())?));
        found = found.saturating_add(1);
    }
    if said.trim().parse() != Ok(found) {
        return Err(CheckpointError::Count { said: quote(said), found });
    }
    Ok(offsets)
}

/// `PartitionMetadataFile`.
pub fn encode_metadata(id: TopicId) -> String {
    format!("version: 0\ntopic_id: {id}")
}

/// The topic id in a partition's metadata; `None` if the text is torn or of another version: the file is written again.
pub fn decode_metadata(text: &str) -> Option<TopicId> {
    let mut lines = text.lines();
    let version = lines.next()?.strip_prefix("version:")?;
    let id = lines.next()?.strip_prefix("topic_id:")?;
    if version.trim() != "0" {
        return None;
    }
    id.trim().parse().ok().filter(|id: &TopicId| !id.is_zero())
}

/// `CleanShutdownFileHandler`: what `.kafka_cleanshutdown` holds. That the file is there is what counts.
pub fn clean_mark() -> &'static str {
    r#"{"version":0,"brokerEpoch":-1}"#
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tp(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: TopicName::new(topic).unwrap(), partition: PartitionIndex(partition) }
    }

    #[test]
    fn offsets_survive_their_text() {
        let offsets = [(tp("a", 0), Offset(5)), (tp("b-c", 11), Offset(i64::MAX))];
        let text = encode_offsets(offsets.iter().map(|(tp, o)| (tp, *o)));
        assert_eq!(text, "0\n2\na 0 5\nb-c 11 9223372036854775807\n");
        assert_eq!(decode_offsets(&text), Ok(offsets.into_iter().collect()));
        assert_eq!(decode_offsets(""), Ok(HashMap::new()));
        assert_eq!(decode_offsets("1\n0\n"), Err(CheckpointError::Version("1".into())));
        assert_eq!(decode_offsets("0\n1\na 0\n"), Err(CheckpointError::Line("a 0".into())));
        assert_eq!(decode_offsets("0\n2\na 0 1\n"), Err(CheckpointError::Count { said: "2".into(), found: 1 }));
    }

    #[test]
    fn metadata_survives_its_text() {
        let id = TopicId(uuid::Uuid::from_u128(77));
        assert_eq!(decode_metadata(&encode_metadata(id)), Some(id));
        for torn in ["", "version: 0", "version: 0\ntopic_id: AAAA", "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"] {
            assert_eq!(decode_metadata(torn), None, "{torn:?}");
        }
    }
}
