// A server whose database of conversations was emptied: it says what a backup has, and gives it back when it is asked to.
// Held against: the conversations of the backup.

import { readdirSync, truncateSync } from "node:fs";
import { dirname } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { startServer } from "../../apps/server/serve.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeBackups } from "../../src/platform/node-database-backups.ts";
import { scratchFile } from "../sessions/fakes.ts";

interface Started {
  // biome-ignore lint/suspicious/noExplicitAny: whatever a route answers
  ask(path: string, method?: string, body?: object): Promise<{ status: number; body: any }>;
  stop(): Promise<void>;
  log: string[];
}

async function serve(file: string, restore = false): Promise<Started> {
  const log: string[] = [];
  const server = await startServer({
    ...{ models: {}, version: "0", port: 0, graceMs: 0, token: false },
    log: (line) => log.push(line),
    sessions: (options) => openNodeDatabase(file, options),
    sessionBackups: { backups: nodeBackups(file), restore },
  });
  onTestFinished(() => server.stop());
  return {
    log,
    stop: () => server.stop(),
    ask: async (path, method = "GET", body) => {
      const response = await fetch(`${server.url}/lantern/v1${path}`, {
        ...{ method, headers: { "content-type": "application/json" } },
        ...(body && { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: await response.json() };
    },
  };
}

/** A server has run on two conversations, and the file was emptied after that. */
async function emptied(): Promise<{ file: string; ids: string[] }> {
  const file = scratchFile();
  const store = new SessionStore(openNodeDatabase(file));
  const ids = ["one", "two"].map((title) => {
    const { id } = store.createSession({ title });
    store.addMessage(id, null, { role: "user", content: `about ${title}` });
    return id;
  });
  store.close();
  const server = await serve(file);
  const made = () => readdirSync(dirname(file)).some((name) => name.includes(".backup-2"));
  await expect.poll(made, { timeout: 60_000 }).toBe(true);
  expect((await server.ask("/sessions")).body).toMatchObject({ backup: null, notice: null });
  await server.stop();
  truncateSync(file);
  return { file, ids };
}

const offer = { conversations: 2, messages: 2 };

test("an emptied database: the backup is offered, and taken when that is asked for", async () => {
  const { file, ids } = await emptied();
  const { ask, log } = await serve(file);
  const refused = await ask("/sessions");
  expect(refused).toMatchObject({ status: 503, body: { error: { code: "storage_corrupt" } } });
  const said = /newest good backup is from 20.* and has 2 conversations and 2 messages/;
  expect(refused.body.error.message).toMatch(said);
  expect(refused.body.error.message).toContain(", POST /lantern/v1/restore, or ");
  expect(log.join()).toMatch(said);
  expect((await ask("/restore")).body).toMatchObject({ backup: offer });
  const restored = await ask("/restore", "POST", {});
  expect(restored).toMatchObject({ status: 200, body: { added: 2, copied: 0, failed: [] } });
  expect(restored.body.movedTo).toMatch(/^sessions\.db\.replaced-/);
  expect(readdirSync(dirname(file))).toContain(restored.body.movedTo);
  const list = await ask("/sessions");
  expect(list.body).toMatchObject({ notice: null, backup: null });
  const found = list.body.sessions.map(({ id }: { id: string }) => id);
  expect(new Set(found)).toEqual(new Set(ids));
  // Nothing is deleted from the copies of the damaged file, which the answer says.
  const deleted = await ask(`/sessions/${ids[0]}`, "DELETE");
  expect(deleted.body.warning).toMatch(/copies of a damaged database .*"sessions\.db\.damaged-/);
  expect((await ask("/restore")).body).toMatchObject({ backup: { conversations: 1 } });
});

test("an emptied database is restored at the start, where that is asked for", async () => {
  const { file } = await emptied();
  const { ask, log } = await serve(file, true);
  expect(log.join()).toContain("2 conversations that were missing");
  expect((await ask("/sessions")).body.sessions).toHaveLength(2);
});

test("without a backup, restoring is refused and nothing is moved", async () => {
  const file = scratchFile();
  const server = await serve(file);
  expect(await server.ask("/restore", "POST", {})).toMatchObject({ status: 404 });
  expect((await server.ask("/restore")).body).toEqual({ backup: null });
});
