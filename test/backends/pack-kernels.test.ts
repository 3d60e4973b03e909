// Kernels that pack weights against the same packing in TypeScript, byte for byte: interpreted for every target, with bounds
// checked, and as WebAssembly and machine code where this machine runs them. And that every target has code for them.

import { expect, test } from "vitest";
import type { Kernels } from "../../src/backends/cpu/executor.ts";
import { interpretedCalls, rangesOf } from "../../src/backends/cpu/guard/guard-calls.ts";
import { Arena } from "../../src/backends/cpu/memory/arena.ts";
import { Memories } from "../../src/backends/cpu/memory/memories.ts";
import { Packer, packKernels } from "../../src/backends/cpu/memory/repack.ts";
import { WeightStore } from "../../src/backends/cpu/memory/weights.ts";
import { openNativeJob } from "../../src/backends/cpu/native/entry.ts";
import { lowerings } from "../../src/backends/cpu/native/native.ts";
import { instantiate } from "../../src/backends/cpu/threads/compute.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { OpKind, Weight } from "../../src/graph/graph.ts";
import type { NativeFunction } from "../../src/kernels/asm/native-function.ts";
import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { packKernelOf } from "../../src/kernels/ops/packed/pack-kernels.ts";
import { PANEL_ROWS } from "../../src/kernels/ops/packed/packed.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { type KernelTarget, nativeTargets, wasmTarget } from "../../src/kernels/target.ts";
import { firstDifference } from "../kernels/same-memory.ts";
import { nativeHere } from "../support/native.ts";
import { Random } from "../support/random.ts";
import { skippedFor } from "../support/skips.ts";

/** One of each layout. */
const targets: readonly KernelTarget[] = [
  wasmTarget({ dot4: "i7", vectorRegisters: 16 }),
  nativeTargets["arm64-dotprod"],
  nativeTargets["x64-avx2"],
  nativeTargets["x64-avx512"],
];
const types = [
  ...packedTypes().filter((type) => packKernelOf(type, targets[0]!)),
  ...["f32", "f16", "bf16"],
];
const cases = types.flatMap((type) =>
  targets.map((target) => [type, target.name, target.dot4, target] as const),
);

/** Three panels of rows and a part of one: likely weights, any bytes, and bytes whose half floats are small or subnormal. */
function rowsOf(type: string, cols: number): Uint8Array<ArrayBuffer> {
  const dtype = dtypeByName(type)!;
  const panel = bytesFor(dtype, cols) * PANEL_ROWS;
  const bytes = new Uint8Array(3.25 * panel);
  const random = new Random(7);
  for (let at = 0; at < bytes.length; at++) bytes[at] = random.below(256);
  for (let at = 2 * panel; at < 3 * panel; at++) bytes[at]! &= 0x43;
  bytes.set(sampleBlocks(dtype, PANEL_ROWS * cols));
  return bytes;
}

type MakeKernels = (kernels: readonly Kernel[], arena: Arena) => Kernels;

/** The panels as bytes, and how often a kernel was called. */
async function pack(
  type: string,
  target: KernelTarget,
  cols: number,
  make: MakeKernels,
): Promise<{ panels: Uint8Array<ArrayBuffer>; calls: number }> {
  const weight: Weight = { name: "w", shape: [3.25 * PANEL_ROWS, cols], dtype: dtypeByName(type)! };
  const arena = new Arena({ shared: true, memory64: false, start: 0, guard: true });
  const store = new WeightStore(arena, target, 3);
  const program = store.place(new Map([[weight, new Set<OpKind>(["matmul"])]]), 1);
  arena.commit();
  const made = Object.entries(make(packKernels(program), arena));
  let calls = 0;
  const counted = made.map(([name, run]) => [
    name,
    (...args: number[]) => {
      calls++;
      run(...args);
    },
  ]);
  const bytes = rowsOf(type, cols);
  const packer = new Packer(
    program,
    new Memories(arena.views),
    Object.fromEntries(counted),
    () => false,
  );
  await store.upload(weight, async (to, at) => to.set(bytes.subarray(at, at + to.length)), packer);
  await packer.flush();
  const { at, rowPanelBytes } = program.instructions[0]!;
  return { panels: arena.views.u8.slice(at, at + 4 * rowPanelBytes), calls };
}

/** Columns that are whole visits of floats (pack-floats.ts) and a rest; of blocks, eight, or a span of 256. */
function colsOf(type: string): number {
  return packingOf(type) ? 256 : 44;
}

const interpreted =
  (target: KernelTarget): MakeKernels =>
  (kernels, arena) =>
    interpretedCalls(kernels, rangesOf(arena), arena.memory.buffer, { dot4: target.dot4 });

test.each(cases)("%s for %s, dot4 %s: as in TypeScript", async (type, _name, _dot4, target) => {
  const cols = colsOf(type);
  const { panels: expected } = await pack(type, target, cols, () => ({}));
  const { panels, calls } = await pack(type, target, cols, interpreted(target));
  expect(calls).toBe(3);
  const everywhere = [{ from: 0, to: panels.length, kind: "f32" as const }];
  expect(firstDifference(panels, expected, everywhere)).toBeUndefined();
});

test.each(types)("%s has a kernel on every target of machine code", (type) => {
  for (const [name, target] of Object.entries(nativeTargets)) {
    const lower = lowerings[name as keyof typeof nativeTargets];
    const arena = new Arena({ shared: false, memory64: false, start: 0 });
    const weight: Weight = { name: "w", shape: [16, 512], dtype: dtypeByName(type)! };
    const store = new WeightStore(arena, target, 3);
    const program = store.place(new Map([[weight, new Set<OpKind>(["matmul"])]]), 1);
    expect(packKernels(program).map((kernel) => lower(kernel).bytes.length > 0)).toEqual([true]);
  }
});

const here = wasmTarget(detectWasmFeatures());
const inWasm: MakeKernels = (kernels, arena) => {
  const code = kernels.map((kernel) => lowerToWasm(kernel, { relaxed: false, memory64: false }));
  const module = new WebAssembly.Module(assembleModule(code, arena.memoryLimits));
  return instantiate(module, arena.memory);
};

test.each(types)("%s in WebAssembly: as in TypeScript", async (type) => {
  const cols = colsOf(type);
  const { panels: expected } = await pack(type, here, cols, () => ({}));
  const { panels } = await pack(type, here, cols, inWasm);
  const everywhere = [{ from: 0, to: panels.length, kind: "f32" as const }];
  expect(firstDifference(panels, expected, everywhere)).toBeUndefined();
});

test.skipIf(nativeHere.length === 0).each(types)(
  `%s in machine code: as in TypeScript${skippedFor("none of the targets runs here", nativeHere.length === 0)}`,
  async (type) => {
    for (const { native } of nativeHere) {
      const cols = colsOf(type);
      const inCode: MakeKernels = (kernels, arena) => {
        const image = native.link(kernels.map((kernel) => native.lower(kernel) as NativeFunction));
        // Nothing else is in the first page.
        return openNativeJob({ image, blocks: 0 }, native.host, arena.memory.buffer, 0);
      };
      const { panels: expected } = await pack(type, native.target, cols, () => ({}));
      const { panels } = await pack(type, native.target, cols, inCode);
      const everywhere = [{ from: 0, to: panels.length, kind: "f32" as const }];
      expect(firstDifference(panels, expected, everywhere)).toBeUndefined();
    }
  },
);
