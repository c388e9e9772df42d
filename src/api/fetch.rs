//! Fetch (key 1), versions 4 to 18.
//!
//! - Records leave as ranges of segment files, never beyond the high watermark (the last stable offset under read_committed).
//! - `min_bytes`, `max_wait_ms`, `max_bytes` (and `fetch.max.bytes`) and each partition's limit; the first partition with records gets at
//!   least one whole batch, whatever the limits say (KIP-74).
//! - An error, a diverging epoch or an offset out of range is answered at once, without waiting.
//! - Version 7 has sessions (KIP-227), 9 leader epochs (KIP-320), 12 divergence, 13 topic ids (KIP-516), 16 the current leader (KIP-951).
//! - Requests of followers get NOT_LEADER_OR_FOLLOWER: there is one broker.

use super::{
    Api, Body, Context, FrameMax, Request,
    context::{check_epoch, find},
    fetch_session::{FetchContext, PartitionAsk, PartitionKey, PartitionOutcome, SessionRequest, ToRead, TopicRef},
};
use crate::{
    cluster::Image,
    codec::{
        Malformed, Reply,
        fetch::{self, AbortedTransaction, COPY_BYTES_MAX, Endpoint, FetchAnswer, FetchRequest, FileRange, PartitionAnswer, TopicAnswer},
    },
    lag::fetches::ClientKey,
    log::{AbortedTxn, Isolation, PartitionLog, ReadError, ReadSlice, Waiter},
    net::{Answer, Refusal},
    types::{ErrorCode, LeaderEpoch, Offset, TopicId},
};
use bytes::Bytes;
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

pub const API: Api = Api {
    key: 1,
    name: "Fetch",
    versions: 4..=18,
    advertised_min: 4,
    flexible_since: 12,
    frame_max: FrameMax::Control,
    body: Body::ByHand,
    run,
    note: "sessions, isolation levels, leader epochs; records leave by sendfile",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked = FetchRequest::decode(request.body.clone(), request.version())?;
    let max_bytes = usize::try_from(asked.max_bytes).unwrap_or(0).min(context.config.fetch_max_bytes);
    let min_bytes = usize::try_from(asked.min_bytes).unwrap_or(0).min(max_bytes);
    let follower = asked.replica_id.0 >= 0;
    let isolation = if asked.isolation_level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    let session = match resolve(context, &request, &asked, follower)? {
        Ok(session) => session,
        Err(error) => {
            let answer = FetchAnswer { error, ..FetchAnswer::default() };
            return Ok(Answer::Ready(fetch::encode(request.reply_header(), &answer, request.version())?));
        }
    };
    let client = ClientKey::new(request.header.client_id.as_deref().unwrap_or_default(), request.connection.peer.ip());
    let fetch = Fetch { context: context.clone(), request: request.without_frame(), session, isolation, follower, min_bytes, max_bytes };
    fetch.note(client);
    let read = fetch.read();
    if asked.max_wait_ms <= 0 || fetch.session.partitions.is_empty() || fetch.is_enough(&read) {
        return fetch.finish(read).map(Answer::Ready);
    }
    let wait = Duration::from_millis(asked.max_wait_ms.unsigned_abs().into());
    Ok(Answer::Parked(Box::pin(fetch.wait(wait))))
}

fn resolve(context: &Context, request: &Request, asked: &FetchRequest, follower: bool) -> Result<Result<FetchContext, ErrorCode>, Refusal> {
    let by_topic_id = request.version() >= 13;
    let topic_ref = |name: &Bytes, id: TopicId| -> Result<TopicRef, Refusal> {
        Ok(match by_topic_id {
            true => TopicRef::Id(id),
            false => TopicRef::Name(std::str::from_utf8(name).map_err(|_| Malformed::NotUtf8)?.into()),
        })
    };
    let mut partitions = Vec::new();
    for topic in &asked.topics {
        let of = topic_ref(&topic.name, topic.id)?;
        partitions.extend(topic.partitions.iter().map(|p| {
            // Any negative epoch is none (`FetchRequest.optionalEpoch`).
            let ask = PartitionAsk {
                fetch_offset: p.fetch_offset,
                log_start_offset: p.log_start_offset,
                max_bytes: p.max_bytes,
                current_leader_epoch: p.current_leader_epoch.max(LeaderEpoch::NONE),
                last_fetched_epoch: p.last_fetched_epoch.max(LeaderEpoch::NONE),
            };
            (PartitionKey { topic: of.clone(), partition: p.index }, ask)
        }));
    }
    let mut forgotten = Vec::new();
    for topic in &asked.forgotten {
        let of = topic_ref(&topic.name, topic.id)?;
        forgotten.extend(topic.partitions.iter().map(|p| PartitionKey { topic: of.clone(), partition: *p }));
    }
    let (session_id, epoch) = (asked.session_id, asked.session_epoch);
    let session = SessionRequest { session_id, epoch, by_topic_id, privileged: follower, partitions, forgotten: &forgotten };
    Ok(context.sessions.lock().resolve(context.now(), session))
}

/// A request under way.
struct Fetch {
    context: Arc<Context>,
    request: Request,
    session: FetchContext,
    isolation: Isolation,
    follower: bool,
    min_bytes: usize,
    max_bytes: usize,
}

/// A range read, and of which log.
type Sliced = (Arc<PartitionLog>, ReadSlice);

/// What one look at the logs gave, in the session's order.
#[derive(Default)]
struct Read {
    answers: Vec<PartitionAnswer>,
    /// Of the answers that have records: what to note once they're sent.
    slices: Vec<Sliced>,
    bytes: usize,
    /// An error or a diverging epoch: waiting would only delay the news.
    urgent: bool,
}

impl Fetch {
    /// Notes what is fetched, for those who ask how far behind its reader is.
    fn note(&self, client: ClientKey) {
        if self.follower || self.session.partitions.is_empty() {
            return;
        }
        let image = self.context.image();
        let asked = self.session.partitions.iter().filter_map(|asked| {
            let id = match &asked.key.topic {
                TopicRef::Id(id) => image.topic_by_id(*id)?.id,
                TopicRef::Name(name) => image.topic(name)?.id,
            };
            Some((id, asked.key.partition, asked.ask.fetch_offset))
        });
        self.context.lag.fetches.note(client, self.isolation == Isolation::ReadCommitted, self.context.now(), asked);
    }

    fn is_enough(&self, read: &Read) -> bool {
        read.urgent || read.bytes >= self.min_bytes
    }

    /// Reads every partition in order, each within what the ones before it left.
    fn read(&self) -> Read {
        let image = self.context.image();
        let mut read = Read { answers: Vec::with_capacity(self.session.partitions.len()), ..Read::default() };
        let mut left = self.max_bytes;
        let mut files_left = self.context.logs.files_an_answer_may_hold();
        for partition in &self.session.partitions {
            let at_least_one = read.bytes == 0;
            // Without a file more to hold open, what comes is little enough to be copied at once.
            let (may_hold, upto) = if files_left > 0 { (true, left) } else { (false, left.min(COPY_BYTES_MAX)) };
            let mut answer = self.read_partition(&image, partition, upto, at_least_one, &mut read.slices);
            match &mut answer.records {
                Some(_) if may_hold => files_left = files_left.saturating_sub(1),
                Some(range) => match range.held_in_memory() {
                    Ok(copied) => {
                        *range = copied;
                        if let Some((_, slice)) = read.slices.last_mut() {
                            slice.file = None;
                        }
                    }
                    // Whoever asks again meets the error where it can be told.
                    Err(_) => answer.records = None,
                },
                None => {}
            }
            read.urgent |= answer.error.is_error() || answer.diverging.is_some();
            read.bytes = read.bytes.saturating_add(answer.records_len());
            left = left.saturating_sub(answer.records_len());
            read.answers.push(answer);
        }
        read
    }

    fn read_partition(&self, image: &Image, asked: &ToRead, left: usize, at_least_one: bool, slices: &mut Vec<Sliced>) -> PartitionAnswer {
        let index = asked.key.partition;
        match self.try_read(image, asked, left, at_least_one) {
            Ok((answer, slice)) => {
                slices.extend(slice);
                answer
            }
            Err((error, leader_epoch)) => {
                let mut answer = PartitionAnswer::error(index, error);
                if matches!(error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch) && self.request.version() >= 16 {
                    answer.current_leader = Some((self.context.config.node_id, leader_epoch));
                }
                answer
            }
        }
    }

    /// On failure also the leader epoch as far as it is known.
    fn try_read(
        &self,
        image: &Image,
        asked: &ToRead,
        left: usize,
        at_least_one: bool,
    ) -> Result<(PartitionAnswer, Option<Sliced>), (ErrorCode, LeaderEpoch)> {
        let (index, ask) = (asked.key.partition, &asked.ask);
        let (log, leader_epoch) = self.log(image, asked).map_err(|e| (e, LeaderEpoch::NONE))?;
        if self.follower {
            return Err((ErrorCode::NotLeaderOrFollower, leader_epoch));
        }
        check_epoch(ask.current_leader_epoch, leader_epoch).map_err(|e| (e, leader_epoch))?;
        if let Some(diverging) = divergence(&log, ask).map_err(|e| (e, leader_epoch))? {
            let marks = log.watermarks();
            let answer = PartitionAnswer {
                diverging: Some(diverging),
                high_watermark: marks.high_watermark,
                last_stable: marks.last_stable,
                log_start: marks.log_start,
                ..PartitionAnswer::error(index, ErrorCode::None)
            };
            return Ok((answer, None));
        }
        let max_bytes = usize::try_from(ask.max_bytes).unwrap_or(0).min(left);
        let slice = log.read(ask.fetch_offset, max_bytes, at_least_one, self.isolation).map_err(|e| {
            if !matches!(e, ReadError::OutOfRange { .. }) {
                tracing::error!(partition = %log.topic(), error = %e, "cannot read");
            }
            (ErrorCode::from(&e), leader_epoch)
        })?;
        let aborted = |txn: &AbortedTxn| AbortedTransaction { producer_id: txn.producer_id, first_offset: txn.first_offset };
        let answer = PartitionAnswer {
            high_watermark: slice.watermarks.high_watermark,
            last_stable: slice.watermarks.last_stable,
            log_start: slice.watermarks.log_start,
            aborted: (self.isolation == Isolation::ReadCommitted).then(|| slice.aborted.iter().map(aborted).collect()),
            records: slice.file.clone().map(|file| FileRange { file, position: slice.position, len: slice.len }),
            ..PartitionAnswer::error(index, ErrorCode::None)
        };
        let noted = slice.file.is_some().then_some((log, slice));
        Ok((answer, noted))
    }

    fn log(&self, image: &Image, asked: &ToRead) -> Result<(Arc<PartitionLog>, LeaderEpoch), ErrorCode> {
        let topic = match &asked.key.topic {
            TopicRef::Name(name) => find(image, name, TopicId::ZERO)?,
            // An id of zero is no topic's; `find` would look for a name.
            TopicRef::Id(id) if id.is_zero() => return Err(ErrorCode::UnknownTopicId),
            TopicRef::Id(id) => find(image, "", *id)?,
        };
        self.context.led(topic, asked.key.partition)
    }

    /// Looks again whenever a partition moves, until there is enough or the time is up.
    async fn wait(self, wait: Duration) -> Result<Reply, Refusal> {
        let deadline = tokio::time::Instant::now() + wait;
        let waiter = Waiter::new();
        let image = self.context.image();
        let logs: Vec<_> = self.session.partitions.iter().filter_map(|asked| self.log(&image, asked).ok()).collect();
        drop(image);
        let _registrations: Vec<_> = logs.iter().map(|(log, _)| log.watch().register(&waiter)).collect();
        let mut stopping = self.context.stopping.clone();
        loop {
            let read = self.read();
            if self.is_enough(&read) {
                return self.finish(read);
            }
            let woken = tokio::select! {
                woken = waiter.wait_until(deadline) => woken,
                _ = stopping.wait_for(|stopping| *stopping) => false,
            };
            if !woken {
                return self.finish(self.read());
            }
        }
    }

    fn finish(&self, read: Read) -> Result<Reply, Refusal> {
        read.slices.iter().for_each(|(log, slice)| log.sent(slice));
        let outcomes: Vec<PartitionOutcome> = read.answers.iter().map(outcome).collect();
        let settled = self.context.sessions.lock().finish(self.context.now(), &self.session, &outcomes, fresh_id());
        let mut answer = FetchAnswer { error: settled.error, session_id: settled.session_id, ..FetchAnswer::default() };
        let mut last: Option<&TopicRef> = None;
        let listed = self.session.partitions.iter().zip(read.answers).zip(settled.listed);
        for ((asked, partition), _) in listed.filter(|(_, listed)| *listed) {
            if partition.current_leader.is_some() && answer.endpoints.is_empty() {
                answer.endpoints.push(self.endpoint());
            }
            if last != Some(&asked.key.topic) {
                answer.topics.push(topic_answer(&asked.key.topic));
                last = Some(&asked.key.topic);
            }
            if let Some(topic) = answer.topics.last_mut() {
                topic.partitions.push(partition);
            }
        }
        Ok(fetch::encode(self.request.reply_header(), &answer, self.request.version())?)
    }

    fn endpoint(&self) -> Endpoint {
        let listener = &self.request.connection.listener;
        Endpoint { id: self.context.config.node_id, host: listener.advertised_host.clone(), port: listener.advertised_port }
    }
}

fn topic_answer(topic: &TopicRef) -> TopicAnswer {
    let (name, id) = match topic {
        TopicRef::Name(name) => (Bytes::copy_from_slice(name.as_bytes()), TopicId::ZERO),
        TopicRef::Id(id) => (Bytes::new(), *id),
    };
    TopicAnswer { name, id, partitions: Vec::new() }
}

/// Where the reader's last epoch ends here, if it read on beyond that (KIP-320, `Partition.readRecords`).
fn divergence(log: &PartitionLog, ask: &PartitionAsk) -> Result<Option<(LeaderEpoch, Offset)>, ErrorCode> {
    if ask.last_fetched_epoch == LeaderEpoch::NONE {
        return Ok(None);
    }
    let (epoch, end) = log.epoch_end(ask.last_fetched_epoch);
    if epoch == LeaderEpoch::NONE || end.0 < 0 {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok((epoch < ask.last_fetched_epoch || end < ask.fetch_offset).then_some((epoch, end)))
}

fn outcome(answer: &PartitionAnswer) -> PartitionOutcome {
    PartitionOutcome {
        error: answer.error,
        has_records: answer.records_len() > 0,
        high_watermark: answer.high_watermark,
        log_start: answer.log_start,
        must_tell: answer.diverging.is_some(),
    }
}

/// A number that a client cannot guess another's session by; costs no system call.
fn fresh_id() -> i32 {
    (RandomState::new().build_hasher().finish() & 0x7fff_ffff) as i32
}
