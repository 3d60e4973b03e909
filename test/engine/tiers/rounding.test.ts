// Stored state is used by later versions of Lantern, so its key has the version of how kernels round. These hashes of logits are those
// of that version. Where one differs, some kernel rounds otherwise than before: raise ROUNDING_VERSION in
// src/engine/tiers/keys.ts, and put the new hashes here.
// Held against: hashes of this version's logits.

import { createHash } from "node:crypto";
import { arch } from "node:process";
import { expect, test } from "vitest";
import { CpuBackend } from "../../../src/backends/cpu/cpu.ts";
import { computeLogits } from "../../../src/engine/compute-logits.ts";
import { ROUNDING_VERSION } from "../../../src/engine/tiers/keys.ts";
import { tinyEngine } from "../../support/tiny-engine.ts";

const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
const tokens = Array.from({ length: 45 }, (_, i) => 4 + ((i * 7 + ((i * i) >> 2)) % 40));
const weightTypes = ["f32", "f16", "q8_0", "q4_0", "q5_1"];

/** By version and architecture: the compiler's choice of fused operations differs. */
const known: Readonly<Record<string, readonly string[]>> = {
  "2 arm64": ["06b40d3e7968", "21126959a9f7", "05fab47f1bf1", "5c3c475dd645", "cf6fd41b82e4"],
};

test("kernels round as the version in the key of stored state says", async ({ skip }) => {
  const hashes: string[] = [];
  for (const weightType of weightTypes) {
    const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
    const engine = await tinyEngine({ weightType, kvType: "f16", backend });
    const { positions } = await computeLogits(engine, tokens, { top: 3, greedy: 6 }, control);
    hashes.push(createHash("sha256").update(JSON.stringify(positions)).digest("hex").slice(0, 12));
    engine.dispose();
  }
  const expected = known[`${ROUNDING_VERSION} ${arch}`];
  if (!expected) skip(`no hashes of version ${ROUNDING_VERSION} on ${arch}: ${hashes.join(" ")}`);
  else
    expect(Object.fromEntries(weightTypes.map((type, i) => [type, hashes[i]]))).toEqual(
      Object.fromEntries(weightTypes.map((type, i) => [type, expected[i]])),
    );
});
