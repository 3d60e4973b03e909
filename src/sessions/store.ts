// The store: sessions and their messages in a database. Every method that changes something is one transaction, and
// what it changed is on disk when it returns.
//
// It starts no generation and knows no model: runs.ts asks it to begin answers, to save them while they grow, and to
// finish them. Ids that it is given come from outside and may name nothing.

import type { StopReason } from "../api.ts";
import { type Database, type SqlValue, StorageError } from "../platform/database.ts";
import { messageColumns, sessionColumns, toJson, toMessage, toSession } from "./rows.ts";
import { migrate } from "./schema.ts";
import { type SearchHit, searchDatabase } from "./search.ts";
import {
  type Message,
  type MessageRole,
  type MessageState,
  type MessageTimings,
  type MessageTokens,
  type Session,
  SessionError,
  type SessionMode,
} from "./session.ts";
import { changeSettings, type SessionSettings, type SettingsChange } from "./settings.ts";

export interface NewSession {
  title?: string;
  mode?: SessionMode;
  model?: string | null;
  settings?: SessionSettings;
}

export interface SessionChange {
  title?: string;
  model?: string | null;
  settings?: SettingsChange;
  /** Stand at this message; null: before the first. */
  leaf?: string | null;
  /** Stand at the newest message at or below this one: switching to a branch. */
  branch?: string;
}

export interface SessionPage {
  sessions: Session[];
  /** Give it back to get the next page; null: that was all. */
  next: string | null;
}

export interface NewMessage {
  role: MessageRole;
  content: string;
  state?: MessageState;
  model?: string | null;
}

/** How an answer ended. */
export interface MessageEnd {
  content: string;
  state: Exclude<MessageState, "streaming">;
  stopReason: StopReason | null;
  error: string | null;
  tokens: MessageTokens | null;
  timings: MessageTimings | null;
}

/** What begins: the person's message, if there is one, and the answers below it. */
export interface Begun {
  user: Message | null;
  answers: Message[];
}

/** Letters of the first message that become the title of a session that has none. */
const titleLength = 60;

export class SessionStore {
  readonly #database: Database;
  readonly #now: () => number;

  /** Takes the database over. Answers that were being written when the last process ended become "aborted". */
  constructor(database: Database, options: { now?: () => number } = {}) {
    this.#database = database;
    this.#now = options.now ?? Date.now;
    migrate(database);
    if (database.writable) this.#abortInterrupted();
  }

  /** For people: where it is kept. */
  get place(): string {
    return this.#database.place;
  }

  get writable(): boolean {
    return this.#database.writable;
  }

  close(): void {
    this.#database.close();
  }

  // --- sessions

  createSession(wanted: NewSession = {}): Session {
    const id = newId("ses");
    const now = this.#now();
    this.#write(() =>
      this.#database.run(
        `INSERT INTO sessions (id, title, mode, model, settings, created_at, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
        id,
        wanted.title ?? "",
        wanted.mode ?? "chat",
        wanted.model ?? null,
        JSON.stringify(changeSettings({}, wanted.settings ?? {})),
        now,
        now,
      ),
    );
    return this.session(id);
  }

  session(id: string): Session {
    const row = this.#database.get(`SELECT ${sessionColumns} FROM sessions s WHERE s.id = ?`, id);
    if (!row) throw missing("session", id);
    return toSession(row);
  }

  /** The last changed first. */
  sessions(options: { limit?: number; cursor?: string } = {}): SessionPage {
    const { limit = 50, cursor } = options;
    const [changedAt, number] = parseCursor(cursor);
    const rows = this.#database.all(
      `SELECT s.number, ${sessionColumns} FROM sessions s
       WHERE (s.changed_at, s.number) < (?, ?) ORDER BY s.changed_at DESC, s.number DESC LIMIT ?`,
      changedAt,
      number,
      limit + 1,
    );
    const page = rows.slice(0, limit);
    const last = page.at(-1);
    const more = rows.length > limit && last;
    return {
      sessions: page.map(toSession),
      next: more ? `${last.changed_at}.${last.number}` : null,
    };
  }

  changeSession(id: string, change: SessionChange): Session {
    return this.#write(() => {
      const before = this.session(id);
      if (change.leaf !== undefined) this.#setLeaf(id, change.leaf);
      if (change.branch !== undefined) this.#setLeaf(id, this.#newestBelow(id, change.branch));
      const { title, model, settings } = change;
      if (title === undefined && model === undefined && settings === undefined) {
        return this.session(id); // looking at another branch changes nothing
      }
      this.#database.run(
        `UPDATE sessions SET title = ?, model = ?, settings = ?, changed_at = ? WHERE id = ?`,
        title ?? before.title,
        model === undefined ? before.model : model,
        JSON.stringify(changeSettings(before.settings, settings ?? {})),
        this.#now(),
        id,
      );
      return this.session(id);
    });
  }

  /** Gone: rows, search index, and the pages and the log that held them. */
  deleteSession(id: string): void {
    this.#write(() => {
      const number = this.#sessionNumber(id);
      this.#database.run("DELETE FROM messages WHERE session = ?", number);
      this.#database.run("DELETE FROM sessions WHERE number = ?", number);
    });
    this.#database.get("PRAGMA wal_checkpoint(TRUNCATE)");
  }

  search(query: string, limit: number = 20): SearchHit[] {
    return searchDatabase(this.#database, query, limit);
  }

  // --- messages

  /** The whole tree, parents before their children. */
  messages(sessionId: string): Message[] {
    const number = this.#sessionNumber(sessionId);
    return this.#database
      .all(`SELECT ${messageColumns} FROM messages m WHERE m.session = ? ORDER BY m.number`, number)
      .map(toMessage);
  }

  message(sessionId: string, id: string): Message {
    const row = this.#database.get(
      `SELECT ${messageColumns} FROM messages m JOIN sessions s ON s.number = m.session WHERE s.id = ? AND m.id = ?`,
      sessionId,
      id,
    );
    if (!row) throw missing("message", id, sessionId);
    return toMessage(row);
  }

  /** From the first message down to this one. */
  path(sessionId: string, id: string | null): Message[] {
    if (id === null) return [];
    return this.#database
      .all(
        `WITH RECURSIVE up (number, parent, depth) AS (
           SELECT number, parent, 0 FROM messages WHERE number = ?
           UNION ALL
           SELECT m.number, m.parent, depth + 1 FROM messages m JOIN up ON m.number = up.parent
         )
         SELECT ${messageColumns} FROM up JOIN messages m ON m.number = up.number ORDER BY depth DESC`,
        this.#messageNumber(sessionId, id),
      )
      .map(toMessage);
  }

  /** A message that is finished as it is; the session then stands at it. */
  addMessage(sessionId: string, parent: string | null, message: NewMessage): Message {
    return this.#write(() => {
      const added = this.#insert(sessionId, parent, message);
      this.#afterMessages(sessionId, added.id, message.content);
      return added;
    });
  }

  /**
   * The person's message (none: an answer to `parent` itself) and `count` empty answers below it, all on disk or none
   * of it. The session then stands at the first answer.
   */
  begin(
    sessionId: string,
    parent: string | null,
    asked: { content: string | undefined; model: string | null; count: number },
  ): Begun {
    return this.#write(() => {
      const user =
        asked.content === undefined
          ? null
          : this.#insert(sessionId, parent, { role: "user", content: asked.content });
      const above = user?.id ?? parent;
      const answers = Array.from({ length: asked.count }, () =>
        this.#insert(sessionId, above, {
          role: "assistant",
          content: "",
          state: "streaming",
          model: asked.model,
        }),
      );
      this.#afterMessages(sessionId, answers[0]!.id, asked.content ?? "");
      return { user, answers };
    });
  }

  /**
   * What running answers have become so far, and how others ended, in one go. A message that was deleted meanwhile
   * stays deleted.
   */
  saveAnswers(
    running: readonly { id: string; content: string }[],
    ended: readonly { id: string; end: MessageEnd }[],
  ): void {
    const now = this.#now();
    this.#write(() => {
      for (const { id, content } of running) {
        this.#database.run(
          "UPDATE messages SET content = ?, changed_at = ? WHERE id = ?",
          content,
          now,
          id,
        );
      }
      for (const { id, end } of ended) this.#finish(id, end, now);
    });
  }

  /** A whole conversation from elsewhere (exchange.ts has checked it): parents come before their children. */
  restore(session: Omit<Session, "messageCount">, messages: readonly Message[]): Session {
    return this.#write(() => {
      this.#database.run(
        `INSERT INTO sessions (id, title, mode, model, settings, created_at, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
        session.id,
        session.title,
        session.mode,
        session.model,
        JSON.stringify(session.settings),
        session.createdAt,
        session.changedAt,
      );
      const number = this.#sessionNumber(session.id);
      for (const message of messages) this.#insertRow(number, message);
      this.#setLeaf(session.id, session.leaf);
      return this.session(session.id);
    });
  }

  /** Whether an id is taken, by a session or a message. */
  hasId(id: string): boolean {
    return (
      this.#database.get(
        "SELECT 1 FROM sessions WHERE id = ? UNION ALL SELECT 1 FROM messages WHERE id = ?",
        id,
        id,
      ) !== undefined
    );
  }

  // --- inside a transaction

  #insert(sessionId: string, parent: string | null, wanted: NewMessage): Message {
    const session = this.#sessionNumber(sessionId);
    if (parent !== null) this.#messageNumber(sessionId, parent); // of this session, or refused
    const now = this.#now();
    const message: Message = {
      id: newId("msg"),
      parent,
      role: wanted.role,
      content: wanted.content,
      state: wanted.state ?? "complete",
      createdAt: now,
      changedAt: now,
      model: wanted.model ?? null,
      stopReason: null,
      error: null,
      tokens: null,
      timings: null,
    };
    this.#insertRow(session, message);
    return message;
  }

  #insertRow(session: number, message: Message): void {
    const values: SqlValue[] = [
      message.id,
      session,
      message.parent,
      message.role,
      message.content,
      message.state,
      message.createdAt,
      message.changedAt,
      message.model,
      message.stopReason,
      message.error,
      toJson(message.tokens),
      toJson(message.timings),
    ];
    this.#database.run(
      `INSERT INTO messages (id, session, parent, role, content, state, created_at, changed_at, model, stop_reason,
         error, tokens, timings)
       VALUES (?, ?, (SELECT number FROM messages WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...values,
    );
  }

  #finish(id: string, end: MessageEnd, now: number): void {
    this.#database.run(
      `UPDATE messages SET content = ?, state = ?, stop_reason = ?, error = ?, tokens = ?, timings = ?, changed_at = ?
       WHERE id = ?`,
      end.content,
      end.state,
      end.stopReason,
      end.error,
      toJson(end.tokens),
      toJson(end.timings),
      now,
      id,
    );
    this.#database.run(
      `UPDATE sessions SET changed_at = ? WHERE number = (SELECT session FROM messages WHERE id = ?)`,
      now,
      id,
    );
  }

  #afterMessages(sessionId: string, leaf: string, text: string): void {
    this.#setLeaf(sessionId, leaf);
    this.#database.run(
      "UPDATE sessions SET changed_at = ?, title = CASE title WHEN '' THEN ? ELSE title END WHERE id = ?",
      this.#now(),
      titleFrom(text),
      sessionId,
    );
  }

  #setLeaf(sessionId: string, leaf: string | null): void {
    const number = leaf === null ? null : this.#messageNumber(sessionId, leaf);
    this.#database.run("UPDATE sessions SET leaf = ? WHERE id = ?", number, sessionId);
  }

  /** Follows the newest child down to the end. */
  #newestBelow(sessionId: string, id: string): string {
    const row = this.#database.get(
      `WITH RECURSIVE down (number) AS (
         SELECT ?
         UNION ALL
         SELECT (SELECT max(m.number) FROM messages m WHERE m.parent = down.number) FROM down
         WHERE down.number IS NOT NULL
       )
       SELECT id FROM messages WHERE number = (SELECT max(number) FROM down)`,
      this.#messageNumber(sessionId, id),
    );
    return row!.id as string;
  }

  #sessionNumber(id: string): number {
    const row = this.#database.get("SELECT number FROM sessions WHERE id = ?", id);
    if (!row) throw missing("session", id);
    return row.number as number;
  }

  #messageNumber(sessionId: string, id: string): number {
    const session = this.#sessionNumber(sessionId);
    const row = this.#database.get(
      "SELECT number FROM messages WHERE session = ? AND id = ?",
      session,
      id,
    );
    if (!row) throw missing("message", id, sessionId);
    return row.number as number;
  }

  #abortInterrupted(): void {
    this.#database.run("UPDATE messages SET state = 'aborted' WHERE state = 'streaming'");
  }

  #write<T>(work: () => T): T {
    if (!this.#database.writable) {
      throw new StorageError(
        "read-only",
        `sessions: "${this.place}" is read-only: conversations can be read, and nothing can be saved`,
      );
    }
    return this.#database.transaction(work);
  }
}

export function newId(kind: "ses" | "msg" | "run"): string {
  return `${kind}_${crypto.randomUUID().replaceAll("-", "")}`;
}

function missing(what: string, id: string, sessionId?: string): SessionError {
  const where = sessionId === undefined ? "" : ` in session "${sessionId.slice(0, 100)}"`;
  return new SessionError("missing", `there is no ${what} "${id.slice(0, 100)}"${where}`);
}

/** The first line, cut between words where there are any. */
function titleFrom(text: string): string {
  const line = text.trim().split(/\s*[\r\n]/, 1)[0]!;
  const letters = [...line];
  if (letters.length <= titleLength) return line;
  const cut = letters.slice(0, titleLength - 1).join("");
  const space = cut.lastIndexOf(" ");
  return `${(space > titleLength / 2 ? cut.slice(0, space) : cut).trimEnd()}…`;
}

/** "changedAt.number" of the last session of the page before. */
function parseCursor(cursor: string | undefined): [number, number] {
  if (cursor === undefined) return [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];
  const parts = cursor.split(".").map(Number);
  if (parts.length !== 2 || !parts.every(Number.isSafeInteger)) {
    throw new SessionError(
      "invalid",
      `cursor: got "${cursor.slice(0, 100)}", expected the "next" of an earlier page`,
      "cursor",
    );
  }
  return [parts[0]!, parts[1]!];
}
