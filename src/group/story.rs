//! The story of a group's rebalances: why each began and who caused it, when its members had joined and who came last, how it ended. Kept
//! in memory, for people and tools; no decision looks at it.

use super::{Cause, Generation, Note, Who};
use crate::types::{Millis, TopicPartition};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

/// Members that one rebalance names, where many did the same.
pub const WHO_MAX: usize = 100;
/// Rebalances that are remembered of a group.
pub const REBALANCES_MAX: usize = 100;
/// Partitions that one rebalance names.
pub const UNOWNED_MAX: usize = 1_000;
/// Partitions without an owner that a group keeps in mind.
const LOST_MAX: usize = 100_000;

/// One rebalance. Times are the wall clock's.
#[derive(Clone, PartialEq, Debug)]
pub struct Rebalance {
    pub cause: Cause,
    pub began: Millis,
    /// The generation that it ended, and how many members that had.
    pub from: Generation,
    pub members_before: usize,
    /// `None` while members are waited for.
    pub joined: Option<JoinPhase>,
    /// `None` while it is under way.
    pub ended: Option<(Millis, End)>,
    /// For how many milliseconds each partition had no owner that got one again by it; of many, the first [`UNOWNED_MAX`].
    pub unowned: Vec<(TopicPartition, i64)>,
    /// The same for all of them together: partition-milliseconds.
    pub unowned_ms: i64,
}

/// The end of the wait for members.
#[derive(Clone, PartialEq, Debug)]
pub struct JoinPhase {
    pub at: Millis,
    pub generation: Generation,
    pub members: usize,
    /// Who did not come in time; of many, the first [`WHO_MAX`].
    pub removed: Vec<Who>,
    /// Whose JoinGroup came last: the others waited for it. Of a consumer group, who was the last to let go of partitions that others waited for.
    pub last: Option<Who>,
}

/// How a rebalance ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// All have their assignment.
    Stable,
    /// No one is left.
    Empty,
    /// Another one began.
    Interrupted,
}

/// The last rebalances of a group, the newest last; how many there were by cause; and which partitions changed hands, and when.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Story {
    rebalances: VecDeque<Rebalance>,
    counts: BTreeMap<&'static str, u64>,
    /// Partitions that lost their owner, and when.
    lost: BTreeMap<TopicPartition, Millis>,
    /// Partition-milliseconds without an owner, of those that are over.
    unowned_ms: u64,
}

impl Story {
    pub fn rebalances(&self) -> impl ExactSizeIterator<Item = &Rebalance> + DoubleEndedIterator {
        self.rebalances.iter()
    }

    /// How many rebalances began, by [`Cause::name`]; when the last member goes, that is none.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// The partitions that lost their owner and have no other yet, and when that was.
    pub fn without_owner(&self) -> impl ExactSizeIterator<Item = (&TopicPartition, Millis)> + Clone {
        self.lost.iter().map(|(partition, since)| (partition, *since))
    }

    /// For how many partition-milliseconds partitions between two owners had none, up to now; while there was no member, nothing counts.
    /// Never less than before.
    pub fn unowned_ms(&self, now: Millis) -> u64 {
        self.lost.values().fold(self.unowned_ms, |sum, since| sum.saturating_add(passed(*since, now).unsigned_abs()))
    }

    /// When the one that is under way began.
    pub fn since(&self) -> Option<Millis> {
        self.rebalances.back().filter(|rebalance| rebalance.ended.is_none()).map(|rebalance| rebalance.began)
    }

    /// What happened to the group at this time.
    pub(super) fn tell(&mut self, at: Millis, note: &Note) {
        match note {
            Note::Preparing { generation, members, deserted, cause, .. } => {
                self.end(at, End::Interrupted);
                if self.rebalances.len() >= REBALANCES_MAX {
                    self.rebalances.pop_front();
                }
                // As in Kafka's CompletedRebalances, one that leaves nobody is told and not counted: no member waits for it.
                if !deserted {
                    let count = self.counts.entry(cause.name()).or_default();
                    *count = count.saturating_add(1);
                }
                let (cause, from, members_before) = (cause.clone(), *generation, *members);
                let (joined, ended, unowned) = (None, None, Vec::new());
                self.rebalances.push_back(Rebalance { cause, began: at, from, members_before, joined, ended, unowned, unowned_ms: 0 });
            }
            Note::Generation { generation, members, removed, last, .. } => {
                if let Some(rebalance) = self.under_way() {
                    let (generation, members, removed, last) = (*generation, *members, removed.clone(), last.clone());
                    rebalance.joined = Some(JoinPhase { at, generation, members, removed, last });
                }
            }
            Note::LetGo { who, .. } => {
                if let Some(joined) = self.under_way().and_then(|rebalance| rebalance.joined.as_mut()) {
                    joined.last = Some(who.clone());
                }
            }
            Note::Moved { lost, gained, .. } => {
                gained.iter().for_each(|partition| self.gained(at, partition));
                let room = LOST_MAX.saturating_sub(self.lost.len());
                for partition in lost.iter().take(room) {
                    self.lost.entry(partition.clone()).or_insert(at);
                }
            }
            Note::Stable { .. } => self.settle(at, End::Stable),
            Note::Empty { .. } => self.settle(at, End::Empty),
            Note::Fenced { .. } | Note::NobodyJoined { .. } => {}
        }
    }

    fn gained(&mut self, at: Millis, partition: &TopicPartition) {
        let Some(since) = self.lost.remove(partition) else { return };
        let ms = passed(since, at);
        self.unowned_ms = self.unowned_ms.saturating_add(ms.unsigned_abs());
        // A static member that comes back has its partitions again without one.
        if let Some(rebalance) = self.under_way() {
            rebalance.unowned_ms = rebalance.unowned_ms.saturating_add(ms);
            if rebalance.unowned.len() < UNOWNED_MAX {
                rebalance.unowned.push((partition.clone(), ms));
            }
        }
    }

    /// All is where it belongs: what has no owner now is wanted by nobody.
    fn settle(&mut self, at: Millis, end: End) {
        self.end(at, end);
        self.unowned_ms = self.unowned_ms(at);
        self.lost.clear();
    }

    fn under_way(&mut self) -> Option<&mut Rebalance> {
        self.rebalances.back_mut().filter(|rebalance| rebalance.ended.is_none())
    }

    fn end(&mut self, at: Millis, end: End) {
        if let Some(rebalance) = self.under_way() {
            rebalance.ended = Some((at, end));
        }
    }
}

fn passed(Millis(since): Millis, Millis(now): Millis) -> i64 {
    now.saturating_sub(since).max(0)
}

/// A peer's text as people may see it: printable, and not too long.
fn in_words(text: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    text.chars().take(CHARACTERS_MAX).flat_map(char::escape_debug).collect()
}

/// `consumer-1-6f…(consumer-1 at /10.0.0.7, instance one)`.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} at {}", in_words(&self.member), in_words(&self.client_id), in_words(&self.host))?;
        match &self.instance {
            Some(instance) => write!(f, ", instance {})", in_words(instance)),
            None => f.write_str(")"),
        }
    }
}

impl Cause {
    /// As metrics label it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Joined { .. } => "joined",
            Self::MetadataChanged { .. } => "metadata_changed",
            Self::LeaderRejoined { .. } => "leader_rejoined",
            Self::StaticMemberReplaced { .. } => "static_member_replaced",
            Self::Left { .. } => "left",
            Self::SessionExpired { .. } => "session_expired",
            Self::SyncTimeout { .. } => "sync_timeout",
            Self::NotStored(_) => "not_stored",
            Self::OverCapacity => "over_capacity",
            Self::RevocationTimeout { .. } => "revocation_timeout",
            Self::JoinTimeout { .. } => "join_timeout",
            Self::TopicsChanged => "topics_changed",
            Self::Downgraded => "downgraded",
        }
    }
}

/// In words.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = |reason: &Option<Arc<str>>| reason.as_ref().map_or_else(String::new, |reason| format!(": {}", in_words(reason)));
        match self {
            Self::Joined { who, reason } => write!(f, "{who} joined{}", because(reason)),
            Self::MetadataChanged { who, reason } => write!(f, "{who} joined again with other metadata{}", because(reason)),
            Self::LeaderRejoined { who, reason } => write!(f, "the leader {who} joined again{}", because(reason)),
            Self::StaticMemberReplaced { who } => write!(f, "{who} came back and could not just go on"),
            Self::Left { members } => {
                write!(f, "left: {}", some(members.iter().map(|(who, reason)| format!("{who}{}", because(reason)))))
            }
            Self::SessionExpired { who } => write!(f, "nothing was heard of {who} for its session timeout"),
            Self::SyncTimeout { members } => write!(f, "no SyncGroup in time from {}", names(members)),
            Self::NotStored(error) => write!(f, "the assignment could not be written ({error})"),
            Self::OverCapacity => f.write_str("the group has more members than group.max.size"),
            Self::RevocationTimeout { who } => write!(f, "{who} did not give up its partitions for its rebalance timeout"),
            Self::JoinTimeout { who } => write!(f, "{who} did not join again for its rebalance timeout"),
            Self::TopicsChanged => f.write_str("topics that the group subscribes to have changed"),
            Self::Downgraded => f.write_str("the last member of the consumer protocol is gone; the others go on by the classic one"),
        }
    }
}

/// Members in one line: the first ones by name.
pub fn names(members: &[Who]) -> String {
    some(members.iter().map(Who::to_string))
}

fn some(all: impl ExactSizeIterator<Item = String>) -> String {
    const NAMED_MAX: usize = 10;
    let more = all.len().saturating_sub(NAMED_MAX);
    let named = all.take(NAMED_MAX).collect::<Vec<_>>().join("; ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}
