//! Who fetches what: a Fetch names its client and not its group, so what a client reads is noted by client id and host, which group members
//! have too. It tells a group that reads without committing from one that doesn't read, and at which isolation level it does.
//!
//! Bounded: of clients and partitions beyond the bounds nothing is noted, and what was not fetched for a while is forgotten.

use crate::types::{Millis, Offset, PartitionIndex, TopicId};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, hash_map::Entry},
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

#[derive(Default)]
struct Shard {
    clients: HashMap<ClientKey, OfClient>,
    /// Partitions of all of them.
    partitions: usize,
}

/// What clients have fetched lately.
#[derive(Default)]
pub struct Fetches {
    shards: [Mutex<Shard>; SHARDS],
}

impl Fetches {
    fn shard(&self, client: ClientKey) -> &Mutex<Shard> {
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
        let Shard { clients, partitions } = &mut *shard;
        if clients.len() >= CLIENTS_MAX / SHARDS && !clients.contains_key(&client) {
            return;
        }
        let of_client = clients.entry(client).or_default();
        for (topic, partition, offset) in asked {
            let fetched = Fetched { offset, read_committed, at };
            match of_client.entry((topic, partition)) {
                Entry::Occupied(mut entry) => *entry.get_mut() = fetched,
                Entry::Vacant(entry) if *partitions < PARTITIONS_MAX / SHARDS => {
                    *partitions = partitions.saturating_add(1);
                    entry.insert(fetched);
                }
                Entry::Vacant(_) => {}
            }
        }
    }

    pub fn get(&self, client: ClientKey, topic: TopicId, partition: PartitionIndex) -> Option<Fetched> {
        self.shard(client).lock().clients.get(&client)?.get(&(topic, partition)).copied()
    }

    /// Forgets what is old.
    pub fn sweep(&self, now: Millis) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            for of_client in shard.clients.values_mut() {
                of_client.retain(|_, fetched| now.0.abs_diff(fetched.at.0) < FORGOTTEN_AFTER_MS.unsigned_abs());
            }
            shard.clients.retain(|_, of_client| !of_client.is_empty());
            shard.partitions = shard.clients.values().map(HashMap::len).sum();
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
        let held: usize = fetches.shards.iter().map(|shard| shard.lock().clients.len()).sum();
        assert!(held <= CLIENTS_MAX, "{held}");
    }

    /// Clients that were there before the bound was reached add no more than it allows either.
    #[test]
    fn there_is_a_bound_on_partitions() {
        let fetches = Fetches::default();
        let clients: Vec<_> = (0..100_u8).map(|i| ClientKey::new(&[i], "10.0.0.7".parse().unwrap())).collect();
        let note = |count: i32| {
            for client in &clients {
                fetches.note(*client, false, Millis(0), (0..count).map(|i| (topic(1), PartitionIndex(i), Offset(0))));
            }
        };
        note(1);
        note(13_000);
        let held = || fetches.shards.iter().map(|shard| shard.lock().clients.values().map(HashMap::len).sum::<usize>()).sum::<usize>();
        assert_eq!(held(), PARTITIONS_MAX);
        fetches.sweep(Millis(FORGOTTEN_AFTER_MS));
        note(7);
        assert_eq!(held(), 700);
    }
}
