//! Subscriptions by regular expression.

use super::*;

fn by(pattern: &str, id: &str) -> Heartbeat {
    Heartbeat { subscribed_topic_names: None, subscribed_topic_regex: Some(pattern.into()), ..joining(id) }
}

#[test]
fn an_expression_fits_whole_names_and_follows_the_topics() {
    let mut kip = Kip::new(1);
    kip.learn(&[("t", 1), ("tt", 2), ("ut", 4)]);
    assert_eq!(kip.ok(by("t|tt", "a")), (2, Some(vec![0, 0, 1])));
    let resolved: Vec<_> = kip.consumer().regexes().map(|(regex, r)| (regex.to_string(), r.topics.len())).collect();
    assert_eq!(resolved, [("t|tt".to_owned(), 2)]);
    kip.learn(&[("t", 1), ("ut", 4)]);
    let t = Partitions::from([(id_of("t"), [PartitionIndex(0)].into())]);
    assert_eq!(kip.ok(beat("a", 2)), (2, Some(vec![0])));
    assert_eq!(kip.ok(Heartbeat { owned: Some(t), ..beat("a", 2) }).0, 3);
    kip.check_replay();
    kip.restart();
    kip.learn(&[("t", 1), ("tt", 1), ("ut", 4)]);
    assert_eq!(kip.ok(beat("a", 3)), (4, Some(vec![0, 0])));
    kip.check_replay();
}

#[test]
fn topics_that_change_often_are_looked_through_once_a_second() {
    let mut kip = Kip::new(1);
    kip.ok(by("t.*", "a"));
    kip.learn(&[("t", 1), ("t1", 1)]);
    assert_eq!(kip.ok(beat("a", 2)), (3, Some(vec![0, 0])));
    kip.learn(&[("t", 1), ("t1", 1), ("t2", 1)]);
    assert_eq!(kip.ok(beat("a", 3)), (3, None));
    kip.sleep(1_000);
    assert_eq!(kip.ok(beat("a", 3)), (4, Some(vec![0, 0, 0])));
}

#[test]
fn what_is_no_expression_is_refused() {
    let mut kip = Kip::new(1);
    let nested = "(".repeat(5_000) + &")".repeat(5_000);
    for bad in ["(", "a)(b", "*", r"\p{Nonsense}", "(a{1000}){1000}", &nested, &"a".repeat(10_001)] {
        let answer = kip.heartbeat_now(by(bad, "a"));
        assert_eq!(answer.error, ErrorCode::InvalidRegularExpression, "{bad:.50}");
    }
    assert!(kip.log.is_empty());
}

#[test]
fn names_and_an_expression_add_up_and_an_empty_one_takes_it_back() {
    let mut kip = Kip::new(1);
    kip.learn(&[("t", 1), ("u", 1)]);
    let both = Heartbeat { subscribed_topic_names: Some(["t".into()].into()), ..by("u", "a") };
    assert_eq!(kip.ok(both), (2, Some(vec![0, 0])));
    assert_eq!(kip.ok(Heartbeat { subscribed_topic_regex: Some("".into()), ..beat("a", 2) }), (2, Some(vec![0])));
    assert_eq!(kip.consumer().regexes().count(), 0);
    kip.check_replay();
}

#[test]
fn members_share_an_expression_and_it_is_forgotten_with_the_last() {
    let mut kip = Kip::new(4);
    kip.ok(by("t", "a"));
    kip.ok(by("t", "b"));
    kip.ok(beat("a", -1));
    assert_eq!(kip.consumer().regexes().count(), 1);
    assert_eq!(kip.ok(beat("b", 3)), (4, Some(vec![0, 1, 2, 3])));
    kip.ok(beat("b", -1));
    assert_eq!(kip.consumer().regexes().count(), 0);
    kip.check_replay();
}

#[test]
fn many_expressions_are_resolved_in_turns() {
    let mut kip = Kip::new(1);
    for nth in 0..50 {
        kip.ok(by(&format!("t|t{nth}"), &format!("m{nth:02}")));
    }
    kip.sleep(2_000);
    let epoch = kip.member("m49").epoch.0;
    kip.learn(&[("t", 1), ("t49", 1)]);
    kip.ok(beat("m49", epoch));
    kip.sleep(0);
    let versions: BTreeSet<_> = kip.consumer().regexes().map(|(_, resolved)| resolved.version).collect();
    assert_eq!(versions.len(), 1, "all of them by now");
    kip.check_replay();
}
