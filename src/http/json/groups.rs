//! `/api/groups`, `/api/groups/{group}` and `/api/group`.

use super::{
    super::view::{self, Assigned, GroupDetail, GroupPartition, Groups, Member, Rebalance, Unowned},
    Asked, Failed, Json, LIMIT_DEFAULT, LIMIT_MAX, seconds,
    topics::open_transaction,
};
use crate::{
    group::{End, MemberId, Story, UNOWNED_MAX, names},
    lag::{
        GroupLag, State,
        partition::{Behind, CatchUp, Marks, Reader, catch_up},
    },
    types::{Millis, TopicName},
};
use std::{cmp::Reverse, collections::BTreeSet};

/// Points of a group's history in a list.
const LISTED_POINTS: usize = 30;

pub(super) fn list(asked: &Asked<'_>) -> Result<Json, Failed> {
    let limit = asked.limit(LIMIT_DEFAULT, LIMIT_MAX)?;
    let find = asked.text("find")?.unwrap_or_default().to_lowercase();
    let lag = asked.lag();
    let found = lag.groups.iter().filter(|(id, _)| find.is_empty() || id.to_lowercase().contains(&find));
    let mut groups: Vec<_> = found.map(|(id, group)| (id, group, lag.summary(asked.now, group))).collect();
    groups.sort_by_key(|(id, _, summary)| (Reverse(summary.ms), Reverse(summary.records), (*id).clone()));
    let total = groups.len();
    let shown = groups.into_iter().take(limit).map(|(id, group, summary)| view(id, group, &summary, LISTED_POINTS)).collect();
    Json::of(&Groups { now_ms: asked.now.0, total, groups: shown })
}

pub(super) fn detail(asked: &Asked<'_>) -> Result<Json, Failed> {
    of_name(asked, asked.name(0))
}

/// By the parameter `name`: clients take `.` and `..` out of paths, however they are encoded.
pub(super) fn named(asked: &Asked<'_>) -> Result<Json, Failed> {
    let name = asked.text("name")?.ok_or_else(|| Failed::bad("name is missing"))?;
    of_name(asked, &name)
}

fn of_name(asked: &Asked<'_>, id: &str) -> Result<Json, Failed> {
    // Before the lag is locked: a shard may not be waited for under it.
    let told = asked.broker.context.groups.query(id, |groups| {
        let story = groups.get(id)?.story();
        let rebalances: Vec<_> = story.rebalances().rev().map(|told| rebalance(asked.now, story, told)).collect();
        Some((rebalances, groups.hearing(id)))
    });
    let (rebalances_list, hearing) = told.ok().flatten().ok_or_else(|| Failed::not_found("group"))?;
    let lag = asked.broker.context.lag.view_of(&asked.sight(), id);
    let Some(group) = lag.groups.get(id) else { return Err(Failed::not_found("group")) };
    let summary = lag.summary(asked.now, group);
    let partitions: Vec<_> = group.partitions(asked.now, &lag.topics).collect();
    let members_list = (0..group.described.members.len()).filter_map(|place| member(group, place, &partitions, &hearing)).collect();
    let partitions_list =
        partitions.iter().map(|(topic, reader, behind)| partition(asked, &lag, group, topic, reader, behind.as_ref())).collect();
    Json::of(&GroupDetail {
        now_ms: asked.now.0,
        group: view(id, group, &summary, usize::MAX),
        generation: group.described.generation,
        protocol: group.described.protocol.to_string(),
        leader: group.described.leader.as_ref().map(ToString::to_string),
        members_list,
        partitions_list,
        rebalances_by_cause: group.rebalances.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect(),
        rebalances_list,
    })
}

/// A group without its partitions.
fn view(id: &str, group: &GroupLag, summary: &crate::lag::group::Summary, points: usize) -> view::Group {
    let skip = group.history.len().checked_div(points).unwrap_or(0).max(1);
    let history = group.history.iter().rev().step_by(skip).take(points).map(|p| (p.at.0, p.records, p.ms.map(seconds)));
    let mut history: Vec<_> = history.collect();
    history.reverse();
    view::Group {
        group: id.to_owned(),
        state: group.described.state.to_owned(),
        kind: group.described.kind.name().to_owned(),
        protocol_type: group.described.protocol_type.to_string(),
        members: group.described.members.len(),
        topics: group.topics.keys().map(ToString::to_string).collect(),
        partitions: summary.partitions,
        lag: summary.records,
        lag_seconds: summary.ms.map(seconds),
        event_lag_seconds: summary.event_ms.map(seconds),
        max_lag: summary.records_max,
        retention_margin_seconds: summary.margin_ms.map(seconds),
        lost_records: summary.lost,
        consume_rate: summary.consumed,
        produce_rate: summary.produced,
        catch_up_seconds: summary.catch_up.seconds(),
        catches_up: summary.catch_up.comes(),
        last_commit_ms: summary.last_commit.map(|at| at.0),
        oldest_unconsumed_ms: summary.oldest.map(|at| at.0),
        abandoned_partitions: summary.abandoned,
        uncommitted_partitions: summary.uncommitted,
        pending_partitions: summary.pending,
        stuck_partitions: summary.stuck,
        beyond_end_partitions: summary.beyond,
        held_back_partitions: summary.held_back,
        rebalances: group.rebalances.values().sum(),
        rebalancing_since_ms: group.rebalancing_since.map(|at| at.0),
        unowned_partition_seconds: group.unowned_ms() as f64 / 1_000.0,
        history,
    }
}

fn member(
    group: &GroupLag,
    place: usize,
    partitions: &[(&TopicName, &Reader, Option<Behind>)],
    hearing: &BTreeSet<MemberId>,
) -> Option<Member> {
    let described = group.described.members.get(place)?;
    let mine = partitions.iter().filter(|(_, reader, _)| reader.owner == Some(place)).filter_map(|(.., behind)| behind.as_ref());
    let assigned = |(topic, partitions): &(TopicName, Vec<crate::types::PartitionIndex>)| Assigned {
        topic: topic.to_string(),
        partitions: partitions.iter().map(|partition| partition.0).collect(),
    };
    Some(Member {
        member_id: described.member_id.to_string(),
        instance_id: described.instance_id.as_ref().map(ToString::to_string),
        client_id: described.client_id.to_string(),
        host: described.client_host.to_string(),
        assignment: group.assignment(place).iter().map(assigned).collect(),
        lag: mine.clone().map(|behind| behind.records).fold(0, i64::saturating_add),
        lag_seconds: mine.filter_map(|behind| behind.ms).max().map(seconds),
        hears_at_once: hearing.contains(&described.member_id),
    })
}

fn partition(
    asked: &Asked<'_>,
    lag: &State,
    group: &GroupLag,
    topic: &TopicName,
    reader: &Reader,
    behind: Option<&Behind>,
) -> GroupPartition {
    let flow = lag.topics.get(topic).and_then(|flow| flow.partition(reader.partition));
    let marks = flow.and_then(|flow| flow.marks);
    let owner = reader.owner.and_then(|place| group.described.members.get(place));
    let first = behind.and_then(|behind| behind.first);
    let end = |marks: &Marks| if reader.read_committed { marks.last_stable } else { marks.high_watermark };
    let (consumed, produced) = (reader.consumed.per_second(), flow.and_then(|flow| flow.records.per_second()));
    let catch_up = behind.map_or(CatchUp::Unknown, |behind| catch_up(behind.records, consumed, produced));
    GroupPartition {
        topic: topic.to_string(),
        partition: reader.partition.0,
        member_id: owner.map(|member| member.member_id.to_string()),
        client_id: owner.map(|member| member.client_id.to_string()),
        host: owner.map(|member| member.client_host.to_string()),
        reading: reader.reading.name().to_owned(),
        committed: reader.commit.map(|commit| commit.offset.0),
        committed_at_ms: reader.commit.map(|commit| commit.at.0),
        commit_age_seconds: reader.commit.map(|commit| seconds(asked.now.0.saturating_sub(commit.at.0))),
        log_start: marks.map(|marks| marks.log_start.0),
        end: marks.map(|marks| end(&marks).0),
        first_unconsumed: first.map(|first| first.offset.0),
        lag: behind.map(|behind| behind.records),
        lag_seconds: behind.and_then(|behind| behind.ms).map(seconds),
        event_lag_seconds: behind.and_then(|behind| behind.event_ms).map(seconds),
        oldest_unconsumed_ms: first.map(|first| first.timestamp.0).filter(|at| *at >= 0),
        arrived_ms: first.and_then(|first| first.arrived).map(|at| at.0),
        retention_margin_seconds: behind.and_then(|behind| behind.margin_ms).map(seconds),
        lost_records: reader.lost,
        consume_rate: consumed,
        produce_rate: produced,
        catch_up_seconds: catch_up.seconds(),
        catches_up: catch_up.comes(),
        read_committed: reader.read_committed,
        open_transaction: flow.filter(|_| reader.read_committed).and_then(|flow| open_transaction(asked.now, flow)),
        held_back: marks.map_or(0, |marks| marks.high_watermark.0.saturating_sub(end(&marks).0).max(0)),
        pending: behind.is_some_and(|behind| behind.pending),
        stalled_seconds: behind.and_then(|behind| behind.stalled_ms).map(seconds),
        stuck: behind.is_some_and(|behind| behind.is_stuck(reader.reading)),
        beyond_end: behind.map_or(0, |behind| behind.beyond),
    }
}

fn rebalance(now: Millis, story: &Story, told: &crate::group::Rebalance) -> Rebalance {
    let joined = told.joined.as_ref();
    // While it is under way, what waits for an owner has waited so far.
    let waiting = story.without_owner().filter(|_| told.ended.is_none()).map(|(p, since)| (p, now.0.saturating_sub(since.0).max(0)));
    let unowned_ms = waiting.clone().map(|(_, ms)| ms).fold(told.unowned_ms, i64::saturating_add);
    let unowned = told.unowned.iter().map(|(p, ms)| (p, *ms)).chain(waiting).take(UNOWNED_MAX);
    Rebalance {
        began_ms: told.began.0,
        joined_ms: joined.map(|joined| joined.at.0),
        ended_ms: told.ended.map(|(at, _)| at.0),
        outcome: told.ended.map(|(_, end)| outcome(end).to_owned()),
        cause: told.cause.name().to_owned(),
        why: told.cause.to_string(),
        from_generation: told.from.0,
        generation: joined.map(|joined| joined.generation.0),
        members_before: told.members_before,
        members: joined.map(|joined| joined.members),
        removed: joined.map(|joined| joined.removed.iter().map(|who| names(std::slice::from_ref(who))).collect()).unwrap_or_default(),
        last: joined.and_then(|joined| joined.last.as_ref()).map(ToString::to_string),
        unowned_partition_seconds: seconds(unowned_ms),
        unowned: unowned.map(|(p, ms)| Unowned { topic: p.topic.to_string(), partition: p.partition.0, seconds: seconds(ms) }).collect(),
    }
}

fn outcome(end: End) -> &'static str {
    match end {
        End::Stable => "Stable",
        End::Empty => "Empty",
        End::Interrupted => "Interrupted",
    }
}
