// All topics: how large, how fast, how evenly.

import * as api from "../api.js";
import { h } from "../dom.js";
import { bytes, byteRate, count, counted, duration, rate, times } from "../format.js";
import { HOT_RATIO } from "../judge.js";
import { empty, panel, table, tag, topicLink } from "../parts.js";

const FIRST = 200;

export function topics(context) {
  let internal = false;
  let limit = FIRST;
  let wanted = "";
  return {
    key: "topics",
    place: "topics",
    heading: "Topics",
    title: () => "Topics",
    load: () => api.topics(limit, internal),
    view: (data) => {
      const shown = data.topics.filter((topic) => topic.topic.includes(wanted));
      const tools = [
        (data.topics.length > 12 || wanted) && [h("label", { for: "find" }, "Find"), h("input", { id: "find", type: "search", value: wanted, on: { input: (event) => ((wanted = event.target.value), context.redraw()) } })],
        h("button", { type: "button", "aria-pressed": internal ? "true" : "false", on: { click: () => ((internal = !internal), context.reload()) } }, "Internal topics"),
      ];
      return [
        h("div", { class: "headline", key: "headline" }, h("h1", { tabindex: "-1" }, "Topics"), h("p", { class: "lead" }, `${counted(data.total, "topic")}, the busiest first.`)),
        panel(
          "All topics",
          { tools },
          shown.length ? table("Topics, the busiest first", columns(), sorted(shown), (topic) => topic.topic) : data.total ? empty(`No topic of these has “${wanted}” in its name.`) : noTopics(),
          data.total > data.topics.length && h("p", { class: "more" }, `${count(data.topics.length)} of ${count(data.total)} topics. `, h("button", { type: "button", on: { click: () => ((limit = Math.min(10000, limit * 10)), context.reload()) } }, "Show more")),
        ),
      ];
    },
  };
}

const sorted = (topics) => [...topics].sort((a, b) => (b.produce_rate ?? 0) - (a.produce_rate ?? 0) || b.size_bytes - a.size_bytes || a.topic.localeCompare(b.topic));

function columns() {
  const hot = (topic) => topic.skew >= HOT_RATIO && topic.partitions > 1;
  const skew = (topic) => (hot(topic) ? tag({ level: "warn", word: `partition ${topic.hottest_partition} is hot`, why: `it gets ${times(topic.skew)} the mean` }) : null);
  return [
    {
      head: "Topic",
      class: "wide-name",
      clip: true,
      cell: (topic) => [topicLink(topic.topic), h("span", { class: "sub narrow" }, `${counted(topic.partitions, "partition")}, ${bytes(topic.size_bytes)}`), topic.offline_partitions > 0 && tag({ level: "bad", word: `${count(topic.offline_partitions)} offline` }), h("span", { class: "sub narrow" }, skew(topic))],
    },
    { head: "Produced", n: true, cell: (topic) => [rate(topic.produce_rate), h("span", { class: "sub" }, byteRate(topic.produce_bytes_per_second))] },
    { head: "Partitions", n: true, wide: true, cell: (topic) => count(topic.partitions) },
    { head: "Records", n: true, wide: true, cell: (topic) => count(topic.records) },
    { head: "On disk", n: true, wide: true, cell: (topic) => bytes(topic.size_bytes) },
    { head: "Groups", n: true, wide: true, cell: (topic) => count(topic.groups) },
    { head: "Kept", wide: true, cell: (topic) => kept(topic) },
    { head: "Skew", wide: true, cell: (topic) => skew(topic) ?? times(topic.skew) },
  ];
}

function kept(topic) {
  if (!topic.cleanup_policy.includes("delete")) return "latest of each key";
  const age = topic.retention_ms < 0 ? "for ever" : duration(topic.retention_ms / 1000);
  return topic.cleanup_policy.includes("compact") ? `${age}, compacted` : age;
}

function noTopics() {
  return empty("There are no topics yet.", h("p", {}, "A topic is made by the first record that is sent to it, or by a tool:"), h("pre", {}, "echo hello | kcat -b BROKER:9092 -t greetings -P\nkafka-topics --bootstrap-server BROKER:9092 --create --topic orders --partitions 12"));
}
