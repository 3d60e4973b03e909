// Attention and its options on the reference, on WebAssembly and on the machine code that runs here, against doubles
// (attention-cases.ts). On the GPU: attention-webgpu.test.ts.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { someOf } from "../support/exhaustive.ts";
import { nativeHere } from "../support/native.ts";
import {
  type AttentionCase,
  attended,
  attentionCases,
  cacheTypes,
  expectedOf,
  firstWrong,
} from "./attention-cases.ts";

const cpu = { level: 3, threads: 1, startThread: undefined } as const;
const backends: readonly { name: string; make: () => Backend }[] = [
  { name: "reference", make: () => new ReferenceBackend() },
  { name: "wasm", make: () => new CpuBackend({ ...cpu, native: "a test" }) },
  ...nativeHere.map(({ name, native }) => ({
    name,
    make: () => new CpuBackend({ ...cpu, native }),
  })),
];

/** The other types of cache are other kernels for the same calls: some of them. */
const picked = ["a window of 40", "a window of 7", "everything"];
const isPicked = ({ name }: AttentionCase) => picked.some((each) => name.startsWith(each));
const ofOthers = someOf("attention", attentionCases, attentionCases.filter(isPicked));
/** Types with a format of their own: one case each, of all options. */
const ofMore = ofOthers.filter(({ name }) => name === "everything" || ofOthers === attentionCases);
const casesOf = (kvType: string): readonly AttentionCase[] => {
  if (kvType === "f32") return attentionCases;
  return kvType === "f16" || kvType === "q8_0" ? ofOthers : ofMore;
};
const quickTypes = ["f32", "f16", "bf16", "q8_0", "q4_0", "q5_1", "iq4_nl", "q8_0/q4_0"];
const types = someOf(
  "types of a cache",
  cacheTypes,
  cacheTypes.filter(({ kvType }) => quickTypes.includes(kvType)),
);

describe.each(types)("a cache of $kvType", ({ kvType, tolerance }) => {
  test.each(casesOf(kvType))("$name", async (one) => {
    const want = expectedOf(one, kvType);
    for (const { name, make } of backends) {
      const backend = make();
      const got = await attended(backend, one, kvType, (lines) => {
        // The path that ran is the one that was meant.
        expect(lines.filter((line) => line.includes("reference ("))).toEqual([]);
      });
      expect(firstWrong(got, want, tolerance), name).toBeUndefined();
    }
  });
});
