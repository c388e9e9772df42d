//! Builds the transaction coordinator and runs its rounds.

use crate::{
    api::Context,
    cluster::Cluster,
    config::TransactionConfig,
    coordinator::{GroupCoordinator, LogMarkers, TransactionCoordinator, TransactionSettings},
    log::Logs,
    txn::{self, TransactionVersion},
    types::{Clock, ErrorCode},
};
use std::sync::Arc;
use tokio::{sync::watch, task::JoinSet};

pub fn build(
    config: &TransactionConfig,
    load_threads: usize,
    cluster: &Arc<Cluster>,
    logs: &Arc<Logs>,
    groups: &Arc<GroupCoordinator>,
    clock: &Arc<dyn Clock>,
) -> (Arc<TransactionCoordinator>, Arc<LogMarkers>) {
    let markers = Arc::new(LogMarkers { cluster: cluster.clone(), logs: logs.clone(), groups: groups.clone(), clock: clock.clone() });
    let image = cluster.image();
    let settings = TransactionSettings {
        transactions: txn::Settings {
            transaction_max_timeout_ms: config.max_timeout_ms,
            transactional_id_expiration_ms: config.id_expiration_ms,
            transaction_version: TransactionVersion(image.transaction_version()),
        },
        transaction_state_log_num_partitions: config.state_log_num_partitions,
        transaction_state_log_replication_factor: config.state_log_replication_factor,
        transaction_state_log_min_isr: config.state_log_min_isr,
        transaction_state_log_segment_bytes: config.state_log_segment_bytes,
        transaction_abort_timed_out_transaction_cleanup_interval_ms: config.abort_timed_out_interval_ms,
        transaction_remove_expired_transaction_cleanup_interval_ms: config.remove_expired_interval_ms,
        load_threads,
    };
    let transactions = Arc::new(TransactionCoordinator::new(settings, logs.clone(), clock.clone(), markers.clone()));
    transactions.open(&image);
    (transactions, markers)
}

/// Loads the transactions, and does what is due until the broker stops.
pub fn run(context: &Arc<Context>, stop: &watch::Sender<bool>, clockwork: &mut JoinSet<()>) {
    let transactions = &context.transactions;
    let loading = transactions.clone();
    clockwork.spawn_blocking(move || loading.load());
    let cluster = context.cluster.clone();
    let fresh = move || cluster.next_producer_id().map_err(|_| ErrorCode::CoordinatorNotAvailable);
    clockwork.spawn(transactions.clone().run_endings(stop.subscribe()));
    clockwork.spawn(transactions.clone().run_timeouts(fresh, stop.subscribe()));
    clockwork.spawn(transactions.clone().run_expiry(stop.subscribe()));
}
