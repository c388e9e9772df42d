//! Families as Prometheus reads them: kafka_exporter's list, groups with names of any kind, and the bound on series.

use super::{
    super::{
        group::GroupSeen,
        partition::{First, Marks, Outlook},
        state::{Answer, State, Wanted},
        topic::PartitionSeen,
    },
    *,
};
use crate::{
    cluster::{PartitionState, Record as ClusterRecord},
    config::TopicDefaults,
    group::{Committed, Generation, GroupMetadata, Groups, MemberMetadata, Record},
    telemetry::names::{ALL, Kind},
    types::*,
};
use std::collections::{BTreeMap, BTreeSet};

const NOW: Millis = Millis(1_700_000_000_000);
const ID: TopicId = TopicId(uuid::Uuid::from_u128(7));

fn settings(max_series: usize) -> MetricsSettings {
    MetricsSettings {
        max_series,
        groups: Filter::new(".*", "^$").unwrap(),
        topics: Filter::new(".*", "^$").unwrap(),
        kafka_lag_exporter: false,
    }
}

fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

/// `ConsumerProtocolAssignment`, or a subscription where there are no partitions.
fn wire(partitions: Option<&[i32]>) -> bytes::Bytes {
    let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, 6];
    bytes.extend(b"orders");
    if let Some(partitions) = partitions {
        bytes.extend(i32::try_from(partitions.len()).unwrap().to_be_bytes());
        partitions.iter().for_each(|partition| bytes.extend(partition.to_be_bytes()));
    }
    bytes.extend([0xff; 4]);
    bytes.into()
}

/// A cluster of one broker and a topic of `partitions`, each from 10 to 110, and groups that committed 60, one of them with a member.
struct World {
    state: State,
    image: Image,
    groups: Groups,
}

impl World {
    fn new(partitions: i32, names: &[&str]) -> Self {
        let mut image = Image::new("cluster".into(), BrokerId(1));
        let of_one = PartitionState::new(vec![BrokerId(1)], LeaderEpoch(0));
        let states = vec![of_one; usize::try_from(partitions).unwrap()];
        let record = ClusterRecord::Topic { id: ID, name: topic(), overrides: BTreeMap::new(), partitions: states };
        image.apply(&TopicDefaults::default(), &record);
        let mut groups = Groups::default();
        for name in names {
            let member = MemberMetadata {
                member_id: "m".into(),
                instance_id: None,
                client_id: "c".into(),
                client_host: "/10.0.0.7".into(),
                rebalance_timeout_ms: 1_000,
                session_timeout_ms: 1_000,
                subscription: wire(None),
                assignment: wire(Some(&(0..partitions).collect::<Vec<_>>())),
            };
            let metadata = GroupMetadata {
                protocol_type: "consumer".into(),
                generation: Generation(1),
                protocol: Some("range".into()),
                leader: Some("m".into()),
                state_since: None,
                members: vec![member],
            };
            groups.apply(&Record::Group { group: (*name).into(), value: Some(metadata) });
            for partition in 0..partitions {
                let value = Committed {
                    offset: Offset(60),
                    leader_epoch: LeaderEpoch(-1),
                    metadata: "".into(),
                    committed_at: Millis(NOW.0 - 5_000),
                    expires_at: None,
                };
                let partition = TopicPartition { topic: topic(), partition: PartitionIndex(partition) };
                groups.apply(&Record::Offset { group: (*name).into(), partition, value: Some(value) });
            }
        }
        let mut world = Self { state: State::default(), image, groups };
        world.sweep(NOW, partitions);
        world
    }

    fn sweep(&mut self, now: Millis, partitions: i32) {
        let marks = Marks { log_start: Offset(10), last_stable: Offset(110), high_watermark: Offset(110), shape: 0 };
        let seen = PartitionSeen { marks, log_end: Offset(110), bytes_in: 1_000, offline: false, open: None };
        self.state.begin();
        self.state.note_topic(now, &topic(), ID, false, (0..partitions).map(|_| Some(seen)));
        self.state.end_topics();
        for (id, _) in self.groups.iter() {
            let seen = GroupSeen {
                described: self.groups.watch(id).unwrap(),
                committed: self.groups.all_committed(id).collect(),
                rebalances: BTreeMap::from([("joined", 2)]),
                rebalancing_since: None,
                between_owners_ms: 0,
                between_owners: BTreeSet::new(),
            };
            self.state.note_group(now, id, seen, |_, _, _| None);
        }
        self.state.end(true);
        for owed in self.state.owed(now, usize::MAX) {
            let Wanted::First(offset) = owed.what else { continue };
            let first = First { offset, timestamp: Millis(NOW.0 - 2_280_000), arrived: Some(Millis(NOW.0 - 2_270_000)) };
            let outlook = Outlook { by_time: Some(Millis(NOW.0 + 60_000)), by_size: None, looked: Some(now) };
            self.state.answer(&owed, Answer::First(first, outlook));
        }
    }

    fn render(&self, settings: &MetricsSettings) -> String {
        let mut out = Exposition::default();
        render(&mut out, &self.state, &self.image, NOW, settings);
        out.finish()
    }
}

/// A line's name and labels, unescaped.
fn parsed(line: &str) -> (String, Vec<(String, String)>) {
    let Some((name, mut rest)) = line.split_once('{') else { return (line.split(' ').next().unwrap().to_owned(), Vec::new()) };
    let mut labels = Vec::new();
    loop {
        let (label, after) = rest.split_once("=\"").unwrap();
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c => c,
                }),
                (_, c) => value.push(c),
            }
        };
        labels.push((label.trim_start_matches(',').to_owned(), value));
        rest = &after[end..];
        if let Some(number) = rest.strip_prefix("} ") {
            assert!(number.parse::<f64>().is_ok_and(|number| !number.is_nan() && number >= 0.0) || number == "+Inf", "{line}");
            return (name.to_owned(), labels);
        }
    }
}

#[test]
fn kafka_exporters_names_labels_and_types_are_a_subset_of_ours() {
    let list = include_str!("../../../fixtures/kafka_exporter.txt");
    let world = World::new(2, &["billing"]);
    let text = world.render(&settings(usize::MAX));
    let mut count = 0;
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let mut words = line.split(' ');
        let (name, kind, labels) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or_default());
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is no {kind}");
        let sample =
            text.lines().find(|sample| sample.starts_with(&format!("{name}{{")) || sample.starts_with(&format!("{name} "))).unwrap();
        let ours: BTreeSet<_> = parsed(sample).1.into_iter().map(|(label, _)| label).collect();
        let theirs: BTreeSet<_> = labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect();
        assert_eq!(ours, theirs, "{name}");
        count += 1;
    }
    assert_eq!(count, 15);
}

#[test]
fn a_group_says_how_far_behind_it_is() {
    let text = World::new(2, &["billing"]).render(&settings(usize::MAX));
    for line in [
        "kafka_consumergroup_current_offset{consumergroup=\"billing\",topic=\"orders\",partition=\"1\"} 60",
        "kafka_consumergroup_lag{consumergroup=\"billing\",topic=\"orders\",partition=\"1\"} 50",
        "kafka_consumergroup_lag_sum{consumergroup=\"billing\",topic=\"orders\"} 100",
        "kafka_consumergroup_current_offset_sum{consumergroup=\"billing\",topic=\"orders\"} 120",
        "kafka_consumergroup_members{consumergroup=\"billing\"} 1",
        "kafka_consumergroup_lag_seconds{consumergroup=\"billing\",topic=\"orders\",partition=\"0\"} 2270",
        "kafka_consumergroup_event_lag_seconds{consumergroup=\"billing\",topic=\"orders\",partition=\"0\"} 2280",
        "kafka_consumergroup_oldest_unconsumed_timestamp_seconds{consumergroup=\"billing\",topic=\"orders\",partition=\"0\"} 1699997720",
        "kafka_consumergroup_retention_margin_seconds{consumergroup=\"billing\",topic=\"orders\",partition=\"0\"} 60",
        "kafka_consumergroup_commit_age_seconds{consumergroup=\"billing\",topic=\"orders\",partition=\"0\"} 5",
        "kafka_consumergroup_max_lag_seconds{consumergroup=\"billing\"} 2270",
        "kafka_consumergroup_max_lag{consumergroup=\"billing\"} 50",
        "kafka_consumergroup_stuck_partitions{consumergroup=\"billing\"} 0",
        "kafka_consumergroup_beyond_end_partitions{consumergroup=\"billing\"} 0",
        "kafka_consumergroup_state{consumergroup=\"billing\",state=\"Stable\"} 1",
        "kafka_consumergroup_rebalances_total{consumergroup=\"billing\",cause=\"joined\"} 2",
        "kafka_consumergroup_lost_records_total{consumergroup=\"billing\",topic=\"orders\"} 0",
        "kafka_topic_partition_current_offset{topic=\"orders\",partition=\"1\"} 110",
        "kafka_topic_partition_oldest_offset{topic=\"orders\",partition=\"1\"} 10",
        "kafka_topic_partition_leader_is_preferred{topic=\"orders\",partition=\"1\"} 1",
        "kafka_topic_partition_under_replicated_partition{topic=\"orders\",partition=\"1\"} 0",
        "highwater_lag_dropped_series 0",
        "highwater_lag_pending_partitions 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

/// Nothing is said while nobody has looked twice; then it is never, since nothing is read.
#[test]
fn catching_up_is_said_once_the_rates_are_known() {
    let mut world = World::new(1, &["billing"]);
    let name = "kafka_consumergroup_catch_up_seconds";
    assert!(!world.render(&settings(usize::MAX)).contains(name));
    world.sweep(NOW.plus(1_000), 1);
    let text = world.render(&settings(usize::MAX));
    assert!(text.contains(&format!("{name}{{consumergroup=\"billing\"}} +Inf\n")), "{text}");
}

#[test]
fn every_family_is_one_of_the_list_and_stands_once() {
    let world = World::new(3, &["a", "b"]);
    let text = world.render(&MetricsSettings { kafka_lag_exporter: true, ..settings(usize::MAX) });
    let heads: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert_eq!(heads.len(), heads.iter().collect::<BTreeSet<_>>().len());
    let mut series = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = parsed(line);
        let metric = ALL.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(labels.iter().map(|(label, _)| label.as_str()).collect::<Vec<_>>(), metric.labels, "{name}");
        assert!(matches!(metric.kind, Kind::Gauge | Kind::Counter));
        assert!(series.insert((name, labels)), "twice: {line}");
    }
}

#[test]
fn kafka_lag_exporters_names_come_on_request() {
    let world = World::new(1, &["billing"]);
    assert!(!world.render(&settings(usize::MAX)).contains("kafka_consumergroup_group_lag"));
    let text = world.render(&MetricsSettings { kafka_lag_exporter: true, ..settings(usize::MAX) });
    for line in [
        "kafka_partition_latest_offset{cluster_name=\"cluster\",topic=\"orders\",partition=\"0\"} 110",
        "kafka_partition_earliest_offset{cluster_name=\"cluster\",topic=\"orders\",partition=\"0\"} 10",
        "kafka_consumergroup_group_lag{cluster_name=\"cluster\",group=\"billing\",topic=\"orders\",partition=\"0\",member_host=\"10.0.0.7\",consumer_id=\"m\",client_id=\"c\"} 50",
        "kafka_consumergroup_group_max_lag_seconds{cluster_name=\"cluster\",group=\"billing\"} 2270",
        "kafka_consumergroup_group_sum_lag{cluster_name=\"cluster\",group=\"billing\"} 50",
        "kafka_consumergroup_group_topic_sum_lag{cluster_name=\"cluster\",group=\"billing\",topic=\"orders\"} 50",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

#[test]
fn groups_of_any_name_do_not_break_a_line() {
    let long = "x".repeat(1_024);
    let names = ["quo\"te", "new\nline", "back\\slash", "{brace=\"1\"} 2", "ümläut 🚀", "\u{0}\r\t", &long, " "];
    let text = World::new(1, &names).render(&MetricsSettings { kafka_lag_exporter: true, ..settings(usize::MAX) });
    let mut seen = BTreeSet::new();
    for line in text.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (_, labels) = parsed(line);
        seen.extend(labels.into_iter().filter(|(label, _)| label == "consumergroup").map(|(_, value)| value));
    }
    assert_eq!(seen, names.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn what_the_bound_cuts_is_whole_groups_and_is_counted() {
    let names: Vec<String> = (0..10).map(|i| format!("g{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(5, &names);
    let all = world.render(&settings(usize::MAX));
    let of_groups = |text: &str| text.lines().filter(|line| line.starts_with("kafka_consumergroup")).count();
    let total = of_groups(&all);
    for max in [0, 1, 20, 100, 200, 300, total] {
        let text = world.render(&settings(max));
        let shown = of_groups(&text);
        assert!(shown <= max, "{shown} of {max}");
        let dropped = text.lines().find_map(|line| line.strip_prefix("highwater_lag_dropped_series ")).unwrap();
        let dropped: usize = dropped.parse().unwrap();
        // Families that a group happens not to have are counted as if it had them.
        assert!(dropped + max >= total || dropped + shown >= total, "{dropped} dropped, {shown} shown of {total}");
        for name in &names {
            let lags = text.lines().filter(|line| line.starts_with(&format!("kafka_consumergroup_lag{{consumergroup=\"{name}\""))).count();
            assert!(lags == 0 || lags == 5, "half of {name}");
        }
    }
}

#[test]
fn patterns_leave_groups_and_topics_out() {
    let world = World::new(1, &["billing", "console-consumer-7"]);
    let groups = Filter::new(".*", "^console-consumer-").unwrap();
    let text = world.render(&MetricsSettings { groups, ..settings(usize::MAX) });
    assert!(text.contains("\"billing\"") && !text.contains("console-consumer"));
    let topics = Filter::new("^payments", "^$").unwrap();
    let text = world.render(&MetricsSettings { topics, ..settings(usize::MAX) });
    assert!(!text.contains("orders") && text.contains("kafka_consumergroup_members"));
}
