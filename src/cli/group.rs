//! `highwater group list` and `highwater group describe`: the groups of a running broker, members, and the story of their rebalances.

use super::api::{Url, encoded, maybe, print, printable, table};
use crate::http::view::{GroupDetail, Groups, Rebalance};
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct GroupArgs {
    #[command(subcommand)]
    pub command: GroupCommand,
}

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Every group with its state.
    List {
        /// What the broker answers, as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        url: Url,
    },
    /// One group: its members and what they own.
    Describe {
        #[arg(value_name = "GROUP")]
        group: String,
        /// Its last rebalances: when, why, and whom the others waited for.
        #[arg(long)]
        rebalances: bool,
        /// What the broker answers, as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        url: Url,
    },
}

pub fn run(args: &GroupArgs) -> anyhow::Result<()> {
    let text = match &args.command {
        GroupCommand::List { json, url } => {
            let groups: Groups = url.get("/api/groups?limit=10000")?;
            if *json { serde_json::to_string_pretty(&groups)? + "\n" } else { list(&groups) }
        }
        GroupCommand::Describe { group, rebalances, json, url } => {
            let detail: GroupDetail = url.get(&format!("/api/groups/{}", encoded(group)))?;
            match json {
                true => serde_json::to_string_pretty(&detail)? + "\n",
                false => describe(&detail, *rebalances),
            }
        }
    };
    print(&text);
    Ok(())
}

fn list(groups: &Groups) -> String {
    let mut sorted: Vec<_> = groups.groups.iter().collect();
    sorted.sort_by(|a, b| a.group.cmp(&b.group));
    let row = |group: &&crate::http::view::Group| {
        let topics = group.topics.join(",");
        vec![
            printable(&group.group),
            group.kind.clone(),
            group.state.clone(),
            group.members.to_string(),
            group.rebalances.to_string(),
            topics,
        ]
    };
    table(&["GROUP", "TYPE", "STATE", "MEMBERS>", "REBALANCES>", "TOPICS"], &sorted.iter().map(row).collect::<Vec<_>>())
}

fn describe(detail: &GroupDetail, rebalances: bool) -> String {
    let group = &detail.group;
    let member = |member: &crate::http::view::Member| {
        let owned = member.assignment.iter().map(|assigned| {
            let partitions: Vec<_> = assigned.partitions.iter().map(ToString::to_string).collect();
            format!("{}[{}]", assigned.topic, partitions.join(","))
        });
        let instance = member.instance_id.as_deref().map_or_else(|| "-".to_owned(), printable);
        vec![
            printable(&member.member_id),
            instance,
            printable(&member.client_id),
            member.host.clone(),
            member.lag.to_string(),
            maybe(member.lag_seconds),
            owned.collect::<Vec<_>>().join(" "),
        ]
    };
    let head = ["MEMBER", "INSTANCE", "CLIENT", "HOST", "LAG>", "BEHIND>", "OWNS"];
    let mut text = format!(
        "{}  {}  generation {}  {}\n\n{}",
        printable(&group.group),
        group.state,
        detail.generation,
        if detail.protocol.is_empty() { "-" } else { &detail.protocol },
        table(&head, &detail.members_list.iter().map(member).collect::<Vec<_>>())
    );
    if rebalances {
        let rows: Vec<_> = detail.rebalances_list.iter().map(|told| rebalance(told, detail.now_ms)).collect();
        text.push('\n');
        text.push_str(&table(&["BEGAN", "TOOK>", "OUTCOME", "GENERATION>", "MEMBERS>", "UNOWNED>", "LONGEST", "WHY", "WAITED FOR"], &rows));
    }
    text
}

/// The partition that had no owner for longest.
fn longest(told: &crate::http::view::Unowned) -> String {
    format!("{}-{} {}", printable(&told.topic), told.partition, maybe(Some(told.seconds)))
}

fn rebalance(told: &Rebalance, now_ms: i64) -> Vec<String> {
    let seconds = |from: i64, to: i64| to.saturating_sub(from) as f64 / 1_000.0;
    vec![
        format!("{} ago", maybe(Some(seconds(told.began_ms, now_ms)))),
        told.ended_ms.map_or_else(|| "-".to_owned(), |ended| maybe(Some(seconds(told.began_ms, ended)))),
        told.outcome.clone().unwrap_or_else(|| "under way".to_owned()),
        told.generation.map_or_else(|| "-".to_owned(), |generation| generation.to_string()),
        format!("{}→{}", told.members_before, told.members.map_or_else(|| "?".to_owned(), |members| members.to_string())),
        maybe(Some(told.unowned_partition_seconds)),
        told.unowned.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds)).map_or_else(|| "-".to_owned(), longest),
        told.why.clone(),
        told.last.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}
