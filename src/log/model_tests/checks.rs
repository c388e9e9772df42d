//! What readers see against what the model knows, and files against what they are made from.

use super::*;

impl World {
    pub fn dir(&self, partition: usize) -> PathBuf {
        dir_of(&self.disk, partition)
    }

    pub fn check_all(&mut self) {
        for partition in 0..2 {
            let log = self.log(partition);
            let marks = log.watermarks();
            let model = &self.models[partition];
            assert_eq!((marks.log_start.0, marks.log_end.0), (model.log_start, model.log_end));
            let seen = read_all(&log, marks.log_start, Isolation::ReadUncommitted);
            let expected: Vec<_> = model.visible().map(|(o, r)| (*o, r.value)).collect();
            assert_same(&seen.iter().map(|(o, _, v)| (*o, *v)).collect::<Vec<_>>(), &expected);
        }
        self.check_read(0);
        self.check_read(1);
    }

    pub fn check_read(&mut self, partition: usize) {
        let log = self.log(partition);
        let model = &self.models[partition];
        let from = self.random.below(model.log_end as u64 + 2) as i64;
        let max = self.random.below(2_000) as usize;
        let read = log.read(Offset(from), max, self.random.one_in(2), Isolation::ReadUncommitted);
        if from > model.log_end || from < model.log_start {
            assert!(matches!(read, Err(ReadError::OutOfRange { .. })));
            return;
        }
        let first = batches(&read.unwrap().bytes().unwrap()).into_iter().next();
        if let Some((header, _)) = first {
            assert!(header.last_offset().0 >= from);
            let skipped = model.records.range(from..header.base_offset.0.max(from)).next();
            assert_eq!(skipped, None, "a read from {from} began at {}", header.base_offset);
        }
        let seen = read_all(&log, Offset(from), Isolation::ReadUncommitted);
        let expected: Vec<_> = model.records.range(from..).map(|(o, r)| (*o, r.timestamp, r.value)).collect();
        assert_same(&seen, &expected);
        let stable = model.open_txn.unwrap_or(model.log_end).max(model.log_start);
        assert_eq!(log.watermarks().last_stable.0, stable);
        let committed: Vec<_> = read_all(&log, Offset(from), Isolation::ReadCommitted).into_iter().map(|(o, _, v)| (o, v)).collect();
        let visible = model.records.range(from..stable.max(from)).filter(|(_, r)| !r.txn.is_some_and(|t| model.aborted.contains_key(&t)));
        assert_same(&committed, &visible.map(|(o, r)| (*o, r.value)).collect::<Vec<_>>());
    }

    pub fn check_time(&mut self, partition: usize) {
        let model = &self.models[partition];
        let target = self.now.0 - self.random.below(40_000) as i64;
        let expected = model.visible().find(|(_, r)| r.timestamp >= target).map(|(o, r)| (*o, r.timestamp));
        let found = self.log(partition).offset_for_time(Millis(target)).unwrap();
        assert_eq!(found.map(|f| (f.offset.0, f.timestamp.0)), expected);
        let max = model.visible().map(|(_, r)| r.timestamp).max();
        let expected = model.visible().find(|(_, r)| Some(r.timestamp) == max).map(|(o, r)| (*o, r.timestamp));
        let found = self.log(partition).offset_of_max_timestamp().unwrap();
        assert_eq!(found.map(|f| (f.offset.0, f.timestamp.0)), expected);
    }
}

pub fn id_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// Few keys, so that most records are superseded soon.
pub fn key_of(id: u64) -> [u8; 1] {
    [(id * 7 % 11) as u8]
}

pub fn live_files(disk: &SimDisk, dir: &Path) -> Vec<(String, Offset, Kind)> {
    let named = disk.list(dir).unwrap().into_iter().filter_map(|e| files::parse(&e.name).map(|parsed| (e.name, parsed)));
    named.filter(|(_, (.., stage))| *stage == files::Stage::Live).map(|(name, (offset, kind, _))| (name, offset, kind)).collect()
}

pub fn assert_same<T: PartialEq + std::fmt::Debug>(seen: &[T], expected: &[T]) {
    let differs = (0..seen.len().max(expected.len())).find(|i| seen.get(*i) != expected.get(*i));
    if let Some(i) = differs {
        panic!("at {i} of {}: saw {:?} where {:?} was due", expected.len(), seen.get(i), expected.get(i));
    }
}

/// All whole batches in some bytes.
pub fn batches(mut bytes: &[u8]) -> Vec<(BatchHeader, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(header) = BatchHeader::parse(bytes).filter(|h| h.size().unwrap() <= bytes.len()) {
        let (batch, rest) = bytes.split_at(header.size().unwrap());
        assert_eq!(crate::record::header::batch_crc(batch), header.crc);
        found.push((header, batch.to_vec()));
        bytes = rest;
    }
    found
}

/// What a consumer makes of a partition: offset, timestamp and value of each record that it shows.
pub fn read_all(log: &PartitionLog, mut from: Offset, isolation: Isolation) -> Vec<(i64, i64, Option<u64>)> {
    let start = from;
    let mut seen: Vec<(i64, i64, Option<u64>)> = Vec::new();
    loop {
        let slice = log.read(from, 1_500, true, isolation).unwrap();
        let found = batches(&slice.bytes().unwrap());
        if found.is_empty() {
            assert_eq!(slice.len, 0, "at least one whole batch");
            return seen;
        }
        for (header, batch) in found {
            assert!(header.last_offset() >= from, "batches are in order");
            let aborted = |txn: &&AbortedTxn| {
                txn.producer_id == header.producer_id && txn.first_offset <= header.base_offset && header.base_offset < txn.last_offset
            };
            let skipped = header.is_transactional() && !header.is_control() && slice.aborted.iter().find(aborted).is_some();
            for record in BatchRecords::open(&batch, 1 << 20).unwrap().iter().map(|r| r.unwrap()) {
                if record.offset >= start && !skipped {
                    let value = record.value.filter(|_| !header.is_control());
                    seen.push((record.offset.0, record.timestamp.0, value.map(id_of)));
                }
            }
            from = header.next_offset();
        }
    }
}

pub fn dir_of(disk: &SimDisk, partition: usize) -> PathBuf {
    let dirs = ["/a", "/b"].map(|d| Path::new(d).join(format!("t-{partition}")));
    dirs.into_iter().find(|d| disk.exists(d)).unwrap()
}

/// What Kafka's DumpLogSegments checks on a closed directory: index entries point at batches that end at their offset, time index entries are
/// the largest timestamp so far, snapshots can be read; and that no index was forgotten.
pub fn check_files(disk: &SimDisk, partition: usize, log_start: Offset) {
    let dir = dir_of(disk, partition);
    let names = live_files(disk, &dir);
    for (name, base, _) in names.iter().filter(|(_, _, kind)| *kind == Kind::Log) {
        let all = batches(&disk.read(&dir.join(name)).unwrap());
        let mut position = 0;
        let starts: BTreeMap<u64, BatchHeader> = all
            .iter()
            .map(|(header, batch)| {
                position += batch.len() as u64;
                (position - batch.len() as u64, *header)
            })
            .collect();
        // What is damaged below the log's start nobody reads, and so nobody mends.
        let is_below_start = all.last().is_some_and(|(header, _)| header.last_offset() < log_start);
        if all.is_empty() && *base == Offset(0) || is_below_start {
            continue;
        }
        let read = |kind| disk.read(&dir.join(files::name(*base, kind))).unwrap();
        let offsets = index::OffsetIndex::decode(*base, &read(Kind::OffsetIndex), position).unwrap();
        for i in 0..offsets.len() {
            let entry = offsets.entry(i).unwrap();
            assert_eq!(starts.get(&entry.position.into()).map(|h| h.last_offset()), Some(entry.last_offset));
        }
        let times = index::TimeIndex::decode(*base, &read(Kind::TimeIndex)).unwrap();
        for i in 0..times.len() {
            let entry = times.entry(i).unwrap();
            let Some(batch) = starts.values().find(|h| h.last_offset() == entry.offset) else {
                let all: Vec<_> =
                    starts.values().map(|h| (h.base_offset.0, h.last_offset().0, h.record_count, h.max_timestamp.0)).collect();
                panic!(
                    "{name} of {partition}, log start {log_start}: entry {entry:?} of {} in time index names no batch of {all:?}",
                    times.len()
                );
            };
            assert_eq!(batch.max_timestamp, entry.timestamp);
        }
        let largest = starts.values().filter(|h| h.record_count > 0).map(|h| h.max_timestamp).max();
        assert_eq!(times.last().map(|t| t.timestamp), largest, "a closed segment's largest timestamp is noted");
    }
    for (name, offset, _) in names.iter().filter(|(_, _, kind)| *kind == Kind::Snapshot) {
        ProducerStates::decode_snapshot(&disk.read(&dir.join(name)).unwrap(), *offset).unwrap();
    }
}
