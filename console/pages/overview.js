// What is behind, in minutes, worst first.

import * as api from "../api.js";
import { sparkline } from "../chart.js";
import { h } from "../dom.js";
import { ago, byteRate, bytes, count, counted, duration, plainName, rate, shownName } from "../format.js";
import { behind, headline, isBehind, ofGroup, ofTransaction } from "../judge.js";
import { empty, figures, groupLink, panel, table, tags, topicHref } from "../parts.js";

const FIRST = 100;
/** More rows than anybody reads, and as many as stay quick: the others are found by their names. */
const MOST = 800;

export function overview(context) {
  let limit = FIRST;
  let wanted = "";
  let told = null;
  return {
    key: "behind",
    place: "behind",
    heading: "What is behind",
    title: (data) => {
      const late = data?.counts.late;
      return late ? `${late} behind` : "What is behind";
    },
    load: async () => {
      const [all, list] = await Promise.all([api.overview(), api.groups(limit, wanted)]);
      return { ...all, groups: list.groups, total: list.total, counts: all.groups };
    },
    view: (data) => {
      const { late } = data.counts;
      const words = headline(data.counts);
      const worst = late > 0 && data.worst_group;
      if (told !== null && told !== late) context.say(worst ? `${words} Worst: ${plainName(worst.group)}, ${behind(worst)}.` : words);
      told = late;
      // What was typed just now counts before the broker has answered it.
      const shown = data.groups.filter((group) => group.group.toLowerCase().includes(wanted.toLowerCase()));
      return [
        h(
          "div",
          { class: "headline", key: "headline" },
          h("h1", { tabindex: "-1" }, "What is behind"),
          h("p", { class: "lead" }, words, worst && [" Worst: ", groupLink(worst.group), ", ", h("strong", {}, behind(worst)), "."]),
        ),
        data.offline_partitions > 0 &&
          h("div", { class: "notice bad", key: "offline" }, h("p", {}, `${counted(data.offline_partitions, "partition takes", "partitions take")} no writes. `, h("a", { href: "#/broker" }, "The broker's page"), " says which directory has failed or is full.")),
        data.held_back_partitions > 0 && h("div", { class: "notice", key: "held" }, heldBack(data)),
        data.counts.total === 0 ? panel("Consumer groups", {}, noGroups(data)) : groupsPanel(data, shown),
        figures("The broker", [
          ["Produced", rate(data.produce_records_per_second), byteRate(data.produce_bytes_per_second)],
          ["Topics", h("a", { href: "#/topics" }, count(data.topics)), counted(data.partitions, "partition")],
          ["Groups", count(data.counts.total), `${count(data.counts.stable)} stable, ${count(data.counts.rebalancing)} rebalancing, ${count(data.counts.empty)} empty`],
          ["On disk", bytes(data.size_bytes)],
        ]),
      ];
    },
  };

  function groupsPanel(data, shown) {
    const search = (data.counts.total > 12 || wanted) && [
      h("label", { for: "find" }, "Find"),
      h("input", {
        id: "find",
        type: "search",
        value: wanted,
        on: {
          input: (event) => {
            wanted = event.target.value;
            context.reload();
          },
        },
      }),
    ];
    const more = data.total > data.groups.length && [
      `The worst ${count(data.groups.length)} of ${count(data.total)} groups${wanted ? ` with “${wanted}”` : ""}. `,
      limit < MOST ? h("button", { type: "button", on: { click: () => ((limit = Math.min(MOST, limit * 2)), context.reload()) } }, "Show more") : "Find the others by their names.",
    ];
    return panel(
      "Consumer groups",
      { id: "groups", note: "worst first", tools: search },
      shown.length ? table("Consumer groups, the one that is furthest behind first", columns(data), shown, (group) => group.group) : empty(`No group has “${wanted}” in its name.`),
      more && h("p", { class: "more" }, more),
    );
  }
}

/** What holds readers of committed records back, the oldest first. */
function heldBack(data) {
  const row = ({ topic, partition, open_transaction: open }) => {
    const { word, why } = ofTransaction(open);
    return h("li", { key: `${topic} ${partition}` }, h("a", { href: topicHref(topic, partition) }, shownName(topic), `-${partition}`), `: ${word}, ${why}`);
  };
  const more = data.held_back_partitions - data.held_back.length;
  return [h("p", {}, `${counted(data.held_back_partitions, "partition holds", "partitions hold")} readers of committed records back.`), h("ul", {}, ...data.held_back.map(row)), more > 0 && h("p", {}, `And ${count(more)} more.`)];
}

function columns(data) {
  const to = data.now_ms;
  return [
    { head: "Group", class: "wide-name", clip: true, cell: (group) => [groupLink(group.group), h("span", { class: "sub narrow" }, counted(group.lag, "record"), ", ", counted(group.members, "member")), h("span", { class: "sub narrow" }, tags(ofGroup(group)))] },
    { head: "Behind", n: true, cell: (group) => h("span", { class: isBehind(group) ? "late" : group.lag ? null : "quiet" }, group.lag === 0 ? "caught up" : duration(group.lag_seconds)) },
    { head: "Last hour", wide: true, cell: (group) => sparkline(group.history.map(([at, , seconds]) => [at, seconds]), to - 3600000, to, 300) },
    { head: "Records", n: true, wide: true, cell: (group) => count(group.lag) },
    { head: "Reads", n: true, wide: true, cell: (group) => rate(group.consume_rate) },
    { head: "Members", n: true, wide: true, cell: (group) => count(group.members) },
    { head: "Last commit", n: true, wide: true, cell: (group) => ago(group.last_commit_ms, data.now_ms) },
    { head: "How it goes", wide: true, cell: (group) => tags(ofGroup(group)) },
  ];
}

function noGroups(data) {
  const topic = data.topics > 0 ? "TOPIC" : "greetings";
  return empty(
    "No consumer group has read here yet.",
    h("p", {}, "A group is there as soon as a consumer joins it or commits an offset. For instance, with kcat:"),
    h("pre", {}, `${data.topics > 0 ? "" : `echo hello | kcat -b BROKER:9092 -t ${topic} -P\n`}kcat -b BROKER:9092 -X auto.offset.reset=earliest -G my-group ${topic}`),
  );
}
