// The instruction set of the kernel IR: every op with its operands and its result, in one table.
//
// A vector is a whole register of the target, `width` bytes wide (16 on WebAssembly and NEON, 32 on AVX2, 64 on
// AVX-512); i8v, i16v, i32v and f32v say how its bytes are read. Kernels are written for any width. The meaning of each op is
// in meanings.ts, lane by lane. Lowerings give the same bits, except where the table leaves a choice ("may fuse").
//
// The IR knows no tensors, no dtypes and no target.

import type { TileImmediate } from "./tiles.ts";

export type ScalarType = "i32" | "f32" | "ptr";
export type VectorType = "i8v" | "i16v" | "i32v" | "f32v";
export type Type = ScalarType | VectorType;

export interface OpShape {
  readonly args: readonly Type[];
  /** undefined: the op has only an effect (a store). */
  readonly out: Type | undefined;
  /** The kind of the immediate: a displacement in bytes, a constant, a shift count, or AMX tiles (tiles.ts). */
  readonly imm?: "disp" | "value" | "shift" | TileImmediate;
  /** Only some processors have it; lowerings for others refuse the kernel. */
  readonly needs?: "amx" | "i8mm" | "arm64" | "wasm";
}

export const ops = {
  // Scalars and addresses.
  "i32.const": { args: [], out: "i32", imm: "value" },
  "i32.add": { args: ["i32", "i32"], out: "i32" },
  "i32.sub": { args: ["i32", "i32"], out: "i32" },
  "i32.mul": { args: ["i32", "i32"], out: "i32" },
  "i32.shr_u": { args: ["i32"], out: "i32", imm: "shift" },
  "i32.load": { args: ["ptr"], out: "i32", imm: "disp" },
  "i32.store": { args: ["ptr", "i32"], out: undefined, imm: "disp" },
  "f32.const": { args: [], out: "f32", imm: "value" },
  "f32.add": { args: ["f32", "f32"], out: "f32" },
  "f32.sub": { args: ["f32", "f32"], out: "f32" },
  "f32.mul": { args: ["f32", "f32"], out: "f32" },
  "f32.div": { args: ["f32", "f32"], out: "f32" },
  "f32.max": { args: ["f32", "f32"], out: "f32" },
  "f32.sqrt": { args: ["f32"], out: "f32" },
  "f32.from_i32": { args: ["i32"], out: "f32" },
  "f32.load": { args: ["ptr"], out: "f32", imm: "disp" },
  "f32.store": { args: ["ptr", "f32"], out: undefined, imm: "disp" },
  /** Address plus a signed byte count. */
  "ptr.add": { args: ["ptr", "i32"], out: "ptr" },
  /** Address plus the product of two signed numbers, which is as wide as an address. */
  "ptr.add_product": { args: ["ptr", "i32", "i32"], out: "ptr" },
  /** A hint that these bytes will be read soon. The address may lie outside all buffers. */
  "ptr.prefetch": { args: ["ptr"], out: undefined, imm: "disp" },

  // Whole vectors in and out of memory. No alignment is required.
  "i8v.load": { args: ["ptr"], out: "i8v", imm: "disp" },
  "i32v.load": { args: ["ptr"], out: "i32v", imm: "disp" },
  "f32v.load": { args: ["ptr"], out: "f32v", imm: "disp" },
  "i8v.store": { args: ["ptr", "i8v"], out: undefined, imm: "disp" },
  "i32v.store": { args: ["ptr", "i32v"], out: undefined, imm: "disp" },
  "f32v.store": { args: ["ptr", "f32v"], out: undefined, imm: "disp" },
  /** The same 4 bytes in every 32-bit lane. */
  "i8v.load_splat32": { args: ["ptr"], out: "i8v", imm: "disp" },
  "i32v.load_splat": { args: ["ptr"], out: "i32v", imm: "disp" },
  "f32v.load_splat": { args: ["ptr"], out: "f32v", imm: "disp" },
  /** As many half floats (2 bytes each) as there are f32 lanes. */
  "f32v.load_f16": { args: ["ptr"], out: "f32v", imm: "disp" },
  /** The same for finite half floats; an infinity or NaN gives 65536 or more, or the result of load_f16. */
  "f32v.load_f16_finite": { args: ["ptr"], out: "f32v", imm: "disp" },
  "f32v.load_bf16": { args: ["ptr"], out: "f32v", imm: "disp" },
  /** Rounds to nearest even; overflow becomes infinity. */
  "f32v.store_f16": { args: ["ptr", "f32v"], out: undefined, imm: "disp" },
  /** As many bytes (or 16-bit integers) as there are i32 lanes, sign-extended. */
  "i32v.load_i8": { args: ["ptr"], out: "i32v", imm: "disp" },
  "i32v.load_i16": { args: ["ptr"], out: "i32v", imm: "disp" },

  // Constants and moves.
  "i8v.splat": { args: [], out: "i8v", imm: "value" },
  "i32v.splat": { args: ["i32"], out: "i32v" },
  "i32v.const": { args: [], out: "i32v", imm: "value" },
  "f32v.splat": { args: ["f32"], out: "f32v" },
  "f32v.const": { args: [], out: "f32v", imm: "value" },
  "f32v.as_i32v": { args: ["f32v"], out: "i32v" },
  "i32v.as_f32v": { args: ["i32v"], out: "f32v" },
  "i32v.as_i8v": { args: ["i32v"], out: "i8v" },
  "i8v.as_i32v": { args: ["i8v"], out: "i32v" },

  // Bytes.
  "i8v.and": { args: ["i8v", "i8v"], out: "i8v" },
  "i8v.or": { args: ["i8v", "i8v"], out: "i8v" },
  "i8v.xor": { args: ["i8v", "i8v"], out: "i8v" },
  "i8v.add": { args: ["i8v", "i8v"], out: "i8v" },
  "i8v.sub": { args: ["i8v", "i8v"], out: "i8v" },
  /** Each byte shifted by itself. */
  "i8v.shr_u": { args: ["i8v"], out: "i8v", imm: "shift" },
  "i8v.shl": { args: ["i8v"], out: "i8v", imm: "shift" },
  /** Each byte of the second operand (0..15) selects a byte from the same 16-byte group of the first; 128 or more gives 0. */
  "i8v.lookup16": { args: ["i8v", "i8v"], out: "i8v" },
  /** Interleaves bytes, or pairs of bytes, of two vectors, in each 16-byte group: those of its first half, or of its second. */
  "i8v.zip8_low": { args: ["i8v", "i8v"], out: "i8v" },
  "i8v.zip8_high": { args: ["i8v", "i8v"], out: "i8v" },
  "i8v.zip16_low": { args: ["i8v", "i8v"], out: "i8v" },
  "i8v.zip16_high": { args: ["i8v", "i8v"], out: "i8v" },
  /**
   * acc + the four products of each 32-bit lane's bytes. The first operand is signed; the second must be 0..127, or 0..255
   * or -128..127 where the target allows it (Dot4 in meanings.ts).
   */
  "i32v.dot4": { args: ["i8v", "i8v", "i32v"], out: "i32v" },

  /** The same for any signed bytes in both operands; slower where the target has no instruction for it. */
  "i32v.dot4_ss": { args: ["i8v", "i8v", "i32v"], out: "i32v" },

  // 32-bit integers.
  "i32v.add": { args: ["i32v", "i32v"], out: "i32v" },
  "i32v.sub": { args: ["i32v", "i32v"], out: "i32v" },
  "i32v.mul": { args: ["i32v", "i32v"], out: "i32v" },
  "i32v.and": { args: ["i32v", "i32v"], out: "i32v" },
  "i32v.or": { args: ["i32v", "i32v"], out: "i32v" },
  /** Bits of the second operand where the first has ones, of the third elsewhere. */
  "i32v.select": { args: ["i32v", "i32v", "i32v"], out: "i32v" },
  "i32v.max_s": { args: ["i32v", "i32v"], out: "i32v" },
  "i32v.min_s": { args: ["i32v", "i32v"], out: "i32v" },
  "i32v.shl": { args: ["i32v"], out: "i32v", imm: "shift" },
  "i32v.shr_u": { args: ["i32v"], out: "i32v", imm: "shift" },
  "i32v.shr_s": { args: ["i32v"], out: "i32v", imm: "shift" },
  "i32v.sum": { args: ["i32v"], out: "i32" },
  /** Four vectors of i32, each clamped to -128..127, into one of bytes, in order. */
  "i8v.pack_i32": { args: ["i32v", "i32v", "i32v", "i32v"], out: "i8v" },

  // Floats.
  "f32v.add": { args: ["f32v", "f32v"], out: "f32v" },
  "f32v.sub": { args: ["f32v", "f32v"], out: "f32v" },
  "f32v.mul": { args: ["f32v", "f32v"], out: "f32v" },
  "f32v.div": { args: ["f32v", "f32v"], out: "f32v" },
  /** b < a ? b : a, and a < b ? b : a: the first operand where either is NaN, and of two zeros. */
  "f32v.min": { args: ["f32v", "f32v"], out: "f32v" },
  "f32v.max": { args: ["f32v", "f32v"], out: "f32v" },
  /** All bits of a lane where a < b, none elsewhere. */
  "f32v.lt": { args: ["f32v", "f32v"], out: "i32v" },
  "f32v.abs": { args: ["f32v"], out: "f32v" },
  "f32v.neg": { args: ["f32v"], out: "f32v" },
  "f32v.sqrt": { args: ["f32v"], out: "f32v" },
  /** a * b + c; may fuse (round once) or not. */
  "f32v.fma": { args: ["f32v", "f32v", "f32v"], out: "f32v" },
  /** Lanes 1, 0, 3, 2, ...: neighbours are swapped. */
  "f32v.swap_pairs": { args: ["f32v"], out: "f32v" },
  /** Neighbours added, in each 16-byte group: a0 + a1, a2 + a3, b0 + b1, b2 + b3. */
  "f32v.add_pairs": { args: ["f32v", "f32v"], out: "f32v" },
  /** Four floats: the sum of each vector's lanes. In a 16-byte group neighbours are added first, then the groups. */
  "f32v.store_sums": { args: ["ptr", "f32v", "f32v", "f32v", "f32v"], out: undefined, imm: "disp" },
  /** To the nearest integer, ties to even; the value must fit an i32. */
  "i32v.from_f32v": { args: ["f32v"], out: "i32v" },
  "f32v.from_i32v": { args: ["i32v"], out: "f32v" },
  /** Sum and maximum over all lanes; the order of the additions is the target's own. The maximum is NaN if a lane is. */
  "f32v.sum": { args: ["f32v"], out: "f32" },
  "f32v.hmax": { args: ["f32v"], out: "f32" },

  // AMX tiles: eight, of up to 16 rows of 64 bytes. They are not registers of the IR: immediates name them.
  /** Gives an AMX tile its shape in this kernel, filled with zeros: before all other ops on tiles, outside of loops. */
  "amx.shape": { args: [], out: undefined, imm: "tile_shape", needs: "amx" },
  "amx.zero": { args: [], out: undefined, imm: "tile", needs: "amx" },
  /** Loads or stores its rows, which are the stride apart in memory. */
  "amx.load": { args: ["ptr"], out: undefined, imm: "tile_stride", needs: "amx" },
  "amx.store": { args: ["ptr"], out: undefined, imm: "tile_stride", needs: "amx" },
  /**
   * sum[m][n] += a[m][4k..4k+3] . b[k][4n..4n+3] for all k, in i32. Bytes of both are signed. Shapes must fit: a has as many
   * rows as the sum, b as many bytes in a row, and four bytes of a row of a stand for each row of b.
   */
  "amx.dot4_ss": { args: [], out: undefined, imm: "tiles", needs: "amx" },

  // Pairs of rows: SMMLA sees each 16 bytes as a matrix of 2 rows of 8 bytes.
  /** sum[2i + j] += a[8i..8i+7] . b[8j..8j+7], in i32. Bytes of both are signed. */
  "i8mm.dot8_ss": { args: ["i8v", "i8v", "i32v"], out: "i32v", needs: "i8mm" },

  // Zips of lanes, which transpose: sums of pairs of rows, and sums of blocks (neuron-rows.ts).
  /** Interleaves the lanes of two vectors: a0, b0, a1, b1 (low), a2, b2, a3, b3 (high). */
  "arm64.zip32_low": { args: ["f32v", "f32v"], out: "f32v", needs: "arm64" },
  "arm64.zip32_high": { args: ["f32v", "f32v"], out: "f32v", needs: "arm64" },
  /** The same in pairs of lanes: a0, a1, b0, b1 (low), a2, a3, b2, b3 (high). */
  "arm64.zip64_low": { args: ["f32v", "f32v"], out: "f32v", needs: "arm64" },
  "arm64.zip64_high": { args: ["f32v", "f32v"], out: "f32v", needs: "arm64" },

  // 16-bit integers: the parts of dot products of bytes on targets without an instruction for four (word-dots.ts).
  "i8v.as_i16v": { args: ["i8v"], out: "i16v", needs: "wasm" },
  "i32v.as_i16v": { args: ["i32v"], out: "i16v", needs: "wasm" },
  "i16v.as_i32v": { args: ["i16v"], out: "i32v", needs: "wasm" },
  "i16v.add": { args: ["i16v", "i16v"], out: "i16v", needs: "wasm" },
  "i16v.mul": { args: ["i16v", "i16v"], out: "i16v", needs: "wasm" },
  "i16v.shl": { args: ["i16v"], out: "i16v", imm: "shift", needs: "wasm" },
  "i16v.shr_s": { args: ["i16v"], out: "i16v", imm: "shift", needs: "wasm" },
  /** The two products of each 16-bit lane's bytes, added. The first operand is signed, the second 0..127. */
  "i16v.dot2": { args: ["i8v", "i8v"], out: "i16v", needs: "wasm" },
  /** The two products of each 32-bit lane's 16-bit integers, added. All are signed. */
  "i32v.dot2": { args: ["i16v", "i16v"], out: "i32v", needs: "wasm" },
} as const;

export type OpName = keyof typeof ops;

/** Ops on AMX tiles. */
export type TileOp = Extract<OpName, `amx.${string}`>;

export const tileOps: readonly TileOp[] = (Object.keys(ops) as OpName[]).filter(
  (op): op is TileOp => shapeOf(op).needs === "amx",
);

/** Ops on pairs of rows. */
export type PairOp = Extract<OpName, `i8mm.${string}`>;

export const pairOps: readonly PairOp[] = (Object.keys(ops) as OpName[]).filter(
  (op): op is PairOp => shapeOf(op).needs === "i8mm",
);

/** Zips of lanes. */
export type ZipOp = Extract<OpName, `arm64.${string}`>;

export const zipOps: readonly ZipOp[] = (Object.keys(ops) as OpName[]).filter(
  (op): op is ZipOp => shapeOf(op).needs === "arm64",
);

/** Ops on 16-bit integers. */
export type WordOp =
  | "i8v.as_i16v"
  | "i32v.as_i16v"
  | "i32v.dot2"
  | Extract<OpName, `i16v.${string}`>;

export const wordOps: readonly WordOp[] = (Object.keys(ops) as OpName[]).filter(
  (op): op is WordOp => shapeOf(op).needs === "wasm",
);

/** The shape of an op whose name is not known at compile time. */
export function shapeOf(op: OpName): OpShape {
  return ops[op];
}

/** Bytes of a lane of each vector type. */
const laneBytes: Readonly<Record<VectorType, number>> = {
  i8v: 1,
  i16v: 2,
  i32v: 4,
  f32v: 4,
};

export function isVector(type: Type): type is VectorType {
  return type in laneBytes;
}
