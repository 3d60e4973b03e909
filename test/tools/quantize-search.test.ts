// The vectorized searches and rounding kernels find the bits of the types' own quantizers: on weights as they are, and on
// what is odd (groups of zeros, of equal values, of one sign, tiny and huge ones), with an importance matrix and without.

import { describe, expect, test } from "vitest";
import { allDTypes } from "../../src/dtypes/table.ts";
import { plainQuantize } from "../../src/tools/quantize/chunk.ts";
import { fastQuantizer } from "../../src/tools/quantize/fast.ts";
import { Random } from "../support/random.ts";

/** More than are searched at a time, and no multiple of it; of what is odd, less will do. */
const [many, few] = [256 * 33, 256 * 3];
const quick = fastQuantizer();

type Change = (value: number, i: number) => number;

const changes: Readonly<Record<string, Change>> = {
  "as they are": (x) => x,
  "all zero": () => 0,
  "groups of zeros": (x, i) => (i % 64 < 32 ? 0 : x),
  "all equal": () => 0.01,
  "all equal, negative": () => -0.01,
  positive: (x) => Math.abs(x),
  "zeros of both signs, the least": (x, i) => (i % 3 ? Math.abs(x) : i % 2 ? -0 : 0),
  "far below zero": (x) => -Math.abs(x) - 1,
  tiny: (x) => x * 1e-20,
  denormal: (x) => x * 2 ** -126,
  huge: (x) => x * 1e12,
  "beyond overflow": (x) => x * 1e19,
  "one large value": (x, i) => (i % 32 === 3 ? 5 : 1e-4 * x),
  "ties of magnitude": (_, i) => (i % 2 ? 0.5 : -0.5),
  "halves between codes": (_, i) => (i % 32 === 0 ? 127 : (i % 29) - 14.5),
};

const writable = allDTypes().filter(({ quantize, blockElems }) => quantize && blockElems > 1);

describe.each(writable.map(({ name }) => name))("%s", (name) => {
  const dtype = writable.find((type) => type.name === name)!;
  test.each(Object.keys(changes))("values: %s", (kind) => {
    const random = new Random(5);
    const elems = kind === "as they are" ? many : few;
    const values = Float32Array.from({ length: elems }, (_, i) =>
      changes[kind]!(0.02 * random.normal(), i),
    );
    const importance = Float32Array.from({ length: 768 }, () => Math.exp(3 * random.normal()));
    const blocks = elems / dtype.blockElems;
    for (const weights of [undefined, importance]) {
      const [expected, got] = [0, 1].map(() => new Uint8Array(blocks * dtype.blockBytes)) as [
        Uint8Array,
        Uint8Array,
      ];
      plainQuantize(dtype, values, expected, blocks, weights);
      quick(dtype, values, got, blocks, weights);
      expect(got.findIndex((byte, i) => byte !== expected[i])).toBe(-1);
    }
  });
});
