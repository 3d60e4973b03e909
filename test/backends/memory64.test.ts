// Addresses above 4 GiB without a model of that size: everything is behind a gap of 5 GiB that is reserved but never
// prefetched. The results are exactly those below 4 GiB.

import { describe, expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { attentionMix } from "../../src/kernels/ops/attention/attention-mix.ts";
import { attentionScores } from "../../src/kernels/ops/attention/attention-scores.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { load, runBatches } from "./tiny-backend.ts";

const GIB = 2 ** 30;
const { memory64 } = detectWasmFeatures();

async function logits(level: 2 | 3, threads: number, memoryStart: number, options: TinyOptions) {
  const startThread = () => nodePlatform.startThread("compute");
  const backend = new CpuBackend({ level, threads, startThread, memoryStart });
  await load(backend, options);
  const isWide = backend.explain().some((line) => line.startsWith("64-bit addresses"));
  const seen = await runBatches(backend, options);
  backend.copyKvBlock(2, 1);
  backend.dispose();
  return { isWide, seen };
}

describe.skipIf(!memory64)(
  `memory64${memory64 ? "" : " [this engine has no 64-bit addresses]"}`,
  () => {
    test.each([
      [3, 1, { weightType: "q4_0" }],
      [3, 2, { weightType: "q8_0", kvType: "q8_0" }],
      [3, 1, { weightType: "f16", kvType: "f32" }],
      [3, 2, { architecture: "qwen2", feedForward: 36, vocab: 51 }],
      [2, 2, { weightType: "q5_1" }],
    ] as [2 | 3, number, TinyOptions][])(
      "level %i, %i threads, %o: the same numbers behind 5 GiB",
      async (level, threads, options) => {
        const low = await logits(level, threads, 0, options);
        const high = await logits(level, threads, 5 * GIB, options);
        expect([low.isWide, high.isWide]).toEqual([false, true]);
        expect(high.seen).toEqual(low.seen);
      },
    );

    test("the keys and values of a layer may be more than 2 GiB apart", () => {
      const cache = 4.5 * GIB;
      const rowBytes = 2 ** 20; // a block of 32 rows is 32 MiB, and block 80 starts at 2.5 GiB
      const table = [80, 3];
      const headDim = 32;
      const length = 33; // one whole block, and a row of the next
      const memory = newMemory(Math.ceil((cache + 81 * 32 * rowBytes) / 65536));
      const floats = new Float32Array(memory.buffer);
      new Int32Array(memory.buffer, 0, 2).set(table);
      const [query, scores, out] = [1024, 2048, 4096];
      for (let i = 0; i < headDim; i++) floats[query / 4 + i] = i + 1;
      for (let p = 0; p < length; p++) {
        const at = cache + (table[Math.floor(p / 32)]! * 32 + (p % 32)) * rowBytes;
        for (let i = 0; i < headDim; i++) floats[at / 4 + i] = (p % 5) - 2 + (i % 3);
      }
      const { attn_scores_f32, attn_mix_f32 } = run(
        [...attentionScores, ...attentionMix].map((make) => make(16)),
        memory,
      );
      attn_scores_f32!(query, cache, 0, scores, 1, 1, rowBytes, 0, headDim);
      const expected = Array.from({ length }, (_, p) => {
        let sum = 0;
        for (let i = 0; i < headDim; i++) sum += (i + 1) * ((p % 5) - 2 + (i % 3));
        return sum;
      });
      expect([...floats.subarray(scores / 4, scores / 4 + length)]).toEqual(expected);
      attn_mix_f32!(scores, cache, 0, out, 1, 1, rowBytes, 0, headDim, 1);
      const mixed = Array.from({ length: headDim }, (_, i) =>
        expected.reduce((sum, score, p) => sum + score * ((p % 5) - 2 + (i % 3)), 0),
      );
      expect([...floats.subarray(out / 4, out / 4 + headDim)]).toEqual(mixed);
    });
  },
);

function newMemory(pages: number): WebAssembly.Memory {
  const size = { address: "i64", initial: BigInt(pages), maximum: BigInt(pages) };
  return new WebAssembly.Memory(size as unknown as WebAssembly.MemoryDescriptor);
}

function run(kernels: Kernel[], memory: WebAssembly.Memory) {
  const functions = kernels.map((kernel) =>
    lowerToWasm(kernel, { relaxed: false, memory64: true }),
  );
  const limits = { initial: 1, maximum: 262144, shared: false, memory64: true };
  const module = new WebAssembly.Module(assembleModule(functions, limits));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  return exports as Record<string, (...args: number[]) => void>;
}
