// A tensor type that Lantern does not know, added from outside: the example of docs/inside/add-a-dtype.md has only its file, and is
// computed on the reference and on every target of this processor. (On the GPU: webgpu-derived.test.ts.)

import { beforeAll, expect, test } from "vitest";
import type { DType } from "../../src/dtypes/dtype.ts";
import { dtypeByName, registerDType } from "../../src/dtypes/table.ts";
import { blockValues } from "../dtypes/block-values.ts";
import { loadExample } from "../support/doc-examples.ts";
import { Random } from "../support/random.ts";
import { firstBatchDifference, firstDifference } from "./run-case.ts";
import { dtypeCase } from "./table.ts";
import { cpuBackend, cpuTargets } from "./targets.ts";

let q1_0: DType;

beforeAll(async () => {
  ({ q1_0 } = (await loadExample("src/dtypes/q1_0.ts")) as { q1_0: DType });
  registerDType(q1_0);
});

test("its description is its dequantize", () => {
  const random = new Random(1);
  expect(dtypeByName("q1_0")).toBe(q1_0);
  for (let i = 0; i < 100; i++) {
    const bytes = Uint8Array.from({ length: q1_0.blockBytes }, () => random.below(256));
    const expected = new Float32Array(q1_0.blockElems);
    q1_0.dequantize(bytes, 0, expected, 0, 1);
    expect(blockValues(q1_0, bytes)).toEqual(expected);
  }
});

test("reference", async () => {
  const { make, batches } = dtypeCase(q1_0);
  expect(await firstBatchDifference(make(), batches)).toBeUndefined();
});

for (const target of cpuTargets) {
  const { name, lacks } = target;
  if (lacks !== undefined) test.skip(`${name} [skipped: ${lacks}]`, () => {});
  else {
    test(name, async () => {
      const each = dtypeCase(q1_0);
      const backend = cpuBackend(target);
      const wrong = await firstDifference(backend, each.make(), each, each.batches);
      backend.dispose();
      expect(wrong).toBeUndefined();
    });
  }
}
