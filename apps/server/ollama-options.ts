// Ollama's `options` of a request, which are also the PARAMETERs of a Modelfile: names, ranges, and their options in the public API.

import * as z from "zod";
import type { GenerateOptions } from "../../src/index.ts";
import { checkFields, type FieldRules, oneOf } from "./body.ts";
import type { IgnoredFields } from "./ignored-fields.ts";
import { generateOptions, type SamplingFields, samplingShape } from "./sampling-fields.ts";

const optionFields = z.object({
  ...samplingShape,
  num_predict: z.int().min(-2).optional(),
  num_ctx: z.int().min(1).optional(),
  num_keep: z.int().min(-1).optional(),
});

const optionRules: FieldRules = {
  // These are fixed when the server starts.
  accepted: [
    ...["num_thread", "num_gpu", "num_batch", "main_gpu", "use_mmap", "low_vram", "numa"],
    ...["f16_kv", "use_mlock", "vocab_only", "embedding_only", "logits_all", "num_gqa"],
  ],
  refused: {
    tfs_z: { why: "tail-free sampling is not supported", fine: oneOf(1) },
    penalize_newline: { why: "newlines are treated like any other token", isAdvice: true },
  },
};

/** `given` over `defaults`; `prefix`: their path in the request ("options."). */
export function ollamaOptions(
  given: Readonly<Record<string, unknown>>,
  prefix: string,
  defaults: GenerateOptions,
  ignored: IgnoredFields,
  fields: SamplingFields = {},
): { options: GenerateOptions; contextSize: number | undefined } {
  const read = { ...fields, ...checkFields(given, optionFields, optionRules, prefix, ignored) };
  const limit = read.num_predict;
  const maxTokens = limit === undefined || limit < 0 ? undefined : limit;
  const n_keep = read.num_keep ?? read.n_keep;
  const options = generateOptions({ ...read, n_keep }, { maxTokens }, defaults);
  return { options, contextSize: read.num_ctx };
}
