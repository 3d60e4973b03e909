// Hunyuan (dense), and the text side of Hunyuan-VL: as Qwen 3, with the norms of q and k after the rotation.

import type { Arch } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";
import { baseOf, ropeFromMetadata, textSections } from "./rope.ts";

export const hunyuanDense: Arch = {
  names: ["hunyuan-dense", "hunyuan_vl"],
  about: "Hunyuan (dense), Hunyuan-VL (text)",

  config(header) {
    const c = readConfig(header, "half");
    const read = readerOf(header);
    const alpha = read.positiveOr("rope.scaling.alpha", 1);
    const stretch = alpha ** (c.headDim / (c.headDim - 2));
    const freqBase = Math.fround(baseOf(read, "rope.freq_base", 10000) * Math.fround(stretch));
    const rope = ropeFromMetadata(read, c.headDim, "half", freqBase);
    return { ...c, rope: textSections(read, rope) };
  },

  weights: (c) => decoderWeights(c, { headNorms: true }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer, normsAfterRope: true }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
