//! The broker that a run of the client tests is about: highwater, or Apache Kafka with `COMPAT_BROKER=apache`, which shows whether the
//! tests themselves are right.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use anyhow::{Context, Result, bail};

use crate::apache::ApacheKafka;
use crate::broker::Broker;
use crate::wire::Client;

/// Settings that the client tests need of either broker.
const OPTIONS: &[(&str, &str)] = &[
    ("node.id", "1"),
    // For topics that are created on first use.
    ("num.partitions", "4"),
    // Their records have timestamps of long ago.
    ("log.retention.ms", "-1"),
];

/// Highwater starts in no time, so each test has its own; Apache Kafka is shared by the tests that run at once.
pub enum Target {
    /// Our own.
    Highwater(Box<Broker>),
    /// The oracle.
    Apache(Arc<ApacheKafka>),
}

static APACHE: Mutex<Weak<ApacheKafka>> = Mutex::new(Weak::new());

impl Target {
    /// # Errors
    /// If it doesn't start.
    pub fn start() -> Result<Self> {
        match std::env::var("COMPAT_BROKER").as_deref() {
            Ok("apache") => Ok(Self::Apache(shared_apache()?)),
            Ok("highwater") | Err(_) => Ok(Self::Highwater(Box::new(Broker::start_with(OPTIONS)?))),
            Ok(other) => bail!("COMPAT_BROKER={other}: it is highwater or apache"),
        }
    }

    /// Runs a test on one. It fails while the broker is still there, so that the end of the broker's log is shown.
    ///
    /// # Panics
    /// If `test` fails: this is how a test ends.
    pub fn with(test: impl FnOnce(&Self) -> Result<()>) {
        let outcome = Self::start().and_then(|target| {
            let outcome = test(&target);
            if let Err(error) = &outcome {
                panic!("{error:#}");
            }
            outcome
        });
        if let Err(error) = outcome {
            panic!("{error:#}");
        }
    }

    /// What clients are told: `HOST:PORT`.
    pub fn bootstrap(&self) -> String {
        self.address().to_string()
    }

    /// A connection that says what the test wants said.
    ///
    /// # Errors
    /// If it doesn't accept one.
    pub fn connect(&self) -> Result<Client> {
        Client::connect(self.address())
    }

    /// Where it speaks Kafka.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Highwater(broker) => broker.kafka(),
            Self::Apache(kafka) => kafka.kafka(),
        }
    }
}

fn shared_apache() -> Result<Arc<ApacheKafka>> {
    let mut shared = APACHE.lock().ok().context("another test failed to start Apache Kafka")?;
    if let Some(kafka) = shared.upgrade() {
        return Ok(kafka);
    }
    let kafka = Arc::new(ApacheKafka::start_with(OPTIONS)?);
    *shared = Arc::downgrade(&kafka);
    Ok(kafka)
}
