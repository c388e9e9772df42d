//! A step against one broker: its request with numbers for the symbols, and what is noted of the answer, which is all of it but for what
//! `masks` and this say.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use bytes::Bytes;
use compat_tests::batch;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, DeleteRecordsRequest, FetchResponse, ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest, ProduceRequest,
    ProducerId,
};
use uuid::Uuid;

use super::batches;
use super::known::{Known, NO_PRODUCER};
use super::plan::{At, Of, Read, Session, Step, Written};
use super::transact::same_for_all_versions;
use super::world::World;
use crate::requests::{UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, fetch, fetch_topic, from, list_offsets, named, topic_name};
use crate::transactional::tid;

/// Kafka's `Errors.OFFSET_OUT_OF_RANGE`.
const OFFSET_OUT_OF_RANGE: i16 = 1;
/// Kafka's `Errors.INCONSISTENT_TOPIC_ID`.
const INCONSISTENT_TOPIC_ID: i16 = 103;
/// From this version of Produce on a partition joins a transaction by being produced to.
const JOINS_FROM: i16 = 12;

/// What batches of a Produce are, once their symbols are numbers.
struct Sent {
    at: At,
    partition: i32,
    by: Option<(i64, i16, i32)>,
    count: i32,
}

impl World {
    /// Does a step and notes what came of it.
    pub fn execute(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Produce { version, acks, transactional, to } => self.produce(step, *version, *acks, *transactional, to),
            Step::Fetch { version, session, isolation, bytes_max, from, forget } => {
                self.fetch(step, (*version, *session, *isolation, *bytes_max), from, forget)
            }
            Step::ReadAll { topic, partition, isolation } => self.read_all(step, *topic, *partition, *isolation),
            Step::ListOffsets { version, isolation, of } => self.list_offsets(step, *version, *isolation, of),
            Step::Epochs { version, of } => self.epochs(step, *version, of),
            Step::DeleteRecords { version, below } => {
                let topic = |(at, partitions): &(At, Vec<(i32, _)>)| {
                    let partition = |(index, place): &(i32, _)| {
                        DeleteRecordsPartition::default().with_partition_index(*index).with_offset(self.known.place(*at, *index, *place))
                    };
                    let partitions = partitions.iter().map(partition).collect();
                    DeleteRecordsTopic::default().with_name(topic_name(&self.known.name(*at))).with_partitions(partitions)
                };
                let topics = below.iter().map(topic).collect();
                let ask = DeleteRecordsRequest::default().with_topics(topics).with_timeout_ms(30_000);
                let answer = self.side.step(format!("{step:?}"), *version, &ask)?;
                for topic in answer.iter().flat_map(|answer| &answer.topics) {
                    let Some(slot) = self.known.slot(&topic.name, Uuid::nil()) else { continue };
                    let taken = topic.partitions.iter().filter(|partition| partition.error_code == 0);
                    self.known.starts.extend(taken.map(|partition| ((slot, partition.partition_index), partition.low_watermark)));
                }
                Ok(())
            }
            Step::Init { .. }
            | Step::AddPartitions { .. }
            | Step::AddOffsets { .. }
            | Step::CommitOffsets { .. }
            | Step::CommittedOffsets { .. }
            | Step::End { .. }
            | Step::Transactions { .. }
            | Step::ListTransactions { .. }
            | Step::Producers { .. } => self.transact(step),
            _ => self.administer(step),
        }
    }

    fn produce(&mut self, step: &Step, version: i16, acks: i16, transactional: Option<usize>, to: &Of<Written>) -> Result<()> {
        let (mut topics, mut sent) = (Vec::new(), Vec::new());
        for (at, all) in to {
            let topic = self.known.topic(*at);
            let mut partitions = Vec::new();
            for written in all {
                let by = self.writer(version, *at, written);
                let records = batches::encode(written, by)?;
                let count = i32::try_from(written.items.len())?;
                sent.push(Sent { at: *at, partition: written.partition, by, count });
                partitions.push(PartitionProduceData::default().with_index(written.partition).with_records(Some(records)));
            }
            let data = TopicProduceData::default().with_partition_data(partitions);
            topics.push(if version >= 13 { data.with_topic_id(topic.id) } else { data.with_name(topic_name(&topic.name)) });
        }
        let id = transactional.map(|slot| tid(&self.known.transactional_id(slot)));
        let ask = ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(topics).with_transactional_id(id);
        if acks == 0 {
            return self.produce_unanswered(step, version, &ask, &sent);
        }
        let (mut found, known) = (Vec::new(), &self.known);
        let answer = self.side.step_with(format!("{step:?}"), version, &ask, |answer| {
            answer.responses.sort_by_key(|topic| known.shown_topic(&topic.name, topic.topic_id));
            for topic in &mut answer.responses {
                found.push(known.shown_topic(&topic.name, topic.topic_id));
                let slot = known.slot(&topic.name, topic.topic_id);
                for partition in topic.partition_responses.iter_mut().filter(|partition| partition.error_code != 0) {
                    same_for_all_versions(&mut partition.error_code);
                }
                for partition in topic.partition_responses.iter_mut().filter(|partition| partition.error_code == 0) {
                    let end = slot.and_then(|slot| known.ends.get(&(slot, partition.index)));
                    if end.is_some_and(|end| partition.base_offset < *end) {
                        // For a duplicate Kafka gives its newest timestamp, as if the log had stamped it.
                        partition.log_append_time_ms = -1;
                    }
                }
            }
        });
        let Some(answer) = answer? else { return Ok(()) };
        self.side.note("of topics", format!("{found:?}"));
        for topic in &answer.responses {
            let Some(slot) = self.known.slot(&topic.name, topic.topic_id) else { continue };
            for partition in topic.partition_responses.iter().filter(|partition| partition.error_code == 0) {
                let is_it = |sent: &&Sent| sent.at == At::Slot(slot) && sent.partition == partition.index;
                let Some(sent) = sent.iter().find(is_it) else { continue };
                let end = self.known.ends.entry((slot, partition.index)).or_insert(0);
                if partition.base_offset >= *end {
                    *end = partition.base_offset + i64::from(sent.count);
                    if let Some((id, epoch, first)) = sent.by {
                        self.known.take(sent.at, sent.partition, id, (epoch, first, sent.count));
                    }
                }
            }
        }
        Ok(())
    }

    /// Id, epoch and first sequence of a batch's producer.
    fn writer(&self, version: i16, at: At, written: &Written) -> Option<(i64, i16, i32)> {
        let (who, sequence) = written.by?;
        let (mut id, mut epoch) = self.known.who(who);
        // A transactional batch of no producer is taken by Kafka, although nothing could end its transaction; here it is refused.
        if written.transactional && id < 0 {
            id = NO_PRODUCER;
        }
        // Kafka finds a producer without an epoch in a batch that it compresses anew with an unknown server error; here it is
        // taken, as Kafka does elsewhere.
        if matches!(at, At::Slot(slot) if self.known.recompressed[slot]) {
            epoch = epoch.max(0);
        }
        let first = self.known.sequence(at, written.partition, (id, epoch), sequence);
        // Where a partition knows nothing of the producer but that a request before version 12 was refused, Kafka goes by that one and
        // takes any first sequence; here it is by the request that comes.
        let is_new = written.transactional && version >= JOINS_FROM && !self.known.has_taken(at, written.partition, id);
        Some((id, epoch, if is_new { 0 } else { first }))
    }

    /// The connection stays if all was well, which the answer to the next request shows.
    fn produce_unanswered(&mut self, step: &Step, version: i16, ask: &ProduceRequest, sent: &[Sent]) -> Result<()> {
        let after = MetadataRequest::default().with_topics(Some(vec![named("rl-nowhere")])).with_allow_auto_topic_creation(false);
        self.side.client().send(version, ask)?;
        // The connection may be closed before or after this is sent.
        let is_open = self.side.client().ask_or_closed(9, &after).is_ok_and(|answer| answer.is_some());
        self.side.note(format!("{step:?}"), format!("the connection stays: {is_open}"));
        if !is_open {
            self.side.reconnect()?;
        }
        for sent in sent {
            let At::Slot(slot) = sent.at else { continue };
            let end = self.known.ends.get(&(slot, sent.partition)).copied().unwrap_or(0);
            self.look_at_end(slot, sent.partition)?;
            let grown = self.known.ends.get(&(slot, sent.partition)).is_some_and(|now| *now >= end + i64::from(sent.count));
            if let Some((id, epoch, first)) = sent.by.filter(|_| grown) {
                self.known.take(sent.at, sent.partition, id, (epoch, first, sent.count));
            }
        }
        Ok(())
    }

    fn fetch(&mut self, step: &Step, how: (i16, Session, i8, i32), reads: &Of<Read>, forget: &Of<i32>) -> Result<()> {
        let (version, session, isolation, bytes_max) = how;
        let partition = |at: At, read: &Read| {
            from(read.partition, self.known.place(at, read.partition, read.from))
                .with_partition_max_bytes(read.bytes_max)
                .with_current_leader_epoch(read.leader_epoch)
                .with_last_fetched_epoch(read.last_epoch)
        };
        let topics = reads
            .iter()
            .map(|(at, reads)| fetch_topic(version, &self.known.topic(*at), reads.iter().map(|read| partition(*at, read)).collect()));
        let forgotten = |(at, partitions): &(At, Vec<i32>)| {
            let (topic, forgotten) = (self.known.topic(*at), ForgottenTopic::default().with_partitions(partitions.clone()));
            if version >= 13 { forgotten.with_topic_id(topic.id) } else { forgotten.with_topic(topic_name(&topic.name)) }
        };
        let known = |slot: usize| self.known.sessions.get(slot).copied().unwrap_or((0, 0));
        let (id, epoch) = match session {
            Session::None => (0, -1),
            Session::New => (0, 0),
            Session::Next(slot, more) => (known(slot).0, known(slot).1 + more),
            Session::End(slot) => (known(slot).0, -1),
            Session::Nobody(epoch) => (987_654_321, epoch),
            Session::Instead(slot) => (known(slot).0, 0),
        };
        let ask = fetch(version, topics.collect()).with_max_bytes(bytes_max).with_isolation_level(isolation);
        // Version 4 to 6 have no sessions.
        let ask = if version >= 7 { ask.with_session_id(id).with_session_epoch(epoch) } else { ask };
        let ask = ask.with_forgotten_topics_data(forget.iter().map(forgotten).collect());
        let mut contents = Ok(Vec::new());
        let known = &self.known;
        let answer = self.side.step_with(format!("{step:?}"), version, &ask, |answer| contents = show_fetched(known, answer))?;
        for (label, found) in contents? {
            self.side.note(label, found);
        }
        let Some(answer) = answer.filter(|answer| answer.error_code == 0) else { return Ok(()) };
        match session {
            Session::New | Session::Instead(_) => self.known.sessions.push((answer.session_id, 1)),
            Session::Next(slot, _) => {
                if let Some(session) = self.known.sessions.get_mut(slot) {
                    session.1 += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn read_all(&mut self, step: &Step, slot: usize, partition: i32, isolation: i8) -> Result<()> {
        let topic = self.known.topic(At::Slot(slot));
        let (mut offset, mut found, mut all_aborted) = (0, String::new(), BTreeSet::new());
        loop {
            let ask = fetch(12, vec![fetch_topic(12, &topic, vec![from(partition, offset)])]).with_isolation_level(isolation);
            let answer = self.side.ask(12, &ask)?;
            let read = answer.responses.into_iter().flat_map(|topic| topic.partitions).next().context("no answer for the partition")?;
            if read.error_code == OFFSET_OUT_OF_RANGE && offset < self.start(slot, partition) {
                offset = self.start(slot, partition);
                continue;
            }
            let _ = write!(found, "error {} ", read.error_code);
            let records = read.records.unwrap_or_default();
            let Some(last) = batch::read(records.clone())?.pop() else { break };
            offset = end_of(&last);
            let known = &self.known;
            // As in `show_fetched`.
            let aborted = read.aborted_transactions.into_iter().flatten().filter(|aborted| aborted.first_offset < offset);
            let aborted = aborted.map(|aborted| (aborted.first_offset, known.shown_producer(aborted.producer_id.0)));
            all_aborted.extend(aborted.filter(|_| !known.is_faulty));
            found.push_str(&batches::describe(records, |id| known.shown_producer(id), Known::shown_time, known.recompressed[slot])?);
        }
        // What a segment has is one answer's: more than one may tell of a transaction.
        let _ = write!(found, "aborted {:?}", all_aborted);
        self.side.note(format!("{step:?}"), found.replace("error 0 ", ""));
        Ok(())
    }

    fn start(&self, slot: usize, partition: i32) -> i64 {
        self.known.starts.get(&(slot, partition)).copied().unwrap_or(0)
    }

    fn list_offsets(&mut self, step: &Step, version: i16, isolation: i8, of: &Of<(i32, i64, i32)>) -> Result<()> {
        let topic = |(at, partitions): &(At, Vec<(i32, i64, i32)>)| {
            let times: Vec<(i32, i64)> = partitions.iter().map(|(partition, time, _)| (*partition, *time)).collect();
            let mut topics = list_offsets(&self.known.name(*at), &times).topics;
            let asked = topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            asked.zip(partitions).for_each(|(asked, (_, _, epoch))| asked.current_leader_epoch = *epoch);
            topics
        };
        let topics = of.iter().flat_map(topic).collect();
        let ask = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(topics).with_isolation_level(isolation);
        let known = &self.known;
        // Where the first records were deleted, but not yet their segment, Kafka finds the greatest timestamp in those that are gone, and a
        // look-up by time ends in such a segment with nothing. Both here are of what is left.
        let is_misled = |name: &str, partition: i32| {
            let place = known.slot(name, Uuid::nil()).map(|slot| (slot, partition)).filter(|place| known.starts.contains_key(place))?;
            let asked = of.iter().find(|(at, _)| *at == At::Slot(place.0))?.1.iter().find(|(asked, ..)| *asked == partition)?;
            (asked.1 == -3 || asked.1 >= 0 && known.rolls[place.0]).then_some(())
        };
        self.side.step_with(format!("{step:?}"), version, &ask, |answer| {
            answer.topics.sort_by(|a, b| a.name.cmp(&b.name));
            for topic in &mut answer.topics {
                for partition in &mut topic.partitions {
                    // The records of a transaction that is open may be gone: then Kafka's last stable offset lies below the start of the log, ours is it.
                    let start = known.slot(&topic.name, Uuid::nil()).and_then(|slot| known.starts.get(&(slot, partition.partition_index)));
                    if let Some(start) = start.filter(|_| isolation == 1 && partition.error_code == 0 && partition.timestamp == -1) {
                        partition.offset = partition.offset.max(*start);
                    }
                    if is_misled(&topic.name, partition.partition_index).is_some() {
                        (partition.timestamp, partition.offset, partition.leader_epoch) = (0, 0, 0);
                    }
                }
            }
            for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                let shown = Known::shown_time(partition.timestamp);
                if shown != partition.timestamp {
                    // Of batches that the broker stamped, or markers, two may have the same time or not.
                    (partition.timestamp, partition.offset) = (shown, 0);
                }
            }
        })?;
        Ok(())
    }

    fn epochs(&mut self, step: &Step, version: i16, of: &Of<(i32, i32, i32)>) -> Result<()> {
        let asked = |(partition, current, epoch): &(i32, i32, i32)| {
            OffsetForLeaderPartition::default().with_partition(*partition).with_current_leader_epoch(*current).with_leader_epoch(*epoch)
        };
        let topic = |(at, partitions): &(At, Vec<(i32, i32, i32)>)| {
            let partitions = partitions.iter().map(asked).collect();
            OffsetForLeaderTopic::default().with_topic(topic_name(&self.known.name(*at))).with_partitions(partitions)
        };
        let ask = OffsetForLeaderEpochRequest::default().with_topics(of.iter().map(topic).collect());
        let ask = if version >= 3 { ask.with_replica_id(BrokerId(-1)) } else { ask };
        self.side.step_with(format!("{step:?}"), version, &ask, |answer| answer.topics.sort_by(|a, b| a.topic.cmp(&b.topic)))?;
        Ok(())
    }
}

/// Takes the records out of an answer and says what they are.
fn show_fetched(known: &Known, answer: &mut FetchResponse) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    answer.responses.sort_by_key(|topic| known.shown_topic(&topic.topic, topic.topic_id));
    // Kafka has the partitions with errors first, and so a topic twice if others lie between.
    answer.responses.dedup_by(|more, topic| {
        let is_same = topic.topic == more.topic && topic.topic_id == more.topic_id;
        topic.partitions.extend(is_same.then(|| std::mem::take(&mut more.partitions)).into_iter().flatten());
        is_same
    });
    for topic in &mut answer.responses {
        let shown = known.shown_topic(&topic.topic, topic.topic_id);
        let is_recompressed = known.slot(&topic.topic, topic.topic_id).is_some_and(|slot| known.recompressed[slot]);
        topic.partitions.sort_by_key(|partition| partition.partition_index);
        for partition in &mut topic.partitions {
            // Kafka's sessions remember the name that belonged to the id, and whether another topic has it now; ours says that nothing has the
            // id. Clients ask for Metadata after each.
            if [UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID].contains(&partition.error_code) {
                partition.error_code = UNKNOWN_TOPIC_OR_PARTITION;
            }
            // As in ListOffsets.
            if partition.error_code == 0 {
                let slot = known.slot(&topic.topic, topic.topic_id);
                let start = slot.and_then(|slot| known.starts.get(&(slot, partition.partition_index))).copied().unwrap_or(0);
                partition.last_stable_offset = partition.last_stable_offset.max(start);
            }
            if known.is_faulty {
                partition.aborted_transactions.iter_mut().for_each(Vec::clear);
            }
            for aborted in partition.aborted_transactions.iter_mut().flatten() {
                aborted.producer_id = ProducerId(known.shown_producer(aborted.producer_id.0));
            }
            let mut records = partition.records.as_mut().map(|records| std::mem::replace(records, Bytes::new())).unwrap_or_default();
            let batches = batch::read(records.clone())?;
            // Where the limits leave no room for a batch Kafka doesn't look for transactions.
            match batches.last().map(end_of) {
                None => partition.aborted_transactions = None,
                // It looks for them up to the next entry of its index, and so may tell of some that lie beyond what it answers.
                Some(end) => partition.aborted_transactions.iter_mut().for_each(|all| all.retain(|aborted| aborted.first_offset < end)),
            }
            // An answer ends with its segment, and Kafka begins a new one for a batch that it then refuses because of its producer.
            if known.slot(&topic.topic, topic.topic_id).is_some_and(|slot| known.rolls[slot]) {
                records = batches.first().map(batch::Batch::encode).unwrap_or_default();
                partition.aborted_transactions = partition.aborted_transactions.take().map(|_| Vec::new());
            }
            let text = batches::describe(records, |id| known.shown_producer(id), Known::shown_time, is_recompressed)?;
            found.push((format!("records of {shown}, partition {}", partition.partition_index), text));
        }
    }
    Ok(found)
}

/// The offset after a batch.
fn end_of(batch: &batch::Batch) -> i64 {
    batch.header.base_offset + i64::from(batch.header.last_offset_delta) + 1
}
