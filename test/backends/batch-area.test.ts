// What a batch writes for the GPU: the cache blocks of each sequence, and cosines and sines of positions, which are computed once; and in
// how many pieces.
// Held against: offsets, cosines and sines computed here.

import { expect, test } from "vitest";
import {
  ADJUSTED_WORDS,
  BatchArea,
  DRAW_WORDS,
  layOutBatch,
} from "../../src/backends/webgpu/batch-area.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { AdjustedList } from "../../src/graph/adjusted-list.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Rope } from "../../src/graph/graph.ts";
import type { PlanLimits } from "../../src/graph/plan.ts";

const limits = { maxTokens: 8, maxOutputs: 2 };
const [headDim, tableLength] = [8, 400];
const rope: Rope = {
  layout: "half",
  dims: headDim,
  frequencies: Float32Array.of(1, 0.1, 0.01, 0.001),
  magnitude: 1.5,
};

function layoutOf(most: PlanLimits = limits) {
  const g = new GraphBuilder();
  const f32 = dtypeByName("f32")!;
  const x = g.embed({ name: "table", shape: [4, headDim], dtype: f32 }, "embed");
  const state = g.state({ kind: "kv", layer: 0, kCols: headDim, vCols: headDim });
  const q = g.rope(x, headDim, rope, "rope");
  g.kvWrite(q, x, state);
  const shape = { state, heads: 1, kvHeads: 1, headDim, scale: 1 };
  const last = g.select(g.attention(q, shape, "attention"), "select");
  const out = { name: "out", shape: [4, headDim], dtype: f32 };
  return layOutBatch(g.finish({ logits: g.logits(last, out, "logits") }), most, tableLength);
}

const sequence = { blocks: Int32Array.from({ length: tableLength }, (_, i) => i * 3 + 1) };
const other = { blocks: Int32Array.from({ length: tableLength }, (_, i) => 5000 - i) };

function filled(area: BatchArea, positions: readonly number[], others: readonly number[] = []) {
  const batch = new Batch(limits);
  for (const position of positions) batch.add(1, position, sequence, false);
  for (const position of others) batch.add(1, position, other, false);
  area.fill(batch);
  return new Float32Array(area.words.buffer);
}

// Angles of the first 8,192 positions are kept.
test.each([0, 30, 8189, 12_000])("angles from position %i on: the same every time", (first) => {
  const layout = layoutOf();
  const { at } = layout.angles[0]!;
  const positions = Array.from({ length: 7 }, (_, i) => first + i);
  const area = new BatchArea(layout, new Map());
  const rowsOf = (floats: Float32Array, from: number, count: number): number[] => [
    ...floats.subarray(at + from * headDim, at + (from + count) * headDim),
  ];
  const want = positions.flatMap((position) =>
    [...rope.frequencies].flatMap((frequency) => {
      const angle = Math.fround(position * frequency);
      return [Math.cos(angle), Math.sin(angle)].map((v) => Math.fround(Math.fround(v) * 1.5));
    }),
  );
  expect(rowsOf(filled(area, positions), 0, 7)).toEqual(want);
  expect(rowsOf(filled(area, positions), 0, 7)).toEqual(want);
  const beside = rowsOf(filled(area, positions.slice(3, 6), positions.slice(1, 5)), 3, 4);
  expect(beside).toEqual(want.slice(headDim, 5 * headDim));
});

test("blocks of each sequence, up to its last position, whatever was there before", () => {
  const layout = layoutOf();
  const area = new BatchArea(layout, new Map());
  const table = (number: number, length: number): number[] => {
    const from = layout.groups[0]! + number * tableLength;
    return [...area.words.subarray(from, from + length)];
  };
  filled(area, [95, 96], [320, 321]);
  expect(table(0, 4)).toEqual([1, 4, 7, 10]);
  expect(table(1, 11)).toEqual([...other.blocks.subarray(0, 11)]);
  filled(area, [], [63, 64]);
  expect(table(0, 3)).toEqual([5000, 4999, 4998]);
});

const draw = (temperature: number) => ({
  ...{ temperature, topK: 40, topP: 0.9, minP: 0 },
  uniform: (after: number) => after / 8,
});

function ofUsers(positions: readonly number[], temperature: number): Batch {
  const batch = new Batch(limits);
  positions.forEach((position, i) => {
    const row = batch.add(1, position, i === 0 ? sequence : other, true, true, false);
    batch.wantBest(row, 40);
    batch.expect(row, draw(temperature), 9);
  });
  return batch;
}

test.each([
  [[7], 0, 1],
  [[7], 0.8, 1],
  [[5, 11], 0.8, 1],
  // The next token of the first user needs a new cache block.
  [[31, 11], 0, 2],
])(
  "a token submitted ahead after %j, temperature %f: %i write",
  (positions, temperature, writes) => {
    const layout = layoutOf({ maxTokens: 600, maxOutputs: 64 });
    const area = new BatchArea(layout, new Map());
    /** The area as the GPU has it: what was written so far. */
    const written = new Uint32Array(area.words.length);
    const write = (ranges: readonly (readonly [number, number])[]) => {
      for (const [from, to] of ranges) written.set(area.words.subarray(from, to), from);
      return ranges.length;
    };
    const batch = ofUsers(positions, temperature);
    expect(write(area.fill(batch, true))).toBe(2);
    written.fill(77, layout.tokens, layout.tokens + positions.length); // as drawn
    expect(write(area.fillAhead(batch, 1))).toBe(writes);
    const drawn = written.subarray(layout.tokens, layout.tokens + positions.length);
    expect([...drawn]).toEqual(positions.map(() => 77));
    // All else is what a batch at the next positions would write.
    const next = new BatchArea(layout, new Map());
    next.fill(
      ofUsers(
        positions.map((position) => position + 1),
        temperature,
      ),
      true,
    );
    const floats = new Float32Array(next.words.buffer);
    for (let row = 0; row < positions.length; row++) {
      next.words[layout.tokens + row] = 77;
      const random = layout.draws + row * DRAW_WORDS + 5;
      expect(floats[random]).toBe(0); // uniform(0)
      floats[random] = temperature > 0 ? 1 / 8 : 0; // uniform(1)
    }
    expect([...written]).toEqual([...next.words]);
  },
);

test("how many logits are read, and that no token is drawn after a batch that does not fly", () => {
  const layout = layoutOf();
  const area = new BatchArea(layout, new Map());
  const wordsOf = (row: number) => {
    const at = layout.draws + row * DRAW_WORDS;
    return [...area.words.subarray(at, at + 2)];
  };
  area.fill(ofUsers([7, 9], 0.8), true);
  expect([wordsOf(0), wordsOf(1)]).toEqual([
    [40, 40],
    [40, 40],
  ]);
  area.fill(ofUsers([7, 9], 0), true);
  expect(wordsOf(1)).toEqual([40, 1]);
  const batch = ofUsers([7], 0.8);
  batch.add(1, 3, other, true, true, false);
  area.fill(batch);
  expect(wordsOf(0)).toEqual([40, 0]);
  expect(wordsOf(1)).toEqual([0xffffffff, 0]); // all that are found
});

test("adjusted tokens: one output behind the other, and submitted ahead as they will be, with room for those that are drawn", () => {
  const layout = layoutOf();
  const area = new BatchArea(layout, new Map());
  const floats = new Float32Array(area.words.buffer);
  const listOf = (...tokens: readonly (readonly [id: number, times: number, bias: number])[]) => {
    const list = new AdjustedList();
    for (const [id, times, bias] of tokens) list.add(id, times, bias);
    return list;
  };
  const later = listOf([7, 1, 0], [9, 2, Number.NEGATIVE_INFINITY]);
  const adjustment = {
    ...{ repeat: 1.5, frequency: 0.25, presence: -2, window: 2 },
    list: (after: number, target: AdjustedList) => {
      target.count = 0;
      for (let i = 0; i < later.count; i++) {
        target.add(later.ids[i]! + after, later.occurrences[i]!, later.biases[i]!);
      }
    },
  };
  const batch = ofUsers([7, 9], 0.8);
  batch.wantBest(0, 40, listOf([4, 3, 0.5]));
  batch.wantBest(1, 40, listOf([5, 1, 0], [6, 2, 0]));
  batch.expect(1, { ...draw(0.8), adjustment }, 9);
  const rowOf = (row: number) => {
    const at = layout.draws + row * DRAW_WORDS + 6;
    return [...area.words.subarray(at, at + 3), ...floats.subarray(at + 3, at + 6)];
  };
  const tokenAt = (place: number) => {
    const at = layout.adjusted + place * ADJUSTED_WORDS;
    return [...area.words.subarray(at, at + 2), floats[at + 2]];
  };
  const isWritten = (ranges: readonly (readonly [number, number])[], places: number) =>
    ranges.some(
      ([from, to]) => from <= layout.adjusted && to === layout.adjusted + places * ADJUSTED_WORDS,
    );
  expect(isWritten(area.fill(batch, true), 3)).toBe(true);
  expect(area.adjustedCount).toBe(3);
  expect([rowOf(0), rowOf(1)]).toEqual([
    [0, 1, 0, 1, 0, 0],
    [1, 2, 0, 1.5, 0.25, -2],
  ]);
  expect([0, 1, 2].map(tokenAt)).toEqual([
    [4, 3, 0.5],
    [5, 1, 0],
    [6, 2, 0],
  ]);
  for (const [ahead, unknown] of [
    [1, 1],
    [2, 2],
    [3, 2], // the window has no more
  ] as const) {
    expect(isWritten(area.fillAhead(batch, ahead), 2 + unknown)).toBe(true);
    expect(area.adjustedCount).toBe(2 + unknown);
    expect([rowOf(0), rowOf(1)]).toEqual([
      [0, 0, 0, 1, 0, 0],
      [0, 2, unknown, 1.5, 0.25, -2],
    ]);
    expect(tokenAt(0)).toEqual([7 + ahead, 1, 0]);
    expect(tokenAt(1)).toEqual([9 + ahead, 2, Math.fround(-3e38)]);
  }
  area.fill(ofUsers([7, 9], 0.8), true);
  expect(area.adjustedCount).toBe(0);
  expect(rowOf(1).slice(0, 3)).toEqual([0, 0, 0]);
});
