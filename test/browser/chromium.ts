// What the browser's tests share: they are skipped, with the reason in their title, where no Chromium is installed; and
// they look at the workers that live in it.

import type { Browser } from "playwright-core";
import { describe, test } from "vitest";
import { chromiumPath } from "./launch.ts";

/** describe(), skipped with its reason where no Chromium is installed; the body then does not even run. */
export function describeBrowser(title: string, body: () => void): void {
  if (chromiumPath) describe(title, body);
  else {
    const reason = "Chromium is not installed (LANTERN_CHROMIUM can name one)";
    test.skip(`${title} [skipped: ${reason}]`, () => {});
  }
}

/** Names of all workers that live in the browser, those that workers started too. */
export async function liveWorkers(browser: Browser): Promise<string[]> {
  const session = await browser.newBrowserCDPSession();
  const { targetInfos } = await session.send("Target.getTargets", { filter: [{}] });
  await session.detach();
  return targetInfos.filter(({ type }) => type === "worker").map(({ title }) => title);
}
