//! The ends of transactions: once the record that decides one is committed, its markers go to every partition of it, again and again until all
//! are there; then the completion is recorded. What is quick is done at once by who decided; the rest is done in the background.
#![allow(clippy::disallowed_methods, reason = "a shell: it sleeps before it tries again")]

use super::{
    super::{outcome::Committing, shard::Shard},
    markers::{Marker, MarkerOutcome, MarkerWriter},
};
use crate::{
    group::Now,
    txn::{Ending, Transactions},
    types::{ErrorCode, TopicPartition},
};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, watch};

/// Markers that whoever ends the transaction writes itself; more are left to the background.
const MARKERS_AT_ONCE_MAX: usize = 32;
/// Before markers are tried again that could not be written.
const RETRY: Duration = Duration::from_millis(100);

/// A transaction that is ending.
struct Job {
    shard: Arc<Shard<Transactions>>,
    ending: Ending,
    /// The record that decided it, if that isn't committed yet.
    decided: Option<Committing>,
    /// Partitions without a marker yet.
    left: Vec<TopicPartition>,
    /// Markers that are written but not committed yet.
    committing: Vec<Committing>,
    /// It was told that markers can't be written.
    warned: bool,
}

/// The transactions that are ending.
pub(super) struct Endings {
    markers: Arc<dyn MarkerWriter>,
    queue: Mutex<Vec<Job>>,
    pushed: Notify,
}

impl Endings {
    pub fn new(markers: Arc<dyn MarkerWriter>) -> Self {
        Self { markers, queue: Mutex::default(), pushed: Notify::new() }
    }

    /// Ends a transaction in the background.
    pub fn push(&self, shard: &Arc<Shard<Transactions>>, ending: Ending, decided: Option<Committing>) {
        self.requeue(Job::new(shard, ending, decided));
    }

    fn requeue(&self, job: Job) {
        self.queue.lock().push(job);
        self.pushed.notify_one();
    }

    /// Ends a transaction: at once if nothing has to be waited for.
    pub fn begin(&self, shard: &Arc<Shard<Transactions>>, ending: Ending, decided: Option<Committing>, now: impl Fn() -> Now) {
        let mut job = Job::new(shard, ending, decided);
        if job.decided.is_none() && job.left.len() <= MARKERS_AT_ONCE_MAX {
            job.write_markers(&*self.markers);
            if job.is_written() && job.complete(now()).is_ok() {
                return;
            }
        }
        self.requeue(job);
    }

    /// Works on what is queued until the broker stops; what is unfinished then is found by the next start.
    pub async fn run(&self, mut stopping: watch::Receiver<bool>, now: impl Fn() -> Now) {
        loop {
            tokio::select! {
                () = self.pushed.notified() => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
            let jobs = std::mem::take(&mut *self.queue.lock());
            let again = tokio::select! {
                again = self.work(jobs, &now) => again,
                _ = stopping.wait_for(|stopping| *stopping) => return,
            };
            if again.is_empty() {
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
            again.into_iter().for_each(|job| self.requeue(job));
        }
    }

    /// One round over some jobs: syncs are waited for together. The answer is what has to be tried again.
    async fn work(&self, mut jobs: Vec<Job>, now: &impl Fn() -> Now) -> Vec<Job> {
        let mut again = Vec::new();
        for mut job in std::mem::take(&mut jobs) {
            if job.shard.log().is_deleted() {
                continue;
            }
            // If the record can't be committed, its log takes no writes until the broker starts anew; then the log says what was decided.
            let decided = match job.decided.take() {
                Some(committing) => committing.wait().await,
                None => Ok(()),
            };
            if decided.is_ok() {
                job.write_markers(&*self.markers);
                jobs.push(job);
            }
        }
        for mut job in jobs {
            let mut lost = None;
            for committing in std::mem::take(&mut job.committing) {
                lost = committing.wait().await.err().or(lost);
            }
            // Who can say which one it was: a marker may be there twice.
            if lost.is_some() {
                job.left = job.ending.partitions.iter().cloned().collect();
            }
            if !job.is_written() || job.complete(now()).is_err() {
                again.push(job);
            }
        }
        again
    }
}

impl Job {
    fn new(shard: &Arc<Shard<Transactions>>, ending: Ending, decided: Option<Committing>) -> Self {
        let left = ending.partitions.iter().cloned().collect();
        Self { shard: shard.clone(), ending, decided, left, committing: Vec::new(), warned: false }
    }

    fn is_written(&self) -> bool {
        self.left.is_empty() && self.committing.is_empty()
    }

    fn write_markers(&mut self, markers: &dyn MarkerWriter) {
        let Ending { producer, commit, version, .. } = self.ending;
        let marker = Marker { producer, commit, coordinator_epoch: self.shard.log().latest_epoch().0, version };
        let mut failed: Option<(TopicPartition, ErrorCode)> = None;
        let committing = &mut self.committing;
        self.left.retain(|partition| match markers.write(&marker, partition) {
            MarkerOutcome::Written(pending) => {
                committing.extend(pending);
                false
            }
            MarkerOutcome::Gone => false,
            MarkerOutcome::Later(error) => {
                failed.get_or_insert((partition.clone(), error));
                true
            }
        });
        if let Some((partition, error)) = failed.filter(|_| !self.warned) {
            self.warned = true;
            tracing::warn!(
                id = super::printable(&self.ending.id), %partition, %error, left = self.left.len(),
                "can't write the marker that ends a transaction; it is tried again until it's there, and readers of committed records wait for it"
            );
        }
    }

    fn complete(&self, now: Now) -> Result<(), ErrorCode> {
        self.shard.decide(now, |transactions| transactions.decide_complete(now.wall, &self.ending).into()).map(|_| ())
    }
}
