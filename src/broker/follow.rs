//! Follows the configs that are set while the broker runs: from a new image to who goes by it.

use super::{cleaner::Cleaner, mover::Shared};
use crate::{api::Context, config::Dynamic};
use std::sync::{Arc, atomic::Ordering};
use tokio::sync::watch;

/// Until the broker stops.
pub async fn follow(context: Arc<Context>, cleaner: Arc<Cleaner>, moves: Arc<Shared>, mut stopping: watch::Receiver<bool>) {
    let mut images = context.cluster.images();
    let mut obeyed: Option<Dynamic> = None;
    loop {
        images.borrow_and_update();
        match context.config.with_layers(context.image().layers()) {
            Ok(dynamic) if obeyed.as_ref() != Some(&dynamic) => {
                obey(&context, &moves, &dynamic);
                // It has threads to begin and to end.
                if obeyed.as_ref().map(|before| &before.log_cleaner) != Some(&dynamic.log_cleaner)
                    && let Err(error) = cleaner.obey(&dynamic.log_cleaner)
                {
                    tracing::error!(%error, "compaction can't go by what was set");
                }
                obeyed = Some(dynamic);
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the broker can't go by what was set"),
        }
        tokio::select! {
            changed = images.changed() => if changed.is_err() { return },
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

fn obey(context: &Context, moves: &Shared, dynamic: &Dynamic) {
    context.logs.go_by(dynamic.producer_id_expiration_ms, dynamic.num_recovery_threads_per_data_dir);
    context.verifies_transactions.store(dynamic.transaction_partition_verification_enable, Ordering::Relaxed);
    moves.limit(dynamic.moves_bytes_per_second);
}
