// SQL statements for one message or one path of a tree. Only store.ts calls them, inside its transactions. Ids become
// row numbers here; an unknown id is refused.

import type { StopReason } from "../../src/index.ts";
import type { Database } from "../../src/platform/database.ts";
import { callsJson, messageColumns, toJson, toMessage } from "./rows.ts";
import {
  type Message,
  type MessageState,
  type MessageTimings,
  type MessageTokens,
  SessionError,
  type ToolCall,
} from "./session.ts";

/** The content of an answer. */
export interface AnswerText {
  content: string;
  reasoning: string | null;
  calls: ToolCall[];
  /** The model's raw output, if that is more than the content: a later run continues it. */
  raw: string | null;
}

/** The end of an answer. */
export interface MessageEnd extends AnswerText {
  state: Exclude<MessageState, "streaming">;
  stopReason: StopReason | null;
  error: string | null;
  tokens: MessageTokens | null;
  timings: MessageTimings | null;
}

export function sessionNumber(database: Database, id: string): number {
  const row = database.get("SELECT number FROM sessions WHERE id = ?", id);
  if (!row) throw missing("session", id);
  return row.number as number;
}

/** The row number of a message of this session; a message of another session counts as unknown. */
export function messageNumber(database: Database, sessionId: string, id: string): number {
  const row = database.get(
    "SELECT number FROM messages WHERE session = ? AND id = ?",
    sessionNumber(database, sessionId),
    id,
  );
  if (!row) throw missing("message", id, sessionId);
  return row.number as number;
}

/** From the first message down to this one. */
export function pathTo(database: Database, sessionId: string, id: string): Message[] {
  return database
    .all(
      `WITH RECURSIVE up (number, parent, depth) AS (
         SELECT number, parent, 0 FROM messages WHERE number = ?
         UNION ALL
         SELECT m.number, m.parent, depth + 1 FROM messages m JOIN up ON m.number = up.parent
       )
       SELECT ${messageColumns} FROM up JOIN messages m ON m.number = up.number ORDER BY depth DESC`,
      messageNumber(database, sessionId, id),
    )
    .map(toMessage);
}

/** Follows the newest child down to the end. Children have higher numbers than their parents. */
export function newestBelow(database: Database, sessionId: string, id: string): string {
  const row = database.get(
    `WITH RECURSIVE down (number) AS (
       SELECT ?
       UNION ALL
       SELECT (SELECT max(m.number) FROM messages m WHERE m.parent = down.number) FROM down
       WHERE down.number IS NOT NULL
     )
     SELECT id FROM messages WHERE number = (SELECT max(number) FROM down)`,
    messageNumber(database, sessionId, id),
  );
  return row!.id as string;
}

export function insertMessage(database: Database, session: number, message: Message): void {
  database.run(
    `INSERT INTO messages (id, session, parent, role, content, reasoning, calls, state, created_at, changed_at, model,
       stop_reason, error, tokens, timings)
     VALUES (?, ?, (SELECT number FROM messages WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    message.id,
    session,
    message.parent,
    message.role,
    message.content,
    message.reasoning,
    callsJson(message.calls),
    message.state,
    message.createdAt,
    message.changedAt,
    message.model,
    message.stopReason,
    message.error,
    toJson(message.tokens),
    toJson(message.timings),
  );
}

/** Saves the text of an answer. */
export function writeMessage(
  database: Database,
  id: string,
  { content, reasoning, calls, raw }: AnswerText,
  now: number,
): void {
  database.run(
    "UPDATE messages SET content = ?, reasoning = ?, calls = ?, raw = ?, changed_at = ? WHERE id = ?",
    content,
    reasoning,
    callsJson(calls),
    raw,
    now,
    id,
  );
}

export function finishMessage(database: Database, id: string, end: MessageEnd, now: number): void {
  writeMessage(database, id, end, now);
  database.run(
    `UPDATE messages SET state = ?, stop_reason = ?, error = ?, tokens = ?, timings = ? WHERE id = ?`,
    end.state,
    end.stopReason,
    end.error,
    toJson(end.tokens),
    toJson(end.timings),
    id,
  );
  database.run(
    `UPDATE sessions SET changed_at = ? WHERE number = (SELECT session FROM messages WHERE id = ?)`,
    now,
    id,
  );
}

/** Marks an answer as being written again. */
export function resumeMessage(database: Database, id: string, model: string, now: number): void {
  database.run(
    `UPDATE messages SET state = 'streaming', model = ?, stop_reason = NULL, error = NULL, changed_at = ? WHERE id = ?`,
    model,
    now,
    id,
  );
}

/** Removes a message without children; a session whose current message it was moves to its parent. */
export function removeMessage(database: Database, id: string): void {
  database.run(
    `UPDATE sessions SET leaf = (SELECT parent FROM messages WHERE id = ?)
     WHERE leaf = (SELECT number FROM messages WHERE id = ?)`,
    id,
    id,
  );
  database.run(
    `DELETE FROM messages WHERE id = ? AND NOT EXISTS (SELECT 1 FROM messages c WHERE c.parent = messages.number)`,
    id,
  );
}

/** Aborts answers that were being written when the last process ended. */
export function abortInterrupted(database: Database): void {
  const empty = database.all(
    `SELECT m.id FROM messages m JOIN sessions s ON s.number = m.session
     WHERE m.state = 'streaming' AND m.content = '' AND s.mode = 'story'`,
  );
  for (const { id } of empty) removeMessage(database, id as string);
  database.run("UPDATE messages SET state = 'aborted' WHERE state = 'streaming'");
}

export function missing(what: string, id: string, sessionId?: string): SessionError {
  const where = sessionId === undefined ? "" : ` in session "${sessionId.slice(0, 100)}"`;
  return new SessionError("missing", `there is no ${what} "${id.slice(0, 100)}"${where}`);
}
