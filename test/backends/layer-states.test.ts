// A graph whose layers have different KV sizes: 16, 48 and 16 columns. Every backend that runs here computes what the
// reference does, over several blocks, and after a block was copied; a batch without logits has a hidden state and no
// logits.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { kvTokenBytes, weightElements } from "../../src/graph/cost.ts";
import type { Graph, Value, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { splitGraph } from "../../src/graph/split.ts";
import { nativeHere } from "../support/native.ts";
import { Random } from "../support/random.ts";

const f32 = dtypeByName("f32")!;
const f16 = dtypeByName("f16")!;
const [embed, vocab] = [32, 40];
/** Heads, KV heads and the size of a head, layer by layer. */
const layers = [
  { heads: 4, kvHeads: 2, headDim: 8 },
  { heads: 6, kvHeads: 6, headDim: 8 },
  { heads: 1, kvHeads: 1, headDim: 16 },
] as const;
const limits = { maxTokens: 8, maxOutputs: 8 };

function unevenGraph(): Graph {
  const g = new GraphBuilder();
  const matrix = (name: string, rows: number, cols: number): Weight => {
    return { name, shape: [rows, cols], dtype: f32 };
  };
  let x = g.embed(matrix("table", vocab, embed), "embed"); // [tokens, embed]
  layers.forEach(({ heads, kvHeads, headDim }, layer) => {
    g.layer(layer);
    const [qCols, kvCols] = [heads * headDim, kvHeads * headDim];
    const project = (from: Value, name: string, rows: number) =>
      g.matmul(from, matrix(`${layer}.${name}`, rows, from.cols), name);
    const state = g.state({ kind: "kv", layer, kCols: kvCols, vCols: kvCols });
    const q = project(x, "q", qCols);
    g.kvWrite(project(x, "k", kvCols), project(x, "v", kvCols), state);
    const shape = { state, heads, kvHeads, headDim, scale: headDim ** -0.5 };
    x = g.add(x, project(g.attention(q, shape, "attention"), "o", embed), "residual");
  });
  g.layer(undefined);
  const hidden = g.scale(g.select(x, "selected"), 0.5, "hidden"); // [outputs, embed]
  return g.finish({ hidden, logits: g.logits(hidden, matrix("output", vocab, embed), "logits") });
}

async function prepared(backend: Backend, graph: Graph): Promise<Backend> {
  await backend.prepare(makePlan(graph, limits), evenCapacity(4, f16));
  const random = new Random(11);
  for (const weight of graph.weights) {
    const values = Float32Array.from({ length: weightElements(weight) }, () => random.normal() / 4);
    const bytes = new Uint8Array(values.buffer);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  return backend;
}

/** Logits of the last token of every batch: 70 tokens in three blocks, then one more with the last block copied. */
async function logitsOf(backend: Backend): Promise<number[][]> {
  const seen: number[][] = [];
  const batch = new Batch(limits);
  const table = { blocks: Int32Array.of(2, 0, 3) };
  const run = async (from: number, count: number) => {
    batch.clear();
    for (let i = from; i < from + count; i++) {
      batch.add((i * 7) % vocab, i, table, i === from + count - 1);
    }
    await backend.run(batch);
    const logits = new Float32Array(vocab);
    await backend.read("logits", 0, logits);
    seen.push([...logits]);
  };
  for (let done = 0; done < 70; done += 7) await run(done, 7);
  backend.copyKvBlock(3, 1);
  table.blocks[2] = 1;
  await run(70, 1);
  return seen;
}

const cpu = (native?: (typeof nativeHere)[number]["native"]): Backend =>
  new CpuBackend({ level: 3, threads: 1, startThread: undefined, ...(native && { native }) });
const backends: { name: string; make: () => Backend }[] = [
  { name: "wasm", make: () => cpu() },
  ...nativeHere.map(({ name, native }) => ({ name, make: () => cpu(native) })),
];

describe("layers of different sizes", () => {
  test("take what they keep, and no more than padding beyond that", () => {
    const graph = unevenGraph();
    expect(graph.states.map((state) => state.kind === "kv" && state.kCols)).toEqual([16, 48, 16]);
    const perToken = kvTokenBytes(graph, f16);
    expect(perToken).toBe(2 * 2 * (16 + 48 + 16));
    const kv = evenCapacity(4, f16);
    const plan = makePlan(graph, limits);
    expect(new ReferenceBackend().measure(plan, kv).kvBytes).toBe(4 * 32 * perToken);
    const { kvBytes } = cpu().measure(plan, kv);
    expect(kvBytes).toBeGreaterThanOrEqual(4 * 32 * perToken);
    expect(kvBytes).toBeLessThan(4 * 32 * perToken * 1.5);
  });

  test.each(backends)("$name computes what the reference does", async ({ make }) => {
    const expected = await logitsOf(await prepared(new ReferenceBackend(), unevenGraph()));
    const got = await logitsOf(await prepared(make(), unevenGraph()));
    got.flat().forEach((value, i) => {
      expect(value).toBeCloseTo(expected.flat()[i]!, 3);
    });
  });

  test("a split graph's parts keep their own", () => {
    const { front, back } = splitGraph(unevenGraph(), 1);
    expect(front.states).toMatchObject([{ layer: 0, kCols: 16 }]);
    expect(back.states).toMatchObject([
      { layer: 0, kCols: 48 },
      { layer: 1, kCols: 16 },
    ]);
    const named = back.nodes.flatMap((node) => ("state" in node ? [node.state] : []));
    expect(named).toEqual([0, 0, 1, 1]);
  });
});

test.each([{ name: "reference", make: (): Backend => new ReferenceBackend() }, ...backends])(
  "$name: without logits there is a hidden state, and the output matrix is not multiplied",
  async ({ make }) => {
    const backend = await prepared(make(), unevenGraph());
    const batch = new Batch(limits);
    const table = { blocks: Int32Array.of(0) };
    const [logits, leftOver] = [new Float32Array(vocab), new Float32Array(vocab)];
    const [hidden, alone] = [new Float32Array(embed), new Float32Array(embed)];
    batch.add(9, 0, table, true);
    batch.wantsLogits = false;
    await backend.run(batch);
    await backend.read("logits", 0, leftOver);
    await backend.read("hidden", 0, alone);
    batch.wantsLogits = true;
    await backend.run(batch);
    await backend.read("logits", 0, logits);
    await backend.read("hidden", 0, hidden);
    expect(alone).toEqual(hidden);
    expect(leftOver).not.toEqual(logits); // what lay there before
    expect(() => backend.read("scores", 0, hidden)).toThrow('the graph has no output "scores"');
  },
);
