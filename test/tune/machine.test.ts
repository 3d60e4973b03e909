// Measuring this machine: that the kernels do the work they are credited with, and that threads, memory, progress, abort
// and failure behave. Which rates come out is the machine's business.
// Held against: the sums that a kernel must give.

import { describe, expect, test } from "vitest";
import { openNativeJob } from "../../src/backends/cpu/native/entry.ts";
import { AbortedError, WorkerError } from "../../src/base/errors.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { tilesOf } from "../../src/kernels/ir/tiles.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import {
  f32Kernel,
  f32Name,
  f32RoundOps,
  int8Kernel,
  int8Name,
  int8RoundOps,
  int8TilesKernel,
  int8TilesName,
  int8TilesRoundOps,
  measureImage,
  measureKernels,
  readKernel,
  readName,
  STREAM_COUNTS,
  STREAM_STEP,
} from "../../src/machine/kernels.ts";
import {
  type MeasureEnvironment,
  measureMachine,
  readRatesOf,
  threadCounts,
} from "../../src/machine/measure.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import { compile, describeTargets } from "../kernels/wasm-runner.ts";
import { nativeHere } from "../support/native.ts";

const out = 65520;
const rounds = 3;

describeTargets((target) => {
  test.each(STREAM_COUNTS)(
    "reading in %i streams reads every byte of its chunk, once",
    (streams) => {
      const kernel = readKernel(streams);
      const run = compile(kernel, target);
      const stride = rounds * STREAM_STEP;
      const bytes = streams * stride;
      const from = 64;
      const seen = (marked: number): boolean => {
        const memory = new Uint8Array(65536);
        memory[marked] = 1;
        return run(memory, [from, out, rounds, stride])
          .subarray(out)
          .some((byte) => byte !== 0);
      };
      for (let at = 0; at < bytes; at++) expect(seen(from + at), `byte ${at}`).toBe(true);
      expect(seen(from - 1)).toBe(false);
      expect(seen(from + bytes)).toBe(false);
      // Once: as many loads as there are vectors.
      const loop = kernel.body.find((statement) => statement.kind === "loop")!;
      const loads = loop.body.filter(
        (statement) => statement.kind === "op" && statement.op === "i32v.load",
      );
      expect(loads.length * 16 * rounds).toBe(bytes);
    },
  );

  test("the sums are those of as many operations as are counted", () => {
    const floats = compile(f32Kernel(), target)(new Uint8Array(65536), [0, out, rounds, 0]);
    // Every multiply-add (two operations) adds a quarter to a lane that started at 1; twelve sums are added up.
    const [total] = new Float32Array(floats.buffer, out, 1);
    expect((total! - 12) / 0.25).toBe((f32RoundOps() / 2 / 4) * rounds);
    const integers = compile(int8Kernel(), target)(new Uint8Array(65536), [0, out, rounds, 0]);
    // Every product (two operations) adds 15.
    const [sum] = new Int32Array(integers.buffer, out, 1);
    expect(sum! / 15).toBe((int8RoundOps() / 2 / 4) * rounds);
  });
});

test("the interpreter agrees, and the peaks load nothing", () => {
  for (const kernel of measureKernels()) verify(kernel);
  for (const kernel of [f32Kernel(), int8Kernel()]) {
    expect(JSON.stringify(kernel.body)).not.toContain("load");
    const memory = new Uint8Array(65536);
    interpret(kernel, memory.buffer, [0, out, 2, 0], { dot4: "i7" });
    expect(memory.subarray(out).some((byte) => byte !== 0)).toBe(true);
  }
});

test("AMX tiles: as many products as are counted, spread over sums that do not wait, nothing else", () => {
  const kernel = int8TilesKernel();
  verify(kernel);
  const loop = kernel.body.find((statement) => statement.kind === "loop")!;
  const products = loop.body.map((statement) => {
    if (statement.kind !== "op" || statement.op !== "amx.dot4_ss")
      throw new Error("expected products");
    return tilesOf(statement.imm);
  });
  // 16 x 16 sums of 64 products each.
  expect(products.length * 2 * 16 * 16 * 64).toBe(int8TilesRoundOps());
  for (let i = 0; i + 4 <= products.length; i++) {
    expect(new Set(products.slice(i, i + 4).map(({ sum }) => sum)).size).toBe(4);
  }
  const sums = new Set(products.map(({ sum }) => sum));
  for (const { a, b } of products) expect(sums.has(a) || sums.has(b) || a === b).toBe(false);
  // It reads the 4096 bytes that it is given, which are the last ones here, and writes nothing.
  const memory = new Uint8Array(8192).fill(1);
  interpret(kernel, memory.buffer, [4096, 0, 2, 0], { dot4: "i7" });
  expect(memory.every((byte) => byte === 1)).toBe(true);
});

test("thread counts: powers of two and all cores", () => {
  expect([1, 2, 6, 8].map(threadCounts)).toEqual([[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]);
});

/** As small as it gets: 32 MiB, two cores, a few rounds. */
const small: MeasureEnvironment = {
  cpu: "Test",
  cores: 2,
  memoryBytes: 1e9,
  availableBytes: 0,
  startThread: () => nodePlatform.startThread("measure"),
  now: nodePlatform.now,
};

describe.each(nativeHere)("as machine code, $name", ({ name, native }) => {
  const { width } = native.target;

  test("the same work in wider vectors", () => {
    const image = measureImage(native)!;
    const { buffer } = new WebAssembly.Memory({ initial: 4, maximum: 4, shared: true });
    const kernels = openNativeJob({ image, blocks: 1024 }, native.host, buffer, 0);
    const [out, rounds] = [512, 3];
    kernels[f32Name]!(0, out, rounds, 0);
    const lanes = width / 4;
    const total = new Float32Array(buffer, out, lanes);
    for (const sum of total)
      expect((sum - 12) / 0.25).toBe((f32RoundOps(width) / 2 / lanes) * rounds);
    kernels[int8Name]!(0, out, rounds, 0);
    for (const sum of new Int32Array(buffer, out, lanes)) {
      expect(sum / 15).toBe((int8RoundOps(width) / 2 / lanes) * rounds);
    }
    // Every line of every stream is read: one bit in each place shows.
    const bytes = new Uint8Array(buffer, 65536, 4 * rounds * STREAM_STEP);
    for (let at = 0; at < bytes.length; at += STREAM_STEP / 4) {
      bytes.fill(0);
      bytes[at] = 1;
      kernels[readName(4)]!(65536, out, rounds, rounds * STREAM_STEP);
      expect(new Uint8Array(buffer, out, width).some((byte) => byte === 1)).toBe(true);
    }
  });

  test("is what is measured", async () => {
    const machine = await measureMachine({ ...small, native }, { seconds: 0 });
    expect(machine.lowering).toBe(`machine code for ${name}`);
    expect(machine.int8Ops[0]!.perSecond).toBeGreaterThan(0);
    // With AMX tiles they are measured, too; without, nothing is said of them.
    expect("int8TileOps" in machine).toBe(native.target.amx === true);
    const tiles = machine.int8TileOps ?? [];
    expect(tiles.map(({ threads }) => threads)).toEqual(native.target.amx ? [1, 2] : []);
    for (const { perSecond } of tiles) expect(perSecond).toBeGreaterThan(0);
  });

  const noTiles = native.target.amx ? "" : " [skipped: this target has no AMX tiles]";
  test.skipIf(!native.target.amx)(`multiplies in AMX tiles, and writes nothing${noTiles}`, () => {
    const image = measureImage(native)!;
    const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
    const kernels = openNativeJob({ image, blocks: 1024 }, native.host, buffer, 0);
    const after = new Uint8Array(buffer, 8192).fill(7);
    kernels[int8TilesName]!(65536 - 4096, 512, 3, 0);
    expect(after.every((byte) => byte === 7)).toBe(true);
    expect(new Uint8Array(buffer, 512, 64).every((byte) => byte === 0)).toBe(true);
  });
});

describe("the measurement", () => {
  test("has every rate for every thread count; more threads and smaller sets are never slower", async () => {
    const shares: number[] = [];
    const machine = await measureMachine(small, {
      seconds: 0,
      onProgress: (share) => shares.push(share),
    });
    expect(machine).toMatchObject({ cpu: "Test", cores: 2, memoryBytes: 1e9 });
    expect(machine.cachedReads!.map(({ setBytes }) => setBytes)).toEqual([2 ** 20, 2 ** 22]);
    const sets = machine.cachedReads!.map(({ readBytes }) => readBytes);
    const all = [...sets, machine.readBytes, machine.f32Ops, machine.int8Ops];
    for (const points of all) {
      expect(points.map(({ threads }) => threads)).toEqual([1, 2]);
      expect(points[0]!.perSecond).toBeGreaterThan(0);
      expect(points[1]!.perSecond).toBeGreaterThanOrEqual(points[0]!.perSecond);
    }
    for (const at of [0, 1]) {
      const [smaller, larger, memory] = [...sets, machine.readBytes].map(
        (set) => set[at]!.perSecond,
      );
      expect(smaller).toBeGreaterThanOrEqual(larger!);
      expect(larger).toBeGreaterThanOrEqual(memory!);
    }
    expect(shares).toEqual(shares.toSorted((a, b) => a - b));
    expect(shares.at(-1)).toBe(1);
  });

  test("is given up when it is aborted, before or on the way", async () => {
    const aborted = measureMachine(small, { seconds: 60, signal: AbortSignal.abort() });
    await expect(aborted).rejects.toThrow(AbortedError);
    const controller = new AbortController();
    const onProgress = (): void => controller.abort();
    const stopped = measureMachine(small, { seconds: 60, signal: controller.signal, onProgress });
    await expect(stopped).rejects.toThrow(AbortedError);
  });

  test("says so when a thread dies", async () => {
    const dying = (): EngineThread => ({
      post: () => {},
      onMessage: () => {},
      onFailure: (listener) => void setTimeout(() => listener(new Error("lost its mind")), 1),
      ref: () => {},
      unref: () => {},
      terminate: async () => {},
    });
    const measuring = measureMachine({ ...small, startThread: dying }, { seconds: 0 });
    await expect(measuring).rejects.toThrow(WorkerError);
    await expect(measuring).rejects.toThrow(/lost its mind/);
  });
});

describe("a quick measurement", () => {
  /** Threads that only count: each round takes no time, and its length is added up. */
  function counting(cores: number) {
    const seen = { threads: 0, plannedMs: 0 };
    const startThread = (): EngineThread => {
      const isFirst = seen.threads++ === 0;
      let report = (_: unknown): void => {};
      return {
        post: (message) => {
          const { kind, ms = 0 } = message as { kind: string; ms?: number };
          if (isFirst && kind === "round") seen.plannedMs += ms;
          queueMicrotask(() => report({ chunks: 10, ms: 5 }));
        },
        onMessage: (listener) => {
          report = listener;
        },
        onFailure: () => {},
        ref: () => {},
        unref: () => {},
        terminate: async () => {},
      };
    };
    return { seen, environment: { ...small, cores, startThread, now: () => 0 } };
  }

  test("takes a fraction of a second, and says that it is one", async () => {
    const { seen, environment } = counting(2);
    const machine = await measureMachine(environment, { seconds: 7, quick: true });
    expect(machine.quick).toBe(true);
    expect(machine.f32Ops.map(({ threads }) => threads)).toEqual([1, 2]);
    expect(seen.plannedMs).toBeGreaterThan(0);
    expect(seen.plannedMs).toBeLessThanOrEqual(200); // the rest of half a second is for starting
    expect(await measureMachine(environment, { seconds: 0 })).not.toHaveProperty("quick");
  });

  test("starts few threads where there are many cores, and takes the others to be as fast", async () => {
    const { seen, environment } = counting(64);
    const machine = await measureMachine(environment, { seconds: 7, quick: true });
    expect(seen.threads).toBe(16);
    for (const points of [machine.f32Ops, machine.int8Ops, machine.readBytes]) {
      expect(points.map(({ threads }) => threads)).toEqual([1, 16, 64]);
      expect(points[2]!.perSecond).toBeCloseTo(4 * points[1]!.perSecond, 0);
    }
  });
});

test("a small set may be in the cores' own caches: each thread's rate counts; a large one is shared", () => {
  // The second thread was interrupted.
  const reports = [
    { chunks: 10, ms: 5 },
    { chunks: 10, ms: 10 },
  ];
  expect(readRatesOf(2 ** 20)(reports)).toEqual([2000, 1000]);
  expect(readRatesOf(2 ** 27)(reports)).toEqual([2000]);
});
