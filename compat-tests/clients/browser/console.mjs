// The console's tests: `console.mjs BASE EMPTY CROWDED GROUP TOPIC HOSTILE SHOTS` looks at every page of the broker at BASE as a user does, on a wide
// screen and on a phone, by light and in the dark, and at the first page of one at EMPTY that has no groups and one at CROWDED that has 5,000. It prints a line a fact and
// ends with 1 at the first that is not so. Screenshots go to the folder SHOTS.

import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.NODE_PATH, "x.js"));
const { chromium } = require("playwright-core");
const [base, empty, crowded, group, topic, hostile, shots] = process.argv.slice(2);

const FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync";
const PATIENCE_MS = 30000;
const PAGES = {
  overview: ["", "What is behind"],
  group: [`groups/${encodeURIComponent(group)}`, group],
  topics: ["topics", "Topics"],
  topic: [`topics/${encodeURIComponent(topic)}`, topic],
  broker: ["broker", "Broker 1"],
  hostile: [`groups/${encodeURIComponent(hostile)}`, "<img src=x onerror="],
};
const SCREENS = [
  ["wide", { viewport: { width: 1240, height: 860 }, colorScheme: "light" }],
  ["dark", { viewport: { width: 1240, height: 860 }, colorScheme: "dark" }],
  ["phone", { viewport: { width: 360, height: 740 }, colorScheme: "light", isMobile: true, hasTouch: true }],
];

let last = "the start";

function ensure(so, what) {
  if (!so) throw new Error(what);
  last = what;
  console.log(`ok: ${what}`);
}

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS.split(" ") });
const troubles = [];

async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && troubles.push(`${page.url()}: ${message.text()}`));
  page.on("pageerror", (error) => troubles.push(`${page.url()}: ${error.stack}`));
  page.on("dialog", (dialog) => troubles.push(`a dialog: ${dialog.message()}`));
  page.on("request", (request) => {
    if (![base, empty, crowded].includes(new URL(request.url()).origin)) troubles.push(`a request to ${request.url()}`);
  });
  return page;
}

async function visit(page, [route, heading], from = base) {
  await page.goto(`${from}/#/${route}`);
  await page.waitForFunction((words) => document.querySelector("h1")?.textContent.includes(words) && document.querySelector("main dl, main table, main .empty"), heading);
}

async function looks() {
  const grounds = {};
  for (const [screen, options] of SCREENS) {
    const page = await open(options);
    for (const [name, where] of Object.entries(PAGES)) {
      await visit(page, where);
      const found = await page.evaluate(() => ({
        over: document.documentElement.scrollWidth - innerWidth,
        ground: getComputedStyle(document.documentElement).backgroundColor,
        figures: /NaN|undefined|\[object|Infinity/.exec(document.body.innerText)?.[0],
        headless: [...document.querySelectorAll("table")].filter((table) => !table.caption || [...table.querySelectorAll("th")].some((th) => !th.scope)).length,
        nameless: [...document.querySelectorAll("a, button, select, input")].filter((control) => !control.textContent.trim() && !control.labels?.length && !control.getAttribute("aria-label")).length,
        headings: document.querySelectorAll("h1").length,
        landmarks: ["header", "nav", "main", "footer"].filter((tag) => !document.querySelector(tag)),
      }));
      grounds[screen] = found.ground;
      ensure(found.over <= 0, `${name} on ${screen} has no horizontal scroll`);
      ensure(!found.figures, `${name} on ${screen} shows no ${found.figures ?? "NaN"}`);
      ensure(found.headless === 0 && found.nameless === 0, `${name} on ${screen}: tables have captions and scopes, controls have names`);
      ensure(found.headings === 1 && found.landmarks.length === 0, `${name} on ${screen} has its landmarks and one first heading`);
      await page.screenshot({ path: path.join(shots, `${screen}-${name}.png`), fullPage: name !== "topic" });
    }
    await page.context().close();
  }
  ensure(grounds.wide !== grounds.dark, `the dark is another ground: ${grounds.dark}, not ${grounds.wide}`);
}

async function updates() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  await visit(page, PAGES.topic);
  await page.evaluate(() => (window.stays = document.querySelector("h1")));
  const records = () => page.evaluate(() => [...document.querySelectorAll("dt")].find((dt) => dt.textContent === "Records").nextSibling.textContent);
  const before = await records();
  await page.waitForFunction((was) => [...document.querySelectorAll("dt")].find((dt) => dt.textContent === "Records").nextSibling.textContent !== was, before);
  ensure(await page.evaluate(() => window.stays?.isConnected), "records are counted on without a reload, and the heading is the same element");
  const first = await page.locator(".record b").first().textContent();
  await page.waitForFunction((was) => document.querySelector(".record b").textContent !== was, first);
  ensure(true, "the latest records follow what comes");
  await page.getByRole("button", { name: "Hex" }).click();
  ensure((await page.locator(".record pre.hex").first().textContent()).startsWith("00000000  "), "a value is shown in hex on request");
  await page.getByRole("button", { name: "Older" }).click();
  await page.waitForFunction(() => document.querySelector("#h-records + p").textContent.startsWith("from offset"));
  const older = await page.locator(".record b").first().textContent();
  await page.waitForTimeout(3500);
  ensure(older === (await page.locator(".record b").first().textContent()), "an older page of records stays where it is");
  await page.getByRole("button", { name: "Pause" }).click();
  const paused = await records();
  await page.waitForTimeout(4000);
  ensure(paused === (await records()), "nothing moves while it is paused");
  await page.context().close();
}

async function keyboard() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  await visit(page, PAGES.overview);
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.id);
  await page.keyboard.press("Tab");
  ensure((await focused()) === "Skip to the content", "the first Tab offers to skip to the content");
  await page.keyboard.press("Enter");
  ensure(await page.evaluate(() => document.activeElement.id === "main"), "and Enter goes there");
  await page.getByRole("link", { name: "Topics", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.tagName === "H1" && document.activeElement.textContent === "Topics");
  ensure(true, "a link followed by Enter puts the focus on the new page's heading");
  const link = page.getByRole("link", { name: topic, exact: true });
  await link.focus();
  await page.waitForTimeout(4000);
  ensure((await focused()) === topic, "an update leaves the focus where it is");
  ensure(await link.evaluate((element) => getComputedStyle(element).outlineStyle !== "none" || element.matches(":focus-visible") === false), "the focus can be seen");
  await page.context().close();
}

async function inert() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  await visit(page, PAGES.overview);
  await page.waitForFunction((name) => document.body.textContent.includes(name), "<img src=x onerror=");
  const found = await page.evaluate(() => ({ hacked: window.hacked, images: document.querySelectorAll("img[src=x], main script, main iframe").length }));
  ensure(found.hacked === undefined && found.images === 0, "names with markup are text");
  await page.context().close();
}

/** A batch that can't be decoded stands among the records that can. */
async function unreadable() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  await visit(page, ["topics/garbled", "garbled"]);
  await page.locator(".record .notice").waitFor();
  const items = await page.locator(".record").allTextContents();
  ensure(items.length === 3 && items[0].startsWith("offset 3") && items[2].startsWith("offset 0"), `records before and behind an unreadable batch are shown: ${items}`);
  ensure(/^offset 1\s*to 2.*This batch can't be read: .*malformed/s.test(items[1]), `and it tells its offsets and why: ${items[1]}`);
  await page.screenshot({ path: path.join(shots, "unreadable.png") });
  await page.context().close();
}

/** Transactions that hold readers back: one of them hangs, one is long and has a name with markup. */
async function heldBack() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  await visit(page, PAGES.overview);
  const notice = page.locator(".notice", { hasText: "2 partitions hold readers of committed records back" });
  await notice.waitFor();
  const [hangs, open_] = await notice.locator("li").allTextContents().then((all) => [all.find((text) => text.startsWith("payments-0")), all.find((text) => text.startsWith("payments-1"))]);
  ensure(/transaction hangs for .*, producer \d+ since offset 0: .* no coordinator knows of it/.test(hangs), `a hanging transaction is told with its producer and age: ${hangs}`);
  ensure(/transaction open for .*, producer \d+ \("><img src=x/.test(open_), "a long one with its transactional id, too");
  ensure(await page.evaluate(() => window.hacked === undefined && !document.querySelector("main img")), "whose markup is text");
  await notice.getByRole("link", { name: "payments-0" }).click();
  await page.waitForFunction(() => document.querySelector("h1")?.textContent.includes("payments") && document.body.textContent.includes("transaction hangs for"));
  ensure(true, "the topic's page tells of it, too");
  await visit(page, ["groups/payers", "payers"]);
  for (const words of ["held back", "transaction hangs for", "transaction open for"]) {
    await page.locator("main .tags", { hasText: words }).first().waitFor();
    ensure(true, `and the page of a group that waits: ${words}`);
  }
  await page.screenshot({ path: path.join(shots, "wide-held-back.png"), fullPage: true });
  await page.context().close();
}

/** Names that an address takes for folders. */
async function folders() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  for (const name of [".", ".."]) {
    await page.goto(`${base}/#/`);
    await page.getByRole("link", { name, exact: true }).click();
    await page.waitForFunction((words) => document.querySelector("h1")?.textContent === words && document.querySelector("main table"), name);
    ensure(true, `the group “${name}” has its page`);
    await page.reload();
    await page.waitForFunction((words) => document.querySelector("h1")?.textContent === words && document.querySelector("main table"), name);
    ensure(true, `and is found there again after a reload`);
  }
  await page.context().close();
}

async function beyond() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  await visit(page, ["", "What is behind"]);
  const row = page.locator("tbody tr").filter({ hasText: "reset-topic" });
  ensure((await row.textContent()).includes("beyond the end") && !(await row.textContent()).includes("keeps up"), "a commit beyond the end is not healthy");
  await row.getByRole("link").click();
  await page.waitForFunction(() => document.querySelector("h1")?.textContent === "reset-topic");
  await page.locator("tbody tr").filter({ hasText: "beyond the end" }).waitFor();
  ensure(true, "and its partition says so");
  await page.context().close();
}

/** Thousands of groups: the page stays small and quick, and each group is found by its name. */
async function crowd() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  await visit(page, PAGES.overview, crowded);
  const rows = () => page.locator("table tbody tr").count();
  const lead = await page.locator(".lead").textContent();
  ensure(/of 5,000 groups/.test(lead), `all groups are counted: ${lead}`);
  ensure((await rows()) === 100 && (await page.locator(".more").textContent()).includes("The worst 100 of 5,000 groups"), "the worst hundred are shown");
  await page.getByRole("button", { name: "Show more" }).click();
  await page.waitForFunction(() => document.querySelectorAll("table tbody tr").length === 200);
  ensure(true, "and more on request");
  for (let shown = 200; shown < 800; shown *= 2) {
    await page.getByRole("button", { name: "Show more" }).click();
    await page.waitForFunction((wanted) => document.querySelectorAll("table tbody tr").length === wanted, shown * 2);
  }
  ensure((await page.getByRole("button", { name: "Show more" }).count()) === 0, "but never all of them");
  const drawn = await page.evaluate(() => document.querySelectorAll("*").length);
  ensure(drawn < 30000, `the page has ${drawn} elements`);
  await page.getByLabel("Find").fill("GROUP-4987");
  await page.waitForFunction(() => document.querySelectorAll("table tbody tr").length === 1);
  ensure((await page.locator("tbody tr th").textContent()).includes("group-4987"), "the one that is least behind is found by its name");
  ensure(/of 5,000 groups/.test(await page.locator(".lead").textContent()), "looking for one leaves the count of all as it is");
  await page.getByLabel("Find").fill("nobody");
  await page.getByText("No group has “nobody” in its name.").waitFor();
  await page.getByLabel("Find").fill("group-12");
  await page.waitForFunction(() => document.querySelectorAll("table tbody tr").length === 100);
  ensure(true, "what is found is shown a hundred or more at a time");
  await page.screenshot({ path: path.join(shots, "wide-crowd.png") });
  await page.context().close();
}

async function nothingYet() {
  const page = await open({ viewport: { width: 1240, height: 860 } });
  await visit(page, PAGES.overview, empty);
  await page.getByText("No consumer group has read here yet.").waitFor();
  ensure((await page.locator("pre").textContent()).includes("kcat"), "with no groups it says how to make one");
  await page.screenshot({ path: path.join(shots, "wide-empty.png"), fullPage: true });
  ensure(troubles.length === 0, `no errors, no dialogs, no request to anyone else: ${troubles.join("\n")}`);
  await page.goto(`${empty}/#/groups/nobody`);
  await page.getByText("There is no such group.").waitFor();
  ensure(true, "a group that isn't there is said not to be");
  await page.goto(`${empty}/#/`);
  await page.waitForFunction(() => document.querySelector("h1")?.textContent === "What is behind");
  await page.context().setOffline(true);
  await page.getByText("The broker does not answer").first().waitFor();
  await page.context().setOffline(false);
  await page.waitForFunction(() => !document.querySelector("main .notice"));
  ensure(true, "an absent broker is told, and its return");
}

try {
  await looks();
  await updates();
  await keyboard();
  await inert();
  await heldBack();
  await unreadable();
  await folders();
  await beyond();
  await crowd();
  await nothingYet();
} catch (error) {
  console.error(`after "${last}": ${error.message}`, troubles.slice(0, 5).join("\n"));
  process.exitCode = 1;
} finally {
  await browser.close();
}
