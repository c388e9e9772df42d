// Numbers, times and names as people read them. Minutes before records; a figure that isn't there is a dash, never NaN.

import { h } from "./dom.js";

export const NONE = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const hundredth = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** `1,234,567`. */
export function count(value) {
  return isNumber(value) ? whole.format(value) : NONE;
}

/** `3 groups`, `1 group`. */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** The two largest units that say something: `45 s`, `38 min`, `2 h 5 min`, `3 d 4 h`, `5 years`. */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  const s = Math.max(0, seconds);
  if (s === 0) return "0 s";
  if (s < 1) return "under 1 s";
  if (s < 60) return `${Math.floor(s)} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 10 && Math.floor(s % 60) > 0) return `${minutes} min ${Math.floor(s % 60)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  if (days < 14) return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
  if (days < 730) return `${whole.format(days)} d`;
  return `${whole.format(days / 365.25)} years`;
}

/** For an axis: the shortest that is exact enough. */
export function shortDuration(seconds) {
  if (seconds < 60) return `${tenth.format(seconds)} s`;
  if (seconds < 3600) return `${tenth.format(seconds / 60)} min`;
  if (seconds < 172800) return `${tenth.format(seconds / 3600)} h`;
  return `${tenth.format(seconds / 86400)} d`;
}

/** `950`, `12.4 k`, `3.1 M`: where there's no room for all digits. */
export function short(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size < 1000) return size < 10 ? hundredth.format(value) : tenth.format(value);
  const step = Math.min(4, Math.floor(Math.log10(size) / 3));
  return `${tenth.format(value / 1000 ** step)} ${["", "k", "M", "G", "T"][step]}`;
}

export function bytes(value) {
  if (!isNumber(value)) return NONE;
  if (value < 1000) return `${whole.format(value)} B`;
  const step = Math.min(5, Math.floor(Math.log10(value) / 3));
  return `${tenth.format(value / 1000 ** step)} ${["B", "kB", "MB", "GB", "TB", "PB"][step]}`;
}

export const rate = (value) => (isNumber(value) ? `${short(value)}/s` : NONE);
export const byteRate = (value) => (isNumber(value) ? `${bytes(value)}/s` : NONE);
export const percent = (share) => (isNumber(share) ? `${whole.format(share * 100)} %` : NONE);
export const times = (factor) => (isNumber(factor) ? `${tenth.format(factor)}×` : NONE);

const two = (value) => String(value).padStart(2, "0");

/** `14:05`, in the reader's time zone. */
export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** `2026-11-30 14:05:09`; milliseconds on request. */
export function instant(ms, withMillis = false) {
  const at = new Date(ms);
  if (!isNumber(ms) || Number.isNaN(at.getTime())) return NONE;
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const millis = withMillis ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "";
  return `${date} ${clock(ms)}:${two(at.getSeconds())}${millis}`;
}

/** A `time` element: `3 min ago`, with the full instant where one looks closer. */
export function ago(ms, now) {
  if (!isNumber(ms)) return NONE;
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return h("span", {}, count(ms));
  const past = (now - ms) / 1000;
  const words = past < -1 ? `in ${duration(-past)}` : past < 2 ? "now" : `${duration(past)} ago`;
  return h("time", { datetime: date.toISOString(), title: instant(ms, true) }, words);
}

// What would end a line, move the cursor, or turn the direction of the text around it.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Co}|\p{Cn}|\p{Cs}/u;

/** The name in one line of plain characters, as for titles. */
export function plainName(name) {
  return Array.from(String(name), (c) => (HIDDEN.test(c) ? escaped(c) : c)).join("");
}

/** A peer's name: what can't be seen is shown as an escape, set apart from a name that has the same characters. */
export function shownName(name) {
  if (name === "") return h("span", { class: "escape" }, "empty");
  const parts = [];
  let run = "";
  for (const c of String(name)) {
    if (!HIDDEN.test(c)) {
      run += c;
      continue;
    }
    if (run) parts.push(run);
    run = "";
    parts.push(h("span", { class: "escape" }, escaped(c)));
  }
  if (run) parts.push(run);
  return h("bdi", { class: "name", title: plainName(name) }, parts);
}

function escaped(c) {
  const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[c];
  return short ?? `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`;
}
