// A tab in a real Chromium that computes for a cluster, over NATS's WebSocket: it answers with Node's text, its answer goes on elsewhere when it
// is closed, and what its credentials do not allow is refused with words. These are JWTs that say what each role may do.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Model, open } from "../../src/index.ts";
import { readAssets } from "../../src/platform/node-assets.ts";
import { describeBrowser, liveWorkers } from "../browser/chromium.ts";
import { launchBrowser } from "../browser/launch.ts";
import { type TestGateway, testGateway, testWorker } from "../cluster/support.ts";
import { describeNats } from "../support/nats.ts";
import { freePorts, listening } from "../support/nats-servers.ts";
import { operatorFiles } from "../support/nats-users.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { builtApp } from "./stage.ts";

/** Chromium takes its time to open a model on a busy machine. */
const patience = { timeout: 120_000 };

const ofGroup = (group: string) => ({
  publish: [`lantern.beat.${group}.*`, `lantern.answer.*.${group}.*`],
  subscribe: ["facts", "call", "cancel", "check"].map((kind) => `lantern.${kind}.${group}.*`),
  responds: true,
});
const all = { publish: ["lantern.>", "_INBOX.>"], subscribe: ["lantern.>", "_INBOX.>"] };

describeNats("a tab as a worker", () =>
  describeBrowser("in Chromium", () => {
    const folder = mkdtempSync(join(tmpdir(), "lantern-tab-"));
    const users = operatorFiles({ server: all, tab: ofGroup("tabs"), other: ofGroup("others") });
    const at = (name: string): string => join(folder, name);
    let nats: ChildProcess;
    let servers: string[];
    let socket: string;
    let gateway: TestGateway;
    let browser: Browser;
    let file: Awaited<ReturnType<typeof tinyFile>>;
    let own: Model;

    beforeAll(async () => {
      const [port, webSocket] = await freePorts(2);
      const where = `websocket { listen: "127.0.0.1:${webSocket}", no_tls: true }`;
      const slowly = "authorization { timeout: 120 }"; // signing in takes its time on a busy machine
      writeFileSync(at("nats.conf"), `${users.config}\n${where}\n${slowly}\n`);
      for (const name of ["tab", "other"] as const) writeFileSync(at(name), users.creds[name]);
      const args = ["-c", at("nats.conf"), "-a", "127.0.0.1", "-p", String(port)];
      nats = spawn("nats-server", args, { stdio: "ignore" });
      await Promise.all([listening(port!), listening(webSocket!)]);
      servers = [`nats://127.0.0.1:${port}`];
      socket = `ws://127.0.0.1:${webSocket}`;
      file = await tinyFile({ weightType: "q8_0", feedForward: 24_000 });
      own = await open(file.path, { threads: 1, tuned: false, parallel: 4 });
      const assets = readAssets(`${await builtApp()}/`)!;
      gateway = await testGateway(servers, { assets, creds: users.creds.server });
      browser = await launchBrowser();
    });
    afterAll(async () => {
      await browser?.close();
      await gateway?.close();
      await own?.dispose();
      nats?.kill("SIGKILL");
      file?.remove();
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    });

    /** A tab with these credentials, as a user starts it. */
    async function start(creds: "tab" | "other"): Promise<Page> {
      const page = await (await browser.newContext()).newPage();
      page.on("pageerror", (error) => expect.unreachable(String(error)));
      await page.goto(`${gateway.server.url}/worker?name=tiny&cluster=${socket}`);
      await page.getByLabel("Model file").setInputFiles(file.path);
      await page.getByLabel("Credentials (.creds)").setInputFiles(at(creds));
      await page.getByRole("button", { name: "Start" }).click();
      return page;
    }

    /** Waits for a state; another end is an error with what the page says. */
    const state = (page: Page, name: string) =>
      expect
        .poll(async () => {
          const now = await page.getByRole("status").getAttribute("data-state");
          return now === "failed" ? `failed: ${await page.getByRole("alert").textContent()}` : now;
        }, patience)
        .toMatch(new RegExp(`^${name}`));
    const options = { maxTokens: 40, temperature: 1, seed: 7, ignoreEos: true };

    test("answers with Node's text, and goes when it is stopped", async () => {
      const page = await start("tab");
      await state(page, "serving");
      await gateway.workers(1);
      const id = gateway.gateway.workers.list()[0]!.id;
      expect(id).toMatch(/^tabs\./);
      const { text } = await gateway.model().generate("the cat", options).result;
      expect(text).toBe((await own.generate("the cat", options).result).text);
      await expect.poll(() => page.getByRole("status").textContent()).toMatch(/[1-9]\d* answered/);
      await page.getByRole("button", { name: "Stop" }).click();
      await state(page, "idle");
      await gateway.workers(0);
      await expect.poll(() => liveWorkers(browser), patience).toEqual(["lantern-tab"]);
      await page.context().close();
    });

    test("closed in the middle of an answer: another worker goes on with it", async () => {
      const page = await start("tab");
      await state(page, "serving");
      await gateway.workers(1);
      const long = { ...options, maxTokens: 400 };
      const generation = gateway.model().generate("the cat sat", long);
      const ids: number[] = [];
      let other: Awaited<ReturnType<typeof testWorker>> | undefined;
      for await (const event of generation.tokens()) {
        if (event.id >= 0) ids.push(event.id);
        if (ids.length < 3 || other) continue;
        // Closed at once: on a busy machine the tab would come to the end while another worker starts.
        await page.context().close();
        other = await testWorker(servers, own, { creds: users.creds.server });
      }
      const { tokenIds } = await own.generate("the cat sat", long).result;
      expect(ids).toEqual(tokenIds);
      // The tab had not come to the end: the other one has written some of it.
      expect(other!.worker.tokensPerSecond).toBeGreaterThan(0);
      await other!.close();
      await gateway.workers(0);
    });

    test("credentials of another group are refused, and the page says what they lack", async () => {
      const page = await start("other");
      await state(page, "failed");
      const said = await page.getByRole("alert").textContent();
      expect(said).toMatch(
        /credentials may not be used for worker tabs\.\w+: NATS refused .*lantern\.\w+\.tabs/,
      );
      expect(gateway.gateway.workers.list()).toEqual([]);
      await page.context().close();
    });
  }),
);
