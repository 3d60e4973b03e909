// The served models, by name. A request without a name gets the first. A request gets its model with obtain(), which loads it where
// it must, and holds it until the request's handler is done (models/registry.ts decides what is in memory).

import { modelNotFound } from "../errors.ts";
import { heldId, type ServedModel, type Variant } from "../served-model.ts";
import { inBackground, stoppedBy } from "./call-model.ts";
import { madeUnusable, modelMissing, notLoaded } from "./errors.ts";
import type { ModelPreset, OnDemandModel } from "./on-demand.ts";
import type { ModelRegistry, Release } from "./registry.ts";

export interface RunningDownload {
  readonly name: string;
  readonly loadedBytes: number;
  readonly totalBytes: number;
}

/** Loads models that are not served, and downloads others. */
export interface ModelLoader {
  /** Resolves when it is served; rejects with the reason. `path`: its last path, for a name that is not listed. */
  serve(name: string, path: string | undefined): Promise<void>;
  /** The path of a served model's file; undefined: not known. */
  locate(id: string): Promise<string | undefined>;
  /** Begins a download; refuses names that cannot be downloaded. */
  download(name: string): Promise<void>;
  /** Stops a download or a load. */
  cancel(name: string): Promise<void>;
  /** Deletes a model that is not in memory. */
  delete(name: string): Promise<void>;
  /** Downloads that run now. */
  downloads(): readonly RunningDownload[];
}

/** State that all requests share. */
interface Shared {
  /** By name. */
  readonly variants: Map<string, Variant>;
  readonly unusable: Map<string, string>;
  readonly strict: boolean;
  readonly registry: ModelRegistry;
  /** Those that the server started with. */
  readonly first: Set<string>;
  loader: ModelLoader | undefined;
  several: boolean;
}

interface RequestKind {
  /** Whether it loads a model that is not loaded; undefined: the server's default. */
  readonly autoload: boolean | undefined;
  /** No client waits for it. */
  readonly isBackground: boolean;
}

/** The state of one request. */
interface Request extends RequestKind {
  readonly signal: AbortSignal;
  /** Releases of the models that it holds. */
  readonly releases: Release[];
}

/** The result for a request: the name in the answer, and the model that must be in memory for it. */
interface Choice {
  readonly name: string;
  readonly held: string;
  readonly isOpened: boolean;
}

function opened(served: ServedModel): Choice {
  return { name: served.id, held: heldId(served), isOpened: true };
}

const noRequest: Partial<Request> & Pick<Request, "signal"> = {
  signal: new AbortController().signal,
};

export class ModelHost {
  readonly #shared: Shared;
  readonly #request: Request | undefined;
  readonly #lasting: ModelHost;

  /** `strict`: a single model accepts only its own name. */
  constructor(strict: boolean, registry: ModelRegistry, of?: ModelHost, by?: Request) {
    const none = { variants: new Map(), unusable: new Map(), first: new Set<string>() };
    this.#shared = of
      ? of.#shared
      : { ...none, strict, registry, loader: undefined, several: false };
    this.#request = by;
    this.#lasting = of ? of.#lasting : this;
    if (!of)
      this.watch(() => {
        this.#shared.several ||= registry.list().length > 1;
      });
  }

  /** The same models for one request: its work on texts ends with the signal. */
  forRequest(signal: AbortSignal, kind: Partial<RequestKind> = {}): ModelHost {
    const { strict, registry } = this.#shared;
    const { autoload, isBackground = false } = kind;
    const request = { signal, autoload, isBackground, releases: [] };
    return new ModelHost(strict, registry, this, request);
  }

  /** The models for work that outlives the request that started it. */
  get lasting(): ModelHost {
    return this.#lasting;
  }

  /** How a model that is not served is loaded; undefined: the served models are fixed. */
  get loader(): ModelLoader | undefined {
    return this.#shared.loader;
  }

  loadWith(loader: ModelLoader): void {
    this.#shared.loader = loader;
  }

  /** Calls back whenever a model is added or removed; returns what ends that. */
  watch(changed: () => void): () => void {
    return this.#shared.registry.follow(changed);
  }

  /** Whether more than one model was served at a time: a label names the model in /metrics from then on. */
  get hadSeveral(): boolean {
    return this.#shared.several;
  }

  /** Other names of models, with settings of their own. */
  get variants(): Map<string, Variant> {
    return this.#shared.variants;
  }

  /** Names of derived models that cannot be served, and the reasons. */
  get unusable(): Map<string, string> {
    return this.#shared.unusable;
  }

  /** `isFirst`: the server starts with it. */
  add(served: ServedModel, isFirst = false): void {
    if (isFirst) this.#shared.first.add(served.id);
    this.#shared.registry.add(served);
  }

  /** The opened ones. */
  list(): readonly ServedModel[] {
    return this.#shared.registry.list();
  }

  /** All models that requests can name and that are not opened. */
  async unopened(): Promise<readonly OnDemandModel[]> {
    const { registry } = this.#shared;
    const all = (await registry.onDemand?.list()) ?? [];
    return all.filter(({ id }) => !registry.get(id));
  }

  preset(id: string): ModelPreset | undefined {
    return this.#shared.registry.onDemand?.preset(id);
  }

  /**
   * The model that answers a request, in memory until the request's handler is done. Loads it, if requests may do that.
   * `asked` is only compared with names.
   */
  async obtain(asked: string | undefined): Promise<ServedModel> {
    const { registry } = this.#shared;
    const { signal, autoload, releases } = this.#request ?? noRequest;
    const { name, held, isOpened } = await this.#choose(asked);
    if (!isOpened && !(autoload ?? registry.limits.autoload)) throw notLoaded(name);
    const release = await registry.hold(held, signal);
    if (releases) releases.push(release);
    else release(); // held by no request: it may leave when another needs the room
    return this.findExact(name);
  }

  /** The model that a name stands for, loaded or not; a 404 if it stands for none. */
  async held(name: string): Promise<Choice> {
    const served = this.lookUp(name);
    if (served) return opened(served);
    const unopened = await this.#chooseUnopened(name);
    if (unopened) return unopened;
    this.#checkMade(name);
    const ids = [...this.list(), ...(await this.unopened())].map(({ id }) => id);
    throw modelNotFound(name, ids);
  }

  /** Whether a request for this name would load a model. */
  async isKnown(name: string): Promise<boolean> {
    return (await this.#chooseUnopened(name)) !== undefined;
  }

  /** Keeps a model that was obtained in memory until the returned function is called. */
  async hold(served: ServedModel, signal: AbortSignal): Promise<Release> {
    return await this.#shared.registry.holdAgain(heldId(served), signal);
  }

  /** Called when the handler of a request is done: work that continues then holds its model itself. */
  release(): void {
    for (const release of this.#request?.releases.splice(0) ?? []) release();
  }

  /** The model that a request's name stands for. */
  async #choose(asked: string | undefined): Promise<Choice> {
    const { registry, first, strict } = this.#shared;
    if (!registry.onDemand) return opened(this.find(asked));
    if (asked !== undefined) {
      const served = this.lookUp(asked);
      if (served) return opened(served);
      const unopened = await this.#chooseUnopened(asked);
      if (unopened !== undefined) return unopened;
      this.#checkMade(asked);
    }
    const atStart = this.list().filter(({ id }) => first.has(id));
    const answersAll = atStart.length === 1 && !strict;
    if (atStart[0] && (asked === undefined || answersAll)) return opened(atStart[0]);
    const ids = [...this.list(), ...(await this.unopened())].map(({ id }) => id);
    if (asked !== undefined) throw modelNotFound(asked, ids);
    const [only] = ids;
    if (only === undefined || ids.length > 1) throw modelMissing(ids);
    return { name: only, held: only, isOpened: registry.get(only) !== undefined };
  }

  async #chooseUnopened(asked: string): Promise<Choice | undefined> {
    const { variants } = this.#shared;
    const names = this.#namesOf(asked);
    const all = await this.unopened();
    const variant = names.find((name) => variants.has(name));
    const of = variant === undefined ? undefined : variants.get(variant)!.of;
    const found =
      all.find(({ id }) => names.includes(id) || id === of) ??
      all.find(({ aliases }) => aliases.some((alias) => names.includes(alias)));
    if (!found) return undefined;
    const name = found.id === of && variant !== undefined ? variant : found.id;
    return { name, held: found.id, isOpened: false };
  }

  /** No other model answers for a made one that cannot be served: a request that names it gets the reason. */
  #checkMade(asked: string): void {
    const { variants, unusable } = this.#shared;
    for (const name of this.#namesOf(asked)) {
      const why = unusable.get(name);
      if (why !== undefined) throw madeUnusable(name, why);
      const variant = variants.get(name);
      if (variant) throw madeUnusable(name, `it is made from "${variant.of}", which is not served`);
    }
  }

  /** Ollama's clients append ":latest"; a file of presets may have further names. */
  #namesOf(asked: string): string[] {
    const names = [asked, asked.replace(/:latest$/, "")];
    const aliased = names.flatMap((name) => this.#shared.registry.onDemand?.aliased(name) ?? []);
    return [...names, ...aliased];
  }

  #view(served: ServedModel): ServedModel {
    const request = this.#request;
    const own = { preset: this.preset(heldId(served)), ...served };
    if (!request) return own;
    const touch = () => this.#shared.registry.touch(heldId(served));
    const model = request.isBackground ? inBackground(served.model) : served.model;
    return { ...own, model: stoppedBy(model, request.signal, touch) };
  }

  /**
   * Finds a model by name; Ollama's clients append ":latest". A single model accepts any name, as in llama.cpp: clients
   * with "gpt-4o" built in work. With several models, or if strict, another name is a 404 that lists the served ones.
   */
  find(id: string | undefined): ServedModel {
    const { strict } = this.#shared;
    const [first, ...more] = this.list();
    const served = id === undefined ? undefined : this.lookUp(id);
    if (served) return served;
    if (id !== undefined) this.#checkMade(id);
    if (first && (id === undefined || (!strict && more.length === 0))) return this.#view(first);
    return this.findExact(id ?? "(none)");
  }

  /** Finds a model by its own name, or the first if no name is given: for our own pages, whose models change. */
  named(id: string | undefined): ServedModel {
    return id === undefined ? this.find(undefined) : this.findExact(id);
  }

  /** Finds a model by its own name only. */
  findExact(id: string): ServedModel {
    const found = this.lookUp(id);
    if (!found)
      throw modelNotFound(
        id,
        this.list().map((one) => one.id),
      );
    return found;
  }

  /** Finds a model by its own name, or by one of its aliases that is no other model's own name; undefined: it is not served. */
  lookUp(id: string): ServedModel | undefined {
    const { registry, variants } = this.#shared;
    const names = this.#namesOf(id);
    const own = names.map((name) => registry.get(name)).find((found) => found !== undefined);
    if (own) return this.#view(own);
    const variant = names.find((name) => variants.has(name));
    if (variant !== undefined) return this.#variant(variant, variants.get(variant)!);
    const found = this.list().find(({ aliases = [] }) =>
      names.some((name) => aliases.includes(name)),
    );
    return found && this.#view(found);
  }

  #variant(id: string, { of, preset, created }: Variant): ServedModel | undefined {
    const original = this.#shared.registry.get(of);
    if (!original) return undefined;
    const base = this.preset(of);
    const sampling = { ...base?.sampling, ...preset.sampling };
    const own = { ...base, ...preset, sampling };
    return this.#view({ ...original, id, of, created, aliases: [], preset: own });
  }
}
