// Repairs unreadable rows: a crash of another program, a tool that edited the file, a flipped bit. A bad row must not
// hide all conversations, so it is repaired as far as possible, and the original row is kept in the table `set_aside`
// with a description of the damage. This runs once, when the file is opened; nothing is guessed, and no text is
// dropped.
//
//   session   bad fields get their defaults; its messages stay
//   message   unreadable statistics and calls are dropped; a missing or later parent becomes none; a message with unreadable
//             text or role is removed, and the messages below it move up
//   preset    is removed

import { byName } from "../../src/base/by-name.ts";
import {
  type Database,
  isSoundWith,
  type SqlRow,
  type SqlValue,
  unsoundRows,
} from "../../src/platform/database.ts";
import { newId } from "./ids.ts";
import { readCalls, readSettings, readTimings, readTokens } from "./rows.ts";
import { sessionsKind } from "./schema.ts";
import { messageRoles, messageStates, sessionModes } from "./session.ts";

export interface SetAsideItem {
  number: number;
  /** The time at which it was found. */
  at: number;
  /** Id of its session; null: none. */
  session: string | null;
  /** "session \"My title\"" */
  what: string;
  why: string;
  /** The row, as JSON of SQL literals. */
  original: string;
  /** 1: a backup has made it good. */
  restored: number;
}

/** The range of Date. */
const lastTime = 8.64e15;
const list = (words: readonly string[]): string => words.map((word) => `'${word}'`).join(", ");
const badTime = (column: string): string =>
  `typeof(${column}) <> 'integer' OR ${column} NOT BETWEEN 0 AND ${lastTime}`;
const notText = (column: string): string => `typeof(${column}) <> 'text'`;
const notTextOrNull = (column: string): string => `typeof(${column}) NOT IN ('text', 'null')`;

/** For a column: the condition for damage, its description, and the repaired value. */
interface Flaw {
  column: string;
  when: string;
  says: string;
  becomes: string;
}

const sessionFlaws: readonly Flaw[] = [
  { column: "title", when: notText("title"), says: "the title is not text", becomes: "''" },
  {
    column: "mode",
    when: `mode NOT IN (${list(sessionModes)})`,
    says: "it has an unknown mode",
    becomes: "'chat'",
  },
  { column: "model", when: notTextOrNull("model"), says: "the model is not text", becomes: "NULL" },
  {
    column: "model_file",
    when: notTextOrNull("model_file"),
    says: "the model's file is not text",
    becomes: "NULL",
  },
  {
    column: "created_at",
    when: badTime("created_at"),
    says: "the time at which it began is not valid",
    becomes: "?1",
  },
  {
    column: "changed_at",
    when: badTime("changed_at"),
    says: "the time of its last change is not valid",
    becomes: "?1",
  },
];

const messageFlaws: readonly Omit<Flaw, "column" | "becomes">[] = [
  { when: notText("id"), says: "its id is not text" },
  { when: notText("content"), says: "its words are no text" },
  { when: notTextOrNull("reasoning"), says: "its reasoning is not text" },
  { when: notTextOrNull("raw"), says: "what the model wrote is not text" },
  { when: `role NOT IN (${list(messageRoles)})`, says: "it has an unknown role" },
  { when: `state NOT IN (${list(messageStates)})`, says: "it has an unknown state" },
  { when: badTime("created_at"), says: "the time at which it was written is not valid" },
  { when: badTime("changed_at"), says: "the time of its last change is not valid" },
  { when: notTextOrNull("model"), says: "the model is not text" },
  { when: notTextOrNull("error"), says: "the error is not text" },
  { when: notTextOrNull("stop_reason"), says: "the reason of its end is not text" },
  {
    when: "NOT EXISTS (SELECT 1 FROM sessions s WHERE s.number = messages.session)",
    says: "its session is missing",
  },
];

/** A row whose contents do not match their checksum. */
interface Unsound {
  readonly table: string;
  readonly number: number;
  readonly item: Found;
  /** Its original content, which the checksum proves. */
  readonly content: string | undefined;
}

type Found = Omit<SetAsideItem, "number" | "at" | "restored">;

/** Rows that differ from their checksums. The search index has each message's text once more: often it can be put back. */
export function findUnsound(database: Database): Unsound[] {
  return sessionsKind.sealed.flatMap((table) =>
    unsoundRows(database, sessionsKind, table).map((row) => {
      const number = table === "presets" ? rowidOf(database, row.name!) : (row.number as number);
      const content = table === "messages" ? provenContent(database, number) : undefined;
      const why =
        content === undefined
          ? "it is not as it was written (its checksum is wrong). It is shown as it is now"
          : "its words were not as they were written, and were put back from the search index";
      return { table, number, content, item: itemOf(database, table, number, why) };
    }),
  );
}

const rowidOf = (database: Database, name: SqlValue): number =>
  Number(database.get("SELECT rowid AS number FROM presets WHERE name = ?", name)!.number);

function provenContent(database: Database, number: number): string | undefined {
  try {
    const row = database.get("SELECT c0 FROM search_messages_content WHERE id = ?", number);
    if (typeof row?.c0 !== "string") return undefined;
    const isProven = isSoundWith(
      ...[database, sessionsKind, "messages"],
      ["content", row.c0],
      ["number", number],
    );
    return isProven ? row.c0 : undefined;
  } catch {
    return undefined; // the index is damaged, too
  }
}

/** Must be called inside a transaction. `unsound`: rows that findUnsound() found. */
export function setAsideBadRows(
  database: Database,
  now: number,
  unsound: readonly Unsound[] = [],
): void {
  for (const { number, content, item } of unsound) {
    if (content === undefined) continue;
    add(database, item, now);
    database.run("UPDATE messages SET content = ? WHERE number = ?", content, number);
  }
  setAsideSessions(database, now);
  setAsideMessages(database, now);
  setAsideParents(database, now);
  setAsideStatistics(database, now);
  setAsidePresets(database, now);
  for (const { table, number, item } of unsound) {
    // Any change gives it a checksum again, so that it is reported once.
    const column = table === "presets" ? "settings" : "created_at";
    database.run(`UPDATE ${table} SET ${column} = ${column} WHERE rowid = ?`, number);
    const isKept = database.get(
      "SELECT 1 FROM set_aside WHERE at = ? AND what = ?",
      now,
      item.what,
    );
    if (!isKept) add(database, item, now);
  }
  database.run(
    `UPDATE sessions SET leaf = (SELECT max(number) FROM messages m WHERE m.session = sessions.number)
     WHERE leaf IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.number = leaf AND m.session = sessions.number)`,
  );
}

/** Damage of a file and not of a row. */
export function findingOf(place: string, why: string): Found {
  const name = place.split(/[\\/]/).at(-1)!;
  return { session: null, what: `file "${name}"`, why, original: "{}" };
}

/** Must be called inside a transaction. */
export function keepFindings(database: Database, findings: readonly Found[], now: number): void {
  for (const finding of findings) add(database, finding, now);
}

function add(database: Database, item: Found, now: number): void {
  const { session, what, why, original } = item;
  database.run(
    "INSERT INTO set_aside (at, session, what, why, original) VALUES (?, ?, ?, ?, ?)",
    ...[now, session, what, why, original],
  );
}

export function listSetAside(database: Database): SetAsideItem[] {
  return database
    .all("SELECT number, at, session, what, why, original, restored FROM set_aside ORDER BY number")
    .map((row) => ({ ...row }) as unknown as SetAsideItem);
}

function setAsideSessions(database: Database, now: number): void {
  for (const { number } of database.all("SELECT number FROM sessions WHERE typeof(id) <> 'text'")) {
    keep(database, "sessions", number as number, now, "its id is not text", null);
    database.run(
      `UPDATE sessions SET id = ?2, ${repairs(sessionFlaws)} WHERE number = ?3`,
      now,
      newId("ses"),
      number!,
    );
  }
  const anyFlaw = sessionFlaws.map(({ when }) => `(${when})`).join(" OR ");
  for (const { number, id } of database.all(`SELECT number, id FROM sessions WHERE ${anyFlaw}`)) {
    const why = flawsOf(database, "sessions", number as number, sessionFlaws);
    keep(database, "sessions", number as number, now, why, id as string);
    database.run(
      `UPDATE sessions SET ${repairs(sessionFlaws)}, settings = ?2 WHERE number = ?3`,
      now,
      settingsText(database, number as number),
      number!,
    );
  }
  const all = database.all("SELECT number, id, CAST(settings AS TEXT) AS settings FROM sessions");
  for (const { number, id, settings } of all) {
    if (readSettings(settings) !== undefined) continue;
    keep(database, "sessions", number as number, now, "its settings cannot be read", id as string);
    database.run("UPDATE sessions SET settings = '{}' WHERE number = ?", number!);
  }
}

function settingsText(database: Database, number: number): string {
  const row = database.get(
    "SELECT CAST(settings AS TEXT) AS settings FROM sessions WHERE number = ?",
    number,
  );
  return String(row?.settings ?? "{}");
}

const repairs = (flaws: readonly Flaw[]): string =>
  flaws
    .map(
      ({ column, when, becomes }) =>
        `${column} = CASE WHEN ${when} THEN ${becomes} ELSE ${column} END`,
    )
    .join(", ");

function setAsideMessages(database: Database, now: number): void {
  const anyFlaw = messageFlaws.map(({ when }) => `(${when})`).join(" OR ");
  for (const { number } of database.all(`SELECT number FROM messages WHERE ${anyFlaw}`)) {
    const why = flawsOf(database, "messages", number as number, messageFlaws);
    keep(database, "messages", number as number, now, why, sessionOf(database, number as number));
    const above = "(SELECT parent FROM messages WHERE number = ?1)";
    database.run(`UPDATE messages SET parent = ${above} WHERE parent = ?1`, number!);
    database.run(`UPDATE sessions SET leaf = ${above} WHERE leaf = ?1`, number!);
    database.run("DELETE FROM messages WHERE number = ?", number!);
  }
}

/** A parent must belong to the same session and be older: anything else could be a cycle. */
function setAsideParents(database: Database, now: number): void {
  const rows = database.all(
    `SELECT number FROM messages m WHERE parent IS NOT NULL AND (parent >= number OR NOT EXISTS
       (SELECT 1 FROM messages p WHERE p.number = m.parent AND p.session = m.session))`,
  );
  for (const { number } of rows) {
    const why = "the message above it is missing, or was written later";
    keep(database, "messages", number as number, now, why, sessionOf(database, number as number));
    database.run("UPDATE messages SET parent = NULL WHERE number = ?", number!);
  }
}

function setAsideStatistics(database: Database, now: number): void {
  const rows = database.all(
    `SELECT number, CAST(tokens AS TEXT) AS tokens, CAST(timings AS TEXT) AS timings,
       CAST(calls AS TEXT) AS calls
     FROM messages WHERE tokens IS NOT NULL OR timings IS NOT NULL OR calls IS NOT NULL`,
  );
  for (const { number, tokens, timings, calls } of rows) {
    const bad = [
      ...(readTokens(tokens) === undefined ? ["tokens"] : []),
      ...(readTimings(timings) === undefined ? ["timings"] : []),
      ...(readCalls(calls) === undefined ? ["calls"] : []),
    ];
    if (bad.length === 0) continue;
    const why = `its ${bad.join(" and ")} cannot be read`;
    keep(database, "messages", number as number, now, why, sessionOf(database, number as number));
    const reset = bad.map((column) => `${column} = NULL`).join(", ");
    database.run(`UPDATE messages SET ${reset} WHERE number = ?`, number!);
  }
}

function setAsidePresets(database: Database, now: number): void {
  const rows = database.all(
    "SELECT rowid AS number, CAST(settings AS TEXT) AS settings FROM presets",
  );
  for (const { number, settings } of rows) {
    if (readSettings(settings) !== undefined) continue;
    keep(database, "presets", number as number, now, "its settings cannot be read", null);
    database.run("DELETE FROM presets WHERE rowid = ?", number!);
  }
}

function sessionOf(database: Database, message: number): string | null {
  const row = database.get(
    `SELECT CAST(s.id AS TEXT) AS id FROM messages m JOIN sessions s ON s.number = m.session WHERE m.number = ?`,
    message,
  );
  return (row?.id as string | undefined) ?? null;
}

/** The flaws of a row, with the values as SQL literals. */
function flawsOf(
  database: Database,
  table: string,
  number: number,
  flaws: readonly { when: string; says: string; column?: string }[],
): string {
  const columns = flaws.map(({ when }, i) => `(${when}) AS f${i}`).join(", ");
  const row = database.get(`SELECT ${columns} FROM ${table} WHERE number = ?`, number)!;
  const said = flaws.filter((_, i) => row[`f${i}`] === 1).map(({ says }) => says);
  const role = table === "messages" ? literals(database, table, number).role : undefined;
  return said.map((text) => (text.endsWith("role") ? `${text}: ${role}` : text)).join("; ");
}

/** The row with every value as an SQL literal, which preserves any value of any type. */
function literals(database: Database, table: string, number: number): Record<string, string> {
  const columns = database.all(`SELECT name FROM pragma_table_info('${table}')`);
  const quoted = columns.map(({ name }) => `quote("${name}") AS "${name}"`).join(", ");
  const row = database.get(`SELECT ${quoted} FROM ${table} WHERE rowid = ?`, number);
  return row as Record<string, string>;
}

const kinds: Readonly<Record<string, { name: string; label: string }>> = byName({
  sessions: { name: "session", label: "title" },
  messages: { name: "message", label: "id" },
  presets: { name: "preset", label: "name" },
});

function keep(
  database: Database,
  table: string,
  number: number,
  now: number,
  why: string,
  session: string | null,
): void {
  add(database, { ...itemOf(database, table, number, why), session }, now);
}

function itemOf(database: Database, table: string, number: number, why: string): Found {
  const row: SqlRow = literals(database, table, number);
  const { name, label } = kinds[table]!;
  const shown = String(row[label]).slice(0, 80).replace(/^'|'$/g, "");
  const id = String(row.id ?? "").replace(/^'|'$/g, "");
  const session =
    table === "messages" ? sessionOf(database, number) : table === "sessions" ? id : null;
  return { session, what: `${name} "${shown}"`, why, original: JSON.stringify(row) };
}
