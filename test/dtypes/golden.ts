// The golden vectors of the tensor types: what a file of test/dtypes/data holds, and the inputs it was made from.
//
// Inputs are not stored but generated, by arithmetic that is exact on every machine (no logarithms, no powers), so a file
// needs only hashes of the outputs and one block in full. scripts/dtype-golden.ts makes the files from ggml's own library.

import { createHash } from "node:crypto";

export interface Golden {
  /** Which library the numbers come from. */
  source: string;
  name: string;
  ggufId: number;
  blockElems: number;
  blockBytes: number;
  dequantize: { function: string; seed: number; blocks: number; sha256: string; sample: Sample };
  quantize?: {
    function: string;
    /** sha256 of the blocks of each input, by its name; null where ggml aborts. Not for types that need importance weights. */
    plain?: Record<string, string | null>;
    /** The same with importance weights, where ggml takes them. */
    weighted?: Record<string, string | null>;
    /** The first block of the input "normal"; with importance weights where there is no `plain`. */
    sample: string;
  };
  /**
   * Where the type has another quantizer for a KV cache: of the inputs whose bytes ggml defines. It leaves the quants of a block
   * with scale 0 as they were, and processors differ in the sign of a scale that is NaN.
   */
  quantizeRow?: { source: string; function: string; plain: Record<string, string> };
}

/** One block and its values, both in hex. */
interface Sample {
  block: string;
  values: string;
}

export const rows = 3;
export const rowLength = 512;

/** Uniform in [0, 1), 24 bits each. */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) / 16777216;
  };
}

export function randomBytes(seed: number, count: number): Uint8Array {
  const next = uniform(seed);
  return Uint8Array.from({ length: count }, () => next() * 256);
}

/** One weight per element of a row, some of them zero. */
export function importanceWeights(seed: number): Float32Array {
  const next = uniform(seed);
  return Float32Array.from({ length: rowLength }, () => Math.max(0, next() - 0.1) * next() * 4);
}

type Next = () => number;

const bell = (next: Next): number => next() + next() + next() + next() - 2; // about normal, in (-2, 2)
const cube = (x: number): number => x * x * x;
const decades = [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000];

/** Name -> value of element i. Ordinary weights first, then what breaks quantizers. */
export const inputs: Readonly<Record<string, (next: Next, i: number) => number>> = {
  normal: (next) => bell(next) * 0.05,
  positive: (next) => Math.abs(bell(next)),
  negative: (next) => -Math.abs(bell(next)),
  shifted: (next, i) => bell(next) + (i % 64 < 32 ? 3 : -1.5),
  ramp: (_, i) => i / 100 - 1,
  heavyTails: (next) => cube(bell(next)),
  outliers: (next, i) => (i % 256 === 77 ? 100 : bell(next)),
  sparse: (next, i) => (i % 37 === 0 ? bell(next) : 0),
  zeroGroups: (next, i) => (i % 64 < 32 ? 0 : bell(next)),
  zeros: () => 0,
  signedZeros: (_, i) => (i % 3 === 0 ? -0 : 0),
  constant: () => 1,
  negativeConstant: () => -0.37,
  integers: (next) => Math.round(bell(next) * 8), // many ties
  halves: (next) => Math.round(bell(next) * 8) / 2,
  mixedMagnitudes: (next) => bell(next) * decades[Math.floor(next() * 10)]!,
  f16Denormals: (next) => bell(next) * 1e-7,
  almostZero: (next) => bell(next) * 1e-15, // around the threshold below which a group counts as zero
  denormals: (next) => bell(next) * 1e-40,
  beyondF16: (next) => bell(next) * 1e7,
  squaresOverflow: (next) => bell(next) * 1e19,
  nearlyInfinite: (next) => bell(next) * 1.6e38,
};

export function makeInput(name: string): Float32Array {
  const next = uniform(name.length * 7919 + 17);
  const value = inputs[name]!;
  return Float32Array.from({ length: rows * rowLength }, (_, i) => value(next, i));
}

export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** The bytes of float32 values with every NaN made the same, since a NaN's payload is nobody's promise. */
export function floatBytes(values: Float32Array): Uint8Array {
  const bits = new Uint32Array(values.length);
  bits.set(new Uint32Array(values.buffer, values.byteOffset, values.length));
  for (let i = 0; i < bits.length; i++) if (Number.isNaN(values[i])) bits[i] = 0x7fc00000;
  return new Uint8Array(bits.buffer);
}

export function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}
