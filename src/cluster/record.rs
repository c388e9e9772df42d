//! The records of the metadata journal: what each means, and its bytes.
//!
//! A record is `[kind u8][version u8][length u32][body]`, big-endian; text is `[length u32][UTF-8]`, lists are `[count u32][items]`. A kind
//! or version that this build doesn't know is an error and never skipped: metadata that is half understood is wrong. Does no I/O.

use super::{features::Levels, image::PartitionState};
use crate::types::{BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName};
use std::collections::BTreeMap;

/// One change of the cluster's metadata, decided in [`super::admin`] and applied in [`super::image`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The cluster's id; the first record of a journal.
    Cluster { cluster_id: String },
    /// A topic with all of its partitions.
    Topic { id: TopicId, name: TopicName, overrides: BTreeMap<String, String>, partitions: Vec<PartitionState> },
    /// Partitions that follow those a topic has.
    Partitions { id: TopicId, partitions: Vec<PartitionState> },
    /// A topic's configs, all of them.
    Overrides { id: TopicId, overrides: BTreeMap<String, String> },
    /// The topic is gone, its directories may still be there: they are not to be adopted.
    Deleted { id: TopicId, name: TopicName },
    /// The directories of a deleted topic are gone, too.
    Forgotten { id: TopicId },
    /// Producer ids below this one have been given out.
    ProducerIds { next: i64 },
    /// Every partition that this broker leads enters its next leader epoch: it came back after a crash.
    LeaderReturned { broker: BrokerId },
    /// One partition enters this leader epoch: its log knew of a later one than the journal.
    LeaderEpochSet { id: TopicId, partition: PartitionIndex, leader_epoch: LeaderEpoch },
    /// The features' levels, all of them.
    Features { levels: Levels },
    /// A consumer group's configs, all of them; the group itself need not be there.
    GroupConfigs { group: String, overrides: BTreeMap<String, String> },
    /// The configs that were set on a broker while it ran, or on all of them, all there are.
    BrokerConfigs { broker: Option<BrokerId>, overrides: BTreeMap<String, String> },
}

/// A journal that this build cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    #[error("the record ends early")]
    Truncated,
    #[error("record kind {kind} version {version} is not known: it was written by a newer highwater")]
    Unknown { kind: u8, version: u8 },
    #[error("a record of kind {0} is malformed")]
    Malformed(u8),
}

const VERSION: u8 = 0;
/// In the place of a broker's id.
const ALL_BROKERS: i32 = -1;

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Self::Cluster { .. } => 1,
            Self::Topic { .. } => 2,
            Self::Partitions { .. } => 3,
            Self::Overrides { .. } => 4,
            Self::Deleted { .. } => 5,
            Self::Forgotten { .. } => 6,
            Self::ProducerIds { .. } => 7,
            Self::LeaderReturned { .. } => 8,
            Self::LeaderEpochSet { .. } => 9,
            Self::Features { .. } => 10,
            Self::GroupConfigs { .. } => 20,
            Self::BrokerConfigs { .. } => 21,
        }
    }

    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Writer(Vec::new());
        match self {
            Self::Cluster { cluster_id } => body.text(cluster_id),
            Self::Topic { id, name, overrides, partitions } => {
                body.id(*id);
                body.text(name.as_str());
                body.overrides(overrides);
                body.partitions(partitions);
            }
            Self::Partitions { id, partitions } => {
                body.id(*id);
                body.partitions(partitions);
            }
            Self::Overrides { id, overrides } => {
                body.id(*id);
                body.overrides(overrides);
            }
            Self::Deleted { id, name } => {
                body.id(*id);
                body.text(name.as_str());
            }
            Self::Forgotten { id } => body.id(*id),
            Self::ProducerIds { next } => body.0.extend_from_slice(&next.to_be_bytes()),
            Self::LeaderReturned { broker } => body.i32(broker.0),
            Self::LeaderEpochSet { id, partition, leader_epoch } => {
                body.id(*id);
                body.i32(partition.0);
                body.i32(leader_epoch.0);
            }
            Self::Features { levels } => body.levels(levels),
            Self::GroupConfigs { group, overrides } => {
                body.text(group);
                body.overrides(overrides);
            }
            Self::BrokerConfigs { broker, overrides } => {
                body.i32(broker.map_or(ALL_BROKERS, |broker| broker.0));
                body.overrides(overrides);
            }
        }
        out.extend_from_slice(&[self.kind(), VERSION]);
        out.extend_from_slice(&count(body.0.len()).to_be_bytes());
        out.extend_from_slice(&body.0);
    }

    /// Reads one record from the front of `bytes`.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self, BadRecord> {
        let mut reader = Reader(bytes);
        let (kind, version) = (reader.u8()?, reader.u8()?);
        let body = reader.counted()?;
        *bytes = reader.0;
        if version != VERSION {
            return Err(BadRecord::Unknown { kind, version });
        }
        let mut body = Reader(body);
        let record = Self::decode_body(kind, version, &mut body).map_err(|error| match error {
            BadRecord::Truncated => BadRecord::Malformed(kind),
            other => other,
        })?;
        if body.0.is_empty() { Ok(record) } else { Err(BadRecord::Malformed(kind)) }
    }

    fn decode_body(kind: u8, version: u8, body: &mut Reader<'_>) -> Result<Self, BadRecord> {
        Ok(match kind {
            1 => Self::Cluster { cluster_id: body.text()? },
            2 => Self::Topic { id: body.id()?, name: body.name()?, overrides: body.overrides()?, partitions: body.partitions()? },
            3 => Self::Partitions { id: body.id()?, partitions: body.partitions()? },
            4 => Self::Overrides { id: body.id()?, overrides: body.overrides()? },
            5 => Self::Deleted { id: body.id()?, name: body.name()? },
            6 => Self::Forgotten { id: body.id()? },
            7 => Self::ProducerIds { next: i64::from_be_bytes(body.array()?) },
            8 => Self::LeaderReturned { broker: BrokerId(body.i32()?) },
            9 => Self::LeaderEpochSet { id: body.id()?, partition: PartitionIndex(body.i32()?), leader_epoch: LeaderEpoch(body.i32()?) },
            10 => Self::Features { levels: body.levels()? },
            20 => Self::GroupConfigs { group: body.text()?, overrides: body.overrides()? },
            21 => Self::BrokerConfigs {
                broker: Some(body.i32()?).filter(|id| *id != ALL_BROKERS).map(BrokerId),
                overrides: body.overrides()?,
            },
            _ => return Err(BadRecord::Unknown { kind, version }),
        })
    }
}

/// Lengths are far below this: a journal frame is bounded long before.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

struct Writer(Vec<u8>);

impl Writer {
    fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn id(&mut self, id: TopicId) {
        self.0.extend_from_slice(id.0.as_bytes());
    }

    fn len(&mut self, len: usize) {
        self.0.extend_from_slice(&count(len).to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.len(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn overrides(&mut self, overrides: &BTreeMap<String, String>) {
        self.len(overrides.len());
        for (name, value) in overrides {
            self.text(name);
            self.text(value);
        }
    }

    fn levels(&mut self, levels: &Levels) {
        self.0.extend_from_slice(&levels.epoch.to_be_bytes());
        self.len(levels.set.len());
        for (name, level) in &levels.set {
            self.text(name);
            self.0.extend_from_slice(&level.to_be_bytes());
        }
    }

    fn brokers(&mut self, brokers: &[BrokerId]) {
        self.len(brokers.len());
        brokers.iter().for_each(|broker| self.i32(broker.0));
    }

    fn partitions(&mut self, partitions: &[PartitionState]) {
        self.len(partitions.len());
        for state in partitions {
            self.i32(state.leader.0);
            self.i32(state.leader_epoch.0);
            self.i32(state.partition_epoch);
            self.brokers(&state.replicas);
            self.brokers(&state.isr);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BadRecord::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadRecord> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BadRecord::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, BadRecord> {
        self.array().map(|[byte]| byte)
    }

    fn i32(&mut self) -> Result<i32, BadRecord> {
        self.array().map(i32::from_be_bytes)
    }

    fn len(&mut self) -> Result<usize, BadRecord> {
        let len = self.array().map(u32::from_be_bytes)?;
        // Each item takes a byte or more, so a length beyond what is left is false, and nothing is reserved for it.
        usize::try_from(len).ok().filter(|len| *len <= self.0.len()).ok_or(BadRecord::Truncated)
    }

    fn counted(&mut self) -> Result<&'a [u8], BadRecord> {
        let len = self.len()?;
        self.take(len)
    }

    fn text(&mut self) -> Result<String, BadRecord> {
        String::from_utf8(self.counted()?.to_vec()).map_err(|_| BadRecord::Truncated)
    }

    fn name(&mut self) -> Result<TopicName, BadRecord> {
        TopicName::new(&self.text()?).map_err(|_| BadRecord::Truncated)
    }

    fn id(&mut self) -> Result<TopicId, BadRecord> {
        self.array().map(|bytes| TopicId(uuid::Uuid::from_bytes(bytes)))
    }

    fn overrides(&mut self) -> Result<BTreeMap<String, String>, BadRecord> {
        (0..self.len()?).map(|_| Ok((self.text()?, self.text()?))).collect()
    }

    fn levels(&mut self) -> Result<Levels, BadRecord> {
        let epoch = self.array().map(i64::from_be_bytes)?;
        let set = (0..self.len()?).map(|_| Ok((self.text()?, self.array().map(i16::from_be_bytes)?))).collect::<Result<_, _>>()?;
        Ok(Levels { epoch, set })
    }

    fn brokers(&mut self) -> Result<Vec<BrokerId>, BadRecord> {
        (0..self.len()?).map(|_| self.i32().map(BrokerId)).collect()
    }

    fn partitions(&mut self) -> Result<Vec<PartitionState>, BadRecord> {
        let one = |reader: &mut Self| {
            Ok(PartitionState {
                leader: BrokerId(reader.i32()?),
                leader_epoch: LeaderEpoch(reader.i32()?),
                partition_epoch: reader.i32()?,
                replicas: reader.brokers()?,
                isr: reader.brokers()?,
            })
        };
        (0..self.len()?).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::{collection::btree_map, collection::vec, prelude::*};

    pub fn any_id() -> impl Strategy<Value = TopicId> {
        // Few ids, so that records meet each other.
        (1u128..6).prop_map(|bits| TopicId(uuid::Uuid::from_u128(bits)))
    }

    fn any_name() -> impl Strategy<Value = TopicName> {
        "[a-e]".prop_map(|name| TopicName::new(&name).unwrap())
    }

    fn any_partition() -> impl Strategy<Value = PartitionState> {
        let brokers = || vec((0..4).prop_map(BrokerId), 0..3);
        (0..4, -1..5, 0..5, brokers(), brokers()).prop_map(|(leader, leader_epoch, partition_epoch, replicas, isr)| PartitionState {
            leader: BrokerId(leader),
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch,
            replicas,
            isr,
        })
    }

    pub fn any_record() -> impl Strategy<Value = Record> {
        let overrides = || btree_map("retention\\.ms|segment\\.ms|\\PC*", "[0-9]{1,4}|\\PC*", 0..3);
        prop_oneof![
            "\\PC*".prop_map(|cluster_id| Record::Cluster { cluster_id }),
            (any_id(), any_name(), overrides(), vec(any_partition(), 0..4)).prop_map(|(id, name, overrides, partitions)| Record::Topic {
                id,
                name,
                overrides,
                partitions
            }),
            (any_id(), vec(any_partition(), 0..4)).prop_map(|(id, partitions)| Record::Partitions { id, partitions }),
            (any_id(), overrides()).prop_map(|(id, overrides)| Record::Overrides { id, overrides }),
            (any_id(), any_name()).prop_map(|(id, name)| Record::Deleted { id, name }),
            any_id().prop_map(|id| Record::Forgotten { id }),
            any::<i64>().prop_map(|next| Record::ProducerIds { next }),
            (any::<i64>(), btree_map("\\PC*", any::<i16>(), 0..3))
                .prop_map(|(epoch, set)| Record::Features { levels: Levels { epoch, set } }),
            (0..4).prop_map(|broker| Record::LeaderReturned { broker: BrokerId(broker) }),
            (any_id(), 0..4, -1..9).prop_map(|(id, partition, epoch)| Record::LeaderEpochSet {
                id,
                partition: PartitionIndex(partition),
                leader_epoch: LeaderEpoch(epoch)
            }),
            ("[a-c]", overrides()).prop_map(|(group, overrides)| Record::GroupConfigs { group, overrides }),
            (proptest::option::of((0..3).prop_map(BrokerId)), btree_map("log\\.retention\\.ms|node\\.id|\\PC*", "[0-9]{1,4}|\\PC*", 0..3))
                .prop_map(|(broker, overrides)| Record::BrokerConfigs { broker, overrides }),
        ]
    }

    proptest! {
        #[test]
        fn every_record_reads_back(records in vec(any_record(), 1..8)) {
            let mut bytes = Vec::new();
            records.iter().for_each(|record| record.encode(&mut bytes));
            let mut rest = &bytes[..];
            let read: Vec<Record> = std::iter::from_fn(|| (!rest.is_empty()).then(|| Record::decode(&mut rest).unwrap())).collect();
            prop_assert_eq!(read, records);
        }

        #[test]
        fn a_record_cut_short_is_refused(record in any_record(), cut in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let mut rest = &bytes[..cut.index(bytes.len())];
            prop_assert_eq!(Record::decode(&mut rest), Err(BadRecord::Truncated));
        }

        #[test]
        fn no_bytes_panic_or_ask_for_memory(bytes in vec(any::<u8>(), 0..64), kind in 0u8..24) {
            let _ = Record::decode(&mut &bytes[..]);
            let framed = [&[kind, 0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat();
            let _ = Record::decode(&mut &framed[..]);
        }
    }

    #[test]
    fn what_a_newer_version_wrote_is_not_skipped() {
        assert_eq!(Record::decode(&mut &[200, 0, 0, 0, 0, 0][..]), Err(BadRecord::Unknown { kind: 200, version: 0 }));
        assert_eq!(Record::decode(&mut &[6, 1, 0, 0, 0, 0][..]), Err(BadRecord::Unknown { kind: 6, version: 1 }));
        assert_eq!(Record::decode(&mut &[6, 0, 0, 0, 0, 0][..]), Err(BadRecord::Malformed(6)));
    }

    #[test]
    fn the_bytes_stay_as_they_are() {
        let record =
            Record::LeaderEpochSet { id: TopicId(uuid::Uuid::from_u128(1)), partition: PartitionIndex(2), leader_epoch: LeaderEpoch(3) };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let expected = [9, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        assert_eq!(bytes, expected);
    }
}
