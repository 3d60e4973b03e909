// Llama 4 (text): three of four layers attend within chunks of the text, with positions and norms of q and k after them; the others
// attend to all, without positions, and their queries grow with the length of the text. The router's weight is applied to an
// expert's input. MobileLLM has neither chunks nor experts.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { moeWeights, sharedExpert } from "./parts/moe.ts";
import { ones, rmsNorms } from "./parts/norms.ts";
import { withSparse } from "./sparse-config.ts";

interface Llama4Config extends ModelConfig {
  /** Whether each layer has experts. */
  sparse: boolean[];
  /** Tokens of a chunk; undefined: there are none. */
  chunk: number | undefined;
  /** The layers that have positions. */
  hasRope: boolean[];
  /** Layers with positions have norms of q and k, which have no weights. */
  hasHeadNorms: boolean;
}

/** Tokens of a chunk, regardless of the file, as in llama.cpp. */
const CHUNK = 8192;

/** Tensors that moe() reads and weighedMoe() does not. */
const unusual = /ffn_gate_up_exps|ffn_down_exps\.scale/;

const temperature = { scale: 0.1, span: CHUNK, offset: 1 };

/** The number of Maverick's experts, which has no norms of q and k. */
const EXPERTS_WITHOUT_NORMS = 128;

export const llama4: Arch<Llama4Config> = {
  names: ["llama4"],
  about: "Llama 4 (text)",

  config(header) {
    const read = readerOf(header);
    const c = readConfig(header, "interleaved", { window: "own", experts: "optional" });
    const window = "attention.sliding_window";
    const hasChunks = read.number(window) === undefined || read.count(window, LIMITS.context) > 0;
    // llama.cpp's rule: without chunks, all layers but the last have positions.
    const period = hasChunks ? 4 : c.layers;
    const own = {
      chunk: hasChunks ? CHUNK : undefined,
      hasRope: Array.from({ length: c.layers }, (_, i) => (i + 1) % period !== 0),
      hasHeadNorms: c.experts?.count !== EXPERTS_WITHOUT_NORMS,
    };
    if (!c.experts) return { ...c, ...own, sparse: new Array<boolean>(c.layers).fill(false) };
    read.integer("interleave_moe_layer_step", LIMITS.layers);
    const { sparse, experts } = withSparse(header, c);
    return { ...c, ...own, sparse, experts: { ...experts, shared: experts.feedForward } };
  },

  weights: (c) =>
    decoderWeights(c, {
      feedForward: (layer) =>
        c.sparse[layer]
          ? moeWeights(c.embed, c.experts!, layer).filter(({ name }) => !unusual.test(name))
          : gatedWeights(c.embed, c.feedForward, layer, "optional"),
    }),

  forward(g, c, w) {
    const { chunk } = c;
    const cols = c.kvHeads * c.headDim;
    const cache = { kind: "kv", kCols: cols, vCols: cols } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const chunks = chunk && c.hasRope[layer] ? { window: chunk, chunked: true } : {};
      const state = g.state({ ...cache, layer, ...chunks });
      const attended = c.hasRope[layer]
        ? attention(g, headNorms(g, w, c), a, { ...c, layer, state, normsAfterRope: true })
        : attention(g, w, a, {
            ...{ ...c, layer, state, rope: undefined },
            temperature: chunk ? temperature : undefined,
          }); // [tokens, embed]
      x = g.add(x, attended, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = c.sparse[layer] ? weighedMoe(g, w, f, layer, c) : swiglu(g, w, f, layer); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** The weights with norms of q and k that are all ones, where the model has such norms. */
function headNorms(g: GraphBuilder, w: WeightLookup, c: Llama4Config): WeightLookup {
  if (!c.hasHeadNorms) return w;
  const isNorm = (name: string) => /\.attn_[qk]_norm\.weight$/.test(name);
  return { ...w, maybe: (name) => (isNorm(name) ? ones(g, c.headDim) : w.maybe(name)) };
}

/** down(silu(gate(y)) * up(y)) with y = sigmoid(logit) * x, summed over a token's experts, plus the shared one. */
function weighedMoe(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  { experts }: Llama4Config,
): Value {
  const { used } = experts!;
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const logits = g.matmul(x, weight("ffn_gate_inp"), "ffn_gate_inp"); // [tokens, experts]
  const routing = { used, gating: "none", normalise: false, scale: 1 } as const;
  const routes = g.route(logits, routing, "ffn_route"); // [tokens, 2 * used]
  let out = sharedExpert(g, w, x, layer, "silu")!; // [tokens, embed]
  for (let slot = 0; slot < used; slot++) {
    const own = used === 1 ? routes : g.slice(routes, slot, 1, `ffn_route_${slot}`, 2); // [tokens, 2]
    const logit = g.slice(own, 1, 1, `ffn_logit_${slot}`); // [tokens, 1]
    const y = g.gate(logit, x, "sigmoid", `ffn_weighed_${slot}`); // [tokens, embed]
    const gate = g.matmulId(y, own, weight("ffn_gate_exps"), `ffn_gate_exps_${slot}`); // [tokens, feedForward]
    const up = g.matmulId(y, own, weight("ffn_up_exps"), `ffn_up_exps_${slot}`); // [tokens, feedForward]
    const inner = g.gate(gate, up, "silu", `ffn_silu_exps_${slot}`); // [tokens, feedForward]
    const down = g.matmulId(inner, own, weight("ffn_down_exps"), `ffn_down_exps_${slot}`); // [tokens, embed]
    out = g.add(out, down, `ffn_moe_${slot}`); // [tokens, embed]
  }
  return out;
}
