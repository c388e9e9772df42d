//! The steps about producers and their transactions.

use anyhow::Result;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics};
use kafka_protocol::messages::txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, DescribeProducersRequest, DescribeTransactionsRequest, InitProducerIdRequest, ListTransactionsRequest,
    OffsetFetchRequest, ProducerId, TxnOffsetCommitRequest,
};

use super::generate::TRANSACTIONAL_FROM;
use super::known::Known;
use super::plan::{At, Id, Of, Step, Who};
use super::world::{LOADING, World};
use crate::groups::gid;
use crate::requests::{text, topic_name};
use crate::transactional::tid;

/// Kafka's `Errors` of a commit by a member that a group doesn't have, and of one by a member's generation where there is no group.
const UNKNOWN_MEMBER_ID: i16 = 25;
const ILLEGAL_GENERATION: i16 = 22;

/// Kafka asks about the transactions of several requests at once, and says to all what the first one's version knows.
pub fn same_for_all_versions(code: &mut i16) {
    const INVALID_TXN_STATE: i16 = 48;
    const TRANSACTION_ABORTABLE: i16 = 120;
    if *code == TRANSACTION_ABORTABLE {
        *code = INVALID_TXN_STATE;
    }
}

impl World {
    pub fn transact(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Init { version, slot, keep, timeout_ms } => self.init(step, *version, *slot, *keep, *timeout_ms),
            Step::AddPartitions { version, transactions } => self.add_partitions(step, *version, transactions),
            Step::AddOffsets { version, who } => {
                let ask = self.known.producer(*who).add_offsets(&self.known.group());
                self.side.step(format!("{step:?}"), *version, &ask).map(drop)
            }
            Step::CommitOffsets { version, who, member, of } => self.commit_offsets(step, *version, *who, *member, of),
            Step::CommittedOffsets { version, stable } => self.committed_offsets(step, *version, *stable),
            Step::End { version, who, commit } => {
                let mut producer = self.known.producer(*who);
                // Who comes one epoch late after an end that did not bump it has been fenced; Kafka takes it for one that asks again
                // (`src/txn/tests/ends.rs`).
                if *version >= 5 && !self.known.bumped[who.slot] && producer.epoch + 1 == self.known.epoch(who.slot) {
                    producer.epoch -= 1;
                }
                let answer = self.side.step(format!("{step:?}"), *version, &producer.end(*commit))?;
                let answer = answer.filter(|answer| answer.error_code == 0);
                if answer.is_some() {
                    self.known.bumped[who.slot] = *version >= 5;
                }
                if let Some(answer) = answer.filter(|_| *version >= 5) {
                    self.known.give(who.slot, answer.producer_id, answer.producer_epoch);
                    let id = self.known.shown_producer(answer.producer_id.0);
                    self.side.note("as", format!("{id}"));
                }
                self.settle()
            }
            Step::Transactions { slots } => self.transactions(step, slots),
            Step::ListTransactions { version, states, producer, pattern } => {
                self.list_transactions(step, *version, states, *producer, *pattern)
            }
            Step::Producers { of } => self.describe_producers(step, of),
            _ => Ok(()),
        }
    }

    fn init(&mut self, step: &Step, version: i16, slot: usize, keep: Option<Who>, timeout_ms: i32) -> Result<()> {
        let id = (slot >= TRANSACTIONAL_FROM).then(|| tid(&self.known.transactional_id(slot)));
        let ask = InitProducerIdRequest::default().with_transactional_id(id).with_transaction_timeout_ms(timeout_ms);
        let (id, mut epoch) = keep.map_or((-1, -1), |who| self.known.who(who));
        // Kafka does not look at the epoch of a producer that comes back to a transaction that is open, and so aborts its successor's; here it
        // is fenced (`src/txn/init.rs`).
        if keep.is_some() && slot >= TRANSACTIONAL_FROM && self.is_open(slot)? {
            epoch = self.known.epoch(slot);
        }
        let ask = if version >= 3 { ask.with_producer_id(ProducerId(id)).with_producer_epoch(epoch) } else { ask };
        // Kafka refuses while it gets more ids from its controller.
        let mut ready = None;
        self.side.wait_for("there is a producer id", |side| {
            let answer = side.client().ask(version, &ask)?;
            let is_ready = !LOADING.contains(&answer.error_code);
            ready = Some(answer);
            Ok(is_ready)
        })?;
        let Some(answer) = ready else { return Ok(()) };
        if answer.error_code == 0 {
            self.known.give(slot, answer.producer_id, answer.producer_epoch);
            self.known.bumped[slot] = false;
        }
        let id = self.known.shown_producer(answer.producer_id.0);
        self.side.note(format!("v{version} {step:?}"), format!("{} {id} {}", answer.error_code, answer.producer_epoch));
        self.settle()
    }

    fn is_open(&mut self, slot: usize) -> Result<bool> {
        let ids = vec![tid(&self.known.transactional_id(slot))];
        let answer = self.side.ask(0, &DescribeTransactionsRequest::default().with_transactional_ids(ids))?;
        Ok(answer.transaction_states.iter().any(|state| &*state.transaction_state == "Ongoing"))
    }

    fn add_partitions(&mut self, step: &Step, version: i16, transactions: &[(Who, bool, Of<i32>)]) -> Result<()> {
        let mut all = Vec::new();
        for (who, verify, of) in transactions {
            let names: Vec<(String, &[i32])> = of.iter().map(|(at, partitions)| (self.known.name(*at), &partitions[..])).collect();
            let topics: Vec<(&str, &[i32])> = names.iter().map(|(name, partitions)| (&**name, *partitions)).collect();
            let mut ask = self.known.producer(*who).add(version, &topics);
            if version < 4 {
                return self.side.step(format!("{step:?}"), version, &ask).map(drop);
            }
            ask.transactions.iter_mut().for_each(|transaction| transaction.verify_only = *verify);
            all.extend(ask.transactions);
        }
        let ask = AddPartitionsToTxnRequest::default().with_transactions(all);
        self.side.step(format!("{step:?}"), version, &ask).map(drop)
    }

    fn commit_offsets(
        &mut self,
        step: &Step,
        version: i16,
        who: Who,
        member: Option<(i32, &'static str)>,
        of: &Of<(i32, i64)>,
    ) -> Result<()> {
        let partition = |(index, offset): &(i32, i64)| {
            TxnOffsetCommitRequestPartition::default()
                .with_partition_index(*index)
                .with_committed_offset(*offset)
                .with_committed_leader_epoch(if version >= 2 { 0 } else { -1 })
                .with_committed_metadata(Some(text("m")))
        };
        let topic = |(at, partitions): &(At, Vec<(i32, i64)>)| {
            let partitions = partitions.iter().map(partition).collect();
            TxnOffsetCommitRequestTopic::default().with_name(topic_name(&self.known.name(*at))).with_partitions(partitions)
        };
        let (producer, (generation, member)) = (self.known.producer(who), member.unwrap_or((-1, "")));
        let ask = TxnOffsetCommitRequest::default()
            .with_transactional_id(tid(&producer.id))
            .with_group_id(gid(&self.known.group()))
            .with_producer_id(ProducerId(producer.producer))
            .with_producer_epoch(producer.epoch)
            .with_generation_id(generation)
            .with_member_id(text(member))
            .with_topics(of.iter().map(topic).collect());
        self.side.step_with(format!("{step:?}"), version, &ask, |answer| {
            for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                same_for_all_versions(&mut partition.error_code);
                // Kafka has a group from a commit on that it refused or that was aborted; here there is one once an offset is in it.
                if partition.error_code == ILLEGAL_GENERATION {
                    partition.error_code = UNKNOWN_MEMBER_ID;
                }
            }
        })?;
        Ok(())
    }

    fn committed_offsets(&mut self, step: &Step, version: i16, stable: bool) -> Result<()> {
        let (group, name, partitions) = (gid(&self.known.group()), topic_name(&self.known.name(At::Slot(0))), vec![0, 1, 2]);
        let ask = if version >= 8 {
            let topic = OffsetFetchRequestTopics::default().with_name(name).with_partition_indexes(partitions);
            let of = OffsetFetchRequestGroup::default().with_group_id(group).with_topics(Some(vec![topic])).with_member_epoch(-1);
            OffsetFetchRequest::default().with_groups(vec![of])
        } else {
            let topic = OffsetFetchRequestTopic::default().with_name(name).with_partition_indexes(partitions);
            OffsetFetchRequest::default().with_group_id(group).with_topics(Some(vec![topic]))
        };
        self.side.step(format!("{step:?}"), version, &ask.with_require_stable(version >= 7 && stable)).map(drop)
    }

    fn transactions(&mut self, step: &Step, slots: &[usize]) -> Result<()> {
        let ids = slots.iter().map(|slot| tid(&self.known.transactional_id(*slot))).collect();
        let mut producers = Vec::new();
        self.side.step_with(format!("{step:?}"), 0, &DescribeTransactionsRequest::default().with_transactional_ids(ids), |answer| {
            producers = answer.transaction_states.iter().map(|state| (state.transactional_id.to_string(), state.producer_id.0)).collect();
        })?;
        self.note_producers(producers);
        Ok(())
    }

    /// Notes whose transactions those are, by their symbols.
    fn note_producers(&mut self, producers: Vec<(String, i64)>) {
        let shown = producers.into_iter().map(|(id, producer)| (id, self.known.shown_producer(producer)));
        let mut shown: Vec<_> = shown.collect();
        shown.sort();
        self.side.note("their producers", format!("{shown:?}"));
    }

    fn list_transactions(
        &mut self,
        step: &Step,
        version: i16,
        states: &[&'static str],
        producer: Option<usize>,
        pattern: Option<&'static str>,
    ) -> Result<()> {
        let own = Who { slot: producer.unwrap_or(0), id: Id::Own, epoch: super::plan::Epoch::Own(0) };
        let ask = ListTransactionsRequest::default()
            .with_state_filters(states.iter().map(|state| text(state)).collect())
            .with_producer_id_filters(producer.map(|_| ProducerId(self.known.who(own).0)).into_iter().collect())
            .with_transactional_id_pattern(pattern.map(text));
        let mut producers = Vec::new();
        let prefix = format!("{}-", self.known.prefix());
        self.side.step_with(format!("{step:?}"), version, &ask, |answer| {
            answer.transaction_states.retain(|state| state.transactional_id.starts_with(&prefix));
            producers = answer.transaction_states.iter().map(|state| (state.transactional_id.to_string(), state.producer_id.0)).collect();
        })?;
        self.note_producers(producers);
        Ok(())
    }

    fn describe_producers(&mut self, step: &Step, of: &Of<i32>) -> Result<()> {
        let topic = |(at, partitions): &(At, Vec<i32>)| {
            TopicRequest::default().with_name(topic_name(&self.known.name(*at))).with_partition_indexes(partitions.clone())
        };
        let ask = DescribeProducersRequest::default().with_topics(of.iter().map(topic).collect());
        let (mut found, known) = (Vec::new(), &self.known);
        self.side.step_with(format!("{step:?}"), 0, &ask, |answer| {
            answer.topics.sort_by(|a, b| a.name.cmp(&b.name));
            for topic in &mut answer.topics {
                topic.partitions.sort_by_key(|partition| partition.partition_index);
                for partition in &mut topic.partitions {
                    // The mask leaves only whether there is an id; here they are noted by what they are.
                    for producer in std::mem::take(&mut partition.active_producers) {
                        let id = known.shown_producer(producer.producer_id.0);
                        let time = Known::shown_time(producer.last_timestamp);
                        let transaction = (producer.coordinator_epoch, producer.current_txn_start_offset);
                        let shown = (id, producer.producer_epoch, producer.last_sequence, time, transaction);
                        found.push((topic.name.to_string(), partition.partition_index, shown));
                    }
                }
            }
        })?;
        found.sort();
        self.side.note("the producers", format!("{found:#?}"));
        Ok(())
    }
}
