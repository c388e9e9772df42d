//! The model's restarts, crashes and failures, and what must have survived them.

use super::*;

impl World {
    pub fn sync(&mut self, partition: usize) {
        self.log(partition).sync().unwrap();
        self.models[partition].durable = self.models[partition].log_end;
    }

    /// What the log says is durable must be.
    pub fn note_durable(&mut self) {
        for partition in 0..2 {
            let point = self.log(partition).synced().0;
            let model = &mut self.models[partition];
            assert!(point <= model.log_end);
            model.durable = model.durable.max(point);
        }
    }

    pub fn restart_cleanly(&mut self) {
        self.logs.take().unwrap().close(self.now).unwrap();
        for (i, model) in self.models.iter_mut().enumerate() {
            model.durable = model.log_end;
            if !self.bit_turned {
                check_files(&self.disk, i, Offset(model.log_start));
            }
        }
        if self.random.one_in(2) {
            self.disk = self.disk.power_loss();
        }
        self.open();
        assert!(self.logs.as_ref().unwrap().was_clean());
        self.check_all();
    }

    pub fn crash(&mut self, power: bool) {
        self.note_durable();
        self.logs = None;
        self.disk = if power { self.disk.power_loss() } else { self.disk.process_crash() };
        self.open();
        self.adopt_what_survived(power, &[None, None]);
    }

    /// A write or sync fails somewhere; the partition then takes nothing, serves what it had, and the broker is restarted.
    pub fn crash_while_failing(&mut self, partition: usize) {
        self.disk.fail_after(self.random.below(12));
        let mut maybe: [Option<Values>; 2] = [None, None];
        for _ in 0..20 {
            let records = self.records();
            let log = self.log(partition);
            let before = log.watermarks();
            let batch = Self::build(&records, BatchBuilder::new(Compression::None));
            match log.append(self.now, batch, Origin::Client) {
                Ok(appended) => {
                    self.note(partition, &appended, &records, -1);
                    if let Some(offset) = appended.sync_to {
                        match log.sync_to(offset) {
                            Ok(()) => self.models[partition].durable = offset.0,
                            Err(_) => break,
                        }
                    }
                }
                Err(error) => {
                    assert!(matches!(error, AppendError::Io(_)), "{error:?}");
                    assert_eq!(log.watermarks(), before);
                    maybe[partition] = Some(records);
                    break;
                }
            }
        }
        if !self.disk.is_armed() {
            let more = Self::build(&self.records(), BatchBuilder::new(Compression::None));
            assert!(matches!(self.append(partition, more, Origin::Client), Err(AppendError::Offline(_))));
            self.check_read(partition);
        }
        let power = self.random.one_in(2);
        if self.random.one_in(2) && !self.disk.is_armed() {
            self.note_durable();
            let _ = self.logs.as_ref().unwrap().close(self.now);
            let other = 1 - partition;
            self.models[other].durable = self.models[other].log_end;
        }
        self.note_durable();
        self.logs = None;
        self.disk = if power { self.disk.power_loss() } else { self.disk.process_crash() };
        self.open();
        self.adopt_what_survived(power, &maybe);
    }

    pub fn damage_index_and_restart(&mut self, partition: usize) {
        self.logs.take().unwrap().close(self.now).unwrap();
        let dir = self.dir(partition);
        let kinds = [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex, Kind::Snapshot];
        let damaged: Vec<_> = live_files(&self.disk, &dir).into_iter().map(|(name, _, kind)| (name, kind)).collect();
        let damaged: Vec<_> = damaged.into_iter().filter(|(_, kind)| kinds[..3].contains(kind)).collect();
        for model in &mut self.models {
            model.durable = model.log_end;
        }
        if !damaged.is_empty() {
            let (name, kind) = &damaged[self.random.below(damaged.len() as u64) as usize];
            if self.random.one_in(3) && *kind != Kind::TxnIndex {
                self.disk.remove_file(&dir.join(name)).unwrap();
            } else {
                let at = self.random.number() as usize;
                self.bit_turned |= at % 3 == 1;
                self.disk.corrupt(&dir.join(name), |bytes| match at % 3 {
                    0 => bytes.push(9),
                    1 if !bytes.is_empty() && *kind != Kind::TxnIndex && *kind != Kind::TimeIndex => {
                        let i = at / 3 % bytes.len();
                        bytes[i] ^= 1 << (at % 8);
                    }
                    _ => bytes.extend_from_slice(&[0; 24]),
                });
            }
        }
        self.open();
        self.check_all();
    }

    pub fn replace_topic(&mut self) {
        let logs = self.logs.as_ref().unwrap();
        assert_eq!(logs.delete_topic(self.topic, self.now).unwrap(), 2);
        self.old_topics.push(self.topic);
        self.topic = TopicId(uuid::Uuid::from_u128(self.topic.0.as_u128() + 1));
        self.models = Default::default();
        if self.random.one_in(2) {
            for i in 0..2 {
                logs.create(self.spec(i), self.now).unwrap();
            }
        } else {
            self.logs = None;
            self.disk = if self.random.one_in(2) { self.disk.power_loss() } else { self.disk.process_crash() };
            self.open();
        }
        self.check_all();
    }

    /// After a crash: all that had to survive did, where it was; what didn't have to may be gone. `maybe` was written but not acknowledged.
    pub fn adopt_what_survived(&mut self, power: bool, maybe: &[Option<Values>; 2]) {
        for (partition, maybe) in maybe.iter().enumerate() {
            let log = self.log(partition);
            let marks = log.watermarks();
            let model = &mut self.models[partition];
            let must = if power { model.durable } else { model.log_end };
            assert!(marks.log_end.0 >= must, "{marks:?}: lost what was acknowledged up to {must}");
            assert_eq!(marks.log_start.0, model.log_start, "where the log starts");
            let seen = read_all(&log, marks.log_start, Isolation::ReadUncommitted);
            let mut survived: BTreeMap<_, _> = model.records.range(..model.log_start).map(|(o, r)| (*o, r.clone())).collect();
            for (offset, timestamp, value) in seen {
                if let Some(record) = model.records.get(&offset) {
                    assert_eq!((record.timestamp, &record.value), (timestamp, &value), "another record at {offset}");
                    survived.insert(offset, record.clone());
                } else {
                    let place = usize::try_from(offset - model.log_end).expect("a record that was never written");
                    let records = maybe.as_ref().expect("a record that was never written");
                    assert_eq!(Some(id_of(&records[place].1)), value);
                    survived.insert(offset, Record { timestamp, value, producer: -1, sequence: -1, txn: None });
                }
            }
            let lost = model.records.keys().find(|o| **o < must && !survived.contains_key(o) && !model.may_go.contains(o));
            // A batch is there if its last record is, or was removed by a compaction, which comes after the batch was durable.
            let is_there = |last: &i64| {
                let is_removed = !model.records.contains_key(last) || model.may_go.contains(last) && *last < must;
                survived.contains_key(last) || is_removed && *last < marks.log_end.0
            };
            model.sequences.values_mut().for_each(|written| written.retain(|last, _| is_there(last)));
            model.may_go.clear();
            assert_eq!(lost, None, "lost what was acknowledged");
            model.records = survived;
            model.log_end = marks.log_end.0;
            model.durable = model.durable.min(model.log_end);
            model.forget_what_is_lost();
            let states = log.producers();
            for (id, producer) in &model.producers {
                let known = states.iter().find(|p| p.producer_id.0 == *id).map_or(-1, |p| p.last_sequence());
                assert_eq!(known, producer.next_sequence - 1, "producer {id}");
            }
        }
        self.check_all();
    }
}

impl Model {
    /// The producers know what they wrote by what is left of it, as they would by asking the broker.
    pub fn forget_what_is_lost(&mut self) {
        let records = &self.records;
        self.aborted.retain(|_, marker| records.contains_key(marker));
        let last_marker = records.iter().rev().find(|(_, r)| r.value.is_none()).map_or(-1, |(o, _)| *o);
        let open = records.iter().find(|(o, r)| **o > last_marker && r.producer == TXN_PRODUCER);
        self.open_txn = open.map(|(o, _)| *o);
        if let Some(first) = self.open_txn {
            let of_open = self.records.range_mut(first..).filter(|(_, r)| r.txn.is_some());
            of_open.for_each(|(_, r)| r.txn = Some(first));
        }
        for (id, producer) in &mut self.producers {
            let kept = self.sequences.get(id).and_then(|written| written.values().next_back()).copied().unwrap_or(0);
            if kept != producer.next_sequence {
                (producer.next_sequence, producer.last) = (kept, None);
            }
        }
    }
}
