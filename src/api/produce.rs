//! Produce (key 0), versions 3 to 13; advertised from 0, since older clients look for it (KAFKA-18659).
//!
//! - One record batch of magic 2 a partition, stored as the bytes that came. acks 0 (no answer; a failure closes the connection), 1 and −1.
//! - Version 7 allows zstd, 8 answers with the records to blame (KIP-467), 9 is flexible, 10 names the current leader (KIP-951),
//!   13 names topics by id (KIP-516).
//! - The answer waits for a sync where `flush.messages` asks for one; the next request of the connection is appended meanwhile.
//! - Transactional batches need a transaction that the coordinator knows of, see [`transaction`]. From version 12 on a partition joins it by
//!   being produced to (KIP-890), once the markers of the last one are written; 11 brought TRANSACTION_ABORTABLE.

mod transaction;

use super::{Api, Body, Context, FrameMax, Request};
use crate::{
    codec::{
        Reply,
        produce::{ProducePartition, ProduceRequest, ProduceTopic},
    },
    log::{
        AppendError, Appended, PartitionLog, RecordError,
        validate::{Origin, split_one_batch},
        watch::Waiter,
    },
    net::{Answer, Refusal},
    types::{ErrorCode, Offset, TopicId},
};
use bytes::Bytes;
use kafka_protocol::{
    messages::{
        ProduceResponse, TopicName,
        produce_response::{BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse},
    },
    protocol::StrBytes,
};
use std::sync::Arc;
use transaction::{Place, Transaction};

pub const API: Api = Api {
    key: 0,
    name: "Produce",
    versions: 3..=13,
    advertised_min: 0,
    flexible_since: 9,
    frame_max: FrameMax::Records,
    body: Body::ByHand,
    run,
    note: "acks 0, 1 and all; every codec; idempotent and transactional producers; advertised from 0 as Kafka does",
};

/// The first version whose topics have ids and no names.
const IDS_FROM: i16 = 13;

/// What an append left to wait for.
struct Sync {
    log: Arc<PartitionLog>,
    to: Offset,
    topic: usize,
    partition: usize,
}

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked = ProduceRequest::decode(request.body.clone(), request.version())?;
    let acks = asked.acks;
    let transaction = Transaction::of(context, &asked, request.version());
    if transaction.waits() {
        let context = context.clone();
        return Ok(Answer::Acting(Box::pin(async move {
            let transaction = transaction.settled(&context, &asked, request.version()).await;
            let (response, syncs) = append(&context, &request, asked, transaction)?;
            answer(&request, acks, &synced(response, syncs).await)
        })));
    }
    let (response, syncs) = append(context, &request, asked, transaction)?;
    if syncs.is_empty() {
        return answer(&request, acks, &response).map(Answer::Ready);
    }
    Ok(Answer::Later(Box::pin(async move {
        let response = synced(response, syncs).await;
        answer(&request, acks, &response)
    })))
}

fn append(
    context: &Context,
    request: &Request,
    asked: ProduceRequest,
    mut transaction: Transaction,
) -> Result<(ProduceResponse, Vec<Sync>), Refusal> {
    let mut syncs = Vec::new();
    let mut topics = Vec::with_capacity(asked.topics.len());
    for (place, topic) in asked.topics.into_iter().enumerate() {
        topics.push(append_topic(context, request, asked.acks, topic, place, &mut transaction, &mut syncs)?);
    }
    Ok((ProduceResponse::default().with_responses(topics), syncs))
}

fn append_topic(
    context: &Context,
    request: &Request,
    acks: i16,
    topic: ProduceTopic,
    place: usize,
    transaction: &mut Transaction,
    syncs: &mut Vec<Sync>,
) -> Result<TopicProduceResponse, Refusal> {
    let name = StrBytes::from_utf8(topic.name.clone()).map_err(|_| crate::codec::Malformed::NotUtf8)?;
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    for asked in topic.partitions {
        let index = asked.index.0;
        let taken = take(context, request, acks, &name, topic.id, asked, (place, partitions.len()), transaction);
        let answered = taken.map(|(log, appended)| {
            if let Some(to) = appended.sync_to {
                syncs.push(Sync { log, to, topic: place, partition: partitions.len() });
            }
            appended
        });
        partitions.push(match answered {
            Ok(appended) => partition_answer(index, &appended),
            Err(failure) => failed(index, &failure),
        });
    }
    Ok(TopicProduceResponse::default().with_name(TopicName(name)).with_topic_id(topic.id.0).with_partition_responses(partitions))
}

/// Appends what is for one partition. What is looked at when is Kafka's order: whether there is such a partition, what its records are, the
/// transaction, acks, and then the partition itself (`KafkaApis.handleProduceRequest`, `ReplicaManager.handleProduceAppend`).
#[expect(clippy::too_many_arguments, reason = "one partition and all that its request says")]
fn take(
    context: &Context,
    request: &Request,
    acks: i16,
    name: &str,
    id: TopicId,
    asked: ProducePartition,
    place: Place,
    transaction: &mut Transaction,
) -> Result<(Arc<PartitionLog>, Appended), Failure> {
    if let Some(code) = transaction.refused() {
        return Err(Failure::Code(code));
    }
    if request.version() >= IDS_FROM && id.is_zero() {
        return Err(Failure::Code(ErrorCode::UnknownTopicId));
    }
    let log = context.leader_log(name, id, asked.index).map_err(Failure::Code)?;
    let batch = split_one_batch(&asked.records.unwrap_or_default(), request.version()).map_err(Failure::Records)?;
    let origin = transaction.origin(place)?;
    if !(-1..=1).contains(&acks) {
        return Err(Failure::Code(ErrorCode::InvalidRequiredAcks));
    }
    let appended = append_partition(context, &log, batch, origin)?;
    Ok((log, appended))
}

/// Why a partition's records were not taken.
enum Failure {
    Code(ErrorCode),
    /// The coordinator doesn't have the partition in the transaction, or can't say.
    Transaction {
        code: ErrorCode,
        message: String,
    },
    /// The request's records aren't what every partition wants.
    Records(AppendError),
    /// This partition's log refused them; it begins at `log_start`.
    Append {
        error: AppendError,
        log_start: Offset,
    },
}

impl Failure {
    fn of(error: AppendError, log: &PartitionLog) -> Self {
        Self::Append { error, log_start: log.watermarks().log_start }
    }

    /// The log start that the client is told, which shows it whether its records expired or its state was lost (KAFKA-5793).
    /// Kafka knows it only once it has looked into a sound batch (`ReplicaManager.appendToLocalLog`).
    fn log_start(&self) -> Offset {
        use AppendError::{Corrupt, Io, LargerThanSegment, NoRoom, Offline, TooLarge, UnsupportedMagic};
        match self {
            Self::Append {
                error: Corrupt(_) | UnsupportedMagic(_) | TooLarge { .. } | LargerThanSegment { .. } | Offline(_) | NoRoom(_) | Io(_),
                ..
            } => Offset(-1),
            Self::Append { log_start, .. } => *log_start,
            Self::Code(_) | Self::Transaction { .. } | Self::Records(_) => Offset(-1),
        }
    }
}

fn append_partition(context: &Context, log: &PartitionLog, batch: Bytes, origin: Origin) -> Result<Appended, Failure> {
    if log.topic().topic.is_internal() {
        return Err(Failure::Code(ErrorCode::InvalidTopicException));
    }
    // The sole replica is in sync, and min.insync.replicas asks for no more than there are (`Partition.effectiveMinIsr`).
    log.append(context.now(), batch, origin).map_err(|error| Failure::of(error, log))
}

fn partition_answer(index: i32, appended: &Appended) -> PartitionProduceResponse {
    PartitionProduceResponse::default()
        .with_index(index)
        .with_base_offset(appended.base_offset.0)
        .with_log_append_time_ms(appended.log_append_time.0)
        .with_log_start_offset(appended.log_start.0)
}

fn failed(index: i32, failure: &Failure) -> PartitionProduceResponse {
    let refused = PartitionProduceResponse::default()
        .with_index(index)
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(failure.log_start().0);
    match failure {
        Failure::Code(code) => refused.with_error_code(code.code()),
        Failure::Transaction { code, message } => {
            refused.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(message.clone())))
        }
        Failure::Records(error) | Failure::Append { error, .. } => refused
            .with_error_code(ErrorCode::from(error).code())
            .with_error_message(Some(StrBytes::from_string(error.to_string())))
            .with_record_errors(blamed(error)),
    }
}

fn blamed(error: &AppendError) -> Vec<BatchIndexAndErrorMessage> {
    let records: &[RecordError] = match error {
        AppendError::InvalidRecord { records, .. } | AppendError::InvalidTimestamp { records, .. } => records,
        _ => &[],
    };
    let blame = |r: &RecordError| {
        let message = r.message.clone().map(StrBytes::from_string);
        BatchIndexAndErrorMessage::default().with_batch_index(r.batch_index).with_batch_index_error_message(message)
    };
    records.iter().map(blame).collect()
}

/// Waits until all that was appended is on disk; a partition whose sync failed answers with an error instead.
async fn synced(mut response: ProduceResponse, syncs: Vec<Sync>) -> ProduceResponse {
    let waiter = Waiter::new();
    let mut waits = Vec::with_capacity(syncs.len());
    for sync in &syncs {
        let (wait, run) = sync.log.ask_sync(sync.to, &waiter);
        if let Some(run) = run {
            tokio::task::spawn_blocking(move || run.run());
        }
        waits.push(wait);
    }
    for (Sync { log, topic, partition, .. }, wait) in syncs.into_iter().zip(waits) {
        let outcome = loop {
            match wait.outcome() {
                Some(outcome) => break outcome,
                None => waiter.wait().await,
            }
        };
        let Err(error) = outcome else { continue };
        let failure = Failure::of(error, &log);
        let answered = response.responses.get_mut(topic).and_then(|t| t.partition_responses.get_mut(partition));
        if let Some(answered) = answered {
            *answered = failed(answered.index, &failure);
        }
    }
    response
}

fn answer(request: &Request, acks: i16, response: &ProduceResponse) -> Result<Reply, Refusal> {
    let codes = response.responses.iter().flat_map(|topic| &topic.partition_responses).map(|p| p.error_code);
    let error = codes.filter(|code| *code != 0).find_map(ErrorCode::from_code).unwrap_or_default();
    match acks {
        0 if error.is_error() => Err(Refusal::Unacknowledged(error)),
        0 => Ok(Reply::nothing()),
        _ => request.reply(response, error),
    }
}
