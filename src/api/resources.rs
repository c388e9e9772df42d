//! Changes of resources' configs, as AlterConfigs and IncrementalAlterConfigs share them: the checks that Kafka's brokers make before they
//! hand a change to the controller (`ConfigAdminManager.preprocess`), and the answer for each resource in the request's order.
//!
//! Topics', groups' and brokers' configs change. Each resource is refused or changed for itself.

use super::convert::{refused, text};
use crate::{
    cluster::{AdminError, BrokerChange, Cluster, ConfigChange, GroupChange, TopicChange},
    types::{BrokerId, ErrorCode},
};
use kafka_protocol::protocol::StrBytes;
use std::collections::{HashMap, HashSet};

/// `ConfigResource.Type`.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;
pub(super) const BROKER_LOGGER: i8 = 8;
pub(super) const CLIENT_METRICS: i8 = 16;
pub(super) const GROUP: i8 = 32;

/// One resource of a request.
pub(super) struct Resource<'a> {
    pub kind: i8,
    pub name: &'a str,
    /// The configs' names, in their order.
    pub keys: Vec<&'a str>,
    /// Those that have no value though they need one.
    pub nulls: Vec<&'a str>,
    /// What to do, or which operation isn't known.
    pub change: Result<ConfigChange, i8>,
}

/// An error code and a message; 0 and none where all went well.
pub(super) type Outcome = (i16, Option<StrBytes>);

type Refusal = (ErrorCode, String);

/// Makes the changes; an outcome for each resource.
pub(super) fn alter(cluster: &Cluster, node_id: BrokerId, resources: Vec<Resource<'_>>, validate_only: bool) -> Vec<Outcome> {
    let mut times: HashMap<(i8, &str), usize> = HashMap::new();
    for resource in &resources {
        let times = times.entry((resource.kind, resource.name)).or_default();
        *times = times.saturating_add(1);
    }
    let (mut topics, mut topic_places) = (Vec::new(), Vec::new());
    let (mut groups, mut group_places) = (Vec::new(), Vec::new());
    let (mut brokers, mut broker_places) = (Vec::new(), Vec::new());
    let mut outcomes = Vec::with_capacity(resources.len());
    for (place, resource) in resources.into_iter().enumerate() {
        let is_once = times.get(&(resource.kind, resource.name)) == Some(&1);
        let checked = if is_once { check(resource, node_id) } else { invalid("Each resource must appear at most once.") };
        outcomes.push(match checked {
            Ok(Checked::Topic(change)) => {
                topics.push(change);
                topic_places.push(place);
                (0, None)
            }
            Ok(Checked::Group(change)) => {
                groups.push(change);
                group_places.push(place);
                (0, None)
            }
            Ok(Checked::Broker(change)) => {
                brokers.push(change);
                broker_places.push(place);
                (0, None)
            }
            Err((code, why)) => (code.code(), Some(text(why))),
        });
    }
    let replies = cluster.alter_topics(&topics, validate_only);
    let of_topics = topics.iter().map(|topic| &topic.name).zip(replies.into_iter().map(|reply| reply.map(drop)));
    let replies = if groups.is_empty() { Vec::new() } else { cluster.alter_groups(&groups, validate_only) };
    let of_groups = groups.iter().map(|group| &group.group).zip(replies);
    let replies = if brokers.is_empty() { Vec::new() } else { cluster.alter_brokers(&brokers, validate_only) };
    let name = String::from("a broker");
    let of_brokers = replies.into_iter().map(|reply| (&name, reply));
    let all = topic_places.into_iter().zip(of_topics).chain(group_places.into_iter().zip(of_groups));
    for (place, (name, reply)) in all.chain(broker_places.into_iter().zip(of_brokers)) {
        if let (Some(outcome), Err(error)) = (outcomes.get_mut(place), reply) {
            *outcome = outcome_of(name, &error);
        }
    }
    outcomes
}

fn outcome_of(name: &str, error: &AdminError) -> Outcome {
    if let AdminError::Storage(why) = error {
        tracing::error!(name, error = why, "cannot change the configs of a topic or group");
    }
    let (code, message) = refused(error);
    let is_unknown = *error == AdminError::UnknownTopic;
    (code, if is_unknown { Some(text(format!("The topic '{name}' does not exist."))) } else { message })
}

fn invalid<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err((ErrorCode::InvalidRequest, why.into()))
}

/// What is to change.
enum Checked {
    Topic(TopicChange),
    Group(GroupChange),
    Broker(BrokerChange),
}

fn check(resource: Resource<'_>, node_id: BrokerId) -> Result<Checked, Refusal> {
    let mut seen = HashSet::new();
    if !resource.keys.iter().all(|key| seen.insert(*key)) {
        return invalid("Error due to duplicate config keys");
    }
    if !resource.nulls.is_empty() {
        return invalid(format!("Null value not supported for : {}", shown(&resource.nulls.join(", "))));
    }
    match resource.kind {
        TOPIC => match resource.change {
            Ok(change) => Ok(Checked::Topic(TopicChange { name: resource.name.to_owned(), change })),
            Err(op) => invalid(format!("Unknown operations type {op}")),
        },
        GROUP => match resource.change {
            Ok(change) => Ok(Checked::Group(GroupChange { group: resource.name.to_owned(), change })),
            Err(op) => invalid(format!("Unknown operations type {op}")),
        },
        BROKER => {
            let broker = check_broker(resource.name, node_id)?;
            match resource.change {
                Ok(change) => Ok(Checked::Broker(BrokerChange { broker, change })),
                Err(op) => invalid(format!("Unknown operations type {op}")),
            }
        }
        BROKER_LOGGER => invalid("Log levels can't be changed while the broker runs"),
        CLIENT_METRICS => invalid(format!("Resources of type {} have no configs here", resource.kind)),
        other => invalid(format!("Unknown resource type {other}")),
    }
}

/// This broker, or by the empty name all of them (`None`).
fn check_broker(name: &str, node_id: BrokerId) -> Result<Option<BrokerId>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    match name.parse().map(BrokerId) {
        Ok(id) if id == node_id => Ok(Some(id)),
        Ok(_) => invalid(format!("Unexpected broker id, expected {node_id}, but received {}", shown(name))),
        Err(_) => invalid(format!("Node id must be an integer, but it is: {}", shown(name))),
    }
}

/// A peer's text in a message: not more of it than helps.
fn shown(name: &str) -> String {
    name.chars().take(256).collect()
}
