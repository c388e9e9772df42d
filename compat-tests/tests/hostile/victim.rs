//! A broker under attack, the client beside that has to be served all the time, and the sockets that hostile bytes go through.

use crate::{
    fixtures::{BOMB_TOPIC, COMPACTED_TOPIC},
    requests::{TOPIC, WIDE_TOPIC},
    wire::{Body, CORRELATION_ID, frame},
};
use compat_tests::{ApacheKafka, Broker};
use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// The longest that an answer or a close may take; a test that waits so long has failed.
const WAIT: Duration = Duration::from_secs(20);

/// Topics on which the broker looks into batches, each for another reason; their names are as long as [`BOMB_TOPIC`].
pub const LOOKING_TOPICS: &[(&str, &[(&str, &str)])] = &[
    (BOMB_TOPIC, &[]),
    ("hostile-timed-", &[("message.timestamp.type", "LogAppendTime")]),
    (COMPACTED_TOPIC, &[("cleanup.policy", "compact")]),
    ("hostile-lz4ed-", &[("compression.type", "lz4")]),
    ("hostile-zstd--", &[("compression.type", "zstd")]),
    ("hostile-unzip-", &[("compression.type", "uncompressed")]),
];

/// The most memory that the broker may have when it all is over, before its allocator gives back what was freed.
const KEPT_MIB: u64 = 200;

/// What a connection came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A frame, without its length.
    Answer(Vec<u8>),
    Closed,
    /// Nothing came.
    Silence,
}

/// A connection that takes any bytes.
pub struct Socket(TcpStream);

impl Socket {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(WAIT)).expect("set a timeout");
        stream.set_write_timeout(Some(WAIT)).expect("set a timeout");
        Self(stream)
    }

    pub fn local(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// Waits no longer than this from now on.
    pub fn patience(&self, wait: Duration) {
        self.0.set_read_timeout(Some(wait)).expect("set a timeout");
        self.0.set_write_timeout(Some(wait)).expect("set a timeout");
    }

    /// Sends as much as the broker takes: it may close meanwhile.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    pub fn end(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// The next answer, or the end.
    pub fn receive(&mut self) -> Outcome {
        let mut length = [0; 4];
        match self.fill(&mut length) {
            Outcome::Answer(_) => {}
            other => return other,
        }
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
        self.fill(&mut answer)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Outcome {
        match self.0.read_exact(buffer) {
            Ok(()) => Outcome::Answer(buffer.to_vec()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Outcome::Silence,
            Err(_) => Outcome::Closed,
        }
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, frame: &[u8]) -> Outcome {
        match self.send(frame) {
            Ok(()) => self.receive(),
            Err(_) => Outcome::Closed,
        }
    }
}

/// A Metadata request for one topic.
pub fn metadata(topic: &str) -> Vec<u8> {
    let mut b = Body::new(false, None);
    b.array(1);
    b.text(topic);
    b.i8(0);
    b.i8(0);
    b.i8(0);
    frame(3, 8, false, &b.finish())
}

fn create_topic(topic: &str, partitions: i32, configs: &[(&str, &str)]) -> Vec<u8> {
    let mut b = Body::new(false, None);
    b.array(1);
    b.text(topic);
    b.i32(partitions);
    b.i16(1);
    b.array(0);
    b.array(configs.len());
    for (name, value) in configs {
        b.text(name);
        b.text(value);
    }
    b.i32(10_000);
    b.i8(0);
    frame(19, 4, false, &b.finish())
}

pub struct Victim {
    /// `None` if Apache Kafka is the one under attack (`COMPAT_BROKER=apache`): then only its answers count, and show whether what
    /// these tests expect is Kafka's behaviour.
    pub broker: Option<Broker>,
    kafka: Option<ApacheKafka>,
    /// Connected all the time.
    bystander: Socket,
    address: SocketAddr,
    /// Its memory at the last look.
    base: u64,
    /// Hostile connections that stay open.
    pub holding: Vec<Socket>,
}

impl Victim {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[(&str, &str)]) -> Self {
        let apache = std::env::var("COMPAT_BROKER").is_ok_and(|broker| broker == "apache");
        let kafka = apache.then(|| ApacheKafka::start_with(options).expect("start Apache Kafka"));
        let broker = (!apache).then(|| Broker::start_with(options).expect("start the broker"));
        let address = kafka.as_ref().map(ApacheKafka::kafka).or(broker.as_ref().map(Broker::kafka)).expect("an address");
        let mut bystander = Socket::connect(address);
        for (topic, configs) in [(TOPIC, &[][..]), (WIDE_TOPIC, &[])].iter().chain(LOOKING_TOPICS) {
            let partitions = if *topic == WIDE_TOPIC { 200 } else { 2 };
            let answer = bystander.ask(&create_topic(topic, partitions, configs));
            let Outcome::Answer(answer) = answer else { panic!("create {topic}: {answer:?}") };
            // Correlation id, throttle time, one topic, its name, its error.
            let at = 4 + 4 + 4 + 2 + topic.len();
            assert_eq!(answer[at..at + 2], [0, 0], "create {topic}: {answer:?}");
        }
        let base = broker.as_ref().map_or(0, |broker| memory(broker, "VmRSS:"));
        Self { broker, kafka, address, bystander, base, holding: Vec::new() }
    }

    /// Where it speaks Kafka.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether Apache Kafka is the one under attack.
    pub fn is_apaches(&self) -> bool {
        self.broker.is_none()
    }

    pub fn connect(&self) -> Socket {
        Socket::connect(self.address)
    }

    /// The client beside still gets its answer.
    pub fn serves_others(&mut self, after: &str) {
        match self.bystander.ask(&metadata(TOPIC)) {
            Outcome::Answer(answer) => {
                assert_eq!(answer[..4], CORRELATION_ID.to_be_bytes(), "after {after}");
                assert!(answer.windows(TOPIC.len()).any(|w| w == TOPIC.as_bytes()), "after {after}: {answer:?}");
            }
            outcome => panic!("after {after} another client's Metadata request came to {outcome:?}"),
        }
    }

    /// What is wrong with the memory that the broker took since the last call, if something is: at its peak it may have been so much
    /// more than at that call. (What was freed goes back to the system after a while, so the base is taken anew.)
    pub fn grown_at_most(&mut self, mib: u64, after: &str) -> Result<(), String> {
        let Some(broker) = &self.broker else { return Ok(()) };
        let peak = memory(broker, "VmHWM:").saturating_sub(self.base) >> 20;
        fs::write(format!("/proc/{}/clear_refs", broker.pid()), "5").expect("begin the count of the peak anew");
        self.base = memory(broker, "VmRSS:");
        if peak <= mib { Ok(()) } else { Err(format!("{after}: the broker took {peak} MiB more at its peak; at most {mib} are allowed")) }
    }

    /// It runs, nothing in it panicked, and it stops as it should.
    pub fn ends_well(self) {
        drop(self.kafka);
        let Some(mut broker) = self.broker else { return };
        let kept = memory(&broker, "VmRSS:") >> 20;
        assert!(kept <= KEPT_MIB, "the broker has {kept} MiB after it all");
        assert!(broker.is_running().expect("ask for the process"), "the broker is gone");
        let log = broker.log().expect("read the log");
        assert!(!log.contains("panicked"), "the broker panicked:\n{log}");
        let status = broker.stop().expect("stop the broker");
        assert!(status.success(), "the broker ended with {status}");
    }

    /// What the broker wrote so far.
    pub fn log(&self) -> String {
        self.broker.as_ref().expect("a broker of ours").log().expect("read the log")
    }
}

/// A line of `/proc/PID/status`, in bytes.
fn memory(broker: &Broker, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", broker.pid())).expect("read the process' status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the status");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
