// What every route is given: the models that are served, the queue in front of them, the counters, the settings and the
// clock. One object per server; made by `createContext`, disposed by nobody: whoever opened the models closes them.

import type { GenerateOptions, Model } from "../index.ts";
import type { AccessSettings } from "./access.ts";
import { stoppedBy } from "./call-model.ts";
import { modelNotFound } from "./errors.ts";
import type { ModelLibrary } from "./library.ts";
import type { Metrics } from "./metrics.ts";
import { createMetrics } from "./metrics.ts";
import { AdmissionQueue } from "./queue.ts";

export interface ServerSettings {
  version: string;
  /** Who may do what. */
  access: AccessSettings;
  /** Generations that run at once. */
  parallel: number;
  /** Generations that may wait for their turn. */
  queue: number;
  maxBodyBytes: number;
  maxMessages: number;
  /** Origins whose pages may ask; "*": all, "localhost": this machine's. Empty: none. */
  corsOrigins: readonly string[];
  /** Only the names of served models are answered, even if there is a single model. */
  strictModel: boolean;
  /** Whether GET /slots and GET /metrics are answered. */
  slots: boolean;
  metrics: boolean;
  /** Every answer has llama.cpp's `__verbose`. */
  verbose: boolean;
  /** What templates get as enable_thinking, unless a request says so; undefined: their own choice. */
  thinking: boolean | undefined;
  /** Names by which this server may be called, besides IP addresses. */
  hosts: readonly string[];
  /** It listens on this machine only. */
  isLocal: boolean;
  /** What a request that says nothing of sampling gets. */
  sampling: GenerateOptions;
  /** How the states of tokens become one vector, unless a request says so. */
  pooling: "mean" | "last";
  /** A stream of events with nothing to say says so this often. */
  heartbeatMs: number;
}

/** A model under the name that clients use. */
export interface ServedModel {
  id: string;
  model: Model;
  /** Seconds since 1970. */
  created: number;
  /** The name of its file, without folders; undefined: not known. */
  file?: string | undefined;
}

/** The models, by name. The first is what a request without a name gets. */
class ModelHost {
  #models = new Map<string, ServedModel>();
  readonly #strict: boolean;
  #changed: () => void = () => {};
  #view: (served: ServedModel) => ServedModel = (served) => served;
  #lasting: ModelHost = this;

  /** `strict`: a single model does not answer to other names than its own. */
  constructor(strict: boolean = false) {
    this.#strict = strict;
  }

  /** The same models for one request: what is done with texts for it ends when its signal says so. */
  forRequest(signal: AbortSignal): ModelHost {
    const host = new ModelHost(this.#strict);
    host.#models = this.#models;
    host.#lasting = this.#lasting;
    host.#changed = () => this.#changed();
    host.#view = (served) => ({ ...served, model: stoppedBy(served.model, signal) });
    return host;
  }

  /** The models for what goes on when the request that began it is over. */
  get lasting(): ModelHost {
    return this.#lasting;
  }

  /** Calls back whenever a model comes or goes. */
  watch(changed: () => void): void {
    this.#changed = changed;
  }

  add(served: ServedModel): void {
    this.#models.set(served.id, served);
    this.#changed();
  }

  remove(id: string): ServedModel | undefined {
    const served = this.#models.get(id);
    this.#models.delete(id);
    this.#changed();
    return served;
  }

  list(): readonly ServedModel[] {
    return [...this.#models.values()];
  }

  /**
   * By name; Ollama's clients add ":latest". A single model answers to any name, as llama.cpp's does: clients that have
   * "gpt-4o" built in work. With several, or strictly, another name is a 404 that lists what there is.
   */
  find(id: string | undefined): ServedModel {
    const [first] = this.#models.values();
    if (first && (id === undefined || (!this.#strict && this.#models.size === 1))) {
      return this.#view(first);
    }
    return this.findExact(id ?? "(none)");
  }

  /** By its own name, or the first without one: for our own pages, whose models come and go. */
  named(id: string | undefined): ServedModel {
    return id === undefined ? this.find(undefined) : this.findExact(id);
  }

  /** By its own name only. */
  findExact(id: string): ServedModel {
    const found = this.#models.get(id) ?? this.#models.get(id.replace(/:latest$/, ""));
    if (!found) throw modelNotFound(id, [...this.#models.keys()]);
    return this.#view(found);
  }
}

/** A generation that runs now, for /slots. */
export interface Job {
  id: number;
  /** llama.cpp's slot: the lowest number that no running generation has. */
  slot: number;
  model: string;
  route: string;
  options: GenerateOptions;
  promptTokens: number;
  generatedTokens: number;
  hasNewLine: boolean;
}

export interface ServerContext {
  readonly models: ModelHost;
  readonly queue: AdmissionQueue;
  /** In front of requests with large bodies: reading and tokenizing them is work, too, and takes memory. */
  readonly large: AdmissionQueue;
  readonly jobs: Set<Job>;
  /** Other names of models, until the server ends (Ollama's copies): whose they are. */
  readonly copies: Map<string, string>;
  /** Models that can be listed, downloaded and deleted; undefined: there is only what is served. */
  readonly library: ModelLibrary | undefined;
  readonly metrics: Metrics;
  readonly settings: ServerSettings;
  /** Milliseconds that only go forward. */
  now(): number;
  /** Milliseconds since 1970. */
  time(): number;
  log(line: string): void;
  /** Seconds since 1970. */
  readonly started: number;
  /** Aborted when running requests should end: the time to finish is over. */
  readonly stopSignal: AbortSignal;
}

/** Large bodies that are in memory at a time. */
const largeBodies = 4;

export interface ContextOptions {
  settings: ServerSettings;
  models: readonly ServedModel[];
  library?: ModelLibrary | undefined;
  log(line: string): void;
  stopSignal: AbortSignal;
}

export function createContext(options: ContextOptions): ServerContext {
  const { settings, log, stopSignal } = options;
  const models = new ModelHost(settings.strictModel);
  for (const served of options.models) models.add(served);
  const queue = new AdmissionQueue(settings.parallel, settings.queue);
  const jobs = new Set<Job>();
  return {
    models,
    queue,
    large: new AdmissionQueue(largeBodies, settings.queue),
    jobs,
    copies: new Map(),
    library: options.library,
    metrics: createMetrics(),
    settings,
    now: () => performance.now(),
    time: () => Date.now(),
    log,
    started: Math.floor(Date.now() / 1000),
    stopSignal,
  };
}
