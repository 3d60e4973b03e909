// A conversation as a file: export and import as JSON, without loss, and export as Markdown for reading.
//
// An imported file may come from anywhere. All of it is checked before it is saved: its version, every field, that
// parents exist, that there is no cycle, that its size is reasonable. Ids are kept if they are free.

import * as z from "zod";
import { newId } from "./ids.ts";
import {
  type Message,
  messageRoles,
  messageStates,
  type Session,
  SessionError,
  sessionModes,
  stopReasons,
  type ToolCall,
} from "./session.ts";
import { settingsSchema } from "./settings.ts";
import { callsSchema, timingsSchema, tokensSchema } from "./statistics.ts";
import type { SessionStore } from "./store.ts";

const exchangeFormat = "lantern-session";
/** Version 1 had no reasoning and no calls. */
const exchangeVersion = 2;

export interface SessionFile {
  format: typeof exchangeFormat;
  version: typeof exchangeVersion;
  exportedAt: number;
  session: Omit<Session, "messageCount">;
  /** Parents before their children. */
  messages: Message[];
}

const exchangeLimits = { messages: 100_000, contentLength: 10_000_000 } as const;

const id = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "expected 1 to 64 letters, digits, _ or -");
const time = z.int().min(0).max(8.64e15); // the range of Date
const shortText = z.string().max(10_000);

const messageSchema = z.strictObject({
  id,
  parent: id.nullable(),
  role: z.enum(messageRoles),
  content: z.string().max(exchangeLimits.contentLength),
  reasoning: z.string().max(exchangeLimits.contentLength).nullable().default(null),
  calls: callsSchema.default([]),
  state: z.enum(messageStates),
  createdAt: time,
  changedAt: time,
  model: shortText.nullable(),
  stopReason: z.enum(stopReasons).nullable(),
  error: shortText.nullable(),
  tokens: tokensSchema.nullable(),
  timings: timingsSchema.nullable(),
});

const fileSchema = z.strictObject({
  format: z.literal(exchangeFormat),
  version: z.literal([1, exchangeVersion]),
  exportedAt: time,
  session: z.strictObject({
    id,
    title: shortText,
    mode: z.enum(sessionModes),
    model: shortText.nullable(),
    settings: settingsSchema,
    createdAt: time,
    changedAt: time,
    leaf: id.nullable(),
  }),
  messages: z.array(messageSchema).max(exchangeLimits.messages),
});

/** The same with messages only counted, not checked yet. */
const headSchema = fileSchema.extend({
  messages: z.array(z.unknown()).max(exchangeLimits.messages),
});

export function exportSession(
  store: SessionStore,
  sessionId: string,
  now: number = Date.now(),
): SessionFile {
  const { messageCount: _, ...session } = store.session(sessionId);
  return {
    format: exchangeFormat,
    version: exchangeVersion,
    exportedAt: now,
    session,
    messages: store.messages(sessionId),
  };
}

/** The longest time that other work waits during an import. */
const sliceMs = 10;

/** Yields to other work, if it has not done so for a while. */
function turns(): () => Promise<void> | undefined {
  let last = performance.now();
  return () => {
    if (performance.now() - last < sliceMs) return undefined;
    return new Promise((resolve) => {
      setTimeout(() => {
        last = performance.now();
        resolve();
      });
    });
  };
}

/** The running import of each store: two imports of the same file at once would find the same ids free. */
const underWay = new WeakMap<SessionStore, Promise<unknown>>();

/**
 * Checks a file and saves it as a session. If an id in it is taken, all ids are replaced: the session is a copy. It
 * works in slices, so that no running answer stalls.
 */
export async function importSession(store: SessionStore, file: unknown): Promise<Session> {
  const before = underWay.get(store) ?? Promise.resolve();
  const work = before.catch(() => {}).then(() => importOne(store, file));
  underWay.set(store, work);
  return await work;
}

async function importOne(store: SessionStore, file: unknown): Promise<Session> {
  const turn = turns();
  const { session, messages } = await checkFile(file, turn);
  const ordered = await parentsFirst(messages, turn);
  if (session.leaf !== null && !messages.some((message) => message.id === session.leaf)) {
    throw wrong("session.leaf", `"${session.leaf}" is not one of the messages`);
  }
  let taken = store.hasId(session.id);
  for (const { id } of messages) {
    taken ||= store.hasId(id);
    await turn();
  }
  const names = new Map<string, string>();
  if (taken) for (const { id } of messages) names.set(id, newId("msg"));
  const rename = (old: string | null): string | null => (old && names.get(old)) ?? old;
  const id = taken ? newId("ses") : session.id;
  store.beginImport({ ...session, id, leaf: null });
  try {
    await addAll(store, id, ordered, rename, turn);
    return store.endImport(id, rename(session.leaf));
  } catch (error) {
    store.abandonImport(id);
    throw error;
  }
}

/** Adds messages in batches that are written quickly. */
async function addAll(
  store: SessionStore,
  id: string,
  messages: readonly Message[],
  rename: (old: string | null) => string | null,
  turn: () => Promise<void> | undefined,
): Promise<void> {
  let count = 8;
  for (let from = 0; from < messages.length; ) {
    const some = messages.slice(from, from + count).map((message) => ({
      ...message,
      id: rename(message.id)!,
      parent: rename(message.parent),
      // Exported during an answer, which is not continued here.
      state: message.state === "streaming" ? ("aborted" as const) : message.state,
    }));
    const started = performance.now();
    store.addImported(id, some);
    from += count;
    count = performance.now() - started < sliceMs ? count * 2 : Math.ceil(count / 2);
    await turn();
  }
}

async function checkFile(
  file: unknown,
  turn: () => Promise<void> | undefined,
): Promise<z.infer<typeof fileSchema>> {
  const version = (file as { version?: unknown } | null)?.version;
  if (typeof version === "number" && version > exchangeVersion) {
    throw wrong(
      "version",
      `got ${version}, expected at most ${exchangeVersion}. Use a newer Lantern`,
    );
  }
  const messages = (file as { messages?: unknown } | null)?.messages;
  const whole = checked(headSchema, file, "");
  const list: z.infer<typeof messageSchema>[] = [];
  for (const [at, message] of (messages as unknown[]).entries()) {
    list.push(checked(messageSchema, message, `messages.${at}.`));
    await turn();
  }
  return { ...whole, messages: list };
}

function checked<T>(schema: z.ZodType<T>, value: unknown, prefix: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  throw wrong(`${prefix}${issue.path.join(".")}`.replace(/\.$/, ""), issue.message);
}

/** Sorts parents before their children, otherwise in the file's order. Refuses missing parents, cycles and duplicates. */
async function parentsFirst<M extends { id: string; parent: string | null }>(
  messages: readonly M[],
  turn: () => Promise<void> | undefined,
): Promise<M[]> {
  const byId = new Map(messages.map((message) => [message.id, message]));
  if (byId.size < messages.length) throw wrong("messages", "two of them have the same id");
  const done = new Set<string>();
  const ordered: M[] = [];
  for (const message of messages) {
    await turn();
    const above: M[] = [];
    const onTheWay = new Set<string>();
    for (let at: M | undefined = message; at && !done.has(at.id); ) {
      if (onTheWay.has(at.id)) throw wrong("messages", `"${at.id}" is its own ancestor`);
      onTheWay.add(at.id);
      above.push(at);
      if (at.parent === null) break;
      const parent: M | undefined = byId.get(at.parent);
      if (!parent)
        throw wrong("messages", `"${at.id}" has a parent "${at.parent}" that is missing`);
      at = parent;
    }
    for (const next of above.reverse()) {
      done.add(next.id);
      ordered.push(next);
    }
  }
  return ordered;
}

function wrong(field: string, message: string): SessionError {
  const where = field === "" ? "the file" : field;
  return new SessionError("invalid", `import: ${where}: ${message}. Nothing was imported`, where);
}

/** The session's current branch, for reading. */
export function exportMarkdown(store: SessionStore, sessionId: string): string {
  const session = store.session(sessionId);
  const path = store.path(sessionId, session.leaf);
  const title = `# ${oneLine(session.title) || "Untitled"}\n`;
  return `${title}\n${markdownBodies[session.mode](session, path)}\n`;
}

const markdownBodies: Readonly<
  Record<Session["mode"], (session: Session, path: readonly Message[]) => string>
> = {
  story: (_, path) => path.map(({ content }) => content).join(""),
  chat: ({ settings }, path) =>
    [
      ...(settings.systemPrompt ? [`**System**\n\n${settings.systemPrompt}`] : []),
      ...path.map(turnText),
    ].join("\n\n---\n\n"),
};

function turnText({ role, content, reasoning, calls, model, state }: Message): string {
  const who = role === "user" ? "User" : model ? `Assistant (${oneLine(model)})` : "Assistant";
  const how = state === "complete" ? "" : ` (${state})`;
  const parts = [
    `**${who}**${how}`,
    ...(reasoning === null ? [] : [quoted(`Reasoning:\n\n${reasoning}`)]),
    ...(content === "" ? [] : [content]),
    ...calls.map(callText),
  ];
  return parts.join("\n\n");
}

function callText({ name, arguments: text, state, result }: ToolCall): string {
  const call = `**Call of ${oneLine(name)}** (${state})\n\n${fenced(text)}`;
  return result === null ? call : `${call}\n\n${fenced(result)}`;
}

function quoted(text: string): string {
  return text.replaceAll(/^/gm, "> ");
}

/** In a fence that the text cannot close. */
function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, " ").trim();
}
