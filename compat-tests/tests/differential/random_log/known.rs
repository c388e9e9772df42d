//! What one broker's answers gave so far (ids, epochs, sessions, offsets, sequences), by which the steps' symbols become numbers, and the
//! numbers in answers symbols again. It asks nothing.

use std::collections::BTreeMap;

use kafka_protocol::messages::ProducerId;
use uuid::Uuid;

use super::generate::{PRODUCERS, TOPICS};
use super::plan::{At, Epoch, Id, Place, Sequence, Who};
use crate::requests::{NOBODY, Topic};
use crate::transactional::Producer;

/// The id of a producer that there isn't.
pub const NO_PRODUCER: i64 = 1 << 50;
/// Ids of producers that never asked for one begin here.
const OWN_IDS: i64 = 1 << 40;
/// Times of this clock, and not of a sequence's records.
const NOW: std::ops::Range<i64> = 1_700_000_000_000..5_000_000_000_000;

/// What a partition has taken from a producer: epoch, first sequence and number of records of each batch.
type Taken = Vec<(i16, i32, i32)>;

pub struct Known {
    /// What the names begin with of all that is made.
    prefix: String,
    /// The ids that each topic had, the newest last.
    pub topics: [Vec<Uuid>; TOPICS],
    producers: [(i64, i16); PRODUCERS],
    /// Producers whose last transaction ended with another epoch.
    pub bumped: [bool; PRODUCERS],
    /// Producer ids in the order in which they were given.
    given: Vec<i64>,
    /// Id and next epoch of each.
    pub sessions: Vec<(i32, i32)>,
    /// The offsets after the last record, as far as the answers told.
    pub ends: BTreeMap<(usize, i32), i64>,
    taken: BTreeMap<(usize, i32, i64), Taken>,
    /// Topics whose batches the broker may have compressed anew: their sizes are those of a compressor.
    pub recompressed: [bool; TOPICS],
    /// Topics whose segments are rolled by time.
    pub rolls: [bool; TOPICS],
    /// Where partitions begin whose first records were deleted.
    pub starts: BTreeMap<(usize, i32), i64>,
    /// A fault that the comparison has to find.
    pub is_faulty: bool,
}

impl Known {
    pub fn new(prefix: &str, is_faulty: bool) -> Self {
        let mut known = Self {
            prefix: prefix.to_owned(),
            topics: Default::default(),
            producers: [(0, 0); PRODUCERS],
            bumped: [false; PRODUCERS],
            given: Vec::new(),
            sessions: Vec::new(),
            ends: BTreeMap::new(),
            taken: BTreeMap::new(),
            recompressed: [false; TOPICS],
            rolls: [false; TOPICS],
            starts: BTreeMap::new(),
            is_faulty,
        };
        for (slot, producer) in (0..).zip(&mut known.producers) {
            producer.0 = OWN_IDS + slot;
        }
        known
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Which topic of the sequence an answer names.
    pub fn slot(&self, name: &str, id: Uuid) -> Option<usize> {
        let is_it = |slot: &usize| self.topics[*slot].contains(&id) || self.name(At::Slot(*slot)) == name;
        (0..TOPICS).find(is_it)
    }

    pub fn group(&self) -> String {
        format!("{}-g", self.prefix)
    }

    pub fn transactional_id(&self, slot: usize) -> String {
        format!("{}-x{slot}", self.prefix)
    }

    pub fn name(&self, at: At) -> String {
        match at {
            At::Slot(slot) => format!("{}-t{slot}", self.prefix),
            At::Nowhere => format!("{}-nowhere", self.prefix),
            At::Impossible => "a b".to_owned(),
        }
    }

    pub fn topic(&self, at: At) -> Topic {
        let id = match at {
            // Of those that were never made each has another that nobody has.
            At::Slot(slot) => self.topics[slot].last().copied().unwrap_or(Uuid::from_u128(NOBODY.as_u128() + 1 + slot as u128)),
            At::Nowhere => NOBODY,
            At::Impossible => Uuid::nil(),
        };
        Topic::new(&self.name(at), id)
    }

    /// What a topic's name or id in an answer stands for.
    pub fn shown_topic(&self, name: &str, id: Uuid) -> String {
        let found = self.topics.iter().enumerate().find_map(|(slot, ids)| Some((slot, ids.iter().position(|known| *known == id)?)));
        match found {
            Some((slot, nth)) => format!("{name} topic {slot}'s id {nth}"),
            None if id == NOBODY => format!("{name} nobody's id"),
            None => format!("{name} {}", if id.is_nil() { "no id" } else { "another id" }),
        }
    }

    /// A producer id as both sides number it.
    pub fn shown_producer(&self, id: i64) -> i64 {
        self.given.iter().position(|given| *given == id).and_then(|nth| i64::try_from(nth).ok()).unwrap_or(id)
    }

    /// A time of the broker's clock is chance.
    pub fn shown_time(time: i64) -> i64 {
        if NOW.contains(&time) { NOW.start } else { time }
    }

    /// A producer id that an answer gave.
    pub fn give(&mut self, slot: usize, id: ProducerId, epoch: i16) {
        if !self.given.contains(&id.0) {
            self.given.push(id.0);
        }
        self.producers[slot] = (id.0, epoch);
    }

    pub fn epoch(&self, slot: usize) -> i16 {
        self.producers[slot].1
    }

    pub fn who(&self, who: Who) -> (i64, i16) {
        let (own, epoch) = self.producers[who.slot];
        let id = match who.id {
            Id::Own => own,
            Id::None => -1,
            Id::Nobody => NO_PRODUCER,
            Id::Of(slot) => self.producers[slot].0,
        };
        let epoch = match who.epoch {
            Epoch::Own(more) => epoch.wrapping_add(more),
            Epoch::Of(epoch) => epoch,
        };
        (id, epoch)
    }

    pub fn producer(&self, who: Who) -> Producer {
        let (producer, epoch) = self.who(who);
        Producer { id: self.transactional_id(who.slot), producer, epoch }
    }

    pub fn place(&self, at: At, partition: i32, place: Place) -> i64 {
        match (at, place) {
            (_, Place::Of(offset)) => offset,
            (At::Slot(slot), Place::End(before)) => self.ends.get(&(slot, partition)).copied().unwrap_or(0) - before,
            (_, Place::End(before)) => -before,
        }
    }

    /// A batch's first sequence.
    pub fn sequence(&self, at: At, partition: i32, (id, epoch): (i64, i16), sequence: Sequence) -> i32 {
        let At::Slot(slot) = at else { return 0 };
        let none = Vec::new();
        let taken = self.taken.get(&(slot, partition, id)).unwrap_or(&none);
        match sequence {
            Sequence::Of(sequence) => sequence,
            Sequence::Again(back) => taken.iter().rev().nth(back).map_or(0, |(_, first, _)| *first),
            Sequence::Next(more) => {
                let next = taken.last().filter(|(of, ..)| *of == epoch).map_or(0, |(_, first, count)| first.wrapping_add(*count));
                if next < 0 { next & i32::MAX } else { next }.wrapping_add(more)
            }
        }
    }

    /// Whether a partition has taken anything from a producer.
    pub fn has_taken(&self, at: At, partition: i32, id: i64) -> bool {
        matches!(at, At::Slot(slot) if self.taken.contains_key(&(slot, partition, id)))
    }

    /// A partition has taken a batch.
    pub fn take(&mut self, at: At, partition: i32, id: i64, batch: (i16, i32, i32)) {
        if let At::Slot(slot) = at {
            self.taken.entry((slot, partition, id)).or_default().push(batch);
        }
    }

    /// A topic is another from now on.
    pub fn forget(&mut self, slot: usize) {
        self.ends.retain(|(topic, _), _| *topic != slot);
        self.taken.retain(|(topic, ..), _| *topic != slot);
        self.starts.retain(|(topic, _), _| *topic != slot);
    }
}
