// A model that workers compute: the gateway's server uses it like a model that is open in its own process.
//
// Every call goes to one worker, and to another one if that is lost. An answer whose first tokens are sent already is continued from them
// (resumeTokens): for this the gateway chooses the seed if a request has none, so that every worker draws the same tokens. All of them
// have the same model (model-fingerprint.ts). A call that three workers were lost with is an error: it may be the cause.

import {
  AbortedError,
  RestartingError,
  TabClosedError,
  UsageError,
  WorkerError,
} from "../../src/base/errors.ts";
import { asRendered, type RenderedPrompt } from "../../src/base/rendered-prompt.ts";
import type {
  AdapterInfo,
  Chat,
  EngineStatus,
  GenerateOptions,
  Generation,
  GenerationResult,
  Model,
  ModelHealth,
  ModelInfo,
  TokenEvent,
  TokenizeOptions,
} from "../../src/index.ts";
import { startGeneration } from "../../src/index.ts";
import { blockHashes } from "./fingerprints.ts";
import { type CallableName, type ClusterTimes, clusterTimes, isOfGroup } from "./messages.ts";
import { chooseWorker } from "./router.ts";
import { addedStatus } from "./status.ts";
import { type KnownWorker, LostCallError, type Workers } from "./workers.ts";

/** Workers that may be lost with a call. The worker of a line of a batch counts for itself (line-worker.ts). */
const MOST_LOST = 3;

interface Trial {
  readonly hashes?: readonly number[];
  readonly signal?: AbortSignal | undefined;
  readonly onEvent?: (event: never) => void;
  /** It belongs to a line of a batch, as all background work does. */
  readonly isLine?: boolean;
  /** Only workers with this model; default: with the model that the name stands for at the start. */
  readonly fingerprint?: string;
}

/** A tab that was lost with a line; its own errors stay unchanged: that its engine ended, for example. */
function closedTab(error: WorkerError): WorkerError {
  if (!(error instanceof LostCallError)) return error;
  return new TabClosedError(`the browser tab is gone: ${error.message}`, { cause: error });
}

function isLine({ priority }: Pick<GenerateOptions, "priority">): boolean {
  return priority === "background";
}

/** A model as one of its workers has it. */
type ServedModel = Pick<KnownWorker, "fingerprint" | "facts">;

export class ClusterModel implements Model {
  readonly id: string;
  readonly #workers: Workers;
  readonly #times: ClusterTimes;
  #served: ServedModel;
  #refused = 0;
  #info: ModelInfo;
  #format: ReturnType<Model["answerFormat"]> | undefined;

  /** `served`: a worker that has it. */
  constructor(
    id: string,
    served: ServedModel,
    workers: Workers,
    times: Partial<ClusterTimes> = {},
  ) {
    this.id = id;
    this.#served = served;
    this.#info = served.facts.info;
    this.#workers = workers;
    this.#times = { ...clusterTimes, ...times };
  }

  get info(): ModelInfo {
    return this.#info;
  }

  /** The fingerprint of the model that the name stands for. */
  get fingerprint(): string {
    return this.#served.fingerprint;
  }

  /** The name stands for another model from now on. Answers that have begun continue on workers of the earlier model, or not at all. */
  become(served: ServedModel): void {
    this.#served = served;
    this.#format = undefined;
    this.#describe();
  }

  /** The number of workers that have another model under this name; they get no calls. */
  set refused(count: number) {
    if (count === this.#refused) return;
    this.#refused = count;
    this.#describe();
  }

  #describe(): void {
    const { info } = this.#served.facts;
    const warning = `workers with another model under the name ${JSON.stringify(this.id)}: ${this.#refused}. They get no requests; the log names them`;
    const warnings = [...(info.warnings ?? []), ...(this.#refused > 0 ? [warning] : [])];
    this.#info = { ...info, ...(warnings.length > 0 && { warnings }) };
  }

  generate(
    prompt: string | RenderedPrompt | readonly number[],
    options: GenerateOptions = {},
  ): Generation {
    const { signal, ...given } = options;
    const seed = given.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]!;
    return startGeneration(async (emit, either) => {
      const { addBos = true, parseSpecial = true, priority } = given;
      const { fingerprint } = this; // of its tokens and of all workers that compute it
      const how = { addBos, parseSpecial, ...(priority && { priority }), signal: either };
      const tokens =
        typeof prompt === "string" || asRendered(prompt)
          ? await this.#call<number[]>("tokenize", [prompt], how, fingerprint)
          : (prompt as readonly number[]);
      return await this.#answer(tokens, { ...given, seed }, emit, { signal: either, fingerprint });
    }, signal);
  }

  /** One answer, of one worker or of several one after the other. */
  async #answer(
    tokens: readonly number[],
    options: Omit<GenerateOptions, "signal">,
    emit: (event: TokenEvent) => void,
    trial: Trial,
  ): Promise<GenerationResult> {
    const sent: number[] = [...(options.resumeTokens ?? [])];
    const before = sent.length;
    let isEnded = false;
    const onEvent = (event: TokenEvent): void => {
      // Text that is held back until the end was sent, if a worker was lost after it.
      if (event.id < 0 && event.progress === undefined) {
        if (isEnded) return;
        isEnded = true;
      }
      if (event.id >= 0) sent.push(event.id);
      emit(event);
    };
    // State of a conversation is forgotten with it: where that cannot be ensured, none of it goes to a disk.
    const { conversation, cacheDisk = conversation === undefined, ...wanted } = options;
    const asked = cacheDisk ? wanted : { ...wanted, cacheDisk };
    const args = (): unknown[] => [tokens, { ...asked, resumeTokens: [...sent] }];
    const result = (await this.#try("generate", args, {
      ...{ ...trial, hashes: blockHashes(tokens), onEvent, isLine: isLine(options) },
    })) as GenerationResult;
    const timings = { ...result.timings, generatedTokens: result.tokenIds.length - before };
    return { ...result, promptTokenIds: [...tokens], timings };
  }

  /** Tries until a worker has answered, or three were lost; with a line of a batch, one. */
  async #try(
    method: CallableName,
    args: () => readonly unknown[],
    { hashes = [], signal, onEvent, isLine = false, fingerprint = this.fingerprint }: Trial = {},
  ): Promise<unknown> {
    const lost: string[] = [];
    let last: unknown;
    while (lost.length < MOST_LOST) {
      await this.#someWorker(fingerprint, signal);
      // Chosen and called in one step, which counts the call: of many requests at once, each sees the workers of those before it.
      const worker = this.#choose(this.#list(fingerprint), hashes, lost, isLine);
      if (worker === undefined) break;
      try {
        return await this.#workers.call(worker, method, args(), { onEvent, signal });
      } catch (error) {
        if (!(error instanceof WorkerError)) throw error;
        if (signal?.aborted) throw new AbortedError("the request", { cause: error });
        if (isLine) throw isOfGroup(worker) ? closedTab(error) : error;
        last = error;
        lost.push(worker);
      }
    }
    if (lost.length >= MOST_LOST) {
      throw new WorkerError(
        `the request was given to ${lost.length} workers, and each of them was lost before its answer was complete. It is not given to another: it may be what ends them`,
        { cause: last },
      );
    }
    throw new RestartingError(
      `no worker with the model ${JSON.stringify(this.id)} is there now. Try again when one is, or start one: lantern worker --cluster ... -m ${this.id}`,
      { cause: last },
    );
  }

  /** Waits until there is a worker, for a while. */
  async #someWorker(fingerprint: string, signal: AbortSignal | undefined): Promise<void> {
    const until = performance.now() + this.#times.wait;
    for (;;) {
      signal?.throwIfAborted();
      const left = until - performance.now();
      if (this.#list(fingerprint).length > 0 || left <= 0) return;
      await this.#workers.change(Math.min(left, 250));
    }
  }

  /** A worker that was lost with this call is chosen only if there is no other. undefined: there is none. */
  #choose(
    all: readonly KnownWorker[],
    hashes: readonly number[],
    lost: readonly string[],
    isLine: boolean,
  ): string | undefined {
    const others = all.filter(({ id }) => !lost.includes(id));
    // A line was taken for the capacity of the workers that take none themselves.
    const places = isLine ? all.filter((one) => isOfGroup(one.id) && one.load < one.capacity) : [];
    const candidates = [places, others, all].find(({ length }) => length > 0) ?? [];
    return chooseWorker(candidates, hashes)?.id;
  }

  /** The number of batch lines that this gateway can give to workers that take none themselves. */
  linePlaces(): number {
    return this.#list()
      .filter(({ id }) => isOfGroup(id))
      .reduce((sum, { capacity, others }) => sum + Math.max(0, capacity - others), 0);
  }

  #list(of: string = this.fingerprint): KnownWorker[] {
    return this.#workers
      .list()
      .filter(({ model, fingerprint }) => model === this.id && fingerprint === of);
  }

  async tokenize(text: string | RenderedPrompt, options: TokenizeOptions = {}): Promise<number[]> {
    return await this.#call("tokenize", [text], options);
  }

  async countTokens(text: string | RenderedPrompt, options: TokenizeOptions = {}): Promise<number> {
    return await this.#call("countTokens", [text], options);
  }

  readonly detokenize: Model["detokenize"] = (ids, options = {}) =>
    this.#call("detokenize", [ids], options);
  readonly tokenPieces: Model["tokenPieces"] = (ids) => this.#call("tokenPieces", [ids]);
  readonly logits: Model["logits"] = (prompt, options = {}) =>
    this.#call("logits", [prompt], options);
  readonly score: Model["score"] = (tokens, options = {}) => this.#call("score", [tokens], options);
  readonly checkGrammar: Model["checkGrammar"] = (options) =>
    this.#call("checkGrammar", [], options);
  readonly applyTemplate: Model["applyTemplate"] = (messages, options = {}) =>
    this.#call("applyTemplate", [messages], options);

  async embed(
    ...[texts, { onProgress, ...options } = {}]: Parameters<Model["embed"]>
  ): ReturnType<Model["embed"]> {
    const found: Awaited<ReturnType<Model["embed"]>> = await this.#call("embed", [texts], options);
    onProgress?.({ doneTexts: texts.length, totalTexts: texts.length });
    return found;
  }

  async rerank(
    ...[query, documents, { onProgress, ...options } = {}]: Parameters<Model["rerank"]>
  ): ReturnType<Model["rerank"]> {
    const args = [query, documents];
    const found: Awaited<ReturnType<Model["rerank"]>> = await this.#call("rerank", args, options);
    onProgress?.({ doneTexts: documents.length, totalTexts: documents.length });
    return found;
  }

  /** All workers have the same template; a failure is not remembered. */
  answerFormat(): ReturnType<Model["answerFormat"]> {
    this.#format ??= this.#call("answerFormat", []);
    const asked: ReturnType<Model["answerFormat"]> = this.#format;
    asked.catch(() => {
      if (this.#format === asked) this.#format = undefined;
    });
    return asked;
  }

  /** A method with options at the end, whose signal stays here. */
  async #call<T>(
    method: CallableName,
    args: readonly unknown[],
    options?: object,
    fingerprint: string = this.fingerprint,
  ): Promise<T> {
    const { signal, ...rest } = (options ?? {}) as { signal?: AbortSignal | undefined };
    const all = options ? [...args, rest] : args;
    const trial = { signal, isLine: isLine(rest), fingerprint };
    return (await this.#try(method, () => all, trial)) as T;
  }

  /** The sum over all workers that answer. */
  async status(): Promise<EngineStatus> {
    const asked = this.#list().map(({ id }) => this.#workers.call(id, "status", []));
    const answers = await Promise.allSettled(asked);
    const known = answers.flatMap((answer) =>
      answer.status === "fulfilled" ? [answer.value as EngineStatus] : [],
    );
    if (known.length === 0) return (await this.#call("status", [])) as EngineStatus;
    return known.reduce(addedStatus);
  }

  async health(): Promise<ModelHealth> {
    const named = this.#workers.list().filter(({ model }) => model === this.id);
    const workers = [...Map.groupBy(named, ({ fingerprint }) => fingerprint)].map(
      ([fingerprint, { length: count }]) => ({
        ...{ fingerprint, count, isServed: fingerprint === this.fingerprint },
      }),
    );
    const isThere = workers.some(({ isServed }) => isServed);
    return { status: isThere ? "ok" : "loading", restarts: 0, workers };
  }

  async clearCache(): Promise<void> {
    await Promise.all(this.#list().map(({ id }) => this.#workers.call(id, "clearCache", [])));
  }

  chat(): Chat {
    throw this.#notHere("chat()");
  }

  async inputSums(): Promise<never> {
    throw this.#notHere("inputSums()");
  }

  async saveState(): Promise<never> {
    throw this.#notHere("saving state");
  }

  async stateBytes(): Promise<never> {
    throw this.#notHere("saving state");
  }

  async loadState(): Promise<never> {
    throw this.#notHere("loading state");
  }

  adapters(): AdapterInfo[] {
    return [...(this.info.adapters ?? [])];
  }

  async setAdapters(): Promise<never> {
    throw this.#notHere("setting the scales of adapters");
  }

  async forgetState(): Promise<never> {
    throw this.#notHere("erasing the state of one text");
  }

  /** Workers have it in memory only, until its room is needed. */
  async forgetConversation(): Promise<void> {}

  async profile(): Promise<never> {
    throw this.#notHere("a profile");
  }

  #notHere(what: string): UsageError {
    return new UsageError(
      `${what} is not available for ${JSON.stringify(this.id)}, which the workers of a cluster compute. Ask for it on the machine of a worker`,
    );
  }

  /** A worker holds its model for as long as it runs. */
  async unload(): Promise<boolean> {
    return false;
  }

  async load(): Promise<void> {}

  async dispose(): Promise<void> {}

  async [Symbol.asyncDispose](): Promise<void> {}
}
