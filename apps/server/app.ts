// The app: mounts every route of every family in the same way, with guards before it, counters around it and its
// family's error shape after it. It is a `fetch` function of web standards, without sockets or a file system.
//
// Files of the web app come from a table made at start: a request's path is looked up there and never becomes a path
// on disk.

import { Hono } from "hono";
import { detailsOf } from "../../src/base/errors.ts";
import { AbortedError } from "../../src/index.ts";
import type { StaticFiles } from "../../src/platform/node-static.ts";
import type { ServerContext } from "./context.ts";
import {
  describeError,
  type ErrorShape,
  errorResponse,
  invalidRequest,
  notFound,
  openaiErrors,
} from "./errors.ts";
import {
  type Connection,
  createGuard,
  type Guard,
  pageHeaders,
  threadHeaders,
  workerPageHeaders,
} from "./guard.ts";
import { IgnoredFields } from "./ignored-fields.ts";
import { answerInTime } from "./late-answer.ts";
import type { Call, Route, RouteFamily } from "./route.ts";
import { staticRoutes } from "./static-files.ts";
import { isKept, keptIfAsked } from "./stream-keeper.ts";

/** A file of the web app. */
export interface Asset {
  bytes: Uint8Array<ArrayBuffer>;
  /** The same, compressed, for browsers that accept it. */
  gzip?: Uint8Array<ArrayBuffer>;
  /** "text/html; charset=utf-8" */
  type: string;
  /** Its name changes with its content, so that it may be cached forever. */
  immutable?: boolean;
}

export interface AppOptions {
  families: readonly RouteFamily[];
  /** By path: "/" and "/assets/app-1a2b.js". */
  assets?: ReadonlyMap<string, Asset>;
  /** Default: that of the server's settings. */
  guard?: Guard;
  /** Files of the user's own, in place of the web app. */
  staticFiles?: StaticFiles | undefined;
}

export type AppFetch = (request: Request, connection: Connection) => Promise<Response>;

interface Env {
  Bindings: Connection;
}

export function createApp(server: ServerContext, options: AppOptions): AppFetch {
  const { apiPrefix } = server.settings;
  const app = new Hono<Env>().basePath(apiPrefix);
  const guard = options.guard ?? createGuard(server.settings);
  app.options("*", ({ req, env }) => {
    try {
      return guard.preflight(req.raw, req.path.slice(apiPrefix.length), env);
    } catch (error) {
      return errorResponse(describeError(error, report(server)), openaiErrors);
    }
  });
  for (const family of options.families) {
    for (const route of family.routes) mount(app, server, guard, family.errors, route);
  }
  const { staticFiles } = options;
  for (const route of staticFiles ? staticRoutes(staticFiles, bareRoot, noSuchRoute) : []) {
    mount(app, server, guard, openaiErrors, route);
  }
  if (!options.assets?.has("/")) mount(app, server, guard, openaiErrors, bareRoot);
  for (const [path, asset] of options.assets ?? []) {
    mount(app, server, guard, openaiErrors, assetRoute(path, asset));
  }
  const missing: Route = { method: "GET", path: "(none)", access: "use", handle: noSuchRoute };
  app.notFound(({ req, env }) =>
    answer(callOf(server, guard, openaiErrors, missing, req.raw, {}, env), guard, env),
  );
  return async (request, connection) => {
    if (URL.canParse(request.url)) return await app.fetch(request, connection);
    const { facts } = invalidRequest("the Host header is neither a name nor an address");
    return errorResponse(facts, openaiErrors);
  };
}

function mount(
  app: Hono<Env>,
  server: ServerContext,
  guard: Guard,
  errors: ErrorShape,
  route: Route,
): void {
  app.on(route.method, route.path, ({ req, env }) =>
    answer(callOf(server, guard, errors, route, req.raw, req.param(), env), guard, env),
  );
}

function callOf(
  server: ServerContext,
  guard: Guard,
  errors: ErrorShape,
  route: Route,
  request: Request,
  params: Readonly<Record<string, string>>,
  connection: Connection,
): Call {
  const gone = new AbortController();
  const signal = AbortSignal.any([gone.signal, server.stopSignal]);
  const url = new URL(request.url);
  const call: Call = {
    server: { ...server, models: server.models.forRequest(signal, { autoload: autoloadOf(url) }) },
    request,
    route,
    errors,
    url,
    params,
    client: connection.address,
    ignored: new IgnoredFields(server.settings.strictFields),
    login: (from) => guard.login(request, connection, from),
    signal,
    end: () => gone.abort(new AbortedError("the request")),
  };
  const leave = (): void => {
    if (!isKept(call)) call.end();
  };
  if (request.signal.aborted) leave();
  else request.signal.addEventListener("abort", leave, { once: true });
  return call;
}

/** llama.cpp's ?autoload=true|false; undefined: as the server says. */
function autoloadOf({ searchParams }: URL): boolean | undefined {
  const asked = searchParams.get("autoload");
  return asked === "true" || asked === "1" ? true : asked === null ? undefined : false;
}

/** An answer that takes long begins before it is there. */
async function answer(call: Call, guard: Guard, connection: Connection): Promise<Response> {
  const response = await answerInTime(call, wholeAnswer(call, guard, connection));
  for (const [name, value] of Object.entries(guard.corsHeaders(call.request.headers))) {
    response.headers.set(name, value);
  }
  return response;
}

/** Guards, handler, errors, counters, headers: in this order for every route. */
async function wholeAnswer(call: Call, guard: Guard, connection: Connection): Promise<Response> {
  const { server, request, route } = call;
  const startMs = server.now();
  let response: Response;
  try {
    call.client = await guard.check(request, connection, route.access);
    response = keptIfAsked(call, await route.handle(call));
  } catch (error) {
    // After the client has gone, any failure is due to that, and the response has no reader.
    const seen = request.signal.aborted ? new AbortedError("the request") : error;
    response = errorResponse(describeError(seen, report(server)), call.errors);
  } finally {
    call.large?.release();
    server.models.release();
  }
  const { method } = request;
  server.metrics.requests.add(1, { route: route.path, method, status: response.status });
  const more = { ...call.headers, ...call.ignored.headers() };
  for (const [name, value] of Object.entries(more)) response.headers.set(name, value);
  server.ignored.see(route.path, call.ignored.names);
  response.headers.set("x-request-id", crypto.randomUUID());
  if (server.logRequest) logRequest(call, response.status, server.now() - startMs);
  return response;
}

/** Methods with which pages and monitors look in, often every few seconds. */
const reading: readonly string[] = ["GET", "HEAD", "OPTIONS"];

/** The time is until the answer begins: a stream continues after that. Query and client are left out: they may be a token or a key. */
function logRequest({ server, request, url }: Call, status: number, ms: number): void {
  const { method } = request;
  const level = status >= 500 ? "warn" : reading.includes(method) ? "debug" : "info";
  const path = url.pathname.slice(0, 200);
  server.logRequest!(`${method} ${path} ${status} ${ms.toFixed(0)} ms`, level);
}

function report(server: ServerContext): (bug: unknown) => void {
  return (bug) => server.log(detailsOf(bug));
}

function noSuchRoute({ request, url }: Call): never {
  const shown = JSON.stringify(url.pathname.slice(0, 200));
  throw notFound(`there is no ${request.method} ${shown} here`, null, "unknown_url");
}

/** The root without a web app. Ollama's clients look for these words, or only for a 200, before they send anything. */
const bareRoot: Route = {
  method: "GET",
  path: "/",
  access: "open",
  handle: () => new Response("Ollama is running"),
};

function headersOf(path: string): Readonly<Record<string, string>> {
  if (path.startsWith("/threads/")) return threadHeaders;
  return path === "/worker" ? workerPageHeaders : pageHeaders;
}

function assetRoute(path: string, asset: Asset): Route {
  const headers = {
    ...headersOf(path),
    "content-type": asset.type,
    "cache-control": asset.immutable ? "public, max-age=31536000, immutable" : "no-cache",
    ...(asset.gzip && { vary: "accept-encoding" }),
  };
  const handle = async ({ request, url, login }: Call): Promise<Response> => {
    const token = path === "/" ? url.searchParams.get("token") : null;
    if (token !== null) return withoutToken(url, await login({ token }));
    // A page that is opened within its cookie's time stays let in.
    const renewed = path === "/" ? await login("cookie") : undefined;
    const all = { ...headers, ...(renewed !== undefined && { "set-cookie": renewed }) };
    const packed = /\bgzip\b/.test(request.headers.get("accept-encoding") ?? "");
    if (!asset.gzip || !packed) return new Response(asset.bytes, { headers: all });
    return new Response(asset.gzip, { headers: { ...all, "content-encoding": "gzip" } });
  };
  return { method: "GET", path, access: "open", handle };
}

/**
 * Redirects to the page without the token in its URL, and with it in a cookie. The page itself explains a wrong token.
 */
function withoutToken(url: URL, cookie: string | undefined): Response {
  const rest = new URLSearchParams(url.searchParams);
  rest.delete("token");
  const location = rest.size === 0 ? "/" : `/?${rest}`;
  return new Response(null, {
    status: 303,
    headers: { location, ...(cookie !== undefined && { "set-cookie": cookie }) },
  });
}
