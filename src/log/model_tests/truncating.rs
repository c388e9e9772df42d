//! The model's truncations, whole and cut short at any call.

use super::*;

impl World {
    /// An offset to truncate to, and where the log should end then by the bytes on the disk: where the last batch ends that lies below it, if that
    /// isn't below the log's start; and where that is.
    fn any_end(&mut self, partition: usize, may_be_compacted: bool) -> (Offset, i64, i64) {
        let model = &self.models[partition];
        let (log_start, log_end) = (model.log_start, model.log_end);
        // Mostly little is cut: a log that's always empty shows nothing.
        let most = if self.random.one_in(4) { log_end - log_start } else { (log_end - log_start).min(40) };
        let target = log_end - self.random.below(most as u64 + 2) as i64 + 1;
        // A marker that compaction went by keeps its place: of the transaction's own records too little may be left to know it by.
        let last_marker = model.records.range(..model.compacted_to).rev().find(|(_, record)| record.value.is_none());
        let lowest = if may_be_compacted { last_marker.map_or(0, |(marker, _)| marker + 1) } else { model.compacted_to };
        let target = target.clamp(lowest.max(log_start).min(log_end), log_end + 1);
        // The same goes for a producer whose batches compaction has removed for the sake of one that goes.
        let last_batch = |written: &BTreeMap<i64, i32>| written.range(..target).next_back().map(|(last, _)| *last);
        let known = model.sequences.values().all(|written| last_batch(written).is_none_or(|last| model.records.contains_key(&last)));
        let target = if known { target } else { log_end };
        if target >= log_end {
            return (Offset(target), log_end, log_end);
        }
        let dir = self.dir(partition);
        let logs: Vec<_> = live_files(&self.disk, &dir).into_iter().filter(|(_, _, kind)| *kind == Kind::Log).collect();
        let all = logs.iter().flat_map(|(name, ..)| batches(&self.disk.read(&dir.join(name)).unwrap()));
        let below = all.map(|(header, _)| header).filter(|header| header.last_offset().0 < target);
        let first = logs.iter().map(|(_, base, _)| base.0).min().unwrap_or(log_start);
        let whole = below.map(|header| header.next_offset().0).max().unwrap_or(first);
        (Offset(target), whole.max(log_start), whole)
    }

    pub fn truncate(&mut self, partition: usize) {
        let (target, end, whole) = self.any_end(partition, true);
        let (log, before) = (self.log(partition), self.log(partition).watermarks());
        // Somebody is still sending what goes.
        let held = log.read(before.log_start, 1 << 20, true, Isolation::ReadUncommitted).unwrap();
        let bytes = held.bytes().unwrap();
        let now_ends = self.logs.as_ref().unwrap().truncate_to(&log, target, self.now).unwrap();
        assert_eq!(now_ends.0, end, "where the log ends after a truncation to {target} from {before:?}");
        assert_eq!(log.synced().max(now_ends), now_ends);
        self.models[partition].end_at(end, whole);
        self.check_read(partition);
        self.append_plain(partition);
        if let Some(file) = &held.file {
            let mut again = vec![0; bytes.len()];
            let mut read = 0;
            while let Ok(n @ 1..) = file.read_at(&mut again[read..], held.position + read as u64) {
                read += n;
            }
            assert_eq!(again[..read], bytes[..read], "a file that is being sent is only ever cut shorter");
        }
        let below = log.watermarks().log_start.plus(-1);
        let refused = self.logs.as_ref().unwrap().truncate_to(&log, below, self.now);
        assert!(matches!(refused, Err(TruncateError::BelowStart { .. })), "{refused:?}");
        self.check_all();
    }

    /// A call fails while the log is truncated, and then the process or the power goes: what is left ends anywhere from there on.
    pub fn crash_while_truncating(&mut self, partition: usize) {
        let (target, end, whole) = self.any_end(partition, false);
        self.disk.fail_after(self.random.below(24));
        let log = self.log(partition);
        let done = self.logs.as_ref().unwrap().truncate_to(&log, target, self.now);
        assert!(done.is_ok() || !self.disk.is_armed(), "{done:?}");
        let model = &mut self.models[partition];
        if done.is_ok() {
            model.end_at(end, whole);
        }
        model.durable = model.durable.min(end);
        if log.offline_reason().is_none() {
            self.note_durable();
        }
        drop(log);
        self.logs = None;
        let power = self.random.one_in(2);
        self.disk = if power { self.disk.power_loss() } else { self.disk.process_crash() };
        self.open();
        let left = self.log(partition).watermarks().log_end.0;
        if done.is_err() && !power {
            assert!(left >= end, "cut to {left} where {end} was asked for");
            let whole = if left == end { whole } else { left };
            self.models[partition].end_at(left, whole);
        }
        self.adopt_what_survived(power, &[None, None]);
    }
}

impl Model {
    /// The log ends there; what was in batches from `whole` on never was.
    fn end_at(&mut self, end: i64, whole: i64) {
        self.records.split_off(&whole);
        (self.log_end, self.durable) = (end.min(self.log_end), self.durable.min(end));
        self.sequences.values_mut().for_each(|written| _ = written.split_off(&whole));
        self.forget_what_is_lost();
    }
}
