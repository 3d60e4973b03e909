// Makes the pictures of README.md and docs/use/limits.md, docs/images/story.png and limits.png, from the app itself: `lantern serve` on a
// free port with an empty database and the default model, in a real Chromium. `npm run pictures`, on an
// otherwise idle machine, because the speed is in the picture of the story; `npm run pictures limits.png` takes one alone. LANTERN_CHROMIUM can name the browser.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { build } from "vite";
import { launchBrowser } from "../test/browser/launch.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const images = join(root, "docs", "images");
const storyteller = "stories15m";

async function story(page: Page): Promise<void> {
  const box = page.getByLabel("Continue writing");
  const goOn = page.getByRole("button", { name: "Continue" });
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Seed").fill("57");
  await page.keyboard.press("Escape");
  await page.getByLabel("Length").fill("50");
  await box.fill("Once upon a time, there was a little lighthouse at the end of the world.");
  await goOn.click();
  await goOn.and(page.locator(":enabled")).waitFor();
  await box.fill("One night, a small boat came");
  await page.getByRole("button", { name: "3 alternatives" }).click();
  await page.getByRole("button", { name: "Go on with 3" }).and(page.locator(":enabled")).waitFor();
}

async function limits(page: Page): Promise<void> {
  const choices = page.locator(".controls select");
  await choices.first().selectOption({ label: "Qwen2.5 7B" });
  await choices.nth(1).selectOption({ label: "NVIDIA GeForce RTX 4090" });
  await page.getByLabel("Bits per weight").fill("2"); // the third stop: 4 bits
  await page.getByRole("slider", { name: /^Context/ }).fill("5"); // 8192
  await page.locator(".chart").first().waitFor();
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
}

interface Picture {
  file: string;
  path: string;
  context: BrowserContextOptions;
  stage(page: Page): Promise<void>;
}

const pictures: readonly Picture[] = [
  {
    file: "story.png",
    path: "#/story",
    context: { viewport: { width: 1280, height: 900 }, colorScheme: "light" },
    stage: story,
  },
  {
    file: "limits.png",
    path: "#/limits",
    context: { viewport: { width: 1280, height: 1130 }, colorScheme: "dark" },
    stage: limits,
  },
];

async function take(browser: Browser, url: string, picture: Picture): Promise<void> {
  const context = await browser.newContext({ ...picture.context, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto(`${url}/${picture.path}`);
  await page.locator("h1:visible").first().waitFor();
  await picture.stage(page);
  await page.evaluate(async () => await document.fonts.ready);
  await page.screenshot({ path: join(images, picture.file) });
  await context.close();
  console.log(`docs/images/${picture.file}`);
}

/** Starts `lantern serve` with its own conversations; reads its URL from the output. */
async function serve(data: string): Promise<{ url: string; stop(): Promise<void> }> {
  const flags = ["--port", "0", "--no-token", "--sessions", join(data, "sessions.db")];
  const lantern = ["bin/lantern.js", "serve", "-m", storyteller, ...flags];
  const server = spawn(process.execPath, lantern, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  const ended = once(server, "exit");
  const stop = async (): Promise<void> => {
    server.kill("SIGTERM");
    await ended;
  };
  let said = "";
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  for (const stream of [server.stdout, server.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      const address = /http:\/\/127\.0\.0\.1:\d+/.exec(said)?.[0];
      if (address) resolve(address);
    });
  }
  void ended.then(() => reject(new Error(`lantern serve ended: ${said}`)));
  return { url: await promise, stop };
}

const data = mkdtempSync(join(tmpdir(), "lantern-pictures-"));
await build({ configFile: join(root, "apps", "web", "vite.config.ts"), logLevel: "warn" });
const server = await serve(data);
const browser = await launchBrowser();
try {
  const named = process.argv.slice(2);
  for (const picture of pictures) {
    if (named.length === 0 || named.includes(picture.file)) {
      await take(browser, server.url, picture);
    }
  }
} finally {
  await browser.close();
  await server.stop();
  rmSync(data, { recursive: true, force: true });
}
