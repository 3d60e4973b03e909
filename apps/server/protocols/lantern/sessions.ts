// Conversations over HTTP: sessions, their trees of messages, search, export and import. This file has the paths and
// fields; apps/sessions does the work.

import * as z from "zod";
import { messageOf } from "../../../../src/base/errors.ts";
import type { BackupFiles } from "../../../../src/platform/database.ts";
import { Backups, restoredText, withOffer } from "../../../sessions/backups.ts";
import { exportMarkdown, exportSession, importSession } from "../../../sessions/exchange.ts";
import type { RunModel } from "../../../sessions/prompt.ts";
import type { AskRequest } from "../../../sessions/runs.ts";
import {
  callStates,
  messageRoles,
  type Session,
  SessionError,
  sessionModes,
} from "../../../sessions/session.ts";
import { settingsChangeSchema, settingsSchema } from "../../../sessions/settings.ts";
import type { SessionStore } from "../../../sessions/store.ts";
import { summarise } from "../../../sessions/summary.ts";
import { readJson } from "../../body.ts";
import type { ServedModel, ServerContext } from "../../context.ts";
import { openaiErrors } from "../../errors.ts";
import { Held, type OpenDatabase } from "../../held.ts";
import { type Call, json, type OpenedFamilies, type Route, type RouteFamily } from "../../route.ts";
import type { SessionService, Shelf } from "../../session-service.ts";
import { runRoutes } from "./runs.ts";
import {
  bodyFields,
  guarded,
  openSessionsOf,
  queryFields,
  runModel,
  runView,
  sessionModel,
  sessionService,
} from "./service.ts";

/**
 * Cost allowed for the values of an imported conversation (json-reader.ts): a body of 16 MB has about 35,000 messages.
 */
const importBudget = 5_000_000;

const title = z.string().max(500);
const model = z.string().min(1).max(500).nullable();
const id = z.string().min(1).max(64);

const newSession = z.strictObject({
  /** Never written to a disk. */
  private: z.boolean().default(false),
  title: title.exactOptional(),
  mode: z.enum(sessionModes).exactOptional(),
  model: model.exactOptional(),
  settings: settingsSchema.exactOptional(),
});

const sessionChange = z.strictObject({
  title: title.exactOptional(),
  model: model.exactOptional(),
  settings: settingsChangeSchema.exactOptional(),
  leaf: id.nullable().exactOptional(),
  branch: id.exactOptional(),
});

const asked = {
  parent: id.nullable().exactOptional(),
  content: z.string().min(1).exactOptional(),
  settings: settingsChangeSchema.exactOptional(),
};

const newMessage = z.strictObject({
  ...asked,
  regenerate: z.boolean().exactOptional(),
  /** "assistant": an answer written by hand. */
  role: z.enum(messageRoles).exactOptional(),
  /** false: save it, and answer later. */
  generate: z.boolean().exactOptional(),
});

/** The result of a call, or its refusal. */
const callEnd = z.strictObject({
  message: id,
  call: z.string().min(1).max(200),
  state: z.enum(callStates).exclude(["waiting"]).default("done"),
  result: z.string().nullable().default(null),
  by: z.string().min(1).max(200).default("hand"),
});

const maxAlternatives = 8;

const continuation = z.strictObject({
  ...asked,
  n: z.int().min(1).max(maxAlternatives).exactOptional(),
  /** The answer to continue. */
  message: id.exactOptional(),
});

const pageQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(200).exactOptional(),
  cursor: z.string().exactOptional(),
});

const searchQuery = z.strictObject({
  q: z.string().max(1000),
  limit: z.coerce.number().int().min(1).max(100).exactOptional(),
});

const presetSettings = z.strictObject({ settings: settingsSchema });

const exportQuery = z.strictObject({ format: z.enum(["json", "markdown"]).default("json") });

/**
 * If the database cannot be opened, the routes return the reason, open it when they can, and the rest of the server works. Closing
 * them ends running answers, saves them and closes the database.
 */
export async function openSessions(
  server: ServerContext,
  open: OpenDatabase,
  { backups: files, restore = false }: BackupOptions = {},
): Promise<OpenedFamilies> {
  const backups = files && new Backups(files, { now: () => server.time(), log: server.log });
  const opened = openSessionsOf(server, backups);
  const held = new Held(server, {
    what: "conversations",
    open: (options) => withOffer(backups, () => open(options)),
    make: (database) => withOffer(backups, () => opened(database)),
  });
  held.start();
  if (!held.problem) await held.now().ready;
  const service = sessionService(held, backups);
  if (restore) await restoreNow(server, service);
  return { families: [sessionRoutes(service), runRoutes(service)], close: () => held.close() };
}

export interface BackupOptions {
  /** Absent: none are made. */
  readonly backups?: BackupFiles | undefined;
  /** Add missing or damaged rows from the newest good one. */
  readonly restore?: boolean | undefined;
}

async function restoreNow(server: ServerContext, service: SessionService): Promise<void> {
  try {
    server.log(restoredText(await service.restore()));
  } catch (error) {
    server.log(`conversations are not restored: ${messageOf(error)}`);
  }
}

function sessionRoutes(service: SessionService): RouteFamily {
  const routes = [
    ...sessionPaths(service),
    ...messagePaths(service),
    ...presetPaths(service),
    ...otherPaths(service),
  ];
  return { name: "lantern-sessions", errors: openaiErrors, routes: guarded(routes) };
}

function sessionPaths(service: SessionService): Route[] {
  return [
    {
      method: "GET",
      path: "/lantern/v1/sessions",
      access: "admin",
      handle: (call) => {
        const query = queryFields(call, pageQuery);
        const { saved, hidden } = service;
        const { sessions, next } = saved.store.sessions(query);
        const setAside = saved.store.setAside().length;
        // There are few of them, and only the first page has them.
        const few = query.cursor === undefined ? allOf(hidden.store) : [];
        const shown = [
          ...few.map((session) => view(hidden, session)),
          ...sessions.map((session) => view(saved, session)),
        ];
        const backup = service.backup({ isNeeded: true });
        return json({ sessions: shown, next, setAside, notice: service.notice, backup });
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions",
      access: "admin",
      handle: async (call) => {
        const { private: isPrivate, ...wanted } = await bodyFields(call, newSession);
        const shelf = isPrivate ? service.hidden : service.saved;
        return json(view(shelf, shelf.store.createSession(wanted)), 201);
      },
    },
    {
      method: "GET",
      path: "/lantern/v1/sessions/:id",
      access: "admin",
      handle: ({ params }) => {
        const shelf = service.of(params.id!);
        return json(view(shelf, shelf.store.session(params.id!)));
      },
    },
    {
      method: "PATCH",
      path: "/lantern/v1/sessions/:id",
      access: "admin",
      handle: async (call) => {
        const change = await bodyFields(call, sessionChange);
        const shelf = service.of(call.params.id!);
        const changed = shelf.store.changeSession(call.params.id!, change);
        if (change.title !== undefined || change.settings !== undefined) purgeOld(shelf, changed);
        return json(view(shelf, changed));
      },
    },
    {
      method: "DELETE",
      path: "/lantern/v1/sessions/:id",
      access: "admin",
      handle: async ({ params }) => {
        const id = params.id!;
        const { runs, purge, isPrivate } = service.of(id);
        await runs.delete(id);
        const warning = (await purge.run()) ?? (isPrivate ? null : service.remark);
        return json({ id, deleted: true, warning });
      },
    },
  ];
}

function allOf(store: SessionStore): Session[] {
  const found: Session[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = store.sessions(cursor === undefined ? {} : { cursor });
    found.push(...page.sessions);
    cursor = page.next;
  }
  return found;
}

/** Removes data that a change has replaced: texts in the database at once, their computed state when no answer is being written. */
function purgeOld({ store, runs, purge }: Shelf, { id }: Session): void {
  const run = runs.running(id);
  if (!run || !store.forgotten().includes(id)) return void purge.run();
  void run.done.then(() => {
    store.forgetCopies(id);
    return purge.run();
  });
}

function messagePaths(service: SessionService): Route[] {
  return [
    {
      method: "GET",
      path: "/lantern/v1/sessions/:id/messages",
      access: "admin",
      handle: ({ params }) => {
        const shelf = service.of(params.id!);
        const session = shelf.store.session(params.id!);
        return json({ session: view(shelf, session), messages: shelf.store.messages(session.id) });
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions/:id/messages",
      access: "admin",
      handle: async (call) => {
        const { role = "user", generate, ...request } = await bodyFields(call, newMessage);
        const shelf = service.of(call.params.id!);
        if (generate ?? role === "user") return await ask(shelf, call, { ...request, role });
        return json({ message: shelf.runs.keep(call.params.id!, { ...request, role }) }, 201);
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions/:id/calls",
      access: "admin",
      handle: async (call) => {
        const { message, call: which, ...end } = await bodyFields(call, callEnd);
        const { store } = service.of(call.params.id!);
        return json({ message: store.endCall(call.params.id!, message, which, end) });
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions/:id/continue",
      access: "admin",
      handle: async (call) => {
        const { n, ...request } = await bodyFields(call, continuation);
        return await ask(service.of(call.params.id!), call, { ...request, count: n });
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions/:id/summary",
      access: "admin",
      handle: async (call) => await continueAnew(service.of(call.params.id!), call),
    },
  ];
}

/** Makes a new chat with a summary of this one, on the same shelf. */
async function continueAnew(shelf: Shelf, call: Call): Promise<Response> {
  await bodyFields(call, z.strictObject({}));
  const { store } = shelf;
  const session = store.session(call.params.id!);
  const { id, mode, title, model, settings } = session;
  if (mode !== "chat") throw new SessionError("invalid", "only a chat is summarised");
  const { writer } = await writerOf(shelf, call, session);
  const { text: summary, unread } = await summarise(
    session,
    store.path(id, session.leaf),
    writer,
    call.signal,
  );
  const made = store.createSession({ mode, title, model, settings: { ...settings, summary } });
  return json({ session: view(shelf, made), unread }, 201);
}

function presetPaths(service: SessionService): Route[] {
  const path = "/lantern/v1/presets/:name";
  return [
    {
      method: "GET",
      path: "/lantern/v1/presets",
      access: "admin",
      handle: () => json({ presets: service.presets.all() }),
    },
    {
      method: "PUT",
      path,
      access: "admin",
      handle: async (call) => {
        const name = presetName(call.params.name!);
        const { settings } = await bodyFields(call, presetSettings);
        const preset = service.presets.save(name, settings);
        void service.saved.purge.run(); // removes the replaced data
        return json(preset);
      },
    },
    {
      method: "DELETE",
      path,
      access: "admin",
      handle: ({ params }) => {
        service.presets.delete(params.name!);
        void service.saved.purge.run();
        return json({ name: params.name!, deleted: true });
      },
    },
  ];
}

function presetName(text: string): string {
  const name = text.trim();
  if (name !== "" && name.length <= 100) return name;
  throw new SessionError("invalid", "name: expected 1 to 100 letters", "name");
}

function otherPaths(service: SessionService): Route[] {
  return [
    {
      method: "GET",
      path: "/lantern/v1/set-aside",
      access: "admin",
      handle: () => json({ items: service.saved.store.setAside() }),
    },
    {
      method: "DELETE",
      path: "/lantern/v1/set-aside",
      access: "admin",
      handle: () => {
        service.saved.store.forgetSetAside();
        void service.saved.purge.run();
        return json({ deleted: true });
      },
    },
    {
      method: "GET",
      path: "/lantern/v1/restore",
      access: "admin",
      handle: () => json({ backup: service.backup() }),
    },
    {
      method: "POST",
      path: "/lantern/v1/restore",
      access: "admin",
      handle: async () => json(await service.restore()),
    },
    {
      method: "GET",
      path: "/lantern/v1/search",
      access: "admin",
      handle: (call) => {
        const { q, limit } = queryFields(call, searchQuery);
        return json({ hits: service.saved.store.search(q, limit) });
      },
    },
    {
      method: "GET",
      path: "/lantern/v1/sessions/:id/export",
      access: "admin",
      handle: (call) =>
        exports[queryFields(call, exportQuery).format](service.of(call.params.id!).store, call),
    },
    {
      method: "POST",
      path: "/lantern/v1/import",
      access: "admin",
      handle: async (call) =>
        json(
          view(
            service.saved,
            await importSession(service.saved.store, await readJson(call, importBudget)),
          ),
          201,
        ),
    },
  ];
}

const exports: Readonly<
  Record<z.infer<typeof exportQuery>["format"], (store: SessionStore, call: Call) => Response>
> = {
  json: (store, { params, server }) =>
    download(
      JSON.stringify(exportSession(store, params.id!, server.time()), null, 1),
      `${params.id}.json`,
      "application/json",
    ),
  markdown: (store, { params }) =>
    download(exportMarkdown(store, params.id!), `${params.id}.md`, "text/markdown; charset=utf-8"),
};

/** A download for the browser, never shown as a page of this server. The name is an id: no title gets into a header. */
function download(text: string, name: string, type: string): Response {
  const headers = {
    "content-type": type,
    "content-disposition": `attachment; filename="${name}"`,
  };
  return new Response(text, { headers });
}

/** Starts answers and responds with their ids; they are followed at /lantern/v1/runs/ID/events. */
async function ask(shelf: Shelf, call: Call, request: AskRequest): Promise<Response> {
  const { server } = call;
  const { store, runs } = shelf;
  const session = store.session(call.params.id!);
  const { served, writer } = await writerOf(shelf, call, session);
  const { user, answers, run } = await runs.ask(session.id, writer, request);
  const isNamed = session.model !== null && server.models.lookUp(session.model) !== undefined;
  const name = isNamed ? session.model! : served.id; // its file may be served under another name now
  store.rememberModel(session.id, name, await server.models.loader?.locate(served.id));
  return json({ user, answers, run: runView(run) }, 201);
}

async function writerOf(
  { store, isPrivate }: Shelf,
  call: Call,
  session: Session,
): Promise<{ served: ServedModel; writer: RunModel }> {
  const served = await sessionModel(call.server, store, session);
  const own = { conversation: session.id, cacheDisk: !isPrivate };
  return { served, writer: runModel(call, served, own) };
}

function view({ runs, isPrivate }: Shelf, session: Session): object {
  const run = runs.running(session.id);
  return { ...session, private: isPrivate, run: run ? runView(run) : null };
}
