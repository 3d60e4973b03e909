// One generation, from prompt to last token: prefill in chunks, then sample, check for stops, decode. Messages are let
// in between two batches, so an abort takes effect within one token.

import type {
  ContextShift,
  GenerateOptions,
  GenerationResult,
  SamplingOptions,
  StopReason,
  TokenEvent,
} from "../api/api.ts";
import { AbortedError, UsageError } from "../base/errors.ts";
import type { OptionNames } from "../base/options.ts";
import type { GrammarText } from "../grammar/source.ts";
import { phaseWork } from "../limits/phase.ts";
import { type GenerationName, generationRows } from "../options/generation.ts";
import { openSequence, prefill, reuse } from "./advance.ts";
import { isBackground, YieldError } from "./background.ts";
import { Constraint } from "./constraint.ts";
import { contextShift } from "./context-shift.ts";
import { findBreakers } from "./dry-breakers.ts";
import type { Engine } from "./engine.ts";
import { expertTimings } from "./expert-timings.ts";
import { checkedTriggers, grammarSource } from "./grammar-options.ts";
import { NonFiniteError, widenAndRecompute } from "./non-finite.ts";
import { checkCount, checkLogits, checkPrompt } from "./prompt-checks.ts";
import { ReasoningBudget } from "./reasoning-budget.ts";
import { again, canReadAnswer, checkedResume } from "./resume.ts";
import type { RunControl } from "./run-control.ts";
import { createSampler, resolveSampling } from "./sampler.ts";
import type { SampledToken, Sampler } from "./sampling.ts";
import { Decoder } from "./speculate/decoder.ts";
import type { DrafterKind } from "./speculate/drafter.ts";
import { draftersOf } from "./speculate/drafters.ts";
import { TextOutput, TokenEvents } from "./text-output.ts";

export type { RunControl } from "./run-control.ts";

export interface GenerationRequest {
  tokens: readonly number[];
  options: Omit<GenerateOptions, "signal">;
  /** The grammar of the options, if another thread has sent it. */
  grammar?: GrammarText | undefined;
  /** For tests: the drafters, instead of the engine's, used even if they do not pay. */
  drafters?: readonly DrafterKind[];
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
  const { tokens: prompt, options } = request;
  const isInBackground = isBackground(options.priority);
  using arrival = isInBackground ? undefined : engine.arrive();
  checkLogits(engine, "generate()");
  checkPrompt(engine, prompt);
  const maxTokens = checkMaxTokens(options.maxTokens);
  const shift = contextShift(engine, prompt.length, options);
  checkCount("cacheReuse", options.cacheReuse ?? 0);
  // Resolved once: the default may change while it runs.
  const adapters = engine.adapters.use(options.adapters, prompt);
  const shifts: ContextShift[] = [];
  const settings = resolveSampling(samplingPart(options), options.ignoreEos ? endsOf(engine) : []);
  const breakers =
    settings.dryMultiplier === 0
      ? []
      : await findBreakers(engine.tokenizer, settings.drySequenceBreakers, control);
  const sampler = createSampler(settings, engine.vocabSize, {
    logprobs: options.logprobs,
    drawn: options.logprobsOf === "sampler",
    breakers,
  });
  const constraint = await constraintOf(engine, request, shift === undefined, control);
  const budget =
    options.reasoningBudget && new ReasoningBudget(options.reasoningBudget, engine.tokenizer);
  const mask = budget ? budget.over(constraint) : constraint;
  const text = new TextOutput(engine, options.stop ?? [], options.special ?? false);
  const tokenIds: number[] = [];
  const resumed = checkedResume(engine, options.resumeTokens);
  // Prefilled like the prompt if the sampler can continue after them; otherwise chosen once more, with their own logits.
  const readTokens =
    resumed.length > 0 && canReadAnswer(engine, prompt, resumed, shift !== undefined, sampler)
      ? resumed
      : [];
  const tokens: readonly number[] = readTokens.length > 0 ? [...prompt, ...readTokens] : prompt;
  const silent = resumed.length - readTokens.length;
  const events = new TokenEvents(engine, text, options, emit, silent);
  for (const token of prompt) sampler.accept(token);
  for (const id of readTokens) {
    sampler.accept(id);
    await constraint?.accept(id);
    budget?.accept(id);
    tokenIds.push(id);
    text.push(id);
  }
  engine.laps?.lap("prompt", "request");

  using reading = await engine.beginPrompt({
    ...{ tokens, adapters, isBackground: isInBackground },
    reuses: options.cachePrompt ?? true,
    isAborted: () => control.aborted,
  });
  const opening = openSequence(
    engine,
    { tokens, options, adapters },
    Math.max(0, maxTokens - readTokens.length),
    control,
  );
  arrival?.[Symbol.dispose](); // it has arrived there by now: counted twice, it would not be known to wait for room
  let running = await opening;
  if (!running) return nothingGenerated(engine, prompt, control.now() - arrived);
  let { sequence } = running;
  let { widenings } = engine;
  const decoder = new Decoder(
    {
      engine,
      ...(await draftersOf(
        engine,
        { ...request, tokens },
        shift === undefined,
        () => control.aborted,
      )),
      stop: () => control.aborted,
      meanwhile: meanwhileOf(events, constraint),
      best: bestOf(engine, sampler),
      isMasked: (drafted) => mask !== undefined && (drafted > 0 || !mask.isIdle),
      adjusted: sampler.adjusts
        ? (list, draft, drafted) => sampler.listAdjusted(list, draft, drafted)
        : undefined,
      draw: sampler.draw,
      allowed: (draft, count) => {
        const open = beforeEnd(engine, draft, count);
        return constraint ? constraint.allowed(draft, open) : open;
      },
    },
    running,
  );
  const started = control.now();
  const expertsBefore = engine.expertReads;
  /** Gives its sequence back and continues in another one, after the same tokens. False: it was aborted. */
  const recomputeOn = async (
    meanwhile?: (all: readonly number[]) => Promise<void>,
  ): Promise<boolean> => {
    const all = [...prompt, ...tokenIds];
    decoder.settle();
    if (running) engine.close(running);
    running = undefined;
    await meanwhile?.(all);
    const left = maxTokens - tokenIds.length;
    running = await openSequence(engine, { tokens: all, options, adapters }, left, control);
    if (!running) return false;
    sequence = running.sequence;
    decoder.restart(running);
    reuse(sequence, all);
    return await prefill(engine, running, all, { control, output: decoder.afterPrompt });
  };
  /** The same, repeated as often as others need its room. */
  const orYield = async (work: () => Promise<boolean>): Promise<boolean> => {
    for (let next = work; ; next = recomputeOn) {
      try {
        return await next();
      } catch (error) {
        if (!(error instanceof YieldError)) throw error;
      }
    }
  };
  /** After logits that are not finite: computes all tokens again, if that can help. False: it was aborted. */
  const recover = async (error: unknown): Promise<boolean> => {
    // Dropped tokens cannot be computed again: the rest would be another text.
    if (!(error instanceof NonFiniteError) || shifts.length > 0) throw error;
    return await orYield(() =>
      recomputeOn(async (all) => {
        await widenAndRecompute(error, engine, { tokens: all, adapters, widenings }, control);
        widenings = engine.widenings;
      }),
    );
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
    const output = decoder.afterPrompt;
    const first = running;
    const isComputed = await orYield(() =>
      prefill(engine, first, tokens, { control, output, onBatch, meanwhile }),
    );
    if (!isComputed) stopReason = "aborted";
    else if (running) engine.share(running, reading.isAwaited);
    reading[Symbol.dispose]();
    const promptDone = control.now();
    const expertsOfPrompt = engine.expertReads;
    const promptEnd = sequence.length;
    if (!stopReason && text.stopped !== undefined) stopReason = "stop";

    const { laps } = engine;
    let sampledTokens = 0;
    let sampleMs = 0;
    while (!stopReason) {
      if (constraint?.isFinished) {
        stopReason = "end";
        break;
      }
      if (tokenIds.length >= maxTokens) {
        stopReason = "length";
        break;
      }
      const preparing = constraint?.ready();
      if (preparing) {
        await engine.apart(running!, preparing);
        if (control.aborted) {
          stopReason = "aborted";
          break;
        }
      }
      const sampling = control.now();
      let sampled: SampledToken;
      try {
        if (constraint?.endsHere()) {
          stopReason = "end";
          break;
        }
        const { best, logits } = decoder;
        const chosen = best ? sampler.sampleBest(best, logits) : sampler.sample(logits, mask);
        sampled = again(chosen, resumed[tokenIds.length]);
      } catch (error) {
        if (!(await recover(error))) stopReason = "aborted";
        continue;
      }
      sampler.accept(sampled.id);
      sampleMs += control.now() - sampling;
      sampledTokens++;
      laps?.lap("generation", "sampling");
      if (engine.tokenizer.isEndOfGeneration(sampled.id)) {
        stopReason = "end";
        break;
      }
      const accepting = constraint?.accept(sampled.id);
      if (accepting) await engine.apart(running!, accepting);
      budget?.accept(sampled.id);
      tokenIds.push(sampled.id);
      decoder.push(sampled.id);
      events.push(sampled);
      laps?.lap("generation", "text");
      // Elsewhere messages come in while a device computes.
      if (!events.areLate) await control.yieldThread();
      laps?.lap("generation", "messages");
      if (text.stopped) stopReason = "stop";
      else if (control.aborted) stopReason = "aborted";
      else if (!shift && decoder.length > sequence.capacity) stopReason = "context";
      else if (tokenIds.length < maxTokens && !constraint?.isFinished) {
        const done = shift?.(sequence);
        if (done) {
          await engine.dropTokens(running!, { keep: done.kept, count: done.discarded }, () =>
            control.yieldThread(),
          );
          shifts.push(done);
        } else if (shift && sequence.length >= sequence.capacity) {
          stopReason = "context";
          break;
        }
        if (decoder.isAhead || constraint?.isNextKnown) {
          events.finish();
          if (events.areLate) await control.yieldThread();
          continue;
        }
        // No draft is longer than the tokens that may follow.
        const left = maxTokens - tokenIds.length - 1;
        const room = Math.min(left, sequence.capacity - decoder.length);
        await orYield(() => decoder.advance(room).then(() => true)).then(
          (isDone) => {
            if (!isDone) stopReason = "aborted";
          },
          (error: unknown) => {
            if (!(error instanceof AbortedError)) throw error;
            stopReason = "aborted";
          },
        );
      }
      events.finish();
    }
    events.finish();
    const rest = text.end();
    if (rest) emit({ id: -1, text: rest });
    laps?.lap("generation", "text");
    const ended = control.now();
    return {
      text: text.all,
      promptTokenIds: [...prompt],
      tokenIds,
      stopReason,
      ...(text.stopped === undefined ? {} : { stopString: text.stopped }),
      timings: {
        promptTokens: prompt.length,
        cachedTokens: Math.min(cachedTokens, prompt.length),
        ...(restored && { restored }),
        ...(computedAgain && { computedAgain }),
        ...(running?.movedTokens && { movedTokens: running.movedTokens }),
        ...(shifts.length > 0 && { contextShifts: shifts }),
        ...expertTimings(expertsBefore, expertsOfPrompt, engine.expertReads),
        ...decoder.report(),
        promptMs: promptDone - started,
        generatedTokens: tokenIds.length - readTokens.length,
        generatedMs: ended - promptDone,
        sampledTokens,
        sampleMs,
        totalMs: ended - arrived,
        work: phaseWork(engine, engine.parts, {
          cached: cachedTokens,
          read: promptEnd - cachedTokens,
          batches: decoder.counts.batches,
          tokens: decoder.counts.tokens,
        }),
      },
    };
  } finally {
    events.send(); // a failed batch does not take earlier tokens with it
    decoder.dispose();
    if (running) {
      decoder.settle();
      engine.close(running);
    }
  }
}

/** The tokens that end a text, as far as the model computes logits for them. */
function endsOf({ tokenizer, vocabSize }: Engine): number[] {
  return [...tokenizer.endTokens].filter((id) => id < vocabSize);
}

/** The number of these tokens before one that ends the text: nothing is computed after it. */
function beforeEnd({ tokenizer }: Engine, tokens: Int32Array, count: number): number {
  for (let i = 0; i < count; i++) if (tokenizer.isEndOfGeneration(tokens[i]!)) return i;
  return count;
}

/** The work that is done while a batch is computed; undefined: none. */
function meanwhileOf(
  events: TokenEvents,
  constraint: Constraint | undefined,
): (() => void) | undefined {
  if (!events.areLate) return constraint?.prepare;
  if (!constraint) return events.send;
  return () => {
    events.send();
    constraint.prepare();
  };
}

/** The grammar or schema that constrains the text; undefined: it is free. */
async function constraintOf(
  engine: Engine,
  { options, grammar }: GenerationRequest,
  isWhole: boolean,
  control: RunControl,
): Promise<Constraint | undefined> {
  const source = grammar ?? grammarSource(options);
  const triggers = checkedTriggers(options.grammarTriggers);
  if (source === undefined) {
    if (triggers.length === 0) return undefined;
    throw new UsageError("grammarTriggers: got triggers, but no grammar that they could start");
  }
  const compiled = await engine.grammars.compile(source, () => control.yieldThread());
  return new Constraint(compiled, engine.tokenizer, {
    triggers,
    // Forced tokens have no logits of their own, and a context shifts after every token where it must.
    forces: (options.forceTokens ?? true) && options.logprobs === undefined && isWhole,
    ignoreEos: options.ignoreEos ?? false,
    turns: engine.grammarTurns,
    control,
  });
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

function checkMaxTokens(maxTokens: number | undefined): number {
  if (maxTokens === undefined) return Number.POSITIVE_INFINITY;
  checkCount("maxTokens", maxTokens);
  return maxTokens;
}

/** The number of best logits that are read; 0: all are. */
function bestOf(engine: Engine, { best, adjusts }: Sampler): number {
  if (best > engine.mostBest) return 0;
  return adjusts && !engine.readsAdjusted ? 0 : best;
}

/** The options of a generation that have no row and are not the sampler's. */
const otherOptions: OptionNames<
  Omit<GenerateOptions, keyof SamplingOptions | GenerationName | "signal">
> = {
  ...{ logprobs: true, logprobsOf: true, conversation: true, special: true, progress: true },
  ...{ addBos: true, parseSpecial: true, speculate: true, resumeTokens: true },
  ...{ grammar: true, schema: true, regex: true, choices: true, grammarTriggers: true },
  ...{ forceTokens: true, reasoningBudget: true, adapters: true, priority: true },
};

/** The options that belong to the sampler, and unknown ones: it refuses them. */
function samplingPart(options: Omit<GenerateOptions, "signal">): SamplingOptions {
  const isOther = (name: string): boolean =>
    Object.hasOwn(otherOptions, name) || Object.hasOwn(generationRows, name);
  return Object.fromEntries(Object.entries(options).filter(([name]) => !isOther(name)));
}
