// docs/browser.md does what it says: its page, with its configuration, served by Vite, tells a story on several threads.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createServer, type ViteDevServer } from "vite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { describeBrowser, launchBrowser } from "./chromium.ts";
import { buildSite } from "./site.ts";

const document = fileURLToPath(new URL("../../docs/browser.md", import.meta.url));

describeBrowser("docs/browser.md", () => {
  let site: ReturnType<typeof buildSite>;
  let server: ViteDevServer;

  beforeAll(async () => {
    site = buildSite();
    const text = readFileSync(document, "utf8");
    for (const [, name, code] of text.matchAll(/^`([\w.]+)`:\n\n```\w+\n([\s\S]*?)^```$/gm)) {
      writeFileSync(join(site.folder, name!), code!);
    }
    server = await createServer({
      root: site.folder,
      configFile: join(site.folder, "vite.config.mjs"),
      logLevel: "warn",
      server: { host: "127.0.0.1", port: 0, watch: null },
    });
    await server.listen();
  });

  afterAll(async () => {
    await server?.close();
    site?.remove();
  });

  test("its page works as it is written", async () => {
    const file = await tinyFile();
    const browser = await launchBrowser();
    try {
      const page = await browser.newPage();
      await page.goto(server.resolvedUrls!.local[0]!);
      const cores = await page.evaluate(() => navigator.hardwareConcurrency);
      await page.setInputFiles("#file", file.path);
      const model = await open(file.path);
      const options = { temperature: 0, maxTokens: 40 };
      const { text } = await model.generate("Once upon a time", options).result;
      await model.dispose();
      await expect.poll(() => page.textContent("#story"), { timeout: 30_000 }).toBe(text);
      expect(text.length).toBeGreaterThan(0);
      expect(await page.textContent("#threads")).toBe(`${cores} threads`);
    } finally {
      await browser.close();
      file.remove();
    }
  });
});
