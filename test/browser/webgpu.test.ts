// A model on WebGPU in a browser: the engine's worker finds navigator.gpu and computes what the processor computes in Node.
// On Chromium's software adapter, which compiles slowly: few shapes, few tokens.
// Held against: Node's text on the processor.

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type GpuInfo, open } from "../../src/index.ts";
import { leftOut } from "../support/exhaustive.ts";
import { hasShared, sharedPath } from "../support/shared.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { describeBrowser } from "./chromium.ts";
import { launchBrowser } from "./launch.ts";
import { buildSite, SiteServer } from "./site.ts";

const stories = "models/stories15M/stories15M-Q4_0.gguf";

describeBrowser("WebGPU in Chromium", () => {
  let browser: Browser;
  let site: ReturnType<typeof buildSite>;
  let server: SiteServer;
  let page: Page;
  let tiny: Awaited<ReturnType<typeof tinyFile>>;
  let gpu: GpuInfo | string;

  beforeAll(async () => {
    site = buildSite();
    tiny = await tinyFile({ weightType: "q4_0" });
    server = await SiteServer.start(site.folder, { isolated: true });
    server.files.set("/tiny.gguf", tiny.path).set("/stories.gguf", sharedPath(stories));
    browser = await launchBrowser({ webgpu: true });
    page = await browser.newPage();
    await page.goto(server.url);
    await page.waitForFunction(() => window.lantern !== undefined);
    gpu = await page.evaluate(async () => await window.lantern.gpuInfo());
  });

  /** This Chromium may come without an adapter. */
  beforeEach((context) => {
    if (typeof gpu === "string") context.skip(gpu);
  });

  afterAll(async () => {
    await browser?.close();
    await server?.stop();
    site?.remove();
    tiny?.remove();
  });

  async function inPage(
    url: string,
    prompt: string,
    maxTokens: number,
    gpuLayers: number | "all" = "all",
  ) {
    return await page.evaluate(
      async ([model, start, count, layers]) => {
        const opened = await window.lantern.open(model, { gpuLayers: layers });
        const options = { temperature: 0, maxTokens: count };
        const { text } = await opened.generate(start, options).result;
        await opened.dispose();
        return { text, backend: opened.info.backend.name };
      },
      [url, prompt, maxTokens, gpuLayers] as const,
    );
  }

  async function inNode(path: string, prompt: string, maxTokens: number): Promise<string> {
    const model = await open(path, { backend: "cpu" });
    const { text } = await model.generate(prompt, { temperature: 0, maxTokens }).result;
    await model.dispose();
    return text;
  }

  test("the page knows its GPU", () => {
    expect(gpu).toMatchObject({ maxBindingBytes: expect.any(Number), isSoftware: true });
  });

  test("an adapter that says 32 lanes and has fewer: no subgroups, and why", async (context) => {
    if (!(gpu as GpuInfo).subgroups) context.skip("this adapter has no subgroups");
    const claimed = await page.evaluate(async () => {
      const names = ["subgroupMinSize", "subgroupMaxSize"] as const;
      const own = Object.getOwnPropertyDescriptors(GPUAdapterInfo.prototype);
      for (const name of names) {
        Object.defineProperty(GPUAdapterInfo.prototype, name, { ...own[name], get: () => 32 });
      }
      const found = await window.lantern.gpuInfo();
      for (const name of names) {
        Object.defineProperty(GPUAdapterInfo.prototype, name, own[name]!);
      }
      return found;
    });
    expect(claimed).toMatchObject({ subgroupShuffles: expect.stringContaining("are wrong") });
    expect(claimed).not.toMatchObject({ subgroups: expect.anything() });
  });

  test("a tiny model: Node's text", async () => {
    const expected = await inNode(tiny.path, "the cat", 8);
    expect(await inPage("tiny.gguf", "the cat", 8)).toEqual({ text: expected, backend: "webgpu" });
  });

  test("some layers on the GPU, the rest on the page's processor: the same text", async () => {
    const expected = await inNode(tiny.path, "the cat", 8);
    expect(await inPage("tiny.gguf", "the cat", 8, 2)).toEqual({
      text: expected,
      backend: "cpu+webgpu",
    });
  });

  const why = hasShared(stories) ? leftOut : `../shared/${stories} is not on this machine`;
  const reason = why === undefined ? "" : ` [skipped: ${why}]`;
  test.skipIf(reason !== "")(`stories15M, Q4_0: Node's text${reason}`, async () => {
    const prompt = "Once upon a time";
    const expected = await inNode(sharedPath(stories), prompt, 6);
    expect(await inPage("stories.gguf", prompt, 6)).toEqual({ text: expected, backend: "webgpu" });
  });
});
