// Damage that is smaller than the file: rows that cannot be read are set aside and named, and the rest is served; a search index
// is derived, so it is made anew; what is deleted is gone from the files, whatever it was.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { Presets } from "../../apps/sessions/presets.ts";
import type { Session } from "../../apps/sessions/session.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { scratchStore } from "./fakes.ts";

interface Conversation {
  file: string;
  session: Session;
  ids: string[];
}

/** A conversation of three messages in a file that is closed again. */
function conversation(): Conversation {
  const { file, store } = scratchStore();
  const { id } = store.createSession({ title: "precious", settings: { topK: 7 } });
  store.createSession({ title: "another" });
  const ids: string[] = [];
  for (const content of ["first words", "second words", "third words"]) {
    const { id: message } = store.addMessage(id, ids.at(-1) ?? null, { role: "user", content });
    ids.push(message);
  }
  const session = store.session(id);
  store.close();
  return { file, session, ids };
}

/** Changes the file as nobody of Lantern's would. */
function tamper(file: string, sql: string): void {
  const sqlite = new DatabaseSync(file, { enableForeignKeyConstraints: false });
  (sqlite as Partial<DatabaseSync>).enableDefensive?.(false);
  sqlite.exec("PRAGMA ignore_check_constraints = ON");
  sqlite.exec(sql);
  sqlite.close();
}

/** Without STRICT, so that values of other types can be put there. */
function loosen(table: string): string {
  return `PRAGMA writable_schema = ON;
    UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = '${table}';
    PRAGMA writable_schema = RESET;`;
}

function tighten(table: string): string {
  return `PRAGMA writable_schema = ON;
    UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = '${table}';
    PRAGMA writable_schema = RESET;`;
}

describe("a bad row", () => {
  test.each([
    [
      "settings that are no JSON",
      "UPDATE sessions SET settings = '{\"topK\":' WHERE title = 'precious'",
    ],
    [
      "settings that are none",
      "UPDATE sessions SET settings = '{\"topK\":\"x\"}' WHERE title = 'precious'",
    ],
    ["a mode that there is not", "UPDATE sessions SET mode = 'poem' WHERE title = 'precious'"],
    ["a time beyond all dates", "UPDATE sessions SET changed_at = 9e18 WHERE title = 'precious'"],
    [
      "a title that is no text",
      `${loosen("sessions")} UPDATE sessions SET title = x'00ff' WHERE title = 'precious'; ${tighten("sessions")}`,
    ],
  ])("of a session: %s", (_, sql) => {
    const { file, session, ids } = conversation();
    tamper(file, sql);
    const { store } = scratchStore(file);
    expect(store.sessions().sessions).toHaveLength(2);
    expect(store.messages(session.id).map(({ id }) => id)).toEqual(ids);
    const [item, ...others] = store.setAside();
    expect(others).toEqual([]);
    expect(item).toMatchObject({ session: session.id, what: expect.stringContaining("session") });
    expect(item!.why).not.toBe("");
    expect(item!.original).toContain("settings");
  });

  test("of a message: what cannot be shown is taken out, what stood below it moves up", () => {
    const { file, session, ids } = conversation();
    tamper(file, `UPDATE messages SET role = 'oracle' WHERE content = 'second words'`);
    const { store } = scratchStore(file);
    const left = store.messages(session.id);
    expect(left.map(({ id, parent }) => [id, parent])).toEqual([
      [ids[0], null],
      [ids[2], ids[0]],
    ]);
    const [item] = store.setAside();
    expect(item!.original).toContain("second words");
    expect(item!.why).toContain("oracle");
    expect(store.search("second")).toEqual([]);
  });

  test("of a message: statistics that cannot be read are dropped, the words stay", () => {
    const { file, session } = conversation();
    tamper(
      file,
      `UPDATE messages SET tokens = '[1', timings = '{}', calls = '[7]' WHERE content = 'second words'`,
    );
    const { store } = scratchStore(file);
    const message = store.messages(session.id)[1]!;
    expect(message).toMatchObject({
      content: "second words",
      tokens: null,
      timings: null,
      calls: [],
    });
    expect(store.setAside()).toHaveLength(1);
  });

  test.each([
    ["a parent that is missing", "UPDATE messages SET parent = 999 WHERE content = 'second words'"],
    ["a circle", "UPDATE messages SET parent = 3 WHERE content = 'first words'"],
    ["a message below itself", "UPDATE messages SET parent = number WHERE content = 'first words'"],
  ])("%s: the message becomes a first one", (_, sql) => {
    const { file, session, ids } = conversation();
    tamper(file, sql);
    const { store } = scratchStore(file);
    expect(store.messages(session.id).map(({ id }) => id)).toEqual(ids);
    expect(store.path(session.id, ids[2]!).at(-1)!.content).toBe("third words");
    expect(store.setAside()).toHaveLength(1);
    store.addMessage(session.id, ids[2]!, { role: "user", content: "it goes on" });
  });

  test("a message of no session, a place that is none, and a preset that is none", () => {
    const { file, session } = conversation();
    tamper(
      file,
      `UPDATE messages SET session = 77 WHERE content = 'third words';
       INSERT INTO presets (name, settings) VALUES ('calm', 'quiet'), ('good', '{"topK":1}')`,
    );
    const { store, database } = scratchStore(file);
    expect(store.session(session.id).leaf).toBe(store.messages(session.id).at(-1)!.id);
    expect(store.messages(session.id)).toHaveLength(2);
    expect(new Presets(database).all().map(({ name }) => name)).toEqual(["good"]);
    expect(store.setAside().map(({ what, why }) => `${what}: ${why}`)).toEqual([
      expect.stringMatching(/^message "msg_\w+": its session is missing$/),
      'preset "calm": its settings cannot be read',
    ]);
  });

  test("is set aside once, and goes with its session or when it is told to", () => {
    const { file, session } = conversation();
    tamper(file, `UPDATE sessions SET settings = 'canaryQuartz'`);
    scratchStore(file).store.close();
    const { store } = scratchStore(file);
    expect(store.setAside()).toHaveLength(2);
    store.deleteSession(session.id);
    expect(store.setAside()).toHaveLength(1);
    store.forgetSetAside();
    expect(store.setAside()).toEqual([]);
  });

  test("in a file that cannot be written is left out", () => {
    const { file, session } = conversation();
    tamper(file, `UPDATE sessions SET settings = 'x'; UPDATE messages SET timings = '7'`);
    const database = openNodeDatabase(file, { readOnly: true });
    const { store } = scratchStore(file, database);
    expect(store.session(session.id).settings).toEqual({});
    expect(store.messages(session.id).map(({ timings }) => timings)).toEqual([null, null, null]);
  });
});

describe("a damaged search index is made anew", () => {
  test.each([
    ["its pages are nonsense", "UPDATE search_messages_data SET block = x'0bad0bad0bad0bad'"],
    ["its words are lost", "DELETE FROM search_messages_data WHERE id > 10"],
    ["messages are missing in it", "DELETE FROM search_messages_docsize WHERE id > 1"],
  ])("%s", (_, sql) => {
    const { file, session } = conversation();
    tamper(file, sql);
    const { store, database } = scratchStore(file);
    expect(store.search("third words")).toMatchObject([{ session: session.id }]);
    store.addMessage(session.id, null, { role: "user", content: "fourth words" });
    expect(store.search("fourth")).toHaveLength(1);
    expect(database.get("PRAGMA integrity_check")).toEqual({ integrity_check: "ok" });
  });

  test("pages of the file that belong to it are garbage", () => {
    const { file, store } = scratchStore();
    const { id } = store.createSession({ title: "many" });
    for (let i = 0; i < 60; i++) {
      store.addMessage(id, null, { role: "user", content: `needle ${i} ${"hay ".repeat(200)}` });
    }
    store.close();
    damagePage(file, "search_messages_content");
    const again = scratchStore(file);
    expect(again.store.messages(id)).toHaveLength(60);
    expect(again.store.search("needle 17")).toHaveLength(1);
    expect(again.database.get("PRAGMA integrity_check")).toEqual({ integrity_check: "ok" });
  });
});

/** Overwrites the first page of a table. */
function damagePage(file: string, table: string): void {
  const sqlite = new DatabaseSync(file);
  (sqlite as Partial<DatabaseSync>).enableDefensive?.(false);
  const row = sqlite.prepare("SELECT rootpage FROM sqlite_schema WHERE name = ?").get(table)!;
  const { page_size: size } = sqlite.prepare("PRAGMA page_size").get()!;
  sqlite.close();
  const bytes = readFileSync(file);
  bytes.fill(0x5a, (Number(row.rootpage) - 1) * Number(size), Number(row.rootpage) * Number(size));
  writeFileSync(file, bytes);
}

describe("what is deleted leaves the files", () => {
  const canary = "zugzwangQuartz";

  function traces(file: string): string[] {
    return [file, `${file}-wal`, `${file}-journal`].filter(
      (path) => existsSync(path) && readFileSync(path).toString("latin1").includes(canary),
    );
  }

  test("presets, titles, system prompts and what was set aside", async () => {
    const { store, file, database } = scratchStore();
    const presets = new Presets(database);
    const { id } = store.createSession({ title: canary, settings: { systemPrompt: canary } });
    presets.save(canary, { systemPrompt: canary });
    store.close();
    tamper(file, `INSERT INTO presets (name, settings) VALUES ('bad', '${canary}')`);
    const again = scratchStore(file);
    expect(again.store.setAside()).toHaveLength(1);
    again.store.changeSession(id, { title: "other", settings: { systemPrompt: null } });
    new Presets(again.database).delete(canary);
    again.store.forgetSetAside();
    // As when no backup has them any more (purge.ts).
    again.store.endForgetting(again.store.forgotten(), again.store.replaced());
    await again.store.purgeDeleted();
    expect(traces(file)).toEqual([]);
  });
});
