// SHA-256 as Node's own crypto computes it.

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { hex, sha256 } from "../../src/base/sha256.ts";

test("every length around the borders of blocks, and long inputs", () => {
  for (const length of [0, 1, 3, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 1000, 100_003]) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 7 + length) & 255);
    expect(hex(sha256(bytes)), `${length} bytes`).toBe(
      createHash("sha256").update(bytes).digest("hex"),
    );
  }
});
