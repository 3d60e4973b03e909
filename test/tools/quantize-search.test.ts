// The vectorized searches and rounding kernels find the bits of the types' own quantizers: on weights as they are, and on
// what is odd (groups of zeros, of equal values, of one sign, tiny and huge ones), with an importance matrix and without.

import { describe, expect, test } from "vitest";
import type { DType } from "../../src/dtypes/dtype.ts";
import { allDTypes } from "../../src/dtypes/table.ts";
import { plainQuantize, quantizeChunk } from "../../src/tools/quantize/chunk.ts";
import { fastQuantizer } from "../../src/tools/quantize/fast.ts";
import { fastWiden, plainWiden } from "../../src/tools/quantize/widen.ts";
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

/** Types that search a codebook do so block by block, and slowly. */
function hasPoints({ block }: DType): boolean {
  return block.kind === "quants" && (block.codebook?.size ?? 1) > 1;
}

describe.each(writable.map(({ name }) => name))("%s", (name) => {
  const dtype = writable.find((type) => type.name === name)!;
  test.each(Object.keys(changes))("values: %s", (kind) => {
    const random = new Random(5);
    const elems = kind === "as they are" && !hasPoints(dtype) ? many : few;
    const values = Float32Array.from({ length: elems }, (_, i) =>
      changes[kind]!(0.02 * random.normal(), i),
    );
    const importance = Float32Array.from({ length: 768 }, () => Math.exp(3 * random.normal()));
    const blocks = elems / dtype.blockElems;
    for (const weights of dtype.needsImportance === "always"
      ? [importance]
      : [undefined, importance]) {
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

test("sums that overflow are an error, not a block", () => {
  const values = new Float32Array(256).map((_, i) => (i % 7) * 50 - 150);
  const chunk = {
    tensor: "t",
    source: "f32",
    target: "iq2_xs",
    rows: 1,
    cols: 256,
    bytes: new Uint8Array(values.buffer),
    importance: new Float32Array(256).fill(3e38),
    measure: false,
  };
  for (const quantizer of [plainQuantize, quick]) {
    expect(() => quantizeChunk(chunk, quantizer)).toThrow(
      /tensor "t" has values or importances that are too large for iq2_xs/,
    );
  }
});

describe("half floats become the same floats", () => {
  const widen = fastWiden();
  test.each(["f16", "bf16", "f32", "q8_0"])("%s", (name) => {
    const dtype = allDTypes().find((type) => type.name === name)!;
    // All bit patterns but for infinities and NaNs, in a length that is no whole number of turns.
    const length = 65_536 + 32 * 3;
    const bits = Uint16Array.from({ length: length + 7 * 32 }, (_, i) =>
      (i & 0x7c00) === 0x7c00 || (i & 0x7f80) === 0x7f80 ? 0x3bff : i,
    );
    for (const elems of [length, dtype.blockElems === 1 ? length + 7 : length]) {
      const size = (elems / dtype.blockElems) * dtype.blockBytes;
      const bytes = new Uint8Array(Math.max(size, bits.byteLength));
      bytes.set(new Uint8Array(bits.buffer));
      const [expected, got] = [new Float32Array(elems), new Float32Array(elems)];
      const largest = plainWiden(dtype, bytes.subarray(0, size), expected);
      expect(widen(dtype, bytes.subarray(0, size), got)).toBe(largest);
      expect(new Uint8Array(got.buffer)).toEqual(new Uint8Array(expected.buffer));
    }
  });

  test.each([3, 40_000, 65_539])("what is not finite is seen at %i", (at) => {
    const dtype = allDTypes().find((type) => type.name === "f16")!;
    const halves = new Uint16Array(65_540).fill(0x3c00);
    const bytes = new Uint8Array(halves.buffer);
    const values = new Float32Array(halves.length);
    expect(widen(dtype, bytes, values)).toBe(1);
    halves[at] = 0xfe00;
    expect(widen(dtype, bytes, values)).toBeNaN();
    halves[at] = 0xfc00;
    expect(widen(dtype, bytes, values)).toBe(Number.POSITIVE_INFINITY);
  });
});
