// A dashboard of grafana/ drawn from a running Prometheus: `dashboard.mjs PROMETHEUS DASHBOARD AT SHOTS [NAME=VALUE...]` asks for every panel's
// queries as Grafana would for the hour that ends at AT (seconds since 1970), draws the panels in their grid with uPlot, which Grafana's own
// time series are drawn with too, and takes pictures for SHOTS: in the dark, by light, and at phone width. It prints a line a fact and ends
// with 1 if a panel has no data. It is not Grafana: that can't be had from a package registry, and draws these panels in its own style.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.NODE_PATH, "x.js"));
const { chromium } = require("playwright-core");
const uplot = path.dirname(require.resolve("uplot/package.json"));
const [prometheus, file, atText, shots, ...chosen] = process.argv.slice(2);

const FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync";
const SPAN_S = 3600;
const STEP_S = 15;
const at = Number(atText);
const dashboard = JSON.parse(readFileSync(file, "utf8"));
/** Where the picture for README ends: the panels up to the second row's title, and that row's. */
const ROWS_SHOWN = 2;

function ensure(so, what) {
  if (!so) throw new Error(what);
  console.log(`ok: ${what}`);
}

async function ask(route, parameters) {
  const answer = await (await fetch(`${prometheus}/api/v1/${route}?${new URLSearchParams(parameters)}`)).json();
  if (answer.status !== "success") throw new Error(`${JSON.stringify(parameters)}: ${answer.error}`);
  return answer.data;
}

/** What the variables stand for: what was chosen, or all. */
function variables() {
  const values = { __rate_interval: "1m", __interval: `${STEP_S}s`, __range: `${SPAN_S}s`, __range_s: `${SPAN_S}` };
  const shown = [];
  for (const variable of dashboard.templating.list) {
    const picked = chosen.find((one) => one.startsWith(`${variable.name}=`))?.slice(variable.name.length + 1).split(",");
    const current = variable.current.value;
    values[variable.name] = picked ? picked.join("|") : variable.includeAll ? variable.allValue : Array.isArray(current) ? current.join("|") : current;
    if (variable.type !== "datasource") shown.push([variable.label ?? variable.name, picked?.join(" + ") ?? (variable.includeAll ? "All" : current)]);
  }
  return { values, shown };
}

function expanded(expr, values) {
  return expr.replace(/\$\{?(\w+)\}?/g, (whole, name) => values[name] ?? whole);
}

function named(target, labels) {
  if (target.legendFormat) return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? "");
  const { __name__: name = "", ...rest } = labels;
  const shown = Object.entries(rest).map(([label, value]) => `${label}="${value}"`);
  return shown.length ? `${name}{${shown.join(", ")}}` : name || "value";
}

/** As Prometheus writes it. */
const number = (text) => ({ "+Inf": Infinity, "-Inf": -Infinity })[text] ?? Number(text);

/** Every panel with its data: series over time, or values of now. */
async function filled(values) {
  const panels = [];
  for (const panel of dashboard.panels) {
    const series = [];
    for (const target of panel.targets ?? []) {
      const query = expanded(target.expr, values);
      if (target.instant) {
        const { result } = await ask("query", { query, time: at });
        result.forEach(({ metric, value }) => series.push({ ref: target.refId, name: named(target, metric), labels: metric, value: number(value[1]) }));
      } else {
        const { result } = await ask("query_range", { query, start: at - SPAN_S, end: at, step: STEP_S });
        result.forEach(({ metric, values }) => series.push({ ref: target.refId, name: named(target, metric), labels: metric, points: values.map(([when, text]) => [when, number(text)]) }));
      }
    }
    if (panel.type !== "row") {
      const known = series.filter((one) => (one.points ? one.points.some(([, value]) => !Number.isNaN(value)) : !Number.isNaN(one.value)));
      ensure(known.length > 0, `“${panel.title}” has data: ${known.length} series`);
    }
    panels.push({ ...panel, series });
  }
  return panels;
}

/** Runs in the page. */
function draw({ title, shown, panels, from, to, step, theme, stacked }) {
  const dark = theme === "dark";
  const colors = { green: dark ? "#73bf69" : "#37872d", yellow: dark ? "#fade2a" : "#c4980c", orange: dark ? "#ff9830" : "#e0701a", red: dark ? "#f2495c" : "#c4162a", text: dark ? "#d5d9de" : "#22262b" };
  const lines = dark ? ["#73bf69", "#f2cc0c", "#6e9fff", "#ff7383", "#b877d9", "#56d9d9", "#ff9830", "#a0d6a0", "#c9b9ff", "#ffb357"] : ["#37872d", "#b08c00", "#1f60c4", "#c4162a", "#7c2ea3", "#0f7d7d", "#d05f00", "#5b8c3a", "#6b5bb5", "#a8682a"];
  const digits = (value) => value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 1 });
  const scaled = (value, steps) => {
    const [, size, unit] = steps.find(([upto]) => Math.abs(value) < upto);
    return `${digits(value / size)}${unit}`;
  };
  const formats = {
    s: (v) => (v === 0 ? "0 s" : scaled(v, [[0.001, 1e-6, " µs"], [1, 1e-3, " ms"], [60, 1, " s"], [3600, 60, " min"], [86400, 3600, " hours"], [Infinity, 86400, " days"]])),
    short: (v) => scaled(v, [[1e3, 1, ""], [1e6, 1e3, " K"], [1e9, 1e6, " Mil"], [Infinity, 1e9, " Bil"]]),
    bytes: (v) => scaled(v, [[1024, 1, " B"], [2 ** 20, 1024, " KiB"], [2 ** 30, 2 ** 20, " MiB"], [Infinity, 2 ** 30, " GiB"]]),
    Bps: (v) => scaled(v, [[1e3, 1, " B/s"], [1e6, 1e3, " kB/s"], [Infinity, 1e6, " MB/s"]]),
    percentunit: (v) => `${digits(v * 100)}%`,
    reqps: (v) => `${digits(v)} req/s`,
    cps: (v) => `${digits(v)} c/s`,
  };
  const format = (unit, value) => (value === undefined || value === null || Number.isNaN(value) ? "–" : !Number.isFinite(value) ? (value > 0 ? "∞" : "-∞") : (formats[unit] ?? digits)(value));
  const colored = (thresholds, value) => colors[thresholds.steps.filter((one) => one.value === null || value >= one.value).at(-1)?.color] ?? colors.text;
  const make = (tag, className, text, parent) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    parent?.append(node);
    return node;
  };
  document.documentElement.dataset.theme = theme;
  document.body.replaceChildren();
  const head = make("header", "", undefined, document.body);
  make("h1", "", title, head);
  shown.forEach(([name, value]) => {
    const chip = make("span", "chip", undefined, head);
    make("b", "", name, chip);
    make("span", "", value, chip);
  });
  make("span", "range", "Last 1 hour", head);
  const grid = make("main", "", undefined, document.body);

  const drawn = {
    row: (panel, box) => box.replaceChildren(`⌄ ${panel.title}`),
    stat(panel, box) {
      const value = panel.series[0]?.value ?? panel.series[0]?.points.at(-1)[1];
      const { unit, thresholds, decimals } = panel.fieldConfig.defaults;
      make("div", "stat", decimals === 0 ? digits(Math.round(value)) : panel.options.textMode === "name" ? panel.series[0].name : format(unit, value), box).style.color = colored(thresholds, value);
    },
    bargauge(panel, box) {
      const { unit, thresholds } = panel.fieldConfig.defaults;
      const most = Math.max(...panel.series.map((one) => one.value));
      [...panel.series].sort((a, b) => b.value - a.value).forEach((one) => {
        const row = make("div", "gauge", undefined, box);
        make("span", "", one.name, row);
        const bar = make("span", "bar", undefined, row);
        make("i", "", undefined, bar).style.cssText = `width:${(one.value / most) * 100}%;background:${colored(thresholds, one.value)}`;
        make("span", "", format(unit, one.value), row);
      });
    },
    table(panel, box) {
      const organize = panel.transformations.find((one) => one.id === "organize").options;
      const sort = panel.transformations.find((one) => one.id === "sortBy").options.sort[0];
      const labels = [...new Set(panel.series.flatMap((one) => Object.keys(one.labels)))].filter((label) => label !== "__name__");
      const rows = new Map();
      panel.series.forEach((one) => {
        const key = JSON.stringify(labels.map((label) => one.labels[label]));
        rows.set(key, { ...rows.get(key), ...one.labels, [`Value #${one.ref}`]: one.value });
      });
      const columns = [...labels, ...panel.targets.map((target) => `Value #${target.refId}`)].filter((column) => !organize.excludeByName[column]);
      const names = columns.map((column) => organize.renameByName[column] ?? column);
      const by = columns[names.indexOf(sort.field)];
      const table = make("table", "", undefined, box);
      const tr = make("tr", "", undefined, make("thead", "", undefined, table));
      names.forEach((name, nth) => make("th", nth < labels.length ? "" : "n", name, tr));
      const body = make("tbody", "", undefined, table);
      [...rows.values()]
        .sort((a, b) => ((a[by] ?? -1) - (b[by] ?? -1)) * (sort.desc ? -1 : 1))
        .forEach((row) => {
          const line = make("tr", "", undefined, body);
          columns.forEach((column, nth) => {
            const properties = panel.fieldConfig.overrides.find((one) => one.matcher.options === names[nth])?.properties ?? [];
            const of = (id) => properties.find((one) => one.id === id)?.value;
            const cell = make("td", nth < labels.length ? "" : "n", nth < labels.length ? row[column] : format(of("unit"), row[column]), line);
            if (of("custom.cellOptions")?.type === "color-text" && row[column] !== undefined) cell.style.color = colored(of("thresholds"), row[column]);
          });
        });
    },
    "state-timeline"(panel, box) {
      const list = make("div", "states", undefined, box);
      panel.series.forEach((one, nth) => {
        make("span", "", one.name, list);
        const strip = make("div", "strip", undefined, list);
        let run = null;
        one.points.forEach(([when], i) => {
          run ??= when;
          const next = one.points[i + 1]?.[0];
          if (next === undefined || next - when > step * 1.5) {
            const left = ((run - from) / (to - from)) * 100;
            make("i", "", undefined, strip).style.cssText = `left:${left}%;width:${Math.max(0.4, ((when - run) / (to - from)) * 100)}%;background:${lines[nth % lines.length]}`;
            run = null;
          }
        });
      });
    },
    timeseries(panel, box) {
      const { unit, custom, thresholds, max } = panel.fieldConfig.defaults;
      const last = (one) => one.points.at(-1)[1];
      const shown = [...panel.series].sort((a, b) => last(b) - last(a));
      const times = [];
      for (let when = from; when <= to; when += step) times.push(when);
      const column = (one) => {
        const values = new Map(one.points.map(([when, value]) => [Math.round((when - from) / step), value]));
        return times.map((_, nth) => (Number.isFinite(values.get(nth)) ? values.get(nth) : null));
      };
      const own = shown.map(column);
      const isStacked = custom.stacking.mode === "normal";
      const sums = isStacked ? own.map((_, nth) => times.map((_, i) => own.slice(0, nth + 1).reduce((sum, one) => sum + (one[i] ?? 0), 0))) : own;
      const bars = custom.drawStyle === "bars";
      const order = isStacked ? sums.map((_, nth) => sums.length - 1 - nth) : sums.map((_, nth) => nth);
      const chart = make("div", "chart", undefined, box);
      const legend = make("table", "legend", undefined, box);
      const tr = make("tr", "", undefined, make("thead", "", undefined, legend));
      const calcs = [["lastNotNull", "Last", last], ["max", "Max", (one) => Math.max(...one.points.map(([, value]) => value))]].filter(([calc]) => panel.options.legend.calcs.includes(calc));
      ["Name", ...calcs.map(([, name]) => name)].forEach((name, nth) => make("th", nth ? "n" : "", name, tr));
      const body = make("tbody", "", undefined, legend);
      shown.forEach((one, nth) => {
        const line = make("tr", "", undefined, body);
        const cell = make("td", "", undefined, line);
        make("i", "", undefined, cell).style.background = lines[nth % lines.length];
        cell.append(one.name);
        calcs.forEach(([, , of]) => make("td", "n", format(unit, of(one)), line));
      });
      const height = Math.max(90, box.clientHeight - Math.min(legend.offsetHeight, box.clientHeight * 0.42));
      legend.style.maxHeight = `${box.clientHeight - height}px`;
      const faint = dark ? "rgba(204,204,220,0.09)" : "rgba(36,41,46,0.09)";
      const axis = { stroke: dark ? "#9fa7b3" : "#5a6069", grid: { stroke: faint, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      const alpha = Math.round((custom.fillOpacity / 100) * 255).toString(16).padStart(2, "0");
      const line = (nth) => ({
        stroke: lines[nth % lines.length],
        width: custom.lineWidth,
        fill: custom.fillOpacity ? lines[nth % lines.length] + alpha : undefined,
        points: { show: false },
        paths: bars ? uPlot.paths.bars({ size: [0.9, 40] }) : undefined,
      });
      const splits = unit === "s" ? { incrs: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800] } : {};
      new uPlot(
        {
          width: box.clientWidth,
          height,
          cursor: { show: false },
          legend: { show: false },
          padding: [8, 6, 0, 0],
          scales: { x: { range: [from, to] }, y: { range: (_, __, most) => [0, Math.max(max ?? 0, (most ?? 0) * 1.08, thresholds?.steps.at(-1).value ?? 0) || 1] } },
          axes: [
            { ...axis, space: 70, size: 26, values: (_, all) => all.map((when) => new Date(when * 1000).toTimeString().slice(0, 5)) },
            { ...axis, ...splits, space: 32, size: 62, values: (_, all) => all.map((value) => format(unit, value)) },
          ],
          series: [{}, ...order.map(line)],
        },
        [times, ...order.map((nth) => sums[nth])],
        chart,
      );
    },
  };
  for (const panel of panels) {
    const { x, y, w, h } = panel.gridPos;
    const box = make("section", panel.type === "row" ? "row" : "panel", undefined, grid);
    if (!stacked) box.style.gridArea = `${y + 1} / ${x + 1} / span ${h} / span ${w}`;
    else box.style.height = `${panel.type === "row" ? 30 : h * 38 - 8}px`;
    const inner = panel.type === "row" ? box : (make("h2", "", panel.title, box), make("div", "inner", undefined, box));
    drawn[panel.type](panel, inner);
    box.dataset.title = panel.title;
  }
}

const STYLE = `
  :root { --ground:#f4f5f5; --panel:#fff; --edge:#e4e7e7; --text:#22262b; --quiet:#5a6069; }
  :root[data-theme=dark] { --ground:#111217; --panel:#181b1f; --edge:#26292f; --text:#d5d9de; --quiet:#9fa7b3; }
  * { box-sizing:border-box; } body { margin:0; padding:14px 16px 16px; background:var(--ground); color:var(--text); font:13px/1.35 system-ui, "DejaVu Sans", sans-serif; }
  header { display:flex; flex-wrap:wrap; gap:8px; align-items:center; margin-bottom:12px; } h1 { font-size:17px; margin:0 10px 0 0; font-weight:600; }
  .chip { border:1px solid var(--edge); border-radius:3px; background:var(--panel); overflow:hidden; display:inline-flex; } .chip b { font-weight:500; padding:3px 8px; background:var(--edge); } .chip span { padding:3px 8px; overflow-wrap:anywhere; }
  .range { margin-left:auto; color:var(--quiet); }
  main { display:grid; grid-template-columns:repeat(24, 1fr); grid-auto-rows:30px; gap:8px; } main.stacked, .stacked main { display:flex; flex-direction:column; }
  .panel { background:var(--panel); border:1px solid var(--edge); border-radius:3px; min-width:0; min-height:0; overflow:hidden; display:flex; flex-direction:column; }
  h2 { font-size:13px; font-weight:500; margin:0; padding:7px 10px 3px; } .inner { flex:1; min-height:0; padding:0 8px 6px; overflow:hidden; }
  .row { font-size:14px; font-weight:500; align-self:center; padding-left:2px; }
  .stat { height:100%; display:flex; align-items:center; justify-content:center; font-size:38px; font-weight:500; }
  table { width:100%; border-collapse:collapse; } th { text-align:left; font-weight:500; color:var(--quiet); } .n { text-align:right; } td, th { padding:6px 8px; border-bottom:1px solid var(--edge); }
  .legend { display:block; overflow:hidden; font-size:11.5px; } .legend thead, .legend tbody { display:table; width:100%; table-layout:fixed; } .legend td, .legend th { padding:1px 6px; border:0; white-space:nowrap; overflow:hidden; text-overflow:ellipsis; } .legend .n { width:84px; } .legend th { color:var(--quiet); }
  .legend i { display:inline-block; width:12px; height:3px; border-radius:2px; margin-right:7px; vertical-align:middle; }
  .states { display:grid; grid-template-columns:max-content 1fr; gap:4px 10px; font-size:11.5px; align-items:center; } .strip { position:relative; height:15px; background:var(--edge); border-radius:2px; } .strip i { position:absolute; top:0; bottom:0; border-radius:2px; }
  .gauge { display:grid; grid-template-columns:10em 1fr 6em; gap:8px; align-items:center; margin:5px 0; } .bar { background:var(--edge); height:14px; } .bar i { display:block; height:100%; }
`;

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS.split(" ") });
const troubles = [];
try {
  const { values, shown } = variables();
  const panels = await filled(values);
  const name = path.basename(file, ".json");
  for (const [screen, width, theme, stacked] of [["dark", 1240, "dark", false], ["light", 1240, "light", false], ["phone", 360, "dark", true]]) {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: theme });
    page.on("pageerror", (error) => troubles.push(error.stack));
    page.on("request", (request) => request.url().startsWith("http") && troubles.push(`a request to ${request.url()}`));
    await page.setContent(`<!doctype html><html lang="en" class="${stacked ? "stacked" : ""}"><title>dashboard</title><body></body></html>`);
    await page.addStyleTag({ path: path.join(uplot, "dist/uPlot.min.css") });
    await page.addStyleTag({ content: STYLE });
    await page.addScriptTag({ path: path.join(uplot, "dist/uPlot.iife.min.js") });
    await page.evaluate(draw, { title: dashboard.title, shown, panels, from: at - SPAN_S, to: at, step: STEP_S, theme, stacked });
    const found = await page.evaluate(() => ({
      over: document.documentElement.scrollWidth - innerWidth,
      wrong: /NaN|undefined|\[object/.exec(document.body.innerText)?.[0],
      blank: [...document.querySelectorAll("canvas")].filter((canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.every((byte) => byte === 0)).length,
      charts: document.querySelectorAll("canvas").length,
    }));
    const series = panels.filter((panel) => panel.type === "timeseries").length;
    ensure(found.over <= 0 && !found.wrong, `nothing sticks out on ${screen}, and no ${found.wrong ?? "NaN"} is shown`);
    ensure(found.charts === series && found.blank === 0, `all ${series} charts are drawn on ${screen}`);
    await page.screenshot({ path: path.join(shots, `dashboard-${name}-${screen}-all.png`), fullPage: true });
    const end = await page.evaluate((rows) => [...document.querySelectorAll(".row")][rows]?.getBoundingClientRect().top + scrollY, ROWS_SHOWN);
    await page.screenshot({ path: path.join(shots, `dashboard-${name}-${screen}.png`), fullPage: true, clip: { x: 0, y: 0, width, height: Math.floor(end ?? 900) } });
    await page.close();
  }
  ensure(troubles.length === 0, `no errors and no request to anyone: ${troubles.join("\n")}`);
} catch (error) {
  console.error(error.stack, troubles.slice(0, 5).join("\n"));
  process.exitCode = 1;
} finally {
  await browser.close();
}
