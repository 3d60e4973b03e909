// Conversations over HTTP: sessions, their trees of messages, search, export and import. This file has the paths and
// fields; src/sessions does the work.

import * as z from "zod";
import type { Database } from "../../platform/database.ts";
import { exportMarkdown, exportSession, importSession } from "../../sessions/exchange.ts";
import type { AskRequest, Runs } from "../../sessions/runs.ts";
import {
  callStates,
  messageRoles,
  type Session,
  SessionError,
  sessionModes,
} from "../../sessions/session.ts";
import { settingsChangeSchema, settingsSchema } from "../../sessions/settings.ts";
import type { SessionStore } from "../../sessions/store.ts";
import { readJson } from "../body.ts";
import type { ServerContext } from "../context.ts";
import { openaiErrors } from "../errors.ts";
import { Held, type OpenDatabase } from "../held.ts";
import { type Call, json, type OpenedFamilies, type Route, type RouteFamily } from "../route.ts";
import { runRoutes } from "./lantern-runs.ts";
import {
  bodyFields,
  guarded,
  openSessionService,
  queryFields,
  runModel,
  runView,
  type SessionService,
  sessionModel,
  sessionService,
} from "./lantern-service.ts";

/**
 * Cost allowed for the values of an imported conversation (json-reader.ts): a body of 16 MB has about 35,000 messages.
 */
const importBudget = 5_000_000;

const title = z.string().max(500);
const model = z.string().min(1).max(500).nullable();
const id = z.string().min(1).max(64);

const newSession = z.strictObject({
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

/** The result of a call, or that there is none. */
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
 * If the database cannot be opened, the routes say why, open it when they can, and the rest of the server works. Closing them ends
 * running answers, saves them and closes the database.
 */
export async function openSessions(
  server: ServerContext,
  open: OpenDatabase,
): Promise<OpenedFamilies> {
  const make = (database: Database) => openSessionService(server, database);
  const held = new Held(server, { what: "conversations", open, make });
  await held.start();
  const service = sessionService(held);
  return { families: [sessionRoutes(service), runRoutes(service)], close: () => held.close() };
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
  const view = (session: Session): object => withRun(session, service.runs);
  return [
    {
      method: "GET",
      path: "/lantern/v1/sessions",
      access: "admin",
      handle: (call) => {
        const { sessions, next } = service.store.sessions(queryFields(call, pageQuery));
        const setAside = service.store.setAside().length;
        return json({ sessions: sessions.map(view), next, setAside, notice: service.notice });
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions",
      access: "admin",
      handle: async (call) =>
        json(view(service.store.createSession(await bodyFields(call, newSession))), 201),
    },
    {
      method: "GET",
      path: "/lantern/v1/sessions/:id",
      access: "admin",
      handle: ({ params }) => json(view(service.store.session(params.id!))),
    },
    {
      method: "PATCH",
      path: "/lantern/v1/sessions/:id",
      access: "admin",
      handle: async (call) => {
        const change = await bodyFields(call, sessionChange);
        const changed = service.store.changeSession(call.params.id!, change);
        if (change.title !== undefined || change.settings !== undefined) service.purge(); // removes the old text
        return json(view(changed));
      },
    },
    {
      method: "DELETE",
      path: "/lantern/v1/sessions/:id",
      access: "admin",
      handle: async ({ params }) => {
        const { id } = service.store.session(params.id!);
        const run = service.runs.running(id);
        run?.cancel();
        await run?.done;
        service.store.deleteSession(id);
        service.purge();
        return json({ id, deleted: true });
      },
    },
  ];
}

function messagePaths(service: SessionService): Route[] {
  return [
    {
      method: "GET",
      path: "/lantern/v1/sessions/:id/messages",
      access: "admin",
      handle: ({ params }) => {
        const session = service.store.session(params.id!);
        return json({
          session: withRun(session, service.runs),
          messages: service.store.messages(session.id),
        });
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions/:id/messages",
      access: "admin",
      handle: async (call) => {
        const { role = "user", generate, ...request } = await bodyFields(call, newMessage);
        if (generate ?? role === "user") return await ask(service, call, { ...request, role });
        return json({ message: service.runs.keep(call.params.id!, { ...request, role }) }, 201);
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions/:id/calls",
      access: "admin",
      handle: async (call) => {
        const { message, call: which, ...end } = await bodyFields(call, callEnd);
        return json({ message: service.store.endCall(call.params.id!, message, which, end) });
      },
    },
    {
      method: "POST",
      path: "/lantern/v1/sessions/:id/continue",
      access: "admin",
      handle: async (call) => {
        const { n, ...request } = await bodyFields(call, continuation);
        return await ask(service, call, { ...request, count: n });
      },
    },
  ];
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
        const saved = service.presets.save(name, settings);
        service.purge(); // removes what it replaced
        return json(saved);
      },
    },
    {
      method: "DELETE",
      path,
      access: "admin",
      handle: ({ params }) => {
        service.presets.delete(params.name!);
        service.purge();
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
      handle: () => json({ items: service.store.setAside() }),
    },
    {
      method: "DELETE",
      path: "/lantern/v1/set-aside",
      access: "admin",
      handle: () => {
        service.store.forgetSetAside();
        service.purge();
        return json({ deleted: true });
      },
    },
    {
      method: "GET",
      path: "/lantern/v1/search",
      access: "admin",
      handle: (call) => {
        const { q, limit } = queryFields(call, searchQuery);
        return json({ hits: service.store.search(q, limit) });
      },
    },
    {
      method: "GET",
      path: "/lantern/v1/sessions/:id/export",
      access: "admin",
      handle: (call) => exports[queryFields(call, exportQuery).format](service.store, call),
    },
    {
      method: "POST",
      path: "/lantern/v1/import",
      access: "admin",
      handle: async (call) =>
        json(
          withRun(
            await importSession(service.store, await readJson(call, importBudget)),
            service.runs,
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
async function ask(
  { store, runs }: SessionService,
  call: Call,
  request: AskRequest,
): Promise<Response> {
  const { server } = call;
  const session = store.session(call.params.id!);
  const served = await sessionModel(server, store, session);
  const { user, answers, run } = await runs.ask(session.id, runModel(call, served), request);
  const isNamed = session.model !== null && server.models.lookUp(session.model) !== undefined;
  const name = isNamed ? session.model! : served.id; // its file may be served under another name now
  store.rememberModel(session.id, name, await server.models.loader?.locate(served.id));
  return json({ user, answers, run: runView(run) }, 201);
}

function withRun(session: Session, runs: Runs): object {
  const run = runs.running(session.id);
  return { ...session, run: run ? runView(run) : null };
}
