// What every route gets: the served models, the queue, the counters, the settings and the clock. One object per
// server, made by `createContext`; whoever opened the models closes them.

import type { GenerateOptions, Model, Pooling } from "../index.ts";
import type { AccessSettings } from "./access.ts";
import { inBackground, stoppedBy } from "./call-model.ts";
import { modelNotFound } from "./errors.ts";
import { KeepAlive } from "./keep-alive.ts";
import type { ModelLibrary } from "./library.ts";
import type { Metrics } from "./metrics.ts";
import { createMetrics } from "./metrics.ts";
import { AdmissionQueue } from "./queue.ts";
import type { ReasoningDefaults } from "./reasoning-fields.ts";
import { type Job, Slots } from "./slots.ts";
import { type SystemReading, UsageHistory } from "./usage.ts";

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

/** A model under the name that clients use. */
export interface ServedModel {
  id: string;
  model: Model;
  /** Seconds since 1970. */
  created: number;
  /** Its file name, without folders; undefined: not known. */
  file?: string | undefined;
  /** Further names that requests may use. */
  aliases?: readonly string[] | undefined;
}

/** The models that the pages of the web app begin with, by name; undefined: the page chooses. */
export interface PageModels {
  readonly story?: string | undefined;
  readonly chat?: string | undefined;
}

/** Loads models that are not served. */
export interface ModelLoader {
  /** Resolves when it is served; rejects with the reason. `path`: where it was, for a name that is not listed. */
  serve(name: string, path: string | undefined): Promise<void>;
  /** Where a served model's file is; undefined: not known. */
  locate(id: string): Promise<string | undefined>;
}

/** The models, by name. A request without a name gets the first. */
class ModelHost {
  #models = new Map<string, ServedModel>();
  readonly #strict: boolean;
  readonly #keepAlive: KeepAlive;
  #changed: () => void = () => {};
  #view: (served: ServedModel) => ServedModel = (served) => served;
  #lasting: ModelHost = this;
  #loader: ModelLoader | undefined;
  #several = false;

  /** `strict`: a single model accepts only its own name. */
  constructor(strict: boolean, keepAlive: KeepAlive) {
    this.#strict = strict;
    this.#keepAlive = keepAlive;
  }

  /** The same models for one request: its work on texts ends with the signal. `isBackground`: nobody waits for it. */
  forRequest(signal: AbortSignal, isBackground = false): ModelHost {
    const keepAlive = this.#keepAlive;
    const host = new ModelHost(this.#strict, keepAlive);
    host.#models = this.#models;
    host.#lasting = this.#lasting;
    host.#changed = () => this.#changed();
    host.#view = (served) => {
      const touch = () => keepAlive.touch(served.id);
      const model = isBackground ? inBackground(served.model) : served.model;
      return { ...served, model: stoppedBy(model, signal, touch) };
    };
    return host;
  }

  /** The models for work that outlives the request that started it. */
  get lasting(): ModelHost {
    return this.#lasting;
  }

  /** How a model that is not served is loaded; undefined: the served models are fixed. */
  get loader(): ModelLoader | undefined {
    return this.#lasting.#loader;
  }

  loadWith(loader: ModelLoader): void {
    this.#lasting.#loader = loader;
  }

  /** Calls back whenever a model is added or removed. */
  watch(changed: () => void): void {
    this.#changed = changed;
  }

  /** Whether more than one model was served at a time: a label names the model in /metrics from then on. */
  get hadSeveral(): boolean {
    return this.#lasting.#several;
  }

  add(served: ServedModel): void {
    this.#models.set(served.id, served);
    this.#keepAlive.add(served.id, served.model);
    this.#lasting.#several ||= this.#models.size > 1;
    this.#changed();
  }

  remove(id: string): ServedModel | undefined {
    const served = this.#models.get(id);
    this.#models.delete(id);
    this.#keepAlive.remove(id);
    this.#changed();
    return served;
  }

  list(): readonly ServedModel[] {
    return [...this.#models.values()];
  }

  /**
   * By name; Ollama's clients append ":latest". A single model accepts any name, as in llama.cpp: clients with
   * "gpt-4o" built in work. With several models, or if strict, another name is a 404 that lists the served ones.
   */
  find(id: string | undefined): ServedModel {
    const [first] = this.#models.values();
    if (first && (id === undefined || (!this.#strict && this.#models.size === 1))) {
      return this.#view(first);
    }
    return this.findExact(id ?? "(none)");
  }

  /** By its own name, or the first if no name is given: for our own pages, whose models change. */
  named(id: string | undefined): ServedModel {
    return id === undefined ? this.find(undefined) : this.findExact(id);
  }

  /** By its own name only. */
  findExact(id: string): ServedModel {
    const found = this.lookUp(id);
    if (!found) throw modelNotFound(id, [...this.#models.keys()]);
    return found;
  }

  /** By its own name, or by one of its aliases that is no other model's own name; undefined: it is not served. */
  lookUp(id: string): ServedModel | undefined {
    const names = [id, id.replace(/:latest$/, "")];
    const own = names.map((name) => this.#models.get(name)).find((found) => found !== undefined);
    const found =
      own ?? this.list().find(({ aliases = [] }) => names.some((name) => aliases.includes(name)));
    return found && this.#view(found);
  }
}

/** A line about an answered request: what it was and its status, never what it contained. */
export type LogRequest = (line: string, level: "warn" | "info" | "debug") => void;

export interface ServerContext {
  readonly models: ModelHost;
  readonly keepAlive: KeepAlive;
  readonly queue: AdmissionQueue;
  /** Queue for requests with large bodies, because reading and tokenizing them takes time and memory. */
  readonly large: AdmissionQueue;
  readonly jobs: Set<Job>;
  readonly slots: Slots;
  /** Other names of models until the server ends (Ollama's copies), and the models they stand for. */
  readonly copies: Map<string, string>;
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

/** Large bodies in memory at a time. */
const largeBodies = 4;

export interface ContextOptions {
  settings: ServerSettings;
  models: readonly ServedModel[];
  library?: ModelLibrary | undefined;
  log(line: string): void;
  logRequest?: LogRequest | undefined;
  /** Reads what the system says of memory and processors; undefined: only the models are known. */
  readSystem?: (() => SystemReading) | undefined;
  stopSignal: AbortSignal;
}

export function createContext(options: ContextOptions): ServerContext {
  const { settings, log, stopSignal } = options;
  const clock = { now: () => performance.now(), time: () => Date.now() };
  const keepAlive = new KeepAlive(settings.keepMs, { time: clock.time, log });
  const models = new ModelHost(settings.strictModel, keepAlive);
  for (const served of options.models) models.add(served);
  const queue = new AdmissionQueue(settings.parallel, settings.queue);
  const jobs = new Set<Job>();
  return {
    models,
    keepAlive,
    queue,
    usage: new UsageHistory({ models, ...clock }, options.readSystem),
    large: new AdmissionQueue(largeBodies, settings.queue),
    jobs,
    slots: new Slots(settings.parallel, settings.queue),
    copies: new Map(),
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
