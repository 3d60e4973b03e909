// Backups of conversations: one a day and the newest three; only of rows that are as they were written; given back where something is
// damaged or gone; and what is deleted is deleted from all of them, whenever the process that does it is killed.

import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished, test } from "vitest";
import { Backups } from "../../apps/sessions/backups.ts";
import { Presets } from "../../apps/sessions/presets.ts";
import { Purge } from "../../apps/sessions/purge.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import type { BackupFiles, Database } from "../../src/platform/database.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeBackups } from "../../src/platform/node-database-backups.ts";
import { noSmallDisk, smallDisk } from "../support/full-disk.ts";
import { scratchFile } from "./fakes.ts";

const day = 24 * 3_600_000;
const clock = { now: Date.UTC(2026, 4, 1) };

interface Opened {
  readonly database: Database;
  readonly store: SessionStore;
  readonly presets: Presets;
  readonly backups: Backups;
  readonly purge: Purge;
  readonly log: string[];
  make(): Promise<boolean>;
}

/** What a process has: it begins with what the last one left undone. */
async function opened(file: string, files: BackupFiles = nodeBackups(file)): Promise<Opened> {
  const log: string[] = [];
  const say = (line: string): void => void log.push(line);
  const now = (): number => clock.now;
  const database = openNodeDatabase(file);
  onTestFinished(() => database.close());
  const store = new SessionStore(database, { now });
  const backups = new Backups(files, { now, log: say });
  const purge = new Purge(store, [], say, backups.placeOf(database));
  onTestFinished(() => purge.close());
  await purge.run();
  const make = (): Promise<boolean> => backups.make(database, store);
  return { database, store, presets: new Presets(database), backups, purge, log, make };
}

function talk(store: SessionStore, title: string, count: number = 4): string {
  const { id } = store.createSession({ title, settings: { systemPrompt: `kind to ${title}` } });
  let parent: string | null = null;
  for (let at = 0; at < count; at++) {
    const role = at % 2 ? "assistant" : "user";
    const content = `${title} says word${at} and more of it`;
    parent = store.addMessage(id, parent, { role, content }).id;
  }
  return id;
}

const contentsOf = ({ store, presets }: Opened, ids: readonly string[]): object => [
  ids.map((id) => [store.session(id), store.messages(id)]),
  presets.all(),
];

const namesIn = (file: string): string[] => readdirSync(dirname(file)).toSorted();

/** Names of files that hold a text. */
function holding(folder: string, text: string): string[] {
  return readdirSync(folder).filter((name) => readFileSync(join(folder, name)).includes(text));
}

/** Edits a closed file behind Lantern's back. */
function spoil(file: string, sql: string): void {
  const sqlite = new DatabaseSync(file);
  sqlite.exec("PRAGMA foreign_keys = OFF");
  sqlite.exec("DROP TRIGGER message_changed; DROP TRIGGER message_deleted");
  sqlite.exec(sql);
  sqlite.close();
}

test("the newest three stay, for this user only, and nothing else is left", async () => {
  const file = scratchFile();
  const { store, backups, make, database } = await opened(file);
  for (let at = 0; at < 5; at++) {
    talk(store, `chat ${at}`, 1);
    expect(await make()).toBe(true);
    clock.now += day;
  }
  const made = namesIn(file).filter((name) => name.includes(".backup-"));
  expect(made).toHaveLength(3);
  for (const name of made) {
    if (process.platform !== "win32") {
      expect(statSync(join(dirname(file), name)).mode & 0o777).toBe(0o600);
    }
  }
  expect(backups.offer()).toMatchObject({ conversations: 5, messages: 5 });
  expect(backups.offer(clock.now - 1.5 * day)).toMatchObject({ conversations: 4 });
  const at = made.at(-1)!;
  store.close();
  database.close();
  // It is a database of its own.
  const own = new SessionStore(openNodeDatabase(join(dirname(file), at)));
  expect(own.sessions().sessions).toHaveLength(5);
  expect(own.search("word0")).toHaveLength(5);
  own.close();
});

test("one is made by itself, once a day, and not of an empty database", async () => {
  const file = scratchFile();
  const first = await opened(file);
  first.backups.keep(first.database, first.store);
  await first.backups.stop();
  expect(first.backups.offer()).toBeNull();
  talk(first.store, "one");
  first.store.close();
  for (let at = 0; at < 3; at++) {
    writeFileSync(`${file}.backup-part`, "half of one, of a process that was killed");
    const next = await opened(file);
    next.backups.keep(next.database, next.store);
    await expect.poll(() => next.backups.offer()?.conversations).toBe(1);
    await expect.poll(() => existsSync(`${file}.backup-part`)).toBe(false);
    await next.backups.stop();
    next.store.close();
    clock.now += day / 3;
  }
  expect(namesIn(file).filter((name) => name.includes(".backup-"))).toHaveLength(1);
});

test("a database that is gone comes back whole", async () => {
  const file = scratchFile();
  const before = await opened(file);
  const ids = ["a", "b", "c"].map((title) => talk(before.store, title));
  before.presets.save("short", { maxTokens: 20 });
  const was = contentsOf(before, ids);
  await before.make();
  before.store.close();
  rmSync(file);
  clock.now += day;
  const { store, backups, presets, make } = await opened(file);
  const now = { store, presets } as Opened;
  expect(store.damagedSince()).toBe(clock.now);
  // Backups of what was begun since do not push out what is offered.
  talk(store, "new");
  for (let at = 0; at < 5; at++) {
    clock.now += day;
    await make();
  }
  expect(namesIn(file).filter((name) => name.includes(".backup-"))).toHaveLength(4);
  expect(backups.offer(store.damagedSince())).toMatchObject({ conversations: 3, messages: 12 });
  expect(await backups.restore(store, presets)).toMatchObject({ added: 3, copied: 0, failed: [] });
  expect(contentsOf(now, ids)).toEqual(was);
  expect(store.sessions().sessions).toHaveLength(4);
  expect(store.search("word2")).toHaveLength(4);
  expect(store.damagedSince()).toBeUndefined();
});

test("damaged conversations get a copy beside them, the others nothing, and that once", async () => {
  const file = scratchFile();
  const before = await opened(file);
  const [changed, sound] = ["changed", "sound", "shorter"].map((title) =>
    talk(before.store, title),
  );
  await before.make();
  before.store.addMessage(changed!, null, { role: "user", content: "later than the backup" });
  before.store.close();
  spoil(
    file,
    `UPDATE messages SET content = 'wrong' WHERE content = 'changed says word1 and more of it';
     DELETE FROM search_messages;
     DELETE FROM messages WHERE content = 'shorter says word3 and more of it'`,
  );
  clock.now += day;
  const { store, backups, presets } = await opened(file);
  expect(store.setAside().length).toBeGreaterThan(0);
  expect(await backups.restore(store, presets)).toMatchObject({ added: 0, copied: 2, failed: [] });
  const titles = store.sessions().sessions.map(({ title }) => title);
  expect(titles).toHaveLength(5);
  const copy = store
    .sessions()
    .sessions.find(({ title }) => title.startsWith("changed (as of 2026-"))!;
  expect(store.messages(copy.id)[1]!.content).toBe("changed says word1 and more of it");
  const other = store.sessions().sessions.find(({ title }) => title.startsWith("shorter (as of"))!;
  expect(store.messages(other.id)).toHaveLength(4);
  expect(store.messages(changed!).at(-1)!.content).toBe("later than the backup");
  expect(store.messages(sound!)).toHaveLength(4);
  expect(store.damagedSince()).toBeUndefined();
});

test("a damaged backup is not offered, and a damaged row gets into none", async () => {
  const file = scratchFile();
  const { store, backups, make, database } = await opened(file);
  talk(store, "one");
  await make();
  clock.now += day;
  talk(store, "two");
  await make();
  const newest = join(dirname(file), namesIn(file).findLast((name) => name.includes(".backup-"))!);
  const bytes = readFileSync(newest);
  bytes[bytes.indexOf("two says word1") + 2]! ^= 1;
  writeFileSync(newest, bytes);
  const again = new Backups(nodeBackups(file), { now: () => clock.now, log: () => {} });
  expect(again.offer()).toMatchObject({ conversations: 1 });
  writeFileSync(newest, "no database at all");
  expect(
    new Backups(nodeBackups(file), { now: () => clock.now, log: () => {} }).offer(),
  ).toMatchObject({
    conversations: 1,
  });
  const names = namesIn(file);
  database.run("UPDATE messages SET sum = sum + 1 WHERE number = 3");
  clock.now += day;
  await expect(make()).rejects.toThrow(/row 3 of the table messages is not as it was written/);
  expect(namesIn(file)).toEqual(names);
  expect(backups.otherCopies()).toEqual([]);
});

const secret = "Quittenmus-7719";

/** A conversation with the secret in every place, in two backups. */
async function withSecret(file: string, files?: BackupFiles): Promise<Opened & { id: string }> {
  const made = await opened(file, files);
  talk(made.store, "kept");
  const id = talk(made.store, `${secret} title`, 2);
  const long = `${secret} `.repeat(3000); // overflow pages
  made.store.addMessage(id, null, { role: "user", content: long });
  made.presets.save("mine", { systemPrompt: `${secret} preset` });
  for (let at = 0; at < 2; at++) {
    await made.make();
    clock.now += day;
  }
  return { ...made, id };
}

const left = (file: string): string[] =>
  holding(dirname(file), secret).filter((name) => name.includes(".backup-"));

test("what is deleted or replaced is gone from all backups when that is acknowledged", async () => {
  const file = scratchFile();
  const { store, presets, purge, id, backups } = await withSecret(file);
  expect(left(file)).toHaveLength(2);
  const other = store.createSession({
    title: `${secret} other`,
    settings: { systemPrompt: secret },
  });
  await backups.restore(store, presets); // nothing is missing
  store.changeSession(other.id, { title: "plain", settings: { systemPrompt: "plain" } });
  store.deleteSession(id);
  presets.delete("mine");
  expect(await purge.run()).toBeNull();
  expect(left(file)).toEqual([]);
  expect(store.replaced()).toEqual([]);
  expect(backups.offer()).toMatchObject({ conversations: 1, messages: 4 });
  await expect.poll(() => holding(dirname(file), secret)).toEqual([]);
  // And it does not come back.
  expect(await backups.restore(store, presets)).toMatchObject({ added: 0, copied: 0 });
  expect(presets.all()).toEqual([]);
});

test("copies of rows that SQLite leaves in pages which it divides are gone as well", async () => {
  const file = scratchFile();
  const { store, purge, make } = await opened(file);
  const id = talk(store, secret, 30);
  for (const title of ["kept", "also kept"]) talk(store, title, 100);
  await make();
  store.deleteSession(id);
  await purge.run();
  expect(left(file)).toEqual([]);
});

test("a title and a system prompt that are replaced are replaced in backups, too", async () => {
  const file = scratchFile();
  const { store, purge, presets, make, backups } = await opened(file);
  const { id } = store.createSession({ title: secret, settings: { systemPrompt: secret } });
  presets.save("mine", { systemPrompt: secret });
  await make();
  expect(left(file)).toHaveLength(1);
  store.changeSession(id, { title: "plain", settings: { systemPrompt: null } });
  presets.save("mine", {});
  await purge.run();
  expect(left(file)).toEqual([]);
  expect(backups.offer()).toMatchObject({ conversations: 1 }); // its checksums are right
});

/** Files that call back around each step, and inside of each change. */
function watched(files: BackupFiles, step: (name: string) => void): BackupFiles {
  return {
    ...files,
    removeDraft() {
      step("before the draft is removed");
      files.removeDraft();
    },
    async change(time, work) {
      step("before a change");
      await files.change(time, (backup) => {
        work(backup);
        step("in a change");
      });
      step("after a change");
    },
  };
}

test("a process that is killed at any point of a deletion leaves the rest to the next", async () => {
  const file = scratchFile();
  const states: string[] = [];
  let isWatched = false;
  const keepState = (): void => {
    if (!isWatched) return;
    const copy = mkdtempSync(join(tmpdir(), "lantern-killed-"));
    onTestFinished(() => rmSync(copy, { recursive: true, force: true }));
    cpSync(dirname(file), copy, { recursive: true });
    states.push(copy);
  };
  const { store, presets, purge, id } = await withSecret(
    file,
    watched(nodeBackups(file), keepState),
  );
  writeFileSync(`${file}.backup-part`, secret); // a third one was being made
  isWatched = true;
  store.deleteSession(id);
  presets.delete("mine");
  keepState();
  await purge.run();
  expect(states.length).toBe(8);
  for (const folder of states) {
    const next = await opened(join(folder, basename(file)));
    expect(left(join(folder, basename(file)))).toEqual([]);
    expect(next.backups.offer()).toMatchObject({ conversations: 1 });
    expect(() => next.store.session(id)).toThrow(/there is no session/);
    next.store.close();
  }
});

test("a backup that is being made when something is deleted is dropped", async () => {
  const file = scratchFile();
  const files = nodeBackups(file);
  let id = "";
  let purged: Promise<unknown> | undefined;
  const begin: BackupFiles["begin"] = (kind) => {
    const draft = files.begin(kind);
    const insert: typeof draft.insert = (table, row) => {
      draft.insert(table, row);
      if (purged || table !== "messages") return;
      made.store.deleteSession(id);
      purged = made.purge.run();
    };
    return { ...draft, insert };
  };
  const made = await opened(file, { ...files, begin });
  id = talk(made.store, secret, 20); // more than one slice
  expect(await made.make()).toBe(false);
  expect(await purged).toBeNull();
  expect(holding(dirname(file), secret).filter((name) => name.includes(".backup"))).toEqual([]);
});

test("a damaged backup, from which nothing can be deleted, is removed", async () => {
  const file = scratchFile();
  const { store, purge, id } = await withSecret(file);
  for (const name of left(file)) truncateSync(join(dirname(file), name), 9000);
  store.deleteSession(id);
  store.forgetSetAside();
  expect(await purge.run()).toBeNull();
  expect(left(file)).toEqual([]);
});

test("a disk without room keeps the old ones, and says why there is no new one", async (context) => {
  const disk = smallDisk(8);
  if (!disk) return context.skip(noSmallDisk);
  const file = join(disk.folder, "sessions.db");
  const made = await opened(file);
  talk(made.store, "x".repeat(300), 20);
  await made.make();
  const names = namesIn(file);
  disk.fill();
  clock.now += day;
  made.backups.keep(made.database, made.store);
  await expect.poll(() => made.log.join()).toMatch(/no backup .* could be made: .*disk is full/);
  await made.backups.stop();
  expect(namesIn(file)).toEqual([...names, "filler"].toSorted());
  expect(made.backups.offer()).toMatchObject({ messages: 20 });
  disk.free();
  made.store.close();
});

test("copies of damaged files are named, for nothing is deleted from them", async () => {
  const file = scratchFile();
  copyFileSync(import.meta.filename, `${file}.damaged-2026-05-01T00-00-00-000Z`);
  expect(nodeBackups(file).otherCopies()).toEqual([`${file}.damaged-2026-05-01T00-00-00-000Z`]);
});
