// One generation for a request: checks that its prompt fits, waits in the queue, runs it, and counts it. Every API uses
// this file; the routes turn tokens into events of their protocol.

import {
  AbortedError,
  ContextError,
  type GenerateOptions,
  type GenerationResult,
  rememberSpeed,
  type Timings,
  type TokenEvent,
} from "../../src/index.ts";
import type { ServedModel, ServerContext } from "./context.ts";
import { cacheFull, contextExceeded, invalidRequest, notSupported, stopping } from "./errors.ts";
import { type EnterOptions, QUANTUM, QUANTUM_SPENT, type Turn } from "./queue.ts";
import type { Call } from "./route.ts";
import type { Job, Slot } from "./slots.ts";
import { generateInTurns, type InTurns, type PlaceToRun, type TurnedGeneration } from "./turns.ts";

export interface CompletionRequest {
  served: ServedModel;
  tokens: readonly number[];
  options: GenerateOptions;
  /** llama.cpp's `id_slot`: the slot to run in (default: any). */
  slot?: number | undefined;
  /** The field that the prompt comes from (default "prompt"), for the error if it does not fit. */
  param?: string;
}

export interface Completion {
  /** llama.cpp's slot in which it runs. */
  readonly slot: number;
  /** Must be read to its end; leaving early aborts the generation. */
  tokens(): AsyncIterable<TokenEvent>;
  /** Rejects if the generation did not end by itself. */
  readonly result: Promise<GenerationResult>;
}

let jobs = 0;

/** Refuses generation by an encoder, and routes that the server was started without. */
function checkGenerates({ server }: Call, { id, model }: ServedModel): void {
  if (server.settings.embeddingsOnly) {
    throw notSupported(
      "this server answers only requests for embeddings and ranks. Start it without --embeddings and --reranking",
    );
  }
  if (model.info.generates === false) {
    throw notSupported(
      `the model ${JSON.stringify(id)} (${model.info.architecture}) makes embeddings and cannot generate text. Use /v1/embeddings, or serve a model that generates`,
    );
  }
}

/** Waits in the queue, then starts. Throws before anything has run if the prompt does not fit or the queue is full. */
export async function startCompletion(call: Call, request: CompletionRequest): Promise<Completion> {
  const { server, signal } = call;
  const { served, tokens } = request;
  const options = possible(served, request.options);
  checkGenerates(call, served);
  checkPrompt(served, tokens, request.param);
  const arrived = server.now();
  // Before it waits in the queue: the model must not leave meanwhile.
  const done = await server.models.hold(served, signal);
  const entered = await enterSlot(call, request).catch((error: unknown) => {
    done();
    throw error;
  });
  const job: Job = {
    id: ++jobs,
    slot: entered.slot.id,
    model: served.id,
    route: call.route.path,
    options,
    promptTokens: tokens.length,
    cachedTokens: 0,
    generatedTokens: 0,
    hasNewLine: false,
  };
  server.metrics.queueSeconds.observe((server.now() - arrived) / 1000, served.id);
  let now: Turn;
  const begin = ({ turn, slot }: Entered, all: readonly number[]): PlaceToRun => {
    now = turn;
    server.jobs.add(job);
    job.slot = slot.id;
    Object.assign(slot, { job, model: served.id, tokens: all });
    return {
      preempted: turn.preempted,
      leave(written, result) {
        job.cachedTokens ||= result?.timings.cachedTokens ?? 0;
        // Shifted tokens are no prefix of a later prompt.
        if (result) slot.tokens = result.timings.contextShifts ? tokens : [...tokens, ...written];
        server.jobs.delete(job);
        server.slots.release(slot);
        turn.release();
      },
    };
  };
  const generation = begun(done, {
    ...{ model: served.model, tokens, options, signal },
    first: begin(entered, tokens),
    again: async (written) => {
      const all = [...tokens, ...written];
      const isSpent = now.preempted.reason === QUANTUM_SPENT;
      const goingOn = { ...request, tokens: all };
      return begin(await enterSlot(call, goingOn, { isBegun: true, isSpent }), all);
    },
    onEvent({ progress, text }) {
      if (progress !== undefined) return;
      if (job.generatedTokens === 0) {
        server.metrics.firstTokenSeconds.observe((server.now() - arrived) / 1000, served.id);
      }
      job.generatedTokens++;
      now.spend();
      job.hasNewLine ||= text.includes("\n");
    },
  });
  const result = generation.result.finally(done).then(
    (result) => {
      count(call, served.id, result);
      logShifts(call, entered.slot, result);
      // Only an answer that runs alone shows the machine's speed.
      if (server.jobs.size === 0) void rememberSpeed(served.model.info, result.timings);
      if (result.stopReason !== "aborted") return result;
      throw server.stopSignal.aborted ? stopping() : new AbortedError("the request");
    },
    (error: unknown) => {
      // The prompt itself fits (checkPrompt), so other generations have taken the room.
      throw error instanceof ContextError ? cacheFull() : error;
    },
  );
  result.catch(() => {}); // the reader of the tokens awaits it; a reader that left does not

  async function* read(): AsyncGenerator<TokenEvent> {
    yield* generation.tokens();
    await result;
  }
  return { slot: job.slot, tokens: read, result };
}

/** Started; `failed` is called if it cannot be. */
function begun(failed: () => void, parts: InTurns): TurnedGeneration {
  try {
    return generateInTurns(parts);
  } catch (error) {
    failed();
    throw error;
  }
}

interface Entered {
  turn: Turn;
  slot: Slot;
}

/** Enters the queue for a turn and a slot to run in. No request has a turn while it waits for a slot. */
async function enterSlot(
  { server, client, signal }: Call,
  { served, tokens, slot: asked, options }: CompletionRequest,
  begun: Pick<EnterOptions, "isBegun" | "isSpent"> = {},
): Promise<Entered> {
  // A quarter of the tokens that may have to be computed again; with these two options all of them are generated again.
  const isSlow = Boolean(options.mirostat || options.contextShift);
  const quantum = isSlow ? Number.POSITIVE_INFINITY : Math.max(QUANTUM, tokens.length >> 2);
  if (asked !== undefined) await server.slots.idle(asked, signal);
  for (;;) {
    const how = { mayPause: true, quantum, isMasked: options.grammar !== undefined, ...begun };
    const turn = await server.queue.enter(client, signal, how);
    const slot = server.slots.claim(asked, { model: served.id, tokens });
    if (slot) return { turn, slot };
    turn.release(); // another request, or an action on a slot, was faster
    await server.slots.idle(asked, signal);
  }
}

/** Without a shift of the context if the model cannot: the server's flags are for all its models. */
function possible({ model }: ServedModel, options: GenerateOptions): GenerateOptions {
  const { noContextShift } = model.info;
  return options.contextShift && noContextShift !== undefined
    ? { ...options, contextShift: false }
    : options;
}

/** Logs for the operator that an answer has lost the beginning of its context. */
function logShifts(
  { server }: Call,
  { id }: Slot,
  { timings: { contextShifts = [] } }: GenerationResult,
): void {
  for (const { kept, discarded } of contextShifts) {
    server.log(
      `slot ${id}: the context was full and was shifted: the first ${kept} tokens were kept, the ${discarded} after them dropped`,
    );
  }
}

/** Refuses prompts that the engine would refuse, before a stream has started with status 200. */
function checkPrompt(
  { model }: ServedModel,
  tokens: readonly number[],
  param: string = "prompt",
): void {
  const { contextSize, vocabSize } = model.info;
  if (tokens.length >= contextSize) throw contextExceeded(tokens.length, model.info, param);
  if (tokens.length === 0) throw invalidRequest("the prompt has no tokens. Give it some text");
  const wrong = tokens.find((id) => id >= vocabSize);
  if (wrong !== undefined) {
    throw invalidRequest(
      `token id ${wrong} is not in the vocabulary (0 to ${vocabSize - 1})`,
      param,
    );
  }
}

/** Logs why a cached prompt was computed again. */
function sayComputedAgain(server: ServerContext, model: string, { computedAgain }: Timings): void {
  if (!computedAgain || !server.logRequest) return;
  if (computedAgain.reason === "changed") {
    if (server.saidChanged.has(model)) return;
    server.saidChanged.add(model);
  }
  server.logRequest(`${model}: ${computedAgain.text}`, "info");
}

function count({ server }: Call, model: string, { timings, stopReason }: GenerationResult): void {
  const { metrics } = server;
  metrics.promptTokens.add(timings.promptTokens, {}, model);
  metrics.cachedTokens.add(timings.cachedTokens, {}, model);
  metrics.generatedTokens.add(timings.generatedTokens, {}, model);
  metrics.draftedTokens.add(timings.speculation?.drafted ?? 0, {}, model);
  metrics.acceptedTokens.add(timings.speculation?.accepted ?? 0, {}, model);
  metrics.llamacpp.count(timings);
  sayComputedAgain(server, model, timings);
  if (stopReason === "aborted") metrics.aborted.add(1, {}, model);
  const { prompt, generation } = timings.limits ?? {};
  if (prompt) metrics.limitRatio.set(prompt.fraction, { phase: "prompt" }, model);
  if (generation) metrics.limitRatio.set(generation.fraction, { phase: "generation" }, model);
  if (timings.generatedTokens > 1) {
    metrics.tokenSeconds.observe(timings.generatedMs / timings.generatedTokens / 1000, model);
  }
}

/** Collects all tokens, for an answer that is not streamed. */
export async function collect(
  completion: Completion,
): Promise<{ events: TokenEvent[]; result: GenerationResult }> {
  const events: TokenEvent[] = [];
  for await (const event of completion.tokens()) events.push(event);
  return { events, result: await completion.result };
}
