// Runs kernels as WebAssembly for the tests, on each kind of target that this engine has, and says what the interpreter
// must assume to give the same results.

import { describe } from "vitest";
import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import type { Semantics } from "../../src/kernels/ir/meanings.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { lowerToWasm, type WasmTarget } from "../../src/kernels/lower/wasm.ts";

const pageBytes = 65536;
const features = detectWasmFeatures();

export interface TestTarget extends WasmTarget {
  readonly title: string;
}

const targets: readonly TestTarget[] = [true, false].flatMap((relaxed) =>
  [false, true].map((memory64) => ({
    relaxed,
    memory64,
    title: `${relaxed ? "relaxed" : "plain"} SIMD, ${memory64 ? 64 : 32}-bit addresses`,
  })),
);

/** describe() for each target; those that this engine lacks are skipped, with the reason. */
export function describeTargets(body: (target: TestTarget) => void): void {
  for (const target of targets) {
    const lacks = [
      ...(target.relaxed && !features.relaxed ? ["relaxed SIMD"] : []),
      ...(target.memory64 && !features.memory64 ? ["memory64"] : []),
    ];
    if (lacks.length === 0) describe(target.title, () => body(target));
    else describe.skip(`${target.title} [this engine lacks ${lacks.join(", ")}]`, () => {});
  }
}

/** A kernel compiled: runs on a copy of `bytes` and returns the memory afterwards. */
export type Compiled = (bytes: Uint8Array, args: readonly number[]) => Uint8Array<ArrayBuffer>;

export function compile(kernel: Kernel, target: WasmTarget): Compiled {
  verify(kernel);
  const module = new WebAssembly.Module(moduleOf([kernel], target));
  return (bytes, args) => {
    const memory = newMemory(Math.ceil(bytes.length / pageBytes), target);
    new Uint8Array(memory.buffer).set(bytes);
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    const run = exports[kernel.name] as (...args: number[]) => void;
    run(...args);
    return new Uint8Array(memory.buffer.slice(0, bytes.length) as ArrayBuffer);
  };
}

export function moduleOf(kernels: readonly Kernel[], target: WasmTarget): Uint8Array<ArrayBuffer> {
  return assembleModule(
    kernels.map((kernel) => lowerToWasm(kernel, target)),
    { initial: 1, maximum: 64, shared: false, memory64: target.memory64 },
  );
}

function newMemory(pages: number, { memory64 }: WasmTarget): WebAssembly.Memory {
  const descriptor = memory64
    ? { address: "i64", initial: BigInt(pages), maximum: 64n }
    : { initial: pages, maximum: 64 };
  return new WebAssembly.Memory(descriptor as unknown as WebAssembly.MemoryDescriptor);
}

/** What the choices of the table are on this target: asked of the engine, since they differ by processor. */
export function semanticsOf(target: WasmTarget): Semantics {
  const known = probed.get(target.relaxed) ?? probe(target.relaxed);
  probed.set(target.relaxed, known);
  return known;
}

const probed = new Map<boolean, Semantics>();

function probe(relaxed: boolean): Semantics {
  const k = new KernelBuilder("probe", 16);
  const out = k.param("ptr", "out");
  // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 rounded once, 0 rounded twice.
  const x = k.op("f32v.const", [], 1 + 2 ** -12);
  const sum = k.op("f32v.fma", [x, x, k.op("f32v.const", [], -(1 + 2 ** -11))]);
  k.op("f32v.store", [out, sum]);
  const compiled = compile(k.finish(), { relaxed, memory64: false });
  const floats = new Float32Array(compiled(new Uint8Array(16), [0]).buffer);
  return {
    dot4: relaxed ? features.dot4 : "signed",
    fused: floats[0] !== 0,
  };
}
