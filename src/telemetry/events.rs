//! What the other layers call: each event moves handles that were looked up before, so that a request costs a few atomic
//! additions and neither a lock nor a look-up. Labels are enums, so that no peer can make a series.

use super::{
    names::{self, Metric},
    registry::Registry,
    samples::TopicSample,
};
use crate::types::ErrorCode;
use metrics::{Counter, Gauge, Histogram};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// As the metric's label and the log show it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $label),* }
            }
        }
    };
}

reasons! {
    /// Why a connection that was served ended.
    CloseReason {
        /// The client closed it.
        Client = "client",
        /// `connections.max.idle.ms` passed.
        Idle = "idle",
        /// A frame was no valid request ([`FrameFault`] says how).
        BadRequest = "bad_request",
        /// A produce with acks=0 failed: closing is the only answer that Kafka has for it.
        AcksZeroFailed = "acks_zero_failed",
        /// Reading or writing failed.
        Io = "io",
        /// The broker stops.
        Shutdown = "shutdown",
    }
}

reasons! {
    /// Why a connection was closed before it was served.
    RejectReason {
        /// `max.connections.per.ip` or its overrides.
        MaxConnectionsPerIp = "max_connections_per_ip",
    }
}

reasons! {
    /// What was wrong with a frame.
    FrameFault {
        /// Longer than `socket.request.max.bytes`, or than its API may be.
        TooLarge = "too_large",
        /// A negative length.
        NegativeLength = "negative_length",
        /// Too short for a request header, or the header cannot be read.
        BadHeader = "bad_header",
        /// An API that this broker does not serve.
        UnknownApi = "unknown_api",
        /// A version that this broker does not serve.
        UnknownVersion = "unknown_version",
        /// The body does not follow its schema, or its lengths lie.
        Malformed = "malformed",
    }
}

/// Where a request's time went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestTimes {
    /// From its last byte read until work began.
    pub queue: Duration,
    /// Decoding, deciding, appending, reading.
    pub work: Duration,
    /// For data, for the high watermark, for a sync.
    pub wait: Duration,
    /// From the finished answer to its last byte written, behind earlier answers of the connection.
    pub send: Duration,
}

impl RequestTimes {
    pub fn total(&self) -> Duration {
        self.queue.saturating_add(self.work).saturating_add(self.wait).saturating_add(self.send)
    }
}

/// After so many requests the samples of histograms are moved into their buckets, so that they take at most 160 KiB even if nobody
/// scrapes.
const REQUESTS_PER_UPKEEP: u32 = 4096;

/// The broker's counters. One for the whole broker; share it by reference or `Arc`.
pub struct Events {
    registry: Registry,
    apis: Vec<ApiMetrics>,
    requests: AtomicU32,
    received: Counter,
    sent: Counter,
    connections: Gauge,
    /// The same number, to be read.
    open: AtomicI64,
    opened: Counter,
    closed: Vec<Counter>,
    rejected: Vec<Counter>,
    frames_rejected: Vec<Counter>,
}

impl Events {
    /// `apis` are Kafka's names in the order of the table of APIs; events name an API by its index there.
    pub fn new(registry: &Registry, apis: impl IntoIterator<Item = &'static str>) -> Self {
        let by_reason = |metric: &Metric, reasons: Vec<&'static str>| reasons.into_iter().map(|r| registry.counter(metric, &[r])).collect();
        Self {
            apis: apis.into_iter().map(ApiMetrics::new).collect(),
            requests: AtomicU32::new(0),
            received: registry.counter(&names::NETWORK_RECEIVED, &[]),
            sent: registry.counter(&names::NETWORK_SENT, &[]),
            connections: registry.gauge(&names::CONNECTIONS, &[]),
            open: AtomicI64::new(0),
            opened: registry.counter(&names::CONNECTIONS_OPENED, &[]),
            closed: by_reason(&names::CONNECTIONS_CLOSED, CloseReason::ALL.iter().map(|r| r.name()).collect()),
            rejected: by_reason(&names::CONNECTIONS_REJECTED, RejectReason::ALL.iter().map(|r| r.name()).collect()),
            frames_rejected: by_reason(&names::FRAMES_REJECTED, FrameFault::ALL.iter().map(|r| r.name()).collect()),
            registry: registry.clone(),
        }
    }

    /// A request's answer is written (or, with acks=0, its work is done). An index outside of the table is ignored.
    pub fn request_done(&self, api: usize, error: ErrorCode, times: RequestTimes) {
        let Some(metrics) = self.apis.get(api) else { return };
        metrics.answered(&self.registry, error);
        let handles = metrics.handles(&self.registry);
        handles.total.record(times.total());
        handles.queue.record(times.queue);
        handles.work.record(times.work);
        handles.wait.record(times.wait);
        handles.send.record(times.send);
        if self.requests.fetch_add(1, Relaxed) % REQUESTS_PER_UPKEEP == REQUESTS_PER_UPKEEP - 1 {
            self.registry.run_upkeep();
        }
    }

    /// The sizes of a request's and its answer's frames.
    pub fn request_bytes(&self, api: usize, request: usize, response: usize) {
        let Some(metrics) = self.apis.get(api) else { return };
        let handles = metrics.handles(&self.registry);
        handles.request_bytes.increment(request as u64);
        handles.response_bytes.increment(response as u64);
    }

    /// Bytes came from a client's socket.
    pub fn received(&self, bytes: usize) {
        self.received.increment(bytes as u64);
    }

    /// Bytes went to a client's socket.
    pub fn sent(&self, bytes: usize) {
        self.sent.increment(bytes as u64);
    }

    pub fn connection_opened(&self) {
        self.opened.increment(1);
        self.connections.increment(1.0);
        self.open.fetch_add(1, Relaxed);
    }

    pub fn connection_closed(&self, reason: CloseReason) {
        self.connections.decrement(1.0);
        self.open.fetch_sub(1, Relaxed);
        count(&self.closed, reason as usize);
    }

    /// Kafka clients' connections open now.
    pub fn connections_open(&self) -> u64 {
        u64::try_from(self.open.load(Relaxed)).unwrap_or(0)
    }

    /// A connection was never served: it was neither opened nor closed in the sense of the two events above.
    pub fn connection_rejected(&self, reason: RejectReason) {
        count(&self.rejected, reason as usize);
    }

    pub fn frame_rejected(&self, fault: FrameFault) {
        count(&self.frames_rejected, fault as usize);
    }
}

fn count(counters: &[Counter], index: usize) {
    if let Some(counter) = counters.get(index) {
        counter.increment(1);
    }
}

/// One API's handles. They are made at its first request, so that a scrape doesn't carry series of APIs that nobody calls.
struct ApiMetrics {
    api: &'static str,
    /// By [`error_index`].
    answered: Box<[OnceLock<Counter>]>,
    handles: OnceLock<ApiHandles>,
}

struct ApiHandles {
    total: Histogram,
    queue: Histogram,
    work: Histogram,
    wait: Histogram,
    send: Histogram,
    request_bytes: Counter,
    response_bytes: Counter,
}

/// As large as the widest gap-free numbering of Kafka's codes needs.
const ERROR_SLOTS: usize = 256;

impl ApiMetrics {
    fn new(api: &'static str) -> Self {
        Self { api, answered: (0..ERROR_SLOTS).map(|_| OnceLock::new()).collect(), handles: OnceLock::new() }
    }

    fn answered(&self, registry: &Registry, error: ErrorCode) {
        if let Some(slot) = self.answered.get(error_index(error)) {
            slot.get_or_init(|| registry.counter(&names::REQUESTS, &[self.api, error.name()])).increment(1);
        }
    }

    fn handles(&self, registry: &Registry) -> &ApiHandles {
        self.handles.get_or_init(|| {
            let stage = |stage| registry.histogram(&names::REQUEST_STAGE_DURATION, &[self.api, stage]);
            ApiHandles {
                total: registry.histogram(&names::REQUEST_DURATION, &[self.api]),
                queue: stage("queue"),
                work: stage("work"),
                wait: stage("wait"),
                send: stage("send"),
                request_bytes: registry.counter(&names::REQUEST_BYTES, &[self.api]),
                response_bytes: registry.counter(&names::RESPONSE_BYTES, &[self.api]),
            }
        })
    }
}

/// −1 (UNKNOWN_SERVER_ERROR) is the first slot.
fn error_index(error: ErrorCode) -> usize {
    usize::try_from(i32::from(error.code()).saturating_add(1)).unwrap_or(0)
}

/// What went into and out of a topic, or of one partition of it. Lives with it and is read when it is scraped.
#[derive(Debug, Default)]
pub struct TopicCounters {
    received_bytes: AtomicU64,
    received_records: AtomicU64,
    sent_bytes: AtomicU64,
    sent_records: AtomicU64,
}

impl TopicCounters {
    /// Batches were appended.
    pub fn received(&self, bytes: u64, records: u64) {
        self.received_bytes.fetch_add(bytes, Relaxed);
        self.received_records.fetch_add(records, Relaxed);
    }

    /// Batches were handed to a consumer.
    pub fn sent(&self, bytes: u64, records: u64) {
        self.sent_bytes.fetch_add(bytes, Relaxed);
        self.sent_records.fetch_add(records, Relaxed);
    }

    /// Adds these counts to a topic's sample.
    pub fn add_to(&self, sample: &mut TopicSample<'_>) {
        let add = |to: &mut u64, from: &AtomicU64| *to = to.saturating_add(from.load(Relaxed));
        add(&mut sample.received_bytes, &self.received_bytes);
        add(&mut sample.received_records, &self.received_records);
        add(&mut sample.sent_bytes, &self.sent_bytes);
        add(&mut sample.sent_records, &self.sent_records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(text: &'a str, start: &str) -> &'a str {
        text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in\n{text}"))
    }

    #[test]
    fn a_request_is_counted_with_its_error_and_its_stages() {
        let registry = Registry::new().unwrap();
        let events = Events::new(&registry, ["Produce", "Fetch"]);
        let times = RequestTimes { work: Duration::from_millis(2), wait: Duration::from_millis(500), ..RequestTimes::default() };
        events.request_done(1, ErrorCode::None, times);
        events.request_done(1, ErrorCode::OffsetOutOfRange, times);
        events.request_done(1, ErrorCode::UnknownServerError, times);
        events.request_done(2, ErrorCode::None, times);
        events.request_bytes(1, 100, 5000);
        events.request_bytes(1, 200, 120);
        events.request_bytes(2, 1, 1);
        let text = registry.render();
        assert_eq!(
            line(&text, "highwater_requests_total{api=\"Fetch\",error=\"NONE\"}"),
            "highwater_requests_total{api=\"Fetch\",error=\"NONE\"} 1"
        );
        line(&text, "highwater_requests_total{api=\"Fetch\",error=\"OFFSET_OUT_OF_RANGE\"} 1");
        line(&text, "highwater_requests_total{api=\"Fetch\",error=\"UNKNOWN_SERVER_ERROR\"} 1");
        line(&text, "highwater_request_stage_duration_seconds_bucket{api=\"Fetch\",stage=\"wait\",le=\"0.25\"} 0");
        line(&text, "highwater_request_stage_duration_seconds_bucket{api=\"Fetch\",stage=\"wait\",le=\"0.5\"} 3");
        line(&text, "highwater_request_duration_seconds_bucket{api=\"Fetch\",le=\"0.5\"} 0");
        line(&text, "highwater_request_duration_seconds_count{api=\"Fetch\"} 3");
        line(&text, "highwater_request_bytes_total{api=\"Fetch\"} 300");
        line(&text, "highwater_response_bytes_total{api=\"Fetch\"} 5120");
        assert!(!text.contains("Produce"), "an API that nobody called has no series");
    }

    #[test]
    fn every_error_code_has_its_own_slot() {
        let slots = ErrorCode::ALL.iter().map(|e| error_index(*e)).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(slots.len(), ErrorCode::ALL.len());
        assert!(slots.iter().all(|slot| *slot < ERROR_SLOTS));
    }

    #[test]
    fn connections_are_counted_by_reason() {
        let registry = Registry::new().unwrap();
        let events = Events::new(&registry, []);
        events.connection_opened();
        events.connection_opened();
        events.connection_closed(CloseReason::Idle);
        events.connection_rejected(RejectReason::MaxConnectionsPerIp);
        events.frame_rejected(FrameFault::TooLarge);
        events.received(7);
        events.sent(9);
        let text = registry.render();
        for expected in [
            "highwater_connections 1",
            "highwater_connections_opened_total 2",
            "highwater_connections_closed_total{reason=\"idle\"} 1",
            "highwater_connections_closed_total{reason=\"client\"} 0",
            "highwater_connections_rejected_total{reason=\"max_connections_per_ip\"} 1",
            "highwater_frames_rejected_total{reason=\"too_large\"} 1",
            "highwater_network_received_bytes_total 7",
            "highwater_network_sent_bytes_total 9",
        ] {
            line(&text, expected);
        }
    }

    #[test]
    fn a_topics_counters_add_up_over_its_partitions() {
        let (a, b) = (TopicCounters::default(), TopicCounters::default());
        a.received(10, 1);
        b.received(20, 2);
        b.sent(5, 1);
        let mut sample = TopicSample::of("t");
        a.add_to(&mut sample);
        b.add_to(&mut sample);
        assert_eq!((sample.received_bytes, sample.received_records, sample.sent_bytes, sample.sent_records), (30, 3, 5, 1));
    }
}
