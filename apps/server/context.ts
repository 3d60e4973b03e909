// The context of every route: the served models, the queue, the counters, the settings and the clock. One object per
// server, made by `createContext`; the owner of the models closes them.

import type { GenerateOptions, Pooling } from "../../src/index.ts";
import type { AccessSettings } from "./access.ts";
import { IgnoredNames } from "./ignored-fields.ts";
import { KeptStreams } from "./kept-streams.ts";
import type { Metrics } from "./metrics.ts";
import { createMetrics } from "./metrics.ts";
import { DerivedModels, type DerivedStore, type ParameterReader } from "./models/derived.ts";
import { ModelEvents } from "./models/events.ts";
import { ModelHost } from "./models/host.ts";
import type { ModelLibrary } from "./models/library.ts";
import { noLimits, type OnDemandModels, type PoolLimits } from "./models/on-demand.ts";
import { ModelRegistry } from "./models/registry.ts";
import { AdmissionQueue } from "./queue.ts";
import type { ReasoningDefaults } from "./reasoning-fields.ts";
import type { ServedModel } from "./served-model.ts";
import { type Job, Slots } from "./slots.ts";
import { type SystemReading, UsageHistory } from "./usage.ts";

export type { ServedModel } from "./served-model.ts";

/** What pages of allowed origins may do; undefined: what their browser asks for. */
export interface CorsRules {
  readonly methods?: string | undefined;
  readonly headers?: string | undefined;
  readonly credentials: boolean;
}

export interface ServerSettings {
  version: string;
  /** The access rights of clients. */
  access: AccessSettings;
  /** The number of generations that run at once. */
  parallel: number;
  /** The number of requests that may wait in the queue. */
  queue: number;
  maxBodyBytes: number;
  maxMessages: number;
  /** Origins whose pages may send requests; "*": all, "localhost": this machine's. Empty: none. */
  corsOrigins: readonly string[];
  /** What pages of those origins may do. */
  corsRules: CorsRules;
  /** Accept only the names of served models, even if there is a single model. */
  strictModel: boolean;
  /** Refuse fields that would otherwise be ignored and named. */
  strictFields: boolean;
  /** Whether GET /slots and GET /metrics are available. */
  slots: boolean;
  /** Folder of saved slots; undefined: slots cannot be saved. */
  slotSavePath?: string | undefined;
  metrics: boolean;
  /** Add llama.cpp's `__verbose` to every response. */
  verbose: boolean;
  /** enable_thinking for templates, unless a request sets it; undefined: their own default. */
  thinking: boolean | undefined;
  /** The handling of reasoning, unless a request sets it. */
  reasoning?: ReasoningDefaults | undefined;
  /** Host names of this server, besides IP addresses. */
  hosts: readonly string[];
  /** It listens on this machine only. */
  isLocal: boolean;
  /** Sampling options of a request that sets none. */
  sampling: GenerateOptions;
  /** How hidden states are pooled into one vector, unless a request sets it; undefined: as each model's file asks for. */
  pooling: Pooling | undefined;
  /** Only embeddings and ranks: nothing is generated. */
  embeddingsOnly: boolean;
  /** Folder of stored state; undefined: that of the cache folder. */
  cacheFolder?: string | undefined;
  pages: PageModels;
  /** How long a model stays in memory after its last request, unless a request says otherwise; Infinity: until the end. */
  keepMs: number;
  /** How often an idle stream sends a heartbeat; Infinity: never. */
  heartbeatMs: number;
  /** After what time an answer begins that is not there yet. */
  patienceMs: number;
  /** What the path of every request begins with. */
  apiPrefix: string;
  /** Words about the models, for lists. */
  tags: readonly string[];
  /** Variables of chat templates, unless a request sets them. */
  templateVariables: Readonly<Record<string, unknown>>;
  /** An answer goes on with a conversation's last message if that is an assistant's, unless a request says otherwise. */
  prefill: boolean;
  /** llama.cpp's number of a norm of embeddings, unless a request sets it. */
  normalize?: number | undefined;
}

/** The models that the pages of the web app begin with, by name; undefined: the page chooses. */
export interface PageModels {
  readonly story?: string | undefined;
  readonly chat?: string | undefined;
}

/** A line about an answered request: its route and status, never its content. */
export type LogRequest = (line: string, level: "warn" | "info" | "debug") => void;

export interface ServerContext {
  readonly models: ModelHost;
  /** Which of them are in memory. */
  readonly registry: ModelRegistry;
  /** What happens to them, for those who follow it. */
  readonly events: ModelEvents;
  /** Models that were made from others. */
  readonly made: DerivedModels;
  readonly queue: AdmissionQueue;
  /** Queue for requests with large bodies, because reading and tokenizing them takes time and memory. */
  readonly large: AdmissionQueue;
  readonly jobs: Set<Job>;
  readonly slots: Slots;
  /** Streams that outlast their connections. */
  readonly streams: KeptStreams;
  /** Models that can be listed, downloaded and deleted; undefined: only the served ones exist. */
  readonly library: ModelLibrary | undefined;
  readonly metrics: Metrics;
  readonly settings: ServerSettings;
  /** A monotonic clock, in milliseconds. */
  now(): number;
  /** Milliseconds since 1970. */
  time(): number;
  log(line: string): void;
  readonly usage: UsageHistory;
  /** Logs an answered request; undefined: no log. */
  readonly logRequest: LogRequest | undefined;
  /** Fields of requests that were not honoured. */
  readonly ignored: IgnoredNames;
  /** Models with a logged history change: once is enough, since every message of a conversation repeats it. */
  readonly saidChanged: Set<string>;
  /** Seconds since 1970. */
  readonly started: number;
  /** Aborted when running requests must end because the grace period is over. */
  readonly stopSignal: AbortSignal;
}

/** Large bodies in memory at a time, and of one client: a slow sender does not keep the others waiting. */
const largeBodies = 4;
const largeBodiesOfClient = 3;

export interface ContextOptions {
  settings: ServerSettings;
  models: readonly ServedModel[];
  library?: ModelLibrary | undefined;
  /** Models that are loaded when a request names them. */
  onDemand?: OnDemandModels | undefined;
  limits?: PoolLimits | undefined;
  /** The store of derived models; undefined: they end with the server. */
  derivedStore?: DerivedStore | undefined;
  /** Reads the parameters of derived models. */
  optionsOf: ParameterReader;
  log(line: string): void;
  logRequest?: LogRequest | undefined;
  /** Reads the system's memory and processor use; undefined: only the models are known. */
  readSystem?: (() => SystemReading) | undefined;
  stopSignal: AbortSignal;
}

export function createContext(options: ContextOptions): ServerContext {
  const { settings, log, stopSignal } = options;
  const clock = { now: () => performance.now(), time: () => Date.now() };
  const { onDemand, limits = noLimits } = options;
  const events = new ModelEvents(clock.now);
  const registry: ModelRegistry = new ModelRegistry({
    ...{ onDemand, limits, stopSignal, log, time: clock.time, keepMs: settings.keepMs },
    mostWaiting: settings.parallel + settings.queue,
    changed: (id) => events.status(id, registry.state(id)),
  });
  const models: ModelHost = new ModelHost(settings.strictModel, registry);
  for (const served of options.models) models.add(served, true);
  const queue = new AdmissionQueue(settings.parallel, settings.queue);
  const jobs = new Set<Job>();
  return {
    models,
    registry,
    events,
    made: new DerivedModels({
      ...{ models, registry, log, store: options.derivedStore, optionsOf: options.optionsOf },
    }),
    queue,
    usage: new UsageHistory({ models, ...clock }, options.readSystem),
    large: new AdmissionQueue(largeBodies, settings.queue, largeBodiesOfClient),
    jobs,
    slots: new Slots(settings.parallel, settings.queue),
    streams: new KeptStreams(clock.time),
    library: options.library,
    metrics: createMetrics(),
    settings,
    ...clock,
    log,
    logRequest: options.logRequest,
    ignored: new IgnoredNames((line) => options.logRequest?.(line, "info")),
    saidChanged: new Set(),
    started: Math.floor(Date.now() / 1000),
    stopSignal,
  };
}
