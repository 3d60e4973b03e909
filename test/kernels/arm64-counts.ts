// How many instructions arm64 code of a product takes: they are followed one by one, and counted. Only general registers are
// computed, which is all that loops depend on. Where no processor is at hand this is the measure of a tile; the tables in
// docs/inside/processors.md are what `node test/kernels/arm64-counts.ts` prints.

import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { KernelRefused } from "../../src/kernels/lower/machine.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul/dot4.ts";
import { floatMatmulKernel } from "../../src/kernels/ops/matmul/floats.ts";
import { pairMatmulKernel } from "../../src/kernels/ops/matmul/i8mm.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { unpackedLayout, unpackPanelKernel } from "../../src/kernels/ops/packed/unpack-panel.ts";
import { nativeTargets } from "../../src/kernels/target.ts";

export interface Counts {
  /** All that are executed. */
  readonly all: number;
  /** Those that compute with vectors. */
  readonly vector: number;
  /** Loads, stores and hints. */
  readonly memory: number;
}

/** What an instruction does to the general registers; returns the distance of a branch that is taken. */
type Batch = (m: Machine, word: number) => number | undefined;

interface Machine {
  /** x0 to x30; 31 reads as zero and is never written to. */
  readonly x: Float64Array;
  /** d registers as far as parameters pass through them. */
  readonly d: Float64Array;
  /** The parameter block, 8 bytes each. */
  readonly block: Float64Array;
  /** What the last comparison compared with 0. */
  compared: number;
}

const d = (word: number) => word & 31;
const n = (word: number) => (word >>> 5) & 31;
const m = (word: number) => (word >>> 16) & 31;
const a = (word: number) => (word >>> 10) & 31;
const imm12 = (word: number) => (word >>> 10) & 4095;
const imm16 = (word: number) => (word >>> 5) & 0xffff;

function set(compute: (m: Machine, word: number) => number, bits: 32 | 64): Batch {
  return (machine, word) => {
    const value = compute(machine, word);
    if (d(word) !== 31) machine.x[d(word)] = bits === 32 ? value | 0 : value;
    return undefined;
  };
}

const slotOf = (word: number) => imm12(word); // in steps of 8 bytes, from the block's beginning

/** Instructions by their bits: [mask, word, what they do]. */
const steps: readonly (readonly [number, number, Batch])[] = [
  [0xffc00000, 0x91000000, set(({ x }, w) => x[n(w)]! + imm12(w), 64)],
  [0xffc00000, 0x91400000, set(({ x }, w) => x[n(w)]! + imm12(w) * 4096, 64)],
  [0xffc00000, 0xd1000000, set(({ x }, w) => x[n(w)]! - imm12(w), 64)],
  [0xffc00000, 0xd1400000, set(({ x }, w) => x[n(w)]! - imm12(w) * 4096, 64)],
  [0xffc00000, 0x11000000, set(({ x }, w) => x[n(w)]! + imm12(w), 32)],
  [0xffc00000, 0x51000000, set(({ x }, w) => x[n(w)]! - imm12(w), 32)],
  [
    0xffc00000,
    0x71000000,
    set((machine, w) => {
      machine.compared = (machine.x[n(w)]! - imm12(w)) | 0;
      return machine.compared;
    }, 32),
  ],
  [0xffe0fc00, 0x0b000000, set(({ x }, w) => x[n(w)]! + x[m(w)]!, 32)],
  [0xffe0fc00, 0x4b000000, set(({ x }, w) => x[n(w)]! - x[m(w)]!, 32)],
  [0xffe0fc00, 0x8b000000, set(({ x }, w) => x[n(w)]! + x[m(w)]!, 64)],
  [0xffe0fc00, 0x8b20c000, set(({ x }, w) => x[n(w)]! + (x[m(w)]! | 0), 64)],
  [0xffe08000, 0x1b000000, set(({ x }, w) => Math.imul(x[n(w)]!, x[m(w)]!) + x[a(w)]!, 32)],
  [0xffe08000, 0x9b200000, set(({ x }, w) => (x[n(w)]! | 0) * (x[m(w)]! | 0) + x[a(w)]!, 64)],
  [0xffc0fc00, 0x53007c00, set(({ x }, w) => (x[n(w)]! | 0) >>> m(w), 32)],
  [0xffe0ffe0, 0x2a0003e0, set(({ x }, w) => x[m(w)]!, 32)],
  [0xffe0ffe0, 0xaa0003e0, set(({ x }, w) => x[m(w)]!, 64)],
  [0xffe00000, 0x52800000, set((_, w) => imm16(w), 32)],
  [0xffe00000, 0x52a00000, set((_, w) => imm16(w) << 16, 32)],
  [0xffe00000, 0x12800000, set((_, w) => ~imm16(w), 32)],
  [0xffe00000, 0x72a00000, set(({ x }, w) => (x[d(w)]! & 0xffff) | (imm16(w) << 16), 32)],
  [0xffc00000, 0xf9400000, set(({ block }, w) => block[slotOf(w)]!, 64)],
  [0xfffffc00, 0x9e780000, set((machine, w) => machine.d[n(w)]!, 64)],
  [0xfffffc00, 0x1e780000, set((machine, w) => machine.d[n(w)]!, 32)],
  [0xffc00000, 0xf9000000, ({ x, block }, w) => put(block, slotOf(w), x[d(w)]!)],
  [0xffc00000, 0xfd400000, (machine, w) => put(machine.d, d(w), machine.block[slotOf(w)]!)],
  [0xfc000000, 0x14000000, (_, w) => (w << 6) >> 6],
  [0xff00001f, 0x54000001, ({ compared }, w) => (compared === 0 ? undefined : far(w))],
  [0xff00001f, 0x5400000d, ({ compared }, w) => (compared > 0 ? undefined : far(w))],
];

function put(to: Float64Array, at: number, value: number): undefined {
  to[at] = value;
}

/** The distance of a conditional branch, in words. */
function far(word: number): number {
  return (word << 8) >> 13;
}

const RET = 0xd65f03c0;

/** Runs code that was lowered from a kernel with these parameters (addresses as any numbers). */
export function countInstructions(code: Uint8Array<ArrayBuffer>, args: readonly number[]): Counts {
  const words = new Uint32Array(code.buffer, code.byteOffset, code.length / 4);
  const block = new Float64Array(64);
  block.set(args, 1);
  const machine: Machine = {
    ...{ x: new Float64Array(32), d: new Float64Array(32), block, compared: 0 },
  };
  const known = new Map<number, Batch | undefined>();
  let [all, vector, memory] = [0, 0, 0];
  for (let at = 0; words[at] !== RET; ) {
    const word = words[at]!;
    if (!known.has(word)) {
      known.set(word, steps.find(([mask, bits]) => (word & mask) >>> 0 === bits)?.[2]);
    }
    all++;
    const kind = (word >>> 25) & 15;
    if ((kind & 7) === 7) vector++;
    else if ((kind & 5) === 4) memory++;
    else if (!known.get(word)) throw new Error(`${word.toString(16)}: what it does is not known`);
    at += known.get(word)?.(machine, word) ?? 1;
  }
  return { all, vector, memory };
}

export interface Tile {
  readonly rows: number;
  readonly tokens: number;
  /** By pairs of rows. */
  readonly isPairs?: boolean;
  /** The row panel is unpacked before. */
  readonly isUnpacked?: boolean;
}

/** Of a product of 16 rows, so many columns and tokens: per 1000 multiply-adds. A string: why the tile has no code. */
export function countsOf(
  type: string,
  { rows, tokens: inTile, isPairs = false, isUnpacked = false }: Tile,
  tokens: number,
  cols = 1024,
): Counts | string {
  const kernel = kernelOf(type, rows, inTile, isPairs, isUnpacked);
  const spans = cols / ((packingOf(type)?.activationSpan ?? 1) * 32);
  const byName: Readonly<Record<string, number>> = {
    ...{ spans, quads: cols / 4, tokenTiles: tokens / inTile },
  };
  try {
    const count = (counted: Kernel) => {
      const { bytes } = lowerToArm64(counted, { name: "arm64", i8mm: isPairs });
      return countInstructions(
        bytes as Uint8Array<ArrayBuffer>,
        counted.params.map(({ name }) => byName[name!] ?? 0),
      );
    };
    const tiles = count(kernel);
    const before = isUnpacked ? count(unpackOf(type)) : { all: 0, vector: 0, memory: 0 };
    const per = (part: keyof Counts) =>
      (1000 * ((16 / rows) * tiles[part] + before[part])) / (16 * cols * tokens);
    return { all: per("all"), vector: per("vector"), memory: per("memory") };
  } catch (error) {
    if (error instanceof KernelRefused) return error.message;
    throw error;
  }
}

function unpackOf(type: string): Kernel {
  const layout = layoutFor(packingOf(type)!, nativeTargets["arm64-dotprod"]);
  return unpackPanelKernel(`unpack.${type}`, layout);
}

function kernelOf(
  type: string,
  rows: number,
  tokens: number,
  isPairs: boolean,
  isUnpacked: boolean,
): Kernel {
  const target = nativeTargets[isPairs ? "arm64-i8mm" : "arm64-dotprod"];
  const packing = packingOf(type);
  const shape = { name: `${type}.${rows}x${tokens}`, groups: rows / 4, tokens } as const;
  if (!packing) {
    const weights = type as "f32" | "f16" | "bf16";
    return floatMatmulKernel({ ...shape, weights, order: "matrix", target });
  }
  const packed = layoutFor(packing, target);
  const layout = isUnpacked ? unpackedLayout(packed) : packed;
  if (isPairs) return pairMatmulKernel({ ...shape, layout });
  return blockMatmulKernel({ ...shape, layout, replicated: false, order: "matrix" });
}

const printedTypes = [
  ...["q4_0", "q8_0", "q4_1", "q5_0", "q4_k", "q5_k", "q6_k", "q2_k", "iq4_nl", "f32", "f16"],
];

export function printCounts(): void {
  const tiles: Tile[] = [
    ...[4, 6, 8].map((tokens) => ({ rows: 8, tokens })),
    ...[2, 3, 4].map((tokens) => ({ rows: 16, tokens })),
    { rows: 16, tokens: 4, isPairs: true },
    { rows: 8, tokens: 6, isUnpacked: true },
  ];
  for (const type of printedTypes) {
    for (const tile of tiles) {
      const { rows, tokens: inTile, isPairs, isUnpacked } = tile;
      if ((isPairs || isUnpacked) && !packingOf(type)) continue;
      const name = `${type} ${rows}x${inTile}${isPairs ? " pairs" : ""}${isUnpacked ? " unpacked" : ""}`;
      const many = isPairs ? [4, 8, 24, 120] : isUnpacked ? [6, 12, 30, 120] : [24];
      const values = many.map((tokens) => {
        const counts = countsOf(type, tile, tokens);
        if (typeof counts === "string") return counts;
        const [vector, all] = [counts.vector, counts.all].map((count) => count.toFixed(0));
        return `${tokens} tokens: ${vector} of ${all}`;
      });
      console.log(`${name}: ${values.join("; ")}`);
    }
  }
}

if (import.meta.main) printCounts();
