// Lantern in a browser, as it is built: the same text as in Node, with threads where the page is cross-origin isolated
// and without them where it is not; what is loaded, what ends, and what is said when something is missing.

import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Model, open } from "../../src/index.ts";
import { hasShared, sharedPath } from "../support/shared.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { describeBrowser, liveWorkers } from "./chromium.ts";
import { launchBrowser } from "./launch.ts";
import { buildSite, SiteServer } from "./site.ts";

const dist = "/node_modules/lantern/dist/src";
const prompt = "Once upon a time";
/** Chromium takes its time to end a worker. */
const patience = { timeout: 120_000 };
const greedy = { temperature: 0, maxTokens: 24 };

/** Real models where they are; the random one everywhere. */
const real = ["models/stories260K/stories260K-F32.gguf", "models/stories15M/stories15M-Q4_0.gguf"];

describeBrowser("in Chromium", () => {
  let browser: Browser;
  let site: ReturnType<typeof buildSite>;
  let tiny: Awaited<ReturnType<typeof tinyFile>>;
  let slow: Awaited<ReturnType<typeof tinyFile>>;

  beforeAll(async () => {
    site = buildSite();
    tiny = await tinyFile({ weightType: "q4_0" });
    slow = await tinyFile({ weightType: "q8_0", feedForward: 24_000 });
    browser = await launchBrowser();
  });

  afterAll(async () => {
    await browser?.close();
    site?.remove();
    tiny?.remove();
    slow?.remove();
  });

  const pages = [
    { name: "with isolation: two threads", isolated: true, threads: 2 },
    { name: "without isolation: one thread", isolated: false, threads: 1 },
  ];
  describe.each(pages)("$name", ({ isolated, threads }) => {
    let server: SiteServer;
    let context: BrowserContext;
    let page: Page;

    beforeAll(async () => {
      server = await SiteServer.start(site.folder, { isolated });
      server.files.set("/tiny.gguf", tiny.path).set("/slow.gguf", slow.path);
      context = await browser.newContext();
      page = await context.newPage();
      await page.goto(server.url);
      await page.waitForFunction(() => window.lantern !== undefined);
    });

    afterAll(async () => {
      await context?.close();
      await server?.stop();
    });

    /** Whether the page is isolated makes no difference to it. */
    const once = isolated ? test : () => {};

    test("by URL: Node's text, the threads it should have, nothing of Node's", async () => {
      const seen = await page.evaluate(async (options) => {
        const model = await window.lantern.open("tiny.gguf", { threads: 2 });
        const { text } = await model.generate("the cat", options).result;
        const schema = { type: "array", items: { enum: ["cat", "dog"] }, minItems: 2, maxItems: 2 };
        const json = (await model.generate("the cat", { ...options, maxTokens: 60, schema }).result)
          .text;
        Object.assign(window, { model }); // disposed below
        return { text, json, backend: model.info.backend, isolated: crossOriginIsolated };
      }, greedy);
      // Those of pages that were closed take a while to end.
      const alive = async () => {
        const names = await liveWorkers(browser);
        const compute = names.filter((name) => name === "lantern-compute").length;
        return { engine: names.includes("lantern-engine"), compute };
      };
      await expect.poll(alive, patience).toEqual({ engine: true, compute: threads - 1 });
      await page.evaluate(() => (window as unknown as { model: Model }).model.dispose());
      expect(seen.isolated).toBe(isolated);
      expect(seen.text).toBe(await inNode(tiny.path, "the cat"));
      expect(JSON.parse(seen.json)).toHaveLength(2);
      expect(seen.backend).toMatchObject({ name: "cpu", threads });
      const why = "1 thread instead of 2: there is no SharedArrayBuffer";
      expect(seen.backend.notes.some((note) => note.startsWith(why))).toBe(!isolated);
      const outside = server.requests.filter((path) =>
        /\/(platform\/node|catalog|cli|hub)\b/.test(path),
      );
      expect(outside).toEqual([]);
      expect(server.requests).toContain("/node_modules/@huggingface/jinja/dist/index.js");
    });

    once("by File, as a page makes it and as a user picks it", async () => {
      await page.setInputFiles("input", tiny.path);
      const texts = await page.evaluate(async (options) => {
        const bytes = await (await fetch("tiny.gguf")).arrayBuffer();
        const picked = document.querySelector("input")!.files![0]!;
        const texts: string[] = [];
        for (const file of [new File([bytes], "made.gguf"), picked]) {
          const model = await window.lantern.open(file, { threads: 2 });
          texts.push((await model.generate("the cat", options).result).text);
          await model.dispose();
        }
        return texts;
      }, greedy);
      const expected = await inNode(tiny.path, "the cat");
      expect(texts).toEqual([expected, expected]);
    });

    for (const file of real) {
      const isHere = hasShared(file);
      const reason = isHere ? "" : ` [skipped: ../shared/${file} is not on this machine]`;
      test.skipIf(!isHere)(`${file.split("/").at(-1)}: Node's text${reason}`, async () => {
        const name = file.split("/").at(-1)!;
        server.files.set(`/${name}`, sharedPath(file));
        const text = await page.evaluate(
          async ([url, start, options]) => {
            const model = await window.lantern.open(url, { threads: 2 });
            const { text } = await model.generate(start, options).result;
            await model.dispose();
            return text;
          },
          [name, prompt, greedy] as const,
        );
        expect(text).toBe(await inNode(sharedPath(file), prompt));
        expect(text.length).toBeGreaterThan(20);
      });
    }

    once("a chat keeps its past", async () => {
      const questions = ["the cat sat", "the cat"];
      const inPage = await page.evaluate(
        async ([asked, options]) => {
          const model = await window.lantern.open("tiny.gguf", { threads: 2 });
          const chat = model.chat({ system: "a", ...options });
          let cached = 0;
          for (const question of asked) {
            cached = (await chat.send(question).result).timings.cachedTokens;
          }
          await model.dispose();
          return { messages: [...chat.messages], cached };
        },
        [questions, greedy] as const,
      );
      const model = await open(tiny.path, { native: false });
      const chat = model.chat({ system: "a", ...greedy });
      for (const question of questions) await chat.send(question).result;
      expect(inPage.messages).toEqual(chat.messages);
      expect(inPage.cached).toBeGreaterThan(0);
      await model.dispose();
    });

    test("an abort ends a generation, and the next one works", async () => {
      const [aborted, next] = await page.evaluate(async () => {
        const model = await window.lantern.open("slow.gguf", { threads: 2 });
        const controller = new AbortController();
        const options = { temperature: 0, ignoreEos: true, maxTokens: 400 };
        const generation = model.generate("the", { ...options, signal: controller.signal });
        for await (const _ of generation.tokens()) controller.abort();
        const other = model.generate("the", { ...options, maxTokens: 3 });
        const results = [await generation.result, await other.result] as const;
        await model.dispose();
        return results;
      });
      expect(aborted.stopReason).toBe("aborted");
      expect(aborted.tokenIds.length).toBeLessThan(400);
      expect(next.tokenIds).toHaveLength(3);
      const common = Math.min(3, aborted.tokenIds.length);
      expect(next.tokenIds.slice(0, common)).toEqual(aborted.tokenIds.slice(0, common));
    });

    test("dispose() ends every worker, also in the middle of a generation", async () => {
      await expect.poll(() => liveWorkers(browser), patience).toEqual([]);
      const said = await page.evaluate(async () => {
        const idle = await window.lantern.open("tiny.gguf", { threads: 2 });
        const busy = await window.lantern.open("slow.gguf", { threads: 2 });
        const running = busy.generate("the", { ignoreEos: true, maxTokens: 400 }).result;
        const lost = running.then(
          ({ stopReason }) => stopReason,
          (error: Error) => error.name,
        );
        await Promise.all([idle.dispose(), busy.dispose()]);
        const after = await idle.generate("the").result.catch((error: Error) => error.name);
        return [await lost, after];
      });
      expect(["DisposedError", "aborted"]).toContain(said[0]);
      expect(said[1]).toBe("DisposedError");
      await expect.poll(() => liveWorkers(browser), patience).toEqual([]);
    });

    once("what is missing is named: a model, a script, what a script imports", async () => {
      const opening = () =>
        page.evaluate(async () => {
          const error = await window.lantern.open("tiny.gguf", { threads: 2 }).catch((e) => e);
          return [error instanceof window.lantern.LanternError, error.name, error.message];
        });
      const without = async (path: string) => {
        server.missing.add(path);
        const said = await opening();
        server.missing.delete(path);
        return said;
      };
      expect(await without("/tiny.gguf")).toEqual([
        true,
        "SourceError",
        expect.stringContaining(`${server.url}tiny.gguf: there is no`),
      ]);
      const died = (pattern: RegExp) => [true, "WorkerError", expect.stringMatching(pattern)];
      for (const path of [`${dist}/threads/worker.js`, `${dist}/platform/worker-name.js`]) {
        expect(await without(path)).toEqual(
          died(/thread stopped unexpectedly \(its script or something it imports/),
        );
      }
      for (const path of [`${dist}/threads/engine.js`, `${dist}/engine/host.js`]) {
        expect(await without(path)).toEqual(
          died(/thread stopped unexpectedly \(.* http.*threads\/(serve-)?engine\.js\)/),
        );
      }
      if (threads > 1) {
        const said = await without(`${dist}/threads/compute.js`);
        expect(said).toEqual(died(/a compute thread did not start \(.* http.*threads\/compute/));
      }
      await expect.poll(() => liveWorkers(browser), patience).toEqual([]);
    });
  });
});

const nodeTexts = new Map<string, Promise<string>>();

/** What Node generates, once for each file: both pages are held against it. */
function inNode(path: string, text: string): Promise<string> {
  const known = nodeTexts.get(path) ?? generateInNode(path, text);
  nodeTexts.set(path, known);
  return known;
}

async function generateInNode(path: string, text: string): Promise<string> {
  const model = await open(path, { threads: 2, native: false });
  const { text: generated } = await model.generate(text, greedy).result;
  await model.dispose();
  return generated;
}
