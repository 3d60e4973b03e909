// The codebook types over a million values each, bit for bit as ggml gives them.
//
// The conformance suite's 64 blocks do not meet every point of the larger codebooks; 4096 do. Stored
// is only a hash: SHA-256 of the float32 bytes that ggml's dequantize_row_* (libggml-base of
// node-llama-cpp 3.22.1) makes of the generated blocks.

import { describe, expect, test } from "vitest";
import {
  iq1sCodebook,
  iq2sCodebook,
  iq2xsCodebook,
  iq2xxsCodebook,
  iq3sCodebook,
  iq3xxsCodebook,
  paritySigns,
} from "../../src/dtypes/codebooks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { floatBytes, randomBytes, sha256 } from "./golden.ts";

const blocks = 4096;

const hashes: [name: string, sha256: string][] = [
  ["iq2_xxs", "4bba8f0d6c2e73ee6e5a4473c252626179f92d5454a557437d88946146222736"],
  ["iq2_xs", "c9f724fac640aec7eeff6748c310689292f02dbad8ea2f80c9b64aee2bbc5fa8"],
  ["iq2_s", "fcaa48c8139092cd795d907be8ca42f6b9c5c4ef9a9c5bf961217650885bffc3"],
  ["iq3_xxs", "0cce7cccc50907bd14bc91472d8715059e98820ed3ffba37ddd0d2f98914f9fc"],
  ["iq3_s", "551df18c6bc5be98482af5e8bae86cfcb74cc6ceccf411aec750cc95eac33570"],
  ["iq1_s", "5bc4bc8f7e6de6f99d4d3fe21a16ce4703a7ffc952823469241ba35cef1adab5"],
  ["iq1_m", "8d6aed94a89273aa2bf812e13674dcd381626397f7cf82e7468c108629127c9d"],
];

test.each(hashes)("%s has ggml's values for 4096 random blocks", (name, hash) => {
  const dtype = dtypeByName(name)!;
  const values = new Float32Array(blocks * dtype.blockElems);
  dtype.dequantize(randomBytes(1, blocks * dtype.blockBytes), 0, values, 0, blocks);
  expect(sha256(floatBytes(values))).toBe(hash);
});

describe("codebooks", () => {
  test.each([
    ["iq2xxs", iq2xxsCodebook, 256, 8],
    ["iq2xs", iq2xsCodebook, 512, 8],
    ["iq2s", iq2sCodebook, 1024, 8],
    ["iq3xxs", iq3xxsCodebook, 256, 4],
    ["iq3s", iq3sCodebook, 512, 4],
    ["iq1s", iq1sCodebook, 2048, 8],
  ] as const)("%s has its size, and is decoded once", (_name, grid, points, width) => {
    expect(grid().length).toBe(points * width);
    expect(grid()).toBe(grid());
  });

  test("seven sign bits make eight signs with an even number of minuses", () => {
    for (let row = 0; row < 128; row++) {
      const signs = paritySigns().subarray(8 * row, 8 * row + 8);
      expect(signs.reduce((product, sign) => product * sign)).toBe(1);
      expect([...signs.subarray(0, 7)]).toEqual(
        Array.from({ length: 7 }, (_, j) => ((row >> j) & 1 ? -1 : 1)),
      );
    }
  });
});
