//! Control records: the key that says what kind one is, and the markers that end transactions
//! (`org.apache.kafka.common.record.ControlRecordType`, `EndTransactionMarker`).
//!
//! Encodes and decodes keys and values only; the batch around them is [`super::builder`]'s.

/// What a control record's key says. Kinds that Kafka adds later read as `Other` and are skipped, as clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ControlRecordType {
    Abort,
    Commit,
    Other(i16),
}

impl ControlRecordType {
    const KEY_VERSION: i16 = 0;

    /// Reads a control record's key: version and type, two big-endian `i16`. `None` if it is too short or its version negative.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let [v0, v1, t0, t1] = *key.first_chunk()?;
        let kind = match i16::from_be_bytes([t0, t1]) {
            0 => Self::Abort,
            1 => Self::Commit,
            other => Self::Other(other),
        };
        (i16::from_be_bytes([v0, v1]) >= 0).then_some(kind)
    }

    /// The key's four bytes.
    pub fn encode(self) -> [u8; 4] {
        let kind = match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::Other(other) => other,
        };
        let ([v0, v1], [t0, t1]) = (Self::KEY_VERSION.to_be_bytes(), kind.to_be_bytes());
        [v0, v1, t0, t1]
    }
}

/// Ends a producer's transaction on one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndTxnMarker {
    /// Committed, or else aborted.
    pub commit: bool,
    /// The epoch of the transaction coordinator that wrote the marker: an older coordinator is fenced by it.
    pub coordinator_epoch: i32,
}

impl EndTxnMarker {
    const VALUE_VERSION: i16 = 0;

    /// The marker in a control record; `None` if the record is of another kind or too short. Newer value versions read as version 0, as Kafka does.
    pub fn decode(key: &[u8], value: &[u8]) -> Option<Self> {
        let commit = match ControlRecordType::decode(key)? {
            ControlRecordType::Commit => true,
            ControlRecordType::Abort => false,
            ControlRecordType::Other(_) => return None,
        };
        let [v0, v1, epoch @ ..]: [u8; 6] = *value.first_chunk()?;
        (i16::from_be_bytes([v0, v1]) >= 0).then_some(Self { commit, coordinator_epoch: i32::from_be_bytes(epoch) })
    }

    /// The control record's key and value.
    pub fn encode(self) -> ([u8; 4], [u8; 6]) {
        let kind = if self.commit { ControlRecordType::Commit } else { ControlRecordType::Abort };
        let ([v0, v1], [e0, e1, e2, e3]) = (Self::VALUE_VERSION.to_be_bytes(), self.coordinator_epoch.to_be_bytes());
        (kind.encode(), [v0, v1, e0, e1, e2, e3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_marker_survives_its_bytes(commit: bool, coordinator_epoch: i32) {
            let marker = EndTxnMarker { commit, coordinator_epoch };
            let (key, value) = marker.encode();
            prop_assert_eq!(EndTxnMarker::decode(&key, &value), Some(marker));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(key: Vec<u8>, value: Vec<u8>) {
            let _ = EndTxnMarker::decode(&key, &value);
        }
    }

    #[test]
    fn bytes_are_kafkas() {
        assert_eq!(EndTxnMarker { commit: true, coordinator_epoch: 7 }.encode(), ([0, 0, 0, 1], [0, 0, 0, 0, 0, 7]));
        assert_eq!(EndTxnMarker::decode(&[0, 0, 0, 2], &[0; 6]), None, "a leader change ends no transaction");
        assert_eq!(EndTxnMarker::decode(&[0xff, 0xff, 0, 1], &[0; 6]), None, "a negative version is corrupt");
        assert_eq!(EndTxnMarker::decode(&[0, 0, 0, 0], &[0; 5]), None);
        let newer = EndTxnMarker::decode(&[0, 0, 0, 0], &[0, 1, 0, 0, 0, 9, 0xff]);
        assert_eq!(newer, Some(EndTxnMarker { commit: false, coordinator_epoch: 9 }), "newer versions only append fields");
    }
}
