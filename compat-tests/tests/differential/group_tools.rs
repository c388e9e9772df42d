//! `kafka-consumer-groups` of Apache Kafka's jars: what it says of a classic group, of one that speaks KIP-848's protocol, and of one that
//! only commits; and what its resets and deletions come to. (`--all-groups` is asked where a broker is a test's own: `tests/group_tools.rs`.)

use anyhow::{Context, Result, bail};
use compat_tests::batch::Batch;
use compat_tests::seat::{Seat, commit_alone};
use compat_tests::wire::Client;
use kafka_protocol::messages::OffsetCommitRequest;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};

use crate::consumer_groups::{LEAVE, heard_of, heartbeat, settled};
use crate::groups::{coordinated, gid};
use crate::requests::{THEN, Topic, text, topic_name};
use crate::side::{Side, compare};

const COMMAND: &str = "consumer.group.ConsumerGroupCommand";
const HOUR_MS: i64 = 3_600_000;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Classic,
    Consumer,
    Simple,
}

/// Who is in the group while it is looked at.
enum Members {
    Seated(Seat),
    Beating { member: &'static str },
    Nobody,
}

struct Script<'a> {
    side: &'a mut Side,
    group: String,
    topic: String,
    other: String,
}

impl Script<'_> {
    fn groups(&mut self, args: &[&str]) -> Result<String> {
        self.side.tool(COMMAND, args)
    }

    /// All ways to look at the group.
    fn look(&mut self) -> Result<()> {
        let group = self.group.clone();
        let sections: &[&[&str]] = &[
            &[],
            &["--offsets"],
            &["--offsets", "--verbose"],
            &["--members"],
            &["--members", "--verbose"],
            &["--state"],
            &["--state", "--verbose"],
        ];
        for section in sections {
            self.groups(&[&["--describe", "--group", &group], *section].concat())?;
        }
        Ok(())
    }

    /// Lists that leave out other scripts' groups.
    fn lists(&mut self) -> Result<()> {
        let group = self.group.clone();
        let filters: &[&[&str]] = &[
            &[],
            &["--state"],
            &["--type"],
            &["--state", "--type"],
            &["--state", "stable"],
            &["--state", "Empty,Stable"],
            &["--state", "Empty"],
            &["--type", "classic"],
            &["--type", "consumer"],
            &["--type", "Classic,Consumer", "--state"],
            &["--type", "nonsense"],
            &["--state", "nonsense"],
        ];
        for filter in filters {
            self.side.tool_about(COMMAND, &[&["--list"], *filter].concat(), &group)?;
        }
        Ok(())
    }

    /// A reset of the group, as it would be, and as it is.
    fn reset(&mut self, how: &[&str]) -> Result<()> {
        let group = self.group.clone();
        let all = [&["--reset-offsets", "--group", &group], how].concat();
        let rehearsed = how.contains(&"--all-topics");
        if rehearsed {
            self.groups(&[all.clone(), vec!["--dry-run"]].concat())?;
            self.groups(&all)?;
            self.groups(&["--describe", "--group", &group, "--offsets"])?;
        }
        self.groups(&[all, vec!["--execute"]].concat())?;
        self.groups(&["--describe", "--group", &group, "--offsets"]).map(drop)
    }

    fn resets(&mut self) -> Result<()> {
        let (topic, other) = (self.topic.clone(), self.other.clone());
        let (first_two, third) = (format!("{topic}:0,1"), format!("{topic}:2"));
        let forms: &[&[&str]] = &[
            &["--topic", &topic, "--to-earliest"],
            &["--topic", &topic, "--to-latest"],
            &["--topic", &first_two, "--to-offset", "3"],
            &["--topic", &third, "--shift-by", "-2"],
            &["--topic", &topic, "--shift-by", "1"],
            &["--topic", &topic, "--shift-by", "1000"],
            &["--topic", &topic, "--shift-by", "-1000"],
            &["--topic", &first_two, "--to-offset", "1000"],
            // Three minutes after the first record: the fourth of six.
            &["--topic", &topic, "--to-datetime", "2020-09-13T12:29:40.000"],
            &["--topic", &topic, "--to-datetime", "2020-09-13T12:29:40.001Z"],
            &["--topic", &topic, "--to-datetime", "2100-01-01T00:00:00.000"],
            // Its records are four, three, two and one hours old.
            &["--topic", &other, "--by-duration", "PT2H30M"],
            &["--topic", &other, "--by-duration", "P10000D"],
            &["--topic", &other, "--by-duration", "PT0S"],
            &["--topic", &topic, "--topic", &other, "--to-offset", "2"],
            &["--all-topics", "--to-current"],
            &["--topic", &topic, "--to-current"],
            &["--all-topics", "--to-earliest"],
        ];
        for form in forms {
            self.reset(form)?;
        }
        let no_partition = format!("{topic}:9");
        for refused in [
            &["--topic", "gt-nowhere", "--to-earliest"][..],
            &["--topic", &no_partition, "--to-latest"],
            &["--topic", &topic, "--to-datetime", "yesterday"],
            &["--topic", &topic, "--by-duration", "soon"],
            &["--to-earliest"],
        ] {
            let group = self.group.clone();
            self.groups(&[&["--reset-offsets", "--group", &group, "--execute"], refused].concat())?;
        }
        Ok(())
    }

    /// What was exported is put back from the file.
    fn export(&mut self) -> Result<()> {
        let (group, topic) = (self.group.clone(), self.topic.clone());
        let both = format!("{group}-also");
        commit_alone(&mut self.side.connect()?, &both, &[(&topic, 0, 1)])?;
        for groups in [&["--group", &group][..], &["--group", &group, "--group", &both]] {
            let csv = self.groups(&[&["--reset-offsets", "--topic", &topic, "--to-offset", "4", "--export"], groups].concat())?;
            let file = tempfile::NamedTempFile::new()?;
            std::fs::write(file.path(), csv)?;
            let path = file.path().to_str().context("a path")?.to_owned();
            for how in [&[][..], &["--dry-run"], &["--execute"]] {
                let said = self.side.unnoted_tool(COMMAND, &[&["--reset-offsets", "--from-file", &path], groups, how].concat())?;
                self.side.note(format!("from a file {groups:?} {how:?}"), said.lines());
            }
            self.groups(&["--describe", "--group", &group, "--offsets"])?;
            self.groups(&["--describe", "--group", &both, "--offsets"])?;
        }
        self.groups(&["--delete", "--group", &both]).map(drop)
    }
}

fn script(side: &mut Side, kind: Kind, group: &str) -> Result<()> {
    coordinated(side, group)?;
    let (topic, other) = (format!("{group}-topic"), format!("{group}-other"));
    let id = side.topic(&topic, 3, &[])?;
    let filled = Topic::new(&topic, id);
    for partition in 0..3 {
        for minute in 0..6 {
            side.append(&filled, partition, &Batch::of_values(THEN + 60_000 * minute, &[b"v"]))?;
        }
    }
    let id = side.topic(&other, 1, &[])?;
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    for hours in [4, 3, 2, 1] {
        side.append(&Topic::new(&other, id), 0, &Batch::of_values(now - hours * HOUR_MS, &[b"v"]))?;
    }
    heard_of(side, group, &topic, 3)?;
    let members = come(side, kind, group, &topic, &other)?;
    let mut script = Script { side, group: group.to_owned(), topic: topic.clone(), other: other.clone() };
    script.lists()?;
    script.look()?;
    if kind != Kind::Simple {
        script.groups(&["--reset-offsets", "--group", group, "--topic", &topic, "--to-earliest", "--execute"])?;
        script.groups(&["--delete", "--group", group])?;
        script.groups(&["--delete-offsets", "--group", group, "--topic", &topic])?;
    }
    // Nobody subscribes to it.
    script.groups(&["--delete-offsets", "--group", group, "--topic", &other])?;
    script.look()?;
    match members {
        Members::Seated(seat) => seat.leave()?,
        Members::Beating { member } => drop(script.side.quiet_beat(1, &heartbeat(group, member, LEAVE))?),
        Members::Nobody => {}
    }
    script.lists()?;
    script.look()?;
    script.resets()?;
    script.export()?;
    for what in [format!("{topic}:0"), format!("{topic}:1,2"), "gt-nowhere".to_owned(), format!("{topic}:7")] {
        script.groups(&["--delete-offsets", "--group", group, "--topic", &what])?;
        script.groups(&["--describe", "--group", group, "--offsets"])?;
    }
    let nobody = format!("{group}-nobody");
    script.groups(&["--describe", "--group", group, "--group", &nobody])?;
    script.groups(&["--delete", "--group", group, "--group", &nobody])?;
    script.groups(&["--delete", "--group", group])?;
    script.lists()?;
    script.look()?;
    for refused in [&["--delete-offsets", "--topic", &topic][..], &["--reset-offsets", "--topic", &topic, "--to-current", "--execute"]] {
        script.groups(&[&["--group", &nobody], refused].concat())?;
    }
    // A group that isn't there is made by that.
    script.groups(&["--reset-offsets", "--group", group, "--topic", &topic, "--to-latest", "--execute"])?;
    script.look()
}

/// Its members own all of `topic`, and have committed; there is an offset of `other`, too.
fn come(side: &mut Side, kind: Kind, group: &str, topic: &str, other: &str) -> Result<Members> {
    let mut client = Client::connect(side.address())?;
    commit_alone(&mut client, group, &[(other, 0, 1)])?;
    match kind {
        Kind::Simple => {
            commit_alone(&mut client, group, &[(topic, 0, 2), (topic, 1, 0), (topic, 2, 5)])?;
            Ok(Members::Nobody)
        }
        Kind::Classic => {
            let seat = Seat::take(side.address(), group, "seat", &[(topic.to_owned(), 3)])?;
            seat.wait_for(3)?;
            for (partition, offset) in [(0, 2), (1, 0), (2, 5)] {
                seat.commit(topic, partition, offset)?;
            }
            Ok(Members::Seated(seat))
        }
        Kind::Consumer => {
            const MEMBER: &str = "beating";
            let (epoch, owned) = settled(side, group, MEMBER, &[topic], 3)?;
            let said = heartbeat(group, MEMBER, epoch).with_topic_partitions(crate::consumer_groups::owning(&owned));
            side.quiet_beat(1, &said)?;
            let partition =
                |(index, offset)| OffsetCommitRequestPartition::default().with_partition_index(index).with_committed_offset(offset);
            let partitions = [(0, 2), (1, 0), (2, 5)].map(partition).to_vec();
            let commit = OffsetCommitRequest::default()
                .with_group_id(gid(group))
                .with_member_id(text(MEMBER))
                .with_generation_id_or_member_epoch(epoch)
                .with_topics(vec![OffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(partitions)]);
            let answer = side.ask(9, &commit)?;
            let refused = answer.topics.iter().flat_map(|topic| &topic.partitions).find(|partition| partition.error_code != 0);
            if let Some(refused) = refused {
                bail!("the commit was answered {refused:?}");
            }
            Ok(Members::Beating { member: MEMBER })
        }
    }
}

#[test]
fn of_a_classic_group() {
    compare(|side| script(side, Kind::Classic, "gt-classic"));
}

#[test]
fn of_a_consumer_group() {
    compare(|side| script(side, Kind::Consumer, "gt-consumer"));
}

#[test]
fn of_a_group_that_only_commits() {
    compare(|side| script(side, Kind::Simple, "gt-simple"));
}
