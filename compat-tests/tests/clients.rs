//! The clients that people use, against the real binary: each makes a topic, produces with every codec that it has, and reads back
//! exactly what it sent; and another client reads the same. With `COMPAT_BROKER=apache` the same tests run against Apache Kafka, which
//! shows whether a failure is the broker's or the test's.
//!
//! Nobody joins a group here. kafkajs reads only in groups, so others read what it wrote.

use anyhow::{Context, Result, ensure};
use compat_tests::corpus::{self, Abilities, PARTITIONS, Received, Record, expect_exactly, expect_keyed};
use compat_tests::driver::{Client, Codec};
use compat_tests::{Target, batch, console, kcat};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, BrokerId, FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

/// The codecs of the batches that lie in `partition` of `topic`: from the log, not from what a client unpacked.
fn stored_codecs(target: &Target, topic: &str, partition: i32) -> Result<Vec<i16>> {
    const VERSION: i16 = 11; // the last one that names topics without Metadata's ids is 12, the last with a plain header 11
    let mut client = target.connect()?;
    let (mut codecs, mut next) = (Vec::new(), 0);
    loop {
        let asked = FetchPartition::default().with_partition(partition).with_fetch_offset(next).with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_topic(TopicName(StrBytes::from_string(topic.to_owned()))).with_partitions(vec![asked]);
        let request = FetchRequest::default().with_replica_id(BrokerId(-1)).with_max_bytes(1 << 20).with_topics(vec![topic]);
        let answer = client.ask(VERSION, &request)?;
        let found = answer.responses.first().and_then(|topic| topic.partitions.first()).context("an answer without the partition")?;
        ensure!(found.error_code == 0, "error {} in Fetch", found.error_code);
        let batches = batch::read(found.records.clone().unwrap_or_default())?;
        let Some(last) = batches.last() else { return Ok(codecs) };
        next = last.header.base_offset + i64::from(last.header.last_offset_delta) + 1;
        codecs.extend(batches.iter().map(|batch| batch.header.attributes & 0b111));
    }
}

/// The codec that librdkafka uses when it is told `codec`: it takes a broker without FindCoordinator for one of before 0.8.2, which
/// didn't know lz4 (`rd_kafka_feature_map`), and sends its batches uncompressed then.
fn of_librdkafka(target: &Target, codec: Codec) -> Result<Codec> {
    let answer = target.connect()?.ask(0, &ApiVersionsRequest::default())?;
    let finds_coordinators = answer.api_keys.iter().any(|api| api.api_key == ApiKey::FindCoordinator as i16 && api.min_version == 0);
    Ok(if codec == Codec::Lz4 && !finds_coordinators { Codec::None } else { codec })
}

/// That a partition whose records compress well was stored as the client compressed it. (A client sends a batch uncompressed if
/// compression makes it longer, so a single batch may be.)
fn expect_stored_as(target: &Target, topic: &str, partition: i32, codec: Codec) -> Result<()> {
    let codecs = stored_codecs(target, topic, partition)?;
    ensure!(codecs.contains(&codec.id()), "stored with codecs {codecs:?}, not {}", codec.id());
    ensure!(codecs.iter().all(|id| [0, codec.id()].contains(id)), "stored with codecs {codecs:?}, not {}", codec.id());
    Ok(())
}

/// One client: create, produce and read with each codec; the topic is read by the client itself, if it can, and by another.
fn round_trips(target: &Target, client: Client, abilities: Abilities, readers: &[Client]) -> Result<()> {
    let bootstrap = target.bootstrap();
    for codec in Codec::ALL {
        let name = format!("{} with {}", client.name(), codec.name());
        let topic = format!("{}-{}", client.name(), codec.name());
        let sent = corpus::placed(abilities);
        client.create(&bootstrap, &topic, PARTITIONS).with_context(|| format!("{name} creates"))?;
        client.produce(&bootstrap, &topic, codec, &sent).with_context(|| format!("{name} produces"))?;
        let used = if client == Client::Python { of_librdkafka(target, codec)? } else { codec };
        expect_stored_as(target, &topic, 1, used).context(name.clone())?;
        for reader in readers {
            let received = reader.consume(&bootstrap, &topic).with_context(|| format!("{} reads {name}", reader.name()))?;
            expect_exactly(&sent, &received).with_context(|| format!("{} reads {name}", reader.name()))?;
        }
    }
    let topic = format!("{}-keyed", client.name());
    let sent = corpus::keyed();
    client.create(&bootstrap, &topic, PARTITIONS)?;
    client.produce(&bootstrap, &topic, Codec::None, &sent)?;
    let reader = readers.first().context("a reader")?;
    expect_keyed(&sent, &reader.consume(&bootstrap, &topic)?).with_context(|| format!("{} chooses partitions", client.name()))
}

#[test]
fn confluent_kafka_python() {
    Target::with(|target| round_trips(target, Client::Python, Abilities::ALL, &[Client::Python, Client::Franz]));
}

#[test]
fn franz_go() {
    Target::with(|target| round_trips(target, Client::Franz, Abilities::ALL, &[Client::Franz, Client::Sarama]));
}

#[test]
fn sarama() {
    Target::with(|target| round_trips(target, Client::Sarama, Abilities::ALL, &[Client::Sarama, Client::Java]));
}

#[test]
fn kafka_clients_java() {
    Target::with(|target| round_trips(target, Client::Java, Abilities::ALL, &[Client::Java, Client::Python]));
}

/// It only writes here: kafkajs reads only in groups. Its headers are an object, so each name has one place; and it fails on null ones.
#[test]
fn kafkajs() {
    let abilities = Abilities { headers_in_any_order: false, null_headers: false };
    Target::with(|target| round_trips(target, Client::Node, abilities, &[Client::Franz, Client::Python]));
}

/// Its topics are made by its first record, as its users do it.
#[test]
fn kcat_of_debian() {
    Target::with(kcat_of_debian_on);
}

fn kcat_of_debian_on(target: &Target) -> Result<()> {
    let bootstrap = target.bootstrap();
    let sent = kcat::expressible(corpus::placed(Abilities::ALL));
    for codec in Codec::ALL {
        let topic = format!("kcat-{}", codec.name());
        kcat::produce(&bootstrap, &topic, codec, &sent).with_context(|| topic.clone())?;
        expect_stored_as(target, &topic, 1, of_librdkafka(target, codec)?).with_context(|| topic.clone())?;
        let by_kcat = kcat::consume(&bootstrap, &topic).with_context(|| topic.clone())?;
        expect_exactly(&sent, &sorted(by_kcat.clone())).with_context(|| format!("kcat reads {topic}"))?;
        let by_sarama = Client::Sarama.consume(&bootstrap, &topic)?;
        expect_exactly(&sent, &by_sarama).with_context(|| format!("sarama reads {topic}"))?;
        ensure!(sorted(by_kcat) == sorted(by_sarama), "kcat and sarama read different timestamps of {topic}");
    }
    Ok(())
}

/// kafka-topics, console producer and console consumer, of the Maven jars.
#[test]
fn apache_kafka_console_tools() {
    Target::with(apache_kafka_console_tools_on);
}

fn apache_kafka_console_tools_on(target: &Target) -> Result<()> {
    let bootstrap = target.bootstrap();
    let sent = console::lines();
    for codec in Codec::ALL {
        let topic = format!("console-{}", codec.name());
        console::topics(&bootstrap, &["--create", "--topic", &topic, "--partitions", "1"])?;
        console::produce(&bootstrap, &topic, codec, &sent).with_context(|| topic.clone())?;
        expect_stored_as(target, &topic, 0, codec).with_context(|| topic.clone())?;
        let by_console = console::consume(&bootstrap, &topic, sent.len()).with_context(|| topic.clone())?;
        expect_exactly(&sent, &by_console).with_context(|| format!("the console consumer reads {topic}"))?;
        let by_python = Client::Python.consume(&bootstrap, &topic)?;
        expect_exactly(&sent, &by_python).with_context(|| format!("confluent-kafka-python reads {topic}"))?;
        ensure!(by_console == by_python, "the two read different timestamps of {topic}");
    }
    Ok(())
}

/// kafka-topics makes, shows, widens and removes a topic.
#[test]
fn kafka_topics() {
    Target::with(kafka_topics_on);
}

fn kafka_topics_on(target: &Target) -> Result<()> {
    let bootstrap = target.bootstrap();
    let topics = |args: &[&str]| console::topics(&bootstrap, args);
    topics(&["--create", "--topic", "tooled", "--partitions", "3", "--config", "retention.ms=86400000"])?;
    let again = topics(&["--create", "--topic", "tooled", "--partitions", "3"]).unwrap_err().to_string();
    ensure!(again.contains("Topic 'tooled' already exists"), "the second --create: {again}");
    topics(&["--create", "--topic", "tooled", "--if-not-exists"])?;

    let described = topics(&["--describe", "--topic", "tooled"])?;
    for expected in ["PartitionCount: 3", "ReplicationFactor: 1", "retention.ms=86400000", "Partition: 2\tLeader: 1\tReplicas: 1\tIsr: 1"] {
        ensure!(described.contains(expected), "no {expected} in\n{described}");
    }
    topics(&["--alter", "--topic", "tooled", "--partitions", "5"])?;
    let described = topics(&["--describe", "--topic", "tooled"])?;
    ensure!(described.contains("PartitionCount: 5"), "after --alter:\n{described}");
    let fewer = topics(&["--alter", "--topic", "tooled", "--partitions", "2"]).unwrap_err().to_string();
    ensure!(fewer.contains("5"), "fewer partitions: {fewer}");

    let list = topics(&["--list"])?;
    ensure!(list.lines().any(|line| line == "tooled"), "--list:\n{list}");
    topics(&["--delete", "--topic", "tooled"])?;
    let list = topics(&["--list"])?;
    ensure!(!list.lines().any(|line| line == "tooled"), "--list after --delete:\n{list}");
    Ok(())
}

fn sorted(mut records: Vec<Received>) -> Vec<Received> {
    records.sort_by_key(|record| (record.partition, record.offset));
    records
}

/// The corpus has what it is for: a wrong one would prove nothing.
#[test]
fn the_corpus_has_every_kind_of_record() {
    let all = corpus::placed(Abilities::ALL);
    let any = |is: fn(&Record) -> bool| assert!(all.iter().any(is));
    any(|record| record.key.is_some() && record.value.is_none());
    any(|record| record.key.is_none() && record.value.is_none());
    any(|record| record.key == Some(Vec::new()) && record.value == Some(Vec::new()));
    any(|record| record.value.as_ref().is_some_and(|value| value.len() >= 900 * 1024));
    any(|record| record.headers.iter().any(|(_, value)| value.is_none()));
    any(|record| record.headers.len() > 1 && record.headers[0].0 == record.headers[1].0);
    assert!(all.iter().all(|record| record.partition.is_some_and(|partition| partition < PARTITIONS - 1)));
}
