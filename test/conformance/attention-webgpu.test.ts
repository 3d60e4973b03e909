// Attention and its options on the GPU, node by node, against doubles (attention-cases.ts): by the kernel that goes position
// by position, and by subgroups of lanes. Fused with rope and what follows: test/backends/webgpu-fused.test.ts.

import { expect, test } from "vitest";
import { tuningFor } from "../../src/backends/webgpu/tuning.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { hasSubgroups } from "../../src/backends/webgpu/wgsl/attention-subgroups.ts";
import { kvFormatOf } from "../../src/backends/webgpu/wgsl/kv-formats.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { attended, attentionCases, cacheTypes, expectedOf, firstWrong } from "./attention-cases.ts";

/** By the lanes of a workgroup; 0: position by position. */
const kinds = [
  { kvType: "f32", lanes: 0 },
  { kvType: "f16", lanes: 64 },
  { kvType: "q8_0", lanes: 0 },
];
/** Subgroups read rows of Q8_0 that are multiples of 128 values, in heads of one size. */
const blockCases = [
  "all positions",
  "sinks and a window, no shared heads",
  "chunks of 7, no shared heads",
  "not causal, no shared heads",
].map((name) => {
  const one = attentionCases.find((each) => each.name === name)!;
  return { ...one, heads: (one.heads / one.kvHeads) * 4, kvHeads: 4, headDim: 32 };
});
/** Types with formats of their own, and caches of two types: one case of all options each. */
const others = cacheTypes.filter(({ kvType }) => !kinds.some((kind) => kind.kvType === kvType));
const someOthers = ["q4_0", "q5_1", "iq4_nl/bf16"];
/** Fewer than elsewhere: a software adapter takes seconds to compile each of them. */
const picked = [
  "sinks and a window, no shared heads",
  "everything",
  "everything, not causal, no shared heads",
];
const cases = someOf(
  "attention",
  attentionCases,
  attentionCases.filter(({ name }) => picked.includes(name)),
);

describeGpu("webgpu: attention", () => {
  const few = others.filter(({ kvType }) => someOthers.includes(kvType));
  test.each(someOf("types of a cache", others, few))("a cache of $kvType", async ({ kvType }) => {
    const one = attentionCases.find(({ name }) => name === "everything")!;
    const got = await attended(new WebGpuBackend(await openGpu()), one, kvType);
    expect(firstWrong(got, expectedOf(one, kvType), 1e-5)).toBeUndefined();
  });

  test.each(kinds)("a cache of $kvType, workgroups of $lanes lanes", async ({ kvType, lanes }) => {
    for (const one of cases) {
      const gpu = await openGpu();
      const tuning = {
        ...tuningFor(gpu.facts),
        attentionSize: lanes,
        promptAttentionSize: lanes,
      };
      const got = await attended(new WebGpuBackend(gpu, { tuning }), one, kvType);
      expect(firstWrong(got, expectedOf(one, kvType), 1e-5), one.name).toBeUndefined();
    }
  });

  test.each(blockCases)("a cache of q8_0, by subgroups: $name", async (one) => {
    const format = kvFormatOf(dtypeByName("q8_0")!)!;
    expect(hasSubgroups({ ...one, vHeadDim: one.headDim }, { k: format, v: format })).toBe(true);
    const gpu = await openGpu();
    const tuning = { ...tuningFor(gpu.facts), attentionSize: 64, promptAttentionSize: 64 };
    const got = await attended(new WebGpuBackend(gpu, { tuning }), one, "q8_0");
    expect(firstWrong(got, expectedOf(one, "q8_0"), 1e-5)).toBeUndefined();
  });
});
