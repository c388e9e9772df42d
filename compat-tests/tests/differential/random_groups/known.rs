//! What may differ between Apache Kafka's answers to random scripts and ours, and why.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kafka_protocol::messages::consumer_group_describe_response::{DescribedGroup as ConsumerGroup, Member};
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::{ConsumerGroupDescribeResponse, DescribeGroupsResponse};

use crate::random_groups::plain::{show_classic, show_consumer};
use crate::random_groups::play::{Play, Rest, Said};
use crate::random_groups::script::{At, Beat, Join, Meta, Step, What};
use crate::requests::text;

/// States that only a consumer group with members is in, but for Stable, where nothing is left to let go of.
const CONSUMER_STATES: [&str; 2] = ["Assigning", "Reconciling"];

fn has_code(said: &Said, code: i16) -> bool {
    said.whole.contains(&format!("error_code: {code},"))
}

/// Kafka fails in a way that it doesn't foresee (UNKNOWN_SERVER_ERROR).
pub fn fails(theirs: &Said) -> Option<&'static str> {
    has_code(theirs, -1).then_some("Kafka fails")
}

/// Why a step may be answered differently at once.
pub fn answer(step: &Step, theirs: &Said) -> Option<&'static str> {
    match &step.what {
        _ if has_code(theirs, -1) => fails(theirs),
        // A step of a member that leaves it in its epoch makes that the epoch before, too, in Kafka: a member whose answer was lost has to
        // begin anew (FENCED_MEMBER_EPOCH). Ours still knows the epoch before.
        What::Beat(Beat { at: At::Mine(-1), .. }) if has_code(theirs, 110) => Some("the epoch before"),
        _ => None,
    }
}

/// Whether a classic group that rebalances could not become a consumer group. Before it finds that, Kafka has told all who wait to join again,
/// and forgets that they have joined.
pub fn is_refused_upgrade(step: &Step, theirs: Option<&Said>, before: Option<&String>) -> bool {
    const GROUP_ID_NOT_FOUND: i16 = 69;
    matches!(&step.what, What::Beat(_))
        && theirs.is_some_and(|said| has_code(said, GROUP_ID_NOT_FOUND))
        && before.is_some_and(|state| state == "PreparingRebalance" || state == "CompletingRebalance")
}

/// Why a classic member of a consumer group is told to join again by ours alone (REBALANCE_IN_PROGRESS): ours has assigned already.
pub fn assigned_already(theirs: &Said, ours: &Said, put_off: &BTreeSet<String>) -> Option<&'static str> {
    (!put_off.is_empty() && has_code(theirs, 0) && has_code(ours, 27)).then_some("assigned in between")
}

/// Why ours alone doesn't know one who joins: it says that it owns partitions, so it is one who was taken out and doesn't know it. Kafka takes
/// it on while others have what it reads.
pub fn was_taken_out(step: &Step, theirs: &Said, ours: &Said) -> Option<&'static str> {
    let owns = |(_, meta): &(&str, Meta)| matches!(meta, Meta::Topics { owned: true, .. });
    let owner = matches!(&step.what, What::Join(Join { protocols, .. }) if protocols.iter().any(owns));
    (owner && has_code(theirs, 0) && has_code(ours, 25)).then_some("one that was taken out")
}

/// Whether a SyncGroup waited for its leader when its member was taken out (UNKNOWN_MEMBER_ID). Kafka never answers it.
pub fn is_of_one_removed(ours: &Said) -> bool {
    ours.led.is_none() && has_code(ours, 25)
}

/// Whether targets that differ are as good as each other: all the same partitions are given, and highwater's greatest share is no greater than
/// Kafka's, nor its least less; or the shares of each topic are as large (`range` looks at no more than that).
/// Where Kafka has put its assignment off there is nothing to compare yet.
pub fn as_good(theirs: &ConsumerGroupDescribeResponse, ours: &ConsumerGroupDescribeResponse) -> bool {
    ours.groups.iter().all(|ours| {
        let Some(theirs) = theirs.groups.iter().find(|theirs| theirs.group_id == ours.group_id) else { return false };
        if theirs.assignment_epoch < theirs.group_epoch {
            return true;
        }
        let (theirs, ours) = (shares(&theirs.members), shares(&ours.members));
        let in_all = theirs.1.first() <= ours.1.first() && theirs.1.last() >= ours.1.last();
        theirs.0 == ours.0 && (in_all || theirs.2 == ours.2)
    })
}

/// Whether a member has an id that the coordinator made: its place among the others is chance.
pub fn is_made(told: &ConsumerGroupDescribeResponse) -> bool {
    let several = |group: &&ConsumerGroup| group.members.len() > 1;
    told.groups.iter().filter(several).any(|group| group.members.iter().any(|member| Play::is_made(&member.member_id)))
}

/// Whether somebody subscribes to several topics, or to others than somebody else. Kafka goes through some topics by the order of their ids,
/// which are chance; and where members subscribe to different topics highwater's assignment is another.
pub fn is_of_several_topics(told: &ConsumerGroupDescribeResponse) -> bool {
    told.groups.iter().any(|group| {
        let mut subscribed = group.members.iter().map(|member| &member.subscribed_topic_names);
        let first = group.members.first().map(|member| &member.subscribed_topic_names);
        subscribed.any(|names| names.len() > 1 || Some(names) != first)
    })
}

/// Whether members are in the order of their ids in a hash table of Java's, which is Kafka's order; ours is that of their ids.
pub fn is_in_order(told: &ConsumerGroupDescribeResponse) -> bool {
    told.groups.iter().all(|group| {
        let mut ids: Vec<&str> = group.members.iter().map(|member| &*member.member_id).collect();
        ids.sort_unstable();
        ids.windows(2).all(|pair| place(pair[0]) < place(pair[1]))
    })
}

/// The bucket of a text among the 16 of a small table.
fn place(text: &str) -> u32 {
    let hash = text.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (hash ^ (hash >> 16)) & 15
}

/// All partitions that are given, how many each member has, and how many of each topic, the least first.
type Shares<'a> = (BTreeSet<(&'a str, i32)>, Vec<usize>, BTreeMap<&'a str, Vec<usize>>);

fn shares(members: &[Member]) -> Shares<'_> {
    let of = |member: &Member| member.target_assignment.topic_partitions.iter().map(|topic| topic.partitions.len()).sum();
    let topics = || members.iter().flat_map(|member| &member.target_assignment.topic_partitions);
    let all = topics().flat_map(|topic| topic.partitions.iter().map(|partition| (&**topic.topic_name, *partition))).collect();
    let sorted = |mut counts: Vec<usize>| {
        counts.sort_unstable();
        counts
    };
    let of_topic = |name: &str| sorted(topics().filter(|topic| &**topic.topic_name == name).map(|topic| topic.partitions.len()).collect());
    let by_topic = topics().map(|topic| (&**topic.topic_name, of_topic(&topic.topic_name))).collect();
    (all, sorted(members.iter().map(of).collect()), by_topic)
}

/// When members are taken out Kafka puts the new assignment off until another's heartbeat; highwater has it at once, for those whose
/// heartbeats wait. The group has changed for both. Where it changes once more before Kafka assigns, that is one assignment of Kafka's and two
/// of ours, which may give partitions to others. Such groups.
pub fn put_off(theirs: &Rest, ours: &Rest) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for group in &theirs.consumer.groups {
        let other = ours.consumer.groups.iter().find(|other| other.group_id == group.group_id);
        if let Some(other) = other.filter(|other| other.group_epoch == group.group_epoch)
            && group.assignment_epoch < group.group_epoch
            && other.assignment_epoch == other.group_epoch
        {
            found.insert(group.group_id.to_string());
        }
    }
    found
}

/// A request that is refused may leave a group behind in Kafka's memory of which nothing is stored, and which is seen or not as its snapshots
/// come: after a commit, not even while it has members, until a record of it is written. Such groups that the two tell differently of.
pub fn nothings(stored: &BTreeSet<String>, refused: &BTreeSet<String>, theirs: &Rest, ours: &Rest) -> BTreeSet<String> {
    let ours = states(ours);
    let is_nothing = |state: &str| state == "Empty" || state == "Dead";
    let differ = states(theirs).into_iter().filter(|(group, state)| {
        let other = ours.get(group).map_or("Dead", |state| state);
        other != state && (is_nothing(state) && is_nothing(other) || state == "Dead" && refused.contains(group))
    });
    differ.map(|(group, _)| group).filter(|group| !stored.contains(group)).collect()
}

/// Whether the answer tells in which state groups are.
pub fn tells(what: &What) -> bool {
    matches!(what, What::Describe { .. } | What::ConsumerDescribe { .. } | What::List { .. })
}

/// Each member's target assignment.
pub fn targets(play: &Play, told: &ConsumerGroupDescribeResponse) -> String {
    let mut told = told.clone();
    show_consumer(play, &mut told);
    let targets =
        told.groups.iter().flat_map(|group| &group.members).map(|member| format!("{} {:?}", &*member.member_id, member.target_assignment));
    let mut targets: Vec<String> = targets.collect();
    targets.sort();
    targets.join("\n")
}

/// Each group's state. DescribeGroups knows no consumer groups.
pub fn states(rest: &Rest) -> BTreeMap<String, String> {
    let mut states: BTreeMap<String, String> =
        rest.classic.groups.iter().map(|group| (group.group_id.to_string(), group.group_state.to_string())).collect();
    let consumers = rest.consumer.groups.iter().filter(|group| group.error_code == 0);
    states.extend(consumers.map(|group| (group.group_id.to_string(), group.group_state.to_string())));
    states
}

/// Whether a group's first rebalance is under way: Kafka ends it by a timer, even without any delay.
pub fn begins(before: &BTreeMap<String, String>, rest: &Rest) -> bool {
    let empty = |group: &str| before.get(group).is_none_or(|state| state == "Empty" || state == "Dead");
    rest.classic.groups.iter().any(|group| &*group.group_state == "PreparingRebalance" && empty(&group.group_id))
}

/// What the members of groups have that were consumer groups `before` and are classic ones. Kafka's have their targets, also what others have
/// not let go of; ours have what they have, and where that isn't their target they join again.
pub fn after_a_downgrade(before: &BTreeMap<String, String>, rest: &Rest) -> BTreeSet<Bytes> {
    let downgraded = |group: &&DescribedGroup| {
        let was = before.get(&*group.group_id.0).is_some_and(|state| CONSUMER_STATES.contains(&&**state));
        was && group.error_code == 0 && !group.members.is_empty()
    };
    let members = rest.classic.groups.iter().filter(downgraded).flat_map(|group| &group.members);
    members.map(|member| member.member_assignment.clone()).collect()
}

/// Groups as they are told, but for those of which it is known that they are told differently.
pub fn shown(play: &Play, rest: &Rest, put_off: &BTreeSet<String>, nothings: &BTreeSet<String>) -> String {
    let mut classic: DescribeGroupsResponse = rest.classic.clone();
    let mut consumer = rest.consumer.clone();
    classic.groups.retain(|group| !nothings.contains(&*group.group_id.0));
    consumer.groups.retain(|group| !nothings.contains(&*group.group_id.0));
    for group in &mut classic.groups {
        if put_off.contains(&*group.group_id.0) {
            group.group_state = text("");
        }
        // Assignments of the last generation, which nobody hears of any more (see [`after_a_downgrade`]).
        if &*group.group_state == "PreparingRebalance" {
            group.members.iter_mut().for_each(|member| member.member_assignment.clear());
        }
    }
    for group in consumer.groups.iter_mut().filter(|group| put_off.contains(&*group.group_id.0)) {
        (group.group_state, group.assignment_epoch) = (text(""), 0);
        group.members.iter_mut().for_each(|member| member.target_assignment.topic_partitions.clear());
    }
    show_classic(play, &mut classic);
    show_consumer(play, &mut consumer);
    format!("{classic:#?}\n{consumer:#?}")
}
