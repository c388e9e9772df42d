//! Brokers' configs that change while they run, as operators change them: kafka-configs (Kafka's Java admin client) and confluent-kafka-python's admin
//! client. Topics and the cleaner obey at once, a restart changes nothing, and each value is told with where it comes from.
#![allow(clippy::disallowed_methods, reason = "it waits for programs")]

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use compat_tests::process::run;
use compat_tests::steady::{self, Steady, Told};
use compat_tests::{Broker, console, tools};

const WAIT: Duration = Duration::from_secs(60);

fn until(what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > WAIT {
            bail!("never: {what}");
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The threads that compact.
fn cleaners(pid: u32) -> Result<usize> {
    let mut count = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // It may end meanwhile.
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        count += usize::from(name.starts_with("log-cleaner-"));
    }
    Ok(count)
}

fn configs(broker: &Broker, args: &[&str]) -> Result<String> {
    console::tool("ConfigCommand", &broker.bootstrap(), args)
}

fn python(broker: &Broker, what: &str, args: &[&str]) -> Result<String> {
    let mut command = Command::new(tools::installed("python/bin/python")?);
    command.arg(tools::home().join("programs/broker_configs.py")).args([what, &broker.bootstrap(), "1"]).args(args);
    Ok(String::from_utf8_lossy(&run(&mut command, &[], WAIT)?.stdout).into_owned())
}

#[test]
fn what_operators_set_on_brokers_is_obeyed_at_once_and_kept() -> Result<()> {
    let options = [("log.retention.ms", "86400000"), ("log.retention.check.interval.ms", "50"), ("log.initial.task.delay.ms", "0")];
    let mut broker = Broker::start_with(&options)?;
    ensure!(steady::create(&mut broker.connect()?, "plain", 1, &[])? == 0);
    ensure!(steady::create(&mut broker.connect()?, "own", 1, &[("retention.ms", "86400000")])? == 0);
    for topic in ["plain", "own"] {
        ensure!(matches!(Steady::new(broker.kafka(), topic, 0)?.send(1_000)?, Told::Acknowledged(_)));
    }

    // kafka-configs, on all brokers and on this one.
    configs(
        &broker,
        &["--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.cleaner.threads=2,log.retention.ms=1"],
    )?;
    until("the cleaner has two threads", || Ok(cleaners(broker.pid())? == 2))?;
    // Offset 0 is out of range then.
    let is_gone = || Ok(steady::read(&mut broker.connect()?, "plain", 0).is_err_and(|error| error.to_string().ends_with("was answered 1")));
    until("the topic that follows the broker loses its record", is_gone)?;
    ensure!(!steady::read(&mut broker.connect()?, "own", 0)?.is_empty(), "a topic's own retention.ms counts before the broker's");
    let described = configs(&broker, &["--describe", "--entity-type", "brokers", "--entity-default"])?;
    for expected in ["log.cleaner.threads=2", "log.retention.ms=1", "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2"] {
        ensure!(described.contains(expected), "{expected} in\n{described}");
    }
    configs(&broker, &["--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "log.cleaner.threads=3"])?;
    until("the cleaner has three threads", || Ok(cleaners(broker.pid())? == 3))?;
    let described = configs(&broker, &["--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"])?;
    let expected = "log.cleaner.threads=3 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=3, \
                    DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1}";
    ensure!(described.contains(expected), "{expected}\nin\n{described}");
    let expected = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=1, STATIC_BROKER_CONFIG:log.retention.ms=86400000";
    ensure!(described.contains(expected), "{expected}\nin\n{described}");
    for (given, why) in [
        ("node.id=2", "Cannot update these configs dynamically"),
        ("log.cleaner.threads=9", "cannot be increased to more than double the current value 3"),
        ("log.retention.ms=soon", "Not a number of type LONG"),
    ] {
        let asked = ["--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", given];
        let refused = format!("{:#}", configs(&broker, &asked).unwrap_err());
        ensure!(refused.contains(why), "{given}: {refused}");
    }

    obeys_python(&broker)?;
    for end in ["a clean stop", "kill -9"] {
        if end == "kill -9" {
            broker.kill()?;
        } else {
            ensure!(broker.stop()?.success());
        }
        broker.restart()?;
        ensure!(cleaners(broker.pid())? == 4, "{} threads after {end}", cleaners(broker.pid())?);
    }
    // Back to what it was started with.
    configs(&broker, &["--alter", "--entity-type", "brokers", "--entity-name", "1", "--delete-config", "log.cleaner.threads"])?;
    until("the cleaner has two threads again", || Ok(cleaners(broker.pid())? == 2))?;
    configs(
        &broker,
        &["--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", "log.cleaner.threads,log.retention.ms"],
    )?;
    until("the cleaner has one thread again", || Ok(cleaners(broker.pid())? == 1))?;
    ensure!(matches!(Steady::new(broker.kafka(), "plain", 0)?.send(1_000)?, Told::Acknowledged(_)));
    let described = configs(&broker, &["--describe", "--all", "--topic", "plain"])?;
    ensure!(
        described.contains("retention.ms=86400000") && described.contains("STATIC_BROKER_CONFIG:log.retention.ms=86400000"),
        "{described}"
    );
    ensure!(broker.stop()?.success());
    Ok(())
}

fn obeys_python(broker: &Broker) -> Result<()> {
    ensure!(python(broker, "set", &["log.cleaner.threads", "4"])?.trim() == "done");
    until("the cleaner has four threads", || Ok(cleaners(broker.pid())? == 4))?;
    let described = python(broker, "describe", &["log.cleaner.threads"])?;
    ensure!(described.starts_with("log.cleaner.threads=4 ") && described.contains("read-only=False"), "{described}");
    let refused = python(broker, "set", &["node.id", "2"])?;
    ensure!(refused.contains("Cannot update these configs dynamically"), "{refused}");
    Ok(())
}
