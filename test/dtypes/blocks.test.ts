// Every type's description of its blocks gives the values of its dequantize, bit for bit: for random bytes, which make scales
// of any size, infinite and no numbers among them, and for blocks of all zeros and all ones.

import { expect, test } from "vitest";
import type { DType } from "../../src/dtypes/dtype.ts";
import { allDTypes } from "../../src/dtypes/table.ts";
import { Random } from "../support/random.ts";
import { bitsRead, blockValues } from "./block-values.ts";

const types = allDTypes().map((dtype) => ({ name: dtype.name, dtype }));

function dequantized(dtype: DType, bytes: Uint8Array): Float32Array {
  const values = new Float32Array(dtype.blockElems);
  dtype.dequantize(bytes, 0, values, 0, 1);
  return values;
}

/** Blocks of 256 are read bit by bit: a few hundred of them take a second. */
function blocksOf({ blockBytes, blockElems }: DType): Uint8Array[] {
  const random = new Random(blockBytes);
  const some = Array.from({ length: blockElems === 256 ? 60 : 300 }, () =>
    Uint8Array.from({ length: blockBytes }, () => random.below(256)),
  );
  return [...some, new Uint8Array(blockBytes), new Uint8Array(blockBytes).fill(255)];
}

test.each(types)("$name", ({ dtype }) => {
  let finite = 0;
  for (const bytes of blocksOf(dtype)) {
    const expected = dequantized(dtype, bytes);
    expect(blockValues(dtype, bytes)).toEqual(expected);
    if (expected.every(Number.isFinite)) finite++;
  }
  expect(finite).toBeGreaterThan(10);
});

/** The sum of a block's quants, which dot products use and values do not. */
const unread: Readonly<Record<string, readonly [from: number, to: number]>> = {
  q8_1: [16, 32],
  q8_k: [8 * 260, 8 * 292],
};

test.each(types)("$name: every bit of a block is described", ({ name, dtype }) => {
  const read = bitsRead(dtype);
  expect(read.length).toBe(8 * dtype.blockBytes);
  const [from, to] = unread[name] ?? [0, 0];
  const left = [...read.keys()].filter((bit) => !read[bit] && (bit < from || bit >= to));
  expect(left).toEqual([]);
});
