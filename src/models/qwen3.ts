// Qwen 3 (dense): as Llama, with a norm of every q and k head before the rotation, and rotary pairs half a head apart.

import type { Arch } from "./arch.ts";
import { decoder, decoderWeights } from "./blocks.ts";
import { readConfig } from "./config.ts";

export const qwen3: Arch = {
  names: ["qwen3"],
  config: (header) => readConfig(header, "half"),
  weights: (config) => decoderWeights(config, { qkvBias: "optional", headNorms: true }),
  forward: decoder,
};
