//! The shell around [`State`]: sweeps topics and groups, and does look-ups in the logs, so many at a time.
//!
//! A sweep looks at every group and partition in memory and reads no file. Look-ups read files; they are done between sweeps, never
//! while the state is locked, and stop at a bound of bytes. Locks: `state`, then a coordinator shard's; nothing is locked for longer than
//! it takes to look at one shard, or to render the metrics.

use super::{
    fetches::Fetches,
    group::GroupSeen,
    partition::{First, Marks, Outlook},
    state::{Answer, Owed, State, Wanted},
    topic::{EndedBy, Open, PartitionSeen},
};
use crate::{
    cluster::Image,
    coordinator::{GroupCoordinator, TransactionCoordinator},
    group::Groups,
    log::{Isolation, Logs, Look, PartitionLog},
    types::{Millis, Offset},
};
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, atomic::Ordering};

/// Look-ups of one round, and the bytes that they read.
const LOOKUPS_MAX: usize = 4_096;
const ROUND_BYTES_MAX: usize = 16 << 20;
/// Bytes that one look-up reads before the others have their turn.
const LOOKUP_BYTES_MAX: usize = 256 << 10;
/// Who asks gets what was seen so lately as it is.
const FRESH_MS: i64 = 200;
/// Look-ups done at once for who asks for one group.
const ASKED_LOOKUPS_MAX: usize = 256;

/// What a sweep looks at.
pub struct Sight<'a> {
    pub image: &'a Image,
    pub logs: &'a Logs,
    pub groups: &'a GroupCoordinator,
    pub transactions: &'a TransactionCoordinator,
    pub now: Millis,
}

/// The state, and who keeps it up to date.
#[derive(Default)]
pub struct Sampler {
    state: Mutex<Held>,
    /// What clients fetch; handlers note it.
    pub fetches: Arc<Fetches>,
}

#[derive(Default)]
struct Held {
    state: State,
    swept: Option<Millis>,
}

/// The state, locked.
pub struct View<'a>(MutexGuard<'a, Held>);

impl std::ops::Deref for View<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0.state
    }
}

impl Sampler {
    /// The state as it is now, or was a moment ago. Reads no file.
    pub fn view(&self, sight: &Sight<'_>) -> View<'_> {
        let mut held = self.state.lock();
        let is_fresh = held.swept.is_some_and(|swept| sight.now.0.abs_diff(swept.0) < FRESH_MS.unsigned_abs());
        if !is_fresh {
            self.sweep(&mut held, sight);
        }
        View(held)
    }

    /// The same for who asks for one group: what is owed to it is looked up before, within a bound.
    pub fn view_of(&self, sight: &Sight<'_>, group: &str) -> View<'_> {
        let mut held = self.state.lock();
        self.sweep(&mut held, sight);
        let mut owed = held.state.owed_to(sight.now, group);
        owed.truncate(ASKED_LOOKUPS_MAX);
        drop(held);
        self.look_up(sight, &owed);
        View(self.state.lock())
    }

    /// One round: a sweep, and then look-ups. Whether some had to be left for the next.
    pub fn round(&self, sight: &Sight<'_>) -> bool {
        let owed = {
            let mut held = self.state.lock();
            self.sweep(&mut held, sight);
            held.state.owed(sight.now, LOOKUPS_MAX)
        };
        self.fetches.sweep(sight.now);
        self.look_up(sight, &owed) || owed.len() >= LOOKUPS_MAX
    }

    fn sweep(&self, held: &mut Held, sight: &Sight<'_>) {
        let Held { state, swept } = held;
        *swept = Some(sight.now);
        state.begin();
        for topic in sight.image.topics() {
            let partitions = topic.indexed().map(|(partition, _)| sight.logs.get(topic.id, partition).map(|log| seen(&log)));
            state.note_topic(sight.now, &topic.name, topic.id, topic.name.is_internal(), partitions);
        }
        state.end_topics();
        note_who_ends(state, sight);
        let fetches = &self.fetches;
        let saw_all = sight.groups.look_at_serving(|groups| {
            for (id, _) in groups.iter() {
                if let Some(seen) = group_seen(groups, id, sight.now) {
                    state.note_group(sight.now, id, seen, |client, topic, partition| fetches.get(client, topic, partition));
                }
            }
        });
        state.end(saw_all);
    }

    /// Whether some of it had to be left for lack of bytes.
    fn look_up(&self, sight: &Sight<'_>, owed: &[Owed]) -> bool {
        /// The state is locked once for so many answers.
        const AT_ONCE: usize = 64;
        let mut left = ROUND_BYTES_MAX;
        for some in owed.chunks(AT_ONCE) {
            if left == 0 {
                return true;
            }
            let answers: Vec<_> = some.iter().map(|owed| answer(sight, owed, &mut left)).collect();
            let state = &mut self.state.lock().state;
            for (owed, answer) in some.iter().zip(answers) {
                if let Some(answer) = answer {
                    state.answer(owed, answer);
                }
            }
        }
        false
    }
}

/// A partition as it is now.
pub(super) fn seen(log: &PartitionLog) -> PartitionSeen {
    let marks = log.watermarks();
    PartitionSeen {
        marks: Marks {
            log_start: marks.log_start,
            last_stable: marks.last_stable,
            high_watermark: marks.high_watermark,
            shape: log.shape(),
        },
        log_end: marks.log_end,
        bytes_in: i64::try_from(log.stats().bytes_in.load(Ordering::Relaxed)).unwrap_or(i64::MAX),
        offline: log.offline_reason().is_some(),
        open: log.oldest_open().map(|open| Open { producer_id: open.producer_id, first_offset: open.first_offset, since: open.since }),
    }
}

/// Asks the coordinator about the transactions that are open. One that it doesn't know of hangs, if it was open before the coordinator was
/// asked and is open after: partitions join a transaction there before their records are written, and leave it after their markers are.
fn note_who_ends(state: &mut State, sight: &Sight<'_>) {
    let open: Vec<_> = state.open_transactions().collect();
    if open.is_empty() {
        return;
    }
    let wanted: Vec<_> = open.iter().map(|(_, partition, open)| (open.producer_id, partition.clone())).collect();
    let holders = sight.transactions.holders(&wanted);
    for ((id, partition, was), holder) in open.into_iter().zip(holders) {
        let is_still_open = || {
            let now = sight.logs.get(id, partition.partition).and_then(|log| log.oldest_open());
            now.is_some_and(|now| (now.producer_id, now.first_offset) == (was.producer_id, was.first_offset))
        };
        let ended_by = match holder {
            Ok(Some(id)) => EndedBy::Coordinator(id),
            Ok(None) if is_still_open() => EndedBy::Nobody,
            Ok(None) | Err(_) => EndedBy::Unknown,
        };
        state.note_ended_by(&partition, ended_by);
    }
}

fn group_seen<'a>(groups: &'a Groups, id: &str, now: Millis) -> Option<GroupSeen<'a>> {
    let story = groups.get(id)?.story();
    Some(GroupSeen {
        described: groups.watch(id)?,
        committed: groups.all_committed(id).collect(),
        rebalances: story.counts().clone(),
        rebalancing_since: story.since(),
        between_owners_ms: story.unowned_ms(now),
        between_owners: story.without_owner().map(|(partition, _)| partition.clone()).collect(),
    })
}

fn answer(sight: &Sight<'_>, owed: &Owed, left: &mut usize) -> Option<Answer> {
    let log = sight.logs.get(owed.id, owed.partition)?;
    let outlook = |offset: Offset| {
        let found = log.outlook(offset).unwrap_or_default();
        Outlook { by_time: found.by_time, by_size: found.by_size, looked: Some(sight.now) }
    };
    let from = match owed.what {
        Wanted::Outlook(offset) => return Some(Answer::Outlook(outlook(offset))),
        Wanted::First(from) => from,
    };
    let isolation = if owed.read_committed { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    // What can't be read now is tried again in the next round.
    let (look, read) = log.next_visible(from, isolation, LOOKUP_BYTES_MAX.min(*left)).ok()?;
    *left = left.saturating_sub(read);
    Some(match look {
        Look::Found(found) => {
            let first = First { offset: found.offset, timestamp: found.timestamp, arrived: log.arrival_of(found.offset) };
            Answer::First(first, outlook(found.offset))
        }
        Look::Nothing(upto) => Answer::Nothing { upto, ended: true },
        Look::More(upto) => Answer::Nothing { upto, ended: false },
    })
}
