//! What the group APIs share: names from the wire, and answers that wait for a commit or for other members.

use super::{Context, Request};
use crate::{
    cluster::GROUP_VERSION,
    codec,
    coordinator::{Held, Outcome, Waiting},
    group::{Generation, Identity, InstanceId, MemberId, Reply},
    net::{Answer, Hold, Refusal},
    types::ErrorCode,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
};
use tokio::sync::oneshot;

/// A copy, which doesn't hold on to the frame.
pub(super) fn name(text: &StrBytes) -> Arc<str> {
    text.as_str().into()
}

pub(super) fn optional(text: Option<&StrBytes>) -> Option<Arc<str>> {
    text.map(name)
}

pub(super) fn wire(text: &Arc<str>) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

pub(super) fn wire_optional(text: Option<&Arc<str>>) -> Option<StrBytes> {
    text.map(wire)
}

pub(super) fn identity(group: &StrBytes, member: &StrBytes, instance: Option<&StrBytes>, generation: i32) -> Identity {
    let (member_id, instance_id): (MemberId, Option<InstanceId>) = (name(member), optional(instance));
    Identity { group: name(group), member_id, instance_id, generation: Generation(generation) }
}

/// Whether groups may use the protocol of KIP-848 (`isConsumerGroupProtocolEnabled`).
pub(super) fn has_consumer_groups(context: &Context) -> bool {
    context.config.group_consumer.enabled && context.image().features.of(&GROUP_VERSION) > 0
}

/// A group must have a name in all requests of members (`isGroupIdNotEmpty`).
pub(super) fn check_group(group: &StrBytes) -> Result<(), ErrorCode> {
    if group.is_empty() { Err(ErrorCode::InvalidGroupId) } else { Ok(()) }
}

/// Answers once the records of a decision are committed. `respond` makes the response and names the error for metrics.
pub(super) fn when_committed<R, T>(
    request: Request,
    outcome: Result<Outcome<R>, ErrorCode>,
    respond: impl FnOnce(&Request, Result<R, ErrorCode>) -> (T, ErrorCode) + Send + 'static,
) -> Result<Answer, Refusal>
where
    R: Send + 'static,
    T: Encodable,
{
    let reply = match outcome {
        Ok(Outcome { reply, committing: Some(committing) }) => {
            return Ok(Answer::Later(Box::pin(async move {
                let (response, error) = respond(&request, committing.wait().await.map(|()| reply));
                request.reply(&response, error)
            })));
        }
        Ok(Outcome { reply, committing: None }) => Ok(reply),
        Err(error) => Err(error),
    };
    let (response, error) = respond(&request, reply);
    request.ready(&response, error)
}

/// The same where deciding may block on the disk.
pub(super) fn when_committed_on_disk_thread<R, T>(
    context: &Arc<Context>,
    request: Request,
    decide: impl FnOnce(&Context) -> Result<Outcome<R>, ErrorCode> + Send + 'static,
    respond: impl FnOnce(&Request, Result<R, ErrorCode>) -> (T, ErrorCode) + Send + 'static,
) -> Result<Answer, Refusal>
where
    R: Send + 'static,
    T: Encodable,
{
    let context = context.clone();
    Ok(Answer::Acting(Box::pin(async move {
        let decided = tokio::task::spawn_blocking(move || decide(&context)).await;
        let outcome = decided.map_err(|error| codec::reply::EncodeError::from(&io::Error::other(error)))?;
        let reply = match outcome {
            Ok(Outcome { reply, committing: Some(committing) }) => committing.wait().await.map(|()| reply),
            Ok(Outcome { reply, committing: None }) => Ok(reply),
            Err(error) => Err(error),
        };
        let (response, error) = respond(&request, reply);
        request.reply(&response, error)
    })))
}

/// Answers once the group does, or at once if it already has. When the broker stops, whoever waits is sent to look for the coordinator.
pub(super) fn when_answered<T: Encodable>(
    context: &Arc<Context>,
    request: Request,
    waiting: Result<Waiting, ErrorCode>,
    respond: impl FnOnce(&Request, Result<Reply, ErrorCode>) -> (T, ErrorCode) + Send + 'static,
) -> Result<Answer, Refusal> {
    let mut receiver = match waiting {
        Ok(Waiting(receiver)) => receiver,
        Err(error) => return when_committed(request, Err(error), respond),
    };
    match receiver.try_recv() {
        Ok(outcome) => when_committed(request, Ok(outcome), respond),
        Err(_) => Ok(Answer::Parked(later(context, request, receiver, respond))),
    }
}

/// The same for an answer that nobody may wait for; see [`Answer::Held`].
pub(super) fn when_held<T: Encodable>(
    context: &Arc<Context>,
    request: Request,
    waiting: Result<(Waiting, Held), ErrorCode>,
    respond: impl FnOnce(&Request, Result<Reply, ErrorCode>) -> (T, ErrorCode) + Send + 'static,
) -> Result<Answer, Refusal> {
    let (mut receiver, held) = match waiting {
        Ok((Waiting(receiver), held)) => (receiver, held),
        Err(error) => return when_committed(request, Err(error), respond),
    };
    let answered = held.answered();
    if let Ok(outcome) = receiver.try_recv() {
        answered.store(true, Ordering::Release);
        return when_committed(request, Ok(outcome), respond);
    }
    let answer = later(context, request, receiver, move |request, reply| {
        answered.store(true, Ordering::Release);
        respond(request, reply)
    });
    Ok(Answer::Held(answer, Box::new(Holding(held))))
}

struct Holding(Held);

impl Hold for Holding {
    fn interrupt(self: Box<Self>) {
        self.0.interrupt();
    }
}

fn later<T: Encodable>(
    context: &Arc<Context>,
    request: Request,
    receiver: oneshot::Receiver<Outcome<Reply>>,
    respond: impl FnOnce(&Request, Result<Reply, ErrorCode>) -> (T, ErrorCode) + Send + 'static,
) -> Pin<Box<dyn Future<Output = Result<codec::Reply, Refusal>> + Send>> {
    // It may wait for minutes: it must not hold the frame meanwhile.
    let request = request.without_frame();
    let mut stopping = context.stopping.clone();
    Box::pin(async move {
        let outcome = tokio::select! {
            outcome = receiver => outcome.map_err(|_| ErrorCode::NotCoordinator),
            _ = stopping.wait_for(|stopping| *stopping) => Err(ErrorCode::NotCoordinator),
        };
        let reply = match outcome {
            Ok(Outcome { reply, committing: Some(committing) }) => committing.wait().await.map(|()| reply),
            Ok(Outcome { reply, committing: None }) => Ok(reply),
            Err(error) => Err(error),
        };
        let (response, error) = respond(&request, reply);
        request.reply(&response, error)
    })
}
