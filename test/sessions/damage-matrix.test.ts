// Kinds of damage, at many places of the files of conversations: none is silent. Whatever is done to the files, either all
// conversations are there as they were, or the store says what is wrong: it does not open, or names what it found.
// LANTERN_MATRIX=1 prints what became of each.

import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SessionStore } from "../../apps/sessions/store.ts";
import { StorageError } from "../../src/platform/database.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { someOf } from "../support/exhaustive.ts";
import { Random } from "../support/random.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-matrix-"));
const suffixes = ["", "-wal", "-saves"];
const texts = 40;
let id: string;
let before: string;

/** Everything that a person has, and finds. */
function contentsOf(store: SessionStore): string {
  const { sessions } = store.sessions();
  const messages = sessions.map((session) => store.messages(session.id));
  const found = [...Array(texts).keys()].map((at) => store.search(`needle${at}x`).length);
  return JSON.stringify([sessions, messages, found]);
}

function copyFiles(from: string, to: string): void {
  for (const suffix of suffixes) {
    rmSync(to + suffix, { force: true });
    if (existsSync(from + suffix)) copyFileSync(from + suffix, to + suffix);
  }
}

/** "closed": all is in the file. "killed": half of it is in the log. "fresh": all is in the log. */
type State = "closed" | "killed" | "fresh";
const fileOf = (state: string): string => join(folder, `${state}.db`);

beforeAll(() => {
  const file = join(folder, "made.db");
  let time = 1_700_000_000_000;
  const opened = () => new SessionStore(openNodeDatabase(file), { now: () => ++time });
  let store = opened();
  id = store.createSession({ title: "precious", settings: { systemPrompt: "be kind" } }).id;
  let parent: string | null = null;
  const say = (from: number, to: number): void => {
    for (let at = from; at < to; at++) {
      const content = `needle${at}x ${`word${at} `.repeat(40)}`;
      parent = store.addMessage(id, parent, { role: at % 2 ? "assistant" : "user", content }).id;
    }
  };
  say(0, texts / 2);
  store.close();
  copyFiles(file, join(folder, "older.db"));
  store = opened();
  say(texts / 2, texts);
  copyFiles(file, fileOf("killed"));
  before = contentsOf(store);
  store.close();
  copyFiles(file, fileOf("closed"));
  const fresh = join(folder, "begun.db");
  const other = new SessionStore(openNodeDatabase(fresh), { now: () => ++time });
  other.createSession({ title: "another" });
  copyFiles(fresh, fileOf("fresh"));
  other.close();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Damage = (file: string) => void;

const edit =
  (suffix: string, change: (bytes: Buffer) => void): Damage =>
  (file) => {
    const bytes = readFileSync(file + suffix);
    change(bytes);
    writeFileSync(file + suffix, bytes);
  };

/** Flips bits of the byte at a place. */
const flip = (suffix: string, at: (bytes: Buffer) => number, bits: number): Damage =>
  edit(suffix, (bytes) => {
    bytes[at(bytes)]! ^= bits;
  });

/** Flips a bit of the first place where a text is, from a place on. */
const flipIn = (suffix: string, text: string, more = 0): Damage =>
  edit(suffix, (bytes) => {
    const at = bytes.indexOf(text);
    if (at < 0) throw new Error(`no ${text} in the file`);
    bytes[at + more]! ^= 1;
  });

const flipAt = (suffix: string, share: number): Damage =>
  edit(suffix, (bytes) => {
    bytes[Math.floor(bytes.length * share)]! ^= 4;
  });

const cut =
  (suffix: string, share: number): Damage =>
  (file) =>
    truncateSync(file + suffix, Math.floor(readFileSync(file + suffix).length * share));

const page = (number: number, fill: number): Damage =>
  edit("", (bytes) => bytes.fill(fill, (number - 1) * 4096, number * 4096));

/** A page of a table or index: its root. */
const rootOf =
  (name: string, work: (bytes: Buffer, start: number) => void): Damage =>
  (file) => {
    const copy = `${file}-look`;
    copyFileSync(file, copy);
    const sqlite = new DatabaseSync(copy);
    const row = sqlite.prepare("SELECT rootpage AS n FROM sqlite_schema WHERE name = ?").get(name)!;
    sqlite.close();
    for (const suffix of ["", "-wal", "-shm"]) rmSync(copy + suffix, { force: true });
    edit("", (bytes) => work(bytes, (Number(row.n) - 1) * 4096))(file);
  };

const lastBytes = (name: string): Damage =>
  rootOf(name, (bytes, start) => {
    bytes[start + 4096 - 12]! ^= 1;
  });
const zeroed = (name: string): Damage =>
  rootOf(name, (bytes, start) => void bytes.fill(0, start, start + 4096));

const frame = 4096 + 24;
const random = new Random(7);

const cases: (readonly [state: State, what: string, damage: Damage])[] = [
  ...[0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999].map(
    (share) => ["killed", `a bit of the log at ${share}`, flipAt("-wal", share)] as const,
  ),
  ["killed", "a bit of the log's header", flipAt("-wal", 0)],
  ["killed", "a bit of the log's salt", flip("-wal", () => 17, 1)],
  ["killed", "a bit of a frame's salt", flip("-wal", () => 32 + 8 + 3 * frame, 1)],
  [
    "killed",
    "a bit of the last frame's salt",
    flip("-wal", (bytes) => bytes.length - frame + 9, 1),
  ],
  ...[0, 0.1, 0.5, 0.9, 0.999].map(
    (share) => ["killed", `the log cut off at ${share}`, cut("-wal", share)] as const,
  ),
  [
    "killed",
    "the log without its last frame",
    (file) => truncateSync(`${file}-wal`, readFileSync(`${file}-wal`).length - frame),
  ],
  ["killed", "the log deleted", (file) => rmSync(`${file}-wal`)],
  ["killed", "the log zeroed", edit("-wal", (bytes) => void bytes.fill(0))],
  [
    "killed",
    "the log of another file",
    (file) => copyFileSync(`${fileOf("fresh")}-wal`, `${file}-wal`),
  ],
  ["killed", "the file emptied beside its log", cut("", 0)],
  ["killed", "the file zeroed beside its log", edit("", (bytes) => void bytes.fill(0))],
  ["killed", "page 2 zeroed beside the log", page(2, 0)],
  ["killed", "the file gone beside its log", (file) => rmSync(file)],
  ["killed", "the file cut in half beside its log", cut("", 0.5)],
  [
    "killed",
    "an older file beside the log",
    (file) => copyFileSync(join(folder, "older.db"), file),
  ],
  ["killed", "the count of saves gone", (file) => rmSync(`${file}-saves`)],
  ["killed", "a bit of the count of saves", flipAt("-saves", 0.1)],
  ["fresh", "the file emptied beside the log that has everything", cut("", 0)],
  ["fresh", "the log deleted that has everything", (file) => rmSync(`${file}-wal`)],
  ["closed", "the file emptied", cut("", 0)],
  ["closed", "the file gone", (file) => rmSync(file)],
  ...[0.05, 0.5, 0.99].map(
    (share) => ["closed", `the file cut off at ${share}`, cut("", share)] as const,
  ),
  ["closed", "an older file in its place", (file) => copyFileSync(join(folder, "older.db"), file)],
  [
    "closed",
    "another conversation's file in its place",
    (file) => {
      const other = new SessionStore(openNodeDatabase(join(folder, "elsewhere.db")));
      other.createSession({ title: "elsewhere" });
      other.close();
      copyFileSync(join(folder, "elsewhere.db"), file);
    },
  ],
  ["closed", "a text in its place", (file) => writeFileSync(file, "Dear diary. ".repeat(900))],
  [
    "closed",
    "a database of another program in its place",
    (file) => {
      rmSync(file);
      const sqlite = new DatabaseSync(file);
      sqlite.exec("CREATE TABLE bookmarks (url TEXT)");
      sqlite.close();
    },
  ],
  ...[1, 9, 20, 39].map(
    (at) =>
      ["closed", `a bit of message ${at}`, flipIn("", `needle${at}x word${at} word`, 12)] as const,
  ),
  ["closed", "a bit of a title", flipIn("", "precious", 2)],
  ["closed", "a bit of a system prompt", flipIn("", "be kind", 3)],
  ["closed", "a bit of a message's id", flip("", (bytes) => bytes.lastIndexOf("msg_") + 6, 1)],
  ["closed", "a bit of the schema", flipIn("", "CREATE TABLE messages", 14)],
  ["closed", "a bit of a rule of the schema", flipIn("", "'user', 'assistant'", 3)],
  ["closed", "a bit of a trigger", flipIn("", "message_added AFTER INSERT", 14)],
  ["closed", "a bit of the version", flip("", () => 63, 1)],
  ["closed", "another bit of the version", flip("", () => 63, 8)],
  ["closed", "a bit of the kind", flip("", () => 71, 1)],
  ["closed", "a bit of the page size", flip("", () => 16, 1)],
  ...[
    "messages",
    "sessions",
    "presets",
    "messages_by_session",
    "messages_by_parent",
    "sessions_by_change",
    "sqlite_autoindex_messages_1",
    "sqlite_autoindex_sessions_1",
    "search_messages_content",
    "search_messages_data",
    "search_messages_docsize",
    "saves",
  ].flatMap((name) => [
    ["closed", `a zero page of ${name}`, zeroed(name)] as const,
    ["closed", `a bit in ${name}`, lastBytes(name)] as const,
  ]),
  ...Array.from({ length: 12 }, () => random.below(1000) / 1000).map(
    (share) => ["closed", `a bit of the file at ${share}`, flipAt("", share)] as const,
  ),
  ["closed", "page 2 is page 3", edit("", (bytes) => void bytes.copy(bytes, 4096, 8192, 12_288))],
  ["closed", "page 5 is noise", page(5, 0x5a)],
];

const rows: string[] = [];
afterAll(() => {
  if (process.env.LANTERN_MATRIX) console.log(rows.join("\n"));
});

/** All of them take a minute. */
const tried = someOf(
  "kinds of damage",
  cases,
  cases.filter((_, at) => at % 11 === 3),
);

test.each(tried)("%s: %s", (state, what, damage) => {
  const file = join(folder, "damaged", "sessions.db");
  rmSync(join(folder, "damaged"), { recursive: true, force: true });
  openNodeDatabase(file).close();
  copyFiles(fileOf(state), file);
  damage(file);
  const found = ["", "-wal"].map((suffix) => bytesOf(file + suffix));
  const verdict = outcome(file, state);
  rows.push(`${state.padEnd(7)} ${what.padEnd(48)} ${verdict}`);
  expect(verdict).not.toMatch(/^SILENT/);
  if (!verdict.startsWith("refused corrupt")) return;
  // There as they were found, before SQLite put the one into the other.
  const kept = readdirSync(join(folder, "damaged")).map((name) =>
    bytesOf(join(folder, "damaged", name)),
  );
  for (const bytes of found) {
    expect(bytes.length === 0 || kept.some((copy) => copy.equals(bytes))).toBe(true);
  }
});

const bytesOf = (file: string): Buffer => (existsSync(file) ? readFileSync(file) : Buffer.alloc(0));

function outcome(file: string, state: string): string {
  let store: SessionStore | undefined;
  try {
    const database = openNodeDatabase(file);
    try {
      store = new SessionStore(database);
    } catch (error) {
      database.close();
      throw error;
    }
    const said = store.setAside().map(({ what, why }) => `${what}: ${why}`);
    const isWhole = state !== "fresh" && contentsOf(store) === before;
    if (said.length === 0) return isWhole ? "all there" : "SILENT";
    return `${isWhole ? "mended" : "named"} ${said.join(" | ").replaceAll(folder, "").slice(0, 150)}`;
  } catch (error) {
    if (!(error instanceof StorageError)) return `SILENT: a bug: ${(error as Error).message}`;
    return `refused ${error.problem}: ${error.message.replaceAll(folder, "").slice(0, 130)}`;
  } finally {
    store?.close();
  }
}
