//! The model's operations that append: plain, idempotent and transactional batches.

use super::*;

impl World {
    pub fn records(&mut self) -> Vec<(i64, Vec<u8>)> {
        let count = 1 + self.random.below(4);
        let mut timestamp = self.now.0 - self.random.below(3_000) as i64;
        (0..count)
            .map(|_| {
                self.next_value += 1;
                timestamp += self.random.below(20) as i64 - 5;
                let filler = self.random.below(200) as usize;
                (timestamp, [&self.next_value.to_be_bytes()[..], &vec![7; filler]].concat())
            })
            .collect()
    }

    pub fn build(records: &[(i64, Vec<u8>)], builder: BatchBuilder) -> Bytes {
        records.iter().fold(builder, |b, (t, v)| b.record(Millis(*t), Some(&key_of(id_of(v))), Some(v))).build().unwrap()
    }

    pub fn codec(&mut self) -> Compression {
        [Compression::None, Compression::None, Compression::Lz4, Compression::Zstd][self.random.below(4) as usize]
    }

    pub fn append(&mut self, partition: usize, batch: Bytes, origin: Origin) -> Result<Appended, AppendError> {
        let log = self.log(partition);
        let appended = log.append(self.now, batch, origin)?;
        if let Some(offset) = appended.sync_to {
            log.sync_to(offset)?;
            self.models[partition].durable = self.models[partition].durable.max(offset.0);
        }
        Ok(appended)
    }

    pub fn note(&mut self, partition: usize, appended: &Appended, records: &[(i64, Vec<u8>)], producer: i64) {
        let model = &mut self.models[partition];
        assert_eq!(appended.base_offset.0, model.log_end, "offsets are given out without gaps");
        let txn = (producer == TXN_PRODUCER).then(|| *model.open_txn.get_or_insert(appended.base_offset.0));
        let next_sequence = model.producers.get(&producer).map_or(0, |p| p.next_sequence);
        for (i, (timestamp, value)) in records.iter().enumerate() {
            let timestamp = if appended.log_append_time == Millis::NONE { *timestamp } else { appended.log_append_time.0 };
            let record = Record { timestamp, value: Some(id_of(value)), producer, sequence: next_sequence + i as i32, txn };
            model.records.insert(appended.base_offset.0 + i as i64, record);
        }
        model.log_end = appended.last_offset.0 + 1;
        model.sequences.entry(producer).or_default().insert(appended.last_offset.0, next_sequence + records.len() as i32);
    }

    pub fn append_plain(&mut self, partition: usize) {
        let records = self.records();
        let codec = self.codec();
        let appended = self.append(partition, Self::build(&records, BatchBuilder::new(codec)), Origin::Client).unwrap();
        self.note(partition, &appended, &records, -1);
    }

    pub fn append_idempotent(&mut self, partition: usize) {
        let producer = 1 + self.random.below(2) as i64;
        let state = self.models[partition].producers.entry(producer).or_default().clone();
        if let (true, Some((batch, offset))) = (self.random.one_in(4), state.last.clone()) {
            let again = self.append(partition, batch, Origin::Client).unwrap();
            assert!(again.duplicate && again.base_offset == offset, "{again:?} where {offset} was due");
            return;
        }
        let records = self.records();
        let codec = self.codec();
        let with = |sequence| BatchBuilder::new(codec).producer(ProducerId(producer), ProducerEpoch(0), sequence);
        if state.next_sequence > 0 && self.random.one_in(6) {
            let gap = self.append(partition, Self::build(&records, with(state.next_sequence + 5)), Origin::Client);
            assert!(matches!(gap, Err(AppendError::OutOfOrderSequence { .. })), "{gap:?}");
            return;
        }
        let batch = Self::build(&records, with(state.next_sequence));
        let appended = self.append(partition, batch.clone(), Origin::Client).unwrap();
        self.note(partition, &appended, &records, producer);
        let state = self.models[partition].producers.entry(producer).or_default();
        state.next_sequence += records.len() as i32;
        state.last = Some((batch, appended.base_offset));
    }

    pub fn append_transactional(&mut self, partition: usize) {
        let (id, epoch) = (ProducerId(TXN_PRODUCER), ProducerEpoch(0));
        if let (true, Some(first)) = (self.random.one_in(3), self.models[partition].open_txn) {
            let commit = self.random.one_in(2);
            let marker = builder::end_txn_batch(id, epoch, EndTxnMarker { commit, coordinator_epoch: 0 }, self.now);
            let appended = self.append(partition, marker, Origin::Coordinator).unwrap();
            let model = &mut self.models[partition];
            assert_eq!(appended.base_offset.0, model.log_end);
            let record = Record { timestamp: self.now.0, value: None, producer: TXN_PRODUCER, sequence: -1, txn: None };
            model.records.insert(model.log_end, record);
            if !commit {
                model.aborted.insert(first, model.log_end);
            }
            model.log_end += 1;
            model.open_txn = None;
            return;
        }
        let records = self.records();
        let sequence = self.models[partition].producers.entry(TXN_PRODUCER).or_default().next_sequence;
        let batch = Self::build(&records, BatchBuilder::new(Compression::None).producer(id, epoch, sequence).transactional());
        let appended = self.append(partition, batch, Origin::ClientInTransaction(Proof::Unchecked)).unwrap();
        self.note(partition, &appended, &records, TXN_PRODUCER);
        self.models[partition].producers.entry(TXN_PRODUCER).or_default().next_sequence += records.len() as i32;
    }
}
