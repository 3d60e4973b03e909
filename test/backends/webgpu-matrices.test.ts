// Kernels for matrix units, with units that are emulated in workgroup memory: a layer with many tokens of several sequences,
// compared with the reference; and that a prompt has the same bits whatever else is in its batch.

import { expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import type { MatrixShape } from "../../src/backends/webgpu/wgsl/matrix-shapes.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Rope, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { emulatedMatrices } from "../support/emulated-matrices.ts";
import { describeHalves, openGpu } from "../support/gpu.ts";
import { Random } from "../support/random.ts";

/** Small ones, which a software driver compiles in a second. */
const matrices: readonly MatrixShape[] = [
  {
    ownOutputs: 2,
    ownTokens: 1,
    outputSubgroups: 1,
    tokenSubgroups: 2,
    depth: 32,
    ahead: 2,
    cost: 1,
  },
  {
    ownOutputs: 2,
    ownTokens: 1,
    outputSubgroups: 2,
    tokenSubgroups: 1,
    depth: 64,
    ahead: 4,
    turns: 2,
    cost: 1,
  },
];
const f32 = dtypeByName("f32")!;
const limits = { maxTokens: 160, maxOutputs: 4 };
/** Columns of 128 are split between two groups of subgroups, of 160 they are not. */
const [vocab, embed, hidden, heads, kvHeads] = [40, 128, 160, 4, 2];

/** A layer whose matrices are of a type, two of them of another. */
function layer(type: string, headDim: number, other = type): Graph {
  const g = new GraphBuilder();
  const vector = (name: string, size: number): Weight => ({ name, shape: [size], dtype: f32 });
  const matrix = (name: string, rows: number, cols: number, of = dtypeByName(type)!): Weight => ({
    name,
    shape: [rows, cols],
    dtype: of,
  });
  const rope: Rope = {
    layout: "half",
    dims: headDim,
    frequencies: Float32Array.from({ length: headDim / 2 }, (_, i) => 100 ** (-i / headDim)),
    magnitude: 1,
  };
  const kvCols = kvHeads * headDim;
  const x = g.embed(matrix("table", vocab, embed, f32), "embed");
  const normed = g.rmsNorm(x, vector("norm1", embed), 1e-5, "norm1");
  const [q, k, v] = (["q", "k", "v"] as const).map((name) =>
    g.matmul(normed, matrix(name, name === "q" ? heads * headDim : kvCols, embed), name),
  );
  const state = g.state({ kind: "kv", layer: 0, kCols: kvCols, vCols: kvCols });
  const roped = g.rope(q!, headDim, rope, "q_rope");
  g.kvWrite(g.rope(k!, headDim, rope, "k_rope"), v!, state);
  const shape = { state, heads, kvHeads, headDim, scale: headDim ** -0.5 };
  const attended = g.attention(roped, shape, "attention");
  const y = g.add(
    x,
    g.matmul(attended, matrix("o", embed, heads * headDim, dtypeByName(other)!), "o"),
    "residual1",
  );
  const normed2 = g.rmsNorm(y, vector("norm2", embed), 1e-5, "norm2");
  const gate = g.matmul(normed2, matrix("gate", hidden, embed), "gate");
  const up = g.matmul(normed2, matrix("up", hidden, embed), "up");
  const down = g.matmul(
    g.gate(gate, up, "silu", "silu"),
    matrix("down", embed, hidden, dtypeByName(other)!),
    "down",
  );
  const last = g.select(g.add(y, down, "residual2"), "select");
  return g.finish({ hidden: last, logits: g.logits(last, matrix("out", vocab, embed), "logits") });
}

function bytesOf({ name, shape, dtype }: Weight): Uint8Array {
  const count = shape.reduce((a, b) => a * b);
  if (dtype !== f32) return sampleBlocks(dtype, count);
  const random = new Random(name.length * 100 + count);
  const isNorm = name.startsWith("norm");
  const values = Float32Array.from({ length: count }, () =>
    isNorm ? 1 + 0.1 * random.normal() : random.normal(),
  );
  return new Uint8Array(values.buffer);
}

/** Tokens of each sequence in a batch, in order. */
type Sizes = readonly (readonly [sequence: number, tokens: number])[];

/** The hidden state of the last token of each part of each batch. */
async function run(
  backend: Backend,
  graph: Graph,
  batches: readonly Sizes[],
): Promise<Float32Array[]> {
  const each = 6;
  await backend.prepare(makePlan(graph, limits), {
    ...evenCapacity(4 * each, dtypeByName("f16")!),
    tableLength: each,
  });
  for (const weight of graph.weights) {
    const bytes = bytesOf(weight);
    await backend.upload(weight, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  const tables = Array.from({ length: 4 }, (_, sequence) => ({
    blocks: Int32Array.from({ length: each }, (_, i) => (each - 1 - i) * 4 + sequence),
  }));
  const positions = [0, 0, 0, 0];
  const batch = new Batch(limits);
  const found: Float32Array[] = [];
  for (const parts of batches) {
    batch.clear();
    for (const [sequence, tokens] of parts) {
      for (let i = 0; i < tokens; i++) {
        const position = positions[sequence]!++;
        const token = (position * 7 + sequence * 5 + 3) % vocab;
        batch.add(token, position, tables[sequence]!, i === tokens - 1);
      }
    }
    await backend.run(batch);
    for (let output = 0; output < parts.length; output++) {
      const state = new Float32Array(embed);
      await backend.read("hidden", output, state);
      found.push(state);
    }
  }
  backend.dispose();
  return found;
}

async function matrixBackend(matrixAttention: boolean): Promise<WebGpuBackend> {
  const gpu = await openGpu();
  return new WebGpuBackend(gpu, {
    tuning: {
      ...tuningFor(gpu.facts),
      matrices,
      wideMatrices: matrices,
      matrixAttention,
    },
    matrixCalls: emulatedMatrices,
  });
}

function distance(got: Float32Array, want: Float32Array): number {
  const size = want.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return got.reduce((most, value, i) => Math.max(most, Math.abs(value - want[i]!)), 0) / size;
}

/** Emulated units take minutes to compile. */
const timeout = 900_000;

describeHalves("webgpu, matrix units", () => {
  test.each([
    ["q4_0", "q4_0", true], // the kernels of the test below
    ["q8_0", "q5_0", false], // the second has no fast way to unpack
  ] as const)(
    "%s, %s, attention: %s: as the reference",
    { timeout },
    async (type, other, attention) => {
      const graph = layer(type, 32, other);
      // Tiles with one sequence and with several, that begin anywhere; a second batch over a longer context; generated tokens
      // beside a prompt, and more of them than kernels for few tokens take.
      const batches: Sizes[] = [
        [
          [0, 21],
          [1, 40],
          [2, 9],
        ],
        [
          [1, 70],
          [3, 3],
          [0, 50],
        ],
        [
          [3, 1],
          [2, 2],
          [0, 1],
          [1, 30],
        ],
        [
          [0, 8],
          [3, 8],
          [2, 4],
        ],
      ];
      const want = await run(new ReferenceBackend(), graph, batches);
      const got = await run(await matrixBackend(attention), graph, batches);
      const off = got.map((state, i) => distance(state, want[i]!));
      for (const one of off) expect(one, `distances: ${off}`).toBeLessThan(2e-2);
    },
  );

  test("a prompt has the same bits beside others", { timeout }, async () => {
    const graph = layer("q4_0", 32);
    const [alone] = await run(await matrixBackend(true), graph, [[[0, 40]]]);
    const beside = await run(await matrixBackend(true), graph, [
      [
        [1, 13],
        [2, 25],
        [0, 40],
      ],
    ]);
    expect(beside[2]).toEqual(alone);
    const generated = await run(await matrixBackend(true), graph, [
      [
        [1, 1],
        [2, 2],
        [0, 40],
      ],
    ]);
    expect(generated[2]).toEqual(alone);
  });
});
