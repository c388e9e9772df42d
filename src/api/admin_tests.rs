//! What the tests of the administrative APIs share: a cluster on a disk in memory, and a check that answers can be encoded.

use crate::{
    cluster::{Cluster, NewTopic, Topic, disk::MemoryDisk},
    config::{HostPort, ServerConfig, Sources},
};
use bytes::BytesMut;
use kafka_protocol::protocol::{Decodable, Encodable};
use std::{fmt::Debug, sync::Arc};

pub fn config(flags: &[&str]) -> ServerConfig {
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    ServerConfig::load(&Sources { flags, ..Sources::default() }).unwrap().config
}

/// Broker 1, which clients of PLAINTEXT reach at `broker:9092`.
pub fn cluster(flags: &[&str]) -> Cluster {
    let cluster = Cluster::open(Arc::new(MemoryDisk::default()), &config(flags)).unwrap();
    cluster.register([("PLAINTEXT".to_owned(), HostPort { host: "broker".to_owned(), port: 9092 })]);
    cluster
}

pub fn create_topic(cluster: &Cluster, name: &str, partitions: i32) -> Arc<Topic> {
    cluster.create_topics(&[NewTopic { partitions, ..NewTopic::with_defaults(name) }], false).remove(0).unwrap()
}

/// An answer can be encoded in this version, and reads back to its last byte.
#[track_caller]
pub fn survives<T: Encodable + Decodable + Debug>(response: &T, version: i16) {
    let mut bytes = BytesMut::new();
    response.encode(&mut bytes, version).unwrap_or_else(|e| panic!("version {version}: {e}: {response:?}"));
    assert_eq!(response.compute_size(version).unwrap(), bytes.len());
    let mut bytes = bytes.freeze();
    T::decode(&mut bytes, version).unwrap();
    assert!(bytes.is_empty(), "version {version}");
}
