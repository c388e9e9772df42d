//! Members of classic groups hear of a rebalance at once, and not with their next heartbeats, with the clients that people use: highwater holds
//! back the answer to a heartbeat until there is something to say. Clients that wait for that answer with other work are not held.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use compat_tests::driver::Client;
use compat_tests::member::{Member, Strategy, wait_for_even_shares};
use compat_tests::seat::Seat;
use compat_tests::{Broker, api, http, tools};
use serde_json::Value;

const PARTITIONS: i32 = 4;
const INTERVAL_MS: i64 = 5_000;
/// As heartbeats are sent: two for the interval, and some more.
const HEARTBEATS: u64 = 40;

/// A consumer that runs until this value goes.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn members(group: &Value) -> &[Value] {
    group["members_list"].as_array().map_or(&[], Vec::as_slice)
}

fn all_hear(group: &Value) -> bool {
    !members(group).is_empty() && members(group).iter().all(|member| member["hears_at_once"] == true)
}

/// As [`api::group_until`], and longer: a client takes its time to start on a busy machine, and two heartbeats to be held.
fn until(broker: &Broker, name: &str, what: &str, is_so: fn(&Value) -> bool) -> Result<Value> {
    api::group_until(broker, name, what, is_so).or_else(|_| api::group_until(broker, name, what, is_so))
}

/// Once its heartbeats are held, another member joins: all have joined long before the interval is over.
fn hears_at_once<T>(name: &str, start: impl FnOnce(&str, &str) -> Result<T>) {
    let outcome = (|| {
        let broker = Broker::start()?;
        Client::Python.create(&broker.bootstrap(), name, PARTITIONS)?;
        let _reader = start(&broker.bootstrap(), name)?;
        until(&broker, name, "it has joined", |group| group["state"] == "Stable" && members(group).len() == 1)?;
        until(&broker, name, "its heartbeats are held", all_hear)?;
        let seat = Seat::take(broker.kafka(), name, "newcomer", &[(name.to_owned(), PARTITIONS)])?;
        seat.wait_for(2)?;
        let group = api::group(&broker, name)?;
        let told = &group["rebalances_list"][0];
        let at = |what: &str| told[what].as_i64().with_context(|| format!("no {what} in {told}"));
        ensure!(told["cause"] == "joined" && members(&group).len() == 2, "{group}");
        let waited_ms = at("joined_ms")? - at("began_ms")?;
        ensure!(waited_ms < INTERVAL_MS / 2, "the newcomer has waited for {waited_ms} ms, and heartbeats come every {INTERVAL_MS}: {told}");
        Ok(())
    })();
    if let Err(error) = outcome {
        panic!("{error:#}");
    }
}

#[test]
fn kafka_clients_hear_at_once() {
    hears_at_once("java", |bootstrap, name| {
        let mut command = tools::java("org.apache.kafka.tools.consumer.ConsoleConsumer")?;
        command.args(["--bootstrap-server", bootstrap, "--topic", name, "--group", name]);
        command.args(["--command-property", &format!("heartbeat.interval.ms={INTERVAL_MS}")]);
        // A commit behind a heartbeat lets it go.
        command.args(["--command-property", "enable.auto.commit=false"]);
        Running::start(&mut command)
    });
}

#[test]
fn librdkafka_hears_at_once() {
    hears_at_once("kcat", |bootstrap, name| {
        let mut command = Command::new("kcat");
        command.args(["-b", bootstrap, "-X", &format!("heartbeat.interval.ms={INTERVAL_MS}"), "-G", name, name]);
        Running::start(&mut command)
    });
}

#[test]
fn confluent_kafka_python_hears_at_once() {
    hears_at_once("python", |bootstrap, name| Member::start_beating(bootstrap, name, name, Strategy::Range, INTERVAL_MS));
}

/// Requests of an API since the broker's start.
fn requests(broker: &Broker, api: &str) -> Result<u64> {
    let metrics = http::get(broker.http().context("HTTP is on")?, "/metrics")?.body;
    let series = format!("highwater_requests_total{{api=\"{api}\",");
    Ok(metrics.lines().filter_map(|line| line.strip_prefix(&series)?.split_once(' ')?.1.parse::<u64>().ok()).sum())
}

#[test]
fn clients_that_wait_for_the_answer_are_not_held() {
    let outcome = (|| {
        let broker = Broker::start()?;
        let bootstrap = broker.bootstrap();
        Client::Python.create(&bootstrap, "others", PARTITIONS)?;
        let join = |client| Member::start(client, &bootstrap, "others", "others", Strategy::Range, None);
        let all = [Client::Franz, Client::Sarama, Client::Node, Client::Aio].map(join).into_iter().collect::<Result<Vec<_>>>()?;
        wait_for_even_shares(&all.iter().collect::<Vec<_>>(), PARTITIONS)?;
        let before = requests(&broker, "Heartbeat")?;
        let mut held = None;
        api::group_until(&broker, "others", "they send heartbeats", |_| requests(&broker, "Heartbeat").is_ok_and(|sum| sum > before + 8))?;
        while requests(&broker, "Heartbeat")? < before + HEARTBEATS {
            let group = api::group(&broker, "others")?;
            held = held.or(members(&group).iter().find(|member| member["hears_at_once"] == true).cloned());
        }
        ensure!(held.is_none(), "{held:?} is held");
        Ok(())
    })();
    if let Err(error) = outcome {
        panic!("{error:#}");
    }
}
