//! The programs of `programs/`, as commands: clients that the tests of real input and of Apache Kafka's directories need beside those
//! of [`driver`](crate::driver). It only builds their command lines.

use std::process::Command;

use anyhow::Result;

use crate::tools;

/// Lines `KEY TAB VALUE` of stdin become records of `topic`. The program fails if one was given up.
#[derive(Clone, Copy, Debug)]
pub enum LineProducer {
    /// kafka-clients. It is idempotent, outlives its broker's restarts, and prints how many records were acknowledged.
    Java,
    /// confluent-kafka-python, so librdkafka of today. As [`LineProducer::Java`].
    Python,
    /// kcat with its default settings, so the librdkafka of Debian. It prints nothing, and isn't idempotent.
    Kcat,
}

impl LineProducer {
    /// # Errors
    /// If the client isn't installed.
    pub fn command(self, bootstrap: &str, topic: &str) -> Result<Command> {
        let mut command = match self {
            Self::Java => java_source("Lines.java")?,
            Self::Python => python("lines.py")?,
            Self::Kcat => {
                let mut command = Command::new("kcat");
                command.args(["-P", "-K", "\t", "-b", bootstrap, "-t", topic]);
                return Ok(command);
            }
        };
        command.args([bootstrap, topic]);
        Ok(command)
    }
}

/// Copies a topic exactly once: each record and the offset behind it in one transaction.
#[derive(Clone, Copy, Debug)]
pub enum Copier {
    /// kafka-clients.
    Java,
    /// confluent-kafka-python, so librdkafka of today.
    Python,
    /// franz-go.
    Franz,
    /// aiokafka.
    Aio,
}

impl Copier {
    /// Copies `from` to `to` as a member of `group`, until all of `from` is copied and that has so many records.
    ///
    /// # Errors
    /// If the client isn't installed.
    pub fn copy(self, bootstrap: &str, from: &str, to: &str, group: &str, records: usize) -> Result<Command> {
        self.command(&["copy", bootstrap, from, to, group, &records.to_string()])
    }

    /// Whether it speaks the flow of transaction.version 2, in which AddPartitionsToTxn isn't sent.
    pub fn speaks_version_2(self) -> bool {
        match self {
            Self::Java | Self::Franz => true,
            Self::Python | Self::Aio => false,
        }
    }

    /// Prints the committed records of a topic as `PARTITION TAB VALUE`. Of [`Copier::Java`] only.
    ///
    /// # Errors
    /// If the client isn't installed.
    pub fn read(self, bootstrap: &str, topic: &str) -> Result<Command> {
        self.command(&["read", bootstrap, topic])
    }

    /// Begins a transaction with one record, prints its offset, and is gone. Of [`Copier::Java`] and [`Copier::Python`].
    ///
    /// # Errors
    /// If the client isn't installed.
    pub fn hang(self, bootstrap: &str, topic: &str, transactional_id: &str) -> Result<Command> {
        self.command(&["hang", bootstrap, topic, transactional_id])
    }

    fn command(self, args: &[&str]) -> Result<Command> {
        let mut command = match self {
            Self::Java => java_source("Copier.java")?,
            Self::Python => python("copier.py")?,
            Self::Aio => python("copier_aio.py")?,
            Self::Franz => {
                let mut command = Command::new(tools::installed("go/clients")?);
                command.arg("franz");
                command
            }
        };
        command.args(args);
        Ok(command)
    }
}

/// `KafkaDirectory.java` with one of its commands: `write`, `append` or `read`.
///
/// # Errors
/// If the jars aren't installed.
pub fn kafka_directory(what: &str, bootstrap: &str) -> Result<Command> {
    let mut command = java_source("KafkaDirectory.java")?;
    command.args([what, bootstrap]);
    Ok(command)
}

/// `LogDirs.java`: its command and arguments.
///
/// # Errors
/// If the jars aren't installed.
pub fn log_dirs(args: &[&str]) -> Result<Command> {
    let mut command = java_source("LogDirs.java")?;
    command.args(args);
    Ok(command)
}

/// `OffsetsTopic.java`: all of `__consumer_offsets`, by Apache Kafka's own classes.
///
/// # Errors
/// If the jars aren't installed.
pub fn offsets_topic(bootstrap: &str) -> Result<Command> {
    let mut command = java_source("OffsetsTopic.java")?;
    command.arg(bootstrap);
    Ok(command)
}

/// `Tools.java`: see [`crate::toolbox`].
///
/// # Errors
/// If the jars aren't installed.
pub fn toolbox() -> Result<Command> {
    java_source("Tools.java")
}

/// Python with a program of `programs/`.
fn python(file: &str) -> Result<Command> {
    let mut command = Command::new(tools::installed("python/bin/python")?);
    command.arg(tools::home().join("programs").join(file));
    Ok(command)
}

/// A JVM that compiles a source file of `programs/` and runs it.
fn java_source(file: &str) -> Result<Command> {
    let jars = tools::installed("java/jars")?;
    let mut command = Command::new("java");
    command
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"])
        .arg("-cp")
        .arg(format!("{}/*", jars.display()))
        .arg(tools::home().join("programs").join(file));
    Ok(command)
}
