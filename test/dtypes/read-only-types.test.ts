// Types that are only read: a million values of each, bit for bit as ggml gives them.
//
// The blocks come from the generator below, so that nothing has to be stored but a hash: SHA-256 of
// the float32 bytes that ggml's dequantize_row_* (libggml-base of node-llama-cpp 3.22.1) makes of
// the same blocks. 4096 random blocks use every point of every codebook. The conformance suite has
// small vectors of the same types; this test is wide.

import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import {
  iq1sGrid,
  iq2sGrid,
  iq2xsGrid,
  iq2xxsGrid,
  iq3sGrid,
  iq3xxsGrid,
  paritySigns,
} from "../../src/dtypes/codebooks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";

const blocks = 4096;

/** `dHigh`: the byte that holds the top bits of the f16 scale; its exponent is kept finite. */
const cases: { name: string; dHigh?: number; sha256: string }[] = [
  {
    name: "iq2_xxs",
    dHigh: 1,
    sha256: "970fcabbfa2ba21cdc27bc606ed435efececd5df0893192852057351e373ba9b",
  },
  {
    name: "iq2_xs",
    dHigh: 1,
    sha256: "c70a531fa2b6569474b09d1215e7a5387cfa5023da098e44a23eb40337b3ac12",
  },
  {
    name: "iq2_s",
    dHigh: 1,
    sha256: "8c7d8ac3216971ce8b6c012d7928381c6bfa403adea50e87a7554be6bf720ad9",
  },
  {
    name: "iq3_xxs",
    dHigh: 1,
    sha256: "ccf0601e1ed39389d1ad3d4988d1c8998b05b1af6e4edb5085d935078ec66256",
  },
  {
    name: "iq3_s",
    dHigh: 1,
    sha256: "8a1a0c8b5749e456fe48a04570a880d6bcecd6521fa596ea0ca2f92d198d7d46",
  },
  {
    name: "iq1_s",
    dHigh: 1,
    sha256: "2168b656712d9051fa270cd2f5625e70880ec2f891c81f60c0394de7af16e6ef",
  },
  {
    name: "iq1_m",
    dHigh: 55,
    sha256: "9197bd78d0fdaadda4e20fe7df4922b06e509fa074eb3cd296ed7f220ff476c3",
  },
  {
    name: "tq1_0",
    dHigh: 53,
    sha256: "95b3bfa6b2027baa1448f17d7bdc1d89fa5753a92585bbada95ac3c1c044a743",
  },
  {
    name: "tq2_0",
    dHigh: 65,
    sha256: "a6ab06e0dd58d0be272dd6195554c4cbe9d79207d2a10973acfb47b5c4130cc8",
  },
  { name: "mxfp4", sha256: "f099d4a9c11f4d66c38235ef8c356dbc3f86be56b9db0e70ba5b2de511f3e141" },
];

function randomBlocks(count: number, bytes: number, dHigh: number | undefined): Uint8Array {
  const data = new Uint8Array(count * bytes);
  let state = 1;
  for (let i = 0; i < data.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    data[i] = state >>> 24;
  }
  if (dHigh !== undefined) for (let b = 0; b < count; b++) data[b * bytes + dHigh]! &= 0xbf;
  return data;
}

describe.each(cases)("$name", ({ name, dHigh, sha256 }) => {
  const dtype = dtypeByName(name)!;

  test("has ggml's values for 4096 random blocks", () => {
    const values = new Float32Array(blocks * dtype.blockElems);
    const data = randomBlocks(blocks, dtype.blockBytes, dHigh);
    dtype.dequantize(data, 0, values, 0, blocks);
    const hash = createHash("sha256").update(new Uint8Array(values.buffer)).digest("hex");
    expect(hash).toBe(sha256);
  });

  test("reads and writes at offsets, and nowhere else", () => {
    const data = randomBlocks(3, dtype.blockBytes, dHigh);
    const whole = new Float32Array(3 * dtype.blockElems);
    dtype.dequantize(data, 0, whole, 0, 3);

    const shifted = new Uint8Array(data.length + 5);
    shifted.set(data, 5);
    const part = new Float32Array(dtype.blockElems + 14).fill(7);
    dtype.dequantize(shifted, 5 + dtype.blockBytes, part, 7, 1);

    const expected = new Float32Array(part.length).fill(7);
    expected.set(whole.subarray(dtype.blockElems, 2 * dtype.blockElems), 7);
    expect(part).toEqual(expected);
  });
});

describe("codebooks", () => {
  test.each([
    ["iq2xxs", iq2xxsGrid, 256, 8],
    ["iq2xs", iq2xsGrid, 512, 8],
    ["iq2s", iq2sGrid, 1024, 8],
    ["iq3xxs", iq3xxsGrid, 256, 4],
    ["iq3s", iq3sGrid, 512, 4],
    ["iq1s", iq1sGrid, 2048, 8],
  ] as const)("%s has its size, and is decoded once", (_name, grid, points, width) => {
    expect(grid().length).toBe(points * width);
    expect(grid()).toBe(grid());
  });

  test("seven sign bits make eight signs with an even number of minuses", () => {
    for (let row = 0; row < 128; row++) {
      const signs = paritySigns.subarray(8 * row, 8 * row + 8);
      expect(signs.reduce((product, sign) => product * sign)).toBe(1);
      expect([...signs.subarray(0, 7)]).toEqual(
        Array.from({ length: 7 }, (_, j) => ((row >> j) & 1 ? -1 : 1)),
      );
    }
  });
});
