//! The model's compactions, whose result is exactly what it works out itself.

use super::*;

impl World {
    /// Compaction's result is exactly the model's.
    pub fn compact(&mut self, partition: usize) {
        if !self.config.cleanup_compact {
            return;
        }
        let log = self.log(partition);
        let cleaned = log.compact(&CompactSettings::default(), self.now, &|_| true).unwrap();
        assert_eq!(cleaned.to, cleaned.upper.max(cleaned.from), "the map takes all keys");
        assert!(cleaned.to <= log.watermarks().last_stable);
        self.note_durable();
        let model = &mut self.models[partition];
        model.compacted_to = model.compacted_to.max(log.watermarks().last_stable.0);
        for gone in model.superseded(cleaned.from.0, cleaned.to.0) {
            model.records.remove(&gone);
        }
        self.check_all();
    }

    /// The disk fails at some step of it, or it all crashes right after.
    pub fn crash_while_compacting(&mut self, partition: usize) {
        if !self.config.cleanup_compact {
            return;
        }
        let log = self.log(partition);
        let dirt = log.dirt(self.now).unwrap();
        let model = &mut self.models[partition];
        model.compacted_to = model.compacted_to.max(log.watermarks().last_stable.0);
        model.may_go = model.superseded(dirt.first_dirty.0, dirt.first_uncleanable.0);
        self.disk.fail_after(self.random.below(60));
        let _ = log.compact(&CompactSettings::default(), self.now, &|_| true);
        drop(log);
        let power = self.random.one_in(2);
        self.crash(power);
    }
}

impl Model {
    /// What a compaction of `from..to` removes of what can be read: records of aborted transactions, and those whose key has a newer committed one in the range.
    pub fn superseded(&self, from: i64, to: i64) -> BTreeSet<i64> {
        if from >= to {
            return BTreeSet::new();
        }
        let is_aborted = |record: &Record| record.txn.is_some_and(|txn| self.aborted.contains_key(&txn));
        let mut newest = BTreeMap::new();
        for (offset, record) in self.records.range(from..to).filter(|(_, record)| !is_aborted(record)) {
            record.value.map(|value| newest.insert(key_of(value), *offset));
        }
        let goes = |(offset, record): &(&i64, &Record)| {
            is_aborted(record) || record.value.is_some_and(|value| newest.get(&key_of(value)).is_some_and(|newest| newest > *offset))
        };
        self.records.range(self.log_start..to.max(self.log_start)).filter(goes).map(|(offset, _)| *offset).collect()
    }
}
