// What the tests of the web app share: the app, built once, a server that can be stopped and started again on the
// same port and database, and pages in a real Chromium that fail the test when the browser complains.

import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { build } from "vite";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { batchPlace } from "../../apps/cli/batch-place.ts";
import {
  type ModelLibrary,
  type RunningServer,
  type StartOptions,
  startServer,
} from "../../apps/server/serve.ts";
import { type Model, UsageError } from "../../src/index.ts";
import { type AssetFile, readAssets } from "../../src/platform/node-assets.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { launchBrowser } from "../browser/launch.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

const builds = join(root, "node_modules", ".cache", "web-app");

/** A name for what the sources are now: everything that the app could be built from. */
function sourcesKey(): string {
  const hash = createHash("sha256").update(readFileSync(join(root, "package-lock.json")));
  for (const folder of ["apps", "src"]) {
    const names = readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name));
    for (const name of names.sort()) hash.update(name).update(readFileSync(name));
  }
  return hash.digest("hex").slice(0, 16);
}

/** The folder of the built app. It is built once for the same sources, by whichever test file is the first. */
export async function builtApp(): Promise<string> {
  const folder = join(builds, sourcesKey());
  if (existsSync(folder)) return folder;
  mkdirSync(builds, { recursive: true });
  const made = mkdtempSync(join(builds, "new-"));
  await build({
    configFile: join(root, "apps", "web", "vite.config.ts"),
    logLevel: "warn",
    build: { outDir: made },
  });
  try {
    renameSync(made, folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
    rmSync(made, { recursive: true }); // another test file was first
  }
  return folder;
}

export interface ServeOptions {
  models: Readonly<Record<string, Model>>;
  library?: Partial<ModelLibrary>;
  pages?: StartOptions["pages"];
  /** Models that are loaded when somebody names them. */
  onDemand?: StartOptions["onDemand"];
  /** Tools of MCP servers. */
  tools?: StartOptions["tools"];
  /** Default: there are none. */
  hasBatches?: boolean;
  /** Folder of stored state; default: an empty one. */
  cacheFolder?: string;
  apiKey?: string;
  adminKey?: string;
  /** Default: none is needed. */
  token?: string;
}

export interface Site {
  readonly url: string;
  readonly server: RunningServer;
  stop(): Promise<void>;
  /** On the same port, with the same conversations. */
  startAgain(options?: ServeOptions): Promise<void>;
}

export interface Stage {
  serve(options: ServeOptions): Promise<Site>;
  page(url: string, options?: BrowserContextOptions): Promise<Page>;
  /** One whose browser is expected to complain, and that may have no heading. */
  quietPage(url: string): Promise<Page>;
}

/** Sets a file's tests up; what its tests open is closed after each. */
export function useStage(): Stage {
  let assets: Map<string, AssetFile>;
  let browser: Browser;
  let closing: (() => Promise<void>)[] = [];
  const complaints: string[] = [];
  beforeAll(async () => {
    assets = readAssets(`${await builtApp()}/`)!;
    browser = await launchBrowser();
  });
  afterEach(async () => {
    for (const close of closing.reverse()) await close();
    closing = [];
    expect(complaints.splice(0)).toEqual([]);
  });
  afterAll(async () => {
    await browser?.close();
  });
  return {
    async serve(options) {
      const data = mkdtempSync(join(tmpdir(), "lantern-web-data-"));
      const start = async (given: ServeOptions, port: number): Promise<RunningServer> =>
        await startServer({
          models: given.models,
          version: "test",
          port,
          graceMs: 0,
          token: given.token ?? false,
          assets,
          library: { ...noLibrary, ...given.library },
          ...(given.pages && { pages: given.pages }),
          ...(given.tools && { tools: given.tools }),
          ...(given.onDemand && { onDemand: given.onDemand }),
          ...(given.hasBatches && { batches: batchPlace(join(data, "batches.db")) }),
          sessions: () => openNodeDatabase(join(data, "sessions.db")),
          cacheFolder: given.cacheFolder ?? join(data, "state"),
          log: (line) => complaints.push(line),
          ...(given.apiKey !== undefined && { apiKeys: [given.apiKey] }),
          ...(given.adminKey !== undefined && { adminKey: given.adminKey }),
        });
      let server = await start(options, 0);
      const { url, port } = server;
      let running = true;
      const stop = async (): Promise<void> => {
        if (running) await server.stop();
        running = false;
      };
      closing.push(async () => {
        await stop();
        rmSync(data, { recursive: true, force: true });
      });
      return {
        url,
        get server() {
          return server;
        },
        stop,
        async startAgain(given = options) {
          server = await start(given, port);
          running = true;
        },
      };
    },
    async quietPage(url) {
      const context = await browser.newContext();
      closing.push(() => context.close());
      const page = await context.newPage();
      await page.goto(url);
      return page;
    },
    async page(url, options = {}) {
      const context = await browser.newContext(options);
      closing.push(() => context.close());
      const page = await context.newPage();
      page.on("pageerror", (error) => complaints.push(String(error.stack)));
      page.on("console", (message) => {
        // A request that fails is expected where a server is stopped; what the policy blocks never is.
        const expected = /Failed to load resource|net::ERR/.test(message.text());
        if (message.type() === "error" && !expected) complaints.push(message.text());
      });
      await page.goto(url);
      await page.locator("h1").waitFor();
      return page;
    },
  };
}

const noLibrary: ModelLibrary = {
  list: async () => [],
  canDownload: () => false,
  download: async (name) => name,
  open: async () => {
    throw new Error("there is nothing to open");
  },
  locate: async () => undefined,
  remove: async () => ({ how: "deleted", bytes: 0 }),
  digest: async () => undefined,
  place: async () => ({
    folder: "/cache/lantern",
    usedBytes: 3e9,
    freeBytes: 50e9,
    memoryBytes: 16e9,
    freeMemoryBytes: 8e9,
  }),
  plan: async () => {
    throw new UsageError("there is nothing to plan"); // a model of a script has no file
  },
  variants: async () => [],
  search: async () => [],
  folder: async () => ({ path: "/", parent: null, entries: [] }),
  findFile: async () => [],
  link: async (path) => path,
};

/**
 * Writes a message and sends it with Enter, once nothing is written any more; its answer has begun when this returns.
 */
export async function say(page: Page, text: string): Promise<void> {
  const sent = page.locator(".message:not(.pending) .bubble");
  await page.getByRole("button", { name: "Send" }).waitFor();
  const before = await sent.count();
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
  await sent.nth(before).waitFor();
}

/**
 * The texts of the answers, once there is one and nothing is written any more. A page that was just opened has its Send
 * button before it has the conversation.
 */
export async function answers(page: Page): Promise<string[]> {
  await page.locator(".answer").first().waitFor();
  await page.getByRole("button", { name: "Send" }).waitFor();
  return await page.locator(".answer .markdown").allInnerTexts();
}
