// A Model's connection to its engine, which outlives the engine's thread. If the thread dies or hangs and the model
// was opened with `restart: true`, another thread is started and opens the model again. Requests that were running are
// rejected as lost, requests during the restart as RestartingError; later requests work as before.
//
// unload() ends the thread on purpose, and its memory is free: the next request opens the model again and waits for that. So it does
// after the GPU was lost; with `restart: true` the model is opened again at once.
//
// If the GPU turns out to have too little memory while it computes (DeviceMemoryError), the model is opened again with fewer layers on
// it, and all requests that were running are sent again, as below.
//
// If keys or values leave the range of the KV cache's type, the model is opened again with a cache of F32, and all requests that were
// running are sent again: generations continue after the tokens that they have.

import type { ModelHealth, ModelInfo, TokenEvent } from "../api/api.ts";
import {
  DeviceLostError,
  DeviceMemoryError,
  DisposedError,
  KvRangeError,
  ModelError,
  messageOf,
  RestartingError,
  WorkerError,
} from "../base/errors.ts";
import { type KvType, widestKvType } from "../dtypes/kv-types.ts";
import { deviceLayers } from "./device-layers.ts";
import type { MethodName, Methods } from "./protocol.ts";
import type { EngineLine } from "./rpc.ts";

export interface Connected {
  line: EngineLine;
  info: ModelInfo;
}

/** The settings that differ from the ones asked for. */
export interface Changed {
  /** The type of the KV cache. */
  readonly kvType?: KvType | undefined;
  /** No more layers on a GPU than these. */
  readonly mostGpuLayers?: number | undefined;
}

/** Starts a thread and opens the model there; `onDeath` is called if that thread is lost later. */
export type Connect = (
  onDeath: (error: WorkerError) => void,
  changed: Changed,
) => Promise<Connected>;

/** After a failed restart, the next request tries again once this time has passed. */
const retryMs = 5000;

type State =
  | { name: "ready" }
  | { name: "restarting" }
  /** With another type of the KV cache, or fewer layers on a GPU: requests wait for that. */
  | { name: "reopening" }
  | { name: "unloaded" }
  | { name: "failed"; cause: Error; since: number }
  | { name: "disposed" };

export class Connection {
  readonly #connect: Connect;
  readonly #mayRestart: boolean;
  /** Called when another engine is ready after the one before was lost, and when the engine was unloaded. */
  onRestart: () => void = () => {};
  /** Called with a warning for the user when the model was opened again with settings other than the ones asked for. */
  onReopen: (warning: string) => void = () => {};
  #line: EngineLine;
  #info: ModelInfo;
  #state: State = { name: "ready" };
  #life = 0;
  #restarts = 0;
  #restarting: Promise<void> = Promise.resolve();
  /** The end of an unloaded engine, and then the load of another. */
  #unloading: Promise<void> = Promise.resolve();
  #loading: Promise<void> | undefined;
  /** The type of the KV cache, and why it is not the one that was asked for; undefined: it is. */
  #wide: { readonly kvType: KvType; readonly why: string } | undefined;
  /** The most layers on a GPU; undefined: it had memory for all that were asked for. */
  #mostGpuLayers: number | undefined;
  /** The warning that was given when that was found. */
  #fewer: string | undefined;
  /** The end of an engine whose KV cache could not hold the model's keys or values, followed by the load of the next engine. */
  #reopening: Promise<void> = Promise.resolve();
  /** Engines that were ended for that reason: their running requests are sent to the next engine. */
  readonly #left = new WeakSet<EngineLine>();
  /** Why there is no cache of F32; undefined: it was not needed, or there is one. */
  #noWideCache: Error | undefined;

  private constructor(connect: Connect, mayRestart: boolean, { line, info }: Connected) {
    this.#connect = connect;
    this.#mayRestart = mayRestart;
    this.#line = line;
    this.#info = info;
  }

  static async open(connect: Connect, mayRestart: boolean): Promise<Connection> {
    let connection: Connection | undefined;
    const connected = await connect((error) => connection?.died(0, error), {});
    connection = new Connection(connect, mayRestart, connected);
    return connection;
  }

  get info(): ModelInfo {
    return this.#info;
  }

  /** Something that showed while the model computed: it is part of its facts from now on. */
  warn(warning: string): void {
    this.#info = { ...this.#info, warnings: [...(this.#info.warnings ?? []), warning] };
  }

  call: EngineLine["call"] = async (method, params, options) => {
    const sent = resumable(method, params, options);
    for (;;) {
      if (this.#state.name === "unloaded") await this.load();
      if (this.#state.name === "reopening") await this.#reopening;
      this.#check();
      const line = this.#line;
      try {
        return await line.call(method, sent.params(), sent.options);
      } catch (error) {
        if (!(await this.#isReopened(line, error))) throw error;
      }
    }
  };

  /** Whether the request is to be sent again, because the model was opened again since; throws if it could not be. */
  async #isReopened(line: EngineLine, error: unknown): Promise<boolean> {
    if (line === this.#line && this.#state.name === "ready" && error instanceof KvRangeError) {
      if (this.#noWideCache) throw noWideCache(error, this.#noWideCache);
      this.#state = { name: "reopening" };
      this.#reopening = this.#reopenWide(line, reopenedText(error, this.#info.kvType));
      await this.#reopening;
      if (this.#noWideCache) throw noWideCache(error, this.#noWideCache);
      return true;
    }
    if (!this.#left.has(line)) return false;
    await this.#reopening;
    return true;
  }

  /** Never throws: where it fails, the model is as it was, or unloaded. */
  async #reopenWide(line: EngineLine, why: string): Promise<void> {
    this.#left.add(line);
    const life = ++this.#life;
    await line.dispose(); // its memory is needed for the next one
    for (const wide of [{ kvType: widestKvType, why } as const, undefined]) {
      this.#wide = wide;
      try {
        await this.#open(life);
        if ((this.#state as State).name !== "ready") return;
        this.onRestart();
        if (wide) this.onReopen(why);
        return;
      } catch (cause) {
        this.#noWideCache ??= cause as Error;
      }
    }
    if ((this.#state as State).name !== "disposed") this.#state = { name: "unloaded" };
  }

  /** Never throws: where it fails, the next request tries it again, and says why it cannot. */
  async #reopenFewer(line: EngineLine, life: number, error: DeviceMemoryError): Promise<void> {
    await line.terminate(); // its memory is needed for the next one
    try {
      const before = deviceLayers(this.#info.backend.placement).layers;
      this.#mostGpuLayers = before - 1;
      await this.#open(life);
      if ((this.#state as State).name !== "ready") return;
      const { layers, all } = deviceLayers(this.#info.backend.placement);
      this.#fewer = `${error.message}. The model was opened again with ${layers} of its ${all} layers on the GPU instead of ${before}, and running answers go on`;
      this.warn(this.#fewer);
      this.onRestart();
      this.onReopen(this.#fewer);
    } catch {
      if ((this.#state as State).name !== "disposed") this.#state = { name: "unloaded" };
    }
  }

  /** Resolves when an unloaded engine has ended. */
  get unloaded(): Promise<void> {
    return this.#unloading;
  }

  /** Whether its engine is there; false after unload(), until a request or load() has opened the model again. */
  get isLoaded(): boolean {
    return this.#state.name !== "unloaded";
  }

  /**
   * Ends the engine, after all state that is to be copied out of it was copied. false: it is in use, or there is none, and nothing has
   * changed. `mayEnd`: whether its other users are done.
   */
  async unload(mayEnd: () => boolean = () => true): Promise<boolean> {
    const line = this.#line;
    const isIdle = () =>
      this.#state.name === "ready" && line === this.#line && line.isIdle && mayEnd();
    if (!isIdle()) return false;
    await line.call("settle", {});
    if (!isIdle()) return false; // a request came meanwhile
    this.#state = { name: "unloaded" };
    this.#life++;
    this.#unloading = line.dispose();
    this.onRestart();
    await this.#unloading;
    return true;
  }

  /** Opens the model again after unload(). */
  load(): Promise<void> {
    if (this.#state.name !== "unloaded") return Promise.resolve();
    this.#loading ??= this.#loadAgain().finally(() => {
      this.#loading = undefined;
    });
    return this.#loading;
  }

  async #loadAgain(): Promise<void> {
    await this.#unloading; // its memory is needed for the next one
    await this.#open(this.#life);
  }

  /** Asks the engine itself, which has `ms` milliseconds to give a sign of life. */
  async health(ms: number): Promise<ModelHealth> {
    const restarts = this.#restarts;
    const state = this.#state;
    if (state.name === "restarting" || state.name === "reopening") {
      return { status: "loading", restarts };
    }
    if (state.name === "unloaded") return { status: "ok", restarts, unloaded: true };
    if (state.name !== "ready") return { status: "error", restarts };
    const line = this.#line;
    const isAlive = await line.isAlive(() => line.call("alive", {}), ms);
    if (this.#state.name === "unloaded") return { status: "ok", restarts, unloaded: true };
    if (this.#state.name === "restarting") return { status: "loading", restarts: this.#restarts };
    return { status: isAlive ? "ok" : "error", restarts: this.#restarts };
  }

  async dispose(): Promise<void> {
    this.#state = { name: "disposed" };
    const loading = this.#loading?.catch(() => undefined);
    await Promise.all([this.#restarting, this.#reopening, loading, this.#line.dispose()]);
  }

  /** The thread of that life was lost. */
  died(life: number, error: WorkerError): void {
    if (life !== this.#life || this.#state.name !== "ready") return;
    const { layers } = deviceLayers(this.#info.backend.placement);
    if (error instanceof DeviceMemoryError && layers > 0) {
      const line = this.#line;
      this.#left.add(line);
      this.#state = { name: "reopening" };
      this.#reopening = this.#reopenFewer(line, ++this.#life, error);
    } else if (error instanceof DeviceLostError) this.#lose();
    else if (this.#mayRestart) this.#restart();
  }

  /** The GPU was lost: as after unload(), a request opens the model, on another device. */
  #lose(): void {
    this.#state = { name: "unloaded" };
    this.#restarts++;
    this.#life++;
    this.#unloading = this.#line.terminate();
    this.onRestart();
    // If that fails, the next request tries it and says why.
    if (this.#mayRestart) this.load().catch(() => undefined);
  }

  /** Throws if there is no engine to ask. */
  #check(): void {
    const state = this.#state;
    if (state.name === "disposed") throw new DisposedError("the model");
    if (state.name === "failed") {
      if (performance.now() - state.since < retryMs) {
        throw new WorkerError(
          `the engine stopped and could not be restarted: ${state.cause.message}`,
          { cause: state.cause },
        );
      }
      this.#restart();
    }
    if (this.#state.name === "restarting") {
      throw new RestartingError(
        "the engine stopped and is being restarted. Try again in a few seconds",
      );
    }
  }

  #restart(): void {
    this.#state = { name: "restarting" };
    this.#restarts++;
    const life = ++this.#life;
    this.#restarting = this.#reopen(life).catch((cause: Error) => {
      if (this.#state.name === "disposed") return;
      this.#state = { name: "failed", cause, since: performance.now() };
    });
  }

  async #reopen(life: number): Promise<void> {
    await this.#line.terminate(); // its memory is needed for the next one
    await this.#open(life);
    if ((this.#state as State).name === "ready") this.onRestart();
  }

  /** Starts the engine of that life. */
  async #open(life: number): Promise<void> {
    if (this.#state.name === "disposed") return;
    const { line, info } = await this.#connect((error) => this.died(life, error), {
      kvType: this.#wide?.kvType,
      mostGpuLayers: this.#mostGpuLayers,
    });
    if ((this.#state as State).name === "disposed") return await line.dispose();
    if (!isSameModel(info, this.#info)) {
      await line.dispose();
      throw new ModelError("the file now holds another model. Open that model under another name");
    }
    this.#line = line;
    this.#info = info;
    if (this.#wide) this.warn(this.#wide.why);
    if (this.#fewer) this.warn(this.#fewer);
    this.#state = { name: "ready" };
  }
}

function isSameModel(one: ModelInfo, other: ModelInfo): boolean {
  const facts = ({ architecture, parameters, vocabSize, contextSize }: ModelInfo): string =>
    [architecture, parameters, vocabSize, contextSize].join();
  return facts(one) === facts(other);
}

function reopenedText(error: KvRangeError, kvType: string): string {
  const [found] = error.message.split(". ");
  return `${found}. The model was opened again with a KV cache of ${widestKvType} instead of ${kvType}, and computes what it had computed once more`;
}

function noWideCache(error: KvRangeError, cause: Error): ModelError {
  const [found] = error.message.split(". ");
  return new ModelError(
    `${found}. It cannot go on with a KV cache of ${widestKvType}: ${messageOf(cause)}`,
    { cause },
  );
}

/** A request that can be sent to another engine: a generation continues after the tokens that the caller has. */
function resumable<P, O extends { onEvent?: (event: never) => void }>(
  method: MethodName,
  params: P,
  options: O = {} as O,
): { params(): P; options: O } {
  if (method !== "generate") return { params: () => params, options };
  const generation = params as Methods["generate"]["params"];
  const written: number[] = [...(generation.options.resumeTokens ?? [])];
  const onEvent = (event: TokenEvent) => {
    if (event.id >= 0) written.push(event.id);
    options.onEvent?.(event as never);
  };
  const resumed = () => ({ ...generation.options, resumeTokens: [...written] });
  const next = () => (written.length > 0 ? { ...generation, options: resumed() } : generation);
  return { params: next as () => P, options: { ...options, onEvent } };
}
