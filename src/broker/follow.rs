//! Follows the configs that are set while the broker runs, but for the cleaner's, which its own task follows: from a new image to who goes by it.

use super::mover::Shared;
use crate::{api::Context, config::Dynamic};
use std::sync::{Arc, atomic::Ordering};
use tokio::sync::watch;

/// Until the broker stops.
pub async fn follow(context: Arc<Context>, moves: Arc<Shared>, mut stopping: watch::Receiver<bool>) {
    let mut images = context.cluster.images();
    let mut obeyed = None;
    loop {
        images.borrow_and_update();
        match context.config.with_layers(context.image().layers()) {
            Ok(dynamic) if obeyed.as_ref() != Some(&dynamic) => {
                obey(&context, &moves, &dynamic);
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
