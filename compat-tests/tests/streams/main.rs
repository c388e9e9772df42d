//! Kafka Streams, the heaviest user of transactions: its outputs are what they have to be, record by record, however often the broker and
//! the application end in the middle, killed or not; and its internal topics are made, configured and trimmed as on Apache Kafka.

#![allow(clippy::disallowed_methods, reason = "it waits for programs of others, by their clock")]

mod input;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use compat_tests::ApacheKafka;
use compat_tests::api::group_until;
use compat_tests::broker::Broker;
use compat_tests::steady::{self, create};
use compat_tests::streams::{Application, Instance, reset};
use compat_tests::wire::Client;
use input::{Given, PARTITIONS, TOPICS};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::{ApiVersionsRequest, BrokerId, ListOffsetsRequest, TopicName, UpdateFeaturesRequest};
use kafka_protocol::protocol::StrBytes;

const WAIT: Duration = Duration::from_secs(90);
const BETWEEN: Duration = Duration::from_millis(5);
const ROUNDS: usize = 600;
const ROUNDS_AT_ONCE: usize = 10;
/// Kafka's `FeatureUpdate.UpgradeType`.
const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
/// StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071).
const STREAMS_GROUP_APIS: [i16; 2] = [88, 89];
const OUTPUTS: [&str; 3] = ["counts", "windowed", "joined"];
/// Repartition topics of the topologies `counts` and `joins`, without their application's id.
const REPARTITIONED: [&str; 3] = ["words-repartition", "left-repartition", "right-repartition"];
/// A member that was killed is waited for as long as that.
const SESSION: (&str, &str) = ("session.timeout.ms", "2000");

/// A broker whose segments are short in time and compacted soon, and which is quick to see what has timed out.
fn broker() -> Result<Broker> {
    Broker::start_with(&[
        ("offsets.topic.num.partitions", "3"),
        ("transaction.state.log.num.partitions", "3"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.min.session.timeout.ms", "1000"),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200"),
        ("log.roll.ms", "1000"),
        ("log.cleaner.backoff.ms", "200"),
        ("log.cleaner.min.cleanable.ratio", "0.01"),
    ])
}

/// 1: the flow before KIP-890; 2: its.
fn set_transaction_version(broker: &Broker, level: i16) -> Result<()> {
    let update = FeatureUpdateKey::default()
        .with_feature(StrBytes::from_static_str("transaction.version"))
        .with_max_version_level(level)
        .with_upgrade_type(if level < 2 { SAFE_DOWNGRADE } else { UPGRADE });
    let answer = broker.connect()?.ask(1, &UpdateFeaturesRequest::default().with_timeout_ms(30_000).with_feature_updates(vec![update]))?;
    ensure!(answer.error_code == 0, "UpdateFeatures was answered {answer:?}");
    Ok(())
}

fn make_topics(broker: &Broker, topics: &[&str]) -> Result<()> {
    make_topics_by(&mut broker.connect()?, topics)
}

fn make_topics_by(client: &mut Client, topics: &[&str]) -> Result<()> {
    for topic in topics {
        let code = create(client, topic, i32::try_from(PARTITIONS)?, &[])?;
        ensure!(code == 0, "CreateTopics of {topic} was answered {code}");
    }
    Ok(())
}

/// Offsets that ListOffsets tells, as its timestamp and isolation level.
#[derive(Clone, Copy, Debug)]
enum At {
    Start,
    /// Behind the last record that is committed or aborted.
    Stable,
    End,
}

/// The offsets of all partitions of a topic, added up.
fn offsets(client: &mut Client, topic: &str, at: At) -> Result<i64> {
    let (timestamp, isolation_level) = match at {
        At::Start => (-2, 0),
        At::Stable => (-1, 1),
        At::End => (-1, 0),
    };
    let partition = |index| ListOffsetsPartition::default().with_partition_index(index).with_timestamp(timestamp);
    let partitions = (0..i32::try_from(PARTITIONS)?).map(partition).collect();
    let topics =
        vec![ListOffsetsTopic::default().with_name(TopicName(StrBytes::from_string(topic.to_owned()))).with_partitions(partitions)];
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_isolation_level(isolation_level).with_topics(topics);
    let answer = client.ask(5, &request)?;
    let answered = &answer.topics.first().context("no topic is answered")?.partitions;
    let refused = answered.iter().find(|partition| partition.error_code != 0);
    ensure!(refused.is_none(), "ListOffsets of {topic} was answered {refused:?}");
    Ok(answered.iter().map(|partition| partition.offset).sum())
}

/// Whether a transaction is open that has counted something.
fn is_open(client: &mut Client) -> Result<bool> {
    Ok(offsets(client, "counts", At::Stable)? < offsets(client, "counts", At::End)?)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WAIT;
    while !is_so().with_context(|| format!("waiting until {what}"))? {
        ensure!(Instant::now() < deadline, "after {WAIT:?} it is not so that {what}");
        thread::sleep(BETWEEN);
    }
    Ok(())
}

/// Writes `given` until the application is in the middle of it, which for exactly once is in the middle of a transaction. The rest, which is
/// still to be written.
fn begin<'a>(broker: &Broker, application: &Instance, given: &'a [Given]) -> Result<&'a [Given]> {
    let mut client = broker.connect()?;
    let mut rest = given;
    while !rest.is_empty() {
        let part;
        (part, rest) = rest.split_at(rest.len().min(TOPICS.len() * ROUNDS_AT_ONCE));
        let (stable, end) = (offsets(&mut client, "counts", At::Stable)?, offsets(&mut client, "counts", At::End)?);
        input::write(&mut client, part)?;
        let mut open = false;
        wait_until("some of the input is counted", || {
            application.check()?;
            // One before may have left a transaction open.
            open = is_open(&mut client)? && offsets(&mut client, "counts", At::End)? > end;
            Ok(open || offsets(&mut client, "counts", At::Stable)? > stable)
        })?;
        if open {
            break;
        }
    }
    Ok(rest)
}

/// Writes the rest of a part.
fn write_rest(broker: &Broker, rest: &[Given]) -> Result<()> {
    let mut client = broker.connect()?;
    rest.chunks(TOPICS.len() * ROUNDS_AT_ONCE).try_for_each(|part| input::write(&mut client, part))
}

/// Waits until the outputs have at least as many records.
fn wait_for(broker: &Broker, application: &Instance, outputs: &[(&str, usize)]) -> Result<()> {
    let (bootstrap, mut client) = (broker.bootstrap(), broker.connect()?);
    let mut missing = outputs.to_vec();
    let outcome = wait_until("all outputs are there", || {
        application.check()?;
        while let Some((topic, wanted)) = missing.last() {
            // Offsets are cheap to ask for, but markers and what is aborted have some, too.
            let enough = usize::try_from(offsets(&mut client, topic, At::Stable)?)? >= *wanted;
            if !enough || input::output(&bootstrap, topic)?.len() < *wanted {
                return Ok(false);
            }
            missing.pop();
        }
        Ok(true)
    });
    outcome.with_context(|| format!("{missing:?} are missing; {}", application.tail()))
}

/// Every update of a key counts up by one from 1 on, to what it has to be; and as many `times` over.
fn ensure_counted_up(topic: &str, records: &[(String, String)], wanted: &BTreeMap<String, usize>, times: usize) -> Result<()> {
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for (key, value) in records {
        let wanted = *wanted.get(key).with_context(|| format!("{topic}: {key} comes from nowhere"))?;
        let updates = counted.entry(key).or_default();
        let count = *updates % wanted + 1;
        *updates += 1;
        ensure!(*value == count.to_string(), "{topic}: update {updates} of {key} is {value}, not {count}");
    }
    let differs = wanted.iter().find(|(key, count)| counted.get(key.as_str()).copied() != Some(times * **count));
    ensure!(differs.is_none(), "{topic}: {differs:?} came out as {:?}", differs.map(|(key, _)| counted.get(key.as_str())));
    Ok(())
}

/// The outputs are those of each record of the input once.
fn ensure_exactly_once(broker: &Broker, given: &[Given]) -> Result<()> {
    let bootstrap = broker.bootstrap();
    ensure_counted_up("counts", &input::output(&bootstrap, "counts")?, &input::counts(given), 1)?;
    ensure_counted_up("windowed", &input::output(&bootstrap, "windowed")?, &input::windowed(given), 1)?;
    let records = input::output(&bootstrap, "joined")?;
    let joined: BTreeSet<String> = records.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    ensure!(joined.len() == records.len(), "{} of {} joined pairs are there twice", records.len() - joined.len(), records.len());
    let wanted = input::joined(given);
    let (lost, surplus) = (wanted.difference(&joined).count(), joined.difference(&wanted).count());
    ensure!(joined == wanted, "joined: of {} pairs {lost} are lost; {surplus} are none", wanted.len());
    Ok(())
}

fn wait_for_all(broker: &Broker, application: &Instance, given: &[Given]) -> Result<()> {
    let words = input::counts(given).values().sum();
    wait_for(broker, application, &[("counts", words), ("windowed", words), ("joined", input::joined(given).len())])
}

/// What was read from them for good is deleted from the repartition topics, all of it.
fn wait_until_trimmed(broker: &Broker, id: &str) -> Result<()> {
    let mut client = broker.connect()?;
    for topic in REPARTITIONED {
        let topic = format!("{id}-{topic}");
        wait_until(&format!("{topic} is trimmed"), || {
            let (start, end) = (offsets(&mut client, &topic, At::Start)?, offsets(&mut client, &topic, At::Stable)?);
            Ok(start > 0 && end - start <= 2 * i64::try_from(PARTITIONS)?)
        })?;
    }
    Ok(())
}

/// Nothing is left to read, of the input and of the repartition topics, and nothing was deleted from those before it was read: markers
/// aren't waited for, what aborted transactions wrote isn't missed.
fn wait_until_read(broker: &Broker, id: &str) -> Result<()> {
    let partitions = (TOPICS.len() + REPARTITIONED.len()) * PARTITIONS;
    let group = group_until(broker, id, "it has read everything", |group| {
        let number = |name: &str| group[name].as_u64();
        number("partitions") == Some(partitions as u64) && number("lag") == Some(0) && number("pending_partitions") == Some(0)
    })?;
    ensure!(group["lost_records"] == 0, "{group}");
    Ok(())
}

/// What ends in the middle of the input, and starts again.
#[derive(Clone, Copy, Debug)]
enum Restart {
    BrokerKilled,
    BrokerStopped,
    ApplicationKilled,
    ApplicationClosed,
    BothKilled,
}

/// An application that has read its input, and what is known of its way there.
struct Ran {
    broker: Broker,
    instance: Instance,
    /// How many transactions were left open by an instance that was killed.
    left_open: usize,
}

/// Runs `counts` and `joins` over the input, with a restart in the middle of each part of it.
fn run_over(restarts: &[Restart], application: &Application, given: &[Given]) -> Result<Ran> {
    let mut broker = broker()?;
    make_topics(&broker, &[&TOPICS[..], &OUTPUTS].concat())?;
    let mut instance = application.start(&broker.bootstrap())?;
    let mut left_open = 0;
    for (part, what) in given.chunks(given.len() / restarts.len() + 1).zip(restarts) {
        let rest = begin(&broker, &instance, part)?;
        // An application that is killed is killed in the middle of the transaction that was seen, not after the one that followed.
        let is_killed = matches!(what, Restart::ApplicationKilled | Restart::BothKilled);
        if !is_killed {
            write_rest(&broker, rest)?;
        }
        match what {
            Restart::BrokerKilled => {
                broker.kill()?;
                broker.restart()?;
            }
            Restart::BrokerStopped => {
                let status = broker.stop()?;
                ensure!(status.success(), "the broker ended with {status}");
                broker.restart()?;
            }
            Restart::ApplicationClosed => {
                instance.close()?;
                instance = application.start(&broker.bootstrap())?;
            }
            Restart::ApplicationKilled | Restart::BothKilled => {
                if matches!(what, Restart::BothKilled) {
                    broker.kill()?;
                }
                instance.kill()?;
                if matches!(what, Restart::BothKilled) {
                    broker.restart()?;
                }
                left_open += usize::from(is_open(&mut broker.connect()?)?);
                write_rest(&broker, rest)?;
                instance = application.start(&broker.bootstrap())?;
            }
        }
    }
    wait_for_all(&broker, &instance, given)?;
    Ok(Ran { broker, instance, left_open })
}

#[test]
fn exactly_once_is_exact_over_restarts_of_broker_and_application() -> Result<()> {
    use Restart::{ApplicationClosed, ApplicationKilled, BothKilled, BrokerKilled, BrokerStopped};
    let restarts = [BrokerKilled, ApplicationKilled, BrokerStopped, ApplicationClosed, BothKilled, BrokerKilled];
    let application = Application::new("exact", "counts,joins", &[("processing.guarantee", "exactly_once_v2"), SESSION])?;
    let given = input::lines_and_pairs(ROUNDS)?;
    let (most, rest) = given.split_at(given.len() / TOPICS.len() / 4 * 3 * TOPICS.len());
    let Ran { broker, instance, left_open } = run_over(&restarts, &application, most)?;
    ensure!(left_open > 0, "no instance was killed in the middle of a transaction");
    wait_until_trimmed(&broker, "exact")?;
    wait_until_read(&broker, "exact")?;

    // A little more, later than before, closes the segments that have most of it.
    let (mut rest, updates) = (rest.chunks(TOPICS.len() * 2), input::counts(most).values().sum::<usize>());
    wait_until("the changelog is compacted", || {
        rest.next().map_or(Ok(()), |part| input::write(&mut broker.connect()?, part))?;
        Ok(input::output(&broker.bootstrap(), "exact-counts-store-changelog")?.len() < updates / 2)
    })?;
    // What was killed has no state but what it restores.
    instance.kill()?;
    rest.try_for_each(|part| input::write(&mut broker.connect()?, part))?;
    let instance = application.start(&broker.bootstrap())?;
    wait_for_all(&broker, &instance, &given)?;
    instance.close()?;
    ensure_exactly_once(&broker, &given)
}

#[test]
fn at_least_once_loses_nothing_over_restarts_of_broker_and_application() -> Result<()> {
    use Restart::{ApplicationClosed, ApplicationKilled, BothKilled, BrokerKilled};
    let restarts = [ApplicationKilled, BrokerKilled, ApplicationClosed, BothKilled];
    // A static member is the same one after its restart, and nobody waits for the one before.
    let options = [("processing.guarantee", "at_least_once"), ("group.instance.id", "the-one")];
    let given = input::lines_and_pairs(ROUNDS)?;
    let Ran { broker, instance, .. } = run_over(&restarts, &Application::new("least", "counts,joins", &options)?, &given)?;
    wait_until_trimmed(&broker, "least")?;
    wait_until_read(&broker, "least")?;
    instance.close()?;
    let bootstrap = broker.bootstrap();
    for (topic, wanted) in [("counts", input::counts(&given)), ("windowed", input::windowed(&given))] {
        let counted: BTreeMap<String, String> = input::output(&bootstrap, topic)?.into_iter().collect();
        ensure!(counted.len() == wanted.len(), "{topic}: {} keys instead of {}", counted.len(), wanted.len());
        for (key, count) in &wanted {
            let last: usize = counted.get(key).with_context(|| format!("{topic}: no {key}"))?.parse()?;
            ensure!(last >= *count, "{topic}: {key} is counted to {last}, not to {count}");
        }
    }
    let joined: BTreeSet<String> = input::output(&bootstrap, "joined")?.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    ensure!(joined == input::joined(&given), "{} pairs instead of {}", joined.len(), input::joined(&given).len());
    Ok(())
}

#[test]
fn a_standby_takes_over_exactly_where_an_instance_was_killed_or_hung() -> Result<()> {
    let broker = broker()?;
    set_transaction_version(&broker, 1)?;
    make_topics(&broker, &[&TOPICS[..], &OUTPUTS].concat())?;
    let bootstrap = broker.bootstrap();
    let instance = |name| {
        let common =
            [("processing.guarantee", "exactly_once_v2"), ("num.standby.replicas", "1"), ("probing.rebalance.interval.ms", "60000")];
        // What one has left open that is gone, ends soon.
        let own = [SESSION, ("group.instance.id", name), ("producer.transaction.timeout.ms", "3000")];
        Application::new("standby", "counts,joins", &[&common[..], &own].concat())
    };
    let (first, second) = (instance("first")?, instance("second")?);
    let (one, other) = (first.start(&bootstrap)?, second.start(&bootstrap)?);
    one.wait_until_running()?;
    other.wait_until_running()?;
    let given = input::lines_and_pairs(ROUNDS)?;
    let third = given.len() / 3;

    write_rest(&broker, begin(&broker, &one, &given[..third])?)?;
    one.kill()?;
    wait_for_all(&broker, &other, &given[..third])?;

    // The transactions of those that are there go on; the next ones are of the new flow.
    set_transaction_version(&broker, 2)?;
    let one = first.start(&bootstrap)?;
    one.wait_until_running()?;
    write_rest(&broker, begin(&broker, &one, &given[third..2 * third])?)?;
    one.pause()?;
    wait_for_all(&broker, &other, &given[..2 * third])?;
    // It believes that it is a member and in a transaction, and has to learn that it isn't.
    one.resume()?;

    write_rest(&broker, begin(&broker, &one, &given[2 * third..])?)?;
    other.close()?;
    wait_for_all(&broker, &one, &given)?;
    one.close()?;
    ensure_exactly_once(&broker, &given)
}

#[test]
fn internal_topics_are_made_as_on_apache_kafka() -> Result<()> {
    let topics = [&TOPICS[..], &OUTPUTS, &tables::TOPICS, &tables::OUTPUTS].concat();
    let described = |bootstrap: &str, client: &mut Client| {
        make_topics_by(client, &topics)?;
        let options = [("processing.guarantee", "exactly_once_v2"), ("topic.segment.bytes", "2097152"), ("topic.retention.bytes", "-1")];
        let application = Application::new("made", "counts,joins,tables,stores", &options)?;
        let instance = application.start(bootstrap)?;
        instance.wait_until_running()?;
        let described = application.topics(bootstrap)?;
        instance.close()?;
        anyhow::Ok(described)
    };
    let kafka = ApacheKafka::start()?;
    let theirs = described(&kafka.bootstrap(), &mut kafka.connect()?)?;
    drop(kafka);
    let broker = broker()?;
    let ours = described(&broker.bootstrap(), &mut broker.connect()?)?;
    ensure!(ours == theirs, "here\n{}\n\non Apache Kafka\n{}", ours.join("\n"), theirs.join("\n"));
    // That the comparison is of something.
    let asked = [
        ("words-repartition", "cleanup.policy=delete"),
        ("counts-store-changelog", "cleanup.policy=compact "),
        ("windowed-store-changelog", "cleanup.policy=compact,delete"),
        ("session-store-changelog", "cleanup.policy=compact,delete"),
        ("pairs-store-this-join-store-changelog", "retention.ms="),
        ("versioned-store-changelog", "min.compaction.lag.ms="),
        ("configured-store-changelog", "delete.retention.ms=1000"),
    ];
    for (topic, config) in asked {
        let topic = format!("made-{topic} {PARTITIONS} ");
        ensure!(theirs.iter().any(|line| line.starts_with(&topic) && line.contains(config)), "no {topic} with {config}: {theirs:#?}");
    }
    Ok(())
}

#[test]
fn a_streams_group_is_refused_at_once() -> Result<()> {
    let broker = broker()?;
    let name = StrBytes::from_static_str("compat-tests");
    let versions = ApiVersionsRequest::default().with_client_software_name(name.clone()).with_client_software_version(name);
    let advertised = broker.connect()?.ask(4, &versions)?.api_keys;
    ensure!(advertised.iter().all(|api| !STREAMS_GROUP_APIS.contains(&api.api_key)), "{advertised:?}");
    make_topics(&broker, &["lines", "counts", "windowed"])?;
    let application = Application::new("groupless", "counts", &[("group.protocol", "streams")])?;
    let instance = application.start(&broker.bootstrap())?;
    let error = instance.wait_for_error()?;
    ensure!(error.contains("does not support the STREAMS group protocol"), "{error}");
    Ok(())
}

#[test]
fn an_application_that_was_reset_counts_again_from_the_start() -> Result<()> {
    let broker = broker()?;
    make_topics(&broker, &[&TOPICS[..], &OUTPUTS].concat())?;
    let bootstrap = broker.bootstrap();
    let given = input::lines_and_pairs(ROUNDS / 6)?;
    input::write(&mut broker.connect()?, &given)?;
    let words: usize = input::counts(&given).values().sum();
    let run = |times: usize| {
        let application = Application::new("reset", "counts", &[("processing.guarantee", "exactly_once_v2"), SESSION])?;
        let instance = application.start(&bootstrap)?;
        wait_for(&broker, &instance, &[("counts", times * words), ("windowed", times * words)])?;
        instance.close()?;
        ensure_counted_up("counts", &input::output(&bootstrap, "counts")?, &input::counts(&given), times)
    };
    run(1)?;
    // A closed instance's members stay until their session ends; if that is while the tool looks, it asks for nobody to be removed, and fails at that.
    group_until(&broker, "reset", "its members have gone", |group| group["state"] == "Empty")?;
    let said = reset(&bootstrap, &["--application-id", "reset", "--input-topics", "lines", "--force"])?;
    ensure!(said.contains("reset-counts-store-changelog"), "{said}");
    let left: Vec<String> = steady::topics(&mut broker.connect()?)?.into_iter().filter(|topic| topic.starts_with("reset-")).collect();
    ensure!(left.is_empty(), "{left:?} are left");
    run(2)
}
