//! The cluster's metadata: topics, partitions, configs and producer ids.
//!
//! - [`image`] is what is so now: immutable, read without a lock.
//! - [`admin`], [`adopt`], [`alter_configs`] and [`features`] decide: from an image and a command to records and a reply, changing nothing.
//! - [`image::Image::apply`] is the only thing that changes an image, live and when the journal is replayed.
//! - [`journal`] keeps the records, [`meta`] the identity of the data directories.
//! - [`Cluster`] is the shell around them: one change at a time, journalled and synced before it is seen.
//!
//! Partition code always asks the image for leader, epoch and in-sync replicas, so that the journal can become a consensus log.

pub mod admin;
pub mod adopt;
pub mod alter_configs;
mod broker_configs;
pub mod features;
mod group_configs;
pub mod image;
pub mod journal;
pub mod meta;
mod reassign;
pub mod record;
mod shell;

pub use admin::{AdminError, MorePartitions, NewTopic, PRODUCER_ID_SEEN_MAX};
pub use adopt::{FoundPartition, Verdict};
pub use alter_configs::{ConfigChange, ConfigOp, TopicChange};
pub use broker_configs::BrokerChange;
pub use features::{FEATURES, Feature, FeatureUpdate, GROUP_VERSION, InvalidUpdate, Levels, TRANSACTION_VERSION, UpgradeType};
pub use group_configs::GroupChange;
pub use image::{Broker, Image, PartitionState, Topic};
pub use reassign::{ElectError, Election, ReassignError, Reassignment};
pub use record::Record;
pub use shell::{Change, Cluster, ClusterError, Publisher, UpdateFeaturesError};

#[cfg(test)]
pub(crate) mod disk;
#[cfg(test)]
mod tests;
