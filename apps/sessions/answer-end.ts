// The end of an answer, in the form in which it is saved: its text, the reason, its tokens and its times. runs.ts
// decides when an answer has ended.

import { isDisturbed } from "../../src/base/machine-load.ts";
import type { GenerationResult } from "../../src/index.ts";
import type { Answer } from "./answer.ts";
import type { MessageTimings, MessageTokens } from "./session.ts";
import type { Prompt } from "./slide.ts";
import type { MessageEnd } from "./tree.ts";

/** The end of an answer that was completed; `dropped`: tokens of the text that the model did not see. */
export function endOf(answer: Answer, result: GenerationResult, dropped: number): MessageEnd {
  const { timings, stopReason } = result;
  return {
    ...answer.saved,
    state: stopReason === "aborted" ? "aborted" : "complete",
    stopReason,
    error: null,
    tokens: {
      ...countsOf(answer, timings.promptTokens, timings.cachedTokens, timings.generatedTokens),
      ...(dropped > 0 && { dropped }),
    },
    timings: timingsOf(answer, result),
  };
}

/** The end of an answer that was stopped or failed. */
export function brokenEnd(answer: Answer, prompt: Prompt, error: string | null): MessageEnd {
  const { dropped } = prompt;
  return {
    ...answer.saved,
    state: error === null ? "aborted" : "error",
    stopReason: error === null ? "aborted" : null,
    error,
    tokens: {
      ...countsOf(answer, prompt.tokens.length, null, answer.tokens),
      ...(dropped > 0 && { dropped }),
    },
    timings: timingsOf(answer, undefined),
  };
}

/** Token counts of the whole answer: the prompt that it began with, and the tokens generated before it was continued, and now. */
function countsOf(
  { before: { tokens }, reasoningTokens }: Answer,
  prompt: number,
  cached: number | null,
  generated: number,
): MessageTokens {
  const reasoning = (tokens?.reasoning ?? 0) + reasoningTokens;
  return {
    prompt: tokens?.prompt ?? prompt,
    cached: tokens ? tokens.cached : cached,
    generated: (tokens?.generated ?? 0) + generated,
    ...(reasoning > 0 && { reasoning }),
  };
}

/** Joins two generations that wrote one answer, one after the other. */
export function joined(
  before: GenerationResult | undefined,
  result: GenerationResult,
): GenerationResult {
  if (!before) return result;
  const { generatedTokens, generatedMs, sampledTokens, sampleMs, totalMs } = before.timings;
  const timings = {
    ...result.timings,
    generatedTokens: generatedTokens + result.timings.generatedTokens,
    generatedMs: generatedMs + result.timings.generatedMs,
    sampledTokens: sampledTokens + result.timings.sampledTokens,
    sampleMs: sampleMs + result.timings.sampleMs,
    totalMs: totalMs + result.timings.totalMs,
  };
  return { ...result, timings };
}

/** The timings of the last generation that wrote a part of it. */
function timingsOf(answer: Answer, result: GenerationResult | undefined): MessageTimings {
  if (answer.tokens === 0 && answer.before.timings) return answer.before.timings;
  const { limits, others } = result?.timings ?? {};
  const limit = limits?.generation;
  const wasBusy = others !== undefined && isDisturbed(others.cores, others.ofCores);
  return {
    msToFirstToken: answer.msToFirstToken,
    tokensPerSecond: engineSpeed(result) ?? answer.tokensPerSecond,
    promptMs: result?.timings.promptMs ?? null,
    generatedMs: result?.timings.generatedMs ?? null,
    ...(answer.reasoningMs !== null && { reasoningMs: answer.reasoningMs }),
    percentOfLimit: limit ? limit.fraction * 100 : null,
    boundBy: limit?.resource ?? null,
    ...(limit && limits?.quick && { limitIsQuick: true }),
    ...(wasBusy && { othersCores: others.cores, cores: others.ofCores }),
  };
}

/**
 * Measured by the engine's own clock: when this thread is busy, tokens arrive in bursts, and the time between the
 * first and the last means nothing. null: one token has no speed.
 */
function engineSpeed(result: GenerationResult | undefined): number | null {
  const { generatedTokens = 0, generatedMs = 0 } = result?.timings ?? {};
  return generatedTokens > 1 && generatedMs > 0 ? (generatedTokens * 1000) / generatedMs : null;
}
