// The report of quantizing: a model before and after, side by side. It has the tokens per second that this machine allows each, and
// the perplexity of each on a text. The command line and the web app both show this.

import type { ModelLocation } from "../../api/api.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import { rememberedMachine } from "../../machine/machine.ts";
import { limits } from "../limits/api.ts";
import { type Estimate, type PerplexityProgress, perplexity } from "../perplexity/api.ts";

export interface CompareQuantizedOptions {
  /** The text for measuring perplexity; without it, perplexity is not measured. */
  text?: string | undefined;
  /** Window size in tokens and the most windows, as in perplexity(). */
  contextSize?: number | undefined;
  chunks?: number | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: PerplexityProgress & { of: "before" | "after" }) => void) | undefined;
}

export interface BeforeAndAfter<T> {
  before: T;
  after: T;
}

export interface QuantizedComparison {
  /** The most that this machine allows; undefined if it was not measured. */
  tokensPerSecond: BeforeAndAfter<number | undefined>;
  /** undefined without a text. */
  perplexity: BeforeAndAfter<Estimate | undefined>;
}

const knownOptions: OptionNames<CompareQuantizedOptions> = {
  text: true,
  contextSize: true,
  chunks: true,
  signal: true,
  onProgress: true,
};

export async function compareQuantized(
  before: ModelLocation,
  after: ModelLocation,
  options: CompareQuantizedOptions = {},
): Promise<QuantizedComparison> {
  checkOptionNames("compareQuantized()", options, knownOptions);
  return {
    tokensPerSecond: { before: await speedOf(before), after: await speedOf(after) },
    perplexity: {
      before: await qualityOf(before, "before", options),
      after: await qualityOf(after, "after", options),
    },
  };
}

async function speedOf(model: ModelLocation): Promise<number | undefined> {
  const machine = await rememberedMachine();
  if (!machine) return undefined;
  // A model that this build cannot run has no speed here, but can still be quantized.
  const report = await limits(model, { context: 1, machine: async () => machine }).catch(
    () => undefined,
  );
  return report && 1000 / report.decode.firstMs;
}

async function qualityOf(
  model: ModelLocation,
  of: "before" | "after",
  { text, contextSize, chunks, signal, onProgress }: CompareQuantizedOptions,
): Promise<Estimate | undefined> {
  if (text === undefined) return undefined;
  const result = await perplexity(model, text, {
    ...(contextSize !== undefined && { contextSize }),
    ...(chunks !== undefined && { chunks }),
    ...(signal && { signal }),
    onProgress: (progress) => onProgress?.({ ...progress, of }),
  });
  return result.perplexity;
}
