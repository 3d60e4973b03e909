// A second server on the same data folder: it starts without waiting, says who has the conversations and the batches, serves the rest,
// and goes on with them when the first has ended.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { batchPlace } from "../../apps/cli/batch-place.ts";
import { type RunningServer, type StartOptions, startServer } from "../../apps/server/serve.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { scriptedModel } from "../web/scripted-model.ts";

interface Started {
  server: RunningServer;
  log: string[];
  /** How often it tried to open the conversations. */
  tries: () => number;
}

async function serveFolder(folder: string): Promise<Started> {
  const log: string[] = [];
  let tries = 0;
  const sessions: StartOptions["sessions"] = (options) => {
    tries++;
    return openNodeDatabase(join(folder, "sessions.db"), options);
  };
  const server = await startServer({
    models: { scripted: scriptedModel({ answer: () => "x" }) },
    version: "test",
    port: 0,
    graceMs: 0,
    token: false,
    log: (line) => log.push(line),
    sessions,
    batches: batchPlace(join(folder, "batches.db"), "name another one"),
  });
  return { server, log, tries: () => tries };
}

async function ask(url: string): Promise<{ status: number; text: string }> {
  const response = await fetch(url);
  return { status: response.status, text: await response.text() };
}

test("says at once who has the folder, serves the rest, and goes on when it is free", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lantern-two-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const first = await serveFolder(folder);
  const second = await serveFolder(folder);
  onTestFinished(() => second.server.stop());
  try {
    expect([first.tries(), second.tries(), first.log]).toEqual([1, 1, []]);
    const who = `in use by the server at ${first.server.url} (process ${process.pid})`;
    expect(second.log).toEqual([
      expect.stringMatching(/^conversations are not saved: .*sessions\.db.*goes on with it when/),
      expect.stringMatching(/^files and batches are not saved: .*batches\.db.*name another one/),
    ]);
    for (const line of second.log) expect(line).toContain(who);

    const { url } = second.server;
    const refused = await ask(`${url}/lantern/v1/sessions`);
    expect([refused.status, refused.text]).toEqual([503, expect.stringContaining("storage_busy")]);
    expect(refused.text).toContain(who);
    expect(refused.text).not.toContain(folder);
    // Every client may ask for batches: it does not learn of other servers.
    const batches = await ask(`${url}/v1/batches`);
    expect([batches.status, batches.text]).toEqual([
      503,
      expect.stringContaining("another process"),
    ]);
    expect(batches.text).not.toContain(first.server.url);
    expect((await ask(`${url}/v1/models`)).status).toBe(200);
    expect((await ask(`${first.server.url}/lantern/v1/sessions`)).status).toBe(200);
  } finally {
    await first.server.stop();
  }
  // Nobody asks meanwhile.
  const free = () => second.log.filter((line) => line.includes("can be written again")).length;
  await expect.poll(free).toBe(2);
  expect((await ask(`${second.server.url}/lantern/v1/sessions`)).status).toBe(200);
  expect((await ask(`${second.server.url}/v1/batches`)).status).toBe(200);
});
