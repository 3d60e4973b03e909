// This machine measured from a page: on all threads where the page is cross-origin isolated, on one where it is not;
// remembered by the site, and shown beside the speed of a generation.
// Held against: the notes and limits of the same page.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { tinyFile } from "../support/tiny-file.ts";
import { describeBrowser } from "./chromium.ts";
import { launchBrowser } from "./launch.ts";
import { buildSite, SiteServer } from "./site.ts";

describeBrowser("in Chromium", () => {
  let browser: Browser;
  let site: ReturnType<typeof buildSite>;
  let tiny: Awaited<ReturnType<typeof tinyFile>>;

  beforeAll(async () => {
    site = buildSite();
    tiny = await tinyFile({ weightType: "q4_0" });
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    site?.remove();
    tiny?.remove();
  });

  test.each([
    ["with isolation", true],
    ["without isolation", false],
  ])("%s: measured, remembered, shown", async (_, isolated) => {
    const server = await SiteServer.start(site.folder, { isolated });
    server.files.set("/tiny.gguf", tiny.path);
    const page = await browser.newPage();
    await page.goto(server.url);
    await page.waitForFunction(() => window.lantern !== undefined);
    const seen = await page.evaluate(async () => {
      const { machineMeasurement, open, rememberedMachine } = window.lantern;
      const before = await rememberedMachine();
      const notes: string[] = [];
      const machine = await machineMeasurement({ seconds: 0, onNote: (note) => notes.push(note) });
      const model = await open("tiny.gguf");
      const { timings } = await model.generate("the cat", { maxTokens: 4 }).result;
      await model.dispose();
      return {
        before,
        notes,
        machine,
        limits: timings.limits,
        cores: navigator.hardwareConcurrency,
      };
    });
    expect(seen.before).toBeUndefined();
    expect(seen.notes).toEqual([]);
    const { machine, cores } = seen;
    const most = isolated ? cores : 1;
    for (const points of [machine.readBytes, machine.f32Ops, machine.int8Ops]) {
      expect(points.at(-1)!.threads).toBe(most);
      expect(points.every(({ perSecond }) => perSecond > 0)).toBe(true);
    }
    expect(seen.limits!.generation!.fraction).toBeGreaterThan(0);
    // Another page of the site finds it in the site's files.
    await page.reload();
    await page.waitForFunction(() => window.lantern !== undefined);
    expect(await page.evaluate(() => window.lantern.rememberedMachine())).toEqual(machine);
    await page.close();
    await server.stop();
  });
});
