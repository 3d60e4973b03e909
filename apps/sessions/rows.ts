// Converts database rows to the objects of session.ts, and lists the columns for that. No other file reads a row.

import type * as z from "zod";
import type { StopReason } from "../../src/index.ts";
import type { SqlRow } from "../../src/platform/database.ts";
import type {
  Message,
  MessageRole,
  MessageState,
  MessageTimings,
  MessageTokens,
  Session,
  SessionMode,
  ToolCall,
} from "./session.ts";
import { type SessionSettings, settingsSchema } from "./settings.ts";
import { callsSchema, timingsSchema, tokensSchema } from "./statistics.ts";

/** Columns of `sessions AS s` that toSession reads. */
export const sessionColumns: string = `s.id, s.title, s.mode, s.model, s.settings, s.created_at, s.changed_at,
  (SELECT id FROM messages WHERE number = s.leaf) AS leaf,
  (SELECT count(*) FROM messages WHERE session = s.number) AS message_count`;

/** Columns of `messages AS m` that toMessage reads. */
export const messageColumns: string = `m.id, (SELECT id FROM messages WHERE number = m.parent) AS parent, m.role, m.content, m.reasoning, m.calls, m.state,
  m.created_at, m.changed_at, m.model, m.stop_reason, m.error, m.tokens, m.timings`;

export function toSession(row: SqlRow): Session {
  return {
    id: row.id as string,
    title: row.title as string,
    mode: row.mode as SessionMode,
    model: row.model as string | null,
    settings: readSettings(row.settings) ?? {},
    createdAt: row.created_at as number,
    changedAt: row.changed_at as number,
    leaf: row.leaf as string | null,
    messageCount: row.message_count as number,
  };
}

export function toMessage(row: SqlRow): Message {
  return {
    id: row.id as string,
    parent: row.parent as string | null,
    role: row.role as MessageRole,
    content: row.content as string,
    reasoning: row.reasoning as string | null,
    calls: readCalls(row.calls) ?? [],
    state: row.state as MessageState,
    createdAt: row.created_at as number,
    changedAt: row.changed_at as number,
    model: row.model as string | null,
    stopReason: row.stop_reason as StopReason | null,
    error: row.error as string | null,
    tokens: readTokens(row.tokens) ?? null,
    timings: readTimings(row.timings) ?? null,
  };
}

/** undefined: unreadable; null: none. */
export function readCalls(text: SqlRow[string] | undefined): ToolCall[] | null | undefined {
  return parsed(callsSchema, text);
}

export function callsJson(calls: readonly ToolCall[]): string | null {
  return calls.length === 0 ? null : JSON.stringify(calls);
}

export function toJson(value: object | null): string | null {
  return value === null ? null : JSON.stringify(value);
}

/** undefined: unreadable. set-aside.ts repairs such rows; in a read-only file they are left out. */
export function readSettings(text: SqlRow[string] | undefined): SessionSettings | undefined {
  return parsed(settingsSchema, text) ?? undefined;
}

/** undefined: unreadable; null: none. */
export function readTokens(text: SqlRow[string] | undefined): MessageTokens | null | undefined {
  return parsed(tokensSchema, text);
}

export function readTimings(text: SqlRow[string] | undefined): MessageTimings | null | undefined {
  return parsed(timingsSchema, text);
}

function parsed<T>(schema: z.ZodType<T>, text: SqlRow[string] | undefined): T | null | undefined {
  if (text === null || text === undefined) return null;
  try {
    return schema.safeParse(JSON.parse(String(text))).data;
  } catch {
    return undefined;
  }
}
