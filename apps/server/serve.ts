// The composition root of the server: makes an app on a socket from models, settings and route families. `lantern
// serve` calls it. The models belong to the caller, who disposes them after stop().

import { atMost } from "../../src/base/at-most.ts";
import { byName } from "../../src/base/by-name.ts";
import type { GenerateOptions, Model, Pooling } from "../../src/index.ts";
import type { StaticFiles } from "../../src/platform/node-static.ts";
import type { Answerer } from "../batch/runner.ts";
import { randomToken } from "./access.ts";
import { type AppFetch, type Asset, createApp } from "./app.ts";
import type { BatchPlace } from "./batch-service.ts";
import {
  type CorsRules,
  createContext,
  type LogRequest,
  type PageModels,
  type ServerContext,
} from "./context.ts";
import { stopping } from "./errors.ts";
import type { OpenDatabase } from "./held.ts";
import { hostNameOf, isLocalHost } from "./host-names.ts";
import { IgnoredFields } from "./ignored-fields.ts";
import { backgroundContext, callRoute } from "./internal-call.ts";
import { listen } from "./listen.ts";
import type { DerivedStore } from "./models/derived.ts";
import type { ModelLibrary } from "./models/library.ts";
import type { OnDemandModels, PoolLimits } from "./models/on-demand.ts";
import { ollamaOptions } from "./ollama-options.ts";
import type { BackupOptions } from "./protocols/lantern/sessions.ts";
import type { ToolHost } from "./protocols/lantern/tools.ts";
import type { ReasoningDefaults } from "./reasoning-fields.ts";
import type { OpenedFamilies, RouteFamily } from "./route.ts";
import { openedFamilies, routeFamilies } from "./routes/table.ts";
import type { SystemReading } from "./usage.ts";

export { hostNameOf, isLocalHost, machineNames } from "./host-names.ts";
export { listenLocally } from "./local-handler.ts";
export type { LoadChange, LoadChoices, LoadPlan, ModelLibrary } from "./models/library.ts";
export type { ModelPreset, OnDemandModel, OnDemandModels, PoolLimits } from "./models/on-demand.ts";
export type { ServerStatus } from "./protocols/lantern/status.ts";
export { type ReasoningFormat, reasoningFormats } from "./reasoning-fields.ts";
export type { SystemReading } from "./usage.ts";

export interface StartOptions {
  /** By the names that clients use; the first is the default. */
  models: Readonly<Record<string, Model>>;
  version: string;
  /** Default 127.0.0.1: this machine only. "unix:PATH", or a path that ends in .sock: a UNIX socket. */
  host?: string;
  /** Default 8080; 0: any free port. */
  port?: number;
  /** Let other servers listen on the port (default false). */
  reusePort?: boolean;
  /** Key and certificates in PEM: HTTPS. */
  tls?: { key: string; cert: string };
  /** What the path of every request begins with, as in "/llm" (default: nothing). */
  apiPrefix?: string;
  /** API keys, one of which clients must send; none: all clients may generate. */
  apiKeys?: readonly string[];
  /** Allows changing models and conversations (routes of access "admin"), from any address. */
  adminKey?: string;
  /**
   * Without an admin key: the token for those routes, on this machine only (default: the secret, in `pageUrl`).
   * false: being on this machine is enough.
   */
  token?: string | false;
  /**
   * Random text that outlives this server: with it, the cookies of open pages are good after a restart (default: a new one for each
   * start).
   */
  secret?: string;
  /** Generations that run at once (default 8), and that may wait (default 64). */
  parallel?: number;
  queue?: number;
  maxBodyBytes?: number;
  maxMessages?: number;
  /** Origins whose pages may send requests; "*": all, "localhost": those of this machine. */
  corsOrigins?: readonly string[];
  /** What those pages may do (default: what their browser asks for, with credentials). */
  corsRules?: CorsRules;
  /** A single model accepts only its own name (default: any). */
  strictModel?: boolean;
  /** Refuse fields of requests that are otherwise ignored and named. */
  strictFields?: boolean;
  /** false: GET /slots, GET /metrics are a 501. */
  slots?: boolean;
  metrics?: boolean;
  /** Folder for POST /slots/:id?action=save and restore (default: a 501). */
  slotSavePath?: string;
  /** Every response has llama.cpp's `__verbose` (default: only if requested). */
  verbose?: boolean;
  /** enable_thinking for chat templates (default: true). */
  thinking?: boolean;
  /** How reasoning is treated, unless a request says so (default: apart from the text, as much as the model likes). */
  reasoning?: ReasoningDefaults;
  /** The models' file names, without folders. */
  files?: Readonly<Record<string, string>>;
  /** Further names of the models, by their own. */
  aliases?: Readonly<Record<string, readonly string[]>>;
  /** The models that the pages of the web app begin with. */
  pages?: PageModels;
  /** Host names of this server besides IP addresses, localhost and `host`: this machine's own, and others. */
  allowedHosts?: readonly string[];
  /** Sampling options of requests that set none. */
  sampling?: GenerateOptions;
  /** How hidden states are pooled into an embedding (default: as each model's file asks for). */
  pooling?: Pooling;
  /** Answer only requests for embeddings and ranks (default false). */
  embeddingsOnly?: boolean;
  /** Folder of the models' stored state (default: "state" in the cache folder). */
  cacheFolder?: string;
  /** How long a model stays in memory after its last request, in ms, unless a request says otherwise (default: until the end). */
  keepMs?: number;
  /** Models that are loaded when a request names them (docs/use/server-models.md); absent: only `models` are served. */
  onDemand?: OnDemandModels;
  /** The store of models that are made from others (default: they end with the server). */
  derivedStore?: DerivedStore;
  /** How many models are in memory at a time (default: as many as fit). */
  limits?: PoolLimits;
  /** How often an idle stream sends a comment in ms (default 12000), so that no proxy cuts it; Infinity: never. */
  heartbeatMs?: number;
  /** After what time in ms an answer begins that is not there yet (default 45000). */
  patienceMs?: number;
  /** Words about the models, for lists (default: none). */
  tags?: readonly string[];
  /** Variables of chat templates, unless a request sets them. */
  templateVariables?: Readonly<Record<string, unknown>>;
  /** An answer goes on with a conversation's last message if that is an assistant's (default true). */
  prefill?: boolean;
  /** llama.cpp's number of a norm of embeddings, unless a request sets it. */
  normalize?: number;
  headersTimeoutMs?: number;
  requestTimeoutMs?: number;
  /** How long running requests may continue after stop() (default 5000). */
  graceMs?: number;
  /** Routes besides those of the table, which need more than this file knows (a database). */
  families?: (context: ServerContext) => readonly RouteFamily[];
  /** Opens the database of conversations (docs/use/sessions.md); absent: there are none. */
  sessions?: OpenDatabase;
  /** The folder of its backups, and whether one is to be restored; absent: none are made. */
  sessionBackups?: BackupOptions;
  /** The storage of files and batches (docs/use/batch.md); absent: there are none. */
  batches?: BatchPlace;
  /** Models that can be listed, downloaded, opened (docs/use/web.md); absent: the served models are fixed. */
  library?: ModelLibrary;
  /** Tools that the web app may call (docs/library/tools.md); absent: none. The caller closes them after stop(). */
  tools?: ToolHost;
  /** The web app's files, by path. */
  assets?: ReadonlyMap<string, Asset>;
  /** Files of the user's own, in place of the web app. */
  staticFiles?: StaticFiles;
  log?: (line: string) => void;
  /** Called with a line for every answered request (default: nothing). */
  logRequest?: LogRequest;
  /** Reads the system's memory and processor use (default: only the models' memory is known). */
  readSystem?: () => SystemReading;
}

export interface RunningServer {
  readonly url: string;
  /** The web app's URL on this machine: with the token, if there is one. */
  readonly pageUrl: string;
  readonly token: string | undefined;
  readonly port: number;
  readonly context: ServerContext;
  /** All routes, without the files of the web app. */
  readonly families: readonly RouteFamily[];
  /** No new requests; running ones finish, or end with an error event when their time is over. */
  stop(): Promise<void>;
}

/** Addresses to listen on that cannot be connected to, and the address to use on this machine. */
const wildcards: Readonly<Record<string, string>> = byName({
  "0.0.0.0": "127.0.0.1",
  "::": "[::1]",
});

export async function startServer(options: StartOptions): Promise<RunningServer> {
  const { host = "127.0.0.1", port = 8080, graceMs = 5000 } = options;
  const token =
    options.adminKey === undefined ? (options.token ?? options.secret ?? randomToken()) : false;
  const end = new AbortController();
  const context = contextOf(options, host, token, end.signal);
  // The port first: if another program has it, that is reported before conversations are opened. Requests wait until
  // then.
  const { promise: ready, resolve: beginWith } = Promise.withResolvers<AppFetch>();
  const listener = await listen(async (...request) => await (await ready)(...request), {
    host,
    port,
    reusePort: options.reusePort ?? false,
    tls: options.tls,
    headersTimeoutMs: options.headersTimeoutMs ?? 15_000,
    requestTimeoutMs: options.requestTimeoutMs ?? 60_000,
  });
  const own = Object.hasOwn(wildcards, host) ? wildcards[host] : undefined;
  const scheme = options.tls ? "https" : "http";
  const address = own === undefined ? listener.url : `${scheme}://${own}:${listener.port}`;
  const reachable = `${address}${context.settings.apiPrefix}`;
  const { families, opened } = await openFamilies(context, knownAt(reachable, options)).catch(
    async (error: unknown) => {
      listener.stopAccepting();
      listener.destroy();
      await listener.closed;
      throw error;
    },
  );
  await context.made.restore();
  const { assets, staticFiles } = options;
  beginWith(createApp(context, { families, staticFiles, ...(assets && { assets }) }));
  context.usage.start();
  return {
    url: `${listener.url}${context.settings.apiPrefix}`,
    pageUrl: token === false ? reachable : `${reachable}/?token=${encodeURIComponent(token)}`,
    token: token === false ? undefined : token,
    port: listener.port,
    context,
    families,
    async stop() {
      context.usage.stop();
      listener.stopAccepting();
      context.events.close();
      context.queue.close();
      context.registry.close();
      await atMost(graceMs, listener.closed);
      end.abort(stopping()); // running requests end now, with the reason
      await atMost(1000, listener.closed);
      listener.destroy();
      await listener.closed;
      for (const each of opened) await each.close();
      await context.registry.dispose();
    },
  };
}

/** The context of the routes, from the options. */
export function contextOf(
  options: StartOptions,
  host: string,
  token: string | false,
  stopSignal: AbortSignal,
): ServerContext {
  return createContext({
    settings: {
      version: options.version,
      access: {
        apiKeys: options.apiKeys ?? [],
        adminKey: options.adminKey,
        token: token === false ? undefined : token,
        secret: options.secret,
      },
      parallel: options.parallel ?? 8,
      queue: options.queue ?? 64,
      maxBodyBytes: options.maxBodyBytes ?? 16 * 2 ** 20,
      maxMessages: options.maxMessages ?? 4096,
      corsOrigins: options.corsOrigins ?? [],
      corsRules: options.corsRules ?? { credentials: true },
      strictModel: options.strictModel ?? false,
      strictFields: options.strictFields ?? false,
      slots: options.slots ?? true,
      slotSavePath: options.slotSavePath,
      metrics: options.metrics ?? true,
      verbose: options.verbose ?? false,
      thinking: options.thinking,
      reasoning: options.reasoning,
      hosts: ["localhost", host, ...(options.allowedHosts ?? [])].flatMap(
        (name) => hostNameOf(name) ?? [],
      ),
      isLocal: isLocalHost(host),
      sampling: options.sampling ?? {},
      pooling: options.pooling,
      embeddingsOnly: options.embeddingsOnly ?? false,
      cacheFolder: options.cacheFolder,
      pages: options.pages ?? {},
      keepMs: options.keepMs ?? Infinity,
      heartbeatMs: options.heartbeatMs ?? 12_000,
      patienceMs: options.patienceMs ?? 45_000,
      apiPrefix: options.apiPrefix ?? "",
      tags: options.tags ?? [],
      templateVariables: options.templateVariables ?? {},
      prefill: options.prefill ?? true,
      normalize: options.normalize,
    },
    models: Object.entries(options.models).map(([id, model]) => ({
      id,
      model,
      created: Math.floor(Date.now() / 1000),
      file: options.files?.[id],
      aliases: options.aliases?.[id],
    })),
    library: options.library,
    onDemand: options.onDemand,
    derivedStore: options.derivedStore,
    optionsOf: (parameters) =>
      ollamaOptions(parameters, "parameters.", {}, new IgnoredFields(true)),
    limits: options.limits,
    log: options.log ?? (() => {}),
    logRequest: options.logRequest,
    readSystem: options.readSystem,
    stopSignal,
  });
}

/** The routes of a server without a socket: they answer this process, for `lantern batch`. */
export function localRoutes(options: StartOptions, stopSignal: AbortSignal): Answerer {
  const context = contextOf(options, "127.0.0.1", false, stopSignal);
  const { parallel } = context.settings;
  const background = backgroundContext(context, parallel);
  return {
    parallel: () => parallel,
    answer: (path, body, signal) => callRoute(background, routeFamilies, { path, body, signal }),
  };
}

/** Another server that finds the databases in use can name this one's address; this one reports such a conflict at once, and does not wait. */
function knownAt(address: string, options: StartOptions): StartOptions {
  const known =
    (open: OpenDatabase): OpenDatabase =>
    (more) =>
      open({ address, busyMs: 0, ...more });
  const { sessions, batches } = options;
  return {
    ...options,
    ...(sessions && { sessions: known(sessions) }),
    ...(batches && { batches: { ...batches, open: known(batches.open) } }),
  };
}

/** All routes, and those that must be closed. */
async function openFamilies(context: ServerContext, options: StartOptions) {
  const all = await Promise.all(openedFamilies.map((open) => open(context, options)));
  const opened: OpenedFamilies[] = all.filter((some) => some !== undefined);
  const families: readonly RouteFamily[] = [
    ...routeFamilies,
    ...(options.families?.(context) ?? []),
    ...opened.flatMap((each) => each.families),
  ];
  return { families, opened };
}
