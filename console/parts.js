// The pieces that pages are made of.

import { h } from "./dom.js";
import { NONE, isNumber, shownName } from "./format.js";

/** A framed part of a page with a heading of its own. */
export function panel(title, { id, note, tools } = {}, ...body) {
  const heading = `h-${id ?? title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h(
    "section",
    { class: "panel", "aria-labelledby": heading, key: heading },
    h("header", {}, h("h2", { id: heading }, title), note && h("p", {}, note), tools && h("div", { class: "tools" }, tools)),
    body,
  );
}

/** The facts at the top: `[label, value, remark]`; those without a value are left out. */
export function figures(label, facts) {
  const shown = facts.filter((fact) => fact && fact[1] !== undefined && fact[1] !== null);
  return h("dl", { class: "panel figures", "aria-label": label, key: `figures-${label}` }, shown.map(([name, value, remark]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value, remark && h("small", {}, remark)))));
}

export function tag({ level, word, why }) {
  return h("span", { class: `tag ${level}`, title: why || null, key: word }, word);
}

export const tags = (all) => (all.length ? h("span", { class: "tags" }, all.map(tag)) : null);

export const groupHref = (name) => `#/groups/${encodeURIComponent(name)}`;
export const topicHref = (name, partition) => `#/topics/${encodeURIComponent(name)}${partition === undefined ? "" : `/${partition}`}`;
export const groupLink = (name) => h("a", { href: groupHref(name) }, shownName(name));
export const topicLink = (name) => h("a", { href: topicHref(name) }, shownName(name));

/**
 * A table. Columns are `{ head, cell, n, wide, clip }`: `n` for numbers, `wide` for what a phone leaves out, `clip` for names that
 * are cut at the column's end. The first column is each row's header.
 */
export function table(caption, columns, rows, key) {
  const of = (column) => [column.n && "n", column.wide && "wide", column.clip && "clip", column.class].filter(Boolean).join(" ") || null;
  return h(
    "table",
    { key: `table-${caption}` },
    h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: of(column) }, column.head)))),
    h(
      "tbody",
      {},
      rows.map((row) =>
        h(
          "tr",
          { key: key(row) },
          columns.map((column, nth) => {
            const cell = column.cell(row) ?? NONE;
            return nth === 0 ? h("th", { scope: "row", class: of(column) }, cell) : h("td", { class: of(column) }, cell);
          }),
        ),
      ),
    ),
  );
}

/** What to do where there is nothing to show. */
export function empty(title, ...more) {
  return h("div", { class: "empty", key: "empty" }, h("p", {}, title), more);
}

/** A share as a bar beside its number. */
export function bar(share, hot) {
  if (!isNumber(share)) return null;
  const width = `${Math.min(100, Math.max(0, share * 100)).toFixed(1)}%`;
  return h("span", { class: hot ? "bar hot" : "bar", "aria-hidden": "true" }, h("span", { style: { "--share": width } }));
}

/** One of a few, as buttons: `[value, label]`. */
export function choice(label, options, chosen, choose) {
  return h(
    "span",
    { class: "group", role: "group", "aria-label": label },
    options.map(([value, word]) => h("button", { type: "button", key: value, "aria-pressed": value === chosen ? "true" : "false", on: { click: () => choose(value) } }, word)),
  );
}

/** `0–3, 7`. */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const runs = [];
  for (const n of sorted) {
    const run = runs.at(-1);
    if (run && n === run[1] + 1) run[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`)).join(", ");
}

/** The first `most` of them, with a button for the rest. */
export function some(rows, most, all, showAll, what) {
  if (all || rows.length <= most) return { rows, more: null };
  return { rows: rows.slice(0, most), more: h("p", { class: "more" }, `${most} of ${rows.length} ${what} `, h("button", { type: "button", on: { click: showAll } }, "Show all")) };
}
