//! What no client should do to the lag, and some do: commits beyond the end and below the start, topics deleted and made again, groups with
//! names of any kind, timestamps of any time. Never negative, never healthy by mistake, never a broken line.
#![allow(clippy::disallowed_methods, reason = "it waits for programs of others, by their clock")]

use std::process::Command;

use anyhow::{Context, Result, ensure};
use compat_tests::api::{group, group_until, json, metric, partition};
use compat_tests::batch::Batch;
use compat_tests::prometheus::{Prometheus, check_metrics};
use compat_tests::seat::commit_alone;
use compat_tests::steady::{create, delete, produce};
use compat_tests::wire::Client;
use compat_tests::{Broker, http, tools};

fn start() -> Result<(Broker, Client)> {
    let broker = Broker::start_with(&[("group.initial.rebalance.delay.ms", "0"), ("offsets.topic.num.partitions", "4")])?;
    let client = broker.connect()?;
    Ok((broker, client))
}

/// A batch of `count` records of that timestamp.
fn send(client: &mut Client, topic: &str, timestamp_ms: i64, count: usize) -> Result<()> {
    let batch = Batch::of_values(timestamp_ms, &vec![&b"v"[..]; count]);
    let answer = client.ask(9, &produce(topic, 0, batch.encode()))?;
    let code = answer.responses[0].partition_responses[0].error_code;
    ensure!(code == 0, "a batch of {timestamp_ms} was answered {code}");
    Ok(())
}

/// The log is not the one that was read: nothing is left, and that is not well.
#[test]
fn a_commit_beyond_the_end_is_told_from_one_at_the_end() -> Result<()> {
    let (broker, mut client) = start()?;
    ensure!(create(&mut client, "orders", 1, &[])? == 0);
    send(&mut client, "orders", 0, 10)?;
    commit_alone(&mut client, "ahead", &[("orders", 0, 25)])?;
    commit_alone(&mut client, "far ahead", &[("orders", 0, i64::MAX)])?;
    commit_alone(&mut client, "at the end", &[("orders", 0, 10)])?;
    for (name, beyond) in [("ahead", 15), ("far ahead", i64::MAX - 10)] {
        let told = group_until(&broker, name, "it is seen", |g| g["beyond_end_partitions"] == 1)?;
        ensure!(told["lag"] == 0 && told["lag_seconds"] == 0.0 && partition(&told, 0)["beyond_end"] == beyond, "{told}");
        ensure!(metric(&broker, &format!("kafka_consumergroup_beyond_end_partitions{{consumergroup=\"{name}\"}}"))? == 1.0);
        ensure!(metric(&broker, &format!("kafka_consumergroup_lag{{consumergroup=\"{name}\",topic=\"orders\",partition=\"0\"}}"))? == 0.0);
    }
    let well = group(&broker, "at the end")?;
    ensure!(well["lag"] == 0 && well["beyond_end_partitions"] == 0 && partition(&well, 0)["beyond_end"] == 0, "{well}");
    let (fine, said) = lag_of(&broker, "ahead")?;
    ensure!(fine && said.contains("idle, beyond the end"), "{said}");
    // The log grows past it: from there on it is an offset like another.
    send(&mut client, "orders", 0, 20)?;
    group_until(&broker, "ahead", "it is behind", |g| g["beyond_end_partitions"] == 0 && g["lag"] == 5)?;
    Ok(())
}

/// Whoever made the topic again made another one: nothing of the group's old commits counts for it.
#[test]
fn a_topic_made_again_begins_without_the_old_commits() -> Result<()> {
    let (broker, mut client) = start()?;
    ensure!(create(&mut client, "orders", 1, &[])? == 0);
    ensure!(create(&mut client, "others", 1, &[])? == 0);
    send(&mut client, "orders", 0, 100)?;
    send(&mut client, "others", 0, 3)?;
    commit_alone(&mut client, "billing", &[("orders", 0, 80), ("others", 0, 1)])?;
    group_until(&broker, "billing", "it is behind on both", |g| g["lag"] == 22 && g["pending_partitions"] == 0)?;
    ensure!(delete(&mut client, "orders")? == 0);
    let gone = group_until(&broker, "billing", "the deleted topic is gone from it", |g| g["partitions"] == 1 && g["lag"] == 2)?;
    ensure!(gone["topics"] == serde_json::json!(["others"]), "{gone}");
    let series = "kafka_consumergroup_lag{consumergroup=\"billing\",topic=\"orders\",partition=\"0\"}";
    ensure!(metric(&broker, series).is_err(), "a deleted topic's lag is still exported");

    ensure!(create(&mut client, "orders", 1, &[])? == 0);
    send(&mut client, "orders", 0, 5)?;
    let again = group(&broker, "billing")?;
    ensure!(again["partitions"] == 1 && again["lag"] == 2 && again["lost_records"] == 0 && again["beyond_end_partitions"] == 0, "{again}");
    // From its first commit to the new one on, it counts anew.
    commit_alone(&mut client, "billing", &[("orders", 0, 3)])?;
    let counted = group_until(&broker, "billing", "the new topic counts", |g| g["partitions"] == 2 && g["pending_partitions"] == 0)?;
    ensure!(counted["lag"] == 4 && counted["lost_records"] == 0, "{counted}");
    ensure!(metric(&broker, series)? == 2.0);
    Ok(())
}

/// A commit below the start stands at the start; what is missing between is counted as lost.
#[test]
fn a_commit_below_the_start_counts_from_the_start() -> Result<()> {
    use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
    use kafka_protocol::messages::{DeleteRecordsRequest, TopicName};
    use kafka_protocol::protocol::StrBytes;
    let (broker, mut client) = start()?;
    ensure!(create(&mut client, "orders", 1, &[])? == 0);
    send(&mut client, "orders", 0, 30)?;
    let partitions = vec![DeleteRecordsPartition::default().with_partition_index(0).with_offset(12)];
    let topic = DeleteRecordsTopic::default().with_name(TopicName(StrBytes::from_static_str("orders"))).with_partitions(partitions);
    let answer = client.ask(2, &DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000))?;
    ensure!(answer.topics[0].partitions[0].error_code == 0);
    commit_alone(&mut client, "late", &[("orders", 0, 5)])?;
    let late = group_until(&broker, "late", "it is looked up", |g| g["lag"] == 18 && g["pending_partitions"] == 0)?;
    ensure!(late["lost_records"] == 7 && partition(&late, 0)["first_unconsumed"] == 12, "{late}");
    Ok(())
}

/// Of no time, of 1970, of 2300, of before 1970 as far as the protocol goes: never negative, never NaN; what isn't known is null.
#[test]
fn timestamps_of_any_time_give_no_negative_time() -> Result<()> {
    let (broker, mut client) = start()?;
    let far = [("message.timestamp.after.max.ms", "9223372036854775807")];
    for (topic, timestamp, is_known) in [("none", -1, false), ("epoch", 0, true), ("future", 10_413_792_000_000, true)] {
        ensure!(create(&mut client, topic, 1, &far)? == 0);
        send(&mut client, topic, timestamp, 4)?;
        commit_alone(&mut client, &format!("of {topic}"), &[(topic, 0, 1)])?;
        let told = group_until(&broker, &format!("of {topic}"), "it is looked up", |g| g["lag"] == 3 && g["pending_partitions"] == 0)?;
        let behind = told["lag_seconds"].as_f64().context("the arrival is known")?;
        ensure!((0.0..60.0).contains(&behind), "{topic}: {told}");
        match told["event_lag_seconds"].as_f64() {
            Some(seconds) => ensure!(is_known && seconds >= 0.0, "{topic}: {told}"),
            None => ensure!(!is_known, "{topic}: {told}"),
        }
        ensure!(partition(&told, 0)["oldest_unconsumed_ms"].is_i64() == is_known, "{topic}: {told}");
    }
    let text = http::get(broker.http().context("HTTP is on")?, "/metrics")?.body;
    let values = text.lines().filter(|line| line.starts_with("kafka_consumergroup")).filter_map(|line| line.rsplit(' ').next());
    for value in values {
        ensure!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{value}");
    }
    check_metrics(&text)
}

/// One batch that nobody can decompress takes nothing of its partition away: it is shown as that, and pages lead past it.
#[test]
fn records_behind_a_batch_that_cannot_be_decoded_are_shown() -> Result<()> {
    const GZIP: i16 = 1;
    let (broker, mut client) = start()?;
    ensure!(create(&mut client, "orders", 1, &[])? == 0);
    send(&mut client, "orders", 0, 2)?;
    let mut broken = Batch::of_values(0, &[&b"v"[..]; 3]).with(|header| header.attributes = GZIP);
    // The first bytes are gzip's, which is all that the broker looks at before it stores a batch.
    broken.records = bytes::Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 0xde, 0xad, 0xbe, 0xef]);
    let answer = client.ask(9, &produce("orders", 0, broken.encode()))?;
    ensure!(answer.responses[0].partition_responses[0].error_code == 0, "it is stored");
    send(&mut client, "orders", 0, 2)?;
    let whole = json(&broker, "/api/topics/orders/partitions/0/records")?;
    let (mut from, mut paged) = (0, Vec::new());
    while from < 7 {
        let page = json(&broker, &format!("/api/topics/orders/partitions/0/records?from={from}&limit=1"))?;
        ensure!(page["next"].as_i64().is_some_and(|next| next > from), "stuck at {from}: {page}");
        from = page["next"].as_i64().context("a page has a next one")?;
        paged.extend(page["records"].as_array().cloned().unwrap_or_default());
    }
    ensure!(whole["records"] == serde_json::Value::Array(paged), "{whole}");
    let items = whole["records"].as_array().context("there are records")?;
    let of = |item: &serde_json::Value| (item["kind"].as_str().map(str::to_owned), item["offset"].as_i64(), item["last_offset"].as_i64());
    let wanted = [("record", 0, None), ("record", 1, None), ("unreadable", 2, Some(4)), ("record", 5, None), ("record", 6, None)];
    let wanted = wanted.map(|(kind, offset, last)| (Some(kind.to_owned()), Some(offset), last));
    ensure!(items.iter().map(of).eq(wanted), "{whole}");
    ensure!(items[2]["error"].as_str().is_some_and(|why| why.contains("malformed")), "{whole}");
    Ok(())
}

/// Quotes, newlines, markup, a kilobyte, and what a URL takes for a folder: each is found under its own name by the API, by Prometheus and
/// on the command line.
#[test]
fn groups_of_any_name_are_found_by_it() -> Result<()> {
    let (broker, mut client) = start()?;
    ensure!(create(&mut client, "orders", 1, &[])? == 0);
    send(&mut client, "orders", 0, 10)?;
    let long = "x".repeat(1_024);
    let names = [
        ".",
        "..",
        "a/b",
        "quo\"te",
        "new\nline",
        "back\\slash",
        "%2e%2e",
        "?name=x&y#z",
        "{a=\"b\"} 7",
        "Grüße 🚀",
        " ",
        "a b",
        "a+b",
        &long,
    ];
    for name in names {
        commit_alone(&mut client, name, &[("orders", 0, 4)])?;
    }
    let prometheus = Prometheus::start(broker.http().context("HTTP is on")?, None)?;
    for name in names {
        let told = group_until(&broker, name, "it is looked up", |g| g["lag"] == 6 && g["pending_partitions"] == 0)?;
        ensure!(told["group"] == name, "{told}");
        let found = json(&broker, &format!("/api/groups?find={}", http::encoded(name)))?;
        ensure!(found["groups"].as_array().is_some_and(|groups| groups.iter().any(|group| group["group"] == name)), "{found}");
        let (ok, said) = lag_of(&broker, name)?;
        ensure!(ok && said.contains("orders"), "{name:?}: {said}");
    }
    // As forms encode it.
    for (query, name) in [("a+b", "a b"), ("a%20b", "a b"), ("a%2Bb", "a+b"), ("+", " ")] {
        ensure!(json(&broker, &format!("/api/group?name={query}"))?["group"] == name, "{query}");
    }
    let wanted: std::collections::BTreeSet<&str> = names.into();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let samples = prometheus.query("kafka_consumergroup_lag == 6")?;
        let seen = samples.iter().filter_map(|sample| sample.labels["consumergroup"].as_str()).collect();
        if wanted == seen {
            return Ok(());
        }
        ensure!(std::time::Instant::now() < deadline, "Prometheus sees {seen:?}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn lag_of(broker: &Broker, name: &str) -> Result<(bool, String)> {
    let url = format!("http://{}", broker.http().context("HTTP is on")?);
    let output = Command::new(tools::highwater()?).args(["lag", name, "--url", &url]).output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
}
