//! The same script of requests to Apache Kafka 4.4 and to highwater: the answers are equal but for the fields that `masks` lists, each
//! with the reason why. What Kafka answers is not written down here: it is asked, each time, so the scripts say only what is interesting.
//!
//! Each file has the scripts of some APIs. A script runs first against Kafka, then against highwater, with topics of its own, so that
//! scripts run at the same time. With `COMPAT_BROKER=apache` a second Apache Kafka takes highwater's place, which shows whether a script
//! gets the same answer twice at all.

mod alter;
mod broker_configs;
mod chance;
mod clusters;
mod configs;
mod consumer_groups;
mod fetch;
mod group_configs;
mod group_records;
mod group_tools;
mod groups;
mod log_dirs;
mod masks;
mod metadata;
mod migration;
mod offsets;
mod partitions;
mod produce;
mod producers;
mod random_groups;
mod random_log;
mod reassign;
mod records;
mod requests;
mod sessions;
mod side;
mod topics;
mod transaction_masks;
mod transactional;
mod transactions;
mod versions;
