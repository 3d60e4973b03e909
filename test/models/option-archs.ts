// Architectures that the parts of src/models can compute and Lantern does not know yet: each needs some of attention's options
// (windows, softcaps, sinks, scales, layers without rope, no causal mask), or arrays with a value for each layer. For tests
// that hold the options against llama.cpp; not registered anywhere.

import type { GraphBuilder } from "../../src/graph/builder.ts";
import type { Rope, RopeLayout, Value } from "../../src/graph/graph.ts";
import type {
  Arch,
  ModelConfig,
  ModelHeader,
  WeightLookup,
  WeightSpec,
} from "../../src/models/arch.ts";
import { readConfig } from "../../src/models/config.ts";
import { ConfigReader } from "../../src/models/config-reader.ts";
import { attention, attentionWeights } from "../../src/models/parts/attention.ts";
import { decoderOutputs, endWeights } from "../../src/models/parts/ends.ts";
import { gatedWeights, geglu, swiglu } from "../../src/models/parts/feed-forward.ts";
import { ropeFromMetadata, windowRope } from "../../src/models/rope.ts";

const MOST = 1 << 20;

/** What these read besides what all have. */
interface Config extends ModelConfig {
  read: ConfigReader;
  /** Of each layer. */
  windows: (number | undefined)[];
  /** Of the layers with a window. */
  windowRope: Rope;
}

interface Family {
  readonly layout: RopeLayout;
  /** Layers of which the last has no window, where the file does not say. */
  readonly period?: number;
  /** Default: that of the others. */
  readonly windowFreqBase?: number;
  readonly extraWeights: (c: Config, layer: number) => WeightSpec[];
  readonly headNorms?: boolean;
  readonly qkvBias?: "required";
  readonly forward: (g: GraphBuilder, c: Config, w: WeightLookup) => ReturnType<Arch["forward"]>;
}

const vector = (name: string, size: number): WeightSpec => ({ name, shape: [size] });

function define(name: string, family: Family): Arch {
  const { layout, period = 1, headNorms = false, qkvBias = "none", extraWeights } = family;
  return {
    names: [name],
    config(header): Config {
      const c = readConfig(header, layout);
      const read = new ConfigReader(header.metadata, name);
      const freqBase = family.windowFreqBase ?? read.positiveOr("rope.freq_base", 10000);
      const windows = read.windowsPerLayer(c.layers, period, MOST);
      return { ...c, read, windows, windowRope: windowRope(read, c.rope, freqBase) };
    },
    weights(config) {
      const c = config as Config;
      const layers = Array.from({ length: c.layers }, (_, layer) => [
        ...attentionWeights(c, layer, { qkvBias, headNorms }),
        ...gatedWeights(c.embed, c.feedForward, layer),
        ...extraWeights(c, layer),
      ]);
      return [...endWeights(c), ...layers.flat()];
    },
    forward: (g, c, w) => family.forward(g, c as Config, w),
  };
}

const norms =
  (...names: string[]) =>
  ({ embed }: ModelConfig, layer: number): WeightSpec[] =>
    names.map((name) => vector(`blk.${layer}.${name}.weight`, embed));

/** A norm of this layer. */
function normOf(g: GraphBuilder, c: ModelConfig, w: WeightLookup, layer: number) {
  return (x: Value, name: string) =>
    g.rmsNorm(x, w.get(`blk.${layer}.${name}.weight`), c.normEps, name);
}

/** Gemma 2 and 3, and EmbeddingGemma: norms on both sides, windows, GELU. */
function gemma(
  g: GraphBuilder,
  c: Config,
  w: WeightLookup,
  { softcap, causal = true }: { softcap?: number | undefined; causal?: boolean },
): Value {
  const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
  let x = g.scale(embedded, Math.sqrt(c.embed), "embed_scaled"); // [tokens, embed]
  for (let layer = 0; layer < c.layers; layer++) {
    g.layer(layer);
    const norm = normOf(g, c, w, layer);
    const window = c.windows[layer];
    const options = { window, rope: window ? c.windowRope : c.rope, softcap, causal };
    const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, ...options }); // [tokens, embed]
    x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
    const f = geglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
    x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
  }
  return x;
}

const gemmaNorms = norms("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm");

const gemma2 = define("gemma2", {
  layout: "half",
  period: 2,
  extraWeights: gemmaNorms,
  forward(g, c, w) {
    const softcap = c.read.positive("attn_logit_softcapping");
    const x = gemma(g, c, w, { softcap });
    const { hidden, logits } = decoderOutputs(g, c, w, x);
    const cap = c.read.positive("final_logit_softcapping");
    return { hidden: hidden!, logits: g.softcap(logits!, cap, "logits_capped") }; // [logits, vocab]
  },
});

const gemma3 = define("gemma3", {
  layout: "half",
  period: 6,
  windowFreqBase: 10000,
  headNorms: true,
  extraWeights: gemmaNorms,
  forward: (g, c, w) => decoderOutputs(g, c, w, gemma(g, c, w, {})),
});

/** Tokens look at those after them: windows reach half as far to either side. */
const gemmaEmbedding = define("gemma-embedding", {
  layout: "half",
  period: 6,
  windowFreqBase: 10000,
  headNorms: true,
  extraWeights: gemmaNorms,
  forward(g, c, w) {
    const x = gemma(g, c, w, { causal: false });
    g.layer(undefined);
    const wanted = g.select(x, "selected"); // [outputs, embed]
    return { hidden: g.rmsNorm(wanted, w.get("output_norm.weight"), c.normEps, "output_norm") };
  },
});

/** Llama with options of attention, layer by layer. */
function plainDecoder(
  options: (c: Config, layer: number, w: WeightLookup) => Partial<Parameters<typeof attention>[3]>,
): Family["forward"] {
  return (g, c, w) => {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = normOf(g, c, w, layer);
      const shape = { ...c, layer, ...options(c, layer, w) };
      x = g.add(x, attention(g, w, norm(x, "attn_norm"), shape), "attn_residual"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  };
}

/** Every fourth layer has no positions. */
const smollm3 = define("smollm3", {
  layout: "interleaved",
  extraWeights: norms("attn_norm", "ffn_norm"),
  forward: plainDecoder((c, layer) => ({ rope: (layer + 1) % 4 === 0 ? undefined : c.rope })),
});

/** Diffusion: the whole text at once. */
const dream = define("dream", {
  layout: "half",
  qkvBias: "required",
  extraWeights: norms("attn_norm", "ffn_norm"),
  forward: plainDecoder(() => ({ causal: false })),
});

/** Sinks in every layer, windows and rope in some, factors everywhere. */
const graniteSwa = define("granite_swa", {
  layout: "interleaved",
  extraWeights: (c, layer) => [
    ...norms("attn_norm", "ffn_norm")(c, layer),
    vector(`blk.${layer}.attn_sinks.weight`, c.heads),
  ],
  forward(g, c, w) {
    const { read } = c;
    const ropes = read.flagsPerLayer("attention.rope_pattern", c.layers, 0);
    const scale = read.positive("attention.scale");
    const residual = read.positive("residual_scale");
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, read.positive("embedding_scale"), "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = normOf(g, c, w, layer);
      const sinks = w.get(`blk.${layer}.attn_sinks.weight`);
      const rope = ropes[layer] ? c.rope : undefined;
      const options = { rope, window: c.windows[layer], scale, sinks };
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, ...options }); // [tokens, embed]
      x = g.add(x, g.scale(a, residual, "attn_scaled"), "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      x = g.add(x, g.scale(f, residual, "ffn_scaled"), "ffn_residual"); // [tokens, embed]
    }
    const { hidden, logits } = decoderOutputs(g, c, w, x);
    const factor = 1 / read.positive("logit_scale");
    return { hidden: hidden!, logits: g.scale(logits!, factor, "logits_scaled") }; // [logits, vocab]
  },
});

/** OLMo 2 and 3: norms only behind, and of whole rows of q and k; YaRN where there is no window. */
const olmo2 = define("olmo2", {
  layout: "half",
  period: 4,
  extraWeights: (c, layer) => [
    ...norms("post_attention_norm", "post_ffw_norm")(c, layer),
    vector(`blk.${layer}.attn_q_norm.weight`, c.heads * c.headDim),
    vector(`blk.${layer}.attn_k_norm.weight`, c.kvHeads * c.headDim),
  ],
  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = normOf(g, c, w, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : c.rope;
      const a = attention(g, w, x, { ...c, layer, window, rope }); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, x, layer); // [tokens, embed]
      x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
});

/** Heads and sizes of each layer of a Deci model; 0: it has none of these. */
interface DeciConfig extends ModelConfig {
  layerHeads: number[];
  layerKvHeads: number[];
  layerFeedForward: number[];
}

function deciConfig({ metadata, tensors }: ModelHeader): DeciConfig {
  const read = new ConfigReader(metadata, "deci");
  const layers = read.integer("block_count", 1024);
  const embed = read.integer("embedding_length", MOST);
  const layerHeads = read.integersPerLayer("attention.head_count", layers, MOST, 0);
  const layerKvHeads = read.integersPerLayer("attention.head_count_kv", layers, MOST, 0);
  const layerFeedForward = read.integersPerLayer("feed_forward_length", layers, MOST, 0);
  const headDim = embed / layerHeads[0]!;
  return {
    architecture: "deci",
    trainedContext: read.integer("context_length", MOST),
    vocabSize: tensors.get("token_embd.weight")!.shape[0]!,
    layers,
    embed,
    feedForward: Math.max(...layerFeedForward),
    heads: Math.max(...layerHeads),
    kvHeads: Math.max(...layerKvHeads),
    headDim,
    normEps: read.positive("attention.layer_norm_rms_epsilon"),
    rope: ropeFromMetadata(read, headDim, "interleaved"),
    layerHeads,
    layerKvHeads,
    layerFeedForward,
  };
}

/** Layers without attention, with a matrix in its place, and with other numbers of heads and sizes. */
const deci: Arch = {
  names: ["deci"],
  config: deciConfig,
  weights(config) {
    const c = config as DeciConfig;
    const of = (layer: number): WeightSpec[] => {
      const [heads, kvHeads] = [c.layerHeads[layer]!, c.layerKvHeads[layer]!];
      const own = { ...c, heads, kvHeads };
      const weights = [
        ...norms("ffn_norm")(c, layer),
        ...gatedWeights(c.embed, c.layerFeedForward[layer]!, layer),
      ];
      if (heads > 0) weights.push(...norms("attn_norm")(c, layer));
      if (heads > 0 && kvHeads > 0) {
        weights.push(...attentionWeights(own, layer, { qkvBias: "none", headNorms: false }));
      } else if (heads > 0) {
        weights.push({ name: `blk.${layer}.attn_output.weight`, shape: [c.embed, c.embed] });
      }
      return weights;
    };
    return [...endWeights(c), ...Array.from({ length: c.layers }, (_, i) => of(i)).flat()];
  },
  forward(g, config, w) {
    const c = config as DeciConfig;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = normOf(g, c, w, layer);
      const [heads, kvHeads] = [c.layerHeads[layer]!, c.layerKvHeads[layer]!];
      if (heads > 0) {
        const a = norm(x, "attn_norm"); // [tokens, embed]
        const mixed =
          kvHeads > 0
            ? attention(g, w, a, { ...c, layer, heads, kvHeads })
            : g.matmul(a, w.get(`blk.${layer}.attn_output.weight`), "attn_output");
        x = g.add(x, mixed, "attn_residual"); // [tokens, embed]
      }
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** By the name of the file. */
export const optionArchs: Readonly<Record<string, Arch>> = {
  gemma2,
  gemma3,
  "gemma3-rope": gemma3,
  smollm3,
  granite_swa: graniteSwa,
  "olmo2-swa": olmo2,
  deci,
  dream,
  "gemma-embedding": gemmaEmbedding,
};
