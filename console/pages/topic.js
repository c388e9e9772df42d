// One topic: its partitions and how evenly they are used, who reads it, its configs, and its latest records.

import * as api from "../api.js";
import { h } from "../dom.js";
import { NONE, byteRate, bytes, count, counted, duration, percent, rate, shownName, times } from "../format.js";
import { HOT_RATIO, behind, isBehind, ofTransaction } from "../judge.js";
import { bar, empty, figures, groupLink, panel, some, table, tag, tags } from "../parts.js";
import { reader } from "./records.js";

const ROWS = 100;

export function topic(context, name, chosen) {
  const first = /^\d{1,9}$/.test(chosen ?? "") ? Number(chosen) : null;
  const records = reader(context, name, first);
  let all = false;
  return {
    key: `topic ${name} ${chosen ?? ""}`,
    place: "topics",
    heading: shownName(name),
    gone: "There is no such topic.",
    title: () => name,
    load: async () => {
      const data = await api.topic(name);
      await records.load(data);
      return data;
    },
    view: (data) => [
      h(
        "div",
        { class: "headline", key: "headline" },
        h("p", { class: "crumb" }, h("a", { href: "#/topics" }, "Topics"), " / topic"),
        h("h1", { tabindex: "-1" }, shownName(name)),
        data.offline_partitions > 0 && h("p", { class: "lead" }, tag({ level: "bad", word: `${counted(data.offline_partitions, "partition takes", "partitions take")} no writes` })),
      ),
      facts(data),
      partitions(data),
      consumers(data),
      configs(data),
      records.view(data),
    ],
  };

  function facts(data) {
    const hot = data.partitions > 1 && data.skew >= HOT_RATIO;
    return figures("The topic", [
      ["Produced", rate(data.produce_rate), byteRate(data.produce_bytes_per_second)],
      ["Partitions", count(data.partitions), data.internal ? "internal" : null],
      ["Records", count(data.records)],
      ["On disk", bytes(data.size_bytes)],
      ["Skew", times(data.skew), data.skew === null ? "nothing is produced" : hot ? `partition ${data.hottest_partition} is hot` : "busiest over mean"],
      ["Kept", data.retention_ms < 0 ? "for ever" : duration(data.retention_ms / 1000), data.cleanup_policy],
    ]);
  }

  function partitions(data) {
    const showAll = () => {
      all = true;
      context.redraw();
    };
    const { rows, more } = some(data.partitions_list, ROWS, all, showAll, "partitions");
    const isHot = (p) => data.partitions > 1 && p.share * data.partitions >= HOT_RATIO;
    const columns = [
      { head: "Partition", cell: (p) => [h("a", { href: `#/topics/${encodeURIComponent(name)}/${p.partition}` }, String(p.partition)), h("span", { class: "sub narrow" }, `${counted(p.high_watermark - p.log_start, "offset")}, ${bytes(p.size_bytes)}`), h("span", { class: "sub narrow" }, tags(ofPartition(p, isHot(p))))] },
      { head: "Produced", n: true, cell: (p) => rate(p.produce_rate) },
      { head: "Share", n: true, cell: (p) => [percent(p.share), bar(p.share, isHot(p))] },
      { head: "From", n: true, wide: true, cell: (p) => count(p.log_start) },
      { head: "To", n: true, wide: true, cell: (p) => count(p.high_watermark) },
      { head: "On disk", n: true, wide: true, cell: (p) => bytes(p.size_bytes) },
      { head: "Segments", n: true, wide: true, cell: (p) => count(p.segments) },
      { head: "", wide: true, cell: (p) => tags(ofPartition(p, isHot(p))) ?? "" },
    ];
    return panel("Partitions", { note: "offsets from the first that is kept to the high watermark" }, table("Partitions of the topic", columns, rows, (p) => String(p.partition)), more);
  }
}

function ofPartition(p, hot) {
  const found = [];
  if (p.offline !== null) found.push({ level: "bad", word: "offline", why: p.offline });
  if (hot) found.push({ level: "warn", word: "hot", why: "it gets far more than the others: look at the records' keys" });
  if (p.open_transaction) found.push(ofTransaction(p.open_transaction));
  return found;
}

function consumers(data) {
  const columns = [
    { head: "Group", class: "wide-name", clip: true, cell: (c) => groupLink(c.group) },
    { head: "Behind", n: true, cell: (c) => h("span", { class: isBehind(c) ? "late" : "quiet" }, behind(c)) },
    { head: "Records", n: true, cell: (c) => count(c.lag) },
    { head: "Members", n: true, wide: true, cell: (c) => count(c.members) },
    { head: "", wide: true, cell: (c) => (c.reading === "committing" ? "" : tag({ level: c.reading === "abandoned" || c.reading === "idle" ? "" : "warn", word: c.reading.replaceAll("_", " ") })) },
  ];
  return panel("Who reads it", { id: "consumers" }, data.consumers.length ? table("Groups that read the topic", columns, data.consumers, (c) => c.group) : empty("No group reads it.", h("p", {}, "Its records stay until retention takes them.")));
}

function configs(data) {
  const own = data.configs.filter((config) => !config.default);
  const rest = data.configs.filter((config) => config.default);
  const columns = [
    { head: "Config", cell: (config) => h("code", {}, config.name) },
    { head: "Value", cell: (config) => (config.value === "" ? NONE : h("span", { class: "name" }, config.value)) },
  ];
  const rows = (list, caption) => table(caption, columns, list, (config) => config.name);
  return panel(
    "Configs",
    { note: own.length ? "set on this topic" : "all as the broker has them" },
    own.length > 0 && rows(own, "Configs that are set on this topic"),
    h("details", { class: "more", key: "defaults" }, h("summary", {}, `${counted(rest.length, "default")}`), rows(rest, "Configs that are the broker's")),
  );
}
