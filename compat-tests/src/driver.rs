//! The clients as commands. Each program in `clients/` has the same contract:
//!
//! - `create BOOTSTRAP TOPIC PARTITIONS` makes a topic.
//! - `produce BOOTSTRAP TOPIC CODEC` sends the records of stdin, a JSON object a line: `partition` (a number, or null: the client
//!   chooses), `timestamp` (milliseconds or null), `key` and `value` (base64 or null), `headers` (an array of [name, base64 or null]). The
//!   producer has its default settings, apart from what says where and how compressed. It fails unless every record is acknowledged.
//! - `consume BOOTSTRAP TOPIC` writes all records up to the end offsets that it finds, without a group, with `offset` added.
//! - `member BOOTSTRAP TOPIC GROUP STRATEGY INSTANCE` reads in a group, until stdin ends: see [`crate::member`].
//!
//! kcat and Apache Kafka's console tools have command lines of their own: `tests/clients.rs` has what is said to them.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::corpus::{Received, Record, from_lines, to_lines};
use crate::process::run;
use crate::tools;

/// The longest that a client may take; its own limit is less, and says more.
pub const WAIT: Duration = Duration::from_secs(60);

/// Compression, by the name that every client's settings know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    /// In the order of their ids in a batch's attributes.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// As in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The low three bits of a batch's attributes.
    pub fn id(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}

/// A client library with a program of ours around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// confluent-kafka-python: librdkafka.
    Python,
    /// franz-go.
    Franz,
    /// sarama.
    Sarama,
    /// kafka-clients.
    Java,
    /// kafkajs: no `consume`, as it reads only in groups.
    Node,
    /// aiokafka: only `member`.
    Aio,
}

impl Client {
    /// As in the names of topics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Franz => "franz",
            Self::Sarama => "sarama",
            Self::Java => "java",
            Self::Node => "node",
            Self::Aio => "aiokafka",
        }
    }

    pub(crate) fn command(self) -> Result<Command> {
        let go = |which: &str| -> Result<Command> {
            let mut command = Command::new(tools::installed("go/clients")?);
            command.arg(which);
            Ok(command)
        };
        let python = |program: &str| -> Result<Command> {
            let mut command = Command::new(tools::installed("python/bin/python")?);
            command.arg(tools::home().join("clients/python").join(program));
            Ok(command)
        };
        match self {
            Self::Franz => go("franz"),
            Self::Sarama => go("sarama"),
            Self::Java => tools::java("Driver"),
            Self::Python => python("driver.py"),
            Self::Aio => python("aio.py"),
            Self::Node => {
                let mut command = Command::new("node");
                command.env("NODE_PATH", tools::installed("node/node_modules")?).arg(tools::home().join("clients/node/driver.js"));
                Ok(command)
            }
        }
    }

    /// # Errors
    /// If the client says that it failed, with what it said, as in the other functions.
    pub fn create(self, bootstrap: &str, topic: &str, partitions: i32) -> Result<()> {
        run(self.command()?.args(["create", bootstrap, topic, &partitions.to_string()]), &[], WAIT)?;
        Ok(())
    }

    /// # Errors
    /// If one of `records` isn't acknowledged.
    pub fn produce(self, bootstrap: &str, topic: &str, codec: Codec, records: &[Record]) -> Result<()> {
        run(self.command()?.args(["produce", bootstrap, topic, codec.name()]), &to_lines(records), WAIT)?;
        Ok(())
    }

    /// # Errors
    /// If the client doesn't reach the end offsets.
    pub fn consume(self, bootstrap: &str, topic: &str) -> Result<Vec<Received>> {
        let output = run(self.command()?.args(["consume", bootstrap, topic]), &[], WAIT)?;
        from_lines(&output.stdout).with_context(|| format!("what {} wrote", self.name()))
    }
}
