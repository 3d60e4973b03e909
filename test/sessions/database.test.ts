// The file underneath: old versions are brought forward, damaged ones are copied and reported, and a disk that is full,
// read-only or in use is an error that says so.

import {
  copyFileSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { migrations } from "../../apps/sessions/schema.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import { type Database, StorageError } from "../../src/platform/database.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { dataFolder } from "../../src/platform/node-folders.ts";
import { scratchFile, scratchStore } from "./fakes.ts";

function problemOf(work: () => unknown): StorageError {
  try {
    work();
  } catch (error) {
    if (error instanceof StorageError) return error;
    throw error;
  }
  throw new Error("expected a StorageError");
}

describe("versions", () => {
  test("a file of version 1 is brought forward: its messages are kept, and found", () => {
    const file = scratchFile();
    const old = new DatabaseSync(file);
    old.exec(migrations[0]!);
    old.exec(`
      INSERT INTO sessions (number, id, title, mode, settings, created_at, changed_at)
        VALUES (1, 'ses_old', 'old title', 'chat', '{"topK":5}', 10, 20);
      INSERT INTO messages (number, id, session, role, content, state, created_at, changed_at)
        VALUES (1, 'msg_1', 1, 'user', 'an ancient question', 'complete', 10, 10);
      INSERT INTO messages (number, id, session, parent, role, content, state, created_at, changed_at)
        VALUES (2, 'msg_2', 1, 1, 'assistant', 'half an ans', 'streaming', 11, 12);
      UPDATE sessions SET leaf = 2;
      PRAGMA user_version = 1;`);
    old.close();
    const { store, database } = scratchStore(file);
    expect(database.get("PRAGMA user_version")).toEqual({ user_version: migrations.length });
    expect(store.session("ses_old")).toMatchObject({ title: "old title", leaf: "msg_2" });
    expect(store.messages("ses_old")).toMatchObject([
      { id: "msg_1", state: "complete" },
      { id: "msg_2", parent: "msg_1", content: "half an ans", state: "aborted" },
    ]);
    expect(store.search("ancient")).toHaveLength(1);
    expect(store.search("half an")).toHaveLength(1);
    expect(store.search("old title")).toHaveLength(1);
  });

  test("a file of a newer version is refused and left as it is", () => {
    const file = scratchFile();
    scratchStore(file).store.close();
    const sqlite = new DatabaseSync(file);
    sqlite.exec(`PRAGMA user_version = ${migrations.length + 1}`);
    sqlite.close();
    const database = openNodeDatabase(file);
    const { problem, message } = problemOf(() => new SessionStore(database));
    expect(problem).toBe("newer");
    expect(message).toContain(`has version ${migrations.length + 1}`);
    expect(database.get("PRAGMA user_version")).toEqual({ user_version: migrations.length + 1 });
    database.close();
  });

  test("a step that fails leaves the version before it", () => {
    const file = scratchFile();
    const database = openNodeDatabase(file);
    database.exec(migrations[0]!);
    database.exec("PRAGMA user_version = 1; CREATE TABLE search_titles (in_the_way TEXT)");
    expect(() => new SessionStore(database)).toThrow();
    expect(database.get("PRAGMA user_version")).toEqual({ user_version: 1 });
    const names = database.all("SELECT name FROM sqlite_schema").map(({ name }) => name);
    expect(names).toContain("messages");
    expect(names).not.toContain("search_messages");
    database.close();
  });
});

describe("a damaged file", () => {
  function damaged(): string {
    const { file, store } = scratchStore();
    const { id } = store.createSession({ title: "precious" });
    for (let i = 0; i < 200; i++) {
      store.addMessage(id, null, { role: "user", content: "text ".repeat(100) });
    }
    store.close();
    const handle = openSync(file, "r+");
    writeSync(handle, Buffer.alloc(20_000, 0x5a), 0, 20_000, 8192);
    return file;
  }

  test("is reported, kept as it is, and copied once", () => {
    const file = damaged();
    const before = readFileSync(file);
    const first = problemOf(() => openNodeDatabase(file));
    expect(first.problem).toBe("corrupt");
    const copy = /A copy is at "([^"]+)"/.exec(first.message)![1]!;
    expect(readFileSync(copy)).toEqual(before);
    expect(readFileSync(file)).toEqual(before);
    problemOf(() => openNodeDatabase(file));
    const copies = readdirSync(dirname(file)).filter((name) => name.includes("damaged"));
    expect(copies).toHaveLength(1);
  });

  test("that is no database at all is the same", () => {
    const file = scratchFile();
    writeFileSync(file, "Dear diary, this is not a database.".repeat(200));
    const { problem, message } = problemOf(() => openNodeDatabase(file));
    expect(problem).toBe("corrupt");
    expect(message).toContain("not a database");
    expect(readFileSync(file, "utf8")).toMatch(/^Dear diary/);
  });
});

describe("a disk that does not play along", () => {
  /** SQLite's own limit on pages is the same error as a full disk. */
  function fill(database: Database): void {
    const { page_count } = database.get("PRAGMA page_count")!;
    database.get(`PRAGMA max_page_count = ${page_count}`);
  }

  test("full: the message is refused, what was there stays, and it goes on when there is room", () => {
    const { store, database } = scratchStore();
    const { id } = store.createSession({ title: "t" });
    store.addMessage(id, null, { role: "user", content: "first" });
    fill(database);
    const big = { role: "user", content: "x".repeat(100_000) } as const;
    const { problem, message } = problemOf(() => store.addMessage(id, null, big));
    expect(problem).toBe("full");
    expect(message).toMatch(/cannot write ".*sessions\.db": the disk is full/);
    expect(store.messages(id).map(({ content }) => content)).toEqual(["first"]);
    database.get("PRAGMA max_page_count = 1000000");
    store.addMessage(id, null, big);
    expect(store.messages(id)).toHaveLength(2);
  });

  test("read-only: conversations can be read, and nothing can be saved", () => {
    const { file, store } = scratchStore();
    const { id } = store.createSession({ title: "to read" });
    store.addMessage(id, null, { role: "user", content: "still here" });
    store.close();
    const database = openNodeDatabase(file, { readOnly: true });
    const reader = new SessionStore(database);
    expect(reader.writable).toBe(false);
    expect(reader.messages(id)).toMatchObject([{ content: "still here" }]);
    expect(reader.search("still")).toHaveLength(1);
    expect(problemOf(() => reader.createSession()).problem).toBe("read-only");
    expect(problemOf(() => reader.deleteSession(id)).problem).toBe("read-only");
    expect(problemOf(() => database.exec("DELETE FROM messages")).problem).toBe("read-only");
    reader.close();
  });

  test("in use by another: said so, and free again afterwards", () => {
    const file = scratchFile();
    const first = openNodeDatabase(file);
    const { problem, message } = problemOf(() => openNodeDatabase(file, { busyMs: 10 }));
    expect(problem).toBe("busy");
    expect(message).toMatch(/in use by another process\. Stop it, or name another file$/);
    first.close();
    const address = "http://127.0.0.1:8080";
    const known = openNodeDatabase(file, { address });
    const otherwise = "start this one with --sessions FILE";
    const found = problemOf(() => openNodeDatabase(file, { busyMs: 0, otherwise }));
    expect(found.message).toContain(
      `in use by the server at ${address} (process ${process.pid}). Open that address, or stop that server, or ${otherwise}`,
    );
    expect(statSync(`${file}-holder`).mode & 0o077).toBe(0);
    known.close();
    expect(existsSync(`${file}-holder`)).toBe(false);
    openNodeDatabase(file, { busyMs: 0 }).close();
  });

  test.each([
    ["of a dead process", { process: 2 ** 30, address: "http://127.0.0.1:1" }],
    ["with a foreign address", { process: process.pid, address: "http://x/\u001b[2J" }],
    ["of another machine", { process: process.pid, where: "elsewhere", address: "http://h:1" }],
    ["that is no JSON", "x"],
  ])("in use, with a note %s: nobody is named who is not there", (_, note) => {
    const file = scratchFile();
    const first = openNodeDatabase(file, { address: "http://127.0.0.1:8080" });
    const own = JSON.parse(readFileSync(`${file}-holder`, "utf8")) as object;
    const text = typeof note === "string" ? note : JSON.stringify({ ...own, ...note });
    writeFileSync(`${file}-holder`, text);
    const { message } = problemOf(() => openNodeDatabase(file, { busyMs: 0 }));
    expect(message).toMatch(/in use by (another process|a server on another machine)/);
    expect(message).not.toMatch(/http/);
    first.close();
  });

  test("not there: a file that cannot be made is said so", () => {
    const file = scratchFile();
    writeFileSync(file, "");
    const { message } = problemOf(() => openNodeDatabase(`${file}/below/x.db`));
    expect(message).toContain(`cannot open "${file}/below/x.db"`);
  });

  test("a transaction that fails leaves nothing, and the next one works", () => {
    const { database, store } = scratchStore();
    expect(() =>
      database.transaction(() => {
        store.createSession({ title: "never" });
        throw new Error("no");
      }),
    ).toThrow("no");
    expect(store.sessions().sessions).toEqual([]);
    store.createSession({ title: "yes" });
    expect(store.sessions().sessions).toHaveLength(1);
  });
});

test("what was saved is in the log as soon as it is: a copy of the files has it, without a close", () => {
  const { file, store } = scratchStore();
  const { id } = store.createSession({ title: "t" });
  store.addMessage(id, null, { role: "user", content: "durable" });
  const copy = scratchFile();
  for (const suffix of ["", "-wal"]) {
    if (existsSync(file + suffix)) copyFileSync(file + suffix, copy + suffix);
  }
  expect(scratchStore(copy).store.messages(id)).toMatchObject([{ content: "durable" }]);
});

test("conversations lie where the platform keeps data, not caches", () => {
  expect(dataFolder({}, "linux", "/home/a")).toBe("/home/a/.local/share/lantern");
  expect(dataFolder({ XDG_DATA_HOME: "/d" }, "linux", "/home/a")).toBe("/d/lantern");
  expect(dataFolder({ XDG_DATA_HOME: "relative" }, "linux", "/home/a")).toBe(
    "/home/a/.local/share/lantern",
  );
  expect(dataFolder({}, "darwin", "/Users/a")).toBe("/Users/a/Library/Application Support/lantern");
  expect(dataFolder({ LOCALAPPDATA: "C:\\L" }, "win32", "C:\\a")).toBe("C:\\L\\lantern\\data");
  expect(dataFolder({ LANTERN_DATA: "/x" }, "linux", "/home/a")).toBe("/x");
});
