// Feed-forward networks with ReLU: leaving out the neurons that are zero gives the bits of computing all of them, for any number
// of tokens, with several threads' chunks, as WebAssembly and as machine code; and the reference's results.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { neuronUses, neuronWeights } from "../../src/backends/cpu/memory/neuron-weights.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { weightBytes } from "../../src/graph/cost.ts";
import type { Graph, Value, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import { wasmTarget } from "../../src/kernels/target.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeHere } from "../support/native.ts";
import { Random } from "../support/random.ts";

const f32 = dtypeByName("f32")!;
const limits = { maxTokens: 13, maxOutputs: 13 };
/** Token by token; register tiles that are full or not, with a token left over. */
const batches = [1, 2, 4, 5, limits.maxTokens];
const vocab = limits.maxTokens;
/**
 * [embedding, neurons]: blocks of a row that fill no whole slab of any target, neurons that are no multiple of a range of columns; or
 * whole spans.
 */
function sizesOf({ type }: Network): readonly [number, number] {
  return dtypeByName(type)!.blockElems === 256 ? [256, 768] : [384, 672];
}

interface Network {
  readonly about: string;
  /** Of `up` and `down`. */
  readonly type: string;
  /** What the gate's values are around, in units of their deviation: how many are zero. */
  readonly center: number;
  readonly inner: (g: GraphBuilder, gate: Value, up: () => Value) => Value;
  readonly biases?: boolean;
}

const reglu: Network["inner"] = (g, gate, up) => g.gate(gate, up(), "relu", "inner");
const networks: readonly Network[] = [
  { about: "ReGLU, most are zero", type: "q4_0", center: -1.5, inner: reglu },
  { about: "ReGLU, few are zero", type: "q4_0", center: 1, inner: reglu },
  { about: "ReGLU, all are zero", type: "q4_0", center: -40, inner: reglu },
  { about: "ReGLU", type: "q8_0", center: -1, inner: reglu },
  { about: "ReGLU with biases", type: "q4_0", center: -1, inner: reglu, biases: true },
  {
    about: "ReLU on both factors",
    type: "q4_0",
    center: -0.5,
    inner: (g, gate, up) => g.gate(gate, g.activate(up(), "relu", "open"), "relu", "inner"),
  },
  {
    about: "squared ReLU without a gate",
    type: "q8_0",
    center: -1,
    inner: (g, gate) => g.activate(gate, "relu_squared", "inner"),
  },
];

/** Floats; half floats only where the target reads them. */
const floats: readonly Network[] = [
  { about: "ReGLU, most are zero", type: "f32", center: -1.5, inner: reglu },
  { about: "ReGLU, half are zero", type: "f16", center: 0, inner: reglu },
  { about: "ReGLU, most are zero", type: "bf16", center: -1, inner: reglu },
];

/** Types whose rows become panels as they are read. */
const rowsOnly: readonly Network[] = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k"].map((type, i) => ({
  about: i % 2 === 0 ? "most are zero" : "half are zero",
  type,
  center: i % 2 === 0 ? -1.5 : 0,
  inner: reglu,
}));

function graphOf(network: Network): Graph {
  const { type, inner, biases } = network;
  const [embed, hidden] = sizesOf(network);
  const g = new GraphBuilder();
  const dtype = dtypeByName(type)!;
  const x = g.embed({ name: "table", shape: [vocab, embed], dtype: f32 }, "x"); // [tokens, embed]
  const gate = g.matmul(x, { name: "gate", shape: [hidden, embed], dtype: f32 }, "ffn_gate"); // [tokens, hidden]
  const bias = (name: string, size: number) =>
    biases ? { name, shape: [size], dtype: f32 } : undefined;
  const up = () =>
    g.matmul(x, { name: "up", shape: [hidden, embed], dtype }, "ffn_up", bias("up_bias", hidden)); // [tokens, hidden]
  const y = inner(g, gate, up); // [tokens, hidden]
  const down = { name: "down", shape: [embed, hidden], dtype };
  return g.finish({ logits: g.matmul(y, down, "y", bias("down_bias", embed)) }); // [tokens, embed]
}

/** Column 0 of the table is 1, and of the gate the center. */
function valuesOf({ name, shape }: Weight, center: number): Float32Array {
  const random = new Random(name.length);
  const [rows, cols = 1] = shape as [number, number?];
  const values = Float32Array.from({ length: rows * cols }, () => random.normal());
  for (let row = 0; row < rows; row++) {
    if (name === "table") values[row * cols] = 1;
    if (name === "gate") values[row * cols] = center * Math.sqrt(cols);
  }
  return values;
}

/** Made once for all targets. */
const made = new Map<string, Uint8Array>();

function bytesOf(weight: Weight, center: number): Uint8Array {
  const { name, dtype } = weight;
  const key = `${name} ${dtype.name} ${weight.shape} ${center}`;
  const known = made.get(key);
  if (known) return known;
  const values = valuesOf(weight, center);
  const bytes = new Uint8Array(bytesFor(dtype, values.length));
  dtype.quantize!(values, 0, bytes, 0, values.length / dtype.blockElems);
  made.set(key, bytes);
  return bytes;
}

async function resultsOf(backend: Backend, network: Network): Promise<Float32Array[]> {
  const graph = graphOf(network);
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, f32));
  for (const weight of graph.weights) {
    const bytes = bytesOf(weight, network.center);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  const all: Float32Array[] = [];
  for (const tokens of batches) {
    const batch = new Batch(limits);
    for (let i = 0; i < tokens; i++) batch.add(i, 0, { blocks: new Int32Array(1) }, true);
    await backend.run(batch);
    for (let row = 0; row < tokens; row++) {
      const result = new Float32Array(sizesOf(network)[0]);
      await backend.read("logits", row, result);
      all.push(result);
    }
  }
  backend.dispose();
  return all;
}

const references = new Map<Network, Promise<Float32Array[]>>();

function referenceOf(network: Network): Promise<Float32Array[]> {
  const results = references.get(network) ?? resultsOf(new ReferenceBackend(), network);
  references.set(network, results);
  return results;
}

/** The largest difference, relative to the largest value. */
function distance(a: Float32Array, b: Float32Array): number {
  const size = b.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0) / size;
}

const wasm = { name: "wasm", native: undefined, target: wasmTarget(detectWasmFeatures()) };
const targets = [
  wasm,
  ...nativeHere.map(({ name, native }) => ({ name, native, target: native.target })),
];

describe.each(targets)("on $name", ({ native, target }) => {
  const startThread = () => nodePlatform.startThread("compute");
  const backend = (sparse: boolean, threads = 1) =>
    new CpuBackend({ level: 3, threads, startThread, native, sparse });

  test.each(networks)("$about, $type", async (network) => {
    const uses = [...neuronUses(graphOf(network).nodes, target).values()];
    expect(uses.every((use) => typeof use === "object")).toBe(true);
    const { nodes, weights } = graphOf(network);
    const sizes = weights.filter(({ dtype }) => dtype !== f32).map(weightBytes);
    const left = neuronWeights(nodes, target)!;
    expect(left.bytes).toBe(sizes.reduce((sum, size) => sum + size, 0));
    expect(left.values.map(({ name }) => name)).toEqual(["inner"]);
    const sparse = await resultsOf(backend(true), network);
    expect(sparse).toEqual(await resultsOf(backend(false), network));
    // Alone, and beside one, three, four or twelve others.
    expect(sparse[1]).toEqual(sparse[0]);
    expect(sparse[3]).toEqual(sparse[0]);
    expect(sparse[7]).toEqual(sparse[0]);
    expect(sparse[12]).toEqual(sparse[0]);
    const expected = await referenceOf(network);
    const differences = sparse.map((result, row) => distance(result, expected[row]!));
    expect(Math.max(...differences)).toBeLessThan(1e-4);
    const isZero = network.center < -10;
    expect(sparse[0]!.some((value) => value !== 0)).toBe(!isZero);
  });

  test.each(floats)("$about, $type", async (network) => {
    const { nodes } = graphOf(network);
    const uses = new Map([...neuronUses(nodes, target)].map(([{ name }, use]) => [name, use]));
    const isCoded = network.type !== "f32" && target.halves === "coded";
    const no = (kind: string) => `${network.type} has no neuron ${kind}`;
    expect(uses.get("up")).toEqual(
      isCoded ? no("rows") : expect.objectContaining({ kind: "rows" }),
    );
    expect(uses.get("down")).toEqual(isCoded ? no("columns") : { kind: "columns" });
    const dense = await resultsOf(backend(false), network);
    const threads = network.type === "f16" ? 3 : 1;
    expect(await resultsOf(backend(true, threads), network)).toEqual(dense);
  });

  // All types as machine code, whose vectors may be wider.
  const types = native ? rowsOnly : rowsOnly.filter(({ type }) => type === "q4_k");
  test.each(types)("$about: rows only, $type", async (network) => {
    const { nodes } = graphOf(network);
    const uses = new Map([...neuronUses(nodes, target)].map(([{ name }, use]) => [name, use]));
    expect(uses.get("up")).toMatchObject({ kind: "rows" });
    expect(uses.get("down")).toBe(`${network.type} has no neuron columns`);
    expect(neuronWeights(nodes, target)!.values.map(({ name }) => name)).toEqual(["inner"]);
    const dense = await resultsOf(backend(false), network);
    const threads = network.type === "q4_k" ? 3 : 1;
    expect(await resultsOf(backend(true, threads), network)).toEqual(dense);
  });

  test("three threads list their own neurons, and read those of all", async () => {
    const [network] = networks as [Network];
    const expected = await resultsOf(backend(false), network);
    expect(await resultsOf(backend(true, 3), network)).toEqual(expected);
  });
});
