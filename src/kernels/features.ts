// Detects the features of this engine's WebAssembly. Small modules validate or do not; the relaxed dot product, whose
// meaning differs between processors, is run. src/platform detects the features of a processor's machine code.

import { assembleModule, WasmFunction, type WasmMemory } from "./asm/wasm.ts";
import type { Dot4 } from "./ir/meanings.ts";

export interface WasmFeatures {
  /** Vectors of 16 bytes: without them there is no lowering. */
  readonly simd: boolean;
  /** Relaxed SIMD: the dot product (exact for 0..127 at least) and multiply-add. */
  readonly relaxed: boolean;
  /** Shared memory and atomics; a browser page must be cross-origin isolated. */
  readonly threads: boolean;
  /** 64-bit addresses. */
  readonly memory64: boolean;
  /**
   * The allowed range of i32v.dot4's second operand, with kernels lowered with `relaxed` as above. Lowered without relaxed
   * SIMD on an engine that has it, the range is "words".
   */
  readonly dot4: Dot4;
  /**
   * Registers that the engine can keep vectors in. WebAssembly does not say, but the relaxed dot product tells processors
   * apart: arm64 has 32, and on x86-64 engines use 16.
   */
  readonly vectorRegisters: number;
}

const onePage: WasmMemory = { initial: 1, maximum: 1, shared: false, memory64: false };

let detected: WasmFeatures | undefined;

export function detectWasmFeatures(): WasmFeatures {
  detected ??= detect();
  return detected;
}

function detect(): WasmFeatures {
  // Absent where the engine must not generate code.
  if (typeof WebAssembly === "undefined") {
    return {
      simd: false,
      relaxed: false,
      threads: false,
      memory64: false,
      dot4: "words",
      vectorRegisters: 16,
    };
  }
  const dot4 = validates(relaxedModule()) ? classifyDot4(instantiateDot4()) : undefined;
  return {
    simd: validates(simdModule()),
    relaxed: dot4 !== undefined,
    // Without isolation browsers hide the constructor, though modules with shared memory validate.
    threads: typeof SharedArrayBuffer !== "undefined" && validates(threadsModule()),
    memory64: validates(memory64Module()) && makesWideMemory(),
    dot4: dot4 ?? "words",
    vectorRegisters: dot4 === "signed" ? 32 : 16,
  };
}

function validates(module: Uint8Array<ArrayBuffer>): boolean {
  return WebAssembly.validate(module);
}

function simdModule(): Uint8Array<ArrayBuffer> {
  const f = new WasmFunction("simd", []);
  f.op16("v128.const", new Uint8Array(16));
  f.op("f32x4.sqrt");
  f.op("drop");
  return assembleModule([f], onePage);
}

function relaxedModule(): Uint8Array<ArrayBuffer> {
  const f = new WasmFunction("relaxed", []);
  for (const name of ["f32x4.relaxed_madd", "i32x4.relaxed_dot_i8x16_i7x16_add_s"] as const) {
    for (let operand = 0; operand < 3; operand++) f.op16("v128.const", new Uint8Array(16));
    f.op(name);
    f.op("drop");
  }
  for (let operand = 0; operand < 2; operand++) f.op16("v128.const", new Uint8Array(16));
  f.op("i16x8.relaxed_dot_i8x16_i7x16_s");
  f.op("drop");
  return assembleModule([f], onePage);
}

function threadsModule(): Uint8Array<ArrayBuffer> {
  const f = new WasmFunction("threads", []);
  f.op("i32.const", 0);
  f.op("i32.const", 1);
  f.op("i32.atomic.rmw.add");
  f.op("drop");
  return assembleModule([f], { ...onePage, shared: true });
}

/** Node 22 validates modules with 64-bit addresses, but makes their memory in an older way. */
function makesWideMemory(): boolean {
  const descriptor = { address: "i64", initial: 1n, maximum: 1n };
  try {
    return Boolean(new WebAssembly.Memory(descriptor as unknown as WebAssembly.MemoryDescriptor));
  } catch {
    return false;
  }
}

function memory64Module(): Uint8Array<ArrayBuffer> {
  const f = new WasmFunction("memory64", []);
  f.op("i64.const", 0n);
  f.op("i32.load");
  f.op("drop");
  return assembleModule([f], { ...onePage, memory64: true });
}

/** The engine's relaxed dot product: acc + a0 b0 + a1 b1 + a2 b2 + a3 b3, with bytes given as bits. */
export type Dot4Function = (
  a: readonly number[],
  b: readonly number[],
  accumulator: number,
) => number;

function instantiateDot4(): Dot4Function {
  const f = new WasmFunction("dot4", []);
  f.op("i32.const", 48);
  for (const address of [0, 16, 32]) {
    f.op("i32.const", address);
    f.op("v128.load");
  }
  f.op("i32x4.relaxed_dot_i8x16_i7x16_add_s");
  f.op("v128.store");
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1 });
  const module = new WebAssembly.Module(assembleModule([f], onePage));
  const run = new WebAssembly.Instance(module, { env: { memory } }).exports.dot4 as () => void;
  const bytes = new Uint8Array(memory.buffer);
  const words = new Int32Array(memory.buffer);
  return (a, b, accumulator) => {
    bytes.set(a, 0);
    bytes.set(b, 16);
    words[8] = accumulator;
    run();
    return words[12]!;
  };
}

/** The widest range of second operands for which the dot product is exact; undefined if not even 0..127 is. */
export function classifyDot4(dot4: Dot4Function): Dot4 | undefined {
  if (isExact(dot4, [-128, -1, 1, 127])) return "signed";
  if (isExact(dot4, [1, 127, 128, 255])) return "unsigned";
  return isExact(dot4, [0, 1, 64, 127]) ? "i7" : undefined;
}

/** Tests operands whose sums of two products would saturate or wrap in 16 bits, for any order of addition. */
function isExact(dot4: Dot4Function, seconds: readonly number[]): boolean {
  const matmuls = [-128, -1, 1, 127].flatMap((a) => seconds.map((b) => [a, b] as const));
  return matmuls.every(([a, b]) =>
    matmuls.every(([c, d]) =>
      [0, 2 ** 31 - 1].every((accumulator) => {
        const exact = (accumulator + 2 * a * b + 2 * c * d) | 0;
        const isNeighbours = dot4([a, a, c, c], [b, b, d, d], accumulator) === exact;
        return isNeighbours && dot4([a, c, a, c], [b, d, b, d], accumulator) === exact;
      }),
    ),
  );
}
