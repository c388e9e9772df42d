//! The steps about topics, their partitions and configs.

use anyhow::Result;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, DeleteTopicsRequest, DescribeConfigsRequest, DescribeLogDirsRequest, DescribeTopicPartitionsRequest,
    MetadataRequest,
};

use super::generate::NEVER_ROLLED;
use super::plan::{At, Change, Of, Step};
use super::world::{TOPIC, World};
use crate::alter;
use crate::requests::{create_topics, named, new_topic, text, topic_name};

impl World {
    pub fn administer(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Create { topic, version, partitions, configs, dry } => {
                self.known.recompressed[*topic] |= configs.iter().any(|(key, _)| *key == "compression.type");
                let ask = create_topics(vec![new_topic(&self.known.name(At::Slot(*topic)), *partitions, configs)]).with_validate_only(*dry);
                let answer = self.side.step(format!("{step:?}"), *version, &ask)?;
                let made = answer.is_some_and(|answer| answer.topics.iter().all(|topic| topic.error_code == 0)) && !dry;
                if made {
                    let id = self.side.wait_for_partitions(&self.known.name(At::Slot(*topic)), usize::try_from(*partitions)?)?;
                    self.known.forget(*topic);
                    self.known.topics[*topic].push(id);
                    self.known.rolls[*topic] = !configs.contains(&NEVER_ROLLED);
                }
                Ok(())
            }
            Step::Delete { topic, version, by_id } => self.delete(step, *topic, *version, *by_id),
            Step::Widen { topic, version, count, dry } => {
                let name = self.known.name(*topic);
                let of = CreatePartitionsTopic::default().with_name(topic_name(&name)).with_count(*count).with_assignments(None);
                let ask = CreatePartitionsRequest::default().with_topics(vec![of]).with_timeout_ms(30_000).with_validate_only(*dry);
                let answer = self.side.step(format!("{step:?}"), *version, &ask)?;
                if answer.is_some_and(|answer| answer.results.iter().all(|result| result.error_code == 0)) && !dry {
                    self.side.wait_for_partitions(&name, usize::try_from(*count)?)?;
                }
                Ok(())
            }
            Step::Alter { topic, version, changes, dry } => self.alter(step, *topic, *version, changes, *dry),
            Step::LogDirs { version, of } => self.log_dirs(step, *version, of.as_ref()),
            Step::Partitions { of, limit, cursor } => {
                let topics = of.iter().map(|at| TopicRequest::default().with_name(topic_name(&self.known.name(*at)))).collect();
                let cursor = cursor.map(|(at, partition)| {
                    Cursor::default().with_topic_name(topic_name(&self.known.name(at))).with_partition_index(partition)
                });
                let ask = DescribeTopicPartitionsRequest::default().with_topics(topics);
                self.side.step(format!("{step:?}"), 0, &ask.with_response_partition_limit(*limit).with_cursor(cursor)).map(drop)
            }
            Step::Configs { version, of, keys, synonyms } => {
                let keys = keys.as_ref().map(|keys| keys.iter().map(|key| text(key)).collect::<Vec<_>>());
                let of = of.iter().map(|at| {
                    let of = DescribeConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text(&self.known.name(*at)));
                    of.with_configuration_keys(keys.clone())
                });
                let ask = DescribeConfigsRequest::default().with_resources(of.collect()).with_include_synonyms(*synonyms);
                self.side.step(format!("{step:?}"), *version, &ask).map(drop)
            }
            Step::Metadata { version, of, by_id } => {
                let topic = |at: &At| {
                    let topic = self.known.topic(*at);
                    if *by_id { MetadataRequestTopic::default().with_topic_id(topic.id).with_name(None) } else { named(&topic.name) }
                };
                let ask = MetadataRequest::default().with_topics(Some(of.iter().map(topic).collect()));
                self.side.step(format!("{step:?}"), *version, &ask.with_allow_auto_topic_creation(false)).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn delete(&mut self, step: &Step, at: At, version: i16, by_id: bool) -> Result<()> {
        let topic = self.known.topic(at);
        let ask = DeleteTopicsRequest::default().with_timeout_ms(30_000);
        let ask = match (version >= 6, by_id) {
            (false, _) => ask.with_topic_names(vec![topic_name(&topic.name)]),
            (true, false) => ask.with_topics(vec![DeleteTopicState::default().with_name(Some(topic_name(&topic.name)))]),
            (true, true) => ask.with_topics(vec![DeleteTopicState::default().with_name(None).with_topic_id(topic.id)]),
        };
        let answer = self.side.step(format!("{step:?}"), version, &ask)?;
        if let At::Slot(slot) = at
            && answer.is_some_and(|answer| answer.responses.iter().all(|topic| topic.error_code == 0))
        {
            self.side.wait_until_gone(&topic.name)?;
            self.known.forget(slot);
            self.barrier()?;
        }
        Ok(())
    }

    fn alter(&mut self, step: &Step, at: At, version: i16, changes: &[Change], dry: bool) -> Result<()> {
        if let At::Slot(slot) = at {
            self.known.recompressed[slot] |= changes.iter().any(|(key, ..)| *key == "compression.type");
        }
        let ask = alter::change(vec![alter::resource(TOPIC, &self.known.name(at), changes)]).with_validate_only(dry);
        let answer = self.side.step(format!("{step:?}"), version, &ask)?;
        if answer.is_some_and(|answer| answer.responses.iter().all(|resource| resource.error_code == 0)) && !dry {
            self.barrier_of_configs(at)?;
        }
        Ok(())
    }

    fn log_dirs(&mut self, step: &Step, version: i16, of: Option<&Of<i32>>) -> Result<()> {
        let topic = |(at, partitions): &(At, Vec<i32>)| {
            DescribableLogDirTopic::default().with_topic(topic_name(&self.known.name(*at))).with_partitions(partitions.clone())
        };
        let ask = DescribeLogDirsRequest::default().with_topics(of.map(|of| of.iter().map(topic).collect()));
        let known = &self.known;
        let prefix = format!("{}-t", known.prefix());
        self.side.step_with(format!("{step:?}"), version, &ask, |answer| {
            for topic in answer.results.iter_mut().flat_map(|dir| &mut dir.topics) {
                let slot = known.slot(&topic.name, uuid::Uuid::nil());
                if slot.is_some_and(|slot| known.recompressed[slot]) {
                    // The sizes are those of a compressor.
                    topic.partitions.iter_mut().for_each(|partition| partition.partition_size = partition.partition_size.min(1));
                }
            }
            answer.results.iter_mut().for_each(|dir| dir.topics.retain(|topic| topic.name.starts_with(&prefix)));
        })?;
        Ok(())
    }
}
