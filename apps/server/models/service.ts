// The models behind the Models page: the list with tasks in progress, downloads and loads as tasks that can be watched
// and stopped, unloading, deleting. routes/lantern-models.ts offers it over HTTP.

import { LanternError, type Model } from "../../../src/index.ts";
import { inPageWords } from "../../../src/options/names.ts";
import type { ServerContext } from "../context.ts";
import { ApiError, describeError } from "../errors.ts";
import type { ModelLoader, RunningDownload } from "./host.ts";
import {
  type LibraryModel,
  type LibraryOpenOptions,
  type LoadChange,
  type LoadChoices,
  type LoadPlan,
  type ModelLibrary,
  publicInfo,
  type TaskOptions,
  withoutFolders,
} from "./library.ts";
import { heldBytes } from "./on-demand.ts";
import type { LoadState } from "./registry.ts";

/** A download or a load, in progress or just failed. */
export interface ModelTask {
  kind: "download" | "load";
  loadedBytes: number;
  totalBytes: number;
  /** Why it failed; it stays in the list until the next try. */
  error: string | null;
}

/** A model that requests can name. */
export interface ModelMemory extends LoadState {
  readonly id: string;
  /** 0: it is not in memory. */
  readonly bytes: number;
}

interface RunningTask extends ModelTask {
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

export class ModelService implements ModelLoader {
  readonly #server: ServerContext;
  readonly #library: ModelLibrary;
  readonly #running = new Map<string, RunningTask>();
  readonly #failed = new Map<string, ModelTask>();

  constructor(server: ServerContext, library: ModelLibrary) {
    this.#server = server;
    this.#library = library;
  }

  /** The request is from this machine's own user, who may see its folders. */
  get isLocal(): boolean {
    return this.#server.settings.isLocal;
  }

  async view(): Promise<object> {
    // Read before the list: a task that ends in between may be shown once more, but is never missing with an outdated
    // list.
    const tasks = new Map(
      [...this.#failed, ...this.#running].map(([name, task]) => [name, plain(task)]),
    );
    const [listed, place] = await Promise.all([this.#library.list(), this.#library.place()]);
    const known = new Set(listed.map((model) => model.name));
    const asked = [...tasks.keys()].filter((one) => !known.has(one));
    const served = this.#server.models.list();
    return {
      memory: await this.#inMemory(),
      models: [...asked.map((one) => unlisted(one, tasks.get(one)!)), ...listed].map((model) => ({
        ...model,
        task: tasks.get(model.name) ?? null,
        served: served.some(({ id }) => id === model.name),
      })),
      served: served.map(({ id, model }) => ({ id, info: publicInfo(model.info) })),
      pages: this.#server.settings.pages,
      place: { ...place, folder: this.isLocal ? place.folder : null },
      isLocal: this.isLocal,
    };
  }

  /** The memory of each model that requests can name. */
  async #inMemory(): Promise<ModelMemory[]> {
    const { models, registry } = this.#server;
    const opened = models.list().map(({ id, model }) => {
      const state = registry.state(id);
      return { id, ...state, bytes: state.value === "loaded" ? heldBytes(model.info) : 0 };
    });
    const unopened = (await models.unopened()).map(({ id }) => ({
      id,
      ...registry.state(id),
      bytes: 0,
    }));
    const all = [...opened, ...unopened];
    const made = [...models.variants].flatMap(([id, { of }]) => {
      const original = all.find((one) => one.id === of);
      return original ? [{ ...original, id, bytes: 0 }] : [];
    });
    return [...all, ...made];
  }

  async download(name: string): Promise<void> {
    const model = await this.#find(name);
    if (!model && !this.#library.canDownload(name)) throw unknown(name);
    if (model && isHere(model)) return;
    const { events } = this.#server;
    this.#start(name, "download", async ({ signal, onProgress }) => {
      const told: TaskOptions["onProgress"] = (progress) => {
        onProgress(progress);
        events.downloaded(name, progress.loadedBytes, progress.totalBytes);
      };
      try {
        await this.#library.download(name, { signal, onProgress: told });
        events.emit({ model: name, event: "download_finished" });
      } catch (error) {
        const data = { error: signal.aborted ? "it was stopped" : this.#describe(error) };
        events.emit({ model: name, event: "download_failed", data });
        throw error;
      }
    });
  }

  async load(name: string, options: Omit<LibraryOpenOptions, keyof TaskOptions>): Promise<void> {
    const model = await this.#find(name);
    if (!model) {
      const { models, registry } = this.#server;
      const isMade = models.variants.has(name);
      if (!isMade && !(await models.isKnown(name))) throw unknown(name);
      if (Object.keys(options).length > 0) {
        throw refused(
          400,
          "options_not_here",
          `${name} was made from another model, with options of its own. Make it again to change them`,
        );
      }
      return registry.start((await models.held(name)).held); // of a folder or a file of presets, which say how it is opened
    }
    if (!isHere(model)) {
      throw refused(409, "not_downloaded", `${name} is not on this machine yet. Download it first`);
    }
    this.#startLoad(name, options);
  }

  /** The memory that loading it would take, and the largest context that fits. */
  async plan(
    name: string,
    options: Pick<LoadChange, "contextSize" | "kvType" | "weights">,
  ): Promise<LoadPlan> {
    const plan = await this.#library.plan(name, options);
    const loaded = this.#server.models.list().find(({ id }) => id === name);
    // Its current memory is free before it is loaded again.
    const held = loaded ? heldBytes(loaded.model.info) : 0;
    const room = plan.freeMemoryBytes + held - (plan.totalBytes - plan.kvBytes);
    const perToken = plan.kvBytes / plan.contextSize;
    const most = Math.floor(room / perToken / contextStep) * contextStep;
    return { ...plan, mostContext: Math.max(0, Math.min(most, plan.trainedContext)) };
  }

  downloads(): RunningDownload[] {
    return [...this.#running].flatMap(([name, { kind, loadedBytes, totalBytes }]) =>
      kind === "download" ? [{ name, loadedBytes, totalBytes }] : [],
    );
  }

  /** Resolves when a model is served: for a conversation that was held with it. */
  async serve(name: string, path: string | undefined): Promise<void> {
    const listed = await this.#find(name);
    const isListed = listed !== undefined && isHere(listed);
    if (!isListed && path === undefined) throw unknown(name);
    await this.#running.get(name)?.done; // a download, or a load that another client has started
    if (this.#server.models.lookUp(name)) return;
    if (!this.#running.has(name)) this.#startLoad(name, { path });
    await this.#running.get(name)?.done;
    if (this.#server.models.lookUp(name)) return;
    const why = this.#failed.get(name)?.error ?? "loading it was stopped";
    if (!listed) this.#failed.delete(name); // the caller gets the error; there is no row for it in the list
    throw refused(409, "model_not_loaded", why.replace(/\.$/, ""));
  }

  async locate(id: string): Promise<string | undefined> {
    return await this.#library.locate(id);
  }

  #startLoad(name: string, options: Omit<LibraryOpenOptions, keyof TaskOptions>): void {
    const needs = async (): Promise<number> => {
      const wanted = withoutNull(options);
      const { totalBytes = 0 } = await this.#library.plan(name, wanted).catch(() => noPlan);
      return totalBytes;
    };
    this.#start(name, "load", async ({ signal, onProgress }) => {
      const open = (task: TaskOptions): Promise<Model> => {
        const told: TaskOptions["onProgress"] = (progress) => {
          onProgress(progress);
          task.onProgress(progress);
        };
        return this.#library.open(name, { ...options, ...task, onProgress: told });
      };
      await this.#server.registry.choose(name, { needs, open }, signal);
    });
  }

  async unload(id: string): Promise<void> {
    const served = this.#server.models.list().find((one) => one.id === id);
    if (!served) throw unknown(id);
    this.#checkIdle(id);
    await this.#server.registry.forget(id);
  }

  async delete(name: string): Promise<void> {
    const model = await this.#find(name);
    if (!model) throw unknown(name);
    if (this.#running.has(name)) {
      throw refused(
        409,
        "task_in_progress",
        `${name} is being downloaded or loaded. Stop that first`,
      );
    }
    const path = await this.#library.locate(name);
    for (const { id } of this.#server.models.list()) {
      const isSame =
        id === name || (path !== undefined && (await this.#library.locate(id)) === path);
      if (isSame) throw refused(409, "model_loaded", `${name} is loaded. Unload it first`);
    }
    this.#failed.delete(name);
    await this.#library.remove(name);
    this.#server.events.emit({ model: name, event: "model_remove" });
  }

  async cancel(name: string): Promise<void> {
    const task = this.#running.get(name);
    this.#failed.delete(name);
    task?.abort.abort();
    await task?.done;
  }

  async close(): Promise<void> {
    for (const { abort } of this.#running.values()) abort.abort();
    await Promise.all([...this.#running.values()].map(({ done }) => done));
  }

  /** A network that is down or a model that does not fit is not logged; the client reads the message. */
  #describe(error: unknown): string {
    if (error instanceof LanternError) {
      return inPageWords(this.isLocal ? error.message : withoutFolders(error.message));
    }
    return describeError(error, (bug) => this.#server.log(String(bug))).message;
  }

  async #find(name: string): Promise<LibraryModel | undefined> {
    return (await this.#library.list()).find((model) => model.name === name);
  }

  #checkIdle(id: string): void {
    const busy = [...this.#server.jobs].some(({ model }) => model === id);
    if (!busy) return;
    throw refused(
      409,
      "model_busy",
      `${id} is writing an answer. Stop it, or wait until it is complete`,
    );
  }

  #start(
    name: string,
    kind: ModelTask["kind"],
    work: (options: TaskOptions) => Promise<void>,
  ): void {
    if (this.#running.has(name)) {
      throw refused(409, "task_in_progress", `${name} is already being downloaded or loaded`);
    }
    if (kind === "load") this.#checkIdle(name);
    this.#failed.delete(name);
    const abort = new AbortController();
    const task: ModelTask = { kind, loadedBytes: 0, totalBytes: 0, error: null };
    const onProgress: TaskOptions["onProgress"] = (progress) => void Object.assign(task, progress);
    const done = work({ signal: abort.signal, onProgress }).then(
      () => void this.#running.delete(name),
      (error: unknown) => {
        this.#running.delete(name);
        if (abort.signal.aborted) return;
        this.#failed.set(name, { ...task, error: this.#describe(error) });
      },
    );
    this.#running.set(name, Object.assign(task, { abort, done }));
  }
}

/** Offered context sizes are multiples of it. */
const contextStep = 256;

function withoutNull(change: LoadChange): LoadChoices {
  return Object.fromEntries(Object.entries(change).filter(([, value]) => value !== null));
}

/** If the library does not know a model's memory: its engine checks it. */
const noPlan: { totalBytes?: number } = {};

function plain({ kind, loadedBytes, totalBytes, error }: ModelTask): ModelTask {
  return { kind, loadedBytes, totalBytes, error };
}

function isHere({ state }: LibraryModel): boolean {
  return state !== "partial" && state !== "absent";
}

/** A model that is not in the list, while it is downloaded from the hub, or loaded for a conversation. */
function unlisted(name: string, { kind }: ModelTask): LibraryModel {
  const isHub = kind === "download";
  const facts = { licence: "see the model's page", bytes: 0, chat: true };
  return {
    name,
    description: isHub ? "from the Hugging Face hub" : "a file of this machine",
    state: isHub ? "absent" : "linked",
    source: isHub ? "Hugging Face" : "this machine",
    ...facts,
  };
}

function unknown(name: string): ApiError {
  return refused(404, "model_not_found", `there is no model "${name.slice(0, 100)}" in the list`);
}

function refused(status: number, code: string, message: string): ApiError {
  return new ApiError({ status, type: "invalid_request_error", code, param: "name", message });
}
