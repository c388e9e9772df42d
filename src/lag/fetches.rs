//! Who fetches what: a Fetch names its client and not its group, so what a client reads is noted by client id and host, which group members
//! have too. It tells a group that reads without committing from one that doesn't read, and at which isolation level it does.
//!
//! Bounded: of clients and partitions beyond the bounds nothing is noted, and what was not fetched for a while is forgotten.

use crate::types::{Millis, Offset, PartitionIndex, TopicId};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
};

/// Clients that are remembered.
const CLIENTS_MAX: usize = 10_000;
/// Partitions that are remembered, of all clients together: about 10 MiB.
const PARTITIONS_MAX: usize = 200_000;
/// What was not fetched for so long is forgotten.
const FORGOTTEN_AFTER_MS: i64 = 300_000;
/// Clients are spread over so many locks.
const SHARDS: usize = 16;

/// Where a client's reading of a partition stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// What it asked for last.
    pub offset: Offset,
    pub read_committed: bool,
    pub at: Millis,
}

/// A client as a Fetch and a group member tell of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientKey(u64);

impl ClientKey {
    pub fn new(client_id: &[u8], host: IpAddr) -> Self {
        let mut hasher = DefaultHasher::new();
        (client_id, host.to_canonical()).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Of a member: its host is written `/10.0.0.7`.
    pub fn of_member(client_id: &str, host: &str) -> Option<Self> {
        Some(Self::new(client_id.as_bytes(), host.trim_start_matches('/').parse().ok()?))
    }
}

type OfClient = HashMap<(TopicId, PartitionIndex), Fetched>;

/// What clients have fetched lately.
#[derive(Default)]
pub struct Fetches {
    shards: [Mutex<HashMap<ClientKey, OfClient>>; SHARDS],
}

impl Fetches {
    fn shard(&self, client: ClientKey) -> &Mutex<HashMap<ClientKey, OfClient>> {
        let at = usize::try_from(client.0).unwrap_or(0).checked_rem(SHARDS).unwrap_or(0);
        self.shards.get(at).unwrap_or(&self.shards[0])
    }

    /// A client asks for these partitions now.
    pub fn note(
        &self,
        client: ClientKey,
        read_committed: bool,
        at: Millis,
        asked: impl Iterator<Item = (TopicId, PartitionIndex, Offset)>,
    ) {
        let mut shard = self.shard(client).lock();
        let clients = shard.len();
        let held: usize = if shard.contains_key(&client) { 0 } else { shard.values().map(HashMap::len).sum() };
        if !shard.contains_key(&client) && (clients >= CLIENTS_MAX / SHARDS || held >= PARTITIONS_MAX / SHARDS) {
            return;
        }
        let of_client = shard.entry(client).or_default();
        for (topic, partition, offset) in asked {
            let fetched = Fetched { offset, read_committed, at };
            if of_client.len() < PARTITIONS_MAX / SHARDS || of_client.contains_key(&(topic, partition)) {
                of_client.insert((topic, partition), fetched);
            }
        }
    }

    pub fn get(&self, client: ClientKey, topic: TopicId, partition: PartitionIndex) -> Option<Fetched> {
        self.shard(client).lock().get(&client)?.get(&(topic, partition)).copied()
    }

    /// Forgets what is old.
    pub fn sweep(&self, now: Millis) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            for of_client in shard.values_mut() {
                of_client.retain(|_, fetched| now.0.abs_diff(fetched.at.0) < FORGOTTEN_AFTER_MS.unsigned_abs());
            }
            shard.retain(|_, of_client| !of_client.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(id: u128) -> TopicId {
        TopicId(uuid::Uuid::from_u128(id))
    }

    #[test]
    fn a_member_is_found_by_its_client_id_and_host() {
        let fetches = Fetches::default();
        let client = ClientKey::new(b"consumer-1", "::ffff:10.0.0.7".parse().unwrap());
        assert_eq!(ClientKey::of_member("consumer-1", "/10.0.0.7"), Some(client));
        assert_ne!(ClientKey::of_member("consumer-2", "/10.0.0.7"), Some(client));
        assert_eq!(ClientKey::of_member("consumer-1", "/somewhere"), None);
        fetches.note(client, true, Millis(5), [(topic(1), PartitionIndex(0), Offset(9))].into_iter());
        let fetched = Fetched { offset: Offset(9), read_committed: true, at: Millis(5) };
        assert_eq!(fetches.get(client, topic(1), PartitionIndex(0)), Some(fetched));
        assert_eq!(fetches.get(client, topic(1), PartitionIndex(1)), None);
        fetches.sweep(Millis(5 + FORGOTTEN_AFTER_MS));
        assert_eq!(fetches.get(client, topic(1), PartitionIndex(0)), None);
    }

    #[test]
    fn there_is_a_bound_on_clients() {
        let fetches = Fetches::default();
        for i in 0..3 * CLIENTS_MAX {
            let client = ClientKey::new(&i.to_be_bytes(), "10.0.0.7".parse().unwrap());
            fetches.note(client, false, Millis(0), [(topic(1), PartitionIndex(0), Offset(0))].into_iter());
        }
        let held: usize = fetches.shards.iter().map(|shard| shard.lock().len()).sum();
        assert!(held <= CLIENTS_MAX, "{held}");
    }
}
