//! AlterPartitionReassignments (key 45), versions 0 and 1.
//!
//! - Says which replicas partitions are to have (KIP-455). With one broker that is what they have, or INVALID_REPLICA_ASSIGNMENT; null replicas
//!   cancel a reassignment, and none is ever on its way: NO_REASSIGNMENT_IN_PROGRESS.
//! - Each that is asked for is answered, in its order and as often as it stands there, as in Kafka.
//! - All versions are flexible; 1 can forbid another number of replicas (KIP-860). Gap: the time limit is not looked at, nothing waits.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, text},
};
use crate::{
    cluster::{Image, ReassignError, Reassignment},
    codec::shape::{BOOL, I32, Kind, Shape, TEXT, always, since},
    net::{Answer, Refusal},
    types::{BrokerId, ErrorCode, PartitionIndex},
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic},
    alter_partition_reassignments_response::{ReassignablePartitionResponse, ReassignableTopicResponse},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 45,
    name: "AlterPartitionReassignments",
    versions: 0..=1,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(I32),
        since(1, BOOL),
        always(Kind::Structs(&[always(TEXT), always(Kind::Structs(&[always(I32), always(Kind::Array(&I32))]))])),
    ])),
    run,
    note: "to the replicas that there are: this broker",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: AlterPartitionReassignmentsRequest = request.decode()?;
    let response = answer(&context.image(), &asked);
    let error = first_error(response.responses.iter().flat_map(|topic| topic.partitions.iter().map(|one| one.error_code)));
    request.ready(&response, error)
}

fn answer(image: &Image, asked: &AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse {
    if asked.topics.is_empty() {
        // As it is made: Kafka's words for "nothing went wrong" are none at all, and the flag is what it is by default.
        return AlterPartitionReassignmentsResponse::default();
    }
    let may_resize = asked.allow_replication_factor_change;
    let partition = |topic: &ReassignableTopic, one: &ReassignablePartition| {
        let replicas = one.replicas.as_ref().map(|ids| ids.iter().map(|id| BrokerId(id.0)).collect());
        let reassignment = Reassignment { topic: &topic.name, partition: PartitionIndex(one.partition_index), replicas };
        let response = ReassignablePartitionResponse::default().with_partition_index(one.partition_index);
        match image.check_reassignment(&reassignment, may_resize) {
            Ok(()) => response.with_error_message(None),
            Err(error) => {
                // Where the code says all there is to say, Kafka has no words.
                let message = (error != ReassignError::NotInProgress).then(|| text(error.to_string()));
                response.with_error_code(ErrorCode::from(&error).code()).with_error_message(message)
            }
        }
    };
    let topic = |topic: &ReassignableTopic| {
        let partitions = topic.partitions.iter().map(|one| partition(topic, one)).collect();
        ReassignableTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions)
    };
    AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(may_resize)
        .with_error_message(None)
        .with_responses(asked.topics.iter().map(topic).collect())
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};
    use kafka_protocol::messages::{self, TopicName};

    #[test]
    fn a_partition_has_the_replicas_that_there_can_be() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "t", 2);
        let cases: &[(&str, i32, Option<&[i32]>, ErrorCode)] = &[
            ("t", 0, Some(&[1]), ErrorCode::None),
            ("t", 1, Some(&[1, 2]), ErrorCode::InvalidReplicaAssignment),
            ("t", 1, Some(&[2]), ErrorCode::InvalidReplicaAssignment),
            ("t", 1, Some(&[1, 1]), ErrorCode::InvalidReplicaAssignment),
            ("t", 1, Some(&[]), ErrorCode::InvalidReplicaAssignment),
            ("t", 0, None, ErrorCode::NoReassignmentInProgress),
            ("t", 2, Some(&[1]), ErrorCode::UnknownTopicOrPartition),
            ("t", -1, None, ErrorCode::UnknownTopicOrPartition),
            ("u", 0, Some(&[1]), ErrorCode::UnknownTopicOrPartition),
        ];
        for version in API.versions.clone() {
            for may_resize in [true, version < 1] {
                let topic = |(name, partition, replicas, _): &(&str, i32, Option<&[i32]>, ErrorCode)| {
                    let replicas = replicas.map(|ids| ids.iter().map(|id| messages::BrokerId(*id)).collect());
                    let one = ReassignablePartition::default().with_partition_index(*partition).with_replicas(replicas);
                    ReassignableTopic::default().with_name(TopicName(text(*name))).with_partitions(vec![one])
                };
                let asked = AlterPartitionReassignmentsRequest::default()
                    .with_allow_replication_factor_change(may_resize)
                    .with_topics(cases.iter().map(topic).collect());
                let response = answer(&cluster.image(), &asked);
                survives(&response, version);
                let told = response.responses.iter().map(|topic| (topic.name.as_str(), topic.partitions[0].error_code));
                assert!(told.eq(cases.iter().map(|(name, _, _, error)| (*name, error.code()))), "{response:?}");
            }
        }
    }
}
