//! Metadata (key 3), versions 0 to 13.
//!
//! - Brokers, topics, partitions and their leaders, as the image has them; addresses are those of the listener that was asked on.
//! - Null topics (in version 0: none) are all topics. A topic that isn't there is created with the broker's defaults if the client
//!   (from version 4 on) and `auto.create.topics.enable` allow it, and answered as it then is: no second request is needed. Names that
//!   can't be created answer why. Kafka's internal topics are made by their coordinators, never here.
//! - Version 10 brings topic ids; asked for by id from 12 on: in 10 and 11 an id or a null name is INVALID_REQUEST. If any id is asked
//!   for, names are left out, as in Kafka. A topic with neither is INVALID_REQUEST (Kafka fails on it with UNKNOWN_SERVER_ERROR);
//!   version 13 says that of the whole.
//! - Version 5 lists offline replicas, 7 leader epochs, 8 to 10 the operations allowed on the cluster, 8 and later those on topics.
//! - A leader without the listener is LISTENER_NOT_FOUND from version 6 on, LEADER_NOT_AVAILABLE before.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{CLUSTER_OPERATIONS, Seen, TOPIC_OPERATIONS, broker, brokers, first_error, on_disk_thread, text, topic_name},
};
use crate::{
    cluster::{AdminError, Cluster, Image, NewTopic, PartitionState, Topic},
    codec::shape::{BOOL, Field, Kind, Shape, TEXT, UUID, always, since},
    net::{Answer, Refusal},
    types::{ErrorCode, PartitionIndex, TopicId, TopicName},
};
use kafka_protocol::messages::{
    self, MetadataRequest, MetadataResponse,
    metadata_response::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

pub const API: Api = Api {
    key: 3,
    name: "Metadata",
    versions: 0..=13,
    advertised_min: 0,
    flexible_since: 9,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(Kind::Structs(&[since(10, UUID), always(TEXT)])),
        since(4, BOOL),
        Field { kind: BOOL, since: 8, until: 10 },
        since(8, BOOL),
    ])),
    run,
    note: "topics are created on first use, and usable in the same answer",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: MetadataRequest = request.decode()?;
    let image = context.image();
    let wanted = Wanted::of(&asked, request.version());
    let missing = wanted.to_create(&image, context.config.auto_create_topics_enable && asked.allow_auto_topic_creation);
    let listener = request.connection.listener.name.clone();
    if missing.is_empty() {
        let response = answer(&image, &listener, request.version(), &asked, &wanted, &Failures::new());
        let worst = worst(&response);
        return request.ready(&response, worst);
    }
    on_disk_thread(context, request, move |context, request| {
        let failures = create(&context.cluster, &missing);
        let response = answer(&context.image(), &listener, request.version(), &asked, &wanted, &failures);
        let worst = worst(&response);
        (response, worst)
    })
}

fn worst(response: &MetadataResponse) -> ErrorCode {
    first_error(response.topics.iter().map(|topic| topic.error_code).chain([response.error_code]))
}

/// Which topics a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Names(Vec<String>),
    Ids(Vec<TopicId>),
    /// Ids or null names in a version that doesn't have them, or neither.
    Invalid,
}

impl Wanted {
    fn of(asked: &MetadataRequest, version: i16) -> Self {
        let Some(topics) = &asked.topics else { return Self::All };
        if topics.is_empty() && version == 0 {
            return Self::All;
        }
        let ids: Vec<TopicId> = topics.iter().map(|topic| TopicId(topic.topic_id)).filter(|id| !id.is_zero()).collect();
        let nameless = topics.iter().any(|topic| topic.name.is_none());
        if (version < 12 || ids.is_empty()) && nameless || version < 12 && !ids.is_empty() {
            return Self::Invalid;
        }
        if !ids.is_empty() {
            return Self::Ids(once(ids));
        }
        Self::Names(once(topics.iter().filter_map(|topic| topic.name.as_ref()).map(|name| name.to_string()).collect()))
    }

    /// The names to create before the answer.
    fn to_create(&self, image: &Image, allowed: bool) -> Vec<NewTopic> {
        let Self::Names(names) = self else { return Vec::new() };
        let creatable = |name: &&String| image.topic(name).is_none() && TopicName::new(name).is_ok_and(|name| !is_coordinators(&name));
        names.iter().filter(|_| allowed).filter(creatable).map(|name| NewTopic::with_defaults(name)).collect()
    }
}

/// Topics that a coordinator creates, with configs of its own.
fn is_coordinators(name: &TopicName) -> bool {
    name.is_internal() || matches!(name.as_str(), "__share_group_state" | "__cluster_metadata")
}

/// Each value once, in the order of their first.
fn once<T: Clone + Eq + std::hash::Hash>(values: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::new();
    values.into_iter().filter(|value| seen.insert(value.clone())).collect()
}

/// Why topics could not be created, by name.
type Failures = BTreeMap<String, ErrorCode>;

fn create(cluster: &Cluster, missing: &[NewTopic]) -> Failures {
    let replies = cluster.create_topics(missing, false);
    let failure = |(topic, reply): (&NewTopic, Result<Arc<Topic>, AdminError>)| {
        let code = match reply.err()? {
            // Another request was faster: the image has it.
            AdminError::Exists(_) => return None,
            // A client asks again after this one, and the disk may have room by then.
            AdminError::Storage(why) => {
                tracing::error!(topic = topic.name, error = why, "cannot create a topic on its first use");
                ErrorCode::LeaderNotAvailable
            }
            other => ErrorCode::from(&other),
        };
        Some((topic.name.clone(), code))
    };
    missing.iter().zip(replies).filter_map(failure).collect()
}

fn answer(image: &Image, listener: &str, version: i16, asked: &MetadataRequest, wanted: &Wanted, failures: &Failures) -> MetadataResponse {
    if *wanted == Wanted::Invalid {
        let response = invalid(asked);
        return if version >= 13 { response.with_error_code(ErrorCode::InvalidRequest.code()) } else { response };
    }
    let present = |topic: &Arc<Topic>| topic_answer(image, listener, version, topic);
    let mut topics: Vec<MetadataResponseTopic> = match wanted {
        Wanted::All => image.topics().map(present).collect(),
        Wanted::Names(names) => {
            let one = |name: &String| image.topic(name).map_or_else(|| absent(name, failures), present);
            names.iter().map(one).collect()
        }
        Wanted::Ids(ids) => {
            let unknown = |id: TopicId| {
                MetadataResponseTopic::default().with_name(None).with_topic_id(id.0).with_error_code(ErrorCode::UnknownTopicId.code())
            };
            ids.iter().map(|id| image.topic_by_id(*id).map_or_else(|| unknown(*id), present)).collect()
        }
        Wanted::Invalid => Vec::new(),
    };
    if asked.include_topic_authorized_operations {
        topics.iter_mut().for_each(|topic| topic.topic_authorized_operations = TOPIC_OPERATIONS);
    }
    let mut response = MetadataResponse::default()
        .with_brokers(reachable_brokers(image, listener))
        .with_cluster_id(Some(text(&*image.cluster_id)))
        .with_controller_id(broker(image.controller_id()))
        .with_topics(topics);
    if (8..=10).contains(&version) && asked.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}

/// The whole request refused: Kafka's error answer names what was asked and no broker.
fn invalid(asked: &MetadataRequest) -> MetadataResponse {
    let one = |topic: &messages::metadata_request::MetadataRequestTopic| {
        MetadataResponseTopic::default()
            .with_name(Some(topic.name.clone().unwrap_or_default()))
            .with_topic_id(topic.topic_id)
            .with_error_code(ErrorCode::InvalidRequest.code())
    };
    MetadataResponse::default().with_controller_id(messages::BrokerId(-1)).with_topics(asked.topics.iter().flatten().map(one).collect())
}

fn absent(name: &str, failures: &Failures) -> MetadataResponseTopic {
    let known = failures.get(name).copied();
    let code = known.unwrap_or(match TopicName::new(name) {
        Ok(_) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    });
    let internal = TopicName::new(name).is_ok_and(|name| name.is_internal());
    MetadataResponseTopic::default()
        .with_name(Some(messages::TopicName(text(name))))
        .with_is_internal(internal)
        .with_error_code(code.code())
}

fn topic_answer(image: &Image, listener: &str, version: i16, topic: &Topic) -> MetadataResponseTopic {
    let partitions = topic.indexed().map(|(index, state)| partition_answer(image, listener, version, index, state)).collect();
    MetadataResponseTopic::default()
        .with_name(Some(topic_name(&topic.name)))
        .with_topic_id(topic.id.0)
        .with_is_internal(topic.name.is_internal())
        .with_partitions(partitions)
}

fn partition_answer(
    image: &Image,
    listener: &str,
    version: i16,
    index: PartitionIndex,
    state: &PartitionState,
) -> MetadataResponsePartition {
    let seen = Seen::on(image, listener, state);
    let error = match seen.error {
        ErrorCode::ListenerNotFound if version < 6 => ErrorCode::LeaderNotAvailable,
        error => error,
    };
    MetadataResponsePartition::default()
        .with_error_code(error.code())
        .with_partition_index(index.0)
        .with_leader_id(seen.leader.map_or(messages::BrokerId(-1), broker))
        .with_leader_epoch(state.leader_epoch.0)
        .with_replica_nodes(brokers(&state.replicas))
        .with_isr_nodes(brokers(&state.isr))
        .with_offline_replicas(brokers(&seen.offline))
}

/// The brokers that have the listener, with their addresses on it.
fn reachable_brokers(image: &Image, listener: &str) -> Vec<MetadataResponseBroker> {
    let one = |(id, of): (&crate::types::BrokerId, &crate::cluster::Broker)| {
        let at = of.endpoints.get(listener)?;
        Some(
            MetadataResponseBroker::default()
                .with_node_id(broker(*id))
                .with_host(text(&*at.host))
                .with_port(i32::from(at.port))
                .with_rack(of.rack.clone().map(text)),
        )
    };
    image.brokers.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};
    use kafka_protocol::messages::metadata_request::MetadataRequestTopic;

    fn named(names: &[&str]) -> MetadataRequest {
        let one = |name: &&str| MetadataRequestTopic::default().with_name(Some(messages::TopicName(text(*name))));
        MetadataRequest::default().with_topics(Some(names.iter().map(one).collect()))
    }

    fn by_id(id: TopicId) -> MetadataRequest {
        MetadataRequest::default().with_topics(Some(vec![MetadataRequestTopic::default().with_topic_id(id.0).with_name(None)]))
    }

    /// As `run` does it, on this thread.
    fn ask(cluster: &Cluster, version: i16, asked: &MetadataRequest, listener: &str) -> MetadataResponse {
        let wanted = Wanted::of(asked, version);
        let missing = wanted.to_create(&cluster.image(), asked.allow_auto_topic_creation);
        let failures = create(cluster, &missing);
        let response = answer(&cluster.image(), listener, version, asked, &wanted, &failures);
        survives(&response, version);
        response
    }

    fn told(response: &MetadataResponse) -> Vec<(String, i16, usize)> {
        let one = |topic: &MetadataResponseTopic| {
            let name = topic.name.as_ref().map_or_else(|| "null".to_owned(), |name| name.to_string());
            (name, topic.error_code, topic.partitions.len())
        };
        response.topics.iter().map(one).collect()
    }

    #[test]
    fn all_none_and_named_topics_in_every_version() {
        for version in API.versions.clone() {
            let cluster = cluster(&[]);
            create_topic(&cluster, "a", 2);
            create_topic(&cluster, "b", 1);
            let all = vec![("a".to_owned(), 0, 2), ("b".to_owned(), 0, 1)];
            let none = named(&[]);
            assert_eq!(told(&ask(&cluster, version, &none, "PLAINTEXT")), if version == 0 { all.clone() } else { vec![] });
            if version > 0 {
                assert_eq!(told(&ask(&cluster, version, &MetadataRequest::default().with_topics(None), "PLAINTEXT")), all);
            }
            let response = ask(&cluster, version, &named(&["b", "b"]), "PLAINTEXT");
            assert_eq!(told(&response), [("b".to_owned(), 0, 1)]);
            assert_eq!((response.brokers[0].host.as_str(), response.brokers[0].port, response.brokers[0].node_id.0), ("broker", 9092, 1));
            assert_eq!((response.controller_id.0, response.topics[0].partitions[0].leader_id.0), (1, 1));
        }
    }

    #[test]
    fn topics_are_created_on_first_use_where_allowed() {
        let cluster = cluster(&["num.partitions=3"]);
        let response = ask(&cluster, 9, &named(&["new", "bad name", "__consumer_offsets"]), "PLAINTEXT");
        let (invalid, unknown) = (ErrorCode::InvalidTopicException.code(), ErrorCode::UnknownTopicOrPartition.code());
        let expected = [("new".to_owned(), 0, 3), ("bad name".to_owned(), invalid, 0), ("__consumer_offsets".to_owned(), unknown, 0)];
        assert_eq!(told(&response), expected);
        assert!(response.topics[2].is_internal);
        let forbidden = named(&["other"]).with_allow_auto_topic_creation(false);
        assert_eq!(told(&ask(&cluster, 9, &forbidden, "PLAINTEXT")), [("other".to_owned(), unknown, 0)]);
        let asked = named(&["other"]);
        assert_eq!(Wanted::of(&asked, 9).to_create(&cluster.image(), false), []);
        assert_eq!(told(&ask(&cluster, 9, &named(&["new.a", "new_a"]), "PLAINTEXT"))[0].1, 0);
        assert_eq!(told(&ask(&cluster, 9, &named(&["new_a"]), "PLAINTEXT")).remove(0).1, 0, "both were asked for at once, as in Kafka");
    }

    #[test]
    fn what_cannot_be_created_says_why() {
        let cluster = cluster(&["default.replication.factor=3"]);
        let response = ask(&cluster, 9, &named(&["t"]), "PLAINTEXT");
        assert_eq!(told(&response), [("t".to_owned(), ErrorCode::InvalidReplicationFactor.code(), 0)]);
    }

    #[test]
    fn ids_are_asked_for_from_version_12_on() {
        let cluster = cluster(&[]);
        let id = create_topic(&cluster, "a", 1).id;
        let unknown = TopicId(uuid::Uuid::from_u128(9));
        for version in [12, 13] {
            let response = ask(&cluster, version, &by_id(id), "PLAINTEXT");
            assert_eq!((told(&response), response.topics[0].topic_id), (vec![("a".to_owned(), 0, 1)], id.0));
            let response = ask(&cluster, version, &by_id(unknown), "PLAINTEXT");
            assert_eq!(told(&response), [("null".to_owned(), ErrorCode::UnknownTopicId.code(), 0)]);
            let response = ask(&cluster, version, &by_id(TopicId::ZERO), "PLAINTEXT");
            assert_eq!(told(&response), [(String::new(), ErrorCode::InvalidRequest.code(), 0)]);
            assert_eq!(response.error_code, if version == 13 { ErrorCode::InvalidRequest.code() } else { 0 });
        }
        for version in [10, 11] {
            let response = ask(&cluster, version, &by_id(id), "PLAINTEXT");
            assert_eq!(told(&response), [(String::new(), ErrorCode::InvalidRequest.code(), 0)]);
        }
    }

    #[test]
    fn operations_are_told_only_where_asked() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "a", 1);
        let asked = named(&["a"]).with_include_topic_authorized_operations(true).with_include_cluster_authorized_operations(true);
        let response = ask(&cluster, 9, &asked, "PLAINTEXT");
        assert_eq!((response.topics[0].topic_authorized_operations, response.cluster_authorized_operations), (3576, 8096));
        let response = ask(&cluster, 9, &named(&["a"]), "PLAINTEXT");
        assert_eq!((response.topics[0].topic_authorized_operations, response.cluster_authorized_operations), (i32::MIN, i32::MIN));
    }

    #[test]
    fn addresses_are_those_of_the_listener() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "a", 1);
        let response = ask(&cluster, 9, &named(&["a"]), "OTHER");
        assert_eq!(response.brokers, []);
        let partition = &response.topics[0].partitions[0];
        assert_eq!((partition.error_code, partition.leader_id.0), (ErrorCode::ListenerNotFound.code(), -1));
        assert_eq!(partition.offline_replicas, [messages::BrokerId(1)]);
        let response = ask(&cluster, 5, &named(&["a"]), "OTHER");
        assert_eq!(response.topics[0].partitions[0].error_code, ErrorCode::LeaderNotAvailable.code());
    }
}
