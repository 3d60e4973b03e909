// docs/library/browser.md does what it says: its page tells Node's story from a development server, from a bundle and from plain
// files, each made as the document says.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import type { Browser } from "playwright-core";
import { build, createServer } from "vite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { describeBrowser } from "./chromium.ts";
import { launchBrowser } from "./launch.ts";
import { buildSite, SiteServer } from "./site.ts";

const document = readFileSync(
  fileURLToPath(new URL("../../docs/library/browser.md", import.meta.url)),
  "utf8",
);

describeBrowser("docs/library/browser.md", () => {
  let site: ReturnType<typeof buildSite>;
  let file: Awaited<ReturnType<typeof tinyFile>>;
  let browser: Browser;
  let expected: string;

  beforeAll(async () => {
    site = buildSite();
    file = await tinyFile();
    browser = await launchBrowser();
    for (const [, name, code] of document.matchAll(/^`([\w.]+)`:\n\n```\w+\n([\s\S]*?)^```$/gm)) {
      writeFileSync(join(site.folder, name!), code!);
    }
    const model = await open(file.path, { native: false });
    const options = { temperature: 0, maxTokens: 40 };
    expected = (await model.generate("Once upon a time", options).result).text;
    await model.dispose();
    expect(expected.length).toBeGreaterThan(0);
  });

  afterAll(async () => {
    await browser?.close();
    file?.remove();
    site?.remove();
  });

  const viteConfig = () => ({
    root: site.folder,
    configFile: join(site.folder, "vite.config.mjs"),
    logLevel: "warn" as const,
  });

  /** Opens the document's page and picks the model's file; Node's story appears, on all cores or on one. */
  async function tellStory(url: string, { isolated }: { isolated: boolean }): Promise<void> {
    const page = await browser.newPage();
    const cores = await page.evaluate(() => navigator.hardwareConcurrency);
    await page.goto(url);
    await page.setInputFiles("#file", file.path);
    await expect.poll(() => page.textContent("#story")).toBe(expected);
    await expect.poll(() => page.textContent("#threads")).toBe(`${isolated ? cores : 1} threads`);
    await page.close();
  }

  async function tellStoryFrom(folder: string, isolated: boolean): Promise<string[]> {
    const server = await SiteServer.start(folder, { isolated });
    try {
      await tellStory(server.url, { isolated });
      return server.requests;
    } finally {
      await server.stop();
    }
  }

  test("its page, from a development server", async () => {
    const listen = { host: "127.0.0.1", port: 0, watch: null };
    const server = await createServer({ ...viteConfig(), server: listen });
    try {
      await server.listen();
      await tellStory(server.resolvedUrls!.local[0]!, { isolated: true });
    } finally {
      await server.close();
    }
  });

  test("the same page as a bundle, with and without isolation", async () => {
    await build(viteConfig());
    const folder = join(site.folder, "dist");
    const requests = await tellStoryFrom(folder, true);
    await tellStoryFrom(folder, false);
    const built = readdirSync(join(folder, "assets")).map((name) => `/assets/${name}`);
    expect(built.join()).toMatch(/worker-.*\.js/);
    // What belongs to Node or to another purpose is not in the bundle, or not loaded.
    const code = built.map((name) => readFileSync(join(folder, name), "utf8")).join("\n");
    expect(code).not.toMatch(/["']node:|huggingface\.co/);
    const loaded = new Set(requests.filter((path) => path.startsWith("/assets/")));
    expect([...loaded].filter((path) => /external|measure/.test(path))).toEqual([]);
    // Its sizes are those of the table.
    const server = await SiteServer.start(folder, { isolated: true });
    const page = await browser.newPage();
    await page.goto(server.url);
    const atFirst = new Set(server.requests.filter((path) => loaded.has(path)));
    await page.close();
    await server.stop();
    const kB = (names: Iterable<string>, of: (file: Buffer) => number): number => {
      const bytes = [...names].map((name) => of(readFileSync(join(folder, name))));
      return Math.round(bytes.reduce((sum, one) => sum + one, 0) / 1000);
    };
    const table = [...document.matchAll(/^\|.*\| (\d+) \| (\d+) \|$/gm)].map(([, ...row]) =>
      row.map(Number),
    );
    const measured = [atFirst, [...loaded].filter((name) => !atFirst.has(name))].map((names) => [
      kB(names, (file) => file.length),
      kB(names, (file) => gzipSync(file).length),
    ]);
    const text = `the table says ${JSON.stringify(table)}, it is ${JSON.stringify(measured)}`;
    expect(table, text).toHaveLength(2);
    for (const [at, said] of table.flat().entries()) {
      expect(Math.abs(said - measured.flat()[at]!), text).toBeLessThan(0.03 * said);
    }
  });

  test("the same page on plain files, without a bundler", async () => {
    const commands = /## Without a bundler[\s\S]*?```sh\n([\s\S]*?)```/.exec(document)![1]!;
    const importMap = /<script type="importmap">.*<\/script>/.exec(document)![0];
    const folder = mkdtempSync(join(tmpdir(), "lantern-plain-"));
    try {
      execFileSync("sh", ["-ec", commands.replaceAll("SITE", folder)], { cwd: site.folder });
      const page = readFileSync(join(site.folder, "index.html"), "utf8");
      const withMap = page.replace('<script type="module">', `${importMap}\n$&`);
      writeFileSync(join(folder, "index.html"), withMap);
      await tellStoryFrom(folder, true);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
