//! highwater: a Kafka wire-protocol compatible broker.
//!
//! ```text
//! socket ─► net ─► codec ─► api ─┬─► log ─────────► files        one append, one wake-up
//!    ▲                           ├─► coordinator ─► group │ txn ─► log (__consumer_offsets, __transaction_state)
//!    │                           └─► cluster (metadata: topics, configs, producer ids)
//!    └──── net ◄─ codec ◄─ reply ◄── log::watch (the one place where anything waits for an offset)
//! ```
//!
//! - [`types`]: the field's integers and names; used by all, uses none.
//! - [`record`]: record batches in place: header, records, compression with a cap. Never sees a file or a socket.
//! - [`config`]: one table of keys, from which parsing, defaults, DescribeConfigs and README come.
//! - [`telemetry`]: metric names, events, HTTP. The other layers call events; none but it knows a metric's name.
//! - [`codec`]: frames to requests, answers to frames; every length is checked before memory is taken. Never sees a socket.
//! - [`log`]: partitions in Apache Kafka's file formats. Its decisions (`model`, `validate`, `producer_state`, `epochs`) are pure; all
//!   file operations go through `log::io::Disk`.
//! - [`cluster`]: the metadata: an immutable image, decided and applied, kept in a journal.
//! - [`group`]: consumer groups as decisions: members, generations, committed offsets. Never sees a socket, a clock or a file.
//! - [`txn`]: transactions as decisions: producers of transactional ids, states, ends. Never sees a socket, a clock or a file.
//! - [`coordinator`]: runs both on their internal topics: load, decide, append, apply; holds answers until they are committed.
//! - [`lag`]: how far behind every group is, in records and in time. What decides is pure; a sampler sweeps groups and logs and feeds it.
//! - [`net`]: listeners and connections. Never looks into a request's body.
//! - [`api`]: the table of APIs; one file an API, from wire to command and back, without state.
//! - [`http`]: the JSON API and the console's files.
//! - [`broker`]: builds the parts, starts and stops them in phases. [`cli`]: the commands.
//!
//! Imports point down this list only: `types < record < {config, telemetry, codec, cluster, group, txn, log} < coordinator < lag < net < api < http < broker < cli`; the
//! `tidy` test holds them to it. Watermarks keep their order wherever they move: `log start ≤ last stable ≤ high watermark ≤ log
//! end`. An acknowledged record is never lost to a crash of the process, and a failed write takes its partition out of service
//! until it has been recovered.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::disallowed_methods)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod api;
pub mod broker;
pub mod cli;
pub mod cluster;
pub mod codec;
pub mod config;
pub mod coordinator;
pub mod group;
pub mod http;
pub mod lag;
pub mod log;
pub mod net;
pub mod record;
#[cfg(test)]
mod sim;
pub mod telemetry;
pub mod txn;
pub mod types;
