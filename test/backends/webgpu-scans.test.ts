// Scans and short convolutions on the GPU: what they compute does not depend on how a text is divided into batches, bit for bit, and is the reference's, with
// nodes that are computed as they are read and stored and without. Heads are as large as those of models, so that lanes share columns; where they exchange
// sums through subgroups, shuffles are emulated, because software drivers have subgroups of 4 or 8 lanes.

import { expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { fuse } from "../../src/backends/webgpu/fuse.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch, NO_SLOT } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Value, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { subgroupGpu } from "../support/gpu-facts.ts";
import { Random } from "../support/random.ts";

const f32 = dtypeByName("f32")!;
const vocab = 50;
/** More than a chunk of tokens. */
const LENGTH = 21;

interface Parts {
  readonly g: GraphBuilder;
  /** A value of its own for each token. */
  input(name: string, cols: number): Value;
  vector(name: string, size: number): Weight;
  matrix(name: string, rows: number, cols: number): Weight;
  state(floats: number): number;
}

type WkvOperands = Parameters<GraphBuilder["wkv"]>[0];

/** `own`: the operands in which versions of RWKV differ. */
function wkvOf(
  { g, input, state }: Parts,
  own: (small: (name: string) => Value, cols: number) => Pick<WkvOperands, "a" | "b" | "bonus">,
): Value {
  const [heads, size] = [2, 64];
  const cols = heads * size;
  const small = (name: string) => g.scale(input(name, cols), 0.05, `${name}_scaled`);
  const w = g.activate(input("w", cols), "sigmoid", "w_sigmoid");
  const given = { r: small("r"), w, k: small("k"), v: input("v", cols), ...own(small, cols) };
  return g.wkv({ ...given, heads, state: state(cols * size) }, "wkv");
}

/** A layer as models have it; returns the residual's next value. */
const layers: Readonly<Record<string, (parts: Parts) => Value>> = {
  // Mamba 2: a convolution, slices of its result, steps, and a gate.
  ssm_scan: ({ g, input, vector, matrix, state }) => {
    const [heads, states, columns] = [2, 128, 24];
    const [inner, keys] = [heads * columns, states];
    const z = input("z", inner);
    const all = inner + 2 * keys;
    const mixed = g.shortConv(
      input("xbc", all),
      matrix("taps", all, 4),
      state(3 * all),
      "conv",
      vector("conv_bias", all),
    );
    const xbc = g.activate(mixed, "silu", "conv_silu");
    const dt = g.activate(input("dt", heads), "softplus", "dt_soft");
    const x = g.slice(xbc, 0, inner, "x");
    const b = g.slice(xbc, inner, keys, "b");
    const c = g.slice(xbc, inner + keys, keys, "c");
    const weights = { a: vector("negative", heads), skip: vector("skip", heads) };
    const y = g.ssmScan({ x, dt, b, c, ...weights, states, state: state(inner * states) }, "scan");
    return g.gate(z, y, "silu", "gated");
  },
  // Mamba 1: a decay for each column and state.
  channels: ({ g, input, vector, matrix, state }) => {
    const [inner, states] = [40, 16];
    const dt = g.activate(input("dt", inner), "softplus", "dt_soft");
    const [x, b, c] = [input("x", inner), input("b", states), input("c", states)];
    const weights = { a: matrix("negative", inner, states), skip: vector("skip", inner) };
    return g.ssmScan({ x, dt, b, c, ...weights, states, state: state(inner * states) }, "scan");
  },
  // Qwen 3.5: norms of keys and queries, and of the result, which is then gated.
  delta_net: ({ g, input, vector, matrix, state }) => {
    const [heads, keyHeads, size] = [4, 2, 64];
    const [keys, inner] = [keyHeads * size, heads * size];
    const all = 2 * keys + inner;
    const z = input("z", inner);
    const conv = g.shortConv(input("qkv", all), matrix("taps", all, 4), state(3 * all), "conv");
    const mixed = g.activate(conv, "silu", "conv_silu");
    const unit = (name: string, from: number) =>
      g.rmsNorm(g.slice(mixed, from, keys, name), vector("unit", size), 1e-6, `${name}_unit`);
    const q = g.scale(unit("q", 0), 0.125, "q_scaled");
    const k = g.scale(unit("k", keys), 0.125, "k_scaled");
    const v = g.slice(mixed, 2 * keys, inner, "v");
    const beta = g.activate(input("beta", heads), "sigmoid", "beta_sigmoid");
    const dt = g.activate(input("dt", heads), "softplus", "dt_soft");
    const own = {
      a: vector("negative", heads),
      keyHeads,
      tiled: true,
      state: state(heads * size * size),
    };
    const y = g.deltaNet({ q, k, v, dt, beta, ...own }, "delta");
    const normed = g.rmsNorm(y, vector("norm", size), 1e-6, "normed");
    return g.gate(z, normed, "silu", "gated");
  },
  // RWKV 7 and 6.
  wkv: (parts) => wkvOf(parts, (small) => ({ a: small("a"), b: small("b"), bonus: undefined })),
  bonus: (parts) =>
    wkvOf(parts, (_, cols) => ({ a: undefined, b: undefined, bonus: parts.vector("bonus", cols) })),
  // LFM2: a convolution between two products.
  short_conv: ({ g, input, matrix, state }) => {
    const cols = 70;
    const c = input("c", cols);
    const taps = matrix("taps", cols, 3);
    const conv = g.shortConv(
      g.mul(input("b", cols), input("x", cols), "bx"),
      taps,
      state(2 * cols),
      "conv",
    );
    return g.mul(c, conv, "gated");
  },
};

function graphOf(name: string): Graph {
  const g = new GraphBuilder();
  const matrix = (own: string, rows: number, cols: number): Weight => ({
    name: own,
    shape: [rows, cols],
    dtype: f32,
  });
  const vector = (own: string, size: number): Weight => ({ name: own, shape: [size], dtype: f32 });
  const out = layers[name]!({
    g,
    matrix,
    vector,
    input: (own, cols) => g.embed(matrix(`${own}_table`, vocab, cols), own),
    state: (floats) => g.state({ kind: "recurrent", layer: 0, floats }),
  });
  const selected = g.select(out, "select");
  // A matmul of many tokens sums in another order: what is compared comes before it.
  return g.finish({
    hidden: selected,
    logits: g.logits(selected, matrix("output", vocab, out.cols), "logits"),
  });
}

function bytesOf({ name, shape }: Weight): Uint8Array {
  const random = new Random(name.length * 31 + shape[0]!);
  const count = shape.reduce((a, b) => a * b);
  const values = Float32Array.from({ length: count }, () => random.normal());
  if (name === "negative") for (let i = 0; i < count; i++) values[i] = -Math.abs(values[i]!) - 0.01;
  return new Uint8Array(values.buffer);
}

/** What the layer gives for every token of two sequences, in batches of so many tokens of each. */
async function valuesOf(
  backend: Backend,
  graph: Graph,
  batches: readonly (readonly [number, number])[],
) {
  const limits = { maxTokens: 2 * LENGTH, maxOutputs: 2 * LENGTH };
  await backend.prepare(makePlan(graph, limits), { ...evenCapacity(4, f32), slots: 4 });
  for (const weight of graph.weights) {
    const bytes = bytesOf(weight);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  const batch = new Batch(limits);
  const sequences = [0, 1].map((i) => ({
    blocks: new Int32Array(1),
    slots: { from: NO_SLOT, to: 2 * i },
    length: 0,
    rows: [] as Float32Array[],
  }));
  for (const counts of batches) {
    batch.clear();
    counts.forEach((count, i) => {
      const sequence = sequences[i]!;
      for (let at = 0; at < count; at++) {
        const position = sequence.length++;
        batch.add((position * 11 + i * 7 + 3) % vocab, position, sequence, true);
      }
    });
    await backend.run(batch);
    let row = 0;
    for (const [i, count] of counts.entries()) {
      const { slots, rows } = sequences[i]!;
      for (let at = 0; at < count; at++) {
        const values = new Float32Array(graph.outputs.hidden!.cols);
        await backend.read("hidden", row++, values);
        rows.push(values);
      }
      if (count > 0) Object.assign(slots, { from: slots.to, to: slots.to ^ 1 });
    }
  }
  backend.dispose();
  return sequences.map(({ rows }) => rows);
}

const whole = [[LENGTH, LENGTH]] as const;
const single = Array.from({ length: LENGTH }, () => [1, 1] as const);
const uneven = [
  [2, 0],
  [16, 17],
  [1, 3],
  [2, 1],
] as const;

function distance(got: readonly Float32Array[][], want: readonly Float32Array[][]): number {
  let [most, size] = [0, 0];
  want.flat().forEach((row, i) => {
    row.forEach((value, column) => {
      most = Math.max(most, Math.abs(value - got.flat()[i]![column]!));
      size = Math.max(size, Math.abs(value));
    });
  });
  return most / size;
}

/** WGSL of shuffles through workgroup memory, in place of the driver's. */
function emulated(code: string): string {
  if (!code.includes("subgroupShuffleXor")) return code;
  return `${code
    .replace("enable subgroups;", "")
    .replace(/(fn main\([^{]*\{)/, "$1 ownLane = lane;")
    .replaceAll(/subgroupShuffleXor\((\w+), (\w+)\)/g, "shuffled($1, $2)")}
var<workgroup> sent: array<f32, 256>;
var<private> ownLane: u32;
fn shuffled(value: f32, mask: u32) -> f32 {
  workgroupBarrier();
  sent[ownLane] = value;
  workgroupBarrier();
  return sent[ownLane ^ mask];
}`;
}

describeGpu("scans on the GPU", () => {
  test.each(Object.keys(layers))(
    "%s: the reference's values, and the same bits in batches of any size",
    async (name) => {
      const graph = graphOf(name);
      const gpu = async () => new WebGpuBackend(await openGpu());
      const all = await valuesOf(await gpu(), graph, whole);
      const want = await valuesOf(new ReferenceBackend(), graph, uneven);
      expect(distance(all, want)).toBeLessThan(2e-5);
      expect(await valuesOf(await gpu(), graph, single)).toEqual(all);
      expect(await valuesOf(await gpu(), graph, uneven)).toEqual(all);
    },
  );

  test.each(["delta_net", "wkv"])(
    "%s, whose lanes exchange sums through subgroups",
    async (name) => {
      const graph = graphOf(name);
      const gpu = async () => {
        const texts: string[] = [];
        const opened = await openGpu();
        const { device } = opened;
        const create = device.createShaderModule.bind(device);
        device.createShaderModule = (descriptor) => {
          if (descriptor.code.includes("sumOfColumn")) texts.push(descriptor.code);
          return create({ ...descriptor, code: emulated(descriptor.code) });
        };
        // Emulated shuffles need some of the workgroup memory.
        const facts = {
          ...opened.facts,
          subgroups: subgroupGpu.subgroups,
          workgroupStorageBytes: 16_384,
        };
        Object.defineProperty(opened, "facts", { value: facts });
        return { backend: new WebGpuBackend(opened), texts };
      };
      const { backend, texts } = await gpu();
      const all = await valuesOf(backend, graph, whole);
      expect(texts).toHaveLength(1);
      expect(texts[0]).toContain("subgroupShuffleXor");
      const want = await valuesOf(new ReferenceBackend(), graph, uneven);
      expect(distance(all, want)).toBeLessThan(2e-5);
      expect(await valuesOf((await gpu()).backend, graph, uneven)).toEqual(all);
    },
  );
});

test("which nodes they compute as they read and store", () => {
  const names = (layer: string, storageBuffers: number) =>
    fuse(graphOf(layer), { ...subgroupGpu, storageBuffers })
      .map(({ nodes }) => nodes.map(({ name }) => name).join(" "))
      .filter((group) => group.includes(" "));
  expect(names("ssm_scan", 8)).toEqual(["conv conv_silu", "dt_soft x b c scan gated"]);
  // With fewer buffers than its kernel would bind, a scan takes nothing.
  expect(names("ssm_scan", 7)).toEqual(["conv conv_silu"]);
  expect(names("delta_net", 10)).toEqual([
    "conv conv_silu",
    "q q_unit q_scaled k k_unit k_scaled",
    "v beta_sigmoid dt_soft delta",
    "normed gated",
  ]);
  expect(names("short_conv", 8)).toEqual(["bx conv gated"]);
  expect(names("wkv", 10)).toEqual(["w_sigmoid r_scaled k_scaled a_scaled b_scaled wkv"]);
});
