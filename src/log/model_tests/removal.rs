//! The model's operations that remove records: retention, DeleteRecords, and both on a disk that fails meanwhile.
//!
//! What retention should take is worked out from the files, without any index. A log start that was answered is never taken back, not by a
//! power loss either; one that wasn't is either the old one or the new one.

use super::{super::retention::Extent, *};
use std::ops::RangeInclusive;

impl World {
    /// Where the log should start after retention, by the bytes on the disk.
    fn start_after_retention(&self, partition: usize) -> i64 {
        let dir = self.dir(partition);
        let names = self.disk.list(&dir).unwrap().into_iter();
        let live = names.filter_map(|e| files::parse(&e.name).filter(|(_, kind, stage)| (*kind, *stage) == (Kind::Log, Stage::Live)));
        let contents = live.map(|(base, ..)| (base, self.disk.read(&dir.join(files::name(base, Kind::Log))).unwrap()));
        let segments: Vec<(Extent, Option<Millis>)> = contents
            .map(|(base, bytes)| {
                let all = batches(&bytes);
                let bytes = all.iter().map(|(_, batch)| batch.len() as u64).sum();
                (
                    Extent { base, bytes },
                    all.iter().filter(|(header, _)| header.record_count > 0).map(|(header, _)| header.max_timestamp).max(),
                )
            })
            .collect();
        let extents: Vec<_> = segments.iter().map(|(extent, _)| *extent).collect();
        let time = |i: usize| Ok::<_, std::convert::Infallible>(segments[i].1);
        let model = &self.models[partition];
        let log_end = Offset(model.log_end);
        let marks = Watermarks { log_start: Offset(model.log_start), last_stable: log_end, high_watermark: log_end, log_end };
        let gone = super::super::retention::breached(&extents, &marks, &self.config, self.now, time).unwrap().total();
        let next = extents.get(gone).map_or(model.log_end, |extent| extent.base.0);
        if gone == 0 { model.log_start } else { next.max(model.log_start) }
    }

    pub fn retain(&mut self, partition: usize) {
        let expected = self.start_after_retention(partition);
        self.log(partition).retain(self.now).unwrap();
        self.models[partition].start_at(expected);
        assert_eq!(self.log(partition).watermarks().log_start.0, expected, "where the log starts after retention");
        assert_eq!(self.start_after_retention(partition), expected, "retention has left nothing to do");
        if self.random.one_in(2) {
            self.check_read(partition);
        }
    }

    /// A random offset up to beyond the log's end, or −1, and where the log should start then; `None` if that can't be.
    fn any_start(&mut self, partition: usize) -> (Offset, Option<i64>) {
        let (log_start, log_end) = (self.models[partition].log_start, self.models[partition].log_end);
        match self.random.below(8) {
            0 => (Offset(-1), Some(log_end)),
            1 => (Offset(log_end + 1), None),
            2 => (Offset(-2), None),
            _ => {
                let before = self.random.below(log_end as u64 + 1) as i64;
                (Offset(before), Some(before.max(log_start)))
            }
        }
    }

    pub fn delete_records(&mut self) {
        let asked = [self.any_start(0), self.any_start(1)];
        let logs = [self.log(0), self.log(1)];
        let pairs: Vec<_> = logs.iter().cloned().zip(asked.iter().map(|(before, _)| *before)).collect();
        let answers = self.logs.as_ref().unwrap().delete_records(&pairs);
        for (partition, (answer, (before, expected))) in answers.iter().zip(asked).enumerate() {
            match expected {
                _ if !self.config.cleanup_delete => assert!(matches!(answer, Err(DeleteRecordsError::Policy)), "{answer:?}"),
                Some(start) => {
                    assert_eq!(answer.as_ref().unwrap().0, start);
                    self.models[partition].start_at(start);
                }
                None => assert!(matches!(answer, Err(DeleteRecordsError::OutOfRange { .. })), "{before}: {answer:?}"),
            }
            self.check_read(partition);
        }
    }

    /// Records are removed while a call fails, and then the process or the power goes.
    pub fn crash_while_removing(&mut self, partition: usize) {
        self.disk.fail_after(self.random.below(14));
        let log = self.log(partition);
        let old = self.models[partition].log_start;
        let (new, done) = if self.random.one_in(2) {
            let new = self.start_after_retention(partition);
            (new, log.retain(self.now).is_ok() && log.offline_reason().is_none())
        } else {
            let (before, start) = self.any_start(partition);
            let answer = self.logs.as_ref().unwrap().delete_records(&[(log.clone(), before)]).remove(0);
            let start = start.filter(|_| self.config.cleanup_delete);
            (start.unwrap_or(old), answer.is_ok() || start.is_none())
        };
        if done {
            self.models[partition].start_at(new);
        }
        let from = self.models[partition].log_start;
        if log.offline_reason().is_none() {
            self.note_durable();
        }
        self.logs = None;
        let power = self.random.one_in(2);
        self.disk = if power { self.disk.power_loss() } else { self.disk.process_crash() };
        self.open();
        self.adopt_start(partition, from..=new.max(from));
        self.adopt_what_survived(power, &[None, None]);
    }

    fn adopt_start(&mut self, partition: usize, allowed: RangeInclusive<i64>) {
        let start = self.log(partition).watermarks().log_start.0;
        assert!(allowed.contains(&start), "the log starts at {start}, not in {allowed:?}");
        self.models[partition].start_at(start);
    }
}

impl Model {
    /// What can be read.
    pub fn visible(&self) -> std::collections::btree_map::Range<'_, i64, Record> {
        self.records.range(self.log_start..)
    }

    /// The log starts there, and what was before was durable before it went: the producers are known by it.
    fn start_at(&mut self, log_start: i64) {
        self.log_start = log_start;
        self.durable = self.durable.max(log_start);
    }
}
