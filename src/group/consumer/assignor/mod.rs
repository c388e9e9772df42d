//! Assignors: who shall own which partition. Pure functions of who is there, what they subscribe to and what they shall own so far.

mod balance;
mod range;
#[cfg(test)]
mod tests;
mod uniform;

use super::{Assignor, Partitions};
use crate::{
    group::{InstanceId, MemberId},
    types::TopicId,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A group, as assignors see it.
pub(super) struct Spec<'a> {
    /// In the order of their ids.
    pub members: Vec<SpecMember<'a>>,
    /// How many partitions each topic has that somebody subscribes to.
    pub partitions: BTreeMap<TopicId, i32>,
}

pub(super) struct SpecMember<'a> {
    pub id: &'a MemberId,
    pub instance_id: Option<&'a InstanceId>,
    pub subscribed: Arc<BTreeSet<TopicId>>,
    /// What it shall own so far.
    pub assigned: &'a Partitions,
}

/// What each member shall own, in the order of the members.
pub(super) fn assign(assignor: Assignor, spec: &Spec<'_>, homogeneous: bool) -> Vec<Partitions> {
    match assignor {
        Assignor::Range => range::assign(spec),
        Assignor::Uniform if homogeneous => uniform::assign(spec),
        Assignor::Uniform => balance::assign(spec),
    }
}
