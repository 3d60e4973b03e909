// Attention of many tokens (attention-prefill.ts) gives a token the bits that it has alone or beside few others, whatever heads share and
// windows leave out; and what a token does not attend to never reaches it, not even as 0 times NaN.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { kvOf } from "../support/kv.ts";
import { nativeHere } from "../support/native.ts";
import { Random } from "../support/random.ts";

interface Shape {
  readonly name: string;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vHeadDim?: number;
  readonly window?: number;
  readonly chunked?: boolean;
  readonly causal?: boolean;
}

const positions = 70;
const blocks = Int32Array.of(2, 0, 1);
const f32 = dtypeByName("f32")!;
/** The token whose values are not numbers, where a test has it. */
const odd = 66;

const shapes: readonly Shape[] = [
  { name: "no shared heads", heads: 2, kvHeads: 2, headDim: 64 },
  { name: "five heads share", heads: 10, kvHeads: 2, headDim: 32, vHeadDim: 64 },
  { name: "more heads share than have room", heads: 12, kvHeads: 1, headDim: 32 },
  { name: "a window", heads: 2, kvHeads: 2, headDim: 32, window: 37 },
  { name: "a window of 2", heads: 5, kvHeads: 1, headDim: 32, window: 2 },
  { name: "chunks", heads: 5, kvHeads: 1, headDim: 32, window: 33, chunked: true },
  { name: "not causal", heads: 5, kvHeads: 1, headDim: 32, causal: false },
  { name: "not causal, a window", heads: 2, kvHeads: 2, headDim: 32, causal: false, window: 9 },
];

type Kind = {
  readonly name: string;
  readonly native: (typeof nativeHere)[number]["native"] | undefined;
};
const kinds: readonly Kind[] = [{ name: "wasm", native: undefined }, ...nativeHere];

/** The results of each position, of the last batch that has it. `batches`: [from, to) of one sequence. */
async function resultsOf(
  { native }: Kind,
  shape: Shape,
  kvType: string,
  batches: readonly (readonly [from: number, to: number])[],
  oddValue = 0,
): Promise<Float32Array[]> {
  const { heads, kvHeads, headDim, vHeadDim = headDim, window, chunked = false } = shape;
  const { causal = true } = shape;
  const g = new GraphBuilder();
  g.layer(0);
  const rows = (name: string, cols: number) =>
    g.embed({ name, shape: [positions, cols], dtype: f32 }, name);
  const [kCols, vCols] = [kvHeads * headDim, kvHeads * vHeadDim];
  const state = g.state({ kind: "kv", layer: 0, kCols, vCols, ...(window && { window, chunked }) });
  const q = rows("q", heads * headDim); // [tokens, heads * headDim]
  g.kvWrite(rows("k", kCols), rows("v", vCols), state);
  const options = { state, heads, kvHeads, headDim, vHeadDim, scale: headDim ** -0.5, causal };
  const out = g.attention(q, options, "attention"); // [tokens, heads * vHeadDim]
  g.layer(undefined);
  const graph = g.finish({ hidden: g.select(out, "selected") });

  const backend = new CpuBackend({
    ...{ level: 3, threads: 1, startThread: undefined, native: native ?? "a test" },
  });
  const limits = { maxTokens: positions, maxOutputs: positions };
  backend.prepare(makePlan(graph, limits), evenCapacity(blocks.length, kvOf(kvType)));
  for (const { name, shape: size, dtype } of graph.weights) {
    const random = new Random(name.charCodeAt(0));
    const cols = size[1]!;
    const values = Float32Array.from({ length: positions * cols }, () => random.normal());
    if (name !== "q" && oddValue !== 0) values.fill(oddValue, odd * cols, (odd + 1) * cols);
    const bytes = new Uint8Array(values.buffer);
    await backend.upload({ name, shape: size, dtype }, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
  const seen: Float32Array[] = [];
  const batch = new Batch(limits);
  for (const [from, to] of batches) {
    batch.clear();
    const sequence = { blocks };
    for (let p = from; p < to; p++) batch.add(p, p, sequence, true);
    await backend.run(batch);
    for (let p = from; p < to; p++) {
      const got = new Float32Array(heads * vHeadDim);
      await backend.read("hidden", p - from, got);
      seen[p] = got;
    }
  }
  backend.dispose();
  return seen;
}

/** "position 3, value 5: 0.1, expected 0.2"; undefined: the same bits. A diff of all results would take minutes. */
function firstDifferent(
  got: readonly Float32Array[],
  want: readonly Float32Array[],
): string | undefined {
  for (const [p, values] of want.entries()) {
    const i = values.findIndex((value, at) => !Object.is(got[p]![at], value));
    if (i >= 0) return `position ${p}, value ${i}: ${got[p]![i]}, expected ${values[i]}`;
  }
  return undefined;
}

const alone = Array.from({ length: positions }, (_, p) => [p, p + 1] as const);
const cases = kinds.flatMap((kind) => shapes.map((shape) => ({ kind, shape })));

test.each(cases)("$kind.name, $shape.name: the same bits in any batch", async ({ kind, shape }) => {
  const isF16 = shape.heads === 10;
  const kvType = isF16 ? "f16" : "f32";
  const all = await resultsOf(kind, shape, kvType, [[0, positions]]);
  if (shape.causal === false) {
    // The last token of a batch says how long the sequence is: of the same length, the last few tokens alone.
    for (const first of [1, 31, 63, 69]) {
      const last = await resultsOf(kind, shape, kvType, [
        [0, positions],
        [first, positions],
      ]);
      expect(firstDifferent(last, all)).toBeUndefined();
    }
    return;
  }
  const one = await resultsOf(kind, shape, kvType, alone);
  expect(firstDifferent(one, all)).toBeUndefined();
  const parts = [
    [0, 5],
    [5, 38],
    [38, 70],
  ] as const;
  const inParts = await resultsOf(kind, shape, kvType, parts);
  expect(firstDifferent(inParts, all)).toBeUndefined();
});

test.each(kinds)("$name: a token that is not a number reaches no token before it", async (kind) => {
  const all = [[0, positions]] as const;
  for (const shape of shapes.slice(0, 4)) {
    const usual = await resultsOf(kind, shape, "f32", all);
    const got = await resultsOf(kind, shape, "f32", all, Number.NaN);
    expect(firstDifferent(got, usual.slice(0, odd))).toBeUndefined();
    expect(got[odd]!.every(Number.isNaN)).toBe(true);
  }
});
