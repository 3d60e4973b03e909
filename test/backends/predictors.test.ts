// Predictors of neurons (graph/predict.ts): what is computed where rows of gates are left out has the bits of computing all of them and
// masking; for any number of tokens, as WebAssembly and as machine code. And it is what the definition says, computed by hand.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { neuronUses } from "../../src/backends/cpu/memory/neuron-weights.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { predictables, predictGraph } from "../../src/graph/predict.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import { wasmTarget } from "../../src/kernels/target.ts";
import { nativeHere } from "../support/native.ts";
import { Random } from "../support/random.ts";

const f32 = dtypeByName("f32")!;
const limits = { maxTokens: 5, maxOutputs: 5 };
const [vocab, embed, hidden, rank] = [limits.maxTokens, 384, 672, 32];

interface Case {
  readonly about: string;
  readonly type: string;
  readonly isGated: boolean;
  readonly reads: "norm" | "residual";
  /** Of all scores: how many neurons are computed. */
  readonly bias: number;
}

const cases: readonly Case[] = [
  { about: "gated, few", type: "q4_0", isGated: true, reads: "norm", bias: -6 },
  { about: "gated, most", type: "q8_0", isGated: true, reads: "residual", bias: 3 },
  { about: "gated, none", type: "q4_0", isGated: true, reads: "norm", bias: -1e4 },
  { about: "without a gate", type: "q8_0", isGated: false, reads: "norm", bias: -3 },
];

function denseOf({ type, isGated }: Case): Graph {
  const g = new GraphBuilder();
  const matrix = (name: string, rows: number, cols: number): Weight => ({
    name,
    shape: [rows, cols],
    dtype: dtypeByName(type)!,
  });
  const r = g.embed({ name: "table", shape: [vocab, embed], dtype: f32 }, "r"); // [tokens, embed]
  const x = g.rmsNorm(r, { name: "norm", shape: [embed], dtype: f32 }, 1e-5, "x"); // [tokens, embed]
  const open = g.matmul(x, matrix("gate", hidden, embed), "open"); // [tokens, hidden]
  const inner = isGated
    ? g.gate(open, g.matmul(x, matrix("up", hidden, embed), "up"), "relu", "inner")
    : g.activate(open, "relu_squared", "inner"); // [tokens, hidden]
  return g.finish({ logits: g.matmul(inner, matrix("down", embed, hidden), "y") });
}

function graphOf(each: Case): Graph {
  const dense = denseOf(each);
  const fc1 = { name: "fc1", shape: [rank, embed], dtype: f32 };
  const fc2 = { name: "fc2", shape: [hidden, rank], dtype: dtypeByName("q8_0")! };
  const bias = { name: "bias", shape: [hidden], dtype: f32 };
  return predictGraph(dense, new Map([["gate", { fc1, fc2, bias, reads: each.reads }]]));
}

const made = new Map<string, Uint8Array>();

function bytesOf({ name, shape, dtype }: Weight, each: Case): Uint8Array {
  const key = `${name} ${dtype.name} ${each.about}`;
  const known = made.get(key);
  if (known) return known;
  const random = new Random(name.length);
  const count = shape.reduce((a, b) => a * b, 1);
  const deviation = name === "fc1" || name === "fc2" ? 0.2 : 1;
  const values = Float32Array.from({ length: count }, () =>
    name === "bias" ? each.bias : deviation * random.normal(),
  );
  const bytes = new Uint8Array(bytesFor(dtype, count));
  dtype.quantize!(values, 0, bytes, 0, count / dtype.blockElems);
  made.set(key, bytes);
  return bytes;
}

async function resultsOf(
  backend: Backend,
  graph: Graph,
  each: Case,
  batches: readonly number[] = [1, 2, 5],
): Promise<Float32Array[]> {
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, f32));
  for (const weight of graph.weights) {
    const bytes = bytesOf(weight, each);
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
      const result = new Float32Array(embed);
      await backend.read("logits", row, result);
      all.push(result);
    }
  }
  backend.dispose();
  return all;
}

const references = new Map<Case, Promise<{ reference: Float32Array; dense: Float32Array }>>();

/** Of the first token, with predictors and without. */
function referencesOf(each: Case) {
  const made = references.get(each) ?? makeReferences(each);
  references.set(each, made);
  return made;
}

async function makeReferences(each: Case) {
  const [reference] = await resultsOf(new ReferenceBackend(), graphOf(each), each, [1]);
  const [dense] = await resultsOf(new ReferenceBackend(), denseOf(each), each, [1]);
  return { reference: reference!, dense: dense! };
}

function distance(a: Float32Array, b: Float32Array): number {
  const size = b.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0) / size;
}

const targets = [
  { name: "wasm", native: undefined, target: wasmTarget(detectWasmFeatures()) },
  ...nativeHere.map(({ name, native }) => ({ name, native, target: native.target })),
];

describe.each(targets)("on $name", ({ native, target }) => {
  const backend = (sparse: boolean) =>
    new CpuBackend({ level: 3, threads: 1, startThread: undefined, native, sparse });

  test.each(cases)("$about, $type, reads the $reads", async (each) => {
    const graph = graphOf(each);
    const uses = neuronUses(graph.nodes, target);
    const names = [...uses].map(
      ([{ name }, use]) => `${name} ${typeof use === "object" && use.kind}`,
    );
    const expected = each.isGated
      ? ["down columns", "up rows", "gate rows"]
      : ["down columns", "gate rows"];
    expect(names).toEqual(expected);
    const sparse = await resultsOf(backend(true), graph, each);
    expect(sparse).toEqual(await resultsOf(backend(false), graph, each));
    expect(sparse[1]).toEqual(sparse[0]);
    expect(sparse[3]).toEqual(sparse[0]);
    const { reference, dense } = await referencesOf(each);
    expect(distance(sparse[0]!, reference)).toBeLessThan(1e-4);
    // Fewer neurons: another result than with all of them, and zeros without any.
    expect(distance(reference, dense)).toBeGreaterThan(0.01);
    expect(reference.some((value) => value !== 0)).toBe(each.bias > -1e3);
  });
});

test("a graph without predictors stays as it is, and one has a place for each network", () => {
  const graph = denseOf(cases[0]!);
  expect(predictGraph(graph, new Map())).toBe(graph);
  const [place, ...others] = predictables(graph);
  expect(others).toEqual([]);
  expect(place).toMatchObject({ tensor: "gate", neurons: hidden, residual: { name: "r" } });
});
