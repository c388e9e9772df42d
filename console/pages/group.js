// One group: how far behind it is and was, where, who owns what, and why it rebalanced.

import * as api from "../api.js";
import { chart } from "../chart.js";
import { h } from "../dom.js";
import { ago, count, counted, duration, instant, isNumber, rate, short, shortDuration, shownName } from "../format.js";
import { behind, isBehind, ofGroup, ofPartition } from "../judge.js";
import { choice, empty, figures, panel, ranges, some, table, tags, topicHref } from "../parts.js";

const ROWS = 100;
const HOUR_MS = 3600000;

export function group(context, name) {
  let unit = "time";
  let allPartitions = false;
  let told = null;
  return {
    key: `group ${name}`,
    place: "behind",
    heading: shownName(name),
    gone: "There is no such group.",
    title: (data) => (data ? `${behind(data)}: ${name}` : name),
    load: () => api.group(name),
    view: (data) => {
      if (told !== null && told !== isBehind(data)) context.say(isBehind(data) ? `This group is ${behind(data)}.` : "This group keeps up again.");
      told = isBehind(data);
      return [
        h(
          "div",
          { class: "headline", key: "headline" },
          h("p", { class: "crumb" }, h("a", { href: "#/" }, "Behind"), " / group"),
          h("h1", { tabindex: "-1" }, shownName(name)),
          h("p", { class: "lead" }, h("strong", {}, behind(data)), " ", tags(ofGroup(data))),
        ),
        facts(data),
        history(data),
        partitions(data),
        members(data),
        story(data),
      ];
    },
  };

  function facts(data) {
    return figures("The group", [
      ["Behind", data.lag === 0 ? "0 s" : duration(data.lag_seconds), isNumber(data.event_lag_seconds) && data.lag > 0 ? `${duration(data.event_lag_seconds)} by the records' own time` : "by arrival at the broker"],
      ["Records behind", count(data.lag), `at most ${count(data.max_lag)} in a partition`],
      ["Caught up in", data.lag === 0 ? "now" : data.catches_up === false ? "never" : duration(data.catch_up_seconds), `reads ${rate(data.consume_rate)} of ${rate(data.produce_rate)}`],
      isNumber(data.retention_margin_seconds) && ["Until records are lost", duration(data.retention_margin_seconds), "to retention, unread"],
      ["Members", count(data.members), `${data.state}${data.protocol ? `, ${data.protocol}` : ""}`],
      ["Rebalances", count(data.rebalances), data.unowned_partition_seconds > 0 ? `${duration(data.unowned_partition_seconds)} of partitions without owner` : `generation ${count(data.generation)}`],
      data.lost_records > 0 && ["Lost", count(data.lost_records), "deleted before they were read"],
    ]);
  }

  function history(data) {
    const time = unit === "time";
    const bands = data.rebalances_list.map((r) => ({ from: r.began_ms, to: r.ended_ms ?? data.now_ms }));
    const options = [
      ["time", "Time"],
      ["records", "Records"],
    ];
    const choose = (value) => {
      unit = value;
      context.redraw();
    };
    return panel(
      "The last hour",
      { note: bands.some((band) => band.to > data.now_ms - HOUR_MS) && "rebalances are marked", tools: choice("What the chart shows", options, unit, choose) },
      chart({
        id: "group",
        label: time ? "Time behind over the last hour" : "Records behind over the last hour",
        lines: [{ name: time ? "behind" : "records behind", points: [...data.history.map(([at, records, seconds]) => [at, time ? seconds : records]), [data.now_ms, time ? data.lag_seconds : data.lag]] }],
        bands,
        from: data.now_ms - HOUR_MS,
        to: data.now_ms,
        width: context.width(),
        seconds: time,
        format: time ? shortDuration : short,
        exact: time ? duration : count,
        redraw: context.redraw,
      }),
    );
  }

  function partitions(data) {
    const sorted = [...data.partitions_list].sort((a, b) => (b.lag_seconds ?? 0) - (a.lag_seconds ?? 0) || (b.lag ?? 0) - (a.lag ?? 0) || a.topic.localeCompare(b.topic) || a.partition - b.partition);
    const showAll = () => {
      allPartitions = true;
      context.redraw();
    };
    const { rows, more } = some(sorted, ROWS, allPartitions, showAll, "partitions");
    const columns = [
      {
        head: "Partition",
        class: "wide-name",
        clip: true,
        cell: (p) => [h("a", { href: topicHref(p.topic, p.partition) }, shownName(p.topic), `-${p.partition}`), " ", tags(ofPartition(p)), h("span", { class: "sub narrow" }, owner(p))],
      },
      { head: "Behind", n: true, cell: (p) => [h("span", { class: isBehind(p) ? "late" : p.lag ? null : "quiet" }, p.pending ? "being read" : p.lag === 0 ? "caught up" : duration(p.lag_seconds)), h("span", { class: "sub narrow" }, counted(p.lag, "record"))] },
      { head: "Records", n: true, wide: true, cell: (p) => count(p.lag) },
      { head: "Committed", n: true, wide: true, cell: (p) => count(p.committed) },
      { head: "End", n: true, wide: true, cell: (p) => count(p.end) },
      { head: "Reads", n: true, wide: true, cell: (p) => rate(p.consume_rate) },
      { head: "Comes in", n: true, wide: true, cell: (p) => rate(p.produce_rate) },
      { head: "Last commit", n: true, wide: true, cell: (p) => ago(p.committed_at_ms, data.now_ms) },
      { head: "Owner", wide: true, clip: true, class: "owner", cell: owner },
    ];
    return panel(
      "Partitions",
      { note: "worst first" },
      rows.length ? table("Partitions of the group, the one that is furthest behind first", columns, rows, (p) => `${p.topic} ${p.partition}`) : empty("Nothing is assigned or committed yet.", h("p", {}, "A partition is listed once a member owns it or an offset is committed for it.")),
      more,
    );
  }
}

function owner(partition) {
  return partition.client_id === null ? h("span", { class: "quiet" }, "none") : [shownName(partition.client_id), h("span", { class: "sub" }, shownName(partition.host ?? ""))];
}

function members(data) {
  const columns = [
    {
      head: "Member",
      class: "wide-name",
      clip: true,
      cell: (m) => [shownName(m.instance_id ?? m.client_id), h("span", { class: "sub cut" }, shownName(m.member_id)), h("span", { class: "sub narrow" }, shownName(m.host)), h("span", { class: "sub narrow" }, owned(m))],
    },
    { head: "Behind", n: true, cell: (m) => (m.lag === 0 ? "caught up" : duration(m.lag_seconds)) },
    { head: "Records", n: true, wide: true, cell: (m) => count(m.lag) },
    { head: "Host", wide: true, cell: (m) => shownName(m.host) },
    { head: "Owns", wide: true, cell: owned },
  ];
  return panel(
    "Members",
    { note: data.members > 0 ? `${counted(data.members, "member")}, ${data.state}` : null },
    data.members_list.length
      ? table("Members of the group and what they own", columns, data.members_list, (m) => m.member_id)
      : empty(data.state === "Empty" ? "No member is in the group now." : "Members are joining.", h("p", {}, "Its offsets stay committed: a consumer that joins with this group id goes on from there.")),
  );
}

function owned(member) {
  if (member.assignment.length === 0) return h("span", { class: "quiet" }, "nothing");
  return member.assignment.map(({ topic, partitions }, nth) => [nth > 0 && "; ", h("a", { href: topicHref(topic) }, shownName(topic)), ` ${ranges(partitions)}`]);
}

function story(data) {
  const causes = Object.entries(data.rebalances_by_cause);
  const told = causes.map(([cause, times]) => `${cause.replaceAll("_", " ")} ${count(times)}`).join(", ");
  return panel(
    "Rebalances",
    { note: told || null },
    data.rebalances_list.length
      ? h("ol", { class: "story", "aria-label": "Rebalances, the latest first" }, data.rebalances_list.map((r) => rebalance(r, data.now_ms)))
      : empty("No rebalance since the broker started.", h("p", {}, "When members come, leave or go silent, it is told here: when, why, who, and how long nobody read.")),
  );
}

function rebalance(r, now) {
  const took = ((r.ended_ms ?? now) - r.began_ms) / 1000;
  const outcome = r.outcome === null ? "under way" : r.outcome === "Stable" ? `took ${duration(took)}` : r.outcome === "Empty" ? "left the group empty" : `interrupted by the next after ${duration(took)}`;
  const waited = r.joined_ms === null ? null : (r.joined_ms - r.began_ms) / 1000;
  const longest = (r.unowned ?? []).reduce((most, one) => (most === null || one.seconds > most.seconds ? one : most), null);
  return h(
    "li",
    { class: r.outcome === null ? "open" : null, key: `${r.began_ms} ${r.from_generation}` },
    h("p", { class: "when" }, ago(r.began_ms, now), ` · ${instant(r.began_ms)} · `, h("strong", {}, outcome)),
    h("p", { class: "why" }, shownName(r.why)),
    h(
      "p",
      { class: "when" },
      `generation ${count(r.from_generation)}`,
      isNumber(r.generation) && ` → ${count(r.generation)}`,
      `, ${counted(r.members_before, "member")}`,
      isNumber(r.members) && ` → ${count(r.members)}`,
      waited !== null && waited >= 1 && [`; waited ${duration(waited)} for members`, r.last && [", last ", shownName(r.last)]],
    ),
    longest !== null &&
      h(
        "p",
        { class: "when" },
        `${counted(r.unowned.length, "partition")} without owner, ${duration(r.unowned_partition_seconds)} together; longest `,
        shownName(longest.topic),
        ` ${longest.partition}, ${duration(longest.seconds)}`,
      ),
    r.removed.length > 0 && h("p", { class: "when" }, "did not come: ", r.removed.map((who, nth) => [nth > 0 && "; ", shownName(who)])),
  );
}
