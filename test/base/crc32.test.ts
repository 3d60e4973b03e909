// CRC-32 as zlib computes it.
// Held against: node:zlib.

import { crc32 as zlibCrc32 } from "node:zlib";
import { expect, test } from "vitest";
import { crc32 } from "../../src/base/crc32.ts";

test("every length around a step, and long inputs", () => {
  for (const length of [0, 1, 7, 8, 9, 15, 16, 17, 255, 256, 100_003]) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 31 + length) & 255);
    expect(crc32(bytes), `${length} bytes`).toBe(zlibCrc32(bytes));
    const [start, end] = [bytes.subarray(0, length / 3), bytes.subarray(length / 3)];
    expect(crc32(end, crc32(start)), `${length} bytes in two pieces`).toBe(zlibCrc32(bytes));
  }
});
