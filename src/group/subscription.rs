//! What consumers of the classic protocol say to each other, which the coordinator understands too: subscriptions
//! (`ConsumerProtocolSubscription`) and assignments (`ConsumerProtocolAssignment`).

use crate::types::{PartitionIndex, TopicName};
use bytes::Bytes;
use std::{collections::BTreeSet, sync::Arc};

/// The protocol type of Kafka's consumers, whose metadata is a subscription.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// The topics that a member subscribes to; `None` if the bytes are no subscription. Names that no topic can have are left out.
///
/// ```text
/// version  i16
/// topics   i32 count, each: i16 length, text
/// …        user data and what later versions added
/// ```
pub fn topics(metadata: &[u8]) -> Option<Vec<TopicName>> {
    let (version, rest) = metadata.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) < 0 {
        return None;
    }
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    let mut topics = Vec::new();
    for _ in 0..count {
        // A count that lies ends here: each topic takes two bytes at least.
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (name, after) = after.split_at_checked(usize::try_from(i16::from_be_bytes(*length)).ok()?)?;
        topics.extend(std::str::from_utf8(name).ok().and_then(|name| TopicName::new(name).ok()));
        rest = after;
    }
    Some(topics)
}

/// The topics of all of them; `None` if one can't be read.
pub fn all_topics<'a>(all: impl Iterator<Item = &'a [u8]>) -> Option<BTreeSet<TopicName>> {
    let mut found = BTreeSet::new();
    for metadata in all {
        found.extend(topics(metadata)?);
    }
    Some(found)
}

/// What a member asks for and has (`ConsumerProtocolSubscription`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Subscription {
    pub topics: Vec<TopicName>,
    /// Version 1 and later; an eager member has let go of all before it says this.
    pub owned: Vec<(TopicName, Vec<PartitionIndex>)>,
    /// Version 3 and later.
    pub rack_id: Option<Arc<str>>,
}

/// What a member is given (`ConsumerProtocolAssignment`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Assignment {
    pub partitions: Vec<(TopicName, Vec<PartitionIndex>)>,
    /// An assignor's own words come with it.
    pub user_data: bool,
}

/// The version that the bytes begin with; 0 if there is none.
pub fn version(bytes: &[u8]) -> i16 {
    bytes.first_chunk::<2>().map_or(0, |version| i16::from_be_bytes(*version).max(0))
}

fn i32_of(bytes: &mut &[u8]) -> Option<i32> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(i32::from_be_bytes(*number))
}

/// A text, or none.
fn text_of<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a str>> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let length = i16::from_be_bytes(*length);
    if length < 0 {
        *bytes = rest;
        return Some(None);
    }
    let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    std::str::from_utf8(text).ok().map(Some)
}

/// Bytes that an assignor of the client understands: how many; none is 0.
fn user_data(bytes: &mut &[u8]) -> Option<usize> {
    let length = usize::try_from(i32_of(bytes)?.max(0)).ok()?;
    *bytes = bytes.split_at_checked(length)?.1;
    Some(length)
}

/// Topics with partitions. A count that lies ends with the bytes.
fn partitions_of(bytes: &mut &[u8]) -> Option<Vec<(TopicName, Vec<PartitionIndex>)>> {
    let mut found = Vec::new();
    for _ in 0..i32_of(bytes)? {
        let name = text_of(bytes)??;
        let mut partitions = Vec::new();
        for _ in 0..i32_of(bytes)? {
            partitions.push(PartitionIndex(i32_of(bytes)?));
        }
        found.extend(TopicName::new(name).ok().map(|name| (name, partitions)));
    }
    Some(found)
}

impl Subscription {
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let topics = topics(bytes)?;
        let version = version(bytes);
        let mut rest = bytes.get(2..)?;
        for _ in 0..i32_of(&mut rest)? {
            text_of(&mut rest)??;
        }
        user_data(&mut rest)?;
        let owned = if version >= 1 { partitions_of(&mut rest)? } else { Vec::new() };
        if version >= 2 {
            i32_of(&mut rest)?;
        }
        let rack_id = if version >= 3 { text_of(&mut rest)?.map(Arc::from) } else { None };
        Some(Self { topics, owned, rack_id })
    }
}

impl Assignment {
    /// No bytes are no partitions.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let (version, mut rest) = bytes.split_first_chunk::<2>()?;
        if i16::from_be_bytes(*version) < 0 {
            return None;
        }
        let partitions = partitions_of(&mut rest)?;
        // Some clients leave it out.
        let user_data = !rest.is_empty() && user_data(&mut rest)? > 0;
        Some(Self { partitions, user_data })
    }

    pub fn write(&self, version: i16) -> Bytes {
        let mut out = Vec::new();
        let count = |length: usize| i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes();
        out.extend(version.to_be_bytes());
        out.extend(count(self.partitions.len()));
        for (topic, partitions) in &self.partitions {
            let name = topic.as_str().as_bytes();
            out.extend(i16::try_from(name.len()).unwrap_or(i16::MAX).to_be_bytes());
            out.extend(name);
            out.extend(count(partitions.len()));
            partitions.iter().for_each(|partition| out.extend(partition.0.to_be_bytes()));
        }
        out.extend((-1_i32).to_be_bytes());
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_share_their_beginning() {
        let v0 = [0, 0, 0, 0, 0, 2, 0, 1, b'a', 0, 2, b'b', b'c', 0xff, 0xff, 0xff, 0xff];
        let names = |bytes: &[u8]| topics(bytes).map(|t| t.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(names(&v0), Some(vec!["a".to_owned(), "bc".to_owned()]));
        let mut v3 = v0.to_vec();
        v3[1] = 3;
        v3.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(names(&v3), names(&v0));
        assert_eq!(topics(&v0[..9]), None);
        assert_eq!(topics(&[]), None);
        assert_eq!(topics(&[0, 0, 0x7f, 0xff, 0xff, 0xff]), None, "a count that lies");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = topics(&bytes);
        }
    }
}
