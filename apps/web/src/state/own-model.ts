// A model of one's own on the Limits page: a config.json, or the sizes of a plain transformer. The reader of config.json is loaded at
// first use.

import { messageOf } from "../../../../src/base/errors.ts";
import type { LimitsModel } from "../../../../src/limits/limits-model.ts";
import type { ModelShape } from "../../../../src/limits/shape.ts";

/** Its id among the models of the page. */
export const ownId = "own";

/** The user's input, as the browser stores it. */
export type OwnChoice = { readonly config: string } | { readonly shape: ModelShape };

/** Sizes to begin with: those of Llama 3 8B. */
const firstShape: ModelShape = {
  ...{ vocabSize: 128256, layers: 32, embed: 4096, feedForward: 14336, heads: 32, kvHeads: 8 },
  ...{ headDim: 128, qkvBias: false, headNorms: false, tied: false },
};
export const firstOwn: OwnChoice = { shape: firstShape };

/** Real ones have some kilobytes. */
export const longestConfig: number = 1 << 20;

/** The model with weights and a KV cache of 16 bits. Throws the error of the input. */
export async function ownModel(own: OwnChoice): Promise<LimitsModel> {
  const { namedModel, configModel } = await import("../../../../src/tools/limits/model-facts.ts");
  const widths = { weights: undefined, kv: undefined, counting: "best" } as const;
  const name = "your configuration";
  if ("shape" in own) {
    const { checkShape } = await import("../../../../src/limits/shape.ts");
    checkShape(own.shape);
    return namedModel({ id: ownId, name, shape: own.shape }, widths);
  }
  return configModel(parsed(own.config), name, widths);
}

function parsed(text: string): Record<string, unknown> {
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new TypeError(`config.json: got ${messageOf(error)}, expected JSON`, { cause: error });
  }
  const isObject = typeof config === "object" && config !== null && !Array.isArray(config);
  if (isObject) return config as Record<string, unknown>;
  throw new TypeError("config.json: got no object, expected { … }");
}

/** The stored input, if it is valid. */
export function checkedOwn(found: unknown): OwnChoice | undefined {
  const { config, shape } = Object(found) as { config?: unknown; shape?: unknown };
  if (typeof config === "string" && config.length <= longestConfig) return { config };
  const fields = Object(shape) as Record<string, unknown>;
  const isWhole = Object.entries(firstShape).every(
    ([key, usual]) => typeof fields[key] === typeof usual,
  );
  return isWhole ? { shape: shape as ModelShape } : undefined;
}
