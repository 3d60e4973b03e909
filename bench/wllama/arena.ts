// A page of Chromium with the built package of this checkout, cross-origin isolated; and where bench/wllama.ts lets both engines run: such
// a page with wllama on the same server. Also says how much of the machine's work was Chromium's, which is ours.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Browser, CDPSession, Page } from "playwright-core";
import { SourceError } from "../../src/base/errors.ts";
import type { RoundWatch } from "../../src/base/measure.ts";
import type { MachineLoad, Terminal } from "../../src/platform/node-cli.ts";
import { chromiumPath, launchBrowser } from "../../test/browser/launch.ts";
import { buildSite, SiteServer } from "../../test/browser/site.ts";
import { locatePeer, sum } from "../harness.ts";
import { QuietWatch } from "../quiet.ts";

interface Opened {
  readonly page: Page;
  readonly browser: Browser;
}

/** `files`: more files of the server, by their paths there; `more`: flags of Chromium. */
export async function withPage<T>(
  { files = {}, more = [] }: { files?: Readonly<Record<string, string>>; more?: readonly string[] },
  work: (opened: Opened) => Promise<T>,
): Promise<T> {
  if (!chromiumPath) {
    throw new SourceError("bench: no Chromium is installed here; LANTERN_CHROMIUM can name one");
  }
  const site = buildSite();
  const server = await SiteServer.start(site.folder, { isolated: true });
  for (const [path, file] of Object.entries(files)) server.files.set(path, file);
  const browser = await launchBrowser({ more });
  try {
    const page = await browser.newPage();
    await page.goto(server.url);
    await page.waitForFunction(() => window.lantern !== undefined);
    return await work({ page, browser });
  } finally {
    await browser.close();
    await server.stop();
    site.remove();
  }
}

const scriptPath = "/wllama/index.js";
export const wasmPath = "/wllama/wllama.wasm";

export interface Arena {
  readonly page: Page;
  /** Judges the machine's quiet; Chromium's work counts as our own. */
  readonly watch: RoundWatch;
  /** "Chromium 140.0; wllama 3.8.1 (llama.cpp b11364)" */
  readonly versions: string;
}

export async function withArena(
  terminal: Terminal,
  work: (arena: Arena) => Promise<void>,
): Promise<void> {
  const manifest = locatePeer("@wllama/wllama/package.json", "@wllama/wllama@3.8.1");
  const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string };
  const esm = join(dirname(manifest), "esm");
  const files = { [scriptPath]: `${esm}/index.js`, [wasmPath]: `${esm}/wasm/wllama.wasm` };
  await withPage({ files }, async ({ page, browser }) => {
    const llama = await page.evaluate(async (path) => {
      window.wllamaModule = await import(path);
      return window.wllamaModule.Wllama.getLibllamaVersion();
    }, scriptPath);
    const versions = `Chromium ${browser.version()}; wllama ${version} (llama.cpp ${llama})`;
    await work({ page, versions, watch: await watchOf(terminal, browser) });
  });
}

async function watchOf(terminal: Terminal, browser: Browser): Promise<RoundWatch> {
  const session = await browser.newBrowserCDPSession();
  let browserSeconds = await cpuSeconds(session);
  const watch = new QuietWatch({
    load: (): MachineLoad => {
      const load = terminal.load();
      return { ...load, ownSeconds: load.ownSeconds + browserSeconds };
    },
  });
  return {
    async begin() {
      browserSeconds = await cpuSeconds(session);
      watch.begin();
    },
    async disturbance() {
      browserSeconds = await cpuSeconds(session);
      return watch.disturbance();
    },
  };
}

/** CPU seconds of all of Chromium's processes since each was started. */
async function cpuSeconds(session: CDPSession): Promise<number> {
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  return sum(processInfo.map(({ cpuTime }) => cpuTime));
}
