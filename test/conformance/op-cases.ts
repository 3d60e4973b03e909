// The op cases of the conformance table (table.ts): for every op of the graph, small graphs that use it. An op without an
// entry is a type error. A case builds nodes on inputs of its own; whatever nodes it makes are compared, value by value.

import type { DType } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { GraphBuilder } from "../../src/graph/builder.ts";
import type { OpKind, Rope, RopeLayout, Routing, Value, Weight } from "../../src/graph/graph.ts";
import { matmulBenchShape } from "../../src/tools/bench/api.ts";

/** Token ids of the cases: rows of every input table. */
export const caseVocab = 37;

/** Sizes of an input, unless a case has its own: whole vectors, none, and several workgroups of a GPU that are not full. */
export const opColumns: readonly number[] = [64, 45, 300];

/** Columns at which the same cases are benchmarked (bench/ops.ts). */
export const benchColumns: number = matmulBenchShape.k;

/** What a case builds with: names are the case's own, so that several fit in one graph. */
export interface CaseGraph {
  readonly g: GraphBuilder;
  /** Columns asked for. */
  readonly cols: number;
  /** The name of a node: "attention, window of 5 @64: out". */
  name(node: string): string;
  /** A weight of random values: a vector around 1, or a matrix with a few large values. */
  weight(name: string, shape: readonly number[], dtype?: DType): Weight;
  /** Rows of a table of random values, chosen by token: [tokens, cols]. */
  input(name: string, cols: number): Value;
}

export interface OpCase {
  readonly name: string;
  build(graph: CaseGraph): void;
  /** Default: opColumns. */
  readonly columns?: readonly number[];
}

const f32 = dtypeByName("f32")!;

/** Heads of 16 where they fit, else of an odd size; as large as a real model's for a benchmark. */
function headsOf(cols: number): { heads: number; headDim: number } {
  if (cols >= 1024) return { heads: cols / 128, headDim: 128 };
  return cols % 4 === 0 ? { heads: 4, headDim: cols / 4 } : { heads: 3, headDim: cols / 3 };
}

/** Heads are rotated in pairs. */
const ropeColumns = [64, 40, 296];

/** An op with one input of the case's columns. */
const unary = (
  name: string,
  apply: (graph: CaseGraph, x: Value, out: string) => void,
  columns: readonly number[] = opColumns,
): OpCase => ({
  name,
  columns,
  build: (graph) => apply(graph, graph.input("x", graph.cols), graph.name("out")),
});

/** An op with two inputs of the case's columns. */
const binary = (
  name: string,
  apply: (graph: CaseGraph, a: Value, b: Value, out: string) => void,
): OpCase => ({
  name,
  build: (graph) => {
    const [a, b] = [graph.input("a", graph.cols), graph.input("b", graph.cols)];
    apply(graph, a, b, graph.name("out"));
  },
});

function ropeOf(layout: RopeLayout, dims: number, magnitude = 1): Rope {
  const frequencies = Float32Array.from({ length: dims / 2 }, (_, i) => 10000 ** ((-2 * i) / dims));
  return { layout, dims, frequencies, magnitude };
}

/** Heads rotated in all or in `share` of their values. */
const rope = (name: string, layout: RopeLayout, share = 1, magnitude = 1): OpCase => {
  const build = ({ g, cols }: CaseGraph, x: Value, out: string) => {
    const { headDim } = headsOf(cols);
    const dims = 2 * Math.floor((headDim * share) / 2);
    g.rope(x, headDim, ropeOf(layout, dims, magnitude), out);
  };
  return unary(name, build, ropeColumns);
};

/** Attention over what earlier batches and tokens of the batch have written: `sharing` heads for each KV head. */
const attention = (
  name: string,
  sharing: number,
  {
    window,
    chunked = false,
    softcap,
    causal = true,
    hasSinks = false,
    hasSlopes = false,
    hasBias = false,
    isWider = false,
  }: {
    readonly window?: number;
    readonly chunked?: boolean;
    readonly softcap?: number;
    readonly causal?: boolean;
    readonly hasSinks?: boolean;
    readonly hasSlopes?: boolean;
    readonly hasBias?: boolean;
    /** Heads of values are twice as wide as those of keys. */
    readonly isWider?: boolean;
  } = {},
): OpCase => ({
  name,
  columns: [64],
  build: ({ g, cols, name: named, input, weight }) => {
    const { heads, headDim } = headsOf(cols);
    const vHeadDim = isWider ? 2 * headDim : headDim;
    const kvHeads = heads / sharing;
    const [kCols, vCols] = [kvHeads * headDim, kvHeads * vHeadDim];
    const state = g.state({
      kind: "kv",
      layer: 0,
      kCols,
      vCols,
      ...(window && { window, chunked }),
    });
    g.kvWrite(input("k", kCols), input("v", vCols), state);
    const scale = 0.2 / Math.sqrt(headDim); // inputs have a few large values
    const sinks = hasSinks ? weight("sinks", [heads]) : undefined;
    const shape = { state, heads, kvHeads, headDim, vHeadDim, scale };
    const alibi = hasSlopes ? weight("slopes", [heads]) : undefined;
    // Distances from -3 to 3, in any order.
    const buckets = hasBias
      ? g.constant("buckets", Float32Array.of(5, 2, 1, 0, 3, 4, 2))
      : undefined;
    const bias = hasBias ? weight("bias", [6 * heads]) : undefined;
    const options = { ...shape, softcap, causal, sinks, alibi, bias, buckets };
    g.attention(input("q", cols), options, named("out"));
  },
});

/** What came before is in recurrent state: more taps than a batch has tokens reach several batches back. */
const shortConv = (name: string, taps: number, hasBias: boolean): OpCase =>
  unary(name, ({ g, cols, weight }, x, out) => {
    const state = g.state({ kind: "recurrent", layer: 0, floats: (taps - 1) * cols });
    const bias = hasBias ? weight("bias", [cols]) : undefined;
    g.shortConv(x, weight("taps", [cols, taps]), state, out, bias);
  });

/** Steps by which a state decays, with weights around 1. */
function scanSteps({ g, name, input }: CaseGraph, cols: number): Value {
  const steps = g.activate(input("dt", cols), "softplus", name("dt activated"));
  return g.scale(steps, -0.2, name("dt scaled"));
}

const ssmScan = (name: string, groups: number): OpCase => ({
  name,
  columns: [64, 300],
  build: (graph) => {
    const { g, cols, name: named, weight, input } = graph;
    const [states, { heads }] = [12, headsOf(cols)];
    const state = g.state({ kind: "recurrent", layer: 0, floats: cols * states });
    const skip = weight("skip", [heads]);
    const [dt, a] = [scanSteps(graph, heads), weight("a", [heads])];
    const [x, b, c] = [input("x", cols), input("b", groups * states), input("c", groups * states)];
    g.ssmScan({ x, dt, b, c, a, skip, states, state }, named("out"));
  },
});

const channelScan = (name: string, states: number, columns: readonly number[]): OpCase => ({
  name,
  columns,
  build: (graph) => {
    const { g, cols, name: named, weight, input } = graph;
    const state = g.state({ kind: "recurrent", layer: 0, floats: cols * states });
    const skip = weight("skip", [cols]);
    const dt = g.scale(scanSteps(graph, cols), 0.02, named("small steps")); // a has both signs
    const a = weight("decays", [cols, states]);
    const [x, b, c] = [input("x", cols), input("b", states), input("c", states)];
    g.ssmScan({ x, dt, b, c, a, skip, states, state }, named("out"));
  },
});

/** Keys have length 1, or a state grows without limit. */
const deltaNet = (name: string, perKey: boolean, tiled: boolean): OpCase => ({
  name,
  columns: [64, 300],
  build: (graph) => {
    const { g, cols, name: named, weight, input } = graph;
    const [keyHeads, keyDim] = [2, 20];
    const { heads, headDim } = headsOf(cols);
    const state = g.state({ kind: "recurrent", layer: 0, floats: heads * keyDim * headDim });
    const unit = (x: string) => {
      const one = input(x, keyHeads * keyDim);
      const normed = g.rmsNorm(one, weight(`${x} norm`, [keyDim]), 1e-6, named(`${x} normed`));
      return g.scale(normed, keyDim ** -0.5, named(`${x} scaled`));
    };
    const [q, k, v] = [unit("q"), unit("k"), input("v", cols)];
    const beta = g.activate(input("beta", heads), "sigmoid", named("beta activated"));
    const [dt, a] = [scanSteps(graph, perKey ? heads * keyDim : heads), weight("a", [heads])];
    g.deltaNet({ q, k, v, dt, beta, a, keyHeads, tiled, state }, named("out"));
  },
});

const wkv = (name: string, isSeven: boolean): OpCase => ({
  name,
  columns: [64, 300],
  build: ({ g, cols, name: named, weight, input }) => {
    const { heads, headDim } = headsOf(cols);
    const state = g.state({ kind: "recurrent", layer: 0, floats: heads * headDim * headDim });
    const share = (x: string) => g.activate(input(x, cols), "sigmoid", named(`${x} activated`));
    const small = (x: string) => g.scale(input(x, cols), 0.02, named(`${x} scaled`));
    const [r, w, k, v] = [input("r", cols), share("w"), input("k", cols), input("v", cols)];
    const [a, b] = isSeven ? [small("a"), small("b")] : [undefined, undefined];
    const bonus = isSeven ? undefined : weight("bonus", [cols]);
    g.wkv({ r, w, k, v, a, b, bonus, heads, state }, named("out"));
  },
});

const matmul = (name: string, hasBias: boolean): OpCase =>
  unary(name, ({ g, cols, weight }, x, out) => {
    const rows = cols === benchColumns ? cols : 35; // fills no tile
    const bias = hasBias ? weight("bias", [rows]) : undefined;
    g.matmul(x, weight("matrix", [rows, cols], f32), out, bias);
  });

const softmax: Routing = { used: 2, gating: "softmax", normalise: false, scale: 1 };

const route = (
  name: string,
  routing: Partial<Routing>,
  hasBias = false,
  hasScales = false,
  columns: readonly number[] = [8, 70],
): OpCase => ({
  name,
  columns,
  build: ({ g, cols, name: named, weight, input }) => {
    const logits = g.scale(input("logits", cols), 0.2, named("logits scaled")); // inputs have a few large values
    const bias = hasBias ? weight("bias", [cols]) : undefined;
    const scales = hasScales ? weight("scales", [cols]) : undefined;
    g.route(logits, { ...softmax, ...routing }, named("out"), bias, scales);
  },
});

/** Logits of which many are the same, or all: of equal experts the first is chosen. */
const tiedRoute = (name: string, routing: Partial<Routing>, most: number): OpCase => ({
  name: `${name} of equal scores`,
  columns: [8, 70, 300],
  build: ({ g, cols, name: named, input }) => {
    const logits = g.clamp(input("logits", cols), most, named("logits clamped"));
    g.route(logits, { ...softmax, ...routing }, named("out"));
  },
});

/** Logits whose powers of e are infinite. */
const largeRoute = (name: string, routing: Partial<Routing>): OpCase => ({
  name: `${name} of large logits`,
  columns: [8, 70],
  build: ({ g, cols, name: named, input }) => {
    const constant = g.constant(named("200"), new Float32Array(cols).fill(200));
    const logits = g.addWeight(input("logits", cols), constant, named("logits moved"));
    g.route(logits, { ...softmax, ...routing }, named("out"));
  },
});

/** Logits of which some are not numbers: the others are chosen first, and no expert twice. */
const damagedRoute = (name: string, bad: readonly number[], routing: Partial<Routing>): OpCase => ({
  name: `${name} of NaN`,
  columns: [8],
  build: ({ g, cols, name: named, input }) => {
    const added = Float32Array.from({ length: cols }, (_, i) => bad[i] ?? 0);
    const constant = g.constant(named("not numbers"), added);
    const logits = g.addWeight(input("logits", cols), constant, named("logits damaged"));
    g.route(logits, { ...softmax, ...routing }, named("out"));
  },
});

/** Routes of an input: [tokens, 2 * used], two of five experts for each token. */
function routesOf({ g, name, input }: CaseGraph): Value {
  return g.route(input("logits", 5), softmax, name("routes"));
}

/** `slots`: rows of x that a token has. */
const matmulId = (name: string, slots: 1 | 2, hasBias: boolean): OpCase => ({
  name,
  build: (graph) => {
    const { g, cols, name: named, weight, input } = graph;
    const rows = cols === benchColumns ? cols / 4 : 35; // fills no tile
    const bias = hasBias ? weight("bias", [5, rows]) : undefined;
    const x = input("x", slots * cols);
    g.matmulId(x, routesOf(graph), weight("experts", [5, rows, cols], f32), named("out"), bias);
  },
});

export const opCases: { readonly [K in OpKind]: readonly OpCase[] } = {
  // Every type's tables are among the dtype cases.
  embed: [
    unary("rows", () => {}),
    unary("by position", ({ g, cols, weight }, _, out) => {
      g.embedPositions(weight("positions", [64, cols], f32), out);
    }),
    unary("substitutes", ({ g, cols, weight }, _, out) => {
      g.embed(weight("others", [caseVocab, cols], f32), out, [3, 5, 14, 0, 25, 36]);
    }),
  ],
  rms_norm: [
    unary("of a row", ({ g, cols, weight }, x, out) => {
      g.rmsNorm(x, weight("norm", [cols]), 1e-5, out);
    }),
    unary("of each head", ({ g, cols, weight }, x, out) => {
      g.rmsNorm(x, weight("norm", [headsOf(cols).headDim]), 1e-6, out);
    }),
  ],
  layer_norm: [
    unary("without bias", ({ g, cols, weight }, x, out) => {
      g.layerNorm(x, weight("norm", [cols]), undefined, 1e-5, out);
    }),
    unary("with bias", ({ g, cols, weight }, x, out) => {
      g.layerNorm(x, weight("norm", [cols]), weight("bias", [cols]), 1e-5, out);
    }),
    unary("of each head", ({ g, cols, weight }, x, out) => {
      g.layerNorm(x, weight("norm", [headsOf(cols).headDim]), undefined, 1e-5, out);
    }),
  ],
  mul_weight: [
    unary("as long as a row", ({ g, cols, weight }, x, out) => {
      g.mulWeight(x, weight("factors", [cols]), out);
    }),
    unary("as long as a head", ({ g, cols, weight }, x, out) => {
      g.mulWeight(x, weight("factors", [headsOf(cols).headDim]), out);
    }),
    unary("one value", ({ g, weight }, x, out) => void g.mulWeight(x, weight("factor", [1]), out)),
  ],
  clamp: [unary("to 1.5", ({ g }, x, out) => void g.clamp(x, 1.5, out))],
  xielu: [
    unary("plain", ({ g, name }, x, out) => {
      const small = g.scale(x, 0.2, name("small")); // inputs have a few large values
      g.xielu(small, { alphaN: 1.3, alphaP: 0.8, beta: 0.5, eps: -1e-6 }, out);
    }),
  ],
  temperature: [
    unary("by position", ({ g }, x, out) => {
      g.temperature(x, { scale: 0.3, span: 4, offset: 0 }, out);
    }),
  ],
  // Every type's matrices are among the dtype cases.
  matmul: [matmul("plain", false), matmul("with bias", true)],
  route: [
    route("softmax", {}),
    route("softmax, normalised and scaled", { used: 3, normalise: true, scale: 2.5 }),
    route("softmax of the chosen", { gating: "softmax_chosen" }),
    route("sigmoid", { gating: "sigmoid", used: 8 }),
    route("sigmoid, with a bias for choosing", { gating: "sigmoid", normalise: true }, true),
    route("logits", { gating: "none" }),
    ...[8, 70].map((cols) => ({
      ...route(`all ${cols}`, { gating: "all", used: cols }),
      columns: [cols],
    })),
    route("neighbours that share a matrix", { normalise: true, sharing: 2 }),
    route("with factors of experts", { normalise: true }, false, true),
    route("one of two groups", { gating: "sigmoid", groups: { count: 2, used: 1 } }, true),
    // Weights are as large as ids: a row's largest value is the measure of all.
    route("softmax of many", { used: 8, scale: 1000 }, false, false, [128, 200, 1000]),
    route("softmax with a bias", { used: 6, normalise: true, scale: 100 }, true, true, [160]),
    route(
      "softmax of the chosen of many",
      { gating: "softmax_chosen", scale: 1000 },
      false,
      false,
      [32, 1024],
    ),
    route("sigmoid of one", { gating: "sigmoid", used: 1 }, true, true, [1]),
    route("softmax of one", { used: 1 }, false, false, [1]),
    ...[70, 260].map((cols) =>
      route(`all ${cols} by logits`, { gating: "none", used: cols }, false, false, [cols]),
    ),
    route(
      "four of eight groups",
      {
        gating: "sigmoid",
        used: 8,
        normalise: true,
        scale: 250,
        groups: { count: 8, used: 4 },
      },
      true,
      false,
      [64, 256, 1000],
    ),
    largeRoute("softmax", {}),
    largeRoute("softmax of the chosen", { gating: "softmax_chosen" }),
    tiedRoute("softmax", { used: 8 }, 0.5),
    tiedRoute("sigmoid", { gating: "sigmoid", used: 7 }, 1e-30),
    tiedRoute("groups", { gating: "none", used: 4, groups: { count: 2, used: 1 } }, 0.5),
    damagedRoute("softmax", [Number.NaN], {}),
    damagedRoute("softmax and infinity", [0, Number.POSITIVE_INFINITY, Number.NaN], {}),
    damagedRoute("logits", [Number.NaN, 0, Number.NEGATIVE_INFINITY], { gating: "none", used: 8 }),
    damagedRoute("softmax of the chosen", [Number.NaN, Number.NaN], {
      gating: "softmax_chosen",
      used: 7,
    }),
    damagedRoute("sigmoid, normalised", [0, Number.NaN], {
      gating: "sigmoid",
      normalise: true,
      used: 8,
    }),
    damagedRoute("groups", [0, Number.NaN, Number.NaN, Number.NaN], {
      gating: "sigmoid",
      used: 3,
      groups: { count: 4, used: 2 },
    }),
  ],
  matmul_id: [
    matmulId("a row for all slots", 1, false),
    matmulId("a row for each slot, with bias", 2, true),
  ],
  combine: [
    unary("two slots", (graph, _, out) => {
      const x = graph.input("slots", 2 * graph.cols);
      graph.g.combine(x, routesOf(graph), out);
    }),
  ],
  rope: [
    rope("interleaved", "interleaved"),
    rope("half", "half"),
    rope("of half a head", "half", 0.5),
    rope("with magnitude", "interleaved", 1, 1.25),
    unary(
      "with factors",
      ({ g, cols, weight }, x, out) => {
        const { headDim } = headsOf(cols);
        g.rope(x, headDim, ropeOf("half", headDim), out, weight("factors", [headDim / 2]));
      },
      ropeColumns,
    ),
  ],
  // It has no result: what it stores is seen by attention.
  kv_write: [attention("one KV head for each head", 1)],
  // Against doubles, with every option: attention-cases.ts.
  attention: [
    attention("a KV head for two heads", 2),
    attention("a KV head for all heads", 4),
    attention("a window of 5", 2, { window: 5 }),
    attention("chunks of 5", 2, { window: 5, chunked: true }),
    attention("a softcap", 2, { softcap: 4 }),
    attention("sinks", 4, { hasSinks: true }),
    attention("slopes", 2, { hasSlopes: true }),
    attention("slopes, not causal", 1, { hasSlopes: true, causal: false }),
    attention("not causal", 1, { causal: false }),
    attention("a bias by distance", 2, { hasBias: true, causal: false }),
    attention("wider values", 2, { isWider: true }),
    attention("all options", 1, {
      window: 6,
      softcap: 4,
      hasSinks: true,
      hasSlopes: true,
      isWider: true,
    }),
  ],
  index_scores: [
    {
      name: "two heads",
      columns: [64, 24],
      build: ({ g, cols, name, input }) => {
        const state = g.state({ kind: "kv", layer: 0, kCols: cols / 2, vCols: cols / 2 });
        g.kvWrite(input("k", cols / 2), input("v", cols / 2), state);
        const operands = { q: input("q", 2 * cols), weights: input("weights", 2), state, heads: 2 };
        g.indexScores(operands, 64, name("out"));
      },
    },
  ],
  top_k: [
    ...[1, 4, 5, 7].map((most) => ({
      name: `${most} of them`,
      columns: [64],
      build: ({ g, cols, name, input }: CaseGraph) =>
        void g.topK(input("x", cols), most, name("out")),
    })),
    // Of equal values, the same must be chosen everywhere.
    unary(
      "of zeros and others",
      ({ g }, x, out) => {
        void g.topK(g.activate(x, "relu", `${out}: x`), 6, out);
      },
      [64],
    ),
  ],
  sparse_attention: [
    {
      name: "two heads for a KV head",
      columns: [64],
      build: ({ g, cols, name, input }) => {
        const [heads, headDim, vHeadDim] = [4, cols / 4, cols / 8];
        const sizes = { kCols: 2 * headDim, vCols: 2 * vHeadDim };
        const state = g.state({ kind: "kv", layer: 0, ...sizes });
        g.kvWrite(input("k", sizes.kCols), input("v", sizes.vCols), state);
        const chosen = g.topK(input("x", 64), 5, name("chosen"));
        const scale = 0.2 / Math.sqrt(headDim); // inputs have a few large values
        const options = { state, heads, kvHeads: 2, headDim, vHeadDim, scale };
        g.sparseAttention(input("q", cols), chosen, options, name("out"));
      },
    },
  ],
  short_conv: [
    shortConv("of 2 taps", 2, false),
    shortConv("of 3 taps, with bias", 3, true),
    shortConv("of 6 taps", 6, false),
  ],
  ssm_scan: [
    ssmScan("of heads", 2),
    ssmScan("of one group", 1),
    channelScan("of channels", 8, [64, 45]),
    channelScan("of channels with 6 states", 6, [45]),
  ],
  delta_net: [
    deltaNet("of neighbours", false, false),
    deltaNet("of tiled heads", false, true),
    deltaNet("with decays of keys", true, false),
  ],
  wkv: [wkv("with bonus", false), wkv("with removal", true)],
  concat: [
    binary("of two rows", ({ g }, a, b, out) => void g.concat(a, b, out)),
    unary("of three groups", ({ g, input }, _, out) => {
      g.concat(input("first", 24), input("second", 15), out, 3);
    }),
  ],
  slice: [
    unary("of a row", ({ g, cols }, x, out) => void g.slice(x, 4, cols - 12, out)),
    unary("of three groups", ({ g, input }, _, out) => {
      g.slice(input("groups", 60), 3, 8, out, 3);
    }),
  ],
  gate: [
    ...(
      ["silu", "gelu", "relu", "relu_squared", "sigmoid", "softplus", "step", "swiglu_oai"] as const
    ).map((activation) =>
      binary(activation, ({ g }, a, b, out) => void g.gate(a, b, activation, out)),
    ),
    unary("sigmoid, one for a row", ({ g, input }, x, out) => {
      g.gate(input("gate", 1), x, "sigmoid", out);
    }),
  ],
  activate: [
    ...(["silu", "gelu", "relu", "relu_squared", "sigmoid", "softplus", "step"] as const).map(
      (activation) => unary(activation, ({ g }, x, out) => void g.activate(x, activation, out)),
    ),
    unary("exp", ({ g, name }, x, out) => {
      g.activate(g.scale(x, 0.1, name("scaled")), "exp", out); // inputs have a few large values
    }),
  ],
  add: [binary("two values", ({ g }, a, b, out) => void g.add(a, b, out))],
  mul: [
    binary("two values", ({ g }, a, b, out) => void g.mul(a, b, out)),
    unary("one factor for a row", ({ g, input }, x, out) => {
      g.mul(x, input("factor", 1), out);
    }),
  ],
  add_weight: [
    unary("plain", ({ g, cols, weight }, x, out) => {
      g.addWeight(x, weight("bias", [cols]), out);
    }),
  ],
  scale: [unary("by 0.37", ({ g }, x, out) => void g.scale(x, 0.37, out))],
  softcap: [
    unary("of 30", ({ g }, x, out) => void g.softcap(x, 30, out)),
    unary("of outputs", ({ g, name }, x, out) => {
      g.softcap(g.select(x, name("selected")), 5, out);
    }),
  ],
  softmax: [unary("of a row", ({ g }, x, out) => void g.softmax(x, out))],
  gather: [
    unary("of tokens", ({ g }, x, out) => void g.gather(x, 0, out)),
    unary("of outputs", ({ g, name }, x, out) => {
      g.gather(g.select(x, name("selected")), 1, out);
    }),
  ],
  adapt: [
    unary("of tokens", ({ g, name }, x, out) => {
      g.adapt(g.scale(x, 0.5, name("base")), g.gather(x, 0, name("rows")), 1.5, out);
    }),
    unary("of outputs, by two adapters", ({ g, name }, x, out) => {
      const selected = g.select(x, name("selected"));
      const base = g.scale(selected, 0.5, name("base"));
      const rows = [0, 1].map((i) => g.gather(selected, i, name(`rows of ${i}`)));
      const once = g.adapt(base, rows[0]!, 0.25, name("once"));
      g.adapt(once, rows[1]!, -2, out);
      g.add(base, base, name("base is read again"));
    }),
  ],
  select: [unary("rows that are read", ({ g }, x, out) => void g.select(x, out))],
};
