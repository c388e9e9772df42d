//! Incremental fetch sessions (KIP-227; Kafka's `FetchSession`, `FetchSessionCache`, `FetchManager`): a consumer names its partitions once,
//! then sends and gets only what changed.
//!
//! Pure: the time and fresh session ids are arguments; nothing is read or written here. A fetch goes in two steps: [`FetchSessions::resolve`]
//! says which partitions to read and in what order, [`FetchSessions::finish`] says which of them the answer lists and under what session.
//! Between them the caller holds no lock; a session that moved on meanwhile is told by its epoch.
//!
//! The cache is bounded in sessions, by Kafka's rules of eviction, and (which Kafka's isn't) in partitions over all sessions. A client
//! that gets no session is answered with id 0 and goes on with full fetches.

use crate::types::{ErrorCode, LeaderEpoch, Millis, Offset, PartitionIndex, TopicId};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// "No session": what a request that wants a new one carries, and an answer that grants none.
pub const INVALID_SESSION_ID: i32 = 0;
/// The epoch of a full fetch that wants a session.
pub const INITIAL_EPOCH: i32 = 0;
/// The epoch of a full fetch that wants none, and ends the one that it names.
pub const FINAL_EPOCH: i32 = -1;
/// Default of `max.incremental.fetch.session.cache.slots`.
pub const SLOTS_DEFAULT: usize = 1000;
/// As many partitions are remembered over all sessions, some 150 bytes each.
pub const PARTITIONS_MAX: usize = 200_000;
/// A session is safe for this long from its creation, and from its last use (Kafka's `MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`).
const EVICTION_MS: i64 = 120_000;

/// The epoch that a session expects after `epoch`: 1 follows `i32::MAX`, as 0 and −1 have a meaning of their own.
pub fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        ..0 => FINAL_EPOCH,
        i32::MAX => 1,
        _ => epoch.saturating_add(1),
    }
}

/// A topic as the request names it: by name up to Fetch version 12, by id from 13 on. Unknown and illegal names are kept as they are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TopicRef {
    Name(Arc<str>),
    Id(TopicId),
}

/// One partition of a request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionKey {
    pub topic: TopicRef,
    pub partition: PartitionIndex,
}

/// What a client asks of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionAsk {
    pub fetch_offset: Offset,
    /// A follower's log start; −1 from consumers.
    pub log_start_offset: Offset,
    pub max_bytes: i32,
    /// −1 for no check.
    pub current_leader_epoch: LeaderEpoch,
    /// −1 for no check of divergence.
    pub last_fetched_epoch: LeaderEpoch,
}

/// A partition to read. The slot is its place in its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToRead {
    pub key: PartitionKey,
    pub ask: PartitionAsk,
    slot: u64,
}

/// What a read of one partition gave, as far as the session cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionOutcome {
    pub error: ErrorCode,
    pub has_records: bool,
    pub high_watermark: Offset,
    pub log_start: Offset,
    /// A preferred read replica or a diverging epoch is answered, which no session leaves out.
    pub must_tell: bool,
}

/// A request's session part.
#[derive(Debug)]
pub struct SessionRequest<'a> {
    pub session_id: i32,
    pub epoch: i32,
    /// Fetch version 13 or newer.
    pub by_topic_id: bool,
    /// From a follower, whose sessions are kept over consumers'.
    pub privileged: bool,
    /// In the request's order. Of a partition named twice the last counts.
    pub partitions: Vec<(PartitionKey, PartitionAsk)>,
    pub forgotten: &'a [PartitionKey],
}

/// A fetch between its two steps.
#[derive(Debug)]
pub struct FetchContext {
    kind: Kind,
    /// The partitions to read, in this order; [`FetchSessions::finish`] wants the outcomes in the same.
    pub partitions: Vec<ToRead>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Sessionless,
    Full { by_topic_id: bool, privileged: bool },
    Incremental { id: i32, epoch: i32 },
}

/// What to answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The answer's top-level error; then it lists no partition.
    pub error: ErrorCode,
    pub session_id: i32,
    /// For each of [`FetchContext::partitions`]: whether the answer lists it.
    pub listed: Vec<bool>,
}

#[derive(Debug)]
struct Cached {
    key: PartitionKey,
    ask: PartitionAsk,
    /// As last answered; −1 after an error, so that the partition is told again once that has gone.
    high_watermark: Offset,
    log_start: Offset,
}

#[derive(Debug)]
struct Session {
    privileged: bool,
    by_topic_id: bool,
    created: Millis,
    last_used: Millis,
    /// The epoch that the next request must carry.
    epoch: i32,
    /// In the order of reading. Those that gave records go to the end, so that none starves.
    partitions: BTreeMap<u64, Cached>,
    slots: HashMap<PartitionKey, u64>,
    next_slot: u64,
    /// As counted in the cache.
    counted: usize,
}

impl Session {
    fn insert(&mut self, cached: Cached) {
        let slot = self.next_slot;
        self.next_slot = slot.wrapping_add(1);
        self.slots.insert(cached.key.clone(), slot);
        self.partitions.insert(slot, cached);
    }

    fn ask(&mut self, key: PartitionKey, ask: PartitionAsk) {
        let known = self.slots.get(&key).and_then(|slot| self.partitions.get_mut(slot));
        match known {
            Some(cached) => cached.ask = ask,
            None => self.insert(Cached { key, ask, high_watermark: Offset(-1), log_start: Offset(-1) }),
        }
    }

    fn forget(&mut self, key: &PartitionKey) {
        if let Some(slot) = self.slots.remove(key) {
            self.partitions.remove(&slot);
        }
    }

    /// Whether the answer lists a partition, and what is remembered of that.
    fn settle(&mut self, slot: u64, outcome: &PartitionOutcome) -> bool {
        let Some(cached) = self.partitions.get_mut(&slot) else { return true };
        let failed = outcome.error.is_error();
        let moved = cached.high_watermark != outcome.high_watermark || cached.log_start != outcome.log_start;
        cached.high_watermark = if failed { Offset(-1) } else { outcome.high_watermark };
        cached.log_start = outcome.log_start;
        if outcome.has_records
            && let Some(cached) = self.partitions.remove(&slot)
        {
            self.insert(cached);
        }
        outcome.has_records || moved || failed || outcome.must_tell
    }

    fn to_read(&self) -> Vec<ToRead> {
        self.partitions.iter().map(|(slot, c)| ToRead { key: c.key.clone(), ask: c.ask, slot: *slot }).collect()
    }

    fn evictable_key(&self, id: i32) -> EvictableKey {
        (self.privileged, self.counted, id)
    }
}

/// Privileged, partitions, id: the first in order is the least worth keeping.
type EvictableKey = (bool, usize, i32);

/// All sessions of the broker.
#[derive(Debug)]
pub struct FetchSessions {
    slots_max: usize,
    partitions_max: usize,
    sessions: HashMap<i32, Session>,
    last_used: BTreeSet<(Millis, i32)>,
    evictable_by_all: BTreeSet<EvictableKey>,
    evictable_by_privileged: BTreeSet<EvictableKey>,
    partitions: usize,
    evictions: u64,
}

impl FetchSessions {
    /// An empty cache for `slots_max` sessions with [`PARTITIONS_MAX`] partitions among them; 0 turns sessions off.
    pub fn new(slots_max: usize) -> Self {
        Self::bounded(slots_max, PARTITIONS_MAX)
    }

    /// The same with another bound on partitions.
    pub fn bounded(slots_max: usize, partitions_max: usize) -> Self {
        Self {
            slots_max,
            partitions_max,
            sessions: HashMap::new(),
            last_used: BTreeSet::new(),
            evictable_by_all: BTreeSet::new(),
            evictable_by_privileged: BTreeSet::new(),
            partitions: 0,
            evictions: 0,
        }
    }

    /// Sessions now.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Partitions remembered over all sessions now.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Sessions that had to go for others, ever.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The partitions to read, or the error that is the whole answer (with session id 0): FETCH_SESSION_ID_NOT_FOUND,
    /// INVALID_FETCH_SESSION_EPOCH, or FETCH_SESSION_TOPIC_ID_ERROR if the client changed between names and ids within a session.
    pub fn resolve(&mut self, now: Millis, request: SessionRequest) -> Result<FetchContext, ErrorCode> {
        let SessionRequest { session_id, epoch, by_topic_id, privileged, partitions, forgotten } = request;
        if epoch == INITIAL_EPOCH || epoch == FINAL_EPOCH {
            self.remove(session_id);
            let kind = if epoch == FINAL_EPOCH { Kind::Sessionless } else { Kind::Full { by_topic_id, privileged } };
            return Ok(FetchContext { kind, partitions: in_order(partitions) });
        }
        let session = self.sessions.get_mut(&session_id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_topic_id != by_topic_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        let room = self.partitions_max.saturating_sub(self.partitions);
        if partitions.len() > room {
            // It may grow by no more than what is left: known partitions named again count for nothing.
            let grows = partitions.iter().filter(|(key, _)| !session.slots.contains_key(key)).count();
            if grows > room {
                self.remove(session_id);
                self.evictions = self.evictions.saturating_add(1);
                return Err(ErrorCode::FetchSessionIdNotFound);
            }
        }
        // Only forgetting can empty a session that was asked for something.
        let of_request = if forgotten.is_empty() { Vec::new() } else { partitions.clone() };
        for (key, ask) in partitions {
            session.ask(key, ask);
        }
        for key in forgotten {
            session.forget(key);
        }
        if session.partitions.is_empty() {
            self.remove(session_id);
            return Ok(FetchContext { kind: Kind::Sessionless, partitions: in_order(of_request) });
        }
        session.epoch = next_epoch(epoch);
        let context = FetchContext { kind: Kind::Incremental { id: session_id, epoch: session.epoch }, partitions: session.to_read() };
        self.touch(session_id, now);
        Ok(context)
    }

    /// What to answer, given what the reads of the context's partitions gave, in their order. A new session takes `fresh_id` or the
    /// next free one after it; ids should not be guessable.
    pub fn finish(&mut self, now: Millis, context: &FetchContext, outcomes: &[PartitionOutcome], fresh_id: i32) -> Reply {
        let all = || vec![true; context.partitions.len()];
        match context.kind {
            Kind::Sessionless => Reply { error: ErrorCode::None, session_id: INVALID_SESSION_ID, listed: all() },
            Kind::Full { by_topic_id, privileged } => {
                let session_id = self.create(now, context, outcomes, fresh_id, (by_topic_id, privileged));
                Reply { error: ErrorCode::None, session_id, listed: all() }
            }
            Kind::Incremental { id, epoch } => match self.sessions.get_mut(&id).filter(|session| session.epoch == epoch) {
                Some(session) => {
                    let asked = context.partitions.iter().zip(outcomes);
                    let listed = asked.map(|(asked, outcome)| session.settle(asked.slot, outcome)).collect();
                    Reply { error: ErrorCode::None, session_id: id, listed }
                }
                None => {
                    let listed = vec![false; context.partitions.len()];
                    Reply { error: ErrorCode::InvalidFetchSessionEpoch, session_id: id, listed }
                }
            },
        }
    }

    fn create(
        &mut self,
        now: Millis,
        context: &FetchContext,
        outcomes: &[PartitionOutcome],
        fresh_id: i32,
        (by_topic_id, privileged): (bool, bool),
    ) -> i32 {
        let size = context.partitions.len();
        if size > self.partitions_max.saturating_sub(self.partitions) {
            return INVALID_SESSION_ID;
        }
        if self.sessions.len() >= self.slots_max && !self.evict(now, (privileged, size, 0)) {
            return INVALID_SESSION_ID;
        }
        let mut session = Session {
            privileged,
            by_topic_id,
            created: now,
            last_used: now,
            epoch: next_epoch(INITIAL_EPOCH),
            partitions: BTreeMap::new(),
            slots: HashMap::with_capacity(size),
            next_slot: 0,
            counted: 0,
        };
        for (asked, outcome) in context.partitions.iter().zip(outcomes) {
            let high_watermark = if outcome.error.is_error() { Offset(-1) } else { outcome.high_watermark };
            session.insert(Cached { key: asked.key.clone(), ask: asked.ask, high_watermark, log_start: outcome.log_start });
        }
        let id = self.free_id(fresh_id);
        self.sessions.insert(id, session);
        self.touch(id, now);
        id
    }

    /// There are fewer sessions than ids, so one is soon found.
    fn free_id(&self, fresh_id: i32) -> i32 {
        let mut id = (fresh_id & i32::MAX).max(1);
        while self.sessions.contains_key(&id) {
            id = next_epoch(id);
        }
        id
    }

    /// Makes room for a session of `newcomer`'s worth: the longest unused one if that is stale, else the least worth one if it isn't worth more.
    fn evict(&mut self, now: Millis, newcomer: EvictableKey) -> bool {
        let Some((used, oldest)) = self.last_used.first().copied() else { return false };
        if now.0.saturating_sub(used.0) > EVICTION_MS {
            self.remove(oldest);
        } else {
            let evictable = if newcomer.0 { &self.evictable_by_privileged } else { &self.evictable_by_all };
            let Some(least) = evictable.first().copied().filter(|least| newcomer >= *least) else { return false };
            self.remove(least.2);
        }
        self.evictions = self.evictions.saturating_add(1);
        true
    }

    fn remove(&mut self, id: i32) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.last_used.remove(&(session.last_used, id));
        self.evictable_by_all.remove(&session.evictable_key(id));
        self.evictable_by_privileged.remove(&session.evictable_key(id));
        self.partitions = self.partitions.saturating_sub(session.counted);
    }

    /// Puts a session where its use, age and size say it belongs.
    fn touch(&mut self, id: i32, now: Millis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.last_used != now {
            self.last_used.remove(&(session.last_used, id));
            session.last_used = now;
        }
        self.last_used.insert((now, id));
        let old = session.evictable_key(id);
        self.partitions = self.partitions.saturating_sub(session.counted).saturating_add(session.partitions.len());
        session.counted = session.partitions.len();
        let new = session.evictable_key(id);
        let aged = now.0.saturating_sub(session.created.0) > EVICTION_MS;
        if old != new {
            self.evictable_by_privileged.remove(&old);
            self.evictable_by_all.remove(&old);
        }
        if !session.privileged || aged {
            self.evictable_by_privileged.insert(new);
        }
        if aged {
            self.evictable_by_all.insert(new);
        }
    }
}

/// A request's partitions without repetition; the last ask of each counts, at its first place.
fn in_order(partitions: Vec<(PartitionKey, PartitionAsk)>) -> Vec<ToRead> {
    let mut read: Vec<ToRead> = Vec::with_capacity(partitions.len());
    let several = partitions.len() > 1;
    let mut places: HashMap<PartitionKey, usize> = HashMap::with_capacity(if several { partitions.len() } else { 0 });
    for (key, ask) in partitions {
        let place = if several { *places.entry(key.clone()).or_insert(read.len()) } else { read.len() };
        match read.get_mut(place) {
            Some(known) => known.ask = ask,
            None => read.push(ToRead { key, ask, slot: 0 }),
        }
    }
    read
}

#[cfg(test)]
mod tests;
