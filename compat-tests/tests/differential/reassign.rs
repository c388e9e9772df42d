//! AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders, where there is one broker. What the tools make of it:
//! `tests/admin_tools`.

use anyhow::Result;
use kafka_protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use kafka_protocol::messages::{AlterPartitionReassignmentsRequest, BrokerId, ElectLeadersRequest, ListPartitionReassignmentsRequest};
use kafka_protocol::protocol::Message;

use crate::groups::coordinated;
use crate::requests::topic_name;
use crate::side::{Side, compare};

/// A topic and some of its partitions.
type Named<'a> = (&'a str, &'a [i32]);
/// A topic, and the replicas that some of its partitions are to have.
type Wanted<'a> = (&'a str, &'a [(i32, Option<&'a [i32]>)]);

fn reassign(topics: &[Wanted<'_>]) -> AlterPartitionReassignmentsRequest {
    let partition = |(index, replicas): &(i32, Option<&[i32]>)| {
        let replicas = replicas.map(|ids| ids.iter().copied().map(BrokerId).collect());
        ReassignablePartition::default().with_partition_index(*index).with_replicas(replicas)
    };
    let topic = |(name, partitions): &Wanted<'_>| {
        ReassignableTopic::default().with_name(topic_name(name)).with_partitions(partitions.iter().map(partition).collect())
    };
    AlterPartitionReassignmentsRequest::default().with_topics(topics.iter().map(topic).collect())
}

fn list(side: &mut Side, label: &str, topics: Option<&[Named<'_>]>) -> Result<()> {
    let topic = |(name, partitions): &Named<'_>| {
        ListPartitionReassignmentsTopics::default().with_name(topic_name(name)).with_partition_indexes(partitions.to_vec())
    };
    let topics = topics.map(|topics| topics.iter().map(topic).collect());
    for version in ListPartitionReassignmentsRequest::VERSIONS.min..=ListPartitionReassignmentsRequest::VERSIONS.max {
        side.step(format!("list {label}"), version, &ListPartitionReassignmentsRequest::default().with_topics(topics.clone()))?;
    }
    Ok(())
}

#[test]
fn replicas() {
    compare(|side| {
        side.topic("reassigned", 3, &[])?;
        side.topic("reassigned-not", 1, &[])?;
        coordinated(side, "reassigned")?;
        let cases: &[(&str, &[Wanted<'_>])] = &[
            ("what it has", &[("reassigned", &[(0, Some(&[1]))])]),
            ("another broker", &[("reassigned", &[(0, Some(&[2]))])]),
            ("no broker's id", &[("reassigned", &[(0, Some(&[-1]))])]),
            ("one more", &[("reassigned", &[(0, Some(&[1, 2]))])]),
            ("one twice", &[("reassigned", &[(0, Some(&[1, 1]))])]),
            ("another twice", &[("reassigned", &[(0, Some(&[2, 2]))])]),
            ("none", &[("reassigned", &[(0, Some(&[]))])]),
            ("cancel", &[("reassigned", &[(0, None), (1, None)])]),
            ("no such partition", &[("reassigned", &[(3, Some(&[1])), (-1, Some(&[1])), (3, None)])]),
            ("no such topic", &[("reassigned-nowhere", &[(0, Some(&[1])), (0, None), (1, Some(&[]))])]),
            ("no topic's name", &[("", &[(0, Some(&[1]))]), ("a b", &[(0, Some(&[1]))])]),
            ("an internal topic", &[("__consumer_offsets", &[(0, Some(&[1])), (1, Some(&[1, 2])), (2, None)])]),
            ("a partition twice", &[("reassigned", &[(0, Some(&[1])), (0, Some(&[2])), (0, None), (0, Some(&[1]))])]),
            ("a topic twice", &[("reassigned", &[(0, Some(&[1]))]), ("reassigned", &[(0, None), (1, Some(&[1]))])]),
            ("some of each", &[("reassigned", &[(2, Some(&[1])), (0, Some(&[7])), (1, None)]), ("reassigned-not", &[(0, Some(&[1]))])]),
            ("a topic without partitions", &[("reassigned", &[]), ("reassigned-nowhere", &[])]),
            ("nothing", &[]),
        ];
        for version in AlterPartitionReassignmentsRequest::VERSIONS.min..=AlterPartitionReassignmentsRequest::VERSIONS.max {
            for may_resize in [true, false].into_iter().take(if version < 1 { 1 } else { 2 }) {
                for (label, topics) in cases {
                    let request = reassign(topics).with_allow_replication_factor_change(may_resize);
                    side.step(format!("{label}, to be resized: {may_resize}"), version, &request)?;
                }
            }
        }
        list(side, "all", None)?;
        list(side, "none", Some(&[]))?;
        list(side, "some", Some(&[("reassigned", &[0, 1, 9, 0]), ("reassigned-nowhere", &[0]), ("", &[]), ("__consumer_offsets", &[0])]))
    });
}

#[test]
fn leaders() {
    compare(|side| {
        side.topic("elected", 3, &[])?;
        coordinated(side, "elected")?;
        let cases: &[(&str, &[Named<'_>])] = &[
            ("some", &[("elected", &[0, 2])]),
            ("no such partition", &[("elected", &[3, -1])]),
            ("no such topic", &[("elected-nowhere", &[0, 1]), ("", &[0])]),
            ("an internal topic", &[("__consumer_offsets", &[0])]),
            ("a partition twice", &[("elected", &[1, 1])]),
            ("a topic twice", &[("elected", &[0]), ("elected", &[1, 0])]),
            ("a topic without partitions", &[("elected", &[])]),
            ("nothing", &[]),
        ];
        let own = |answer: &mut kafka_protocol::messages::ElectLeadersResponse| {
            answer.replica_election_results.retain(|topic| topic.topic.is_empty() || topic.topic.starts_with("elected"));
        };
        for version in ElectLeadersRequest::VERSIONS.min..=ElectLeadersRequest::VERSIONS.max {
            for kind in [0, 1, 2, -1].into_iter().take(if version < 1 { 1 } else { 4 }) {
                let elect = |topics| ElectLeadersRequest::default().with_election_type(kind).with_topic_partitions(topics);
                for (label, topics) in cases {
                    let topic = |(name, partitions): &Named<'_>| {
                        TopicPartitions::default().with_topic(topic_name(name)).with_partitions(partitions.to_vec())
                    };
                    let request = elect(Some(topics.iter().map(topic).collect()));
                    side.step(format!("{label}, election of type {kind}"), version, &request)?;
                }
                side.step_with(format!("all, election of type {kind}"), version, &elect(None), own)?;
            }
        }
        Ok(())
    });
}
