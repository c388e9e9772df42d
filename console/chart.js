// A line over time as SVG: one axis, one to a few lines, the value under the pointer. Its own table says the same to those who can't see it.

import { h } from "./dom.js";
import { clock, isNumber } from "./format.js";

const LEFT = 64;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 24;

/** Where the pointer is, by the chart's id. */
const pointers = new Map();

/**
 * `lines` are `{ name, points: [[ms, value or null], …] }`, the first one filled below. `format` writes a value of the axis, `exact` one
 * under the pointer; `redraw` is called when the pointer moves. `seconds` asks for steps that are round as durations. `bands` are spans
 * of time that are marked: `{ from, to }`.
 */
export function chart({ id, label, lines: all, bands = [], from, to, width, height = 200, format, exact = format, redraw, seconds = false }) {
  const inner = { w: Math.max(80, width - LEFT - RIGHT), h: height - TOP - BOTTOM };
  // What was before the axis begins would be drawn over it.
  const lines = all.map((line) => ({ ...line, points: line.points.filter(([ms]) => ms >= from) }));
  const values = lines.flatMap((line) => line.points.map(([, value]) => value)).filter(isNumber);
  const top = roundUp(Math.max(...values, 0), seconds);
  const x = (ms) => LEFT + (inner.w * (ms - from)) / Math.max(1, to - from);
  const y = (value) => TOP + inner.h * (1 - value / top);
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    pointers.set(id, (event.clientX - box.left) * (width / Math.max(1, box.width)));
    redraw();
  };
  const leave = () => {
    pointers.delete(id);
    redraw();
  };
  return h(
    "figure",
    { class: "chart", key: `chart-${id}` },
    h(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": summary(label, lines, exact), on: { pointermove: move, pointerleave: leave } },
      bands.map((band) => marked(band, from, to, x, height)),
      grid(top, y, width, format, seconds),
      hours(from, to, x, height),
      lines.map((line, nth) => [nth === 0 && area(line, x, y, top), h("path", { class: `line line-${nth}`, d: path(line.points, x, y) })]),
      values.length === 0 && h("text", { class: "tick", x: LEFT + inner.w / 2, y: TOP + inner.h / 2, "text-anchor": "middle" }, "no samples yet"),
      pointer(id, lines, x, y, width, height, exact),
    ),
    lines.length > 1 && h("figcaption", { class: "legend" }, lines.map((line, nth) => h("span", { class: `legend-${nth}` }, line.name))),
    table(label, lines, exact),
  );
}

/** A line without axes, for a row of a table. Values that are small beside `least` stay at the bottom. */
export function sparkline(points, from, to, least) {
  const [w, height] = [96, 22];
  const top = Math.max(...points.map(([, value]) => value).filter(isNumber), least);
  const x = (ms) => (w * (ms - from)) / Math.max(1, to - from);
  const y = (value) => 1 + (height - 2) * (1 - value / top);
  return h("svg", { class: "spark", viewBox: `0 0 ${w} ${height}`, width: w, height, "aria-hidden": "true" }, area({ points }, x, y), h("path", { class: "line line-0", d: path(points, x, y) }));
}

function grid(top, y, width, format, seconds) {
  return ticks(top, seconds).map((value) => [
    h("line", { class: value === 0 ? "axis" : "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    h("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)),
  ]);
}

function hours(from, to, x, height) {
  const span = to - from;
  const step = [60, 300, 600, 900, 1800, 3600, 7200, 21600].map((s) => s * 1000).find((ms) => span / ms <= Math.max(2, x(to) / 120)) ?? 86400000;
  const marks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    if (x(at) > LEFT + 14 && x(at) < x(to) - 10) marks.push(h("text", { class: "tick", x: x(at), y: height - 6, "text-anchor": "middle" }, clock(at)));
  }
  return marks;
}

function marked(band, from, to, x, height) {
  if (band.to < from || band.from > to) return null;
  const start = x(Math.max(from, band.from));
  return h("rect", { class: "band", x: start, y: TOP, width: Math.max(2, x(Math.min(to, band.to)) - start), height: height - TOP - BOTTOM });
}

/** Broken where there is no value. */
function path(points, x, y) {
  let d = "";
  let pen = false;
  for (const [ms, value] of points) {
    if (!isNumber(value)) {
      pen = false;
      continue;
    }
    d += `${pen ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  }
  return d;
}

function area({ points }, x, y) {
  const runs = [];
  let run = [];
  for (const point of [...points, [0, null]]) {
    if (isNumber(point[1])) run.push(point);
    else if (run.length) {
      runs.push(run);
      run = [];
    }
  }
  const d = runs.map((run) => `${path(run, x, y)}L${x(run.at(-1)[0]).toFixed(1)} ${y(0).toFixed(1)}L${x(run[0][0]).toFixed(1)} ${y(0).toFixed(1)}Z`);
  return h("path", { class: "area", d: d.join("") });
}

function nearest(points, px, x) {
  let best = null;
  for (const point of points) {
    if (isNumber(point[1]) && (!best || Math.abs(x(point[0]) - px) < Math.abs(x(best[0]) - px))) best = point;
  }
  return best;
}

function pointer(id, lines, x, y, width, height, exact) {
  const px = pointers.get(id);
  const points = px === undefined ? [] : lines.map((line) => nearest(line.points, px, x));
  const found = points.find(Boolean);
  if (!found) return null;
  const at = x(found[0]);
  const words = points.map((point, nth) => point && `${lines.length > 1 ? `${lines[nth].name} ` : ""}${exact(point[1])}`).filter(Boolean);
  const right = at > width / 2;
  return [
    h("line", { class: "cross", x1: at, x2: at, y1: TOP, y2: height - BOTTOM }),
    points.map((point) => point && h("circle", { class: "dot", cx: x(point[0]), cy: y(point[1]), r: 3.5 })),
    h("text", { class: "under", x: right ? at - 8 : at + 8, y: TOP + 12, "text-anchor": right ? "end" : "start" }, `${clock(found[0])}  ${words.join(", ")}`),
  ];
}

function summary(label, lines, exact) {
  const told = lines.map((line) => {
    const points = line.points.filter(([, value]) => isNumber(value));
    if (points.length === 0) return `${line.name}: no samples yet`;
    const most = points.reduce((a, b) => (b[1] > a[1] ? b : a));
    return `${line.name}: ${exact(points.at(-1)[1])} now, at most ${exact(most[1])} at ${clock(most[0])}`;
  });
  return `${label}. ${told.join(". ")}.`;
}

const ROWS_MAX = 13;

function table(label, lines, exact) {
  const points = lines[0]?.points ?? [];
  const step = Math.max(1, Math.ceil(points.length / ROWS_MAX));
  const rows = points.filter((_, nth) => (points.length - 1 - nth) % step === 0).reverse();
  return h(
    "details",
    { class: "data" },
    h("summary", {}, "As a table"),
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, label),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), lines.map((line) => h("th", { scope: "col", class: "n" }, line.name)))),
      h(
        "tbody",
        {},
        rows.map(([ms]) =>
          h(
            "tr",
            { key: String(ms) },
            h("th", { scope: "row" }, clock(ms)),
            lines.map((line) => h("td", { class: "n" }, exact(line.points.find(([at]) => at === ms)?.[1]))),
          ),
        ),
      ),
    ),
  );
}

const ROUND_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

function step(top, seconds) {
  const rough = top / 4;
  if (seconds && rough <= 86400) return ROUND_SECONDS.find((s) => s >= rough) ?? 86400;
  const unit = seconds ? 86400 : 1;
  const power = 10 ** Math.floor(Math.log10(rough / unit));
  return unit * power * ([1, 2, 2.5, 5, 10].find((m) => m * power * unit >= rough) ?? 10);
}

function roundUp(top, seconds) {
  const least = seconds ? 60 : 4;
  const value = Math.max(top, least);
  return Math.ceil(value / step(value, seconds)) * step(value, seconds);
}

function ticks(top, seconds) {
  const by = step(top, seconds);
  return Array.from({ length: Math.round(top / by) + 1 }, (_, nth) => nth * by);
}
