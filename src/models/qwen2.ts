// Qwen 1.5, 2 and 2.5: as Llama, with biases on q, k and v, and rotary pairs half a head apart.

import type { Arch } from "./arch.ts";
import { decoder, decoderWeights } from "./blocks.ts";
import { readConfig } from "./config.ts";

export const qwen2: Arch = {
  names: ["qwen2"],
  config: (header) => readConfig(header, "half"),
  weights: (config) => decoderWeights(config, { qkvBias: "required", headNorms: false }),
  forward: decoder,
};
