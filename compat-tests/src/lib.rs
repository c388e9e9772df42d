//! The harness of the tests that start real programs: the released broker, Apache Kafka, and the clients that people use.
//!
//! - [`Broker`] is a running highwater, [`ApacheKafka`] a running Apache Kafka of the Maven jars, [`Target`] the one that this run is about.
//! - [`clock`] is a wall clock that the test sets for a broker.
//! - [`driver`] runs a client as a command; `clients/` has the programs. [`member`] is one that reads in a group meanwhile, [`seat`] one that
//!   sits in it and commits what it is told, [`heartbeats`] those of a member of a consumer group.
//! - [`wire`] is a connection that says exactly what a test wants said, right or wrong; [`batch`] makes the batches for it,
//!   [`transactional`] brings a producer to its coordinator.
//! - [`steady`] is a producer that goes on whatever happens, and holds the broker to what it was told.
//! - [`programs`] are clients with a purpose of their own, [`feed`] feeds one in step with the test; [`md5sums`] is real input.
//! - [`api`] is what the broker says of itself over HTTP.
//! - [`streams`] is an application of Kafka Streams.
//! - [`prometheus`] is Debian's Prometheus and its promtool, as the judges of metrics, dashboards and alerts.
//! - [`shop`] is an hour in a minute, with something to see in it.
//! - [`dump_log`] is Apache Kafka's tool as the judge of data directories.
//! - [`toolbox`] keeps Apache Kafka's tools at hand, for tests that say a lot to them.
//! - [`corpus`] has the records that clients send, and compares what came back.
//!
//! It knows nothing of the broker's inside: it depends on no code of the library, and everything it starts ends with it, even when the
//! test is killed. `compat-tests/install` puts the programs where [`tools`] finds them.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it waits for programs of others, by their clock")]

pub mod apache;
pub mod api;
pub mod batch;
pub mod broker;
pub mod clock;
pub mod console;
pub mod corpus;
pub mod driver;
pub mod dump_log;
pub mod feed;
pub mod heartbeats;
pub mod http;
pub mod kcat;
pub mod md5sums;
pub mod member;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod seat;
pub mod shop;
pub mod steady;
pub mod streams;
pub mod target;
pub mod toolbox;
pub mod tools;
pub mod transactional;
pub mod wire;

pub use apache::ApacheKafka;
pub use broker::Broker;
pub use target::Target;
