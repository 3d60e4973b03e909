// One generation, from prompt to last token: prefill in chunks, then sample, check for stops, decode. Messages are let
// in between two batches, so an abort takes effect within one token.

import type {
  ContextShift,
  GenerateOptions,
  GenerationResult,
  LogitsResult,
  StopReason,
  TokenEvent,
  TokenLogprob,
} from "../api/api.ts";
import { AbortedError, ContextError, UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { phaseWork } from "../limits/phase.ts";
import { Constraint } from "./constraint.ts";
import { findBreakers } from "./dry-breakers.ts";
import type { AdvanceOptions, Engine, ReadOutput, RunningSequence } from "./engine.ts";
import { checkedTriggers, grammarSource } from "./grammar-options.ts";
import { NonsenseError, overcome } from "./nonsense.ts";
import { ReasoningBudget } from "./reasoning-budget.ts";
import { createSampler, resolveSampling } from "./sampler.ts";
import type { SampledToken } from "./sampling.ts";
import { selectBest } from "./select-best.ts";
import type { DrafterKind } from "./speculate/drafter.ts";
import type { Sequence } from "./state/sequence.ts";
import { StopMatcher } from "./stop-strings.ts";

export interface GenerationRequest {
  tokens: readonly number[];
  options: Omit<GenerateOptions, "signal">;
  /** For tests: who drafts, instead of those of the engine. */
  drafters?: readonly DrafterKind[];
}

/** What a running generation needs from its thread. */
export interface RunControl {
  readonly aborted: boolean;
  /** Lets in pending messages, such as an abort. */
  breathe(): Promise<void>;
  now(): number;
}

/** A result without the parts that only the caller's side knows. */
export type Generated = Omit<GenerationResult, "timings"> & {
  timings: Omit<GenerationResult["timings"], "loadMs">;
};

export async function generate(
  engine: Engine,
  request: GenerationRequest,
  control: RunControl,
  emit: (event: TokenEvent) => void,
): Promise<Generated> {
  const arrived = control.now();
  const { tokens, options } = request;
  checkLogits(engine, "generate()");
  checkPrompt(engine, tokens);
  const maxTokens = checkMaxTokens(options.maxTokens);
  const shift = contextShift(engine, tokens.length, options);
  checkCount("cacheReuse", options.cacheReuse ?? 0);
  const shifts: ContextShift[] = [];
  const settings = resolveSampling(samplingPart(options));
  const breakers =
    settings.dryMultiplier === 0
      ? []
      : await findBreakers(engine.tokenizer, settings.drySequenceBreakers, control);
  const sampler = createSampler(settings, engine.vocabSize, {
    logprobs: options.logprobs,
    drawn: options.logprobsOf === "sampler",
    breakers,
  });
  const constraint = await constraintOf(engine, options, shift === undefined);
  const budget =
    options.reasoningBudget && new ReasoningBudget(options.reasoningBudget, engine.tokenizer);
  const mask = budget ? budget.over(constraint) : constraint;
  const text = new TextOutput(engine, options.stop ?? [], options.special ?? false);
  const logits = new Float32Array(engine.vocabSize);
  const tokenIds: number[] = [];
  engine.laps?.lap("prompt", "request");

  let running = await openSequence(engine, request, maxTokens, control);
  if (!running) return nothingGenerated(engine, tokens, control.now() - arrived);
  let { sequence } = running;
  let { widenings } = engine;
  const started = control.now();
  /** After logits that are not finite: computes all tokens again, if that can help. False: it was aborted. */
  const recover = async (error: unknown): Promise<boolean> => {
    // What was dropped cannot be computed again: the rest would be another text.
    if (!(error instanceof NonsenseError) || shifts.length > 0) throw error;
    const all = [...tokens, ...tokenIds];
    if (running) engine.close(running);
    running = undefined;
    await overcome(error, engine, { tokens: all, widenings }, control);
    widenings = engine.widenings;
    const left = maxTokens - tokenIds.length;
    running = await openSequence(engine, { tokens: all, options }, left, control);
    if (!running) return false;
    sequence = running.sequence;
    reuse(sequence, all);
    return await prefill(engine, running, all, { control, logits });
  };
  try {
    const cachedTokens = reuse(sequence, tokens);
    const { restored } = running;
    const counted = { ...running, isStored: options.cachePrompt ?? true };
    const computedAgain = await engine.countPrompt(counted, tokens, cachedTokens);
    let stopReason: StopReason | undefined;
    const report = (): void => {
      const [total, processed] = [tokens.length, sequence.length];
      const ms = processed > cachedTokens ? control.now() - started : 0;
      emit({ id: -1, text: "", progress: { total, cached: cachedTokens, processed, ms } });
    };
    const onBatch = options.progress ? report : undefined;
    const meanwhile = constraint?.prepare;
    if (!(await prefill(engine, running, tokens, { control, logits, onBatch, meanwhile }))) {
      stopReason = "aborted";
    }
    if (!stopReason) engine.share(running);
    const promptDone = control.now();
    const promptEnd = sequence.length;
    for (const token of tokens) sampler.accept(token);

    const { laps } = engine;
    /** Tokens of the text that are not computed yet: the last one, and those before it that the grammar forced. */
    const next: number[] = [];
    let sampledTokens = 0;
    let sampleMs = 0;
    const lastOfNext: AdvanceOptions = {
      ...readingInto(logits, (index) => index === next.length - 1, control),
      phase: "generation",
      ...(meanwhile && { meanwhile }),
    };
    while (!stopReason) {
      if (constraint?.isFinished) {
        stopReason = "end";
        break;
      }
      if (tokenIds.length >= maxTokens) {
        stopReason = "length";
        break;
      }
      const sampling = control.now();
      let sampled: SampledToken;
      try {
        if (constraint?.endsHere()) {
          stopReason = "end";
          break;
        }
        sampled = sampler.sample(logits, mask);
      } catch (error) {
        if (!(await recover(error))) stopReason = "aborted";
        continue;
      }
      sampler.accept(sampled.id);
      sampleMs += control.now() - sampling;
      sampledTokens++;
      laps?.lap("generation", "sampling");
      if (engine.tokenizer.isEndOfGeneration(sampled.id) && !options.ignoreEos) {
        stopReason = "end";
        break;
      }
      constraint?.accept(sampled.id);
      budget?.accept(sampled.id);
      tokenIds.push(sampled.id);
      next.push(sampled.id);
      const event = toEvent(engine, sampled, text.push(sampled.id), options.logprobs);
      laps?.lap("generation", "text");
      emit(event);
      await control.breathe();
      laps?.lap("generation", "messages");
      if (text.stopped) stopReason = "stop";
      else if (control.aborted) stopReason = "aborted";
      else if (!shift && sequence.length + next.length > sequence.capacity) stopReason = "context";
      else if (tokenIds.length < maxTokens && !constraint?.isFinished) {
        const done = shift?.(sequence);
        if (done) {
          await engine.dropTokens(running!, { keep: done.kept, count: done.discarded }, () =>
            control.breathe(),
          );
          shifts.push(done);
        } else if (sequence.length >= sequence.capacity) {
          stopReason = "context";
          break;
        }
        if (constraint?.isNextKnown) continue;
        await advanceAll(engine, running!, next, lastOfNext).catch((error: unknown) => {
          if (!(error instanceof AbortedError)) throw error;
          stopReason = "aborted";
        });
        next.length = 0;
      }
    }
    const rest = text.end();
    if (rest) emit({ id: -1, text: rest });
    laps?.lap("generation", "text");
    const ended = control.now();
    return {
      text: text.all,
      promptTokenIds: [...tokens],
      tokenIds,
      stopReason,
      ...(text.stopped === undefined ? {} : { stopString: text.stopped }),
      timings: {
        promptTokens: tokens.length,
        cachedTokens,
        ...(restored && { restored }),
        ...(computedAgain && { computedAgain }),
        ...(running?.movedTokens && { movedTokens: running.movedTokens }),
        ...(shifts.length > 0 && { contextShifts: shifts }),
        promptMs: promptDone - started,
        generatedTokens: tokenIds.length,
        generatedMs: ended - promptDone,
        sampledTokens,
        sampleMs,
        totalMs: ended - arrived,
        work: phaseWork(engine, engine.parts, {
          cached: cachedTokens,
          read: promptEnd - cachedTokens,
          batches: shifts.reduce((sum, one) => sum + one.discarded, sequence.length - promptEnd),
        }),
      },
    };
  } finally {
    if (running) engine.close(running);
  }
}

/** What the text must look like; undefined: it is free. */
async function constraintOf(
  engine: Engine,
  options: GenerationRequest["options"],
  isWhole: boolean,
): Promise<Constraint | undefined> {
  const source = grammarSource(options);
  const triggers = checkedTriggers(options.grammarTriggers);
  if (source === undefined) {
    if (triggers.length === 0) return undefined;
    throw new UsageError("grammarTriggers: got triggers, but no grammar that they could start");
  }
  return new Constraint(await engine.grammars.compile(source), engine.tokenizer, {
    triggers,
    // Forced tokens have no logits of their own, and a context shifts after every token where it must.
    forces: (options.forceTokens ?? true) && options.logprobs === undefined && isWhole,
    ignoreEos: options.ignoreEos ?? false,
  });
}

/** Computes all of these tokens, in as many batches as it takes. */
async function advanceAll(
  engine: Engine,
  running: RunningSequence,
  tokens: readonly number[],
  options: AdvanceOptions,
): Promise<void> {
  for (let done = 0; done < tokens.length; ) {
    done += await engine.advance(running, tokens, done, options);
  }
}

/** undefined if it was aborted while it waited for room. */
async function openSequence(
  engine: Engine,
  { tokens, options }: GenerationRequest,
  maxTokens: number,
  control: RunControl,
): Promise<RunningSequence | undefined> {
  try {
    return await engine.open({
      tokens,
      mayAdd: maxTokens,
      isStored: true,
      reuses: options.cachePrompt ?? true,
      reusePieces: options.cachePrompt === false ? 0 : (options.cacheReuse ?? 0),
      isAborted: () => control.aborted,
    });
  } catch (error) {
    if (error instanceof AbortedError) return undefined;
    throw error;
  }
}

/** What a full context drops, as llama-server does; undefined: it does not shift. */
function contextShift(
  engine: Engine,
  promptTokens: number,
  { contextShift = false, keepTokens = 0, discardTokens = 0 }: GenerationRequest["options"],
): ((sequence: Sequence) => ContextShift | undefined) | undefined {
  checkCount("discardTokens", discardTokens);
  if (keepTokens !== -1) checkCount("keepTokens", keepTokens);
  if (!contextShift) return undefined;
  const { refusal } = engine.mover;
  if (refusal !== undefined) {
    throw new UsageError(
      `contextShift: the context of ${engine.info.name} cannot shift: ${refusal}. Leave it out; the answer then ends when the context is full`,
    );
  }
  const bos = engine.tokenizer.special.addBos ? 1 : 0;
  return ({ length, capacity }) => {
    if (length + 1 < capacity) return undefined;
    const kept = Math.min(
      Math.max(0, capacity - 4),
      (keepTokens < 0 ? promptTokens : keepTokens) + bos,
    );
    const left = length - kept;
    const discarded = Math.min(discardTokens || Math.floor(left / 2), Math.max(0, left - 1));
    return discarded > 0 ? { kept, discarded } : undefined;
  };
}

function nothingGenerated(engine: Engine, tokens: readonly number[], totalMs: number): Generated {
  return {
    text: "",
    promptTokenIds: [...tokens],
    tokenIds: [],
    stopReason: "aborted",
    timings: {
      promptTokens: tokens.length,
      cachedTokens: 0,
      promptMs: 0,
      generatedTokens: 0,
      generatedMs: 0,
      sampledTokens: 0,
      sampleMs: 0,
      totalMs,
      work: phaseWork(engine, engine.parts, { cached: 0, read: 0, batches: 0 }),
    },
  };
}

/** Logits of every prompt position and a greedy continuation, to be compared with golden files. */
export async function computeLogits(
  engine: Engine,
  tokens: readonly number[],
  options: { top: number; greedy: number },
  control: RunControl,
): Promise<LogitsResult> {
  checkPrompt(engine, tokens);
  checkCount("top", options.top);
  checkCount("greedy", options.greedy);
  if (options.greedy > 0 || !engine.graph.outputs.logits) checkLogits(engine, "logits()");
  if (tokens.length + options.greedy > engine.info.contextSize) {
    throw new ContextError(
      `${tokens.length} prompt tokens and ${options.greedy} more do not fit in a context of ${engine.info.contextSize} tokens`,
    );
  }
  const logits = new Float32Array(engine.vocabSize);
  const positions: LogitsResult["positions"] = [];
  const { widenings } = engine;
  let isNonsense = false;
  const greedy: number[] = [];
  const best = bestOf(engine.vocabSize);
  const running = await engine.open({
    tokens: [], // logits of all positions are needed, so nothing is reused
    mayAdd: tokens.length + options.greedy,
    isAborted: () => control.aborted,
  });
  const stop = () => control.aborted;
  const oneToken = readingInto(logits, always, control);
  try {
    const note = async (_: number, read: ReadOutput) => {
      await read("logits", logits);
      const size = norm(logits);
      if (!Number.isFinite(size)) isNonsense = true;
      positions.push({ norm: size, top: best(logits, options.top) });
    };
    for (let done = 0; done < tokens.length; ) {
      done += await engine.advance(running, tokens, done, { wants: always, onOutput: note, stop });
      await control.breathe();
      if (control.aborted) throw new AbortedError("logits()");
    }
    while (greedy.length < options.greedy) {
      greedy.push(best(logits, 1)[0]![0]);
      if (greedy.length === options.greedy) break;
      await engine.advance(running, greedy, greedy.length - 1, oneToken);
      await control.breathe();
      if (control.aborted) throw new AbortedError("logits()");
    }
  } finally {
    engine.close(running);
  }
  if (isNonsense && (await mayHelp(engine, [...tokens, ...greedy], widenings, control))) {
    return await computeLogits(engine, tokens, options, control);
  }
  const text = new TextOutput(engine, [], false);
  for (const id of greedy) text.push(id);
  text.end();
  return { tokens: [...tokens], positions, greedy, text: text.all };
}

/** Whether computing these tokens again may give finite logits. */
async function mayHelp(
  engine: Engine,
  tokens: readonly number[],
  widenings: number,
  control: RunControl,
): Promise<boolean> {
  const error = new NonsenseError("logits that are not finite");
  try {
    await overcome(error, engine, { tokens, widenings }, control);
    return true;
  } catch (reason) {
    if (reason === error || (reason as Error).cause === error) return false; // they are shown as they are
    throw reason;
  }
}

const always = () => true;
const noBytes = new Uint8Array(0);
/** Prints a token as it appears after other text: with its leading space. */
const asNext = { special: true, continues: true };

/** Keeps the state of the prompt's known prefix; the last token is always computed again, for its logits. */
function reuse(sequence: Sequence, tokens: readonly number[]): number {
  const same = Math.min(sequence.commonPrefix(tokens), tokens.length - 1);
  const cached = sequence.restorable(same);
  sequence.restore(cached);
  return cached;
}

interface PromptRun {
  control: RunControl;
  /** Receives the logits of the last token. */
  logits: Float32Array;
  /** Called before the first batch and after each. */
  onBatch?: (() => void) | undefined;
  /** See AdvanceOptions. */
  meanwhile?: (() => void) | undefined;
}

/** Computes the part of the prompt that is not cached; false if it was aborted. */
async function prefill(
  engine: Engine,
  running: RunningSequence,
  tokens: readonly number[],
  { control, logits, onBatch, meanwhile }: PromptRun,
): Promise<boolean> {
  const { sequence } = running;
  const last = tokens.length - 1;
  const lastOnly: AdvanceOptions = {
    ...readingInto(logits, (index) => index === last, control),
    ...(meanwhile && { meanwhile }),
  };
  onBatch?.();
  try {
    while (sequence.length < tokens.length) {
      if (control.aborted) return false;
      await engine.advance(running, tokens, sequence.length, lastOnly);
      onBatch?.();
      await control.breathe();
      engine.laps?.lap("prompt", "messages");
    }
  } catch (error) {
    if (!(error instanceof AbortedError)) throw error;
  }
  return !control.aborted;
}

/** Advances batches whose logits go to one buffer; stops as soon as the generation is aborted. */
function readingInto(
  logits: Float32Array,
  wants: (index: number) => boolean,
  control: RunControl,
): AdvanceOptions {
  return {
    wants,
    onOutput: (_, read) => read("logits", logits),
    stop: () => control.aborted,
  };
}

/** Token ids to text: only whole characters, and no part of a stop string. */
class TextOutput {
  all = "";
  /** The stop string that was found. */
  stopped: string | undefined;
  readonly #engine: Engine;
  // A byte-order mark in generated text is kept.
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #stops: StopMatcher;
  readonly #decode: { readonly special: boolean };

  constructor(engine: Engine, stops: readonly string[], special: boolean) {
    this.#engine = engine;
    this.#decode = { special };
    this.#stops = new StopMatcher(stops);
  }

  push(id: number): string {
    const { tokenizer } = this.#engine;
    // Embedding tables are padded to round sizes: an id beyond the vocabulary has no text.
    const bytes = id < tokenizer.vocabSize ? tokenizer.tokenBytes(id, this.#decode) : noBytes;
    return this.#emit(this.#stops.push(this.#utf8.decode(bytes, { stream: true })));
  }

  /** Returns held-back text: the end of a character, or the start of a stop string that did not come. */
  end(): string {
    if (this.stopped !== undefined) return "";
    const tail = this.#emit(this.#stops.push(this.#utf8.decode()));
    return tail + (this.stopped === undefined ? this.#emit(this.#stops.end()) : "");
  }

  #emit(text: string): string {
    this.stopped = this.#stops.matched;
    this.all += text;
    return text;
  }
}

function toEvent(
  engine: Engine,
  sampled: SampledToken,
  text: string,
  logprobs: number | undefined,
): TokenEvent {
  if (logprobs === undefined) return { id: sampled.id, text };
  const { tokenizer } = engine;
  const describe = ({ id, logprob }: { id: number; logprob: number }): TokenLogprob => {
    const isText = id < tokenizer.vocabSize;
    const text = isText ? tokenizer.decode([id], asNext) : "";
    const bytes = isText ? [...tokenizer.tokenBytes(id, asNext)] : [];
    return { id, text, bytes, logprob };
  };
  const own = describe(sampled);
  return {
    id: own.id,
    text,
    logprob: own.logprob,
    top: sampled.top.map(describe),
    token: own.text,
    bytes: own.bytes,
  };
}

/** Refuses an empty prompt, unknown tokens, and too many tokens. */
export function checkPrompt(engine: Engine, tokens: readonly number[]): void {
  checkTokens(engine, tokens);
  const { contextSize, trainedContext } = engine.info;
  if (tokens.length >= contextSize) {
    const remedy =
      contextSize < trainedContext
        ? `Shorten it, or open the model with a larger contextSize (trained for ${trainedContext})`
        : `Shorten it: this model was trained for ${trainedContext} tokens`;
    throw new ContextError(
      `the prompt has ${tokens.length} tokens, but the context holds ${contextSize}, answer included. ${remedy}`,
    );
  }
}

/** There are some, and all are in the vocabulary. */
export function checkTokens(engine: Engine, tokens: readonly number[]): void {
  if (tokens.length === 0) {
    throw new UsageError(
      "the prompt has no tokens, and this model adds no begin-of-text token. Give it some text",
    );
  }
  const wrong = tokens.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= engine.vocabSize);
  if (wrong >= 0) {
    throw new UsageError(
      `token id ${show(tokens[wrong])} is not in the vocabulary (0 to ${engine.vocabSize - 1})`,
    );
  }
}

/** Throws where the model gives no logits of a next token: `what` needs them. */
export function checkLogits({ info, graph, isBidirectional }: Engine, what: string): void {
  if (graph.outputs.logits && !isBidirectional) return;
  const kind = graph.outputs.logits
    ? "its tokens attend in both directions, so it does not continue a text token by token"
    : "it is an encoder, which makes embeddings";
  throw new UsageError(
    `${what}: ${info.name} (${info.architecture}) cannot do this: ${kind}. Use embed(), or a model that generates text`,
  );
}

function checkMaxTokens(maxTokens: number | undefined): number {
  if (maxTokens === undefined) return Number.POSITIVE_INFINITY;
  checkCount("maxTokens", maxTokens);
  return maxTokens;
}

function checkCount(name: string, count: number): void {
  if (Number.isSafeInteger(count) && count >= 0) return;
  throw new UsageError(`${name}: got ${show(count)}, expected a whole number of at least 0`);
}

/** The options that belong to the sampler. */
function samplingPart(options: Omit<GenerateOptions, "signal">) {
  const { maxTokens: _m, stop: _s, logprobs: _l, ignoreEos: _i, ...rest } = options;
  const { addBos: _a, progress: _p, logprobsOf: _o, special: _t, ...cached } = rest;
  const { cachePrompt: _c, cacheReuse: _r, contextShift: _x, ...shifted } = cached;
  const { keepTokens: _k, discardTokens: _d, grammar: _g, schema: _j, ...rules } = shifted;
  const { regex: _e, choices: _h, grammarTriggers: _n, forceTokens: _f, ...free } = rules;
  const { reasoningBudget: _b, ...sampling } = free;
  return sampling;
}

function norm(x: Float32Array): number {
  let squares = 0;
  for (let i = 0; i < x.length; i++) squares += x[i]! * x[i]!;
  return Math.sqrt(squares);
}

/** The `count` largest, best first; the lower id on ties. */
function bestOf(vocabSize: number): (x: Float32Array, count: number) => [number, number][] {
  const ids = Int32Array.from({ length: vocabSize }, (_, id) => id);
  const found = new Int32Array(vocabSize);
  return (x, count) => {
    const size = selectBest(x, ids, vocabSize, count, found);
    return Array.from(found.subarray(0, size), (id) => [id, x[id]!]);
  };
}
