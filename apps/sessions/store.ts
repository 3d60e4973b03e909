// The store: sessions and their messages in a database. Every method that changes something is one transaction, which
// is on disk when it returns.
//
// It starts no generation and knows no model: runs.ts calls it to begin answers, to save them while they grow, and to
// finish them. Ids come from clients and may not exist.

import {
  type Database,
  migrateDatabase,
  notWritable,
  StorageError,
} from "../../src/platform/database.ts";
import { type CallEnd, endedCalls } from "./calls.ts";
import { newId, parseCursor, titleFrom } from "./ids.ts";
import { endReplaced, listReplaced, noteRemains, noteReplaced, type Replaced } from "./replaced.ts";
import { messageColumns, sessionColumns, toMessage, toSession } from "./rows.ts";
import { sessionsKind } from "./schema.ts";
import { type SearchHit, searchDatabase } from "./search.ts";
import { SearchIndex } from "./search-index.ts";
import type { Message, MessageRole, MessageState, Session, SessionMode } from "./session.ts";
import {
  findingOf,
  findUnsound,
  keepFindings,
  listSetAside,
  type SetAsideItem,
  setAsideBadRows,
} from "./set-aside.ts";
import { changeSettings, type SessionSettings, type SettingsChange } from "./settings.ts";
import {
  type AnswerText,
  abortInterrupted,
  finishMessage,
  insertMessage,
  type MessageEnd,
  messageNumber,
  missing,
  newestBelow,
  pathTo,
  removeMessage,
  resumeMessage,
  sessionNumber,
  writeMessage,
} from "./tree.ts";

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
  /** Make this the current message; null: before the first. */
  leaf?: string | null;
  /** Make the newest message at or below this one current: switches to a branch. */
  branch?: string;
}

export interface SessionPage {
  sessions: Session[];
  /** Pass it back to get the next page; null on the last page. */
  next: string | null;
}

export interface NewMessage {
  role: MessageRole;
  content: string;
  state?: MessageState;
  model?: string | null;
}

/** The start of a run: the person's message, if there is one, and the answers below it. */
export interface Begun {
  user: Message | null;
  answers: Message[];
}

export class SessionStore {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #index: SearchIndex;
  /** Depth of nested transactions. */
  #depth = 0;
  #rebuilt = false;
  /** false: the work before the first change has failed. */
  #isReady = true;
  /** Damage of the files that is not in the table yet. */
  #findings: ReturnType<typeof findingOf>[];
  readonly #closed = new AbortController();

  /** Takes over the database. Answers that were being written when the last process ended become "aborted". */
  constructor(database: Database, options: { now?: () => number } = {}) {
    this.#database = database;
    this.#now = options.now ?? Date.now;
    this.#index = new SearchIndex(database, this.#closed.signal);
    const mended = migrateDatabase(database, sessionsKind);
    const { place, findings } = database;
    this.#findings = [...findings, ...mended].map((why) => findingOf(place, why));
    if (!database.writable) {
      this.#findings.push(...findUnsound(database).map(({ item }) => item));
      return;
    }
    this.#isReady = false;
    try {
      this.#makeReady();
    } catch (error) {
      // The store can be read, and the first change that finds room on the disk does this before.
      if (!(error instanceof StorageError && error.problem === "full")) throw error;
    }
  }

  /** Finishes the work that the last process left, and records damage. */
  #makeReady(): void {
    this.#isReady = true;
    try {
      const unsound = findUnsound(this.#database);
      if (this.#index.isDamaged()) this.#rebuildIndex();
      this.#write(() => {
        deleteUnfinishedImports(this.#database);
        keepFindings(this.#database, this.#findings, this.#now());
        setAsideBadRows(this.#database, this.#now(), unsound);
        abortInterrupted(this.#database);
      });
      this.#findings = [];
    } catch (error) {
      this.#isReady = false;
      throw error;
    }
  }

  /** Its path, for messages. */
  get place(): string {
    return this.#database.place;
  }

  get writable(): boolean {
    return this.#database.writable;
  }

  close(): void {
    this.#closed.abort();
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

  /** The most recently changed first. */
  sessions(options: { limit?: number; cursor?: string } = {}): SessionPage {
    const { limit = 50, cursor } = options;
    const [changedAt, number] = parseCursor(cursor);
    const rows = this.#database.all(
      `SELECT s.number, ${sessionColumns} FROM sessions s
       WHERE (s.changed_at, s.number) < (?, ?) AND s.number NOT IN (SELECT session FROM imports)
       ORDER BY s.changed_at DESC, s.number DESC LIMIT ?`,
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
      if (change.branch !== undefined)
        this.#setLeaf(id, newestBelow(this.#database, id, change.branch));
      const { title, model, settings } = change;
      if (title === undefined && model === undefined && settings === undefined) {
        return this.session(id); // switching branches is no change
      }
      this.#database.run(
        `UPDATE sessions SET title = ?1, model = ?2, model_file = iif(model IS ?2, model_file, NULL),
           settings = ?3, changed_at = ?4 WHERE id = ?5`,
        title ?? before.title,
        model === undefined ? before.model : model,
        JSON.stringify(changeSettings(before.settings, settings ?? {})),
        this.#now(),
        id,
      );
      const after = this.session(id);
      const hadText = before.title !== "" || Object.keys(before.settings).length > 0;
      if (hadText && (title !== undefined || settings !== undefined)) {
        noteReplaced(this.#database, "session", id);
      }
      // All of its computed state begins with text that is gone now.
      if (after.settings.systemPrompt !== before.settings.systemPrompt) this.#forget(id);
      return after;
    });
  }

  /** The model that answers in a session, by its name and its file. This does not count as a change of the session. */
  rememberModel(id: string, name: string, file: string | undefined): void {
    const isSame = this.session(id).model === name;
    if (isSame && (file === undefined || this.modelFile(id) === file)) return;
    this.#write(() =>
      this.#database.run(
        "UPDATE sessions SET model = ?, model_file = ? WHERE id = ?",
        name,
        file ?? null,
        id,
      ),
    );
  }

  /**
   * The path of a session's model file at its last answer; undefined: not known. It is a path of this machine, so it is
   * neither shown nor exported, and no request can set it.
   */
  modelFile(id: string): string | undefined {
    const row = this.#database.get("SELECT model_file FROM sessions WHERE id = ?", id);
    return (row?.model_file as string | null | undefined) ?? undefined;
  }

  /** Deletes a session for all readers; purge.ts removes the other copies. */
  deleteSession(id: string): void {
    this.#write(() => {
      this.#remove(id);
      this.#forget(id);
      noteReplaced(this.#database, "session", id);
      this.#database.run("DELETE FROM set_aside WHERE session = ?", id);
    });
  }

  /** Deletes the rows that an import has added so far. They were never visible, and a backup that they may come from keeps them. */
  abandonImport(id: string): void {
    this.#write(() => {
      this.#remove(id);
      noteRemains(this.#database);
    });
  }

  /** Removes deleted data from the search index, the free bytes of the file and the log, with pauses; also data left by an earlier process. */
  async purgeDeleted(): Promise<void> {
    await this.#index.purge();
  }

  /** Conversations with deleted or replaced parts, of which there may be copies elsewhere. */
  forgotten(): string[] {
    const rows = this.#database.all("SELECT conversation FROM forgotten");
    return rows.map(({ conversation }) => String(conversation));
  }

  /** Records that there may be copies of deleted parts of this one. */
  forgetCopies(id: string): void {
    this.#write(() => this.#forget(id));
  }

  /** Items of which backups still have the old state. */
  replaced(): Replaced[] {
    return listReplaced(this.#database);
  }

  /** Records that these copies are gone. */
  endForgetting(conversations: readonly string[], replaced: readonly Replaced[]): void {
    this.#write(() => {
      for (const one of replaced) endReplaced(this.#database, one);
      for (const id of conversations) {
        this.#database.run("DELETE FROM forgotten WHERE conversation = ?", id);
      }
    });
  }

  search(query: string, limit: number = 20): SearchHit[] {
    return this.#withIndex(() => searchDatabase(this.#database, query, limit));
  }

  /** Damage that was found: rows in their original form, and errors of the files. */
  setAside(): SetAsideItem[] {
    const at = this.#now();
    const found = this.#findings.map((item) => ({ ...item, number: 0, at, restored: 0 }));
    return [...listSetAside(this.#database), ...found];
  }

  forgetSetAside(): void {
    this.#write(() => {
      this.#database.run("DELETE FROM set_aside");
      noteRemains(this.#database);
    });
  }

  /** The time of the first damage that no backup has made good; undefined: there is none. */
  damagedSince(): number | undefined {
    const times = this.setAside().flatMap(({ at, restored }) => (restored === 1 ? [] : [at]));
    return times.length === 0 ? undefined : Math.min(...times);
  }

  /** Records that a backup has made good all damage until now. */
  noteRestored(): void {
    this.#write(() => this.#database.run("UPDATE set_aside SET restored = 1"));
  }

  // --- messages

  /** The whole tree, parents before their children. */
  messages(sessionId: string): Message[] {
    const number = sessionNumber(this.#database, sessionId);
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
    return id === null ? [] : pathTo(this.#database, sessionId, id);
  }

  /** Adds a finished message and makes it the current one. */
  addMessage(sessionId: string, parent: string | null, message: NewMessage): Message {
    return this.#write(() => {
      const added = this.#insert(sessionId, parent, message);
      this.#afterMessages(sessionId, added.id, message.content);
      return added;
    });
  }

  /**
   * Adds the person's message (none: an answer to `parent` itself) and `count` empty answers below it, all or
   * nothing. The first answer becomes the current message.
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

  /** Reopens an ended answer, to be continued by this model, and makes it the current message. */
  resume(sessionId: string, id: string, model: string): Begun {
    return this.#write(() => {
      resumeMessage(this.#database, id, model, this.#now());
      this.#afterMessages(sessionId, id, "");
      return { user: null, answers: [this.message(sessionId, id)] };
    });
  }

  /**
   * Saves the text of running answers, the ends of others, and removes empty ones, in one transaction. A message
   * that was deleted meanwhile stays deleted.
   */
  saveAnswers(
    running: readonly { id: string; text: AnswerText }[],
    ended: readonly { id: string; end: MessageEnd }[],
    empty: readonly string[] = [],
  ): void {
    const now = this.#now();
    this.#write(() => {
      for (const { id, text } of running) writeMessage(this.#database, id, text, now);
      for (const { id, end } of ended) finishMessage(this.#database, id, end, now);
      for (const id of empty) removeMessage(this.#database, id);
    });
  }

  /** The model's raw output of an answer, if it is more than the content. */
  rawText(id: string): string | null {
    const row = this.#database.get("SELECT raw FROM messages WHERE id = ?", id);
    return (row?.raw as string | null | undefined) ?? null;
  }

  /** The result of a call, which is given once. */
  endCall(sessionId: string, id: string, call: string, end: CallEnd): Message {
    return this.#write(() => {
      const calls = endedCalls(this.message(sessionId, id), call, end);
      const now = this.#now();
      this.#database.run(
        "UPDATE messages SET calls = ?, changed_at = ? WHERE id = ?",
        JSON.stringify(calls),
        now,
        id,
      );
      this.#database.run("UPDATE sessions SET changed_at = ? WHERE id = ?", now, sessionId);
      return this.message(sessionId, id);
    });
  }

  /**
   * Starts an import of a conversation (checked by exchange.ts), which is written in several pieces. It is invisible
   * until the last piece, and deleted if that never comes. Parents come before their children.
   */
  beginImport(session: Omit<Session, "messageCount">): void {
    this.#write(() => {
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
      const number = sessionNumber(this.#database, session.id);
      this.#database.run("INSERT INTO imports (session) VALUES (?)", number);
    });
  }

  addImported(sessionId: string, messages: readonly Message[]): void {
    this.#write(() => {
      const number = sessionNumber(this.#database, sessionId);
      for (const message of messages) insertMessage(this.#database, number, message);
    });
  }

  endImport(sessionId: string, leaf: string | null): Session {
    return this.#write(() => {
      this.#setLeaf(sessionId, leaf);
      const number = sessionNumber(this.#database, sessionId);
      this.#database.run("DELETE FROM imports WHERE session = ?", number);
      return this.session(sessionId);
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

  #remove(id: string): void {
    const number = sessionNumber(this.#database, id);
    this.#database.run("DELETE FROM messages WHERE session = ?", number);
    this.#database.run("DELETE FROM sessions WHERE number = ?", number);
    this.#database.run("DELETE FROM imports WHERE session = ?", number);
  }

  #forget(id: string): void {
    this.#database.run("INSERT OR IGNORE INTO forgotten (conversation) VALUES (?)", id);
  }

  #insert(sessionId: string, parent: string | null, wanted: NewMessage): Message {
    const session = sessionNumber(this.#database, sessionId);
    if (parent !== null) messageNumber(this.#database, sessionId, parent); // throws if it is not a message of this session
    const now = this.#now();
    const message: Message = {
      id: newId("msg"),
      parent,
      role: wanted.role,
      content: wanted.content,
      reasoning: null,
      calls: [],
      state: wanted.state ?? "complete",
      createdAt: now,
      changedAt: now,
      model: wanted.model ?? null,
      stopReason: null,
      error: null,
      tokens: null,
      timings: null,
    };
    insertMessage(this.#database, session, message);
    return message;
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
    const number = leaf === null ? null : messageNumber(this.#database, sessionId, leaf);
    this.#database.run("UPDATE sessions SET leaf = ? WHERE id = ?", number, sessionId);
  }

  #write<T>(work: () => T): T {
    if (!this.#database.writable) throw notWritable(this.#database, "conversations");
    if (!this.#isReady) this.#makeReady();
    return this.#withIndex(() => {
      this.#depth++;
      try {
        return this.#database.transaction(work);
      } finally {
        this.#depth--;
      }
    });
  }

  /** Runs work that uses the search index. If the index is damaged, it is rebuilt once and the work is repeated. */
  #withIndex<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      const isDamage = error instanceof StorageError && error.problem === "corrupt";
      if (!isDamage || !this.writable || this.#depth > 0 || this.#rebuilt) throw error;
      this.#rebuildIndex(); // also fails if more than the index is damaged
      return work();
    }
  }

  #rebuildIndex(): void {
    this.#rebuilt = true;
    this.#index.rebuild();
  }
}

/** Deletes the rows of imports that a killed process has left. */
function deleteUnfinishedImports(database: Database): void {
  database.run("DELETE FROM messages WHERE session IN (SELECT session FROM imports)");
  database.run("DELETE FROM sessions WHERE number IN (SELECT session FROM imports)");
  database.run("DELETE FROM imports");
}
