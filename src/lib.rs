//! highwater: a Kafka wire-protocol compatible broker.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::disallowed_methods)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod cluster;
pub mod codec;
pub mod config;
pub mod log;
pub mod net;
pub mod record;
pub mod telemetry;
pub mod types;
