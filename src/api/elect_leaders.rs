//! ElectLeaders (key 43), versions 0 to 2.
//!
//! - The preferred leader of a partition is this broker: ELECTION_NOT_NEEDED, or PREFERRED_LEADER_NOT_AVAILABLE (ELIGIBLE_LEADERS_NOT_AVAILABLE of
//!   an unclean election) while its data directory is out of service. Asked for all partitions, those that need no election are left out, and
//!   their topics stand there without them, as in Kafka.
//! - Version 1 has unclean elections (KIP-460) and an error for all: an unknown kind of election is INVALID_REQUEST. Version 2 is flexible.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, text, topic_name},
};
use crate::{
    cluster::{ElectError, Election, Image, Topic},
    codec::shape::{I8, I32, Kind, Shape, TEXT, always, since},
    net::{Answer, Refusal},
    types::{ErrorCode, PartitionIndex},
};
use kafka_protocol::{
    messages::{
        ElectLeadersRequest, ElectLeadersResponse, TopicName,
        elect_leaders_request::TopicPartitions,
        elect_leaders_response::{PartitionResult, ReplicaElectionResult},
    },
    protocol::StrBytes,
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 43,
    name: "ElectLeaders",
    versions: 0..=2,
    advertised_min: 0,
    flexible_since: 2,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[since(1, I8), always(Kind::Structs(&[always(TEXT), always(Kind::Array(&I32))])), always(I32)])),
    run,
    note: "preferred and unclean; there is one broker, which leads",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: ElectLeadersRequest = request.decode()?;
    let leads = |topic: &Topic, partition| context.led(topic, partition).is_ok_and(|(log, _)| log.offline_reason().is_none());
    let response = answer(&context.image(), request.version(), &asked, leads);
    let parts = response.replica_election_results.iter().flat_map(|topic| topic.partition_result.iter().map(|one| one.error_code));
    let error = first_error(std::iter::once(response.error_code).chain(parts));
    request.ready(&response, error)
}

fn answer(
    image: &Image,
    version: i16,
    asked: &ElectLeadersRequest,
    leads: impl Fn(&Topic, PartitionIndex) -> bool,
) -> ElectLeadersResponse {
    let elects = |election, name: &str, index| {
        let error = image.check_election(name, index, election, &leads);
        (error != ElectError::NotNeeded, partition_result(index, ErrorCode::from(&error), Some(text(error.to_string()))))
    };
    let of_all = |result: &dyn Fn(&TopicName, PartitionIndex) -> PartitionResult| {
        let topic = |topic: &TopicPartitions| {
            topic_result(topic.topic.clone(), topic.partitions.iter().map(|index| result(&topic.topic, PartitionIndex(*index))).collect())
        };
        asked.topic_partitions.iter().flatten().map(topic).collect::<Vec<_>>()
    };
    if asked.topic_partitions.as_ref().is_some_and(Vec::is_empty) {
        // Before the kind of election is looked at, as in Kafka.
        return ElectLeadersResponse::default();
    }
    let kind = if version < 1 { 0 } else { asked.election_type };
    let Some(election) = Election::from_wire(kind) else {
        let why = format!("Unknown election type {kind}");
        let refused = |_: &TopicName, index| partition_result(index, ErrorCode::InvalidRequest, Some(text(why.clone())));
        return ElectLeadersResponse::default()
            .with_error_code(ErrorCode::InvalidRequest.code())
            .with_replica_election_results(of_all(&refused));
    };
    let results = match &asked.topic_partitions {
        Some(_) => of_all(&|name, index| elects(election, name, index).1),
        None => {
            let needed = |topic: &Arc<Topic>| {
                let all = topic.indexed().map(|(index, _)| elects(election, topic.name.as_str(), index));
                topic_result(topic_name(&topic.name), all.filter_map(|(is_told, result)| is_told.then_some(result)).collect())
            };
            image.topics().map(needed).collect()
        }
    };
    ElectLeadersResponse::default().with_replica_election_results(results)
}

fn topic_result(name: TopicName, results: Vec<PartitionResult>) -> ReplicaElectionResult {
    ReplicaElectionResult::default().with_topic(name).with_partition_result(results)
}

fn partition_result(index: PartitionIndex, error: ErrorCode, message: Option<StrBytes>) -> PartitionResult {
    PartitionResult::default().with_partition_id(index.0).with_error_code(error.code()).with_error_message(message)
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};

    fn codes(response: &ElectLeadersResponse) -> Vec<(&str, Vec<(i32, i16)>)> {
        let of = |topic: &ReplicaElectionResult| topic.partition_result.iter().map(|one| (one.partition_id, one.error_code)).collect();
        response.replica_election_results.iter().map(|topic| (topic.topic.as_str(), of(topic))).collect()
    }

    #[test]
    fn who_leads_needs_no_election_and_who_is_gone_wins_none() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "a", 2);
        create_topic(&cluster, "b", 1);
        let leads = |topic: &Topic, index: PartitionIndex| (topic.name.as_str(), index.0) != ("a", 1);
        let asked = |name: &str, partitions: &[i32]| {
            TopicPartitions::default().with_topic(TopicName(text(name))).with_partitions(partitions.to_vec())
        };
        let some = vec![asked("a", &[0, 1, 2, 0]), asked("c", &[0])];
        for version in API.versions.clone() {
            for kind in [0, 1, 7].into_iter().take(if version < 1 { 1 } else { 3 }) {
                let ask = |topics| ElectLeadersRequest::default().with_election_type(kind).with_topic_partitions(topics);
                let (needed, lost) = (ErrorCode::ElectionNotNeeded.code(), if kind == 0 { 80 } else { 83 });
                let all = answer(&cluster.image(), version, &ask(None), leads);
                assert_eq!(answer(&cluster.image(), version, &ask(Some(vec![])), leads), ElectLeadersResponse::default());
                let of_some = answer(&cluster.image(), version, &ask(Some(some.clone())), leads);
                let unknown = ErrorCode::UnknownTopicOrPartition.code();
                if kind == 7 {
                    let refused = ErrorCode::InvalidRequest.code();
                    assert_eq!((all.error_code, codes(&all)), (refused, vec![]));
                    let each = |partitions: &[i32]| partitions.iter().map(|one| (*one, refused)).collect();
                    assert_eq!((of_some.error_code, codes(&of_some)), (refused, vec![("a", each(&[0, 1, 2, 0])), ("c", each(&[0]))]));
                } else {
                    assert_eq!(codes(&all), [("a", vec![(1, lost)]), ("b", vec![])]);
                    let a = vec![(0, needed), (1, lost), (2, unknown), (0, needed)];
                    assert_eq!(codes(&of_some), [("a", a), ("c", vec![(0, unknown)])]);
                }
                survives(&all, version);
                survives(&of_some, version);
            }
        }
    }
}
