// What every route gets: the served models, the queue, the counters, the settings and the clock. One object per
// server, made by `createContext`; whoever opened the models closes them.

import type { GenerateOptions, Pooling } from "../index.ts";
import type { AccessSettings } from "./access.ts";
import { KeepAlive } from "./keep-alive.ts";
import type { ModelLibrary } from "./library.ts";
import { MadeModels, type MadeStore, type ParameterReader } from "./made-models.ts";
import type { Metrics } from "./metrics.ts";
import { createMetrics } from "./metrics.ts";
import { ModelEvents } from "./model-events.ts";
import { ModelHost } from "./model-host.ts";
import { ModelPool } from "./model-pool.ts";
import { noLimits, type OnDemandModels, type PoolLimits } from "./on-demand.ts";
import { AdmissionQueue } from "./queue.ts";
import type { ReasoningDefaults } from "./reasoning-fields.ts";
import type { ServedModel } from "./served-model.ts";
import { type Job, Slots } from "./slots.ts";
import { type SystemReading, UsageHistory } from "./usage.ts";

export type { ServedModel } from "./served-model.ts";

export interface ServerSettings {
  version: string;
  /** Who may do what. */
  access: AccessSettings;
  /** How many generations run at once. */
  parallel: number;
  /** How many generations may wait for their turn. */
  queue: number;
  maxBodyBytes: number;
  maxMessages: number;
  /** Origins whose pages may send requests; "*": all, "localhost": this machine's. Empty: none. */
  corsOrigins: readonly string[];
  /** Accept only the names of served models, even if there is a single model. */
  strictModel: boolean;
  /** Whether GET /slots and GET /metrics are available. */
  slots: boolean;
  /** Folder of saved slots; undefined: slots cannot be saved. */
  slotSavePath?: string | undefined;
  metrics: boolean;
  /** Add llama.cpp's `__verbose` to every response. */
  verbose: boolean;
  /** enable_thinking for templates, unless a request sets it; undefined: their own default. */
  thinking: boolean | undefined;
  /** How reasoning is treated, unless a request says so. */
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
  /** How often an idle event stream sends a heartbeat. */
  heartbeatMs: number;
}

/** The models that the pages of the web app begin with, by name; undefined: the page chooses. */
export interface PageModels {
  readonly story?: string | undefined;
  readonly chat?: string | undefined;
}

/** A line about an answered request: what it was and its status, never what it contained. */
export type LogRequest = (line: string, level: "warn" | "info" | "debug") => void;

export interface ServerContext {
  readonly models: ModelHost;
  /** Which of them are in memory. */
  readonly pool: ModelPool;
  /** What happens to them, for those who follow it. */
  readonly events: ModelEvents;
  /** Those that were made from others. */
  readonly made: MadeModels;
  readonly keepAlive: KeepAlive;
  readonly queue: AdmissionQueue;
  /** Queue for requests with large bodies, because reading and tokenizing them takes time and memory. */
  readonly large: AdmissionQueue;
  readonly jobs: Set<Job>;
  readonly slots: Slots;
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
  /** Logs an answered request; undefined: nobody wants to know. */
  readonly logRequest: LogRequest | undefined;
  /** Models whose history was said to be rewritten: once is enough, since every turn of a conversation does it. */
  readonly saidChanged: Set<string>;
  /** Seconds since 1970. */
  readonly started: number;
  /** Aborted when running requests must end because the grace period is over. */
  readonly stopSignal: AbortSignal;
}

/** Large bodies in memory at a time, and of one client: one that sends slowly does not keep the others waiting. */
const largeBodies = 4;
const largeBodiesOfClient = 3;

export interface ContextOptions {
  settings: ServerSettings;
  models: readonly ServedModel[];
  library?: ModelLibrary | undefined;
  /** Models that are loaded when a request names them. */
  onDemand?: OnDemandModels | undefined;
  limits?: PoolLimits | undefined;
  /** Where made models last; undefined: they end with the server. */
  madeStore?: MadeStore | undefined;
  /** Reads the parameters of made models. */
  optionsOf: ParameterReader;
  log(line: string): void;
  logRequest?: LogRequest | undefined;
  /** Reads what the system says of memory and processors; undefined: only the models are known. */
  readSystem?: (() => SystemReading) | undefined;
  stopSignal: AbortSignal;
}

export function createContext(options: ContextOptions): ServerContext {
  const { settings, log, stopSignal } = options;
  const clock = { now: () => performance.now(), time: () => Date.now() };
  const { onDemand, limits = noLimits } = options;
  const isPinned = (id: string): boolean => onDemand?.preset(id)?.isPinned ?? false;
  const events = new ModelEvents(clock.now);
  const changed = (id: string): void => events.status(id, pool.state(id));
  const keepAlive: KeepAlive = new KeepAlive(settings.keepMs, {
    ...{ time: clock.time, log, isPinned, left: changed },
  });
  const pool: ModelPool = new ModelPool({
    ...{ keepAlive, onDemand, limits, stopSignal, changed, time: clock.time },
    mostWaiting: settings.parallel + settings.queue,
    served: () => models.list(),
    add: (served) => models.add(served),
    remove: (id) => void models.remove(id),
  });
  const models: ModelHost = new ModelHost(settings.strictModel, keepAlive, pool);
  for (const served of options.models) models.add(served, true);
  const queue = new AdmissionQueue(settings.parallel, settings.queue);
  const jobs = new Set<Job>();
  return {
    models,
    pool,
    events,
    made: new MadeModels({
      ...{ models, pool, log, store: options.madeStore, optionsOf: options.optionsOf },
    }),
    keepAlive,
    queue,
    usage: new UsageHistory({ models, ...clock }, options.readSystem),
    large: new AdmissionQueue(largeBodies, settings.queue, largeBodiesOfClient),
    jobs,
    slots: new Slots(settings.parallel, settings.queue),
    library: options.library,
    metrics: createMetrics(),
    settings,
    ...clock,
    log,
    logRequest: options.logRequest,
    saidChanged: new Set(),
    started: Math.floor(Date.now() / 1000),
    stopSignal,
  };
}
