//! When a partition's records arrived here: some offsets with the broker's clock, dense for the last minutes and thinner the older. Pure.
//!
//! A record's own timestamp is its producer's word; replayed data and wrong clocks make "how long has it been waiting" a lie. So an append
//! notes its offset and time here, at most once a second. Entries thin out with age: a time is early by less than a second and a fiftieth of
//! the age that it tells, and all of it takes [`ENTRIES_MAX`] entries at most.
//!
//! The file (`arrival-times`, ours; Apache Kafka leaves it alone) is written now and then and at a clean stop:
//!
//! ```text
//! 0   magic    "hwarriv1"
//! 8   topic    its id: the directory's name may have been another topic's before
//! 24  covered  i64   records below this offset are told of
//! 32  count    u32
//! 36  entries  count × (offset i64, time i64)
//! ..  crc      u32   CRC-32C of everything before it
//! ```
//!
//! What arrived after the file was written and before a crash is not told of: it has an entry without a time.

use crate::types::{Millis, Offset, TopicId};

/// How far apart two entries are at least, while they're new.
const SPACING_MS: i64 = 1_000;
/// One entry is kept of each stretch of time that is this part of its age, rounded down to a power of two of [`SPACING_MS`]: stretches double, so
/// that the first entry of one is the first of the next longer one, too.
const AGE_DIVISOR: i64 = 50;
/// About 750 cover a week; the rest is room between two thinnings. The oldest go first.
const ENTRIES_MAX: usize = 1_024;
const MAGIC: &[u8; 8] = b"hwarriv1";
const ENTRY_BYTES: usize = 16;

/// The times of one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrivals {
    /// Offsets ascend strictly. A record arrived at the time of the last entry at or below its offset; [`Millis::NONE`] where that isn't known.
    entries: Vec<(Offset, Millis)>,
    /// Changed since it was last written.
    dirty: bool,
    /// The log's end when it was.
    covered: Offset,
}

impl Arrivals {
    /// Of a log that ends at `end`, where nothing is known of what is in it.
    pub fn unknown(end: Offset) -> Self {
        Self { covered: end, ..Self::default() }
    }

    /// Notes that the batch that begins at `offset` arrives at `now`; the time that was noted last. Every later batch is at a higher offset.
    pub fn note(&mut self, offset: Offset, now: Millis) -> Millis {
        if let Some((_, at)) = self.entries.last().filter(|(_, at)| !is_apart(*at, now)) {
            return *at;
        }
        self.push(offset, now);
        if self.entries.len() > ENTRIES_MAX {
            self.thin(Offset(0), now);
        }
        now
    }

    fn push(&mut self, offset: Offset, at: Millis) {
        // A batch that could not be written has left its entry.
        self.entries.truncate(self.entries.partition_point(|(earlier, _)| *earlier < offset));
        self.entries.push((offset, at));
        self.dirty = true;
    }

    /// When the record at `offset` arrived, as far as it's known.
    pub fn at(&self, offset: Offset) -> Option<Millis> {
        let after = self.entries.partition_point(|(begins, _)| *begins <= offset);
        let (_, at) = self.entries.get(after.checked_sub(1)?)?;
        Some(*at).filter(|at| *at != Millis::NONE)
    }

    /// Drops what lies before the log's start, and what is closer together than its age deserves.
    pub fn thin(&mut self, log_start: Offset, now: Millis) {
        let first = self.entries.partition_point(|(offset, _)| *offset <= log_start).saturating_sub(1);
        self.entries.drain(..first);
        let mut last: Option<(i64, i64)> = None;
        self.entries.retain(|(_, at)| {
            let width = stretch_ms(now.0.saturating_sub(at.0));
            let stretch = (*at != Millis::NONE).then_some((at.0.div_euclid(width), width));
            let keep = stretch.is_none() || stretch != last;
            last = stretch;
            keep
        });
        // A clock that jumps to and fro may keep them apart.
        let over = self.entries.len().saturating_sub(ENTRIES_MAX);
        self.entries.drain(..over);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is to be written, if anything changed or was appended since the last call. `end` is the log's.
    pub fn take_changed(&mut self, topic: TopicId, log_start: Offset, end: Offset, now: Millis) -> Option<Vec<u8>> {
        // Records that came within the second have no entry, and are told of all the same.
        if !std::mem::take(&mut self.dirty) && self.covered == end {
            return None;
        }
        self.covered = end;
        self.thin(log_start, now);
        Some(self.encode(topic, end))
    }

    /// The log ends at `end` now: what comes there arrives anew. The file is gone.
    pub fn truncate(&mut self, end: Offset) {
        self.entries.truncate(self.entries.partition_point(|(offset, _)| *offset < end));
        self.dirty = true;
    }

    /// It could not be written.
    pub fn note_unwritten(&mut self) {
        self.dirty = true;
    }

    fn encode(&self, topic: TopicId, covered: Offset) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len().saturating_mul(ENTRY_BYTES).saturating_add(40));
        bytes.extend(MAGIC);
        bytes.extend(topic.0.as_bytes());
        bytes.extend(covered.0.to_be_bytes());
        bytes.extend(u32::try_from(self.entries.len()).unwrap_or(0).to_be_bytes());
        for (offset, at) in &self.entries {
            bytes.extend(offset.0.to_be_bytes());
            bytes.extend(at.0.to_be_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(crc.to_be_bytes());
        bytes
    }

    /// Whether bytes are a file that isn't torn.
    pub fn is_whole(bytes: &[u8]) -> bool {
        body_of(bytes).is_some()
    }

    /// Reads a file for a topic's log that ends at `end`; `None` if it's torn, or of another topic or kind.
    pub fn decode(bytes: &[u8], topic: TopicId, end: Offset) -> Option<Self> {
        let rest = body_of(bytes)?;
        let (of, rest) = rest.split_first_chunk::<16>()?;
        let (covered, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (raw, over) = rest.as_chunks::<ENTRY_BYTES>();
        let counted = u32::try_from(raw.len()).is_ok_and(|len| len == u32::from_be_bytes(*count)) && raw.len() <= ENTRIES_MAX;
        if of != topic.0.as_bytes() || !over.is_empty() || !counted {
            return None;
        }
        let mut arrivals = Self::default();
        for entry in raw {
            let [offset, at] = entry.as_chunks::<8>().0 else { return None };
            let (offset, at) = (Offset(i64::from_be_bytes(*offset)), Millis(i64::from_be_bytes(*at)));
            if arrivals.entries.last().is_some_and(|(before, _)| *before >= offset) {
                return None;
            }
            arrivals.entries.push((offset, at));
        }
        arrivals.entries.retain(|(offset, _)| *offset < end);
        let covered = Offset(i64::from_be_bytes(*covered));
        if covered < end {
            arrivals.push(covered, Millis::NONE);
        }
        (arrivals.dirty, arrivals.covered) = (covered < end, end);
        Some(arrivals)
    }
}

/// What stands between the magic and the CRC, if both are right.
fn body_of(bytes: &[u8]) -> Option<&[u8]> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    let (magic, rest) = body.split_first_chunk::<8>()?;
    (magic == MAGIC && crc32c::crc32c(body) == u32::from_be_bytes(*crc)).then_some(rest)
}

/// How long the stretches are of which one entry is kept.
fn stretch_ms(age_ms: i64) -> i64 {
    let part = age_ms.max(0).checked_div(AGE_DIVISOR.saturating_mul(SPACING_MS)).unwrap_or(0);
    SPACING_MS.saturating_mul(1_i64.checked_shl(part.max(1).ilog2()).unwrap_or(1))
}

/// Whether an append at `now` is noted after one that was noted `earlier`.
pub fn is_apart(earlier: Millis, now: Millis) -> bool {
    earlier == Millis::NONE || now.0.abs_diff(earlier.0) >= SPACING_MS.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOPIC: TopicId = TopicId(uuid::Uuid::from_u128(7));

    #[test]
    fn a_time_is_right_to_the_second_and_unknown_before_the_first() {
        let mut arrivals = Arrivals::default();
        for (offset, now) in [(10, 5_000), (12, 5_400), (20, 6_000), (30, 9_000)] {
            arrivals.note(Offset(offset), Millis(now));
        }
        let at = |offset| arrivals.at(Offset(offset)).map(|at| at.0);
        assert_eq!(
            [9, 10, 12, 19, 20, 29, 30, 1_000].map(at),
            [None, Some(5_000), Some(5_000), Some(5_000), Some(6_000), Some(6_000), Some(9_000), Some(9_000)]
        );
    }

    #[test]
    fn what_arrived_after_the_last_write_and_before_a_crash_is_not_known() {
        let mut arrivals = Arrivals::default();
        arrivals.note(Offset(0), Millis(1_000));
        let bytes = arrivals.take_changed(TOPIC, Offset(0), Offset(5), Millis(1_000)).unwrap();
        assert_eq!(arrivals.take_changed(TOPIC, Offset(0), Offset(5), Millis(1_000)), None, "nothing changed");
        let mut back = Arrivals::decode(&bytes, TOPIC, Offset(8)).unwrap();
        assert_eq!([4, 5, 7].map(|offset| back.at(Offset(offset))), [Some(Millis(1_000)), None, None]);
        back.note(Offset(8), Millis(1_100));
        assert_eq!(back.at(Offset(8)), Some(Millis(1_100)), "though a second has not passed");
        let cut = Arrivals::decode(&bytes, TOPIC, Offset(0)).unwrap();
        assert!(cut.is_empty(), "the log was cut below it");
        assert_eq!(Arrivals::decode(&bytes, TopicId::ZERO, Offset(8)), None, "another topic's");
    }

    #[test]
    fn a_clock_set_back_is_followed() {
        let mut arrivals = Arrivals::default();
        arrivals.note(Offset(0), Millis(1_000_000));
        arrivals.note(Offset(1), Millis(10_000));
        assert_eq!(arrivals.at(Offset(1)), Some(Millis(10_000)));
        for i in 0..5_000 {
            arrivals.note(Offset(2 + i), Millis(if i % 2 == 0 { 1_000_000 } else { 0 }));
        }
        assert!(arrivals.len() <= ENTRIES_MAX, "{}", arrivals.len());
    }

    #[test]
    fn torn_bytes_are_no_file() {
        let mut arrivals = Arrivals::default();
        arrivals.note(Offset(3), Millis(7));
        let bytes = arrivals.encode(TOPIC, Offset(4));
        assert_eq!(Arrivals::decode(&bytes, TOPIC, Offset(4)).unwrap().at(Offset(3)), Some(Millis(7)));
        for len in 0..bytes.len() {
            assert_eq!(Arrivals::decode(&bytes[..len], TOPIC, Offset(4)), None, "{len}");
        }
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert_eq!(Arrivals::decode(&wrong, TOPIC, Offset(4)), None, "{at}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_early_by_a_second_and_a_fiftieth_of_the_age_told_at_most(gaps in prop::collection::vec((1i64..50, 0i64..400_000), 1..2_000)) {
            let (mut arrivals, mut all) = (Arrivals::default(), Vec::new());
            let (mut offset, mut now) = (0, 1_000_000_000);
            for (records, pause) in gaps {
                now += pause;
                arrivals.note(Offset(offset), Millis(now));
                all.push((offset, now));
                offset += records;
            }
            prop_assert!(arrivals.len() <= ENTRIES_MAX);
            for (offset, at) in all {
                let told = arrivals.at(Offset(offset)).unwrap().0;
                let off_max = SPACING_MS + (now - told) / AGE_DIVISOR;
                prop_assert!(told <= at && at - told < off_max, "{} told as {}, {} old", at, told, now - at);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Arrivals::decode(&bytes, TOPIC, Offset(100));
        }
    }
}
