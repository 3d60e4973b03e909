// BitNet: as Llama with ternary weights and a scale for each matrix; norms before attention's output matrix and before the down
// matrix; rotary pairs half a head apart.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attend } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights } from "./parts/feed-forward.ts";
import { linear } from "./parts/linear.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";

const matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

export const bitnet: Arch = {
  names: ["bitnet"],
  about: "BitNet b1.58",
  config: (header) => readConfig(header, "half"),

  weights: (c) =>
    decoderWeights(c, {
      output: "none",
      feedForward: (layer) => [
        ...normWeights(layer, c.heads * c.headDim, ["attn_sub_norm"]),
        ...normWeights(layer, c.feedForward, ["ffn_sub_norm"]),
        ...gatedWeights(c.embed, c.feedForward, layer),
        ...matrices.map((name) => ({
          name: `blk.${layer}.${name}.scale`,
          shape: [1],
          optional: true,
        })),
      ],
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const attended = attend(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, heads * headDim]
      const a = linear(g, w, norm(attended, "attn_sub_norm"), layer, "attn_output"); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const gate = linear(g, w, f, layer, "ffn_gate"); // [tokens, feedForward]
      const up = linear(g, w, f, layer, "ffn_up"); // [tokens, feedForward]
      const inner = norm(g.gate(gate, up, "silu", "ffn_silu"), "ffn_sub_norm"); // [tokens, feedForward]
      x = g.add(x, linear(g, w, inner, layer, "ffn_down"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
