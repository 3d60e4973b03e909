// Kernels that leave their buffers without leaving memory: the interpreter and guarded WebAssembly say so, with kernel,
// instruction, address and buffer. (Machine code: test/backends/guard.test.ts.)
// Held against: kernels that the test has made wrong.

import { describe, expect, test } from "vitest";
import { type GuardJob, guardCalls } from "../../src/backends/cpu/guard/guard-calls.ts";
import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import { type BufferRange, pointerOrigins } from "../../src/kernels/ir/bounds.ts";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { ops } from "../../src/kernels/ir/ops.ts";
import { lowerToWasm, type WasmTarget } from "../../src/kernels/lower/wasm.ts";
import { guardedFunction } from "../../src/kernels/lower/wasm-guard.ts";
import { elementwiseKernels } from "../../src/kernels/ops/elementwise-table.ts";
import { offByOne } from "../support/off-by-one.ts";
import { anyOp, everyOp } from "./op-cases.ts";
import { describeTargets } from "./wasm-runner.ts";

const reports = 60_000;

function buffer(name: string, from: number, bytes: number): BufferRange {
  return { name, from, to: from + bytes };
}

/** Runs a kernel as guarded WebAssembly on 64 KiB. */
function runGuarded(
  kernel: Kernel,
  args: readonly number[],
  buffers: readonly BufferRange[],
  target: WasmTarget,
): Uint8Array {
  const limits = { initial: 1, maximum: 1, shared: false, memory64: target.memory64 };
  const code = assembleModule([lowerToWasm(kernel, { ...target, guard: guardedFunction })], limits);
  const descriptor = target.memory64
    ? { address: "i64", initial: 1n, maximum: 1n }
    : { initial: 1, maximum: 1 };
  const memory = new WebAssembly.Memory(descriptor as unknown as WebAssembly.MemoryDescriptor);
  const instance = new WebAssembly.Instance(new WebAssembly.Module(code), { env: { memory } });
  const job: GuardJob = { buffers, kernels: [kernel], reports };
  const calls = guardCalls(instance.exports as Record<string, () => void>, job, memory.buffer, 0);
  calls[kernel.name]!(...args);
  return new Uint8Array(memory.buffer);
}

const copy = elementwiseKernels.map((make) => make(16)).find(({ name }) => name === "copy")!;
/** 64 floats each, with room between them. */
const two = [buffer("from here", 1024, 256), buffer("to there", 4096, 256)];
const args = [1024, 4096, 64];

/** Buffers by parameter, as interpret() takes them. */
const byParam = [two[0], two[1], undefined];

describe("a loop that runs once too often", () => {
  const wrong = offByOne(copy);

  test("is seen by the interpreter", () => {
    const memory = new ArrayBuffer(65536);
    interpret(copy, memory, args, {}, byParam);
    expect(() => interpret(wrong, memory, args)).not.toThrow(); // it is all memory, somebody's
    expect(() => interpret(wrong, memory, args, {}, byParam)).toThrow(
      /^copy: line \d+, \S+ = f32v\.load \[.+\]: address 1280, 16 bytes: outside "from here", 1024 to 1280 \(0 bytes from its end\)$/,
    );
  });

  describeTargets((target) => {
    test("is seen by guarded WebAssembly", () => {
      runGuarded(copy, args, two, target);
      expect(() => runGuarded(wrong, args, two, target)).toThrow(
        /^copy: line \d+, \S+ = f32v\.load \[.+\]: address 1280, 16 bytes: outside "from here", 1024 to 1280 \(0 bytes from its end\)$/,
      );
    });
  });
});

const elementwise = elementwiseKernels.map((make) => make(16).name);

test("pointers come from parameters: every access of every kernel has one", () => {
  for (const make of elementwiseKernels) {
    const kernel = make(16);
    const origins = pointerOrigins(kernel);
    // It reads the state where it came from, and then where it wrote it to.
    const most = kernel.name === "scan_decay_tokens" ? 2 : 1;
    for (const params of origins.values()) {
      expect(params.length, kernel.name).toBeGreaterThan(0);
      expect(params.length, kernel.name).toBeLessThanOrEqual(most);
    }
  }
  expect(elementwise.length).toBeGreaterThan(10);
});

test("a pointer that is set to one of two buffers may be in either, and nowhere else", () => {
  const k = new KernelBuilder("either", 16);
  const [a, b] = [k.param("ptr", "a"), k.param("ptr", "b")];
  const n = k.param("i32", "n");
  const at = k.variable(a, "at");
  k.loop(n, () => {
    k.op("f32v.store", [at, k.op("f32v.load", [at])]);
    k.set(at, b);
  });
  const kernel = k.finish();
  const buffers = [buffer("a", 0, 16), buffer("b", 64, 16)];
  const target = { relaxed: false, memory64: false };
  runGuarded(kernel, [0, 64, 5], buffers, target);
  expect(() => runGuarded(kernel, [0, 72, 5], buffers, target)).toThrow(
    /either: line \d+, .*: address 72, 16 bytes: outside "a", 0 to 16 .* and "b", 64 to 80/,
  );
});

test("a pointer into no buffer may not be followed, and need not be", () => {
  const target = { relaxed: false, memory64: false };
  expect(() => runGuarded(copy, [512, 4096, 64], two, target)).toThrow(
    /address 512, 16 bytes: the pointer was given in no buffer/,
  );
  runGuarded(copy, [-1, -1, 0], two, target);
});

describe("every op that accesses memory", () => {
  const accessing = everyOp.filter(
    (op) => (ops[op].args as readonly string[])[0] === "ptr" && !op.startsWith("ptr."),
  );

  test.each(accessing)("%s", (op) => {
    // The last bytes of a buffer, and one byte further, before and behind.
    const k = new KernelBuilder("access", 16);
    const [at, out] = [k.param("ptr", "at"), k.param("ptr", "out")];
    const values = ops[op].args.slice(1).map((type) => anyOp(k, `${type}.load` as never, [out])!);
    anyOp(k, op, [at, ...values]);
    const kernel = k.finish();
    const bytes = accessBytes(kernel);
    const buffers = [buffer("it", 4096, bytes), buffer("out", 8192, 64)];
    const target = { relaxed: false, memory64: false };
    runGuarded(kernel, [4096, 8192], buffers, target);
    const after = [buffer("it", 4096, bytes - 1), buffers[1]!];
    expect(() => runGuarded(kernel, [4096, 8192], after, target)).toThrow(/outside "it"/);
    const before = new KernelBuilder("access", 16);
    const [p, q] = [before.param("ptr", "at"), before.param("ptr", "out")];
    const loaded = ops[op].args
      .slice(1)
      .map((type) => anyOp(before, `${type}.load` as never, [q])!);
    anyOp(before, op, [before.plus(p, -1), ...loaded]);
    expect(() => runGuarded(before.finish(), [4096, 8192], buffers, target)).toThrow(
      /address 4095, \d+ bytes: outside "it", .*1 bytes before its start/,
    );
  });
});

/** What the interpreter says that the access has. */
function accessBytes(kernel: Kernel): number {
  try {
    const nothing = [buffer("it", 4096, 0), buffer("out", 8192, 64)];
    interpret(kernel, new ArrayBuffer(65536), [4096, 8192], {}, nothing);
  } catch (error) {
    return Number(/(\d+) bytes: outside/.exec(String(error))![1]);
  }
  throw new Error(`${kernel.name} accesses nothing`);
}
