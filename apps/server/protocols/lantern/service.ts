// What the routes of /lantern/v1 share: the sessions, the model that answers in them, their fields and their errors.
// The routes are in sessions.ts and runs.ts; docs/use/sessions.md lists them.

import * as z from "zod";
import { unknownName } from "../../../../src/base/options.ts";
import {
  AnswerReader,
  type ChatMessage,
  type GenerateOptions,
  words,
} from "../../../../src/index.ts";
import {
  type Database,
  StorageError,
  type StorageProblem,
} from "../../../../src/platform/database.ts";
import { type Backups, noBackup } from "../../../sessions/backups.ts";
import {
  type ChatPrompt,
  type ChatPromptOptions,
  type RunModel,
  tooLong,
} from "../../../sessions/prompt.ts";
import type { Run } from "../../../sessions/run.ts";
import { type Session, SessionError, type SessionProblem } from "../../../sessions/session.ts";
import type { SessionStore } from "../../../sessions/store.ts";
import { readJson } from "../../body.ts";
import { templateDefaults, thinking } from "../../chat-fields.ts";
import { noToolUse } from "../../chat-tools.ts";
import { chatTurn } from "../../chat-turn.ts";
import { startCompletion } from "../../completion.ts";
import type { ServedModel, ServerContext } from "../../context.ts";
import {
  ApiError,
  type ApiErrorFacts,
  describeError,
  invalidRequest,
  modelNotFound,
  unsupportedField,
} from "../../errors.ts";
import type { Held } from "../../held.ts";
import type { Call, Route } from "../../route.ts";
import { samplingOf } from "../../sampling-fields.ts";
import { type OpenedSessions, type SessionService, sessionsOpener } from "../../session-service.ts";

/** The current service: one that could not be written or opened is opened again at each request. */
export function sessionService(
  held: Held<OpenedSessions>,
  backups: Backups | undefined,
): SessionService {
  return {
    get saved() {
      return held.now().saved;
    },
    get hidden() {
      return held.now().hidden;
    },
    get presets() {
      return held.now().presets;
    },
    get notice() {
      return held.problem ? withoutFolders(held.problem.message) : null;
    },
    get remark() {
      const copies = backups?.otherCopies() ?? [];
      if (copies.length === 0) return null;
      const names = copies.map((path) => withoutFolders(`"${path}"`)).join(", ");
      return `copies of a damaged database may still have it, from which Lantern deletes nothing: ${names}. Delete them when you no longer need them`;
    },
    backup({ isNeeded } = { isNeeded: false }) {
      if (held.problem?.problem === "corrupt") return backups?.offer() ?? null;
      const since = held.now().saved.store.damagedSince();
      return isNeeded && since === undefined ? null : (backups?.offer(since) ?? null);
    },
    async restore() {
      if (!backups) throw noBackup();
      let movedTo: string | null = null;
      if (held.problem?.problem === "corrupt") {
        if (!backups.offer()) throw noBackup();
        movedTo = backups.moveAside();
      }
      const { saved, presets } = movedTo === null ? held.now() : held.again();
      const restored = await backups.restore(saved.store, presets);
      return { ...restored, movedTo: movedTo && withoutFolders(`"${movedTo}"`).slice(1, -1) };
    },
    of: (session) => held.now().of(session),
    withRun: (run) => held.now().withRun(run),
  };
}

/** Makes the service over a database: apps/server/session-service.ts. */
export function openSessionsOf(
  server: ServerContext,
  backups: Backups | undefined,
): (database: Database) => OpenedSessions {
  const describe = (error: unknown): string =>
    describeError(toApiError(error), (bug) => server.log(String(bug))).message;
  return sessionsOpener(server, describe, backups);
}

/** Turns a handler's errors into the server's. */
export function guarded(routes: readonly Route[]): Route[] {
  return routes.map((route) => ({
    ...route,
    async handle(call) {
      try {
        return await route.handle(call);
      } catch (error) {
        if (error instanceof StorageError) call.server.log(error.message);
        throw toApiError(error);
      }
    },
  }));
}

const sessionStatus: Readonly<Record<SessionProblem, { status: number; code: string }>> = {
  missing: { status: 404, code: "not_found" },
  conflict: { status: 409, code: "run_in_progress" },
  waiting: { status: 409, code: "calls_waiting" },
  invalid: { status: 400, code: "invalid_value" },
};

const storageStatus: Readonly<Record<StorageProblem, number>> = {
  full: 507,
  busy: 503,
  corrupt: 503,
  "read-only": 503,
  newer: 503,
  foreign: 503,
  failed: 503,
};

function toApiError(error: unknown): unknown {
  if (error instanceof SessionError) {
    const facts: ApiErrorFacts = {
      ...sessionStatus[error.problem],
      type: "invalid_request_error",
      param: error.param,
      message: error.message,
    };
    return new ApiError(facts, { cause: error });
  }
  if (error instanceof StorageError) {
    const facts: ApiErrorFacts = {
      status: storageStatus[error.problem],
      type: "server_error",
      code: `storage_${error.problem.replace("-", "_")}`,
      param: null,
      message: withoutFolders(error.message),
    };
    return new ApiError(facts, { cause: error });
  }
  return error;
}

/** The log has the full path; a client learns only the file's name. */
function withoutFolders(message: string): string {
  return message.replaceAll(/"(?! )[^"]*[\\/]([^"\\/]+)"/g, '"$1"');
}

/** The fields of a body. Unlike in the other families, null is a value here: `{ "leaf": null }`. */
export async function bodyFields<T>(call: Call, schema: z.ZodType<T>): Promise<T> {
  return checked(schema, await readJson(call));
}

/** The query parameters, as text. */
export function queryFields<T>(call: Call, schema: z.ZodType<T>): T {
  return checked(schema, Object.fromEntries(call.url.searchParams));
}

function checked<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  if (issue.code === "unrecognized_keys") {
    const name = [...issue.path.map(String), issue.keys[0]!.slice(0, 200)].join(".");
    const isTop = issue.path.length === 0 && schema instanceof z.ZodObject;
    const known = isTop ? Object.keys(schema.shape) : [];
    throw invalidRequest(unknownName("field", name, known), name, "unknown_parameter");
  }
  const path = issue.path.map(String).join(".");
  const where = path === "" ? "the body" : `"${path}"`;
  const what = issue.message.replace(/^Invalid input: /, "");
  throw invalidRequest(`${where}: ${what}`, path === "" ? null : path, "invalid_type");
}

/**
 * The model of a session: the one of its name, or the one with its last file. It is loaded again if it is not served
 * any more. A session without a model gets that of its page, and a chat one that can chat.
 */
export async function sessionModel(
  { models, settings }: ServerContext,
  store: SessionStore,
  { id, model, mode }: Session,
): Promise<ServedModel> {
  const served = models.lasting;
  if (model === null) {
    const page = settings.pages[mode];
    const writing = served.list().filter((one) => one.model.info.generates);
    const canChat = writing.find((one) => one.model.info.hasChatTemplate);
    const chosen = page === undefined ? undefined : served.lookUp(page);
    const found = chosen ?? (mode === "chat" ? canChat : undefined) ?? writing[0];
    return served.findExact((await models.obtain(found?.id)).id);
  }
  const file = store.modelFile(id);
  const found = served.lookUp(model) ?? (await servedFrom(served, file));
  if (found || (await models.isKnown(model))) {
    return served.findExact((await models.obtain(found?.id ?? model)).id);
  }
  try {
    if (!served.loader) throw modelNotFound(model, []);
    await served.loader.serve(model, file);
    return served.findExact(model);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const why = withoutFolders(error.message).split(/\. (?=[A-Z])/, 1)[0]!; // its advice is for other cases
    const others = served.list().map((one) => one.id);
    const message = `${notLoaded(model, file)}: ${why}. ${whatToDo(others)}`;
    throw new ApiError({ ...error.facts, message }, { cause: error });
  }
}

function whatToDo(others: readonly string[]): string {
  const loaded = others.length > 0 ? ` (loaded: ${others.join(", ")})` : "";
  return `Load it on the Models page, or choose another model for the conversation${loaded}. Nothing of it is lost`;
}

function notLoaded(model: string, file: string | undefined): string {
  const name = file?.split(/[\\/]/).findLast((part) => part !== "");
  return `this conversation is held with ${model}${name === undefined ? "" : ` (${name})`}, which is not loaded`;
}

async function servedFrom(
  models: ServerContext["models"],
  file: string | undefined,
): Promise<ServedModel | undefined> {
  if (file === undefined || !models.loader) return undefined;
  for (const one of models.list()) {
    if ((await models.loader.locate(one.id)) === file) return one;
  }
  return undefined;
}

/** The prompt, and the reader of the answer. */
async function chatPrompt(
  { settings }: ServerContext,
  served: ServedModel,
  messages: readonly ChatMessage[],
  { tools, thinking: wanted, schema }: ChatPromptOptions,
): Promise<ChatPrompt> {
  const given = tools.map(({ server: _, ...tool }) => ({
    type: "function" as const,
    function: tool,
  }));
  const last = messages.at(-1);
  if (last?.role === "assistant" && schema !== undefined) {
    throw unsupportedField(
      "message",
      "an answer that is held to a JSON schema cannot be continued. Ask for another one",
    );
  }
  const { tokens, plan, options } = await chatTurn(served, {
    messages,
    use: { ...noToolUse, tools: given, choice: "auto" },
    template: { variables: { ...templateDefaults(settings), ...thinking(wanted) } },
    param: "content",
    ...(schema !== undefined && {
      grammar: { source: { schema }, param: "settings.schema", triggers: [] },
    }),
    refuse: (count, room, _, qualifier) => tooLong({ ...room, name: served.id }, count, qualifier),
    ...(last?.role === "assistant" && { begun: last.content }),
  });
  return { tokens, options, reader: plan && (() => new AnswerReader(plan)) };
}

/** The model that answers, with the server's queue and counters in between. `own`: the name under which state of the conversation is kept. */
export function runModel(
  call: Call,
  served: ServedModel,
  own: { conversation: string; cacheDisk: boolean },
): RunModel {
  const { server } = call;
  return {
    name: served.id,
    contextSize: served.model.info.contextSize,
    trainedContext: served.model.info.trainedContext,
    chatPrompt: (messages, options) => chatPrompt(server, served, messages, options),
    textTokens: (text) => served.model.tokenize(words(text)),
    checkCapacity: (count) => server.queue.checkCapacity(call.client, count),
    generate: (tokens, { signal, ...wanted }) => {
      const options: GenerateOptions = { ...samplingOf(server, served), ...wanted, ...own };
      // The run's own signal: the client that started it may leave.
      return startCompletion({ ...call, signal: signal! }, { served, tokens, options });
    },
  };
}

export function runView(run: Run): object {
  return {
    id: run.id,
    session: run.sessionId,
    model: run.modelName,
    messages: run.answers.map(({ messageId }) => messageId),
    state: run.endedAt === undefined ? "running" : "ended",
    warning: run.warning,
  };
}
