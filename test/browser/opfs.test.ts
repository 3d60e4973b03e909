// Stored state in a browser's own file system: after the page was reloaded, a text goes on from what was computed before, and is the
// text that Node gives without any copies. Two pages share a folder; what is stored is listed and cleared.
// Held against: Node's text.

import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { describeBrowser } from "./chromium.ts";
import { launchBrowser } from "./launch.ts";
import { buildSite, SiteServer } from "./site.ts";

const prompt = (length: number): number[] =>
  Array.from({ length }, (_, i) => 5 + ((i * 3 + i * i) % 40));
const greedy = { temperature: 0, maxTokens: 12, ignoreEos: true };

describeBrowser("stored state in Chromium", () => {
  let browser: Browser;
  let context: BrowserContext;
  let server: SiteServer;
  let site: ReturnType<typeof buildSite>;
  let tiny: Awaited<ReturnType<typeof tinyFile>>;

  beforeAll(async () => {
    site = buildSite();
    tiny = await tinyFile({ weightType: "q4_0" });
    browser = await launchBrowser();
    server = await SiteServer.start(site.folder, { isolated: true });
    server.files.set("/tiny.gguf", tiny.path);
    context = await browser.newContext();
  });
  afterAll(async () => {
    await context?.close();
    await browser?.close();
    await server?.stop();
    site?.remove();
    tiny?.remove();
  });

  async function openPage(): Promise<Page> {
    const page = await context.newPage();
    await page.goto(server.url);
    await page.waitForFunction(() => window.lantern !== undefined);
    return page;
  }

  /** Generates in the page; the model is left open, as by a page that is closed. */
  async function turn(page: Page, tokens: number[]) {
    return await page.evaluate(
      async ({ tokens, greedy }) => {
        const warnings: string[] = [];
        const model = await window.lantern.open("tiny.gguf", {
          threads: 1,
          cacheDiskBytes: 1e7,
          onWarning: (warning) => warnings.push(warning),
        });
        const { tokenIds, timings } = await model.generate(tokens, greedy).result;
        const stored = () => window.lantern.storedState();
        // The last unit is written in the background.
        for (let tries = 0; tries < 1200 && (await stored()).bytes === 0; tries++) {
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        const { cachedTokens, restored } = timings;
        return { tokenIds, cachedTokens, restored, warnings, stored: await stored() };
      },
      { tokens, greedy },
    );
  }

  test("after a reload only what is new is computed, and the text is Node's", async () => {
    await using node = await open(tiny.path, { threads: 1, level: 3, native: false });
    const expected = async (tokens: number[]) =>
      (await node.generate(tokens, greedy).result).tokenIds;
    const page = await openPage();
    let tokens = prompt(80);
    const first = await turn(page, tokens);
    expect(first.warnings).toEqual([]);
    expect(first.tokenIds).toEqual(await expected(tokens));
    expect(first.cachedTokens).toBe(0);
    expect(first.stored.models).toMatchObject([{ model: "tiny.gguf", kvType: "f16" }]);
    tokens = [...tokens, ...first.tokenIds, 9, 10];
    await page.reload();
    await page.waitForFunction(() => window.lantern !== undefined);
    const second = await turn(page, tokens);
    expect(second.tokenIds).toEqual(await expected(tokens));
    expect(second.cachedTokens).toBeGreaterThanOrEqual(64);
    expect(second.restored?.diskTokens).toBe(second.cachedTokens);
    expect(second.warnings).toEqual([]);

    // Another page, while the first has its model open and its file locked.
    const other = await openPage();
    const third = await turn(other, tokens);
    expect(third.tokenIds).toEqual(await expected(tokens));
    expect(third.restored?.diskTokens).toBeGreaterThanOrEqual(64);
    await page.close();
    await other.close();

    const last = await openPage();
    const cleared = await last.evaluate(async () => {
      await window.lantern.clearStoredState();
      return (await window.lantern.storedState()).bytes;
    });
    expect(cleared).toBe(0);
    await last.close();
  });
});
