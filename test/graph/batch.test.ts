// The contract of a batch: the tokens of one sequence stand next to each other, at consecutive positions.
// Held against: batches and errors written here.

import { describe, expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch, type BatchSequence, tableOf } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { kvGroups, recurrentStates } from "../../src/graph/graph.ts";
import { splitGraph } from "../../src/graph/split.ts";

const limits = { maxTokens: 8, maxOutputs: 8 };
const f32 = dtypeByName("f32")!;
const [a, b, c] = [1, 2, 3].map((block) => ({ blocks: Int32Array.of(block) }));

function batchOf(tokens: readonly (readonly [typeof a, position: number])[]): Batch {
  const batch = new Batch(limits);
  for (const [sequence, position] of tokens) batch.add(0, position, sequence!, false);
  return batch;
}

describe("the tokens of a sequence", () => {
  test("follow one another, at whatever position they begin", () => {
    const batch = batchOf([[a, 7], [a, 8], [b, 0], [c, 3], [c, 4], [c, 5]]); // biome-ignore format: a batch
    expect(batch.tokenCount).toBe(6);
    batch.clear();
    batch.add(0, 2, a!, false); // what was in the batch before does not count
  });

  test("are refused with others in between", () => {
    expect(() =>
      batchOf([
        [a, 0],
        [b, 0],
        [a, 1],
      ]),
    ).toThrow(
      // biome-ignore format: a batch
      "token 2 continues the sequence of token 0, but another one is in between",
    );
    expect(() => batchOf([[a, 0], [b, 0], [b, 1], [c, 0], [b, 2]])).toThrow("token 4 continues"); // biome-ignore format: a batch
  });

  test("are refused where a position is left out or repeated", () => {
    expect(() => batchOf([[a, 0], [a, 2]])).toThrow("position 2 after 0"); // biome-ignore format: a batch
    expect(() => batchOf([[a, 5], [a, 5]])).toThrow("expected 6"); // biome-ignore format: a batch
  });
});

test("every group has the one table, unless a sequence has several", () => {
  expect(tableOf(a!, 3)).toBe(a!.blocks);
  const groups = [Int32Array.of(1), Int32Array.of(2)];
  expect(tableOf({ blocks: groups[0]!, groups }, 1)).toBe(groups[1]);
});

describe("groups of KV states", () => {
  const statesOf = (windows: readonly (number | undefined)[]) => {
    const g = new GraphBuilder();
    const table = { name: "t", shape: [4, 4], dtype: f32 };
    let x = g.embed(table, "x");
    windows.forEach((window, layer) => {
      g.layer(layer);
      g.state({ kind: "kv", layer, kCols: 4, vCols: 4, ...(window !== undefined && { window }) });
      x = g.scale(x, 2, "x");
    });
    g.state({ kind: "recurrent", layer: windows.length - 1, floats: 12 });
    g.layer(undefined);
    return g.finish({ logits: g.scale(x, 1, "logits") });
  };

  test("have one window each", () => {
    const graph = statesOf([512, undefined, 512, 1024]);
    expect(kvGroups(graph).map(({ window, states }) => [window, states.length])).toEqual([
      [512, 2],
      [Number.POSITIVE_INFINITY, 1],
      [1024, 1],
    ]);
    expect(recurrentStates(graph)).toEqual([{ kind: "recurrent", layer: 3, floats: 12 }]);
  });

  test("keep their numbers in the parts of a split graph", () => {
    const { front, back } = splitGraph(statesOf([512, 512, undefined]), 2);
    expect(kvGroups(front).map(({ states }) => states.length)).toEqual([2]);
    expect(kvGroups(back).map(({ states }) => states.length)).toEqual([0, 1]);
  });

  test.each([0, -1, 1.5, Number.NaN])("a window of %d is refused", (window) => {
    expect(() => statesOf([window])).toThrow(
      `got a window of ${window} tokens, expected an integer`,
    );
  });
});

describe("recurrent state", () => {
  const conv = (cols: number, taps: number, floats: number) => {
    const g = new GraphBuilder();
    const x = g.embed({ name: "t", shape: [4, 4], dtype: f32 }, "x");
    const state = g.state({ kind: "recurrent", layer: 0, floats });
    return g.shortConv(x, { name: "taps", shape: [cols, taps], dtype: f32 }, state, "conv");
  };

  test("of a short convolution holds the inputs that its taps reach back", () => {
    expect(conv(4, 3, 8)).toMatchObject({ rows: "tokens", cols: 4 });
    expect(() => conv(4, 3, 12)).toThrow("needs at least 2 taps and a state of 8 floats, got 12");
    expect(() => conv(4, 1, 4)).toThrow("needs at least 2 taps");
    expect(() => conv(5, 3, 10)).toThrow('operand "x" is [tokens, 4]');
  });

  test.each([0, -4, 2.5, Number.POSITIVE_INFINITY])("of %d floats is refused", (floats) => {
    expect(() => conv(4, 3, floats)).toThrow(`got recurrent state of ${floats} floats`);
  });
});

describe("short tokens", () => {
  const many = (sequence: typeof a, count: number) =>
    Array.from({ length: count }, (_, position) => [sequence, position] as const);
  const count = (...tokens: readonly (readonly [typeof a, position: number])[]) => {
    const batch = new Batch({ maxTokens: 64, maxOutputs: 1 });
    for (const [sequence, position] of tokens) batch.add(0, position, sequence!, false);
    const { short, long, tokens: all } = batch.counts();
    expect(short).toBe(batch.shortTokens);
    expect(short + long).toBe(all);
    return short;
  };

  test("are those before the first sequence of more than eight", () => {
    expect(count()).toBe(0);
    expect(count(...many(a, 8))).toBe(8);
    expect(count(...many(a, 9))).toBe(0);
    expect(count([a, 5], [b, 7], ...many(c, 9))).toBe(2);
    expect(count([a, 5], ...many(b, 20), [c, 7])).toBe(1);
    expect(count(...many(a, 8), ...many(b, 8), ...many(c, 8))).toBe(24);
    expect(count(...many(a, 8), ...many(b, 8), ...many(c, 9))).toBe(16);
  });
});

describe("batches that may follow", () => {
  const draw = { temperature: 0, topK: 1, topP: 1, minP: 0, uniform: () => 0 };
  const add = (batch: Batch, sequence: BatchSequence, follows?: number, isWhole = false) => {
    const row = batch.add(0, 5, sequence, true, true, isWhole);
    if (follows !== undefined) batch.expect(row, draw, follows);
  };

  test("are as many as all tokens allow", () => {
    const batch = new Batch(limits);
    add(batch, a!, 7);
    add(batch, b!, 3);
    expect(batch.mostAhead).toBe(3);
    batch.wantsLogits = false;
    expect(batch.mostAhead).toBe(0);
  });

  test.each<[what: string, add: (batch: Batch) => void]>([
    ["whose draw is not known", (batch) => add(batch, b!)],
    ["whose logits are read whole", (batch) => add(batch, b!, 3, true)],
    ["that is no output", (batch) => batch.add(0, 2, b!, false)],
    [
      "whose adapter begins later",
      (batch) => add(batch, { ...b!, starts: Int32Array.of(0, 6) }, 3),
    ],
  ])("are none beside a token %s", (_, addOther) => {
    const batch = new Batch(limits);
    add(batch, a!, 7);
    addOther(batch);
    expect(batch.mostAhead).toBe(0);
    batch.clear(); // what was said of an earlier batch does not count
    add(batch, a!, 2);
    expect(batch.mostAhead).toBe(2);
    batch.clear();
    add(batch, a!);
    expect(batch.mostAhead).toBe(0);
  });
});
