// A server whose disk is full or read-only when it starts: what is there is shown, what cannot be saved is refused with the reason,
// and it goes on without a restart when the disk does.

import { copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { BatchStore } from "../../apps/batch/store.ts";
import { startServer } from "../../apps/server/serve.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeFileFolder } from "../../src/platform/node-file-folder.ts";
import { noSmallDisk, smallDisk } from "../support/full-disk.ts";

interface Started {
  /** Status and body. */
  // biome-ignore lint/suspicious/noExplicitAny: whatever a route answers
  ask(path: string, method?: string, body?: object): Promise<{ status: number; body: any }>;
  log: string[];
}

/** A server without a model on the databases of a folder. */
async function serveFolder(folder: string, sessionsFile: string = "sessions.db"): Promise<Started> {
  const log: string[] = [];
  const server = await startServer({
    models: {},
    version: "0",
    port: 0,
    graceMs: 0,
    token: false,
    log: (line) => log.push(line),
    sessions: (options) => openNodeDatabase(join(folder, sessionsFile), options),
    batches: {
      open: (options) => openNodeDatabase(join(folder, "batches.db"), options),
      folder: nodeFileFolder(join(folder, "batches-files")),
    },
  });
  onTestFinished(() => server.stop());
  return {
    log,
    ask: async (path, method = "GET", body) => {
      const response = await fetch(server.url + path, {
        ...{ method, headers: { "content-type": "application/json" } },
        ...(body && { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: await response.json() };
    },
  };
}

/** What a process that was killed leaves: everything is in the logs. */
function killedHere(folder: string): { id: string } {
  const made = mkdtempSync(join(tmpdir(), "lantern-killed-"));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  const database = openNodeDatabase(join(made, "sessions.db"));
  const store = new SessionStore(database);
  const { id } = store.createSession({ title: "precious" });
  store.begin(id, null, { content: "a question", model: null, count: 1 });
  const batches = new BatchStore(
    openNodeDatabase(join(made, "batches.db")),
    nodeFileFolder(join(made, "batches-files")),
  );
  for (const name of ["sessions.db", "batches.db"]) {
    for (const suffix of ["", "-wal", "-saves"]) {
      if (existsSync(join(made, name + suffix))) {
        copyFileSync(join(made, name + suffix), join(folder, name + suffix));
      }
    }
  }
  store.close();
  batches.close();
  return { id };
}

const list = "/lantern/v1/sessions";

describe("a server that starts on", () => {
  test("a full disk without files refuses, and goes on when there is room", async (context) => {
    const disk = smallDisk();
    if (!disk) return context.skip(noSmallDisk);
    disk.fill();
    const { ask } = await serveFolder(disk.folder);
    const shown = await ask(list);
    expect(shown).toMatchObject({ status: 200, body: { sessions: [] } });
    expect(shown.body.notice).toContain("disk is full");
    const refused = await ask(list, "POST", {});
    expect(refused).toMatchObject({ status: 507, body: { error: { code: "storage_full" } } });
    disk.free();
    const create = async () => (await ask(list, "POST", {})).status;
    await expect.poll(create, { timeout: 120_000 }).toBe(201);
    expect((await ask("/v1/files")).status).toBe(200);
    expect((await ask(list)).body).toMatchObject({ notice: null, sessions: [{}] });
  });

  test("a full disk after a kill shows the conversations, and saves when there is room", async (context) => {
    const disk = smallDisk();
    if (!disk) return context.skip(noSmallDisk);
    const { id } = killedHere(disk.folder);
    disk.fill();
    const { ask } = await serveFolder(disk.folder);
    expect(await ask(list)).toMatchObject({ status: 200, body: { sessions: [{ id }] } });
    expect((await ask(`${list}/${id}/messages`)).body.messages).toHaveLength(2);
    expect((await ask("/v1/batches")).status).toBe(200);
    expect(await ask(list, "POST", { title: "x".repeat(500) })).toMatchObject({ status: 507 });
    disk.free();
    const create = async () => (await ask(list, "POST", {})).status;
    await expect.poll(create, { timeout: 120_000 }).toBe(201);
    // What the killed process left undone is done now.
    const { messages } = (await ask(`${list}/${id}/messages`)).body;
    expect(messages.at(-1)).toMatchObject({ state: "aborted" });
  });

  test("a read-only folder after a kill shows what is only in the logs, and saves when it can be written", async (context) => {
    const disk = smallDisk();
    if (!disk) return context.skip(noSmallDisk);
    const { id } = killedHere(disk.folder);
    disk.readOnly(true);
    const { ask, log } = await serveFolder(disk.folder);
    const shown = await ask(list);
    expect(shown).toMatchObject({ status: 200, body: { sessions: [{ id }] } });
    expect(shown.body.notice).toMatch(/"sessions.db": the disk can only be read/);
    expect((await ask(`${list}/${id}/messages`)).body.messages).toHaveLength(2);
    expect((await ask("/v1/batches")).status).toBe(200);
    expect((await ask("/v1/files")).status).toBe(200);
    expect(await ask(list, "POST", {})).toMatchObject({
      ...{ status: 503, body: { error: { code: "storage_read_only" } } },
    });
    expect(log.join("\n")).toMatch(/conversations are not saved: .*can only be read/);
    disk.readOnly(false);
    const create = async () => (await ask(list, "POST", {})).status;
    await expect.poll(create, { timeout: 120_000 }).toBe(201);
    expect((await ask(list)).body).toMatchObject({ notice: null, sessions: [{}, { id }] });
    expect(log.join("\n")).toContain("can be written again");
  });
});

test("a database of another kind is named and left as it is", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lantern-foreign-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  killedHere(folder);
  rmSync(join(folder, "sessions.db"));
  openNodeDatabase(join(folder, "batches.db")).close();
  copyFileSync(join(folder, "batches.db"), join(folder, "other.db"));
  const { ask, log } = await serveFolder(folder, "other.db");
  const { status, body } = await ask(list);
  expect(status).toBe(503);
  expect(body.error).toMatchObject({ code: "storage_foreign" });
  expect(body.error.message).toContain('"other.db" is a database of another kind');
  expect(log.join()).not.toContain("bug");
  expect((await ask("/v1/batches")).status).toBe(200);
});
