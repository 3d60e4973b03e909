// Qwen 2 and 2.5, the text side of their VL models and of PaddleOCR-VL, and openPangu Embedded: as
// Llama, with biases on q, k and v, and rotary pairs half a head apart.

import type { Arch } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";
import { textSections } from "./rope.ts";

export const qwen2: Arch = {
  names: ["qwen2", "qwen2vl", "paddleocr", "pangu-embedded"],
  about: "Qwen 1.5, 2 and 2.5, Qwen 2 and 2.5 VL (text), PaddleOCR-VL (text), openPangu Embedded",

  config(header) {
    const read = readerOf(header);
    const hasSections = ["qwen2vl", "paddleocr"].includes(read.architecture);
    // llama.cpp does not read the key in VL models, and takes 0.
    const c = readConfig(header, "half", hasSections ? { normEps: 0 } : {});
    return hasSections ? { ...c, rope: textSections(read, c.rope, "required") } : c;
  },

  weights: (c) => decoderWeights(c, { logitsBias: "optional" }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
