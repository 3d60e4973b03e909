// The browser of these tests: a Chromium that is installed on this machine (nothing is downloaded), driven by
// playwright-core. Where there is none the tests are skipped, with the reason in their title.

import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";
import { describe, test } from "vitest";

const usualPlaces = [
  "/usr/bin/chromium",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

const executable: string | undefined = [
  ...(process.env.LANTERN_CHROMIUM ? [process.env.LANTERN_CHROMIUM] : []),
  ...usualPlaces,
].find((path) => existsSync(path));

const flags = [
  "--no-sandbox", // it may run as root in a container, and opens nothing but our own pages
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** describe(), skipped with its reason where no Chromium is installed; the body then does not even run. */
export function describeBrowser(title: string, body: () => void): void {
  if (executable) describe(title, body);
  else {
    const reason = "Chromium is not installed (LANTERN_CHROMIUM can name one)";
    test.skip(`${title} [skipped: ${reason}]`, () => {});
  }
}

export async function launchBrowser(): Promise<Browser> {
  return await chromium.launch({ executablePath: executable!, args: flags });
}

/** Names of all workers that live in the browser, those that workers started too. */
export async function liveWorkers(browser: Browser): Promise<string[]> {
  const session = await browser.newBrowserCDPSession();
  const { targetInfos } = await session.send("Target.getTargets", { filter: [{}] });
  await session.detach();
  return targetInfos.filter(({ type }) => type === "worker").map(({ url }) => url);
}
