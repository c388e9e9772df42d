//! Answers, and the commit of the records that they wait for.

use crate::{
    group::Reply,
    log::{Appended, PartitionLog, Waiter},
    types::{ErrorCode, Offset},
};
use std::{fmt, sync::Arc};
use tokio::sync::oneshot;

/// A decision's answer, and what it waits for.
#[derive(Debug)]
pub struct Outcome<R> {
    pub reply: R,
    /// `None`: its records are committed, or it has none.
    pub committing: Option<Committing>,
}

/// Records that are appended but not committed yet.
#[derive(Clone)]
pub struct Committing {
    log: Arc<PartitionLog>,
    /// They end here.
    end: Offset,
    /// `flush.messages` asks for a sync.
    sync_to: Option<Offset>,
}

impl fmt::Debug for Committing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Committing {{ {} up to {} }}", self.log.topic(), self.end)
    }
}

impl Committing {
    /// What there is to wait for after an append; `None` if that is committed already.
    pub fn of(log: &Arc<PartitionLog>, appended: &Appended) -> Option<Self> {
        let committing = Self { log: log.clone(), end: appended.last_offset.plus(1), sync_to: appended.sync_to };
        committing.is_pending().then_some(committing)
    }

    /// Whether there is still something to wait for.
    pub(super) fn is_pending(&self) -> bool {
        self.sync_to.is_some_and(|to| self.log.synced() < to) || !self.is_committed()
    }

    fn is_committed(&self) -> bool {
        self.log.watermarks().high_watermark >= self.end
    }

    /// Waits until they are committed, and synced where that is asked for.
    pub async fn wait(self) -> Result<(), ErrorCode> {
        if let Some(to) = self.sync_to {
            let log = self.log.clone();
            let synced = tokio::task::spawn_blocking(move || log.sync_to(to)).await;
            if !matches!(synced, Ok(Ok(()))) {
                return Err(ErrorCode::NotCoordinator);
            }
        }
        let waiter = Waiter::new();
        let _registration = self.log.watch().register(&waiter);
        while !self.is_committed() {
            if self.log.is_deleted() {
                return Err(ErrorCode::NotCoordinator);
            }
            waiter.wait().await;
        }
        Ok(())
    }
}

/// A request whose answer may come later.
#[derive(Debug)]
pub struct Waiting<R = Reply>(pub oneshot::Receiver<Outcome<R>>);
