// Biases by text: llama.cpp's clients may give words instead of token ids. Every token of the text gets the bias.

import type { ServedModel } from "./context.ts";
import type { LogitBias } from "./inputs.ts";
import type { SamplingFields } from "./sampling-fields.ts";

/** Replaces texts by ids. */
export async function withTokenBiases<F extends SamplingFields>(
  { model }: ServedModel,
  fields: F,
): Promise<F> {
  const { logit_bias } = fields;
  if (logit_bias === undefined) return fields;
  const pairs: [number | string, number | false][] = Array.isArray(logit_bias)
    ? logit_bias
    : Object.entries(logit_bias).map(([key, value]) => [
        /^\d{1,9}$/.test(key) ? Number(key) : key,
        value,
      ]);
  if (pairs.every(([key]) => typeof key === "number")) return fields;
  const resolved: LogitBias = [];
  for (const [key, value] of pairs) {
    const ids =
      typeof key === "number"
        ? [key]
        : await model.tokenize(key, { addBos: false, parseSpecial: false });
    for (const id of ids) resolved.push([id, value]);
  }
  return { ...fields, logit_bias: resolved };
}
