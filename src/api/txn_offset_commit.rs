//! TxnOffsetCommit (key 28), versions 0 to 5.
//!
//! - Commits a group's offsets in a producer's transaction: they count once it commits. Until then OffsetFetch says UNSTABLE_OFFSET_COMMIT to
//!   consumers that want stable offsets (KIP-447).
//! - The group's partition of `__consumer_offsets` must be in the transaction: by AddOffsetsToTxn, or from version 5 on by this request.
//! - Version 2 has leader epochs, 3 is flexible and names the member and its generation, which fence as in OffsetCommit. Versions 0 and 1
//!   hear COORDINATOR_NOT_AVAILABLE instead of COORDINATOR_LOAD_IN_PROGRESS; 4 brought TRANSACTION_ABORTABLE.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::first_error,
    coordinated::{identity, when_committed},
    transactional::{Supports, Word, ask, producer, transactional_id},
};
use crate::{
    codec::shape::{I16, I32, I64, Kind, Shape, TEXT, always, since},
    coordinator::Outcome,
    group::{Commit, CommitPartition, Decision},
    log::{AppendError, Proof},
    net::{Answer, Refusal},
    types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerIdAndEpoch, TopicId, TopicPartition},
};
use kafka_protocol::messages::{
    TxnOffsetCommitRequest, TxnOffsetCommitResponse,
    txn_offset_commit_response::{TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic},
};
use std::sync::{Arc, atomic::Ordering};

pub const API: Api = Api {
    key: 28,
    name: "TxnOffsetCommit",
    versions: 0..=5,
    advertised_min: 0,
    flexible_since: 3,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(TEXT),
        always(TEXT),
        always(I64),
        always(I16),
        since(3, I32),
        since(3, TEXT),
        since(3, TEXT),
        always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), always(I64), since(2, I32), always(TEXT)]))])),
    ])),
    run,
    note: "both flows",
};

/// A commit, and what is known of its topics.
struct Asked {
    request: TxnOffsetCommitRequest,
    producer: ProducerIdAndEpoch,
    commit: Commit,
    /// Whether each partition of the request is there, in its order.
    known: Vec<bool>,
    ids: Vec<TopicId>,
}

type Reply = Result<Vec<ErrorCode>, ErrorCode>;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked = Asked::of(context, request.decode()?);
    if asked.commit.partitions.is_empty() {
        let none = Ok(Outcome { reply: Ok(Vec::new()), committing: None });
        return when_committed(request, none, move |request, reply| asked.respond(request, reply));
    }
    let (proof, committing) = match verify(context, &asked, request.version()) {
        Ok(verified) => verified,
        Err(error) => {
            return when_committed(request, Err(error), move |request, reply: Result<Reply, _>| asked.respond(request, reply));
        }
    };
    let Some(committing) = committing else {
        let outcome = commit(context, &asked, proof);
        return when_committed(request, outcome, move |request, reply| asked.respond(request, reply));
    };
    let context = context.clone();
    Ok(Answer::Acting(Box::pin(async move {
        let reply = match committing.wait().await.and_then(|()| commit(&context, &asked, proof)) {
            Ok(Outcome { reply, committing: Some(committing) }) => committing.wait().await.map(|()| reply),
            Ok(Outcome { reply, committing: None }) => Ok(reply),
            Err(error) => Err(error),
        };
        let (response, error) = asked.respond(&request, reply);
        request.reply(&response, error)
    })))
}

/// Whether the group's partition is in the transaction, and what shows it to the log.
fn verify(context: &Context, asked: &Asked, version: i16) -> Result<(Proof, Option<crate::coordinator::Committing>), ErrorCode> {
    let group = &asked.commit.from.group;
    if group.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let supports = Supports::of_txn_offset_commit(version);
    if !supports.bumps_epochs() && !context.verifies_transactions.load(Ordering::Relaxed) {
        return Ok((Proof::Unchecked, None));
    }
    let log = context.groups.log_of(group)?;
    let ProducerIdAndEpoch { id, epoch } = asked.producer;
    let begun = log.begin_verification(context.now(), id, epoch, -1, supports.bumps_epochs());
    let Some(guard) = begun.map_err(|error: AppendError| ErrorCode::from(&error))? else { return Ok((Proof::Missing, None)) };
    let partitions = vec![log.topic().clone()];
    let Word { errors, committing } = ask(context, transactional_id(&asked.request.transactional_id), asked.producer, partitions, supports);
    match errors.first().copied().unwrap_or_default() {
        ErrorCode::None => Ok((Proof::Guarded(guard), committing)),
        error => Err(error),
    }
}

fn commit(context: &Context, asked: &Asked, proof: Proof) -> Result<Outcome<Reply>, ErrorCode> {
    context.groups.decide_in_transaction(&asked.commit.from.group, asked.producer, proof, |groups, now| {
        // A topic that was deleted meanwhile has had its offsets forgotten: this commit would stay, and pass for the next topic's.
        let image = context.image();
        match asked.ids.iter().all(|id| image.topic_by_id(*id).is_some()) {
            true => groups.decide_commit_in_transaction(now, &asked.commit),
            false => Decision::only(Err(ErrorCode::UnknownTopicOrPartition)),
        }
    })
}

impl Asked {
    fn of(context: &Context, request: TxnOffsetCommitRequest) -> Self {
        let image = context.image();
        let mut partitions = Vec::new();
        let mut known = Vec::new();
        for topic in &request.topics {
            let found = image.topic(&topic.name);
            for partition in &topic.partitions {
                let index = PartitionIndex(partition.partition_index);
                let there = found.filter(|topic| topic.partition(index).is_some());
                known.push(there.is_some());
                partitions.extend(there.map(|topic| CommitPartition {
                    partition: TopicPartition { topic: topic.name.clone(), partition: index },
                    offset: Offset(partition.committed_offset),
                    leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
                    metadata: partition.committed_metadata.as_deref().unwrap_or_default().into(),
                }));
            }
        }
        let ids = request.topics.iter().filter_map(|topic| image.topic(&topic.name)).map(|topic| topic.id).collect();
        let from = identity(&request.group_id, &request.member_id, request.group_instance_id.as_ref(), request.generation_id);
        let commit = Commit { from, retention_ms: -1, tells_missing_group: false, partitions };
        let producer = producer(request.producer_id, request.producer_epoch);
        Self { request, producer, commit, known, ids }
    }

    fn respond(&self, request: &Request, reply: Result<Reply, ErrorCode>) -> (TxnOffsetCommitResponse, ErrorCode) {
        let (decided, all) = match reply.and_then(|reply| reply) {
            Ok(decided) => (decided, None),
            Err(ErrorCode::CoordinatorLoadInProgress) if request.version() < 2 => (Vec::new(), Some(ErrorCode::CoordinatorNotAvailable)),
            Err(error) => (Vec::new(), Some(error)),
        };
        let (mut decided, mut known) = (decided.into_iter(), self.known.iter());
        let mut answer = |index: i32| {
            let error = match known.next() {
                Some(true) => all.or_else(|| decided.next()).unwrap_or_default(),
                _ => ErrorCode::UnknownTopicOrPartition,
            };
            TxnOffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(error.code())
        };
        let mut topics = Vec::with_capacity(self.request.topics.len());
        for topic in &self.request.topics {
            let partitions = topic.partitions.iter().map(|p| answer(p.partition_index)).collect();
            topics.push(TxnOffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions));
        }
        let error = first_error(topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code));
        (TxnOffsetCommitResponse::default().with_topics(topics), error)
    }
}
