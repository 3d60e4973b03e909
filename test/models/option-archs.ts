// Architectures that the parts of src/models can compute and Lantern does not know yet: both attend without a causal mask. For
// tests that hold that option against llama.cpp; not registered anywhere.

import type { Rope } from "../../src/graph/graph.ts";
import type { Arch, ModelConfig } from "../../src/models/arch.ts";
import { LIMITS, readConfig, readerOf } from "../../src/models/config.ts";
import { attention } from "../../src/models/parts/attention.ts";
import { decoderWeights } from "../../src/models/parts/decoder-weights.ts";
import { decoderOutputs } from "../../src/models/parts/ends.ts";
import { geglu, swiglu } from "../../src/models/parts/feed-forward.ts";
import { rmsNorms } from "../../src/models/parts/norms.ts";
import { windowRope } from "../../src/models/rope.ts";

interface WindowedConfig extends ModelConfig {
  windows: (number | undefined)[];
  windowRope: Rope;
}

/** Tokens look at those after them: windows reach half as far to either side. */
const gemmaEmbedding: Arch<WindowedConfig> = {
  names: ["gemma-embedding"],
  about: "a test",

  config(header) {
    const c = readConfig(header, "half", { window: "own" });
    const read = readerOf(header);
    const windows = read.windowsPerLayer(c.layers, 6, LIMITS.context);
    return { ...c, windows, windowRope: windowRope(read, c.rope, 10000) };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"],
      headNorms: true,
    }),

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, Math.sqrt(c.embed), "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const options = { window, rope: window ? c.windowRope : c.rope, causal: false };
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, ...options }); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = geglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    g.layer(undefined);
    return { hidden: rmsNorms(g, w, c, undefined)(g.select(x, "selected"), "output_norm") }; // [outputs, embed]
  },
};

/** Diffusion: the whole text at once. */
const dream: Arch = {
  names: ["dream"],
  about: "a test",
  config: (header) => readConfig(header, "half"),
  weights: (c) => decoderWeights(c, { qkvBias: "required" }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, causal: false }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** By the name of the file. */
export const optionArchs: Readonly<Record<string, Arch>> = {
  dream,
  "gemma-embedding": gemmaEmbedding,
};
