//! What decisions have to know of topics. A group never sees the cluster: the shell tells it ([`super::Groups::learn`]).

use crate::types::{TopicId, TopicName};
use std::fmt;

/// A topic, as far as groups care.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    pub name: TopicName,
    pub id: TopicId,
    pub partitions: i32,
}

/// The topics as they were at one moment.
pub trait Topics: Send + Sync + fmt::Debug {
    fn by_name(&self, name: &str) -> Option<Topic>;

    fn by_id(&self, id: TopicId) -> Option<Topic>;

    /// All names, for regular expressions.
    fn each_name(&self, look: &mut dyn FnMut(&TopicName));
}

/// None: what a shard knows that was told of none yet.
#[derive(Debug)]
pub struct NoTopics;

impl Topics for NoTopics {
    fn by_name(&self, _: &str) -> Option<Topic> {
        None
    }

    fn by_id(&self, _: TopicId) -> Option<Topic> {
        None
    }

    fn each_name(&self, _: &mut dyn FnMut(&TopicName)) {}
}
