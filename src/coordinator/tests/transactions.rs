//! The transaction coordinator on real logs: what goes on after a crash, when markers are written, and what waits for what.

use super::{super::*, Broker, Standing};
use crate::{
    txn::{self, AddPartitions, EndTxn, Filter, InitProducerId, State, TransactionVersion, VerifyPartitions},
    types::*,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// Partitions that take markers, or don't.
#[derive(Default)]
struct Partitions {
    written: Mutex<Vec<(TopicPartition, Marker)>>,
    /// How often each refuses before it takes one; those that aren't there are named by `gone`.
    refusals: Mutex<BTreeMap<TopicPartition, usize>>,
    gone: Mutex<Vec<TopicPartition>>,
}

impl MarkerWriter for Partitions {
    fn write(&self, marker: &Marker, partition: &TopicPartition) -> MarkerOutcome {
        if self.gone.lock().contains(partition) {
            return MarkerOutcome::Gone;
        }
        if let Some(left) = self.refusals.lock().get_mut(partition).filter(|left| **left > 0) {
            *left -= 1;
            return MarkerOutcome::Later(ErrorCode::KafkaStorageError);
        }
        self.written.lock().push((partition.clone(), *marker));
        MarkerOutcome::Written(None)
    }
}

struct Served {
    broker: Broker,
    partitions: Arc<Partitions>,
    transactions: Arc<TransactionCoordinator>,
}

fn settings() -> TransactionSettings {
    TransactionSettings {
        transactions: txn::Settings::default(),
        transaction_state_log_num_partitions: 4,
        transaction_state_log_replication_factor: 3,
        transaction_state_log_min_isr: 2,
        transaction_state_log_segment_bytes: 1 << 20,
        transaction_abort_timed_out_transaction_cleanup_interval_ms: 10_000,
        transaction_remove_expired_transaction_cleanup_interval_ms: 3_600_000,
        load_threads: 2,
    }
}

fn fresh() -> Result<ProducerId, ErrorCode> {
    Ok(ProducerId(7))
}

fn partition(index: i32) -> TopicPartition {
    TopicPartition { topic: TopicName::new("t").unwrap(), partition: PartitionIndex(index) }
}

impl Served {
    /// Opens what is in the directory; nothing is loaded.
    fn open(dir: &Path) -> Self {
        let (broker, partitions) = (Broker::open(dir), Arc::new(Partitions::default()));
        let transactions = TransactionCoordinator::new(settings(), broker.logs.clone(), Arc::new(Standing), partitions.clone());
        transactions.open(&broker.cluster.image());
        Self { broker, partitions, transactions: Arc::new(transactions) }
    }

    fn started(dir: &Path) -> Self {
        let served = Self::open(dir);
        served.transactions.load();
        served.transactions.ensure_topic(&served.broker.cluster).unwrap();
        served
    }

    fn init(&self, id: &str) -> Result<ProducerIdAndEpoch, ErrorCode> {
        let init = InitProducerId { id: id.into(), timeout_ms: 60_000, expected: None };
        self.transactions.init_producer_id(&init, &fresh)?.reply
    }

    fn add(&self, id: &str, producer: ProducerIdAndEpoch, count: i32) -> Result<Outcome<ErrorCode>, ErrorCode> {
        let partitions = (0..count).map(partition).collect();
        self.transactions.add_partitions(&AddPartitions { id: id.into(), producer, partitions, client_version: TransactionVersion::V2 })
    }

    fn end(
        &self,
        id: &str,
        producer: ProducerIdAndEpoch,
        commit: bool,
    ) -> Result<Outcome<Result<ProducerIdAndEpoch, ErrorCode>>, ErrorCode> {
        self.transactions.end(&EndTxn { id: id.into(), producer, commit, client_version: TransactionVersion::V2 }, &fresh)
    }

    fn state(&self, id: &str) -> State {
        self.transactions.describe(id).unwrap().state
    }

    /// Lets the background work until the id is in this state.
    async fn until(&self, id: &str, state: State) {
        let (_stop, stopping) = tokio::sync::watch::channel(false);
        let reached = async {
            while self.state(id) != state {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = reached => {}
            () = self.transactions.clone().run_endings(stopping) => unreachable!(),
        }
    }

    fn markers(&self) -> Vec<(i32, bool, ProducerIdAndEpoch)> {
        self.partitions.written.lock().iter().map(|(partition, marker)| (partition.partition.0, marker.commit, marker.producer)).collect()
    }
}

#[test]
fn a_transaction_that_nothing_holds_up_is_complete_when_its_end_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::started(dir.path());
    let producer = served.init("tx").unwrap();
    assert_eq!(served.add("tx", producer, 3).unwrap().reply, ErrorCode::None);
    let verify = VerifyPartitions { id: "tx".into(), producer, partitions: vec![partition(0), partition(3)] };
    assert_eq!(served.transactions.verify(&verify), Ok(vec![ErrorCode::None, ErrorCode::TransactionAbortable]));
    let next = ProducerIdAndEpoch::new(7, 1);
    assert_eq!(served.end("tx", producer, true).unwrap().reply, Ok(next));
    assert_eq!(served.state("tx"), State::CompleteCommit);
    assert_eq!(served.markers(), [(0, true, next), (1, true, next), (2, true, next)]);
    assert_eq!(served.transactions.list(&Filter::default()).unwrap().len(), 1);
}

#[tokio::test]
async fn after_a_crash_what_is_open_goes_on_and_what_was_ending_gets_its_markers() {
    let dir = tempfile::tempdir().unwrap();
    let (ending, open) = {
        let served = Served::started(dir.path());
        let (ending, open) = (served.init("ending").unwrap(), served.init("open").unwrap());
        served.add("ending", ending, 2).unwrap();
        served.add("open", open, 1).unwrap();
        served.partitions.refusals.lock().insert(partition(1), usize::MAX);
        assert!(served.end("ending", ending, true).unwrap().reply.is_ok(), "the decision is enough for an answer");
        assert_eq!((served.state("ending"), served.markers().len()), (State::PrepareCommit, 1));
        (ending, open)
        // Dropped without a clean stop.
    };
    let served = Served::open(dir.path());
    assert_eq!(served.init("open"), Err(ErrorCode::CoordinatorLoadInProgress));
    assert_eq!(served.transactions.list(&Filter::default()), Err(ErrorCode::CoordinatorLoadInProgress));
    // One partition's topic was deleted meanwhile, the other's log takes writes only later.
    served.partitions.gone.lock().push(partition(0));
    served.partitions.refusals.lock().insert(partition(1), 2);
    served.transactions.load();
    assert_eq!((served.state("ending"), served.state("open")), (State::PrepareCommit, State::Ongoing));
    served.until("ending", State::CompleteCommit).await;
    assert_eq!(served.markers(), [(1, true, ProducerIdAndEpoch::new(ending.id.0, 1))]);
    assert!(served.end("open", open, false).unwrap().reply.is_ok());
    assert_eq!(served.state("open"), State::CompleteAbort, "a partition that is gone needs no marker");
}

#[tokio::test]
async fn a_transaction_of_many_partitions_ends_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::started(dir.path());
    let producer = served.init("tx").unwrap();
    served.add("tx", producer, 200).unwrap();
    served.end("tx", producer, false).unwrap().reply.unwrap();
    assert_eq!((served.state("tx"), served.markers().len()), (State::PrepareAbort, 0));
    served.until("tx", State::CompleteAbort).await;
    assert_eq!(served.markers().len(), 200);
}

#[tokio::test]
async fn where_syncs_are_asked_for_nothing_is_said_or_done_before_them() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::started(dir.path());
    let topic = served.broker.cluster.image().topic(TRANSACTION_TOPIC).unwrap().clone();
    let config = crate::config::TopicConfig { flush_messages: 1, ..(*topic.config).clone() };
    served.broker.logs.configure(topic.id, &Arc::new(config));
    let init = InitProducerId { id: "tx".into(), timeout_ms: 60_000, expected: None };
    let given = served.transactions.init_producer_id(&init, &fresh).unwrap();
    given.committing.expect("its record waits for a sync").wait().await.unwrap();
    let producer = given.reply.unwrap();
    let added = served.add("tx", producer, 2).unwrap();
    assert!(added.committing.is_some());
    let again = served.add("tx", producer, 2).unwrap();
    assert!(again.committing.is_some(), "what is known already may be lost until the sync");
    again.committing.unwrap().wait().await.unwrap();
    assert!(served.add("tx", producer, 2).unwrap().committing.is_none());
    let ended = served.end("tx", producer, true).unwrap();
    assert!(ended.committing.is_some());
    assert_eq!(served.markers(), [], "the decision may be lost until the sync");
    served.until("tx", State::CompleteCommit).await;
    assert_eq!(served.markers().len(), 2);
}

#[test]
fn the_topic_is_as_kafkas() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::started(dir.path());
    assert!(served.transactions.is_open(&served.broker.cluster.image()));
    let image = served.broker.cluster.image();
    let topic = image.topic(TRANSACTION_TOPIC).unwrap();
    let set: BTreeMap<_, _> = topic.overrides.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let kafkas = [
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        ("min.insync.replicas", "1"),
        ("segment.bytes", "1048576"),
        ("unclean.leader.election.enable", "false"),
    ];
    assert_eq!((topic.partitions.len(), set), (4, kafkas.into()));
}
