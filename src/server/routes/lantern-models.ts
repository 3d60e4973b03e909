// Models over HTTP, for the web app: what there is, downloads and loads with their progress, unloading. What takes long is
// a task: it is started, looked at, and can be stopped; the list tells how far it is.

import * as z from "zod";
import { AbortedError, LanternError, type Model } from "../../index.ts";
import type { ServerContext } from "../context.ts";
import { ApiError, describeError, openaiErrors } from "../errors.ts";
import {
  type LibraryModel,
  type ModelLibrary,
  publicInfo,
  type TaskOptions,
  withoutFolders,
} from "../library.ts";
import { inPageWords } from "../page-words.ts";
import { type Call, json, type RouteFamily } from "../route.ts";
import { bodyFields } from "./lantern-service.ts";

const name = z.string().min(1).max(500);
const named = z.strictObject({ name });
const loading = z.strictObject({
  name,
  chatTemplate: z.enum(["chatml", "llama2", "zephyr"]).exactOptional(),
  contextSize: z.int().min(32).max(1_048_576).exactOptional(),
});

/** A download or a load, under way or just failed. */
interface Task {
  kind: "download" | "load";
  loadedBytes: number;
  totalBytes: number;
  /** Why it failed; it stays in the list until the next try. */
  error: string | null;
}

interface RunningTask extends Task {
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

export interface ModelFamilies {
  family: RouteFamily;
  /** Stops what is under way and disposes the models that were opened here. */
  close(): Promise<void>;
}

export function modelRoutes(server: ServerContext, library: ModelLibrary): ModelFamilies {
  const service = new ModelService(server, library);
  const family: RouteFamily = {
    name: "lantern-models",
    errors: openaiErrors,
    routes: [
      {
        method: "GET",
        path: "/lantern/v1/models",
        handle: async () => json(await service.view()),
      },
      {
        method: "POST",
        path: "/lantern/v1/models/download",
        handle: async (call) => {
          const fields = await bodyFields(call, named);
          await service.download(fields.name);
          return json(await service.view(), 202);
        },
      },
      {
        method: "POST",
        path: "/lantern/v1/models/load",
        handle: async (call) => {
          await service.load(await bodyFields(call, loading));
          return json(await service.view(), 202);
        },
      },
      { method: "POST", path: "/lantern/v1/models/cancel", handle: (call) => cancel(call) },
      {
        method: "POST",
        path: "/lantern/v1/models/unload",
        handle: async (call) => {
          const fields = await bodyFields(call, named);
          await service.unload(fields.name);
          return json(await service.view());
        },
      },
    ],
  };
  const cancel = async (call: Call): Promise<Response> => {
    const fields = await bodyFields(call, named);
    await service.cancel(fields.name);
    return json(await service.view());
  };
  return { family, close: () => service.close() };
}

class ModelService {
  readonly #server: ServerContext;
  readonly #library: ModelLibrary;
  readonly #running = new Map<string, RunningTask>();
  readonly #failed = new Map<string, Task>();
  /** Opened here, so disposed here. */
  readonly #opened = new Map<string, Model>();

  constructor(server: ServerContext, library: ModelLibrary) {
    this.#server = server;
    this.#library = library;
  }

  async view(): Promise<object> {
    const listed = await this.#library.list();
    const known = new Set(listed.map((model) => model.name));
    const asked = [...this.#running.keys(), ...this.#failed.keys()].filter(
      (one) => !known.has(one),
    );
    const served = this.#server.models.list();
    return {
      models: [...listed, ...[...new Set(asked)].map(unlisted)].map((model) => ({
        ...model,
        task: this.#task(model.name),
        served: served.some(({ id }) => id === model.name),
      })),
      served: served.map(({ id, model }) => ({ id, info: publicInfo(model.info) })),
    };
  }

  #task(name: string): Task | null {
    const task = this.#running.get(name) ?? this.#failed.get(name);
    if (!task) return null;
    const { kind, loadedBytes, totalBytes, error } = task;
    return { kind, loadedBytes, totalBytes, error };
  }

  async download(name: string): Promise<void> {
    const model = await this.#find(name);
    if (!model && !this.#library.canDownload(name)) throw unknown(name);
    if (model && isHere(model)) return;
    this.#start(name, "download", async (options) => {
      await this.#library.download(name, options);
    });
  }

  async load({ name, ...options }: z.infer<typeof loading>): Promise<void> {
    const model = await this.#find(name);
    if (!model) throw unknown(name);
    if (!isHere(model)) {
      throw refused(409, "not_downloaded", `${name} is not on this machine yet: download it first`);
    }
    this.#start(name, "load", async (task) => {
      const opened = await this.#library.open(name, { ...options, ...task });
      if (task.signal.aborted) {
        await opened.dispose();
        throw new AbortedError(`loading ${name}`);
      }
      await this.#replace(name, opened);
    });
  }

  /** The same model loaded again (another template, another context) takes the place of the old one. */
  async #replace(name: string, model: Model): Promise<void> {
    const old = this.#server.models.remove(name);
    const created = Math.floor(this.#server.time() / 1000);
    this.#server.models.add({ id: name, model, created });
    this.#opened.set(name, model);
    await old?.model.dispose();
  }

  async unload(id: string): Promise<void> {
    const served = this.#server.models.list().find((one) => one.id === id);
    if (!served) throw unknown(id);
    this.#checkIdle(id);
    this.#server.models.remove(id);
    this.#opened.delete(id);
    await served.model.dispose();
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
    await Promise.all([...this.#opened.values()].map((model) => model.dispose()));
    this.#opened.clear();
  }

  /** A network that is down or a model that does not fit is nothing to log; the person who asked reads it. */
  #describe(error: unknown): string {
    if (error instanceof LanternError) return inPageWords(withoutFolders(error.message));
    return describeError(error, (bug) => this.#server.log(String(bug))).message;
  }

  async #find(name: string): Promise<LibraryModel | undefined> {
    return (await this.#library.list()).find((model) => model.name === name);
  }

  #checkIdle(id: string): void {
    const busy = [...this.#server.jobs].some(({ model }) => model === id);
    if (!busy) return;
    throw refused(409, "model_busy", `${id} is writing an answer: stop it, or wait for its end`);
  }

  #start(name: string, kind: Task["kind"], work: (options: TaskOptions) => Promise<void>): void {
    if (this.#running.has(name)) {
      throw refused(409, "task_in_progress", `${name} is being worked on already`);
    }
    if (kind === "load") this.#checkIdle(name);
    this.#failed.delete(name);
    const abort = new AbortController();
    const task: Task = { kind, loadedBytes: 0, totalBytes: 0, error: null };
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

function isHere({ state }: LibraryModel): boolean {
  return state !== "partial" && state !== "absent";
}

/** Something that was asked for by its name on the hub, while it comes. */
function unlisted(name: string): LibraryModel {
  const facts = { licence: "see the model's page", bytes: 0, chat: true, source: "Hugging Face" };
  return { name, description: "from the Hugging Face hub", state: "absent", ...facts };
}

function unknown(name: string): ApiError {
  return refused(404, "model_not_found", `there is no model "${name.slice(0, 100)}" in the list`);
}

function refused(status: number, code: string, message: string): ApiError {
  return new ApiError({ status, type: "invalid_request_error", code, param: "name", message });
}
