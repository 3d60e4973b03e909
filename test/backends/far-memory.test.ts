// Row panels in memories outside of WebAssembly's, spread over many of them: machine code gives the same bits, rows are read
// back from there, and what a backend can hold grows with them. WebAssembly's limit stays, and says why it is one.

import { describe, expect, test } from "vitest";
import { evenCapacity, type MemoryNeed } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import { Arena, MEMORY_STEP } from "../../src/backends/cpu/memory/arena.ts";
import { Memories } from "../../src/backends/cpu/memory/memories.ts";
import { Packer } from "../../src/backends/cpu/memory/repack.ts";
import { makeRowReader } from "../../src/backends/cpu/memory/table-rows.ts";
import { WeightStore } from "../../src/backends/cpu/memory/weights.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { OpKind, Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import { buildModel } from "../../src/models/build.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeElsewhere, nativeHere } from "../support/native.ts";
import { skippedFor } from "../support/skips.ts";
import {
  plainMetadata,
  type TinyOptions,
  tinyMetadata,
  tinyModel,
  tinyShape,
} from "../support/tiny-engine.ts";
import { load, runBatches } from "./tiny-backend.ts";

const GIB = 2 ** 30;
const far = { nearBytes: 0, memoryBytes: 8192 };
const startThread = () => nodePlatform.startThread("compute");
const { memory64 } = detectWasmFeatures();

async function logitsOf(changes: Partial<CpuOptions>, options: TinyOptions) {
  const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined, ...changes });
  await load(backend, options);
  const logits = await runBatches(backend, options);
  const lines = backend.explain();
  backend.dispose();
  return { logits, lines };
}

describe.skipIf(!memory64).each(nativeHere)(
  `$name${skippedFor("this engine has no memory of 64-bit addresses", !memory64)}`,
  ({ native }) => {
    test.each([
      [1, { weightType: "q4_0" }],
      [2, { weightType: "q8_0" }],
      [2, { weightType: "f16", feedForward: 36, vocab: 51 }],
      [1, { weightType: "f32" }],
    ] as [number, TinyOptions][])(
      "%i threads, %o: the same bits from far memories",
      async (threads, options) => {
        const { logits, lines } = await logitsOf({ native }, options);
        const spread = await logitsOf({ native, threads, startThread, far }, options);
        const memories = /^row panels in (\d+) memories beside WebAssembly's$/;
        expect(lines.some((line) => memories.test(line))).toBe(false);
        const count = spread.lines.map((line) => Number(memories.exec(line)?.[1] ?? 0));
        expect(Math.max(...count)).toBeGreaterThan(1);
        expect(spread.logits).toEqual(logits);
      },
    );

    test("more than 16 GiB of weights can be held", () => {
      const cpu = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });
      const need = measured(cpu);
      expect(need.weightBytes).toBeGreaterThan(24 * GIB);
      expect(need.limitBytes).toBeGreaterThan(need.weightBytes + need.kvBytes + need.workBytes);
    });

    test.each(["q4_0", "q6_k", "iq2_xs", "f16"])("rows of %s are read from there", async (type) => {
      const [rows, cols] = [37, 256];
      const dtype = dtypeByName(type)!;
      const weight: Weight = { name: "w", shape: [rows, cols], dtype };
      const bytes = sampleBlocks(dtype, rows * cols);
      const large = { nearBytes: 0, memoryBytes: GIB };
      const arena = new Arena({ shared: true, memory64, start: 0, far: large });
      const store = new WeightStore(arena, native.target, 3);
      const program = store.place(new Map([[weight, new Set<OpKind>(["embed", "matmul"])]]), 1);
      arena.commit();
      const memories = new Memories(arena.views, arena.far, native.host);
      const packer = new Packer(program, memories, {}, () => false);
      await store.upload(
        weight,
        async (to, at) => to.set(bytes.subarray(at, at + to.length)),
        packer,
      );
      await packer.flush();
      const table = store.rowsOf(weight);
      expect(table.at).toBeGreaterThanOrEqual(MEMORY_STEP);
      const { views, at } = memories.place(table.at);
      const read = makeRowReader({ ...table, at }, views);
      const [expected, got] = [new Float32Array(cols), new Float32Array(cols)];
      for (let row = 0; row < rows; row++) {
        dtype.dequantize(bytes, row * bytesFor(dtype, cols), expected, 0, cols / dtype.blockElems);
        read(row, got, 0);
        expect(got, `row ${row}`).toEqual(expected);
      }
    });
  },
);

test.skipIf(nativeElsewhere.length === 0).each(nativeElsewhere)("%s", () => {});

test("WebAssembly's memory is the limit of its kernels, and it says so", () => {
  const cpu = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native: "no reason" });
  const need = measured(cpu);
  expect(need.limitBytes).toBeLessThan(need.weightBytes);
  expect(need.limitReason).toMatch(/no reason.*WebAssembly.*\d+ GiB/);
});

/** What a model of 80 layers with 25 GiB of weights would need: nothing is allocated. */
function measured(backend: CpuBackend): MemoryNeed {
  const [layers, feedForward] = [80, 900_000];
  const metadata = plainMetadata({
    ...tinyMetadata("llama", feedForward),
    "llama.block_count": layers,
  });
  const tensors = new Map<string, Weight>();
  for (const { name, shape, dtype } of tinyModel().tensors.values()) {
    const isWider = (size: number) => name.includes("ffn") && size === tinyShape.feedForward;
    const wider = shape.map((size) => (isWider(size) ? feedForward : size));
    for (let layer = 0; layer < (name.startsWith("blk.0.") ? layers : 1); layer++) {
      if (name.startsWith("blk.1.")) break;
      const own = name.replace("blk.0.", `blk.${layer}.`);
      tensors.set(own, { name: own, shape: wider, dtype });
    }
  }
  const { graph } = buildModel({ metadata, tensors });
  const f16 = dtypeByName("f16")!;
  return backend.measure(makePlan(graph, { maxTokens: 1, maxOutputs: 1 }), evenCapacity(1, f16));
}
