// The reference, op by op, against numbers worked out by hand or by another formula.

import { describe, expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { ModelError } from "../../src/base/errors.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Rope, Value, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { chooseLargest } from "../../src/graph/reference-index.ts";
import { Random } from "../support/random.ts";

interface Given {
  weights?: Record<string, { shape: number[]; values: number[]; dtype?: string }>;
  tokens: number[];
  positions?: number[];
  /** Rows whose result is wanted; default all. */
  outputs?: number[];
}

/** Builds a graph, runs one batch on it and returns every named value. */
async function run(
  given: Given,
  build: (g: GraphBuilder, w: Record<string, Weight>) => Value,
): Promise<Record<string, number[]>> {
  const weights: Record<string, Weight> = {};
  for (const [name, { shape, dtype }] of Object.entries(given.weights ?? {})) {
    weights[name] = { name, shape, dtype: dtypeByName(dtype ?? "f32")! };
  }
  const g = new GraphBuilder();
  const graph = g.finish({ logits: build(g, weights) });
  const limits = { maxTokens: 8, maxOutputs: 8 };
  const backend = new ReferenceBackend();
  backend.prepare(makePlan(graph, limits), evenCapacity(2, dtypeByName("f32")!));
  for (const weight of graph.weights) {
    const { values } = given.weights![weight.name]!;
    await backend.upload(weight, async (target) => {
      const { dtype } = weight;
      expect(target.length).toBe(bytesFor(dtype, values.length));
      dtype.quantize!(Float32Array.from(values), 0, target, 0, values.length / dtype.blockElems);
    });
  }
  const batch = new Batch(limits);
  const table = { blocks: Int32Array.of(1, 0) };
  given.tokens.forEach((token, row) => {
    const wanted = given.outputs ? given.outputs.includes(row) : true;
    batch.add(token, given.positions?.[row] ?? row, table, wanted);
  });
  const seen: Record<string, number[]> = {};
  backend.run(batch, {
    tap: (value, data) => {
      seen[value.name] = [...data];
    },
  });
  backend.dispose();
  return seen;
}

const table2 = { shape: [3, 2], values: [1, 2, 3, -4, 0, 0.5] };

test("embed takes rows, select keeps the wanted ones", async () => {
  const seen = await run(
    { weights: { table: table2 }, tokens: [2, 0, 1], outputs: [0, 2] },
    (g, w) => g.select(g.embed(w.table!, "x"), "kept"),
  );
  expect(seen.x).toEqual([0, 0.5, 1, 2, 3, -4]);
  expect(seen.kept).toEqual([0, 0.5, 3, -4]);
});

test("rms_norm over rows and over heads", async () => {
  const weights = {
    table: { shape: [1, 4], values: [3, 4, 6, 8] },
    row: { shape: [4], values: [1, 1, 2, 2] },
    head: { shape: [2], values: [1, 10] },
  };
  const seen = await run({ weights, tokens: [0] }, (g, w) => {
    const x = g.embed(w.table!, "x");
    g.rmsNorm(x, w.row!, 0, "row");
    return g.rmsNorm(x, w.head!, 0, "head");
  });
  const rms = Math.sqrt((9 + 16 + 36 + 64) / 4);
  expectClose(seen.row!, [3 / rms, 4 / rms, 12 / rms, 16 / rms]);
  const [a, b] = [Math.sqrt(12.5), Math.sqrt(50)];
  expectClose(seen.head!, [3 / a, 40 / a, 6 / b, 80 / b]);
});

test("layer_norm with and without bias", async () => {
  const weights = {
    table: { shape: [1, 4], values: [1, 2, 3, 6] },
    scale: { shape: [4], values: [1, 2, 1, 1] },
    bias: { shape: [4], values: [0, 0, 5, 0] },
  };
  const seen = await run({ weights, tokens: [0] }, (g, w) => {
    const x = g.embed(w.table!, "x");
    g.layerNorm(x, w.scale!, undefined, 0, "plain");
    return g.layerNorm(x, w.scale!, w.bias!, 0, "biased");
  });
  const deviation = Math.sqrt((4 + 1 + 0 + 9) / 4);
  expectClose(seen.plain!, [-2 / deviation, -2 / deviation, 0, 3 / deviation]);
  expectClose(seen.biased!, [-2 / deviation, -2 / deviation, 5, 3 / deviation]);
});

test("matmul with bias, several tokens", async () => {
  const weights = {
    table: table2,
    w: { shape: [3, 2], values: [1, 0, 0, 1, 2, 3] },
    b: { shape: [3], values: [0.5, 0, -1] },
  };
  const seen = await run({ weights, tokens: [0, 1] }, (g, w) =>
    g.matmul(g.embed(w.table!, "x"), w.w!, "y", w.b!),
  );
  expect(seen.y).toEqual([1.5, 2, 7, 3.5, -4, -7]);
});

test.each(["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])(
  "matmul with %s weights is the matmul of what weights and activations are after rounding",
  async (dtype) => {
    const random = new Random(7);
    const cols = 64;
    const x = Array.from({ length: cols }, () => random.normal());
    const w = Array.from({ length: 3 * cols }, () => random.normal());
    const weights = {
      table: { shape: [1, cols], values: x },
      w: { shape: [3, cols], values: w, dtype },
    };
    const seen = await run({ weights, tokens: [0] }, (g, ws) =>
      g.matmul(g.embed(ws.table!, "x"), ws.w!, "y"),
    );
    const type = dtypeByName(dtype)!;
    const wRounded = roundTrip(w, dtype);
    const xRounded = roundTrip(x, type.activation);
    const expected = [0, 1, 2].map((row) =>
      xRounded.reduce((sum, value, k) => sum + value * wRounded[row * cols + k]!, 0),
    );
    expectClose(seen.y!, expected, 1e-6);
  },
);

describe("rope", () => {
  const rope: Rope = {
    layout: "interleaved",
    dims: 4,
    frequencies: Float32Array.of(1, 0.25),
    magnitude: 1,
  };
  const weights = {
    table: { shape: [1, 6], values: [1, 0, 0, 1, 7, 9] },
    factors: { shape: [2], values: [2, 1] },
  };
  const turn = (a: number, b: number, angle: number) => [
    a * Math.cos(angle) - b * Math.sin(angle),
    a * Math.sin(angle) + b * Math.cos(angle),
  ];

  test("interleaved pairs; values beyond dims pass", async () => {
    const seen = await run({ weights, tokens: [0, 0] }, (g, w) =>
      g.rope(g.embed(w.table!, "x"), 6, rope, "y"),
    );
    expectClose(seen.y!.slice(0, 6), [1, 0, 0, 1, 7, 9]);
    expectClose(seen.y!.slice(6), [...turn(1, 0, 1), ...turn(0, 1, 0.25), 7, 9]);
  });

  test("pairs half a head apart, and factors that divide the frequencies", async () => {
    const seen = await run({ weights, tokens: [0], positions: [2] }, (g, w) =>
      g.rope(g.embed(w.table!, "x"), 6, { ...rope, layout: "half", magnitude: 3 }, "y", w.factors!),
    );
    const [a0, b0] = turn(1, 0, 1); // values 0 and 2
    const [a1, b1] = turn(0, 1, 0.5); // values 1 and 3
    expectClose(seen.y!, [3 * a0!, 3 * a1!, 3 * b0!, 3 * b1!, 7, 9]);
  });
});

test("attention: causal, grouped heads, against the formula", async () => {
  const random = new Random(3);
  const [heads, kvHeads, headDim, vocab] = [4, 2, 2, 5];
  const rows = (cols: number) => Array.from({ length: vocab * cols }, () => random.normal());
  const weights = {
    q: { shape: [vocab, heads * headDim], values: rows(heads * headDim) },
    k: { shape: [vocab, kvHeads * headDim], values: rows(kvHeads * headDim) },
    v: { shape: [vocab, kvHeads * headDim], values: rows(kvHeads * headDim) },
  };
  const tokens = [0, 3, 1, 4];
  const scale = 0.7;
  const seen = await run({ weights, tokens }, (g, w) => {
    const q = g.embed(w.q!, "q");
    const kvCols = kvHeads * headDim;
    const state = g.state({ kind: "kv", layer: 0, kCols: kvCols, vCols: kvCols });
    g.kvWrite(g.embed(w.k!, "k"), g.embed(w.v!, "v"), state);
    return g.attention(q, { state, heads, kvHeads, headDim, scale }, "y");
  });
  const at = (name: "q" | "k" | "v", t: number, head: number) => {
    const cols = weights[name].shape[1]!;
    const start = tokens[t]! * cols + head * headDim;
    return weights[name].values.slice(start, start + headDim).map(Math.fround);
  };
  const expected: number[] = [];
  for (let t = 0; t < tokens.length; t++) {
    for (let head = 0; head < heads; head++) {
      const kvHead = head >> 1;
      const weightsOfPast = Array.from({ length: t + 1 }, (_, p) =>
        Math.exp(scale * dotOf(at("q", t, head), at("k", p, kvHead))),
      );
      const sum = weightsOfPast.reduce((a, b) => a + b);
      for (let i = 0; i < headDim; i++) {
        expected.push(
          weightsOfPast.reduce((acc, e, p) => acc + (e / sum) * at("v", p, kvHead)[i]!, 0),
        );
      }
    }
  }
  expectClose(seen.y!, expected, 1e-6);
});

describe("attention that cannot be is refused where the model is written", () => {
  const f32 = dtypeByName("f32")!;
  const sinks = (size: number) => ({ name: "sinks", shape: [size], dtype: f32 });
  const build = (window: number | undefined, options: object) => () => {
    const g = new GraphBuilder();
    g.layer(3);
    const state = g.state({
      kind: "kv",
      layer: 3,
      kCols: 8,
      vCols: 16,
      ...(window !== undefined && { window }),
    });
    const q = g.embed({ name: "q", shape: [5, 16], dtype: f32 }, "q");
    const shape = { state, heads: 4, kvHeads: 2, headDim: 4, vHeadDim: 8, scale: 0.5 };
    return g.attention(q, { ...shape, ...options }, "attn").cols;
  };
  test("and what can be has the size of its values", () => {
    expect(build(4, { softcap: 5, sinks: sinks(4), causal: false })()).toBe(4 * 8);
  });
  test.each([
    ["a window of 0", 0, {}, "layer 3: got a window of 0 tokens, expected an integer from 1"],
    ["half a token", 1.5, {}, "layer 3: got a window of 1.5 tokens"],
    ["a scale of 0", undefined, { scale: 0 }, "blk.3.attn: got a scale of 0, expected a finite"],
    ["no scale", undefined, { scale: Number.NaN }, "blk.3.attn: got a scale of NaN"],
    ["a negative cap", 4, { softcap: -1 }, "blk.3.attn: got a softcap of -1, expected a finite"],
    ["an endless cap", 4, { softcap: 1e300 }, "blk.3.attn: got a softcap of 1e+300"],
    ["too few sinks", 4, { sinks: sinks(2) }, "sinks has 2 values, expected one for each of 4"],
    ["values of another size", 4, { vHeadDim: 4 }, "do not fit a cache of 8 and 16 values"],
  ])("%s", (_, window, options, message) => {
    expect(build(window, options)).toThrow(ModelError);
    expect(build(window, options)).toThrow(message);
  });
});

test("elementwise ops", async () => {
  const seen = await run({ weights: { table: table2 }, tokens: [0, 1] }, (g, w) => {
    const x = g.embed(w.table!, "x"); // 1 2 | 3 -4
    g.gate(x, x, "silu", "gate");
    g.activate(x, "relu", "relu");
    g.activate(x, "gelu", "gelu");
    g.mul(x, x, "mul");
    g.scale(x, 0.5, "scale");
    g.softcap(x, 2, "softcap");
    g.softmax(x, "softmax");
    return g.add(x, x, "add");
  });
  const x = [1, 2, 3, -4];
  expectClose(
    seen.gate!,
    x.map((v) => (v * v) / (1 + Math.exp(-v))),
  );
  expectClose(seen.relu!, [1, 2, 3, 0]);
  expectClose(seen.gelu!, [0.841192, 1.954598, 2.996363, -0.00007], 1e-5);
  expectClose(seen.mul!, [1, 4, 9, 16]);
  expectClose(seen.scale!, [0.5, 1, 1.5, -2]);
  expectClose(
    seen.softcap!,
    x.map((v) => 2 * Math.tanh(v / 2)),
  );
  const e = Math.E;
  expectClose(seen.softmax!, [1 / (1 + e), e / (1 + e), 1 / (1 + e ** -7), 1 / (1 + e ** 7)]);
  expectClose(seen.add!, [2, 4, 6, -8]);
});

test("a graph that does not fit fails where it is built, with both shapes", async () => {
  await expect(
    run({ weights: { table: table2, w: { shape: [2, 3], values: [] } }, tokens: [0] }, (g, w) => {
      g.layer(3);
      return g.matmul(g.embed(w.table!, "x"), w.w!, "attn_q");
    }),
  ).rejects.toThrow('blk.3.attn_q: operand "blk.3.x" is [tokens, 2], which does not fit w [2, 3]');
});

function expectClose(got: readonly number[], expected: readonly number[], within = 1e-6): void {
  expect(got.length).toBe(expected.length);
  expected.forEach((value, i) => {
    expect(Math.abs(got[i]! - value), `[${i}] ${got[i]} against ${value}`).toBeLessThanOrEqual(
      within * Math.max(1, Math.abs(value)),
    );
  });
}

function roundTrip(values: readonly number[], name: string): number[] {
  const dtype = dtypeByName(name)!;
  const blocks = values.length / dtype.blockElems;
  const bytes = new Uint8Array(blocks * dtype.blockBytes);
  const out = new Float32Array(values.length);
  dtype.quantize!(Float32Array.from(values), 0, bytes, 0, blocks);
  dtype.dequantize(bytes, 0, out, 0, blocks);
  return [...out];
}

function dotOf(a: readonly number[], b: readonly number[]): number {
  return a.reduce((sum, value, i) => sum + value * b[i]!, 0);
}

/** What std::partial_sort of libstdc++ leaves among the first, as a program printed it: of the zeros, not the first ones. */
test.each([
  [1, [12]],
  [3, [4, 9, 12]],
  [6, [1, 4, 7, 9, 12, 15]],
  [8, [0, 1, 4, 5, 7, 9, 12, 15]],
  [11, [0, 1, 4, 5, 7, 8, 9, 10, 11, 12, 15]],
])("top_k: the %i largest, where some are equal", (most, expected) => {
  const x = Float32Array.of(7, 0, 1, 0, -1, 2, 0, 0, 0.5, 0, 1, 0, 0, 3, -2, 0, 1);
  const chosen = new Float32Array(most + 1).fill(-7);
  chooseLargest(x, 1, 16, chosen, 1, most);
  expect([...chosen.subarray(1)].sort((a, b) => a - b)).toEqual(expected);
  expect(chosen[0]).toBe(-7);
});
