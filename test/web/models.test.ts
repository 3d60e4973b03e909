// The Models page in a real browser: what could run here, load options with their memory, the hub, files of this machine,
// deleting; and what the routes behind it refuse. The library is made up, or the catalog's with a hub of our own.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { catalogLibrary } from "../../apps/cli/serve-library.ts";
import {
  type ModelLibrary,
  type RunningServer,
  type StartOptions,
  startServer,
} from "../../apps/server/serve.ts";
import { type ModelFit, open, SourceError } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { DownloadServer, noise } from "../catalog/download-server.ts";
import { request } from "../server/lantern-client.ts";
import { tinyFile, tinyGguf } from "../support/tiny-file.ts";
import { scriptedModel } from "./scripted-model.ts";
import { answers, say, useStage } from "./stage.ts";

type Listing = Awaited<ReturnType<ModelLibrary["list"]>>[number];
type Opened = Parameters<ModelLibrary["open"]>[1];

const verdict = (fits: ModelFit["fits"], expected?: number): ModelFit => ({
  fits,
  needBytes: 3e9,
  contextSize: 4096,
  hasChatTemplate: undefined,
  limit: expected === undefined ? undefined : 2 * expected,
  expected,
  share: expected === undefined ? undefined : 0.5,
  basis: expected === undefined ? undefined : "this type",
  runs: expected === undefined ? 0 : 7,
});

function listing(name: string, more: Partial<Listing>): Listing {
  const facts = { licence: "MIT", bytes: 2e9, chat: true, source: "a test", diskBytes: 0 };
  return { name, description: `it is ${name}`, state: "absent", ...facts, ...more };
}

function fakeLibrary() {
  const list = [
    listing("good", { fit: verdict("now", 9) }),
    listing("fallback", { source: "npm something@1.0.0", fit: verdict("now", 30) }),
    listing("giant", { bytes: 4e11, fit: verdict("no", 0.1) }),
    listing("mine", { state: "cached", diskBytes: 2e9, fit: verdict("now", 9) }),
  ];
  const seen: { opened: [string, Opened][]; removed: string[]; downloaded: string[] } = {
    opened: [],
    removed: [],
    downloaded: [],
  };
  const library: Partial<ModelLibrary> = {
    list: async () => list,
    canDownload: () => true,
    download: async (name) => {
      seen.downloaded.push(name);
      return name;
    },
    open: async (name, options) => {
      seen.opened.push([name, options]);
      const { signal: _, onProgress: _p, ...chosen } = options;
      Object.assign(list.find((one) => one.name === name) ?? {}, { options: chosen });
      return scriptedModel({
        answer: () => `I am ${name}.`,
        isEncoder: name.startsWith("vectors"),
      });
    },
    remove: async (name) => {
      seen.removed.push(name);
      list.splice(
        list.findIndex((one) => one.name === name),
        1,
      );
      return { how: "deleted", bytes: 2e9 };
    },
    plan: async (_, { contextSize: wanted, kvType }) => {
      const contextSize = wanted ?? 4096;
      const keyType = typeof kvType === "object" ? kvType?.k : kvType;
      const kvBytes = contextSize * (keyType === "q8_0" ? 50_000 : 100_000);
      const parts = { weightBytes: 2e9, kvBytes, workBytes: 1e8 };
      const totalBytes = 2.1e9 + kvBytes;
      const memory = { memoryBytes: 16e9, freeMemoryBytes: 8e9 };
      return { ...parts, totalBytes, contextSize, trainedContext: 131_072, layers: 28, ...memory };
    },
    search: async (words) =>
      words === "offline"
        ? Promise.reject(new SourceError("hub: the hub could not be reached: no network"))
        : [{ repo: `o/${words}-GGUF`, downloads: 12_345, likes: 1, gated: true, updated: "2026" }],
    variants: async () => [
      {
        name: "hf:o/r/r-Q4.gguf",
        label: "Q4_K_M",
        bytes: 2e9,
        files: 1,
        fits: true,
        suggested: true,
      },
      {
        name: "hf:o/r/r-Q8.gguf",
        label: "Q8_0",
        bytes: 4e10,
        files: 3,
        fits: false,
        suggested: false,
      },
    ],
    folder: async (path) =>
      path === undefined
        ? {
            path: "/home/u",
            parent: null,
            entries: [{ name: "sub", path: "/home/u/sub", kind: "folder", bytes: 0 }],
          }
        : {
            path,
            parent: "/home/u",
            entries: [{ name: "x.gguf", path: `${path}/x.gguf`, kind: "model", bytes: 5e6 }],
          },
    findFile: async (name) => (name === "known.gguf" ? ["/home/u/known.gguf"] : []),
    link: async (path) => {
      const name = path.split("/").at(-1)!;
      list.push(listing(name, { state: "linked" }));
      return name;
    },
  };
  return { library, seen };
}

describeBrowser("saved computations", () => {
  const stage = useStage();

  test("are shown by model with what they saved, and cleared", async () => {
    const file = await tinyFile();
    const folder = mkdtempSync(join(tmpdir(), "lantern-web-state-"));
    const copies = { cacheRamBytes: 1e8, cacheDiskBytes: 1e8, cacheFolder: folder };
    const model = await open(file.path, { threads: 1, ...copies });
    try {
      for (const last of [7, 8]) {
        const tokens = [...Array.from({ length: 100 }, (_, i) => 5 + (i % 40)), last];
        await model.generate(tokens, { maxTokens: 1 }).result;
      }
      const { url } = await stage.serve({ models: { tiny: model }, cacheFolder: folder });
      const page = await stage.page(`${url}/#/models`);
      const card = page.getByRole("region", { name: "Saved computations" });
      await card.getByText("tiny.gguf").waitFor();
      await expect.poll(() => card.textContent()).toContain(folder);
      await expect
        .poll(() => card.textContent())
        .toMatch(/Of 202 prompt tokens, \d+% were in the KV cache/);
      await card.getByRole("button", { name: "Clear all" }).click();
      const dialog = page.getByRole("dialog", { name: "Clear saved computations" });
      await dialog.getByRole("button", { name: "Clear", exact: true }).click();
      await expect
        .poll(() => card.getByRole("button", { name: "Clear all" }).isDisabled())
        .toBe(true);
      await expect.poll(() => card.getByText("tiny.gguf").count()).toBe(0);
      expect((await model.status()).cache.ram.bytes).toBe(0);
    } finally {
      await model.dispose();
      file.remove();
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

describeBrowser("the Models page", () => {
  const stage = useStage();

  async function openPage() {
    const { library, seen } = fakeLibrary();
    const story = scriptedModel({ answer: () => "Once.", chat: false });
    const old = scriptedModel({ answer: () => "I am old." });
    const { url } = await stage.serve({ models: { story, old }, library });
    const page = await stage.page(`${url}/#/models`);
    const row = (text: string) => page.locator(".models li", { hasText: text });
    return { url, page, seen, row };
  }

  test("says what could run here, best first, and how fast; where files lie and what they take", async () => {
    const { page, row } = await openPage();
    const first = page.locator("section", { hasText: "What could run here" }).locator("li").first();
    await expect
      .poll(() => first.locator("h3").innerText())
      .toBe("good chat best for this machine");
    await row("it is good")
      .getByText("Fits: needs 3 GB of memory, and writes about 9 tokens/s (at most 18).")
      .waitFor();
    await page.getByText("similar models reached 50% of that here (7 runs)").waitFor();
    await page.getByText("8 GB of 16 GB free").waitFor();
    await page.getByText("take 3 GB in /cache/lantern, 50 GB are free").waitFor();
    await expect.poll(() => row("it is giant").isVisible()).toBe(false);
    await page.getByText("1 more does not fit in this machine’s memory").click();
    await row("it is giant")
      .getByText("Does not fit in this machine’s memory: needs 3 GB of memory.")
      .waitFor();
  });

  test("a model is loaded with options, after a look at the memory; Chat uses it", async () => {
    const { page, seen, row } = await openPage();
    await row("it is mine").getByRole("button", { name: "Options" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Trained for 131,072. Empty: as many as memory has room for.").waitFor();
    const cell = (name: string) => dialog.locator("tr", { hasText: name }).locator("td");
    await expect.poll(() => cell("Free memory now").innerText()).toBe("8 GB");
    await dialog.getByLabel("Context, in tokens").fill("10000");
    await dialog
      .getByRole("row", { name: "KV cache, one conversation of 10,000 tokens 1 GB" })
      .waitFor();
    await expect.poll(() => cell("Free memory afterwards").innerText()).toBe("4.9 GB");
    await dialog.getByLabel("Context, in tokens").fill("100000");
    await dialog.getByText("4.1 GB more are needed").waitFor();
    await dialog.getByLabel("KV cache").selectOption("8 bits (half the memory)");
    await dialog.getByRole("row", { name: "Free memory afterwards 900 MB" }).waitFor();
    await dialog
      .getByLabel("Values in it")
      .selectOption("4.5 bits (less than a third of the memory)");
    await dialog.getByLabel("Threads").fill("3");
    await dialog.getByLabel("Layers on the GPU").fill("auto");
    await dialog.getByRole("button", { name: "Load" }).click();
    await row("it is mine").getByRole("button", { name: "Unload" }).waitFor();
    const [name, { contextSize, kvType, threads, gpuLayers }] = seen.opened[0]!;
    expect({ name, contextSize, kvType, threads, gpuLayers }).toEqual({
      name: "mine",
      contextSize: 100_000,
      kvType: { k: "q8_0", v: "q4_0" },
      threads: 3,
      gpuLayers: "auto",
    });
    await row("it is mine")
      .getByText(/Memory: 4 B for the weights, up to 200 kB/)
      .waitFor();
    // The same again, with prompts on the GPU: then no layers are asked for.
    await row("it is mine").getByRole("button", { name: "Options" }).click();
    await expect.poll(() => dialog.getByLabel("Threads").inputValue()).toBe("3");
    for (const [label, type] of [
      ["KV cache", "q8_0"],
      ["Values in it", "q4_0"],
    ] as const) {
      await expect.poll(() => dialog.getByLabel(label).inputValue()).toBe(type);
    }
    await dialog.getByLabel("KV cache").selectOption("as the server was started");
    await dialog.getByLabel("The GPU computes").selectOption("prompts");
    await expect.poll(() => dialog.getByLabel("Layers on the GPU").count()).toBe(0);
    await dialog.getByRole("button", { name: "Load again" }).click();
    await expect.poll(() => seen.opened.length).toBe(2);
    expect(seen.opened[1]![1]).toMatchObject({ gpuFor: "prompt" });
    expect(seen.opened[1]![1]).toMatchObject({ gpuLayers: null, kvType: null }); // forgotten
    await row("it is mine").getByRole("button", { name: "Unload" }).waitFor();
    // Nobody chose it in Chat: it was loaded, and it chats.
    await page.getByRole("link", { name: "Chat", exact: true }).first().click();
    await say(page, "Who are you?");
    expect(await answers(page)).toEqual(["I am mine."]);
  });

  test("a model that writes no text is not offered for it", async () => {
    const { page } = await openPage();
    await page.getByLabel("Path of a GGUF file").fill("~/vectors.gguf");
    await page.keyboard.press("Enter");
    const row = page.locator("li", { hasText: "Turns texts into vectors for programs" });
    await row.getByRole("button", { name: "Unload" }).waitFor();
    await expect.poll(() => row.getByRole("button", { name: /Chat|story/ }).count()).toBe(0);
  });

  test("words find repositories, a repository shows its files, an unreachable hub the fallback", async () => {
    const { page, seen } = await openPage();
    const box = page.getByLabel("Words, owner/repository, or the address of its page");
    await box.fill("tiny");
    await box.press("Enter");
    await page.getByText("12,345 downloads, 1 like. Accept its licence").waitFor();
    await page.getByRole("button", { name: "Show files" }).click();
    const files = page.getByLabel("Files of o/tiny-GGUF");
    await files.getByText("40 GB in 3 parts. Does not fit in this machine’s memory.").waitFor();
    const suggested = files.locator("li", { hasText: "suits this machine" });
    await suggested.getByRole("button", { name: "Download" }).click();
    await expect.poll(() => seen.downloaded).toEqual(["hf:o/r/r-Q4.gguf"]);
    await box.fill("https://huggingface.co/o/r/blob/main/x.gguf");
    await box.press("Enter");
    await expect
      .poll(() => seen.downloaded.at(-1))
      .toBe("https://huggingface.co/o/r/blob/main/x.gguf");
    await box.fill("offline");
    await box.press("Enter");
    await page
      .getByText("The hub could not be reached")
      .or(page.getByText("hub could not be reached"))
      .first()
      .waitFor();
    await page.getByRole("button", { name: "Download fallback" }).click();
    await expect.poll(() => seen.downloaded.at(-1)).toBe("fallback");
  });

  test("a file of this machine is opened by its path, by browsing, by choosing and by dropping it", async () => {
    const { page, seen } = await openPage();
    const opened = () => seen.opened.map(([name]) => name);
    await page.getByLabel("Path of a GGUF file").fill("~/one.gguf");
    await page.keyboard.press("Enter");
    await expect.poll(opened).toEqual(["one.gguf"]);
    await page.getByRole("button", { name: "Browse…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "sub" }).click();
    await dialog.getByText("/home/u/sub").waitFor();
    await dialog.getByRole("button", { name: "x.gguf" }).click();
    await expect.poll(opened).toEqual(["one.gguf", "x.gguf"]);
    const file = (name: string) => ({ name, mimeType: "", buffer: Buffer.from("GGUF") });
    await page.getByLabel("Choose a file…").setInputFiles(file("known.gguf"));
    await expect.poll(opened).toEqual(["one.gguf", "x.gguf", "known.gguf"]);
    const data = await page.evaluateHandle(() => {
      const transfer = new DataTransfer();
      transfer.items.add(new File(["GGUF"], "lost.gguf"));
      return transfer;
    });
    await page.locator(".drop").dispatchEvent("drop", { dataTransfer: data });
    await page.getByText("lost.gguf is not in one of the usual folders").waitFor();
    await expect.poll(() => page.getByLabel("Path of a GGUF file").inputValue()).toBe("lost.gguf");
  });

  test("a model is deleted after a question", async () => {
    const { page, seen, row } = await openPage();
    await row("it is mine").getByRole("button", { name: "Delete mine" }).click();
    await page.getByRole("dialog").getByText("This frees 2 GB on the disk").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await expect.poll(() => row("it is mine").count()).toBe(0);
    expect(seen.removed).toEqual(["mine"]);
  });
});

describe("the routes", () => {
  let server: RunningServer | undefined;
  let cache: string;
  let hub: DownloadServer;
  beforeEach(async () => {
    cache = mkdtempSync(join(tmpdir(), "lantern-models-"));
    hub = new DownloadServer();
    await hub.start();
  });
  afterEach(async () => {
    await server?.stop();
    await hub.stop();
    rmSync(cache, { recursive: true, force: true });
  });

  async function serve(options: Partial<StartOptions> = {}) {
    const env = { LANTERN_CACHE: join(cache, "models"), HF_ENDPOINT: hub.url };
    const platform = { ...nodeDownloadPlatform(env), homeFolder: cache, memoryBytes: 8e9 };
    const library = catalogLibrary(platform, { threads: 1 }, {});
    const models = { story: scriptedModel({ answer: () => "x" }) };
    const usual = { version: "t", port: 0, graceMs: 0, token: false } as const;
    server = await startServer({ models, library, ...usual, ...options });
    return `http://127.0.0.1:${server.port}/lantern/v1/models`;
  }

  interface View {
    models: (Listing & { task: { error: string | null } | null })[];
    served: { id: string; info: { contextSize: number; warnings?: string[] } }[];
    place: { folder: string | null; usedBytes: number };
    isLocal: boolean;
  }
  const settled = async (url: string): Promise<View> => {
    for (;;) {
      const view = await request<View>(url);
      if (!view.models.some(({ task }) => task && task.error === null)) return view;
      await new Promise((wake) => setTimeout(wake, 20));
    }
  };

  test("search, files, download, plan, load with options, delete: with the catalog behind them", async () => {
    hub.files.set("o/tiny-GGUF/tiny-Q8_0.gguf", await tinyGguf());
    hub.files.set("o/tiny-GGUF/tiny-F16-00001-of-00002.gguf", noise(100));
    hub.files.set("o/tiny-GGUF/tiny-F16-00002-of-00002.gguf", noise(100));
    const url = await serve();
    const { found } = await request<{ found: { repo: string }[] }>(`${url}/search?q=tiny`);
    expect(found.map(({ repo }) => repo)).toEqual(["o/tiny-GGUF"]);
    const { variants } = await request<{ variants: object[] }>(`${url}/variants?name=o/tiny-GGUF`);
    expect(variants).toMatchObject([
      { name: "hf:o/tiny-GGUF/tiny-F16-00001-of-00002.gguf", label: "F16", files: 2, fits: true },
      { name: "hf:o/tiny-GGUF/tiny-Q8_0.gguf", label: "Q8_0", suggested: true },
    ]);
    await request(`${url}/variants?name=o/gone`, "GET", undefined, 502);
    await request(`${url}/variants?name=nonsense`, "GET", undefined, 400);

    const name = "hf:o/tiny-GGUF/tiny-Q8_0.gguf";
    await request(`${url}/download`, "POST", { name: "o/tiny-GGUF" }, 202);
    const view = await settled(url);
    const listed = view.models.find((model) => model.name === name)!;
    expect(listed).toMatchObject({ state: "cached", fit: { fits: "now" } });
    expect(view.place).toMatchObject({ folder: join(cache, "models"), usedBytes: listed.bytes });
    const plan = await request<{ kvBytes: number; trainedContext: number }>(`${url}/plan`, "POST", {
      name,
    });
    const small = await request<typeof plan>(`${url}/plan`, "POST", {
      name,
      contextSize: 32,
      kvType: "f32",
    });
    expect(small.kvBytes).toBe((plan.kvBytes / plan.trainedContext) * 32 * 2);

    await request(`${url}/load`, "POST", { name, contextSize: 100_000, kvType: "f32" }, 202);
    const [, served] = (await settled(url)).served;
    expect(served).toMatchObject({ id: name, info: { contextSize: plan.trainedContext } });
    expect(served!.info.warnings).toHaveLength(1);
    const loaded = await request<{ error: { code: string } }>(
      `${url}/delete`,
      "POST",
      { name },
      409,
    );
    expect(loaded.error.code).toBe("model_loaded");
    await request(`${url}/unload`, "POST", { name });
    await request(`${url}/delete`, "POST", { name });
    expect((await settled(url)).models.some((model) => model.name === name)).toBe(false);
    await request(`${url}/delete`, "POST", { name: "/etc/passwd" }, 404);
    await request(`${url}/load`, "POST", { name, kvType: "q4_k" }, 400);
  });

  test("a file elsewhere is linked and loaded; what is no model is not", async () => {
    await mkdir(join(cache, "Downloads"));
    const path = join(cache, "Downloads", "mine.gguf");
    writeFileSync(path, await tinyGguf());
    writeFileSync(join(cache, "secret.txt"), "x");
    const url = await serve();
    const folder = await request<{ entries: { name: string }[] }>(`${url}/folder`);
    expect(folder.entries.map(({ name }) => name)).toContain("Downloads");
    expect(folder.entries.map(({ name }) => name)).not.toContain("secret.txt");
    const size = (await tinyGguf()).length;
    expect(await request(`${url}/find`, "POST", { name: "mine.gguf", bytes: size })).toEqual({
      paths: [path],
    });
    await request(`${url}/link`, "POST", { path: join(cache, "secret.txt") }, 400);
    await request(`${url}/link`, "POST", { path: join(cache, "none.gguf") }, 502);
    const linked = await request<{ name: string }>(`${url}/link`, "POST", { path });
    expect(linked.name).toBe("mine.gguf");
    await request(`${url}/load`, "POST", { name: "mine.gguf" }, 202);
    expect((await settled(url)).served.map(({ id }) => id)).toEqual(["story", "mine.gguf"]);
  });

  test("paths are for this machine's own app: not for other machines, other origins, or without the key", async () => {
    const post = (url: string, headers: Record<string, string>) =>
      fetch(`${url}/link`, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify({ path: join(cache, "x.gguf") }),
      });
    const guarded = await serve({ apiKeys: ["k"], corsOrigins: ["*"] });
    expect((await post(guarded, {})).status).toBe(401);
    const key = { authorization: "Bearer k" };
    expect((await post(guarded, { ...key, origin: "https://evil.test" })).status).toBe(403);
    expect(
      (await fetch(`${guarded}/folder`, { headers: { ...key, origin: "https://evil.test" } }))
        .status,
    ).toBe(403);
    expect((await post(guarded, { ...key, origin: new URL(guarded).origin })).status).toBe(502); // no such file
    await server!.stop();
    const open = await serve({ host: "0.0.0.0" });
    expect((await post(open, {})).status).toBe(403);
    expect((await fetch(`${open}/folder?path=/`)).status).toBe(403);
    const view = await request<View>(open);
    expect([view.isLocal, view.place.folder]).toEqual([false, null]);
  });
});
