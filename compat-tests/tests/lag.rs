//! The stories that the lag is for, with the clients that people use: the JSON API and the metrics of the released binary say how far behind
//! they are.
#![allow(clippy::disallowed_methods, reason = "it waits for programs of others, by their clock")]

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use compat_tests::Broker;
use compat_tests::api::{group, group_until, json, metric, partition, until};
use compat_tests::clock::Clock;
use compat_tests::corpus::Record;
use compat_tests::driver::{Client, Codec};
use compat_tests::http;
use compat_tests::member::{Member, Strategy, wait_for_even_shares};
use compat_tests::seat::Seat;
use compat_tests::steady::create;
use compat_tests::tools;
use serde_json::Value;

/// What the broker keeps of arrivals in each partition's directory.
const ARRIVALS: &str = "arrival-times";

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// `count` records for one partition, `age_ms` old by their timestamps.
fn records(partition: i32, count: usize, age_ms: i64) -> Vec<Record> {
    let timestamp = Some(now_ms() - age_ms);
    (0..count)
        .map(|_| Record { partition: Some(partition), timestamp, key: None, value: Some(b"v".to_vec()), headers: Vec::new() })
        .collect()
}

/// kcat reads so many records in a group, commits, and leaves.
fn kcat_reads(broker: &Broker, topic: &str, group: &str, count: usize) -> Result<()> {
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", &broker.bootstrap(), "-G", group, "-c", &count.to_string(), "-X", "auto.offset.reset=earliest", "-q", topic]);
    let status = kcat.stdout(Stdio::null()).stderr(Stdio::null()).status().context("kcat")?;
    ensure!(status.success(), "kcat ended with {status}");
    Ok(())
}

/// `highwater ARGS`, asked of this broker: whether it succeeded, and what it said.
fn cli(broker: &Broker, args: &[&str]) -> Result<(bool, String)> {
    let url = format!("http://{}", broker.http().context("HTTP is on")?);
    let output = Command::new(tools::highwater()?).args(args).args(["--url", &url]).output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)))
}

fn start() -> Result<Broker> {
    Broker::start_with(&[("group.initial.rebalance.delay.ms", "0"), ("offsets.topic.num.partitions", "4")])
}

const DAY: Duration = Duration::from_secs(86_400);
const DAY_MS: i64 = 86_400_000;

fn start_by(clock: &Clock) -> Result<Broker> {
    Broker::start_by(clock, &[("group.initial.rebalance.delay.ms", "0"), ("offsets.topic.num.partitions", "4")])
}

/// It reads 40 of 100 records, and 38 minutes go by: that far it is behind, by arrival as by the records' own time, and it says so in
/// minutes.
#[test]
fn a_slow_consumer_falls_38_minutes_behind_as_they_pass() -> Result<()> {
    let minutes = Duration::from_secs(38 * 60);
    let clock = Clock::ago(minutes)?;
    let broker = start_by(&clock)?;
    Client::Python.create(&broker.bootstrap(), "orders", 1)?;
    Client::Python.produce(&broker.bootstrap(), "orders", Codec::Zstd, &records(0, 100, 38 * 60_000))?;
    kcat_reads(&broker, "orders", "billing", 40)?;
    let at_first = group_until(&broker, "billing", "60 are left", |g| g["lag"] == 60 && g["pending_partitions"] == 0)?;
    ensure!(at_first["lag_seconds"].as_f64().is_some_and(|seconds| seconds < 60.0), "{at_first}");
    for passed in 1..38 {
        clock.set_ago(minutes - Duration::from_secs(passed * 60))?;
        let now = group(&broker, "billing")?;
        let seconds = now["lag_seconds"].as_f64().context("known")?;
        let wanted = passed as f64 * 60.0;
        ensure!((wanted - 1.0..wanted + 60.0).contains(&seconds) && now["lag"] == 60, "after {passed} minutes: {now}");
    }
    clock.set_ago(Duration::ZERO)?;
    let behind = group(&broker, "billing")?;
    for field in ["lag_seconds", "event_lag_seconds"] {
        ensure!(behind[field].as_f64().is_some_and(|seconds| (2_279.0..2_340.0).contains(&seconds)), "{field}: {behind}");
    }
    ensure!(partition(&behind, 0)["arrived_ms"].is_i64() && behind["catches_up"] == false, "{behind}");
    // A point each half a minute.
    ensure!(behind["history"].as_array().is_some_and(|history| history.len() >= 38), "{behind}");
    ensure!((2_279.0..2_340.0).contains(&metric(&broker, "kafka_consumergroup_max_lag_seconds{consumergroup=\"billing\"}")?));
    let (fine, said) = cli(&broker, &["lag"])?;
    ensure!(fine && said.contains("38m"), "{said}");
    Ok(())
}

/// Its last commit is a day old, and it was that before a restart too. What came since lies there unread.
#[test]
fn a_group_that_stopped_yesterday_is_a_day_behind() -> Result<()> {
    let clock = Clock::ago(DAY)?;
    let mut broker = start_by(&clock)?;
    Client::Python.create(&broker.bootstrap(), "orders", 1)?;
    Client::Python.produce(&broker.bootstrap(), "orders", Codec::None, &records(0, 30, DAY_MS))?;
    kcat_reads(&broker, "orders", "nightly", 20)?;
    kcat_reads(&broker, "orders", "done", 30)?;
    group_until(&broker, "nightly", "it has stopped", |g| g["state"] == "Empty" && g["lag"] == 10)?;
    clock.set_ago(DAY / 24)?;
    Client::Python.produce(&broker.bootstrap(), "orders", Codec::None, &records(0, 5, DAY_MS / 24))?;
    clock.set_ago(Duration::ZERO)?;
    for restarted in [false, true] {
        if restarted {
            broker.stop()?;
            broker.restart()?;
        }
        let stopped = group_until(&broker, "nightly", "it is behind", |g| g["lag"] == 15 && g["pending_partitions"] == 0)?;
        let at = partition(&stopped, 0);
        for (what, seconds) in
            [("behind", &stopped["lag_seconds"]), ("commit", &at["commit_age_seconds"]), ("stalled", &at["stalled_seconds"])]
        {
            ensure!(seconds.as_f64().is_some_and(|seconds| (86_300.0..86_700.0).contains(&seconds)), "{what}, {restarted}: {stopped}");
        }
        ensure!(
            stopped["members"] == 0 && at["reading"] == "idle" && at["stuck"] == false && stopped["stuck_partitions"] == 0,
            "{stopped}"
        );
        // It had read all there was; what came an hour ago it has not.
        let done = group_until(&broker, "done", "it is behind", |g| g["lag"] == 5 && g["pending_partitions"] == 0)?;
        ensure!(done["lag_seconds"].as_f64().is_some_and(|seconds| (3_500.0..3_900.0).contains(&seconds)), "{restarted}: {done}");
        let age = metric(&broker, "kafka_consumergroup_commit_age_seconds{consumergroup=\"nightly\",topic=\"orders\",partition=\"0\"}")?;
        ensure!((86_300.0..86_700.0).contains(&age), "{age}");
        let (fine, said) = cli(&broker, &["lag", "--max-behind", "12h"])?;
        ensure!(!fine && said.trim_end().ends_with("behind by more than 12h00m: nightly (1d00h)"), "{said}");
    }
    Ok(())
}

/// Old records came a moment ago: by arrival the group is seconds behind, whatever their timestamps say; where arrivals aren't known, as in a
/// directory that Apache Kafka wrote, it is the 38 minutes that they say.
#[test]
fn a_slow_consumer_is_38_minutes_behind() -> Result<()> {
    let mut broker = start()?;
    Client::Python.create(&broker.bootstrap(), "orders", 1)?;
    Client::Python.produce(&broker.bootstrap(), "orders", Codec::Lz4, &records(0, 100, 38 * 60_000))?;
    kcat_reads(&broker, "orders", "billing", 40)?;
    let replayed = group_until(&broker, "billing", "60 are left", |g| g["lag"] == 60)?;
    let seconds = |g: &Value, field: &str| g[field].as_f64().unwrap_or(-1.0);
    ensure!((0.0..60.0).contains(&seconds(&replayed, "lag_seconds")), "{replayed}");
    ensure!((2_280.0..2_340.0).contains(&seconds(&replayed, "event_lag_seconds")), "{replayed}");
    ensure!(partition(&replayed, 0)["arrived_ms"].is_i64() && replayed["catch_up_seconds"].is_null(), "{replayed}");

    broker.stop()?;
    ensure!(broker.data().join("orders-0").join(ARRIVALS).exists(), "arrivals survive a stop");
    broker.restart()?;
    let kept = group_until(&broker, "billing", "60 are left after a restart", |g| g["lag"] == 60 && g["pending_partitions"] == 0)?;
    ensure!(partition(&kept, 0)["arrived_ms"] == partition(&replayed, 0)["arrived_ms"], "{kept}");

    broker.stop()?;
    std::fs::remove_file(broker.data().join("orders-0").join(ARRIVALS))?;
    broker.restart()?;
    let behind = group_until(&broker, "billing", "60 are left without arrivals", |g| g["lag"] == 60 && g["pending_partitions"] == 0)?;
    ensure!((2_280.0..2_400.0).contains(&seconds(&behind, "lag_seconds")), "{behind}");
    ensure!(partition(&behind, 0)["arrived_ms"].is_null() && partition(&behind, 0)["reading"] == "idle", "{behind}");
    ensure!(metric(&broker, "kafka_consumergroup_lag{consumergroup=\"billing\",topic=\"orders\",partition=\"0\"}")? == 60.0);
    ensure!((2_280.0..2_400.0).contains(&metric(&broker, "kafka_consumergroup_max_lag_seconds{consumergroup=\"billing\"}")?));

    let (fine, said) = cli(&broker, &["lag"])?;
    ensure!(fine && said.contains("billing") && said.contains("38m"), "{said}");
    let (fine, said) = cli(&broker, &["lag", "billing", "--max-behind", "1h"])?;
    ensure!(fine && said.contains("idle"), "{said}");
    let (fine, said) = cli(&broker, &["lag", "--max-behind", "5m"])?;
    ensure!(!fine && said.contains("behind by more than 5m00s: billing (38m"), "{said}");
    let (fine, said) = cli(&broker, &["lag", "nobody"])?;
    ensure!(!fine && said.contains("no such group"), "{said}");

    kcat_reads(&broker, "orders", "billing", 60)?;
    let done = group_until(&broker, "billing", "nothing is left", |g| g["lag"] == 0)?;
    ensure!(done["lag_seconds"] == 0.0 && done["catch_up_seconds"] == 0.0 && done["retention_margin_seconds"].is_null(), "{done}");
    let (fine, said) = cli(&broker, &["lag", "--max-behind", "1s"])?;
    ensure!(fine, "{said}");
    Ok(())
}

/// One of two members hangs: its partition falls behind, the other's doesn't, and the story tells when it was thrown out and why.
fn one_stuck_member(client: Client) -> Result<()> {
    let broker = start()?;
    let bootstrap = broker.bootstrap();
    Client::Python.create(&bootstrap, "orders", 2)?;
    let join = |instance| Member::start(client, &bootstrap, "orders", "billing", Strategy::Range, instance);
    let (a, b) = (join(None)?, join(None)?);
    wait_for_even_shares(&[&a, &b], 2)?;
    let produce = |age| Client::Python.produce(&bootstrap, "orders", Codec::None, &[records(0, 10, age), records(1, 10, age)].concat());
    produce(0)?;
    group_until(&broker, "billing", "both have read", |g| {
        g["lag"] == 0 && partition(g, 0)["committed"] == 10 && partition(g, 1)["committed"] == 10
    })?;

    let stuck = usize::from(b.seen().owns.contains(&1));
    b.pause()?;
    produce(0)?;
    let behind = group_until(&broker, "billing", "one partition is stuck", |g| {
        partition(g, stuck)["lag"] == 10 && partition(g, 1 - stuck)["lag"] == 0
    })?;
    ensure!(
        partition(&behind, stuck)["reading"] == "committing"
            && partition(&behind, stuck)["stuck"] == false
            && behind["lag"] == 10
            && behind["max_lag"] == 10,
        "{behind}"
    );
    ensure!(partition(&behind, stuck)["member_id"] != partition(&behind, 1 - stuck)["member_id"], "{behind}");

    let healed =
        group_until(&broker, "billing", "the other has taken over", |g| g["lag"] == 0 && g["members"] == 1 && g["state"] == "Stable")?;
    ensure!(healed["rebalances_by_cause"]["session_expired"] == 1, "{healed}");
    let told = healed["rebalances_list"].as_array().context("a list")?;
    ensure!(
        told.iter().any(|r| r["cause"] == "session_expired" && r["why"].as_str().is_some_and(|why| why.contains("nothing was heard"))),
        "{healed}"
    );
    ensure!(metric(&broker, "kafka_consumergroup_rebalances_total{consumergroup=\"billing\",cause=\"session_expired\"}")? == 1.0);
    let (fine, said) = cli(&broker, &["group", "describe", "billing", "--rebalances"])?;
    ensure!(fine && said.contains("orders[0,1]") && said.contains("nothing was heard"), "{said}");
    let (fine, said) = cli(&broker, &["group", "list"])?;
    ensure!(fine && said.contains("billing") && said.contains("Stable"), "{said}");
    Ok(())
}

#[test]
fn one_stuck_member_of_librdkafka() -> Result<()> {
    one_stuck_member(Client::Python)
}

#[test]
fn one_stuck_member_of_kafka_clients() -> Result<()> {
    one_stuck_member(Client::Java)
}

#[test]
fn a_hot_key_shows_in_its_topic() -> Result<()> {
    let broker = start()?;
    let bootstrap = broker.bootstrap();
    Client::Python.create(&bootstrap, "clicks", 4)?;
    let keyed = |key: &str, count: usize| {
        let record = Record {
            partition: None,
            timestamp: None,
            key: Some(key.as_bytes().to_vec()),
            value: Some(b"v".to_vec()),
            headers: Vec::new(),
        };
        vec![record; count]
    };
    let mut all = keyed("hot", 900);
    (0..100).for_each(|i| all.extend(keyed(&format!("key-{i}"), 1)));
    // A rate is the difference of two looks, so the key stays hot until it shows.
    let rounds = Cell::new(0);
    let clicks = || {
        Client::Python.produce(&bootstrap, "clicks", Codec::None, &all)?;
        rounds.set(rounds.get() + 1);
        json(&broker, "/api/topics/clicks")
    };
    let topic = until("its skew shows", clicks, |t| t["skew"].as_f64().is_some_and(|skew| skew > 3.0))?;
    let hottest = usize::try_from(topic["hottest_partition"].as_u64().context("a hottest one")?)?;
    let of = |p: usize| topic["partitions_list"][p]["high_watermark"].as_i64().unwrap_or(0);
    ensure!(of(hottest) >= 900 * rounds.get() && (0..4).map(of).sum::<i64>() == 1_000 * rounds.get(), "{topic}");
    ensure!(topic["partitions_list"][hottest]["share"].as_f64().is_some_and(|share| share > 0.85), "{topic}");
    ensure!(metric(&broker, "highwater_topic_produce_skew_ratio{topic=\"clicks\"}")? > 3.0);
    Ok(())
}

fn a_new_group_starts_at_the_earliest_record(client: Client) -> Result<()> {
    let broker = start()?;
    let bootstrap = broker.bootstrap();
    Client::Python.create(&bootstrap, "history", 2)?;
    Client::Python.produce(&bootstrap, "history", Codec::Zstd, &[records(0, 500, 86_400_000), records(1, 500, 86_400_000)].concat())?;
    let newcomer = Member::start(client, &bootstrap, "history", "newcomer", Strategy::Range, None)?;
    let reads = group_until(&broker, "newcomer", "it is there", |g| g["members"] == 1 && g["partitions"] == 2)?;
    ensure!(reads["lost_records"] == 0 && reads["abandoned_partitions"] == 0, "{reads}");
    ensure!(reads["lag"].as_i64().is_some_and(|lag| (0..=1_000).contains(&lag)), "{reads}");
    newcomer.wait_until("it has read all", |seen| seen.records.len() == 1_000)?;
    let done = group_until(&broker, "newcomer", "it has caught up", |g| {
        g["lag"] == 0 && (0..2).all(|p| partition(g, p)["reading"] == "committing" && partition(g, p)["committed"] == 500)
    })?;
    ensure!(done["lag_seconds"] == 0.0 && done["uncommitted_partitions"] == 0, "{done}");
    newcomer.close()?;
    Ok(())
}

#[test]
fn a_new_group_of_franz_starts_at_the_earliest_record() -> Result<()> {
    a_new_group_starts_at_the_earliest_record(Client::Franz)
}

#[test]
fn a_new_group_of_kafkajs_starts_at_the_earliest_record() -> Result<()> {
    a_new_group_starts_at_the_earliest_record(Client::Node)
}

/// Nobody is in it any more; it falls behind, loses what retention takes, and is told from one that reads another topic now.
#[test]
fn a_group_that_stopped_falls_behind_and_loses_records() -> Result<()> {
    let broker = start()?;
    let bootstrap = broker.bootstrap();
    for topic in ["orders", "payments"] {
        Client::Python.create(&bootstrap, topic, 1)?;
        Client::Python.produce(&bootstrap, topic, Codec::None, &records(0, 20, 0))?;
    }
    kcat_reads(&broker, "orders", "stopped", 20)?;
    kcat_reads(&broker, "orders", "moved on", 20)?;
    Client::Python.produce(&bootstrap, "orders", Codec::None, &records(0, 30, 0))?;
    let stopped = group_until(&broker, "stopped", "it is behind", |g| g["lag"] == 30 && g["pending_partitions"] == 0)?;
    ensure!(stopped["state"] == "Empty" && partition(&stopped, 0)["reading"] == "idle", "{stopped}");
    ensure!(stopped["catch_up_seconds"].is_null() && stopped["last_commit_ms"].is_i64(), "{stopped}");

    delete_records(&broker, "orders", 35)?;
    let lost = group_until(&broker, "stopped", "records are lost", |g| g["lost_records"] == 15)?;
    ensure!(lost["lag"] == 15 && partition(&lost, 0)["committed"] == 20 && partition(&lost, 0)["log_start"] == 35, "{lost}");
    ensure!(metric(&broker, "kafka_consumergroup_lost_records_total{consumergroup=\"stopped\",topic=\"orders\"}")? == 15.0);

    // The other one's members read another topic now.
    let member = Member::start(Client::Python, &bootstrap, "payments", "moved on", Strategy::Range, None)?;
    let moved = group_until(&broker, "moved on", "its old topic is abandoned", |g| {
        g["abandoned_partitions"] == 1 && g["members"] == 1 && g["lag_seconds"].is_f64()
    })?;
    ensure!(moved["lag_seconds"].as_f64().is_some_and(|seconds| seconds < 30.0), "{moved}");
    let readings: Vec<_> =
        moved["partitions_list"].as_array().context("a list")?.iter().map(|p| (p["topic"].clone(), p["reading"].clone())).collect();
    ensure!(readings.contains(&("orders".into(), "abandoned".into())), "{moved}");
    member.close()?;
    Ok(())
}

/// kafka-delete-records, for the only partition of a topic.
fn delete_records(broker: &Broker, topic: &str, before: i64) -> Result<()> {
    use kafka_protocol::messages::{
        DeleteRecordsRequest, TopicName,
        delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
    };
    use kafka_protocol::protocol::StrBytes;
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(before);
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    let asked = DeleteRecordsRequest::default()
        .with_topics(vec![DeleteRecordsTopic::default().with_name(name).with_partitions(vec![partition])])
        .with_timeout_ms(10_000);
    let answer = broker.connect()?.ask(2, &asked)?;
    let error = answer.topics[0].partitions[0].error_code;
    ensure!(error == 0, "error {error}");
    Ok(())
}

/// Keys and values as they are, JSON as JSON, and a page back.
#[test]
fn records_can_be_read() -> Result<()> {
    let broker = start()?;
    Client::Python.create(&broker.bootstrap(), "orders", 1)?;
    let values: [&[u8]; 3] = [b"{\"id\":1}", b"plain", b"\x00\xff"];
    let sent = values.map(|value| Record {
        partition: Some(0),
        timestamp: Some(1_700_000_000_000),
        key: Some(b"k".to_vec()),
        value: Some(value.to_vec()),
        headers: vec![("trace".to_owned(), Some(b"7".to_vec()))],
    });
    Client::Python.produce(&broker.bootstrap(), "orders", Codec::Gzip, &sent)?;
    let none = http::get(broker.http().context("HTTP is on")?, "/api/topics/orders/partitions/0/records?from=0&limit=0")?;
    ensure!(none.status == 400 && none.body.contains("1 or more"), "a page that never goes on: {none:?}");
    let page = json(&broker, "/api/topics/orders/partitions/0/records?limit=2")?;
    ensure!(page["end"] == 3 && page["next"] == 3 && page["previous"] == 0 && page["truncated"] == false, "{page}");
    let shown: Vec<_> =
        page["records"].as_array().context("a list")?.iter().map(|r| (r["offset"].clone(), r["value"]["format"].clone())).collect();
    ensure!(shown == [(1.into(), "text".into()), (2.into(), "hex".into())], "{page}");
    let first = json(&broker, "/api/topics/orders/partitions/0/records?from=0&limit=1")?;
    let record = &first["records"][0];
    ensure!(record["value"]["format"] == "json" && record["value"]["text"] == "{\"id\":1}" && record["key"]["text"] == "k", "{first}");
    ensure!(record["headers"][0]["key"] == "trace" && record["timestamp_ms"] == 1_700_000_000_000_i64 && first["next"] == 1, "{first}");
    Ok(())
}

/// Both partitions have records to read; five minutes later their owner, which is there and well, has taken a step in one of them.
#[test]
fn a_partition_whose_owner_takes_no_step_for_five_minutes_is_stuck() -> Result<()> {
    let clock = Clock::ago(DAY)?;
    let broker = start_by(&clock)?;
    let mut client = broker.connect()?;
    ensure!(create(&mut client, "orders", 2, &[])? == 0);
    Client::Python.produce(&broker.bootstrap(), "orders", Codec::None, &[records(0, 10, DAY_MS), records(1, 10, DAY_MS)].concat())?;
    let seat = Seat::take(broker.kafka(), "billing", "worker", &[("orders".to_owned(), 2)])?;
    seat.wait_for(2)?;
    seat.commit("orders", 0, 5)?;
    seat.commit("orders", 1, 5)?;
    group_until(&broker, "billing", "both are behind", |g| g["lag"] == 10 && g["stuck_partitions"] == 0 && g["pending_partitions"] == 0)?;
    clock.set_ago(DAY - Duration::from_secs(310))?;
    seat.commit("orders", 0, 8)?;
    // The same once more is no step.
    seat.commit("orders", 1, 5)?;
    let stuck = group_until(&broker, "billing", "one is stuck", |g| g["stuck_partitions"] == 1 && g["pending_partitions"] == 0)?;
    ensure!(partition(&stuck, 1)["stuck"] == true && partition(&stuck, 0)["stuck"] == false, "{stuck}");
    ensure!(partition(&stuck, 1)["stalled_seconds"].as_f64().is_some_and(|seconds| seconds >= 300.0), "{stuck}");
    ensure!(metric(&broker, "kafka_consumergroup_stuck_partitions{consumergroup=\"billing\"}")? == 1.0);
    let (fine, said) = cli(&broker, &["lag", "billing"])?;
    ensure!(fine && said.contains("committing, stuck"), "{said}");
    seat.commit("orders", 1, 10)?;
    group_until(&broker, "billing", "it goes on", |g| g["stuck_partitions"] == 0 && g["lag"] == 2)?;
    seat.leave()
}

/// `--watch` looks again and again and tells what has changed; it ends well when nobody reads it any more, and with 1 when a group is further
/// behind than it may be.
#[test]
fn watching_tells_what_changes_and_ends_when_it_is_too_much() -> Result<()> {
    let clock = Clock::ago(DAY)?;
    let broker = start_by(&clock)?;
    Client::Python.create(&broker.bootstrap(), "orders", 1)?;
    Client::Python.produce(&broker.bootstrap(), "orders", Codec::None, &records(0, 10, DAY_MS))?;
    kcat_reads(&broker, "orders", "billing", 4)?;
    group_until(&broker, "billing", "six are left", |g| g["lag"] == 6 && g["pending_partitions"] == 0)?;
    let url = format!("http://{}", broker.http().context("HTTP is on")?);
    let watch = |more: &[&str]| {
        let mut command = Command::new(tools::highwater()?);
        command.args(["lag", "--watch", "--url", &url]).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("start highwater lag")
    };
    let mut unread = watch(&[])?;
    let mut lines = BufReader::new(unread.stdout.take().context("it is piped")?).lines();
    let mut wait_for = |lag: &str| -> Result<()> {
        loop {
            let line = lines.next().context("it ended")??;
            // Group, state, members, lag.
            if line.split_whitespace().nth(3) == Some(lag) {
                return Ok(());
            }
        }
    };
    wait_for("6")?;
    Client::Python.produce(&broker.bootstrap(), "orders", Codec::None, &records(0, 7, DAY_MS))?;
    wait_for("13")?;
    drop(lines);
    ensure!(unread.wait()?.success(), "a pipe that is closed is no failure");

    let mut judged = watch(&["--max-behind", "30m"])?;
    let mut lines = BufReader::new(judged.stdout.take().context("it is piped")?).lines();
    ensure!(lines.next().context("it ended")??.starts_with("GROUP"));
    clock.set_ago(DAY - Duration::from_secs(38 * 60))?;
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    ensure!(rest.last().is_some_and(|line| line.contains("38m")), "{rest:?}");
    let output = judged.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && said.contains("behind by more than 30m00s: billing (38m"), "{output:?}");
    Ok(())
}
