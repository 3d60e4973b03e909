// A profile in a page, where clocks are coarse and every worker counts from its own start: the accounts add up, and what
// the compute threads did lies in the batches of the engine.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { tinyFile } from "../support/tiny-file.ts";
import { describeBrowser } from "./chromium.ts";
import { launchBrowser } from "./launch.ts";
import { buildSite, SiteServer } from "./site.ts";

/** Chromium's clock in a page without isolation, in microseconds; and some for the origins of two of them. */
const resolution = 250;

describeBrowser("in Chromium", () => {
  let browser: Browser;
  let site: ReturnType<typeof buildSite>;
  let tiny: Awaited<ReturnType<typeof tinyFile>>;

  beforeAll(async () => {
    site = buildSite();
    tiny = await tinyFile({ weightType: "q8_0", feedForward: 4096 });
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    site?.remove();
    tiny?.remove();
  });

  test.each([
    ["with isolation", true, 2],
    ["without isolation", false, 1],
  ])("%s", async (_, isolated, threads) => {
    const server = await SiteServer.start(site.folder, { isolated });
    server.files.set("/tiny.gguf", tiny.path);
    const page = await browser.newPage();
    await page.goto(server.url);
    await page.waitForFunction(() => window.lantern !== undefined);
    const report = await page.evaluate(async () => {
      const model = await window.lantern.open("tiny.gguf", { threads: 2, profile: true });
      await model.generate("the cat", { maxTokens: 60, ignoreEos: true }).result;
      const found = await model.profile({ trace: true });
      await model.dispose();
      return found;
    });
    await page.close();
    await server.stop();
    expect(report.threads).toBe(threads);
    for (const { ms, computeMs, waitingMs, betweenMs, threads: each } of report.phases) {
      expect(computeMs + waitingMs + betweenMs).toBeCloseTo(ms, 6);
      expect(each).toHaveLength(threads);
    }
    const spans = report.trace!.traceEvents.filter(({ ph }) => ph === "X");
    const batches = spans.filter(({ tid, name }) => tid === 1 && name === "batch");
    const computed = spans.filter(({ tid }) => tid > 1);
    // Of a model this small one thread may do everything before the other has heard of it.
    expect(computed.length).toBeGreaterThan(0);
    expect(Math.max(...computed.map(({ tid }) => tid))).toBeLessThanOrEqual(1 + threads);
    const inStep = (ts: number): boolean =>
      batches.some(
        (batch) => ts >= batch.ts! - resolution && ts <= batch.ts! + batch.dur! + resolution,
      );
    expect(computed.filter(({ ts }) => !inStep(ts!))).toEqual([]);
  });
});
