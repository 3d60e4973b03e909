// Where bench/wllama.ts lets both engines run: one Chromium, one cross-origin isolated page, the built package of this
// checkout and wllama on one server. Also says how much of the machine's work was Chromium's, which is ours.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Browser, CDPSession, Page } from "playwright-core";
import { SourceError } from "../../src/base/errors.ts";
import type { MachineLoad, Terminal } from "../../src/platform/node-cli.ts";
import { chromiumPath, launchBrowser } from "../../test/browser/launch.ts";
import { buildSite, SiteServer } from "../../test/browser/site.ts";
import { QuietWatch } from "../quiet.ts";
import type { Watch } from "../side-by-side.ts";

export const wllamaPackage = "@wllama/wllama@3.8.1";

const scriptPath = "/wllama/index.js";
export const wasmPath = "/wllama/wllama.wasm";

export class Arena {
  readonly #site: ReturnType<typeof buildSite>;
  readonly #server: SiteServer;
  readonly #browser: Browser;
  readonly page: Page;
  /** "Chromium 140.0; wllama 3.8.1 (llama.cpp b11364)" */
  readonly versions: string;

  private constructor(
    site: ReturnType<typeof buildSite>,
    server: SiteServer,
    browser: Browser,
    page: Page,
    versions: string,
  ) {
    this.#site = site;
    this.#server = server;
    this.#browser = browser;
    this.page = page;
    this.versions = versions;
  }

  static async open(): Promise<Arena> {
    const wllama = locateWllama();
    if (!chromiumPath) {
      throw new SourceError("bench: no Chromium is installed here; LANTERN_CHROMIUM can name one");
    }
    const site = buildSite();
    const server = await SiteServer.start(site.folder, { isolated: true });
    server.files.set(scriptPath, join(wllama.folder, "esm/index.js"));
    server.files.set(wasmPath, join(wllama.folder, "esm/wasm/wllama.wasm"));
    const browser = await launchBrowser();
    const page = await browser.newPage();
    await page.goto(server.url);
    const llama = await page.evaluate(async (path) => {
      window.wllamaModule = await import(path);
      return window.wllamaModule.Wllama.getLibllamaVersion();
    }, scriptPath);
    await page.waitForFunction(() => window.lantern !== undefined);
    const versions = `Chromium ${browser.version()}; wllama ${wllama.version} (llama.cpp ${llama})`;
    return new Arena(site, server, browser, page, versions);
  }

  /** Judges the machine's quiet; Chromium's work counts as our own. */
  async watch(terminal: Terminal): Promise<Watch> {
    const session = await this.#browser.newBrowserCDPSession();
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

  async close(): Promise<void> {
    await this.#browser.close();
    await this.#server.stop();
    this.#site.remove();
  }
}

/** CPU seconds of all of Chromium's processes since each was started. */
async function cpuSeconds(session: CDPSession): Promise<number> {
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  return processInfo.reduce((sum, { cpuTime }) => sum + cpuTime, 0);
}

/** The package is no dependency: beside the project, or in the folder of LANTERN_PEERS. */
function locateWllama(): { folder: string; version: string } {
  const folders = [fileURLToPath(new URL("../..", import.meta.url)), process.env.LANTERN_PEERS];
  for (const folder of folders) {
    if (!folder) continue;
    try {
      const require = createRequire(join(resolve(folder), "package.json"));
      const manifest = require.resolve("@wllama/wllama/package.json");
      const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string };
      return { folder: dirname(manifest), version };
    } catch {
      // Not in this one.
    }
  }
  throw new SourceError(
    `bench: ${wllamaPackage} is neither installed in the project nor in the folder of LANTERN_PEERS. Install it anywhere: npm i --prefix DIR ${wllamaPackage}, then LANTERN_PEERS=DIR npm run bench:wllama -- MODEL`,
  );
}
