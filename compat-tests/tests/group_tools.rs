//! Apache Kafka's tools at all groups of a broker at once, and at the offsets topic. (What `kafka-consumer-groups` says of one group, and
//! what its resets come to, is compared with Kafka's own answers: `tests/differential/group_tools.rs`.)

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use compat_tests::heartbeats::{beat, heartbeat, join, owning, settled};
use compat_tests::seat::{Seat, commit_alone};
use compat_tests::toolbox::{Said, Toolbox};
use compat_tests::{Target, console, steady};

const TOPIC: &str = "at";

struct Tools<'a> {
    toolbox: Toolbox,
    target: &'a Target,
}

impl Tools<'_> {
    fn groups(&mut self, args: &[&str]) -> Result<Said> {
        self.toolbox.run("consumer.group.ConsumerGroupCommand", &self.target.bootstrap(), args)
    }

    /// The offsets that the groups of this test have in partition 0.
    fn offsets(&mut self) -> Result<BTreeMap<String, String>> {
        let said = self.groups(&["--describe", "--all-groups", "--offsets"])?;
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let of_first = words.first().is_some_and(|group| group.starts_with("all-")) && words.get(2) == Some(&"0");
            of_first.then(|| Some((words.first()?.to_string(), words.get(3)?.to_string()))).flatten()
        };
        Ok(said.stdout.lines().filter_map(row).collect())
    }
}

/// `--all-groups`, in every command that has it: groups with members are left as they are.
#[test]
fn all_groups_at_once() {
    Target::with(|target| {
        let mut tools = Tools { toolbox: Toolbox::open()?, target };
        let mut client = target.connect()?;
        ensure!(steady::create(&mut client, TOPIC, 2, &[])? == 0);
        for group in ["all-one", "all-two", "all-classic", "all-consumer"] {
            commit_alone(&mut client, group, &[(TOPIC, 0, 0), (TOPIC, 1, 0)])?;
        }
        let seat = Seat::take(target.address(), "all-classic", "seat", &[(TOPIC.to_owned(), 2)])?;
        seat.wait_for(2)?;
        let (epoch, owned) = settled(&mut client, &join("all-consumer", "a", &[TOPIC]), 2)?;
        beat(&mut client, &heartbeat("all-consumer", "a", epoch).with_topic_partitions(owning(&owned)))?;

        let rows = |said: &Said| said.stdout.lines().filter(|line| line.starts_with("all-")).count();
        for (section, expected) in [("--offsets", 8), ("--members", 2), ("--state", 4)] {
            let said = tools.groups(&["--describe", "--all-groups", section])?;
            ensure!(rows(&said) == expected, "{section}: {said:?}");
        }
        let at = |tools: &mut Tools<'_>| tools.offsets();
        let all = |one: &str, two: &str| {
            let offsets = [("all-one", one), ("all-two", two), ("all-classic", "0"), ("all-consumer", "0")];
            offsets.map(|(group, offset)| (group.to_owned(), offset.to_owned())).into_iter().collect::<BTreeMap<_, _>>()
        };
        ensure!(at(&mut tools)? == all("0", "0"), "{:?}", at(&mut tools)?);
        let reset = ["--reset-offsets", "--all-groups", "--all-topics", "--to-latest"];
        compat_tests::driver::Client::Python.produce(&target.bootstrap(), TOPIC, compat_tests::driver::Codec::None, &records(3))?;
        let said = tools.groups(&reset)?;
        // Two rows of each group that is empty; the others are refused.
        ensure!(rows(&said) == 4 && said.stdout.matches("can only be reset if the group 'all-").count() == 2, "{said:?}");
        ensure!(at(&mut tools)? == all("0", "0"), "{:?}", at(&mut tools)?);
        let said = tools.groups(&[&reset[..], &["--export"]].concat())?;
        ensure!(said.stdout.contains(&format!("all-one,{TOPIC},0,3")), "{said:?}");
        tools.groups(&[&reset[..], &["--execute"]].concat())?;
        ensure!(at(&mut tools)? == all("3", "3"), "{:?}", at(&mut tools)?);
        let said = tools.groups(&["--delete", "--all-groups"])?;
        ensure!(
            said.stdout.contains("'all-classic' could not be deleted") && said.stdout.contains("'all-consumer' could not be deleted"),
            "{said:?}"
        );
        let listed = tools.groups(&["--list"])?;
        let mut left: Vec<&str> = listed.stdout.lines().filter(|line| line.starts_with("all-")).collect();
        left.sort_unstable();
        ensure!(left == ["all-classic", "all-consumer"], "{listed:?}");
        seat.leave()
    });
}

fn records(by_partition: usize) -> Vec<compat_tests::corpus::Record> {
    let record = |partition| compat_tests::corpus::Record {
        partition: Some(partition),
        timestamp: None,
        key: None,
        value: Some(b"v".to_vec()),
        headers: Vec::new(),
    };
    (0..2).flat_map(|partition| (0..by_partition).map(move |_| record(partition))).collect()
}

/// The console consumer's formatters at the offsets topic of a consumer group: its offsets are told as those of any other, and its own records
/// are passed over by the one for classic groups.
#[test]
fn formatters_read_the_offsets_of_a_consumer_group() {
    Target::with(|target| {
        let mut client = target.connect()?;
        ensure!(steady::create(&mut client, "formatted", 2, &[])? == 0);
        // "k".hashCode() is 107.
        const PARTITION_OF_K: usize = 7;
        commit_alone(&mut client, "k", &[("formatted", 1, 11)])?;
        settled(&mut client, &join("k", "a", &["formatted"]), 2)?;
        let offsets = console::offsets_topic(&target.bootstrap(), "OffsetsMessageFormatter", PARTITION_OF_K)?;
        let line = offsets
            .iter()
            .find(|line| line.contains("\"group\":\"k\"") && line.contains("\"partition\":1"))
            .with_context(|| offsets.join("\n"))?;
        ensure!(line.contains("\"offset\":11,"), "{line}");
        let groups = console::offsets_topic(&target.bootstrap(), "GroupMetadataMessageFormatter", PARTITION_OF_K)?;
        ensure!(groups.iter().all(|line| !line.contains("\"memberId\":\"a\"")), "{groups:?}");
        Ok(())
    });
}
