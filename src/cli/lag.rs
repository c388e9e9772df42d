//! `highwater lag`: how far behind the groups are, or one group's partitions; fails where one is further behind than it may be.
#![allow(clippy::disallowed_methods, reason = "a command: it sleeps between two looks")]

use super::api::{Url, encoded, in_words, maybe, print, printable, span, table};
use crate::http::view::{Group, GroupDetail, GroupPartition, Groups};
use anyhow::bail;
use clap::Args;
use std::{io::IsTerminal, thread, time::Duration};

#[derive(Debug, Args)]
pub struct LagArgs {
    /// A group: its partitions are shown. Without one, all groups are, the worst first.
    #[arg(value_name = "GROUP")]
    pub group: Option<String>,
    /// Look again and again, every two seconds.
    #[arg(long)]
    pub watch: bool,
    /// Exit with 1 if a group is further behind than this: 90s, 5m, 1h.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub max_behind: Option<Duration>,
    /// What the broker answers, as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub url: Url,
}

const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Clears the terminal and goes to its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// What one look gave: the text, and the groups that it tells of.
struct Looked {
    text: String,
    groups: Vec<Group>,
}

pub fn run(args: &LagArgs) -> anyhow::Result<()> {
    loop {
        let looked = look(args)?;
        let clear = if args.watch && std::io::stdout().is_terminal() { CLEAR } else { "" };
        let is_read = print(&format!("{clear}{}", looked.text));
        if let Some(max) = args.max_behind {
            judge(&looked.groups, max)?;
        }
        if !args.watch || !is_read {
            return Ok(());
        }
        thread::sleep(WATCH_INTERVAL);
    }
}

fn look(args: &LagArgs) -> anyhow::Result<Looked> {
    match &args.group {
        Some(group) => {
            let detail: GroupDetail = args.url.get(&format!("/api/groups/{}", encoded(group)))?;
            let text = if args.json { serde_json::to_string_pretty(&detail)? + "\n" } else { one(&detail) };
            Ok(Looked { text, groups: vec![detail.group] })
        }
        None => {
            let all: Groups = args.url.get("/api/groups?limit=10000")?;
            let text = if args.json { serde_json::to_string_pretty(&all)? + "\n" } else { many(&all.groups) };
            Ok(Looked { text, groups: all.groups })
        }
    }
}

/// Fails if one is further behind than `max`. What isn't known yet is not taken for more than it is.
fn judge(groups: &[Group], max: Duration) -> anyhow::Result<()> {
    let is_over = |group: &&Group| group.lag_seconds.is_some_and(|seconds| seconds > max.as_secs_f64());
    let over: Vec<_> = groups.iter().filter(is_over).collect();
    if over.is_empty() {
        return Ok(());
    }
    let named = over.iter().take(10).map(|group| format!("{} ({})", printable(&group.group), maybe(group.lag_seconds)));
    bail!("behind by more than {}: {}", in_words(max.as_secs_f64()), named.collect::<Vec<_>>().join(", "));
}

fn many(groups: &[Group]) -> String {
    let row = |group: &Group| {
        vec![
            printable(&group.group),
            group.state.clone(),
            group.members.to_string(),
            group.lag.to_string(),
            maybe(group.lag_seconds),
            maybe(group.retention_margin_seconds),
            catch_up(group),
            group.lost_records.to_string(),
        ]
    };
    let head = ["GROUP", "STATE", "MEMBERS>", "LAG>", "BEHIND>", "MARGIN>", "CATCHES UP>", "LOST>"];
    let held = |group: &&Group| group.held_back_partitions > 0;
    let held = groups.iter().filter(held).map(|group| {
        let (name, count) = (printable(&group.group), group.held_back_partitions);
        format!("{name} waits for open transactions on {count} of its partitions: highwater lag {name}\n")
    });
    table(&head, &groups.iter().map(row).collect::<Vec<_>>()) + &held.collect::<String>()
}

/// What holds a group back that reads committed records, and who ends it.
fn held_back(p: &GroupPartition) -> Option<String> {
    let open = p.open_transaction.as_ref()?;
    let (topic, partition, offset) = (&p.topic, p.partition, open.first_offset);
    let who = match &open.transactional_id {
        Some(id) => format!("producer {} ({})", open.producer_id, printable(id)),
        None => format!("producer {}", open.producer_id),
    };
    let mut text = format!(
        "{topic}-{partition} stops at {offset}, {} below its high watermark: {who} has a transaction open for {}",
        p.held_back,
        in_words(open.age_seconds)
    );
    if open.ended_by == "nobody" {
        text.push_str(&format!(
            ", which no coordinator knows of: kafka-transactions abort --topic {topic} --partition {partition} --start-offset {offset}"
        ));
    }
    Some(text + "\n")
}

fn catch_up(group: &Group) -> String {
    if group.catches_up == Some(false) { "never".to_owned() } else { maybe(group.catch_up_seconds) }
}

/// What a group does with a partition, and whether that is as it should be.
fn reading(partition: &GroupPartition) -> String {
    let remark = match partition {
        GroupPartition { beyond_end: 1.., .. } => ", beyond the end",
        GroupPartition { stuck: true, .. } => ", stuck",
        _ => "",
    };
    format!("{}{remark}", partition.reading)
}

fn one(detail: &GroupDetail) -> String {
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let rows: Vec<_> = detail
        .partitions_list
        .iter()
        .map(|p| {
            vec![
                p.topic.clone(),
                p.partition.to_string(),
                reading(p),
                number(p.committed),
                number(p.end),
                number(p.lag),
                maybe(p.lag_seconds),
                maybe(p.event_lag_seconds),
                maybe(p.commit_age_seconds),
                maybe(p.retention_margin_seconds),
                p.member_id.as_deref().map_or_else(|| "-".to_owned(), printable),
            ]
        })
        .collect();
    let head =
        ["TOPIC", "PARTITION>", "READING", "COMMITTED>", "END>", "LAG>", "BEHIND>", "EVENT LAG>", "COMMIT AGE>", "MARGIN>", "MEMBER"];
    let group = &detail.group;
    let held: String = detail.partitions_list.iter().filter_map(held_back).collect();
    format!(
        "{}  {}  {} members  {} behind, {}\n\n{}{held}",
        printable(&group.group),
        group.state,
        group.members,
        group.lag,
        maybe(group.lag_seconds),
        table(&head, &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, lag_seconds: Option<f64>) -> Group {
        let text = format!(
            r#"{{"group":{name:?},"state":"Stable","type":"classic","protocol_type":"consumer","members":2,"topics":["t"],"partitions":1,"lag":5,
            "lag_seconds":{},"event_lag_seconds":null,"max_lag":5,"retention_margin_seconds":null,"lost_records":0,"consume_rate":null,
            "produce_rate":null,"catch_up_seconds":null,"catches_up":false,"last_commit_ms":null,"oldest_unconsumed_ms":null,"abandoned_partitions":0,
            "uncommitted_partitions":0,"pending_partitions":0,"stuck_partitions":0,"beyond_end_partitions":0,"held_back_partitions":0,"rebalances":0,"rebalancing_since_ms":null,"unowned_partition_seconds":0.0,"history":[]}}"#,
            lag_seconds.map_or("null".to_owned(), |seconds| seconds.to_string())
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn one_that_is_further_behind_than_it_may_be_is_named() {
        let groups = [group("fine", Some(12.0)), group("unknown", None), group("bad\n", Some(2_280.0))];
        assert!(judge(&groups, Duration::from_secs(2_280)).is_ok());
        let said = judge(&groups, Duration::from_secs(300)).unwrap_err().to_string();
        assert_eq!(said, "behind by more than 5m00s: bad\\n (38m00s)");
    }

    #[test]
    fn what_holds_a_group_back_stands_below_the_table() {
        let text = many(&[Group { held_back_partitions: 2, ..group("a", None) }, group("b", None)]);
        assert_eq!(text.lines().nth(3), Some("a waits for open transactions on 2 of its partitions: highwater lag a"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
        let partition = |open: &str| -> GroupPartition {
            let text = format!(
                r#"{{"topic":"t","partition":3,"member_id":null,"client_id":null,"host":null,"reading":"idle","committed":4,"committed_at_ms":1,
                "commit_age_seconds":1.0,"log_start":0,"end":7,"first_unconsumed":null,"lag":0,"lag_seconds":0.0,"event_lag_seconds":null,
                "oldest_unconsumed_ms":null,"arrived_ms":null,"retention_margin_seconds":null,"lost_records":0,"consume_rate":null,
                "produce_rate":null,"catch_up_seconds":null,"catches_up":null,"read_committed":true,"open_transaction":{open},"held_back":5,"pending":false,
                "stalled_seconds":null,"stuck":false,"beyond_end":0}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(held_back(&partition("null")), None);
        let known =
            r#"{"producer_id":9,"transactional_id":"pay\n","ended_by":"coordinator","since_ms":1,"age_seconds":2280.0,"first_offset":7}"#;
        let said = "t-3 stops at 7, 5 below its high watermark: producer 9 (pay\\n) has a transaction open for 38m00s\n";
        assert_eq!(held_back(&partition(known)).as_deref(), Some(said));
        let hangs = r#"{"producer_id":9,"transactional_id":null,"ended_by":"nobody","since_ms":1,"age_seconds":2280.0,"first_offset":7}"#;
        let said = "t-3 stops at 7, 5 below its high watermark: producer 9 has a transaction open for 38m00s, which no coordinator knows of: \
                    kafka-transactions abort --topic t --partition 3 --start-offset 7\n";
        assert_eq!(held_back(&partition(hangs)).as_deref(), Some(said));
    }

    #[test]
    fn groups_stand_in_a_table() {
        let text = many(&[group("a", Some(2_280.0))]);
        assert!(text.lines().nth(1).unwrap().split_whitespace().eq(["a", "Stable", "2", "5", "38m00s", "-", "never", "0"]), "{text}");
    }
}
