// A tab in a real Chromium computes lines of batches, on the roles of deploy/nats/nats.conf: its own reaches no stream, so a gateway (a process,
// as users start it) takes lines for it. Alone it answers a whole batch; closed in the middle of one, a Node worker goes on.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type RunningServer, startServer } from "../../apps/server/serve.ts";
import { readAssets } from "../../src/platform/node-assets.ts";
import { describeBrowser } from "../browser/chromium.ts";
import { launchBrowser } from "../browser/launch.ts";
import {
  answeredLines,
  batchOutput,
  completionLines,
  startBatch,
} from "../cluster/batch-requests.ts";
import { type Started, startLantern } from "../cluster/processes.ts";
import { describeNats } from "../support/nats.ts";
import { freePorts, listening } from "../support/nats-servers.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { builtApp } from "./stage.ts";

/** Chromium takes its time to open a model on a busy machine. */
const patience = { timeout: 120_000 };
const config = fileURLToPath(new URL("../../deploy/nats/nats.conf", import.meta.url));
const tokens = 16;

describeNats("a tab and batches", () =>
  describeBrowser("in Chromium", () => {
    const folder = mkdtempSync(join(tmpdir(), "lantern-tab-batches-"));
    const at = (name: string): string => join(folder, name);
    const processes: Started[] = [];
    let nats: ChildProcess;
    let cluster: string[];
    let socket: string;
    let pages: RunningServer;
    let client: OpenAI;
    let browser: Browser;
    let file: Awaited<ReturnType<typeof tinyFile>>;

    beforeAll(async () => {
      const [port, webSocket] = await freePorts(2);
      // The roles are what matters here; a browser would not know the certificates of a test.
      const blocks = ["", "no_tls: true"];
      const text = readFileSync(config, "utf8").replaceAll(
        /^ *tls \{[^}]*\}/gm,
        () => blocks.shift()!,
      );
      expect(blocks).toEqual([]);
      writeFileSync(at("nats.conf"), text);
      nats = spawn("nats-server", ["-c", at("nats.conf"), "-a", "127.0.0.1", "-p", String(port)], {
        stdio: "ignore",
        env: {
          ...{ ...process.env, NATS_NAME: "n1", NATS_STORE: at("js") },
          ...{ NATS_GATEWAY_PASSWORD: "gateway-secret", NATS_WORKER_PASSWORD: "worker-secret" },
          ...{ NATS_TAB_PASSWORD: "tab-secret", NATS_WEBSOCKET_PORT: String(webSocket) },
        },
      });
      await Promise.all([listening(port!), listening(webSocket!)]);
      cluster = ["--cluster", `nats://127.0.0.1:${port}`];
      socket = `ws://127.0.0.1:${webSocket}`;
      file = await tinyFile({ weightType: "q8_0", feedForward: 24_000 });
      const store = ["--port", "0", "--no-web", "--no-sessions", "--batches", at("batches.db")];
      const { ready } = await start("gateway", ["serve", ...cluster, ...store]);
      client = new OpenAI({ baseURL: `${ready.url}/v1`, apiKey: "none", maxRetries: 0 });
      const assets = readAssets(`${await builtApp()}/`)!;
      pages = await startServer({ models: {}, version: "test", port: 0, token: false, assets });
      browser = await launchBrowser();
    });
    afterAll(async () => {
      await browser?.close();
      await pages?.stop();
      for (const { child } of processes) child.kill("SIGKILL");
      nats?.kill("SIGKILL");
      file?.remove();
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    });

    async function start(role: "gateway" | "worker", args: readonly string[]): Promise<Started> {
      const who = { LANTERN_CLUSTER_USER: role, LANTERN_CLUSTER_PASSWORD: `${role}-secret` };
      const started = await startLantern(args, { env: { ...who, LANTERN_DATA: folder } });
      processes.push(started);
      return started;
    }

    /** A tab that serves, as a user starts it. */
    async function startTab(name: string): Promise<Page> {
      const page = await (await browser.newContext()).newPage();
      page.on("pageerror", (error) => expect.unreachable(String(error)));
      await page.goto(`${pages.url}/worker?name=${name}&cluster=${socket}&user=tab`);
      await page.getByLabel("Model file").setInputFiles(file.path);
      await page.getByLabel("and a password").fill("tab-secret");
      await page.getByRole("button", { name: "Start" }).click();
      const state = async (): Promise<string> => {
        const now = await page.getByRole("status").getAttribute("data-state");
        return now === "failed" ? `failed: ${await page.getByRole("alert").textContent()}` : now!;
      };
      await expect.poll(state, patience).toMatch(/^(serving|failed)/);
      expect(await state()).toBe("serving");
      const models = async (): Promise<string[]> =>
        (await client.models.list()).data.map(({ id }) => id);
      await expect.poll(models, patience).toContain(name);
      return page;
    }

    const linesOf = (model: string) =>
      completionLines(50, { model, max_tokens: tokens, temperature: 0, ignore_eos: true });

    /** Every line once, and each a whole answer. */
    async function expectWhole(id: string, lines: ReturnType<typeof linesOf>): Promise<void> {
      const output = await batchOutput(client, id, lines);
      for (const { response } of output) {
        expect(response.status_code).toBe(200);
        expect(response.body.usage.completion_tokens).toBe(tokens);
      }
    }

    test("a batch whose only worker is a tab", async () => {
      const page = await startTab("alone");
      const lines = linesOf("alone");
      await expectWhole(await startBatch(client, lines), lines);
      const answered = async (): Promise<number> => {
        const shown = await page.getByRole("status").textContent();
        return Number(/(\d+) answered/.exec(shown!)?.[1]);
      };
      await expect.poll(answered, patience).toBeGreaterThanOrEqual(50);
      await page.context().close();
    });

    test("a tab that is closed in the middle of a batch: a Node worker goes on", async () => {
      const page = await startTab("shared");
      const lines = linesOf("shared");
      const id = await startBatch(client, lines);
      await expect
        .poll(() => answeredLines(client, id), { ...patience, interval: 20 })
        .toBeGreaterThan(0);
      await page.context().close();
      expect(await answeredLines(client, id)).toBeLessThan(50);
      await start("worker", ["worker", ...cluster, "-m", file.path, "-a", "shared"]);
      await expectWhole(id, lines);
    });
  }),
);
