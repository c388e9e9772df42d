//! The topics in a consumer's subscription (`ConsumerProtocolSubscription`): read by the fields that every version begins with.

use crate::types::TopicName;
use std::collections::BTreeSet;

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
