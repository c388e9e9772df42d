//! The coordinator of all transactions: what handlers call, and the rounds in which transactions time out and idle ids are forgotten.
#![allow(clippy::disallowed_methods, reason = "a shell: it sleeps between its rounds")]

mod endings;
mod machine;
mod markers;

pub use markers::{Marker, MarkerOutcome, MarkerWriter};

use super::{
    outcome::Outcome,
    shard::Enacted,
    shards::{Plan, Shards},
};
use crate::{
    cluster::{Cluster, Image},
    log::Logs,
    txn::{
        self, AddPartitions, Decision, Described, EndTxn, Ending, Filter, FreshIds, InitProducerId, Listed, TransactionVersion,
        TransactionalId, Transactions, VerifyPartitions,
    },
    types::{Clock, ErrorCode, Millis, ProducerId, ProducerIdAndEpoch, TopicPartition},
};
use endings::Endings;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI16, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// Where transactional ids are kept.
pub const TRANSACTION_TOPIC: &str = "__transaction_state";

/// The settings of the coordinator, named as the broker's keys.
#[derive(Clone, Debug)]
pub struct TransactionSettings {
    pub transactions: txn::Settings,
    pub transaction_state_log_num_partitions: i32,
    pub transaction_state_log_replication_factor: i16,
    pub transaction_state_log_min_isr: i32,
    pub transaction_state_log_segment_bytes: i64,
    pub transaction_abort_timed_out_transaction_cleanup_interval_ms: i64,
    pub transaction_remove_expired_transaction_cleanup_interval_ms: i64,
    pub load_threads: usize,
}

/// The coordinator of all transactions. One for the whole broker.
pub struct TransactionCoordinator {
    settings: TransactionSettings,
    shards: Shards<Transactions>,
    endings: Arc<Endings>,
    /// The cluster's `transaction.version`, for shards that load from now on.
    version: Arc<AtomicI16>,
    /// Held while that changes.
    changing: Mutex<()>,
}

/// The overrides that the topic has in Kafka (`transactionStateTopicConfigs`).
fn plan(settings: &TransactionSettings) -> Plan {
    let (min_isr, segment_bytes) = (settings.transaction_state_log_min_isr, settings.transaction_state_log_segment_bytes);
    Plan {
        name: TRANSACTION_TOPIC,
        partitions: settings.transaction_state_log_num_partitions,
        replication_factor: settings.transaction_state_log_replication_factor,
        configs: Box::new(move |replication_factor| {
            vec![
                ("cleanup.policy", "compact".to_owned()),
                ("compression.type", "uncompressed".to_owned()),
                // With fewer brokers than Kafka's defaults are for, no write would ever be enough.
                ("min.insync.replicas", min_isr.min(replication_factor.into()).to_string()),
                ("segment.bytes", segment_bytes.to_string()),
                ("unclean.leader.election.enable", "false".to_owned()),
            ]
        }),
        load_threads: settings.load_threads,
    }
}

impl TransactionCoordinator {
    pub fn new(settings: TransactionSettings, logs: Arc<Logs>, clock: Arc<dyn Clock>, markers: Arc<dyn MarkerWriter>) -> Self {
        let endings = Arc::new(Endings::new(markers));
        let loaded = endings.clone();
        let on_loaded = Box::new(move |shard: &Arc<_>, found: Vec<Ending>| {
            tracing::info!(transactions = found.len(), "writes the markers of transactions again that were ending when the broker stopped");
            found.into_iter().for_each(|ending| loaded.push(shard, ending, None));
        });
        let version = Arc::new(AtomicI16::new(settings.transactions.transaction_version.0));
        let now = version.clone();
        let tell = move |_: usize, _: usize, transactions: &mut Transactions| {
            transactions.set_version(TransactionVersion(now.load(Ordering::Acquire)));
        };
        let shards = Shards::new(plan(&settings), settings.transactions, logs, clock, on_loaded).telling(Box::new(tell));
        Self { settings, shards, endings, version, changing: Mutex::default() }
    }

    /// The cluster's `transaction.version` was changed (UpdateFeatures): decisions go by it from now on. `version` reads it, one caller at a
    /// time, so that the newest is what stays.
    pub fn follow_version(&self, version: impl FnOnce() -> TransactionVersion) {
        let _one_at_a_time = self.changing.lock();
        let version = version();
        self.version.store(version.0, Ordering::Release);
        for shard in self.shards.all() {
            // One that loads takes it from above.
            let _ = shard.tell(|transactions| transactions.set_version(version));
        }
    }

    pub fn settings(&self) -> &TransactionSettings {
        &self.settings
    }

    /// Takes the topic as the image has it. Its ids answer COORDINATOR_LOAD_IN_PROGRESS until [`TransactionCoordinator::load`] is done.
    pub fn open(&self, image: &Image) {
        self.shards.open(image);
    }

    /// Loads what isn't loaded, several partitions at a time. Blocks on the disk.
    pub fn load(&self) {
        self.shards.load();
    }

    /// Creates the topic on its first use. Blocks on the disk.
    pub fn ensure_topic(&self, cluster: &Cluster) -> Result<(), ErrorCode> {
        self.shards.ensure_topic(cluster)
    }

    /// Whether the topic is there and its shards are known: FindCoordinator has nothing to create.
    pub fn is_open(&self, image: &Image) -> bool {
        self.shards.is_open(image)
    }

    /// InitProducerId with a transactional id. May block on the disk: a producer id comes from the metadata.
    pub fn init_producer_id(
        &self,
        init: &InitProducerId,
        fresh: FreshIds<'_>,
    ) -> Result<Outcome<Result<ProducerIdAndEpoch, ErrorCode>>, ErrorCode> {
        self.decide(&init.id, |transactions, now| transactions.decide_init(now, init, fresh))
    }

    /// AddPartitionsToTxn, AddOffsetsToTxn, and what Produce and TxnOffsetCommit imply: these may go on once the outcome is committed.
    pub fn add_partitions(&self, add: &AddPartitions) -> Result<Outcome<ErrorCode>, ErrorCode> {
        self.decide(&add.id, |transactions, now| transactions.decide_add_partitions(now, add))
    }

    /// Whether partitions are in the open transaction of a producer: an answer for each.
    pub fn verify(&self, verify: &VerifyPartitions) -> Result<Vec<ErrorCode>, ErrorCode> {
        self.shards.of(&verify.id)?.query(|transactions| transactions.verify(verify))?
    }

    /// EndTxn. The markers are written before the answer if that is done quickly, and else in the background. May block on the disk when a
    /// producer's epochs are used up.
    pub fn end(&self, end: &EndTxn, fresh: FreshIds<'_>) -> Result<Outcome<Result<ProducerIdAndEpoch, ErrorCode>>, ErrorCode> {
        self.decide(&end.id, |transactions, now| transactions.decide_end(now, end, fresh))
    }

    /// DescribeTransactions.
    pub fn describe(&self, id: &str) -> Result<Described, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        self.shards.of(id)?.query(|transactions| transactions.describe(id))?
    }

    /// ListTransactions. None of the shards may be loading.
    pub fn list(&self, filter: &Filter<'_>) -> Result<Vec<Listed>, ErrorCode> {
        let now = self.shards.now().wall;
        let mut listed = Vec::new();
        for shard in self.shards.all() {
            match shard.query(|transactions| transactions.list(now, filter)) {
                Ok(some) => listed.extend(some),
                // One that could not be loaded has nothing to tell of.
                Err(ErrorCode::NotCoordinator) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }

    /// For each producer and partition the transactional id whose transaction has the partition; `Ok(None)` if there is none, an error if
    /// one of the shards can't say.
    pub fn holders(&self, wanted: &[(ProducerId, TopicPartition)]) -> Vec<Result<Option<TransactionalId>, ErrorCode>> {
        let mut found = vec![Ok(None); wanted.len()];
        for shard in self.shards.all() {
            match shard.query(|transactions| transactions.holders(wanted)) {
                Ok(some) => some.into_iter().for_each(|(place, id)| {
                    if let Some(found) = found.get_mut(place) {
                        *found = Ok(Some(id));
                    }
                }),
                Err(error) => found.iter_mut().filter(|found| matches!(found, Ok(None))).for_each(|found| *found = Err(error)),
            }
        }
        found
    }

    fn decide<R>(&self, id: &str, decide: impl FnOnce(&Transactions, Millis) -> Decision<R>) -> Result<Outcome<R>, ErrorCode> {
        let shard = self.shards.of(id)?;
        let now = self.shards.now();
        let Enacted { outcome, effects } = shard.decide(now, |transactions| decide(transactions, now.wall).into())?;
        for ending in effects {
            self.endings.begin(&shard, ending, outcome.committing.clone(), || self.shards.now());
        }
        Ok(outcome)
    }

    /// Aborts transactions whose time is up. Blocks on the disk.
    pub fn abort_overdue(&self, fresh: FreshIds<'_>) {
        for shard in self.shards.all() {
            let now = self.shards.now();
            let overdue = shard.query(|transactions| transactions.overdue(now.wall)).unwrap_or_default();
            for id in &overdue {
                match self.abort_one(id, fresh) {
                    Ok(()) => tracing::info!(
                        id = printable(id),
                        "aborted a transaction that was open for longer than its producer's transaction.timeout.ms"
                    ),
                    Err(error) => {
                        tracing::warn!(id = printable(id), %error, "can't abort a transaction whose time is up; it is tried again")
                    }
                }
            }
        }
    }

    fn abort_one(&self, id: &TransactionalId, fresh: FreshIds<'_>) -> Result<(), ErrorCode> {
        let decide = |transactions: &Transactions, now| match transactions.decide_timeout(now, id, fresh) {
            Ok(Decision { records, volatile, endings, .. }) => Decision { reply: Ok(()), records, volatile, endings },
            Err(error) => Decision::only(Err(error)),
        };
        self.decide(id, decide)?.reply
    }

    /// Forgets ids that were not used for `transactional.id.expiration.ms`. Blocks on the disk.
    pub fn expire(&self) {
        for shard in self.shards.all() {
            let now = self.shards.now();
            match shard.clean(now, |transactions| transactions.decide_expire(now.wall).into()) {
                Ok(0) | Err(ErrorCode::CoordinatorLoadInProgress) => {}
                Ok(ids) => tracing::info!(partition = %shard.log().topic(), ids, "forgot transactional ids that were not used for long"),
                Err(error) => tracing::warn!(partition = %shard.log().topic(), %error, "can't forget transactional ids"),
            }
        }
    }

    /// Writes the markers that could not be written at once, until the broker stops.
    pub async fn run_endings(self: Arc<Self>, stopping: watch::Receiver<bool>) {
        self.endings.run(stopping, || self.shards.now()).await;
    }

    /// Aborts transactions whose time is up, every `transaction.abort.timed.out.transaction.cleanup.interval.ms`, until the broker stops.
    pub async fn run_timeouts(
        self: Arc<Self>,
        fresh: impl Fn() -> Result<ProducerId, ErrorCode> + Send + Sync + 'static,
        stopping: watch::Receiver<bool>,
    ) {
        let interval = self.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms;
        let fresh = Arc::new(fresh);
        rounds(interval, stopping, || {
            let (this, fresh) = (self.clone(), fresh.clone());
            move || this.abort_overdue(&*fresh)
        })
        .await;
    }

    /// Forgets idle ids, every `transaction.remove.expired.transaction.cleanup.interval.ms`, until the broker stops.
    pub async fn run_expiry(self: Arc<Self>, stopping: watch::Receiver<bool>) {
        let interval = self.settings.transaction_remove_expired_transaction_cleanup_interval_ms;
        rounds(interval, stopping, || {
            let this = self.clone();
            move || this.expire()
        })
        .await;
    }
}

/// Does something that blocks again and again.
async fn rounds<F: FnOnce() + Send + 'static>(interval_ms: i64, mut stopping: watch::Receiver<bool>, work: impl Fn() -> F) {
    let interval = Duration::from_millis(interval_ms.unsigned_abs().max(1));
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        if let Err(error) = tokio::task::spawn_blocking(work()).await {
            tracing::error!(%error, "a round of the transaction coordinator failed");
        }
    }
}

/// A peer's text as logs may show it.
fn printable(id: &str) -> String {
    crate::codec::header::client_id_text(Some(id.as_bytes()))
}
