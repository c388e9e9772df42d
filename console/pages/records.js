// The records of a partition, to read: the latest ones, or a page further back.

import * as api from "../api.js";
import { h } from "../dom.js";
import { ago, bytes, count, instant, shownName } from "../format.js";
import { choice, empty, panel } from "../parts.js";

const PAGE = 20;
const FORMATS = [
  ["auto", "As it is"],
  ["text", "Text"],
  ["json", "JSON"],
  ["hex", "Hex"],
];

export function reader(context, topic, chosen) {
  let partition = chosen;
  /** `null` for the latest ones, which follow what comes. */
  let from = null;
  let format = "auto";
  let page = null;
  /** What `page` was asked for with: `from` may be further already. */
  let pageFrom = null;
  let failed = null;

  const go = (offset) => {
    from = offset;
    context.reload();
  };

  return {
    async load(data) {
      const numbers = data.partitions_list.map((p) => p.partition);
      // Where none is chosen: the one that has the most to show.
      if (partition === null) partition = data.partitions_list.reduce((a, b) => (b.high_watermark - b.log_start > a.high_watermark - a.log_start ? b : a), data.partitions_list[0])?.partition ?? 0;
      if (!numbers.includes(partition)) partition = numbers[0] ?? 0;
      const [askedPartition, askedFrom] = [partition, from];
      // An answer that somebody didn't wait for is none: another page was asked for meanwhile.
      const isWanted = () => partition === askedPartition && from === askedFrom;
      try {
        const got = await api.records(topic, askedPartition, askedFrom, PAGE);
        if (isWanted()) [page, pageFrom, failed] = [got, askedFrom, null];
      } catch (error) {
        if (isWanted()) failed = error;
      }
    },
    view: (data) => panel("Records", { note: pageFrom === null ? "the latest, newest first" : `from offset ${count(pageFrom)}, newest first`, tools: tools(data) }, failed && notice(), page && body(data)),
  };

  function tools(data) {
    const choosePartition = (event) => {
      partition = Number(event.target.value);
      page = null;
      go(null);
    };
    const chooseFormat = (value) => {
      format = value;
      context.redraw();
    };
    return [
      h("label", { for: "partition" }, "Partition"),
      h("select", { id: "partition", value: String(partition), on: { change: choosePartition } }, data.partitions_list.map((p) => h("option", { value: String(p.partition), key: String(p.partition) }, String(p.partition)))),
      choice("How keys and values are shown", FORMATS, format, chooseFormat),
    ];
  }

  function notice() {
    return h("div", { class: "body", key: "failed" }, h("div", { class: "notice" }, h("p", {}, `These records can't be read: ${failed.message}.`)));
  }

  function body(data) {
    const newest = [...page.records].reverse();
    const older = page.previous !== null && page.previous < (page.records[0]?.offset ?? page.end);
    const newer = from !== null;
    return [
      newest.length
        ? h("ol", { class: "records", "aria-label": `Records of partition ${partition}`, key: "records" }, newest.map((record) => shown(record, format, data.now_ms)))
        : empty(page.end > page.log_start ? "Nothing is left to read at these offsets." : `Partition ${partition} is empty.`, h("p", {}, "For instance, with kcat:"), h("pre", {}, `echo hello | kcat -b BROKER:9092 -t TOPIC -p ${partition} -P`)),
      h(
        "p",
        { class: "more", key: "pages" },
        h("span", { class: "tags" }, [
          h("button", { type: "button", disabled: !older, on: { click: () => go(page.previous) } }, "Older"),
          h("button", { type: "button", disabled: !newer, on: { click: () => go(page.next >= page.end ? null : page.next) } }, "Newer"),
          h("button", { type: "button", disabled: from === null, on: { click: () => go(null) } }, "Latest"),
        ]),
        page.truncated && " The page is cut short: its records are large.",
      ),
    ];
  }
}

function shown(record, format, now) {
  const key = String(record.offset);
  const head = [h("span", {}, "offset ", h("b", {}, count(record.offset))), when(record, now), record.timestamp_type === "LogAppendTime" && h("span", {}, "time of the append"), h("span", {}, bytes(record.size_bytes))];
  if (record.kind === "unreadable") {
    const offsets = record.last_offset === record.offset ? null : h("span", {}, "to ", h("b", {}, count(record.last_offset)));
    return h("li", { class: "record", key: `${key} unreadable` }, h("p", { class: "meta" }, head[0], offsets, head.slice(1)), h("p", { class: "notice" }, `This batch can't be read: ${record.error}.`));
  }
  if (record.kind === "control") {
    return h("li", { class: "record", key }, h("p", { class: "meta" }, head, h("span", {}, `transaction marker: ${String(record.marker ?? "unknown").toLowerCase()}`)));
  }
  return h(
    "li",
    { class: "record", key },
    h("p", { class: "meta" }, head),
    h(
      "dl",
      {},
      h("dt", {}, "Key"),
      h("dd", {}, field(record.key, format)),
      h("dt", {}, "Value"),
      h("dd", {}, field(record.value, format)),
      record.headers.length > 0 && [h("dt", {}, "Headers"), h("dd", {}, record.headers.map((header, nth) => h("div", { key: String(nth) }, shownName(header.key), ": ", header.value === null ? h("span", { class: "quiet" }, "null") : field(header.value, format, true))))],
    ),
  );
}

function when(record, now) {
  if (record.timestamp_ms < 0) return h("span", {}, "no timestamp");
  return [h("span", {}, ago(record.timestamp_ms, now)), h("span", {}, instant(record.timestamp_ms, true))];
}

/** What fits on a line stays on it. */
const LINE = 160;

/** A key or a value. Text stays as it came; only the way it is laid out is chosen here. */
function field(value, format, inline = false) {
  if (value === null) return h("span", { class: "quiet" }, "null");
  if (value.size_bytes === 0) return h("span", { class: "quiet" }, "empty");
  const cut = value.cut && h("p", { class: "quiet" }, `The first ${bytes(shownBytes(value))} of ${bytes(value.size_bytes)}.`);
  if (format === "hex" || (format === "auto" && value.format === "hex")) {
    const all = asBytes(value);
    return inline && all.length <= 16 ? h("code", {}, pairs(all).join(" ")) : [h("pre", { class: "hex", tabindex: "0", "aria-label": "bytes in hexadecimal" }, dump(all)), cut];
  }
  const words = value.format === "hex" ? new TextDecoder().decode(asBytes(value)) : value.text;
  if (format === "json" || (format === "auto" && value.format === "json" && words.length > LINE)) {
    const pretty = indented(words);
    if (pretty !== null) return [h("pre", {}, pretty), cut];
    return [h("pre", {}, words), h("p", { class: "quiet" }, "This is not JSON."), cut];
  }
  if (inline) return [shownName(words), cut];
  return words.includes("\n") || words.length > LINE ? [h("pre", {}, words), cut] : [h("span", { class: "mono" }, shownName(words)), cut];
}

/** Indented without changing a digit: numbers keep their spelling, which `JSON.parse` would not leave them. */
function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let out = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
    if (token === "{" || token === "[") {
      depth += 1;
      out += token + line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      out = /[{[]\s*$/.test(out) ? out.trimEnd() + token : out + line() + token;
    } else if (token === ",") out += token + line();
    else if (token === ":") out += ": ";
    else out += token;
  }
  return out;
}

function asBytes(value) {
  if (value.format !== "hex") return new TextEncoder().encode(value.text);
  const digits = value.text.match(/../g) ?? [];
  return Uint8Array.from(digits, (pair) => Number.parseInt(pair, 16));
}

const shownBytes = (value) => (value.format === "hex" ? value.text.length / 2 : new TextEncoder().encode(value.text).length);
const pairs = (all) => Array.from(all, (byte) => byte.toString(16).padStart(2, "0"));

/** `00000010  68 65 6c 6c 6f …  |hello|`, as hexdump -C writes it. */
function dump(all) {
  const lines = [];
  for (let at = 0; at < all.length; at += 16) {
    const row = all.slice(at, at + 16);
    const hex = pairs(row);
    const text = Array.from(row, (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.slice(0, 8).join(" ").padEnd(23)}  ${hex.slice(8).join(" ").padEnd(23)}  |${text}|`);
  }
  return lines.join("\n");
}
