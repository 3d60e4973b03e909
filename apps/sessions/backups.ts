// Backups of the conversations: one a day, the newest three, and restoring the newest good one.
//
// A backup has rows only, each with its checksum, which is compared as it is copied: a damaged database is not backed up. It is made in
// slices, so that no running answer stalls, and begun again if something is deleted meanwhile. Deleted rows are deleted from all
// backups before that is acknowledged (purge.ts). While there is unrepaired damage, the newest backup from before it stays.
//
// Restoring only adds: conversations that are missing, and of damaged ones a copy beside the remaining rows. Deleted conversations
// are not in a backup, so they do not come back.

import { type Poll, pause, poll } from "../../src/base/backoff.ts";
import { byName } from "../../src/base/by-name.ts";
import { messageOf } from "../../src/base/errors.ts";
import {
  type BackupDraft,
  type BackupFiles,
  type Database,
  type SqlValue,
  StorageError,
  sealedTable,
  sumOf,
} from "../../src/platform/database.ts";
import { exportSession, importSession, type SessionFile } from "./exchange.ts";
import { Presets } from "./presets.ts";
import type { BackupPlace } from "./purge.ts";
import type { Replaced } from "./replaced.ts";
import { sessionsKind } from "./schema.ts";
import { type Message, SessionError } from "./session.ts";
import { SessionStore } from "./store.ts";

export interface BackupOffer {
  /** When it was made. */
  readonly at: number;
  readonly conversations: number;
  readonly messages: number;
}

export interface Restored {
  /** When the backup was made. */
  readonly at: number;
  /** Conversations that were missing and are back. */
  readonly added: number;
  /** Damaged conversations that have a copy from the backup beside them. */
  readonly copied: number;
  /** Titles of conversations that could not be added; the log has the reasons. */
  readonly failed: readonly string[];
  /** Name of the damaged database, which was moved aside; null: it is still in use. */
  readonly movedTo: string | null;
}

const dayMs = 24 * 3_600_000;
const looks = { everyMs: 3_600_000, mostMs: dayMs };
const kept = 3;
/** The longest time that other work waits while one is made. */
const sliceMs = 10;

/** An unfinished import may contain anything. */
const whole: Readonly<Record<string, string>> = byName({
  sessions: "number NOT IN (SELECT session FROM imports)",
  messages: "session NOT IN (SELECT session FROM imports)",
  presets: "true",
});

export class Backups {
  readonly #files: BackupFiles;
  readonly #now: () => number;
  readonly #log: (line: string) => void;
  /** The result of checking each: null if it is damaged. */
  readonly #looked = new Map<number, BackupOffer | null>();
  /** Runs one task after the other. */
  #last: Promise<unknown> = Promise.resolve();
  /** Counts deletions and stops of the server: each drops the backup that is being made. */
  #interrupts = 0;
  #daily: Poll | undefined;
  #said: string | undefined;

  constructor(
    files: BackupFiles,
    { now, log }: { now: () => number; log: (line: string) => void },
  ) {
    this.#files = files;
    this.#now = now;
    this.#log = log;
  }

  /** Makes one now, if there is none of the last 24 hours, and from then on every day. */
  keep(database: Database, store: SessionStore): void {
    const look = async (): Promise<void> => {
      try {
        await this.#inTurn(async () => this.#files.removeDraft()); // of a process that was killed
        if (this.#isDue(database)) await this.make(database, store);
        this.#said = undefined;
      } catch (error) {
        const why = `no backup of the conversations could be made: ${messageOf(error)}`;
        if (why !== this.#said) this.#log(why);
        this.#said = why;
        throw error;
      }
    };
    this.#daily = poll(look, looks);
    this.#daily.now();
  }

  async stop(): Promise<void> {
    this.#daily?.stop();
    this.#interrupts++;
    await this.#last;
    this.#interrupts--;
  }

  /** A database without a conversation has nothing to back up, and must not push out other backups. */
  #isDue(database: Database): boolean {
    const [newest] = this.#files.times();
    const isRecent = newest !== undefined && Math.abs(this.#now() - newest) < dayMs;
    return !isRecent && database.get("SELECT 1 FROM sessions") !== undefined;
  }

  /** false: it was interrupted, and its draft is removed. */
  make(database: Database, store: SessionStore): Promise<boolean> {
    return this.#inTurn(async () => {
      const at = this.#now();
      const draft = this.#files.begin(sessionsKind);
      try {
        const sessions = new Set<SqlValue>();
        for (const table of sessionsKind.sealed) {
          if (!(await this.#copy(database, draft, table, sessions))) return false;
        }
        await draft.finish(at);
      } finally {
        draft.abandon();
      }
      await this.#prune(store);
      return true;
    });
  }

  /** `sessions`: the numbers of those that are in the backup. Later ones are left out with their messages. */
  async #copy(
    database: Database,
    draft: BackupDraft,
    name: string,
    sessions: Set<SqlValue>,
  ): Promise<boolean> {
    const table = sealedTable(database, sessionsKind, name);
    const columns = [...table.columns, "sum"].map((column) => `"${column}"`).join(", ");
    const sql = `SELECT rowid AS row_at, sum = ${sumOf(table)} AS is_sound, ${columns} FROM ${name}
      WHERE rowid > ? AND ${whole[name]} ORDER BY rowid LIMIT ?`;
    let last: SqlValue = 0;
    let isWhole = false;
    for (let count = 16; !isWhole; ) {
      if (this.#interrupts > 0) return false;
      const started = performance.now();
      const rows = database.all(sql, last, count);
      for (const { row_at, is_sound, ...row } of rows) {
        last = row_at!;
        if (is_sound !== 1) throw damaged(database, name, last);
        if (name === "sessions") sessions.add(row.number!);
        if (name === "messages" && !sessions.has(row.session!)) continue;
        draft.insert(name, row);
      }
      isWhole = rows.length < count;
      count = performance.now() - started < sliceMs / 2 ? count * 2 : Math.ceil(count / 2);
      await pause(0);
    }
    return true;
  }

  /** The newest ones stay, and the one that is offered. */
  async #prune(store: SessionStore): Promise<void> {
    const since = store.damagedSince();
    const offered = since === undefined ? undefined : this.offer(since)?.at;
    for (const time of this.#files.times().slice(kept)) {
      if (time !== offered) await this.#files.remove(time);
    }
  }

  /** The backup's part of a Purge of this database. */
  placeOf(database: Database): BackupPlace {
    return (conversations, replaced) => {
      this.#interrupts++;
      return this.#inTurn(async () => {
        try {
          this.#files.removeDraft();
          this.#looked.clear();
          const sessions = namesOf(replaced, "session");
          const ids = new Set([...conversations, ...sessions]);
          for (const time of this.#files.times()) {
            await this.#files.change(time, (backup) => {
              for (const id of ids) bringSession(backup, database, id);
              for (const name of namesOf(replaced, "preset")) bringPreset(backup, database, name);
            });
          }
        } finally {
          this.#interrupts--;
          this.#daily?.now();
        }
      });
    };
  }

  /** The newest good one, made before a time; null: there is none. */
  offer(before: number = Infinity): BackupOffer | null {
    for (const time of this.#files.times()) {
      if (time >= before) continue;
      let found = this.#looked.get(time);
      if (found === undefined) {
        found = this.#look(time);
        this.#looked.set(time, found);
      }
      if (found) return found;
    }
    return null;
  }

  #look(time: number): BackupOffer | null {
    try {
      const { database, store } = this.#open(time);
      try {
        if (store.setAside().length > 0) return null;
        const count = (table: string): number =>
          Number(database.get(`SELECT count(*) AS n FROM ${table}`)!.n);
        return { at: time, conversations: count("sessions"), messages: count("messages") };
      } finally {
        store.close();
      }
    } catch {
      return null; // damaged, or gone: the next one is offered
    }
  }

  #open(time: number): { database: Database; store: SessionStore } {
    const database = this.#files.open(time);
    try {
      return { database, store: new SessionStore(database, { now: this.#now }) };
    } catch (error) {
      database.close();
      throw error;
    }
  }

  /** Adds missing or damaged rows of the store from the newest good backup. */
  restore(store: SessionStore, presets: Presets): Promise<Omit<Restored, "movedTo">> {
    return this.#inTurn(async () => {
      const offer = this.offer(store.damagedSince());
      if (!offer) throw noBackup();
      const { database, store: backup } = this.#open(offer.at);
      try {
        const counts = { added: 0, copied: 0 };
        const failed: string[] = [];
        const attempt = async (title: string, work: () => Promise<void> | void): Promise<void> => {
          try {
            await work();
          } catch (error) {
            if (error instanceof StorageError) throw error; // the next one fails in the same way
            failed.push(title);
            this.#log(`"${title}" could not be restored: ${messageOf(error)}`);
          }
        };
        for (const id of idsOf(backup)) {
          await attempt(backup.session(id).title, async () => {
            const how = await addFrom(store, backup, id, offer.at);
            if (how !== "same") counts[how]++;
          });
        }
        const gone = namesOf(store.replaced(), "preset");
        const there = new Set([...gone, ...presets.all().map(({ name }) => name)]);
        for (const { name, settings } of new Presets(database).all()) {
          if (!there.has(name)) await attempt(name, () => void presets.save(name, settings));
        }
        store.noteRestored();
        return { at: offer.at, ...counts, failed };
      } finally {
        backup.close();
      }
    });
  }

  moveAside(): string {
    return this.#files.moveAside();
  }

  otherCopies(): string[] {
    return this.#files.otherCopies();
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }
}

const namesOf = (replaced: readonly Replaced[], wanted: Replaced["item"]): string[] =>
  replaced.flatMap(({ item, name }) => (item === wanted ? [name] : []));

function damaged({ place }: Database, table: string, number: SqlValue): StorageError {
  return new StorageError(
    "corrupt",
    `"${place}": row ${number} of the table ${table} is not as it was written. Restart the server: it names the row, and offers an earlier backup`,
  );
}

/** A conversation is updated to its state in the database; a deleted one is deleted. */
function bringSession(backup: Database, database: Database, id: string): void {
  const number = backup.get("SELECT number FROM sessions WHERE id = ?", id)?.number;
  if (number === undefined) return;
  const now = database.get("SELECT title, settings FROM sessions WHERE id = ?", id);
  if (!now) {
    backup.run("DELETE FROM messages WHERE session = ?", number);
    backup.run("DELETE FROM sessions WHERE number = ?", number);
    return;
  }
  const sum = sumOf(sealedTable(backup, sessionsKind, "sessions"));
  const { title, settings } = now;
  backup.run(
    "UPDATE sessions SET title = ?, settings = ? WHERE number = ?",
    title!,
    settings!,
    number,
  );
  backup.run(`UPDATE sessions SET sum = ${sum} WHERE number = ?`, number);
}

function bringPreset(backup: Database, database: Database, name: string): void {
  const now = database.get("SELECT settings FROM presets WHERE name = ?", name);
  if (!now) {
    backup.run("DELETE FROM presets WHERE name = ?", name);
    return;
  }
  const sum = sumOf(sealedTable(backup, sessionsKind, "presets"));
  backup.run("UPDATE presets SET settings = ? WHERE name = ?", now.settings!, name);
  backup.run(`UPDATE presets SET sum = ${sum} WHERE name = ?`, name);
}

function idsOf(store: SessionStore): string[] {
  const ids: string[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = store.sessions({ limit: 200, ...(cursor !== undefined && { cursor }) });
    ids.push(...page.sessions.map(({ id }) => id));
    cursor = page.next;
  }
  return ids.reverse();
}

/** Adds a conversation of a backup that is missing, or damaged: then it is a copy, and its title says so. */
async function addFrom(
  store: SessionStore,
  backup: SessionStore,
  id: string,
  at: number,
): Promise<"added" | "copied" | "same"> {
  const file = exportSession(backup, id, at);
  const isThere = store.hasId(id);
  const isDeleted =
    !isThere && [...store.forgotten(), ...namesOf(store.replaced(), "session")].includes(id);
  const isEmpty = file.session.title === "" && file.messages.length === 0;
  if (isDeleted || isEmpty || (isThere && !isDamaged(store, file))) return "same";
  const title = isThere ? `${file.session.title} (as of ${dateText(at)})` : file.session.title;
  const { id: added } = await importSession(store, {
    ...file,
    session: { ...file.session, title },
  });
  const modelFile = backup.modelFile(id);
  if (file.session.model !== null) store.rememberModel(added, file.session.model, modelFile);
  return isThere ? "copied" : "added";
}

/** Whether a conversation has lost rows that a backup has. */
function isDamaged(store: SessionStore, { session, messages }: SessionFile): boolean {
  const now = new Map(store.messages(session.id).map((message) => [message.id, message]));
  const isEmpty = ({ content, reasoning, calls }: Message): boolean =>
    content === "" && !reasoning && calls.length === 0;
  // An answer that ended without a text is removed, which is no loss.
  if (messages.some((message) => !now.has(message.id) && !isEmpty(message))) return true;
  const isNamed = store
    .setAside()
    .some((item) => item.restored === 0 && item.session === session.id);
  if (!isNamed) return false;
  const { title, settings } = store.session(session.id);
  const text = ({ content, reasoning, calls, role }: Message): string =>
    JSON.stringify([role, content, reasoning, calls]);
  return (
    JSON.stringify([title, settings]) !== JSON.stringify([session.title, session.settings]) ||
    messages.some((message) => !isEmpty(message) && text(message) !== text(now.get(message.id)!))
  );
}

const dateText = (time: number): string =>
  `${new Date(time).toISOString().slice(0, 16).replace("T", " ")} UTC`;

const counted = (count: number, what: string): string =>
  `${count} ${what}${count === 1 ? "" : "s"}`;

/** Describes the offered backup, and the command to restore it. */
export function backupText(offer: BackupOffer | null): string {
  if (!offer) return "There is no good backup of the conversations";
  const has = `${counted(offer.conversations, "conversation")} and ${counted(offer.messages, "message")}`;
  return `The newest good backup is from ${dateText(offer.at)} and has ${has}. To add what is missing or damaged from it: "Restore" in the web app, POST /lantern/v1/restore, or "lantern serve --restore-sessions"`;
}

export function restoredText({ at, added, copied, failed, movedTo }: Restored): string {
  const moved = movedTo === null ? "" : ` The damaged file is kept as "${movedTo}".`;
  const not = failed.length === 0 ? "" : ` ${failed.length} could not be restored.`;
  return `from the backup of ${dateText(at)}: ${counted(added, "conversation")} that were missing, and copies of ${copied} that are damaged.${not}${moved}`;
}

export function noBackup(): SessionError {
  return new SessionError("missing", "there is no good backup to restore");
}

/** Adds the offer of a backup to an error about a damaged database. */
export function withOffer<T>(backups: Backups | undefined, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!backups || !(error instanceof StorageError && error.problem === "corrupt")) throw error;
    const message = `${error.message}. ${backupText(backups.offer())}`;
    throw new StorageError("corrupt", message, { cause: error });
  }
}
