// The frame: which page the address names, asking for its data again and again, and saying so when none comes.

import { h, render } from "./dom.js";
import { ago, instant, plainName } from "./format.js";
import { broker } from "./pages/broker.js";
import { group } from "./pages/group.js";
import { overview } from "./pages/overview.js";
import { topic } from "./pages/topic.js";
import { topics } from "./pages/topics.js";

/** Between an answer and the next question. */
const EVERY_MS = 3000;
/** Where a broker doesn't answer, it is asked less often, up to this. */
const EVERY_MAX_MS = 15000;

const top = document.getElementById("top");
const main = document.getElementById("main");
const foot = document.getElementById("foot");
const said = document.getElementById("said");

const state = {
  page: null,
  data: null,
  /** When the data came, by this machine's clock. */
  at: null,
  error: null,
  paused: false,
  failures: 0,
};
let timer;
/** Counts visits and questions, so that a late answer to an old one is dropped. */
let turn = 0;

function route() {
  const [kind, name, rest] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  if (!kind) return overview(context);
  if (kind === "groups" && name !== undefined) return group(context, name);
  if (kind === "topics" && name !== undefined) return topic(context, name, rest);
  if (kind === "topics") return topics(context);
  if (kind === "broker") return broker(context);
  return null;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** What pages may ask of the frame. */
const context = {
  redraw: () => draw(),
  reload: () => load(),
  /** For screen readers: a change that matters, in a sentence. */
  say: (words) => {
    if (said.textContent !== words) said.textContent = words;
  },
  width: () => Math.max(260, Math.min(1140, main.clientWidth - (innerWidth > 720 ? 40 : 24)) - 18),
};

function visit() {
  // The skip link's own target is no page.
  if (location.hash === "#main") return;
  const page = route();
  if (page && state.page?.key === page.key) return;
  // Where the browser itself has just loaded the page, Tab begins at its top.
  const first = state.page === null;
  Object.assign(state, { page, data: null, at: null, error: null, failures: 0 });
  scrollTo(0, 0);
  render(main, []);
  load().then(() => first || main.querySelector("h1")?.focus({ preventScroll: true }));
}

async function load() {
  clearTimeout(timer);
  const asked = ++turn;
  const { page } = state;
  draw();
  if (!page) return;
  try {
    const data = await page.load();
    if (asked !== turn) return;
    if (state.failures > 0) context.say("The broker answers again.");
    Object.assign(state, { data, at: Date.now(), error: null, failures: 0 });
  } catch (error) {
    if (asked !== turn) return;
    if (state.failures === 0) context.say("The broker does not answer.");
    Object.assign(state, { error, failures: state.failures + 1 });
  }
  draw();
  next();
}

function next() {
  clearTimeout(timer);
  if (state.paused || document.hidden) return;
  timer = setTimeout(load, Math.min(EVERY_MAX_MS, EVERY_MS * Math.max(1, state.failures)));
}

function draw() {
  const { page, data, error } = state;
  drawTop();
  if (!page) {
    document.title = "Not found · highwater";
    render(main, [headline("There is no such page"), h("p", {}, h("a", { href: "#/" }, "What is behind"), " is a good place to go on.")]);
    return;
  }
  document.title = `${plainName(page.title(data)).slice(0, 120)} · highwater`;
  const gone = error?.status === 404;
  render(main, [error && !gone && unreachable(error), gone ? missing(page, error) : data ? page.view(data) : [headline(page.heading), !error && h("p", { class: "quiet" }, "Asking the broker…")]]);
}

function headline(words) {
  return h("div", { class: "headline", key: "headline" }, h("h1", { tabindex: "-1" }, words));
}

function missing(page, error) {
  return [
    headline(page.heading),
    h("section", { class: "panel", key: "missing" }, h("div", { class: "empty" }, h("p", {}, page.gone ?? "It is not there."), h("p", {}, error.message), h("p", {}, h("a", { href: "#/" }, "What is behind"), " and ", h("a", { href: "#/topics" }, "Topics"), " list what is."))),
  ];
}

function unreachable(error) {
  return h(
    "div",
    { class: "notice bad", key: "unreachable" },
    h("p", {}, error.status ? `The broker answered with an error: ${error.message}.` : `The broker does not answer (${error.message}).`),
    h("p", {}, state.at ? `What is shown is of ${instant(state.at)}. ` : "", "It is asked again every few seconds; its log says more."),
  );
}

const PLACES = [
  ["#/", "Behind", "behind"],
  ["#/topics", "Topics", "topics"],
  ["#/broker", "Broker", "broker"],
];

function drawTop() {
  const { page, paused, error, at } = state;
  const how = error && error.status !== 404 ? ["lost", "No answer"] : paused ? ["paused", "Paused"] : ["", "Live"];
  render(top, [
    h("a", { class: "mark", href: "#/" }, h("img", { src: "/icon.svg", alt: "" }), "highwater"),
    h("nav", { "aria-label": "Pages" }, h("ul", {}, PLACES.map(([href, word, place]) => h("li", {}, h("a", { href, "aria-current": page?.place === place ? (page.key === place ? "page" : "true") : null }, word))))),
    h(
      "div",
      { class: "live" },
      h("span", { class: `state ${how[0]}` }, how[1]),
      at && h("span", { class: "hint" }, "updated ", ago(at, Date.now())),
      h("button", { type: "button", "aria-pressed": paused ? "true" : "false", on: { click: pause } }, paused ? "Resume" : "Pause"),
    ),
  ]);
}

function pause() {
  state.paused = !state.paused;
  context.say(state.paused ? "Updates are paused." : "Updates go on.");
  if (state.paused) {
    clearTimeout(timer);
    draw();
  } else load();
}

render(foot, [h("p", {}, "All of it is also under ", h("a", { href: "/metrics" }, "/metrics"), " for Prometheus and under ", h("code", {}, "/api/"), " as JSON.")]);

addEventListener("hashchange", visit);
addEventListener("resize", () => draw());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (!state.paused) load();
});
// The age of what is shown.
setInterval(() => document.hidden || drawTop(), 1000);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
visit();
