//! Groups with the clients that people use: members come, go, crash and come back, and the broker is killed; every record is read, and no
//! partition has two readers. With `COMPAT_BROKER=apache` the same tests run against Apache Kafka, but for the killing.

use std::collections::BTreeSet;
use std::thread;

use anyhow::{Context, Result, ensure};
use compat_tests::corpus::Record;
use compat_tests::driver::{Client, Codec};
use compat_tests::member::{Member, Seen, Strategy, ensure_one_reader, wait_for_all, wait_for_even_shares};
use compat_tests::{Target, console};
use kafka_protocol::messages::{DescribeGroupsRequest, GroupId, OffsetFetchRequest, offset_fetch_request::OffsetFetchRequestGroup};
use kafka_protocol::protocol::StrBytes;

const PARTITIONS: i32 = 12;

fn records(by_partition: usize) -> Vec<Record> {
    let record = |partition| Record {
        partition: Some(partition),
        timestamp: None,
        key: None,
        value: Some(b"read me".to_vec()),
        headers: Vec::new(),
    };
    (0..PARTITIONS).flat_map(|partition| (0..by_partition).map(move |_| record(partition))).collect()
}

fn produce(target: &Target, topic: &str, by_partition: usize) -> Result<()> {
    Client::Python.produce(&target.bootstrap(), topic, Codec::None, &records(by_partition))
}

/// All that was read by any of them.
fn read<'a>(all: impl IntoIterator<Item = &'a Seen>) -> BTreeSet<(i32, i64)> {
    all.into_iter().flat_map(|seen| seen.records.keys().copied()).collect()
}

fn offsets(by_partition: i64) -> BTreeSet<(i32, i64)> {
    (0..PARTITIONS).flat_map(|partition| (0..by_partition).map(move |offset| (partition, offset))).collect()
}

/// Dynamic members come, go and crash, the broker is killed, and a later member goes on where the others stopped.
fn comes_and_goes(client: Client, strategy: Strategy) {
    let mut target = Target::start().unwrap_or_else(|error| panic!("{error:#}"));
    if let Err(error) = comes_and_goes_on(&mut target, client, strategy) {
        panic!("{error:#}");
    }
}

fn comes_and_goes_on(target: &mut Target, client: Client, strategy: Strategy) -> Result<()> {
    let bootstrap = target.bootstrap();
    let topic = format!("group-{}-{strategy:?}", client.name());
    let join = || Member::start(client, &bootstrap, &topic, &topic, strategy, None);
    Client::Python.create(&bootstrap, &topic, PARTITIONS)?;

    let a = join()?;
    wait_for_even_shares(&[&a], PARTITIONS)?;
    produce(target, &topic, 10)?;
    a.wait_until("it has read all", |seen| read([seen]) == offsets(10))?;

    let (b, c) = (join()?, join()?);
    wait_for_even_shares(&[&a, &b, &c], PARTITIONS)?;
    produce(target, &topic, 10)?;
    wait_for_all(&[&a, &b, &c], "all is read", |seen| read(seen) == offsets(20))?;

    let b = b.close()?;
    wait_for_even_shares(&[&a, &c], PARTITIONS).context("one left")?;
    let c = c.kill()?;
    wait_for_even_shares(&[&a], PARTITIONS).context("one crashed")?;
    produce(target, &topic, 10)?;
    a.wait_until("it has read what came after the others", |seen| {
        let all = [seen.clone(), b.clone(), c.clone()];
        read(&all) == offsets(30)
    })?;

    if let Target::Highwater(broker) = target {
        broker.kill()?;
        broker.restart()?;
        produce(target, &topic, 10)?;
        a.wait_until("it reads on after the broker was killed", |seen| read([seen, &b, &c]) == offsets(40))?;
        wait_for_even_shares(&[&a], PARTITIONS)?;
    }
    let a = a.close()?;
    let before = read([&a, &b, &c]);

    let d = join()?;
    produce(target, &topic, 1)?;
    d.wait_until("it reads what is new", |seen| seen.records.len() >= usize::try_from(PARTITIONS).unwrap_or(0))?;
    let d = d.close()?;
    let again: Vec<_> = d.records.keys().filter(|record| before.contains(record)).collect();
    ensure!(again.is_empty(), "read again, though it was committed: {again:?}");
    ensure_one_reader(&[a, b, c, d])
}

#[test]
fn confluent_kafka_python_eager() {
    comes_and_goes(Client::Python, Strategy::Range);
}

#[test]
fn confluent_kafka_python_cooperative() {
    comes_and_goes(Client::Python, Strategy::CooperativeSticky);
}

#[test]
fn confluent_kafka_python_kip_848() {
    comes_and_goes(Client::Python, Strategy::Consumer);
}

#[test]
fn kafka_clients_kip_848() {
    comes_and_goes(Client::Java, Strategy::Consumer);
}

#[test]
fn kafka_clients_eager() {
    comes_and_goes(Client::Java, Strategy::Range);
}

#[test]
fn kafka_clients_cooperative() {
    comes_and_goes(Client::Java, Strategy::CooperativeSticky);
}

#[test]
fn franz_go_eager() {
    comes_and_goes(Client::Franz, Strategy::Range);
}

#[test]
fn franz_go_cooperative() {
    comes_and_goes(Client::Franz, Strategy::CooperativeSticky);
}

#[test]
fn sarama_eager() {
    comes_and_goes(Client::Sarama, Strategy::Range);
}

#[test]
fn kafkajs_eager() {
    comes_and_goes(Client::Node, Strategy::Range);
}

#[test]
fn aiokafka_eager() {
    comes_and_goes(Client::Aio, Strategy::Range);
}

/// A static member is closed and started again: it gets the same partitions, and the others notice nothing. A second one of its name
/// fences the first.
fn static_members(client: Client, strategy: Strategy) {
    Target::with(|target| {
        let bootstrap = target.bootstrap();
        let topic = format!("static-{}-{strategy:?}", client.name());
        let join = |instance| Member::start(client, &bootstrap, &topic, &topic, strategy, Some(instance));
        Client::Python.create(&bootstrap, &topic, PARTITIONS)?;
        let (one, two) = (join("one")?, join("two")?);
        wait_for_even_shares(&[&one, &two], PARTITIONS)?;
        produce(target, &topic, 5)?;
        wait_for_all(&[&one, &two], "all is read", |seen| read(seen) == offsets(5))?;
        let changes = one.seen().changes.len();
        let before = two.close()?;
        let two = join("two")?;
        two.wait_until("it has its partitions again", |seen| seen.owns.len() == 6)?;
        produce(target, &topic, 5)?;
        wait_for_all(&[&one, &two], "all is read", |seen| read(seen.iter().chain([&before])) == offsets(10))?;
        let last = before.changes.iter().rfind(|owns| !owns.is_empty()).cloned().unwrap_or_default();
        ensure!(two.seen().owns == last, "it had {last:?}, and now has {:?}", two.seen().owns);
        ensure!(one.seen().changes.len() == changes, "the other one noticed: {:?}", one.seen().changes);
        Ok(())
    });
}

#[test]
fn confluent_kafka_python_static() {
    static_members(Client::Python, Strategy::Range);
}

#[test]
fn kafka_clients_static() {
    static_members(Client::Java, Strategy::CooperativeSticky);
}

/// It leaves for a while: its partitions wait for it.
#[test]
fn confluent_kafka_python_static_kip_848() {
    static_members(Client::Python, Strategy::Consumer);
}

#[test]
fn kafka_clients_static_kip_848() {
    static_members(Client::Java, Strategy::Consumer);
}

#[test]
fn franz_go_static() {
    static_members(Client::Franz, Strategy::CooperativeSticky);
}

#[test]
fn sarama_static() {
    static_members(Client::Sarama, Strategy::Range);
}

#[test]
fn aiokafka_static() {
    static_members(Client::Aio, Strategy::Range);
}

/// Clients of different libraries in one group, while they come and go: they agree on the protocol that all of them know.
#[test]
fn libraries_share_a_group() {
    Target::with(|target| {
        let bootstrap = target.bootstrap();
        Client::Python.create(&bootstrap, "mixed", PARTITIONS)?;
        let join = |client: Client| Member::start(client, &bootstrap, "mixed", "mixed", Strategy::Range, None);
        let clients = [Client::Java, Client::Python, Client::Franz, Client::Sarama, Client::Node, Client::Aio];
        let mut members = clients.into_iter().map(join).collect::<Result<Vec<_>>>()?;
        wait_for_even_shares(&members.iter().collect::<Vec<_>>(), PARTITIONS)?;
        produce(target, "mixed", 10)?;
        wait_for_all(&members.iter().collect::<Vec<_>>(), "all is read", |seen| read(seen) == offsets(10))?;
        let mut gone = Vec::new();
        // Three at a time: every change costs what the slowest heartbeat takes to tell of it.
        for (by_partition, some) in [12, 14].into_iter().zip(clients.chunks(3)) {
            let names: Vec<_> = some.iter().map(|client| client.name()).collect();
            let left: Vec<Member> = members.drain(..some.len()).collect();
            // All at once: fewer changes of the group, and so a shorter test.
            let closed = thread::scope(|scope| {
                let each: Vec<_> = left.into_iter().map(|member| scope.spawn(|| member.close())).collect();
                each.into_iter().map(|one| one.join().expect("closing doesn't panic")).collect::<Result<Vec<_>>>()
            })?;
            gone.extend(closed);
            for client in some {
                members.push(join(*client)?);
            }
            let all: Vec<&Member> = members.iter().collect();
            wait_for_even_shares(&all, PARTITIONS).with_context(|| format!("{names:?} left and came back"))?;
            produce(target, "mixed", 2)?;
            wait_for_all(&all, "all is read", |seen| read(seen.iter().chain(&gone)) == offsets(by_partition))?;
        }
        gone.extend(members.iter().map(Member::seen));
        ensure_one_reader(&gone)
    });
}

/// With more members than partitions some have nothing to do, and one of them takes over when another leaves.
fn more_members_than_partitions(client: Client, strategy: Strategy) {
    Target::with(|target| {
        let bootstrap = target.bootstrap();
        let few = format!("few-{}-{strategy:?}", client.name());
        Client::Python.create(&bootstrap, &few, 2)?;
        let join = || Member::start(client, &bootstrap, &few, &few, strategy, None);
        let mut members = vec![join()?, join()?, join()?, join()?];
        wait_for_even_shares(&members.iter().collect::<Vec<_>>(), 2)?;
        for left in [3, 2, 1] {
            let busy = members.iter().position(|member| !member.seen().owns.is_empty()).context("nobody reads")?;
            members.remove(busy).close()?;
            ensure!(members.len() == left);
            wait_for_even_shares(&members.iter().collect::<Vec<_>>(), 2)?;
        }
        Ok(())
    });
}

#[test]
fn more_members_than_partitions_cooperative() {
    more_members_than_partitions(Client::Franz, Strategy::CooperativeSticky);
}

#[test]
fn more_members_than_partitions_kip_848() {
    more_members_than_partitions(Client::Python, Strategy::Consumer);
}

#[test]
fn more_kafka_clients_than_partitions_cooperative() {
    more_members_than_partitions(Client::Java, Strategy::CooperativeSticky);
}

#[test]
fn more_kafka_clients_than_partitions_kip_848() {
    more_members_than_partitions(Client::Java, Strategy::Consumer);
}

/// Libraries that speak only the classic protocol in one group with members that speak KIP-848's, as in the middle of a migration, while
/// both kinds come and go.
#[test]
fn libraries_of_both_protocols_share_a_group() {
    Target::with(|target| {
        let bootstrap = target.bootstrap();
        Client::Python.create(&bootstrap, "both", PARTITIONS)?;
        let join = |client, strategy| Member::start(client, &bootstrap, "both", "both", strategy, None);
        let classic = [Client::Franz, Client::Sarama, Client::Node, Client::Aio];
        let newer = [Client::Python, Client::Java];
        let mut members = classic.into_iter().map(|client| join(client, Strategy::Range)).collect::<Result<Vec<_>>>()?;
        wait_for_even_shares(&members.iter().collect::<Vec<_>>(), PARTITIONS).context("the classic ones")?;
        members.extend(newer.into_iter().map(|client| join(client, Strategy::Consumer)).collect::<Result<Vec<_>>>()?);
        wait_for_even_shares(&members.iter().collect::<Vec<_>>(), PARTITIONS).context("the newer ones came")?;
        let listed = console::consumer_groups(&bootstrap, &["--list", "--type"])?;
        ensure!(listed.lines().any(|line| line.starts_with("both") && line.contains("Consumer")), "--list --type:\n{listed}");
        produce(target, "both", 5)?;
        wait_for_all(&members.iter().collect::<Vec<_>>(), "all is read", |seen| read(seen) == offsets(5))?;
        // Two classic ones and a newer one go; one of each comes.
        let mut gone = Vec::new();
        for at in [4, 1, 0] {
            gone.push(members.remove(at).close()?);
        }
        members.push(join(Client::Franz, Strategy::Range)?);
        members.push(join(Client::Python, Strategy::Consumer)?);
        let all: Vec<&Member> = members.iter().collect();
        wait_for_even_shares(&all, PARTITIONS).context("some left, others came")?;
        produce(target, "both", 5)?;
        wait_for_all(&all, "all is read", |seen| read(seen.iter().chain(&gone)) == offsets(10))?;
        gone.extend(members.iter().map(Member::seen));
        ensure_one_reader(&gone)
    });
}

/// A group goes over to KIP-848's protocol and back, a client at a time, while it reads: no record is left out, and none has two readers.
#[test]
fn a_live_group_changes_its_protocol() {
    Target::with(|target| {
        let bootstrap = target.bootstrap();
        Client::Python.create(&bootstrap, "moved", PARTITIONS)?;
        let join = |client, strategy| Member::start(client, &bootstrap, "moved", "moved", strategy, None);
        let clients = [Client::Python, Client::Java];
        let mut members = clients.into_iter().map(|client| join(client, Strategy::Range)).collect::<Result<Vec<_>>>()?;
        wait_for_even_shares(&members.iter().collect::<Vec<_>>(), PARTITIONS)?;
        let (mut gone, mut by_partition) = (Vec::new(), 0);
        for strategy in [Strategy::Consumer, Strategy::Range] {
            for client in clients {
                gone.push(members.remove(0).close()?);
                members.push(join(client, strategy)?);
                let all: Vec<&Member> = members.iter().collect();
                wait_for_even_shares(&all, PARTITIONS).with_context(|| format!("{} came with {strategy:?}", client.name()))?;
                produce(target, "moved", 2)?;
                by_partition += 2;
                wait_for_all(&all, "all is read", |seen| read(seen.iter().chain(&gone)) == offsets(by_partition))?;
            }
            let listed = console::consumer_groups(&bootstrap, &["--list", "--type"])?;
            let kind = if strategy == Strategy::Consumer { "Consumer" } else { "Classic" };
            ensure!(listed.lines().any(|line| line.starts_with("moved") && line.contains(kind)), "--list --type:\n{listed}");
        }
        gone.extend(members.iter().map(Member::seen));
        ensure_one_reader(&gone)
    });
}

/// `kafka-consumer-groups`: list, describe, reset, delete offsets, delete.
#[test]
fn kafka_consumer_groups() {
    Target::with(|target| {
        let bootstrap = target.bootstrap();
        let groups = |args: &[&str]| console::consumer_groups(&bootstrap, args);
        Client::Python.create(&bootstrap, "tooled", PARTITIONS)?;
        let member = Member::start(Client::Python, &bootstrap, "tooled", "tools", Strategy::Range, None)?;
        wait_for_even_shares(&[&member], PARTITIONS)?;
        produce(target, "tooled", 3)?;
        member.wait_until("all is read", |seen| read([seen]) == offsets(3))?;

        let listed = groups(&["--list", "--state"])?;
        ensure!(listed.lines().any(|line| line.starts_with("tools") && line.contains("Stable")), "--list:\n{listed}");
        let described = groups(&["--describe", "--group", "tools"])?;
        let rows = described.lines().filter(|line| line.starts_with("tools")).count();
        ensure!(rows == 12 && described.contains("/127.0.0.1"), "--describe:\n{described}");
        let state = groups(&["--describe", "--group", "tools", "--state"])?;
        ensure!(state.contains("Stable") && state.contains("range"), "--state:\n{state}");
        let members = groups(&["--describe", "--group", "tools", "--members", "--verbose"])?;
        ensure!(members.contains("tooled"), "--members:\n{members}");
        let refused = groups(&["--delete", "--group", "tools"]).unwrap_or_else(|error| error.to_string());
        ensure!(refused.contains("not empty"), "--delete of a group with members:\n{refused}");
        member.close()?;

        let reset = groups(&["--reset-offsets", "--group", "tools", "--topic", "tooled", "--to-earliest", "--execute"])?;
        ensure!(reset.lines().filter(|line| line.starts_with("tools") && line.trim_end().ends_with('0')).count() == 12, "reset:\n{reset}");
        let shifted = groups(&["--reset-offsets", "--group", "tools", "--topic", "tooled:0", "--shift-by", "2", "--execute"])?;
        ensure!(shifted.contains('2'), "shift:\n{shifted}");
        let again = Member::start(Client::Java, &bootstrap, "tooled", "tools", Strategy::Range, None)?;
        again.wait_until("it reads again", |seen| seen.records.len() == 34)?;
        ensure!(!again.seen().records.contains_key(&(0, 1)), "the shift of partition 0");
        again.close()?;

        groups(&["--delete-offsets", "--group", "tools", "--topic", "tooled:3"])?;
        let described = groups(&["--describe", "--group", "tools", "--offsets"])?;
        ensure!(described.lines().filter(|line| line.starts_with("tools")).count() == 11, "after --delete-offsets:\n{described}");
        let deleted = groups(&["--delete", "--group", "tools"])?;
        ensure!(deleted.contains("successful"), "--delete:\n{deleted}");
        let listed = groups(&["--list"])?;
        ensure!(!listed.lines().any(|line| line == "tools"), "--list after --delete:\n{listed}");
        Ok(())
    });
}

/// What `kafka-consumer-groups` tells of a group that speaks KIP-848's protocol.
#[test]
fn kafka_consumer_groups_tells_of_kip_848() {
    Target::with(|target| {
        let bootstrap = target.bootstrap();
        let groups = |args: &[&str]| console::consumer_groups(&bootstrap, args);
        Client::Python.create(&bootstrap, "told", PARTITIONS)?;
        let member = Member::start(Client::Python, &bootstrap, "told", "newer", Strategy::Consumer, None)?;
        wait_for_even_shares(&[&member], PARTITIONS)?;
        produce(target, "told", 3)?;
        member.wait_until("all is read", |seen| read([seen]) == offsets(3))?;

        let row = |told: &str, words: &[&str]| {
            told.lines().any(|line| line.starts_with("newer") && words.iter().all(|word| line.split_whitespace().any(|had| had == *word)))
        };
        let listed = groups(&["--list", "--state", "--type"])?;
        ensure!(row(&listed, &["Stable", "Consumer"]), "--list:\n{listed}");
        let state = groups(&["--describe", "--group", "newer", "--state"])?;
        ensure!(row(&state, &["uniform", "Stable", "1"]), "--state:\n{state}");
        let members = groups(&["--describe", "--group", "newer", "--members", "--verbose"])?;
        ensure!(row(&members, &["/127.0.0.1", "12"]) && members.contains("told:0,1,2,3,4,5,6,7,8,9,10,11"), "--members:\n{members}");
        let described = groups(&["--describe", "--group", "newer", "--offsets"])?;
        let rows = described.lines().filter(|line| line.starts_with("newer") && line.contains("/127.0.0.1")).count();
        ensure!(rows == 12, "--offsets:\n{described}");
        member.close()?;
        Ok(())
    });
}

/// `__consumer_offsets` as Apache Kafka's own classes read it.
#[test]
fn the_offsets_topic_is_kafkas() {
    Target::with(|target| {
        let bootstrap = target.bootstrap();
        // "g".hashCode() is 103.
        const PARTITION_OF_G: usize = 3;
        Client::Python.create(&bootstrap, "kept", PARTITIONS)?;
        let member = Member::start(Client::Java, &bootstrap, "kept", "g", Strategy::Range, Some("static-one"))?;
        wait_for_even_shares(&[&member], PARTITIONS)?;
        produce(target, "kept", 2)?;
        member.wait_until("all is read", |seen| read([seen]) == offsets(2))?;
        member.close()?;
        let offsets = console::offsets_topic(&bootstrap, "OffsetsMessageFormatter", PARTITION_OF_G)?;
        let last = |partition: i32| {
            let of = format!("\"group\":\"g\",\"topic\":\"kept\",\"partition\":{partition}}}");
            offsets.iter().rfind(|line| line.contains(&of)).cloned().unwrap_or_default()
        };
        for partition in 0..PARTITIONS {
            ensure!(last(partition).contains("\"offset\":2,"), "partition {partition} in\n{}", offsets.join("\n"));
        }
        let groups = console::offsets_topic(&bootstrap, "GroupMetadataMessageFormatter", PARTITION_OF_G)?;
        let stable = groups.iter().find(|line| line.contains("static-one")).with_context(|| groups.join("\n"))?;
        for expected in [
            "\"protocolType\":\"consumer\"",
            "\"generation\":1",
            "\"protocol\":\"range\"",
            "\"sessionTimeout\":6000",
            "\"clientHost\":\"/127.0.0.1\"",
        ] {
            ensure!(stable.contains(expected), "no {expected} in {stable}");
        }
        Ok(())
    });
}

/// Tools and bare requests find what they ask for, and nothing is made by asking.
#[test]
fn asking_makes_nothing() {
    Target::with(|target| {
        let mut client = target.connect()?;
        let name = |name: &'static str| GroupId(StrBytes::from_static_str(name));
        let asked = OffsetFetchRequest::default()
            .with_groups(vec![OffsetFetchRequestGroup::default().with_group_id(name("nobody")).with_topics(None)]);
        client.ask(8, &asked)?;
        client.ask(5, &DescribeGroupsRequest::default().with_groups(vec![name("nobody")]))?;
        let listed = console::consumer_groups(&target.bootstrap(), &["--list"])?;
        ensure!(!listed.contains("nobody"), "{listed}");
        Ok(())
    });
}
