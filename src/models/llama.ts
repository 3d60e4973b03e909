// Llama 1, 2 and 3, Mistral, TinyLlama, SmolLM and everything else that calls itself "llama": RMS norm, rotary
// positions (GGUF stores q and k permuted, so pairs are interleaved), grouped-query attention, SiLU-gated feed-forward.

import type { Arch } from "./arch.ts";
import { decoder, decoderWeights } from "./blocks.ts";
import { readConfig } from "./config.ts";

export const llama: Arch = {
  names: ["llama"],
  config: (header) => readConfig(header, "interleaved"),
  weights: (config) => decoderWeights(config, { qkvBias: "optional", headNorms: false }),
  forward: decoder,
};
