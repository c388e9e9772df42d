// Pictures of the console after an hour of a shop's life (`compat-tests/src/shop.rs`): `pictures.mjs BASE SHOTS` looks for what each page has to
// say of it, in minutes, and takes the pictures. It prints a line a fact and ends with 1 at the first that is not so.

import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.NODE_PATH, "x.js"));
const { chromium } = require("playwright-core");
const [base, shots] = process.argv.slice(2);

const FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync";
const SCREENS = {
  wide: { viewport: { width: 1240, height: 640 }, colorScheme: "light" },
  dark: { viewport: { width: 1240, height: 640 }, colorScheme: "dark" },
  phone: { viewport: { width: 360, height: 740 }, colorScheme: "light", isMobile: true, hasTouch: true },
};
/** What has to stand in a table's row that begins with a name. */
const ROWS = {
  overview: [
    ["nightly-report", /24 h|23 h 5\d min/, /nobody reads/],
    ["billing", /(38|39) min/, /falling behind/],
    ["fraud-check", /2[12] min/, /1 partition stuck/, /loses records in [34]\d min/],
    ["recommendations", /\d min/, /catching up/],
    ["search-indexer", /caught up|s/, /keeps up/],
  ],
  billing: [
    ["orders-2", /(38|39) min/, /billing-worker-1/],
    ["orders-5", /(38|39) min/, /billing-worker-3/],
  ],
  "fraud-check": [
    ["payments-1", /2[12] min/, /stuck/],
    ["payments-0", /caught up|\d s/],
  ],
};
const PAGES = { overview: "", billing: "groups/billing", "fraud-check": "groups/fraud-check", orders: "topics/orders" };

function ensure(so, what) {
  if (!so) throw new Error(what);
  console.log(`ok: ${what}`);
}

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS.split(" ") });
try {
  for (const [screen, options] of Object.entries(SCREENS)) {
    const page = await (await browser.newContext(options)).newPage();
    page.setDefaultTimeout(30000);
    for (const [name, route] of Object.entries(PAGES)) {
      await page.goto(`${base}/#/${route}`);
      await page.waitForFunction((title) => document.querySelector("h1")?.textContent.includes(title) && document.querySelector("main table"), name === "overview" ? "What is behind" : name);
      for (const [row, ...wanted] of ROWS[name] ?? []) {
        const text = await page.locator("tbody tr").filter({ hasText: row }).first().textContent();
        for (const words of screen === "phone" ? wanted.slice(0, 1) : wanted) ensure(words.test(text), `${name} on ${screen}: ${row} has ${words}: ${text}`);
      }
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      ensure(over <= 0, `${name} on ${screen} has no horizontal scroll`);
      await page.screenshot({ path: path.join(shots, `shop-${screen}-${name}.png`), fullPage: true });
    }
    if (screen === "dark") {
      await page.goto(`${base}/#/topics/orders`);
      await page.waitForFunction(() => document.querySelector("main .bar.hot"));
      ensure(true, "the hot partition of orders is marked");
    }
    await page.context().close();
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await browser.close();
}
