//! Heartbeat (key 12), versions 0 to 4.
//!
//! - A member lives; it hears of rebalances by REBALANCE_IN_PROGRESS. Version 3 has static members, 4 is flexible.
//! - An answer that would say nothing is held back, so that the member hears of a rebalance at once and not with its next heartbeat; see
//!   [`crate::group`]'s `beats` for how long, and [`may_be_held`] for whose.
//! - While its group is being loaded it is told that all is well, as in Kafka: its session begins when that is done.

use super::{
    Api, Body, Context, FrameMax, Request,
    coordinated::{check_group, identity, when_committed, when_held},
};
use crate::{
    codec::shape::{I32, Shape, TEXT, always, since},
    group::{Identity, Reply},
    net::{Answer, Refusal, Software},
    types::ErrorCode,
};
use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
use std::sync::Arc;

pub const API: Api = Api {
    key: 12,
    name: "Heartbeat",
    versions: 0..=4,
    advertised_min: 0,
    flexible_since: 4,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(TEXT), always(I32), always(TEXT), since(3, TEXT)])),
    run,
    note: "an answer waits for news, for clients that bear it",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: HeartbeatRequest = request.decode()?;
    let from = identity(&asked.group_id, &asked.member_id, asked.group_instance_id.as_ref(), asked.generation_id);
    let checked = check_group(&asked.group_id);
    if checked.is_ok() && request.connection.software.get().is_some_and(|software| may_be_held(software, &from)) {
        let waiting = context.groups.decide_held(&from.group, |groups, now, ticket| groups.decide_held_heartbeat(now, &from, ticket));
        return when_held(context, request, waiting, |_, reply| {
            respond(reply.and_then(|reply| match reply {
                Reply::Alive(error) => Ok(error),
                Reply::Join(_) | Reply::Sync(_) | Reply::Heartbeat(_) => Err(ErrorCode::UnknownServerError),
            }))
        });
    }
    let outcome = checked.and_then(|()| context.groups.decide(&asked.group_id, |groups, now| groups.decide_heartbeat(now, &from)));
    when_committed(request, outcome, |_, reply| respond(reply))
}

fn respond(reply: Result<ErrorCode, ErrorCode>) -> (HeartbeatResponse, ErrorCode) {
    let error = match reply {
        Ok(error) => error,
        Err(ErrorCode::CoordinatorLoadInProgress) => ErrorCode::None,
        Err(error) => error,
    };
    (HeartbeatResponse::default().with_error_code(error.code()), error)
}

/// Whether a client does nothing else later because it waits for the answer to a heartbeat.
///
/// - Java's sends heartbeats from a thread of its own, whose closing doesn't wait for answers, and the next one in its time whether there was an
///   answer or not; it waits `request.timeout.ms`. Closing then waits for all that its connection to the coordinator has under way, and its
///   LeaveGroup lets this go, or a commit; but a static member sends none. Nor does a dynamic one that is closed with `REMAIN_IN_GROUP`
///   (KIP-1092), which nothing tells before: where it commits nothing either, its closing waits for the hold.
/// - librdkafka's sends them from its main loop, which goes on meanwhile; it waits for the session timeout. Its connection to the coordinator is
///   for that alone. What is built on it says so in its version, or is Confluent's.
///
/// Of others: franz-go hears of a change of its subscription, and commits a transaction, in the loop that waits for the answer; kafkajs sends
/// heartbeats from the loop that hands out records; sarama's closing waits for the answer, and its fetches may stand behind it.
fn may_be_held(software: &Software, from: &Identity) -> bool {
    let Software { name, version } = software;
    match &**name {
        "apache-kafka-java" => from.instance_id.is_none(),
        "librdkafka" => true,
        name => name.starts_with("confluent-kafka-") || version.contains("librdkafka"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Generation;

    #[test]
    fn only_clients_that_bear_it_are_held() {
        let held = |name: &str, version: &str, instance: Option<&str>| {
            let from =
                Identity { group: "g".into(), member_id: "m".into(), instance_id: instance.map(Into::into), generation: Generation(1) };
            may_be_held(&Software::new(name, version), &from)
        };
        assert!(held("apache-kafka-java", "4.4.0", None) && !held("apache-kafka-java", "4.4.0", Some("i")));
        assert!(held("librdkafka", "2.8.0", None) && held("librdkafka", "2.8.0", Some("i")));
        assert!(held("confluent-kafka-python", "2.8.0-librdkafka-2.8.0", None) && held("confluent-kafka-go", "2.8.0", None));
        assert!(held("karafka", "v2.4.0-rdkafka-ruby-v0.17.0-librdkafka-v2.4.0", None));
        for (name, version) in
            [("kgo", "v1.22.3"), ("sarama", "1.46.3"), ("aiokafka", "0.12"), ("kafka-python", "2.3.0"), ("unknown", "unknown")]
        {
            assert!(!held(name, version, None), "{name}");
        }
    }
}
