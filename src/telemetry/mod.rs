//! What the broker says of itself: metrics, health and logs.
//!
//! Every layer reports by events ([`events`]) and never sees a metric's name or a label; what belongs to a topic or a partition is
//! not counted here but read from it when it is scraped ([`samples`]), so that a deleted topic leaves no ghost. There is no global
//! recorder: a [`Registry`] is built once, and handles come from it. Nothing here knows of requests' contents, sockets of Kafka
//! clients or files of the log.

pub mod events;
pub mod exposition;
pub mod http;
pub mod logs;
pub mod names;
pub mod process;
pub mod registry;
pub mod samples;

pub use events::{CloseReason, Events, FrameFault, RejectReason, RequestTimes, TopicCounters};
pub use exposition::Exposition;
pub use http::Source;
pub use logs::RateLimited;
pub use registry::Registry;
pub use samples::{CompactionSample, PartitionSample, TopicSample};
