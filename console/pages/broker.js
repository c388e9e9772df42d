// The broker: what it is, what it uses, and its disks.

import * as api from "../api.js";
import { h } from "../dom.js";
import { byteRate, bytes, count, counted, duration, instant, percent, rate } from "../format.js";
import { bar, figures, panel, table, tag } from "../parts.js";

export function broker() {
  return {
    key: "broker",
    place: "broker",
    heading: "The broker",
    title: () => "Broker",
    load: async () => {
      const [own, all] = await Promise.all([api.broker(), api.overview()]);
      return { ...own, all };
    },
    view: (data) => [
      h(
        "div",
        { class: "headline", key: "headline" },
        h("h1", { tabindex: "-1" }, `Broker ${data.id}`),
        h("p", { class: "lead" }, data.ready ? tag({ level: "good", word: "ready" }) : tag({ level: "bad", word: "not ready" }), " ", data.ready ? `highwater ${data.version}, up for ${duration(data.uptime_seconds)}` : data.not_ready_reason),
      ),
      figures("The broker", [
        ["Produced", rate(data.all.produce_records_per_second), byteRate(data.all.produce_bytes_per_second)],
        ["Connections", count(data.connections), "of Kafka clients"],
        ["Memory", bytes(data.memory.resident_bytes), `${bytes(data.memory.virtual_bytes)} virtual`],
        ["CPU", percentOf(data.cpu_seconds, data.uptime_seconds), `of a core since the start, ${count(data.threads)} threads`],
        ["Open files", count(data.open_files), `of ${count(data.max_files)}`],
        ["Topics", h("a", { href: "#/topics" }, count(data.all.topics)), counted(data.all.partitions, "partition")],
      ]),
      directories(data),
      panel("Addresses", {}, table("Addresses", ADDRESSES, addresses(data), (row) => row.what)),
    ],
  };
}

const percentOf = (part, whole) => (whole > 0 ? percent(part / whole) : null);

function directories(data) {
  const columns = [
    { head: "Directory", class: "wide-name", cell: (dir) => [h("span", { class: "name mono" }, dir.path), h("span", { class: "sub narrow" }, state(dir))] },
    { head: "Free", n: true, cell: (dir) => [bytes(dir.free_bytes), h("span", { class: "sub" }, `of ${bytes(dir.total_bytes)}`)] },
    { head: "Used", n: true, wide: true, cell: (dir) => (dir.total_bytes > 0 ? [percent(1 - dir.free_bytes / dir.total_bytes), bar(1 - dir.free_bytes / dir.total_bytes, dir.full)] : null) },
    { head: "Logs", n: true, cell: (dir) => bytes(dir.size_bytes) },
    { head: "Partitions", n: true, wide: true, cell: (dir) => count(dir.partitions) },
    { head: "", wide: true, cell: state },
  ];
  return panel("Data directories", { note: counted(data.log_dirs.length, "directory", "directories") }, table("Data directories", columns, data.log_dirs, (dir) => dir.path));
}

function state(dir) {
  if (!dir.online) return tag({ level: "bad", word: "offline", why: dir.reason ?? "" });
  return dir.full ? tag({ level: "bad", word: "full: takes no writes", why: "log.dir.min.free.bytes" }) : tag({ level: "good", word: "online" });
}

const ADDRESSES = [
  { head: "What", cell: (row) => row.what },
  { head: "Address", cell: (row) => h("span", { class: "name mono" }, row.address) },
];

function addresses(data) {
  return [
    ...data.listeners.map((listener) => ({ what: `Kafka clients (${listener.name})`, address: listener.address })),
    { what: "HTTP", address: data.http.join(", ") },
    { what: "Cluster", address: data.cluster_id },
    { what: "Started", address: instant(data.started_ms) },
  ];
}
