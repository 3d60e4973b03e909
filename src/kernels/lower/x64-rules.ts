// The rules that the rows of x64-ops.ts are made of: common shapes, arithmetic on general registers, and the longer
// sequences (reductions, maxima with NaN, dot products through 16-bit sums). Part of x64.ts.

import {
  memory,
  type Register,
  r32,
  r64,
  tmm,
  type X64Assembler,
  type Operand as X64Operand,
  xmm,
  ymm,
} from "../asm/x64.ts";
import type { Instruction } from "../asm/x64-instructions.ts";
import { strideOfTile } from "../ir/tiles.ts";
import type { Operand } from "./machine.ts";

export interface X64Target {
  readonly isa: "avx512" | "avx2-vnni" | "avx2";
}

/** The lowering of one kernel (x64.ts), as a rule sees it. */
export interface Lowering {
  readonly a: X64Assembler;
  /** AVX-512 and its encoding. */
  readonly isEvex: boolean;
  /** Bytes of a vector. */
  readonly width: number;
  readonly spare: number;
  vector(number: number): Register;
  scratch(index: number): number;
  splat(to: number, bits: number): void;
  zero(to: number): void;
  integer(to: number, value: number): void;
  source(name: Instruction, operand: Operand): X64Operand;
  sourceSingle(operand: Operand): X64Operand;
  constant(bytes: Uint8Array): X64Operand;
}

/** Vector registers that an op needs besides its own. */
export type Scratch = 0 | 1 | 2 | 3;

type Lower = (l: Lowering, args: readonly Operand[], imm: number, out: number) => void;

export interface Rule {
  readonly lower: Lower;
  /** Operands that may be in memory, or a constant there. */
  readonly memoryAt: readonly number[];
  /** A memory operand may be a broadcast. */
  readonly foldsSplat: boolean;
  readonly scratch: Scratch;
  readonly tied: number | undefined;
  readonly readsFirst: boolean;
}

/** An instruction that has another name in EVEX. */
interface Names {
  readonly vex: Instruction;
  readonly evex: Instruction;
}

export function nameFor(l: Lowering, names: Instruction | Names): Instruction {
  if (typeof names === "string") return names;
  return l.isEvex ? names.evex : names.vex;
}

/** The register of an operand that is always in one. */
export function inRegister(operand: Operand | undefined): number {
  if (operand?.kind === "register") return operand.register;
  throw new Error(`an operand is ${operand?.kind ?? "missing"}, expected a register`);
}

export function rule(lower: Lower, properties: Partial<Omit<Rule, "lower">> = {}): Rule {
  return {
    lower,
    ...{ memoryAt: [], foldsSplat: false, scratch: 0, tied: undefined, readsFirst: true },
    ...properties,
  };
}

/** out = instruction(first, second). The second may be in memory; of a commutative op, either. */
export function binary(
  names: Instruction | Names,
  kind: "commutative" | "ordered" | "reversed",
  lanes: "32-bit" | "bytes" = "32-bit",
): Rule {
  const memoryAt = kind === "commutative" ? [0, 1] : [kind === "ordered" ? 1 : 0];
  return rule(
    (l, [a, b], _, out) => {
      const swap = kind === "reversed" || (kind === "commutative" && a!.kind !== "register");
      const [first, second] = swap ? [b!, a!] : [a!, b!];
      const name = nameFor(l, names);
      l.a.op(name, l.vector(out), l.vector(inRegister(first)), l.source(name, second));
    },
    { memoryAt, foldsSplat: lanes === "32-bit" },
  );
}

export function unary(name: Instruction, ...immediate: number[]): Rule {
  return rule((l, [x], _, out) => l.a.op(name, l.vector(out), l.source(name, x!), ...immediate), {
    memoryAt: [0],
    foldsSplat: true,
  });
}

/** In EVEX, the operand may be in memory. */
export function shift(name: Instruction, form: "vex" | "evex"): Rule {
  return rule((l, [x], imm, out) => l.a.op(name, l.vector(out), l.source(name, x!), imm), {
    memoryAt: form === "evex" ? [0] : [],
    foldsSplat: true,
  });
}

export function load(name: Instruction): Rule {
  return rule((l, [p], imm, out) => l.a.op(name, l.vector(out), at(p!, imm)));
}

export function store(name: Instruction): Rule {
  return rule((l, [p, x], imm) => l.a.op(name, at(p!, imm), l.vector(inRegister(x))));
}

export function at(pointer: Operand, disp: number): X64Operand {
  return memory(r64(inRegister(pointer)), disp);
}

/** An op on f32. */
export function single(name: Instruction, isCommutative: boolean): Rule {
  return rule(
    (l, [a, b], _, out) => {
      const swap = isCommutative && a!.kind !== "register";
      const [first, second] = swap ? [b!, a!] : [a!, b!];
      l.a.op(name, xmm(out), xmm(inRegister(first)), l.sourceSingle(second));
    },
    { memoryAt: isCommutative ? [0, 1] : [1] },
  );
}

/** Sign-extends the 32 bits that an op has left. */
export function extend(l: Lowering, out: number): void {
  l.a.op("movsxd", r64(out), r32(out));
}

/** out = a + b, of all 64 bits; either may be a constant. */
export function addIntegers(l: Lowering, a: Operand, b: Operand, out: number): void {
  if (a.kind === "constant" && b.kind === "constant") {
    l.integer(out, (a.bits + b.bits) | 0);
  } else if (a.kind === "constant" || b.kind === "constant") {
    const [x, bits] = a.kind === "constant" ? [b, a.bits] : [a, (b as { bits: number }).bits];
    const from = inRegister(x);
    if (from === out) l.a.op("add", r64(out), bits);
    else l.a.op("lea", r64(out), memory(r64(from), bits));
  } else {
    const [x, y] = [inRegister(a), inRegister(b)];
    if (x === out) l.a.op("add", r64(out), r64(y));
    else if (y === out) l.a.op("add", r64(out), r64(x));
    else l.a.op("lea", r64(out), memory(r64(x), 0, { index: r64(y) }));
  }
}

export const subIntegers: Lower = (l, [a, b], _, out) => {
  if (b!.kind === "constant") addIntegers(l, a!, { kind: "constant", bits: -b!.bits | 0 }, out);
  else {
    const y = inRegister(b);
    if (a!.kind === "register" && a!.register === out) l.a.op("sub", r64(out), r64(y));
    else {
      if (y !== out) l.a.op("mov", r64(out), r64(y));
      l.a.op("neg", r64(out));
      addIntegers(l, { kind: "register", register: out }, a!, out);
    }
  }
  extend(l, out);
};

/** out = a * b, all 64 bits of it. */
export function mulIntegers(l: Lowering, a: Operand, b: Operand, out: number): void {
  if (a.kind === "constant" && b.kind === "constant") {
    l.integer(out, a.bits);
    l.a.op("imul", r64(out), r64(out), b.bits);
  } else if (a.kind === "constant" || b.kind === "constant") {
    const [x, bits] = a.kind === "constant" ? [b, a.bits] : [a, (b as { bits: number }).bits];
    l.a.op("imul", r64(out), r64(inRegister(x)), bits);
  } else {
    const [x, y] = [inRegister(a), inRegister(b)];
    if (y === out) l.a.op("imul", r64(out), r64(x));
    else {
      if (x !== out) l.a.op("mov", r64(out), r64(x));
      l.a.op("imul", r64(out), r64(y));
    }
  }
}

/**
 * The larger of two, as WebAssembly's max: NaN if either is, and of two zeros the positive one. vmaxps gives its second
 * operand in these cases, so both orders are computed, and the bits in which they differ tell the cases apart.
 * `x` becomes the result; `y` is overwritten. `spare` is another register.
 */
export function maximum(
  l: Lowering,
  vector: (number: number) => X64Operand,
  [x, y, spare]: readonly [number, number, number],
): void {
  const [xor, or] = l.isEvex ? (["vpxord", "vpord"] as const) : (["vpxor", "vpor"] as const);
  l.a.op("vmaxps", vector(spare), vector(x), vector(y));
  l.a.op("vmaxps", vector(y), vector(y), vector(x));
  l.a.op(xor, vector(y), vector(y), vector(spare));
  l.a.op(or, vector(spare), vector(spare), vector(y));
  l.a.op("vsubps", vector(x), vector(spare), vector(y));
}

/** Moves the upper half of `from`, which has `bytes` bytes, into `to`. */
function upperHalf(l: Lowering, bytes: number, to: number, from: number): void {
  if (bytes === 64) l.a.op("vextracti64x4", ymm(to), l.vector(from), 1);
  else if (bytes === 32) {
    l.a.op(l.isEvex ? "vextracti32x4" : "vextracti128", xmm(to), ymm(from), 1);
  } else l.a.op("vpshufd", xmm(to), xmm(from), bytes === 16 ? 0x0e : 0x01);
}

/** Reduces all lanes to the lowest one of `out` by combining halves. */
export function reduce(
  l: Lowering,
  from: number,
  out: number,
  spare: number,
  combine: (vector: (number: number) => X64Operand, x: number, y: number, out: number) => void,
): void {
  let last = from;
  for (let bytes = l.width; bytes >= 8; bytes /= 2) {
    const vector = bytes === 64 ? ymm : xmm;
    upperHalf(l, bytes, spare, last);
    combine(vector, last, spare, out);
    last = out;
  }
}

/** Adds neighbours in each 16 bytes: those of `a`, then those of `b`. `spare` is written first, `out` after all reads. */
export function addPairs(l: Lowering, a: number, b: number, out: number, spare: number): void {
  const [x, y, even, odd] = [a, b, out, spare].map((number) => l.vector(number));
  l.a.op("vshufps", odd!, x!, y!, 0xdd);
  l.a.op("vshufps", even!, x!, y!, 0x88);
  l.a.op("vaddps", even!, even!, odd!);
}

/** Adds the 16-byte groups of `x`, by halves, and stores the sum. */
export function storeGroups(l: Lowering, to: X64Operand, x: number, spare: number): void {
  for (let bytes = l.width; bytes > 16; bytes /= 2) {
    const vector = bytes === 64 ? ymm : xmm;
    upperHalf(l, bytes, spare, x);
    l.a.op("vaddps", vector(x), vector(x), vector(spare));
  }
  l.a.op("vmovups.store", to, xmm(x));
}

/** An AMX tile, and the address of its rows, whose stride is in a register. */
export function rowsInMemory(
  l: Lowering,
  pointer: Operand,
  imm: number,
): { tile: Register; rows: X64Operand } {
  const { tile, stride } = strideOfTile(imm);
  const index = l.spare;
  l.integer(index, stride);
  const rows = memory(r64(inRegister(pointer)), 0, { index: r64(index) });
  return { tile: tmm(tile), rows };
}

/** Dwords of four packed vectors, which are interleaved by their 16-byte groups, in order. */
export function packOrder(width: number): Uint8Array {
  const groups = width / 16;
  const order = Array.from(
    { length: 4 * groups },
    (_, i) => (i % groups) * 4 + Math.floor(i / groups),
  );
  return new Uint8Array(Uint32Array.from(order).buffer);
}

export function bits(name: "vpand" | "vpor" | "vpxor"): Rule {
  return binary({ vex: name, evex: `${name}d` as const }, "commutative");
}

/** acc + the dot product, through 16-bit sums of two: exact for 0..127. */
export const dotThroughWords: Rule = rule(
  (l, [xs, codes], _, out) => {
    const t = l.vector(l.scratch(0));
    l.a.op("vpmaddubsw", t, l.vector(inRegister(codes)), l.source("vpmaddubsw", xs!));
    l.a.op("vpmaddwd", t, t, l.source("vpmaddwd", { kind: "constant", bits: 0x00010001 }));
    l.a.op("vpaddd", l.vector(out), l.vector(out), t);
  },
  { memoryAt: [0], scratch: 1, tied: 2 },
);

/** Sign-extends bytes to 16 bits: odd ones by one shift, even ones by two. */
export const signedDotThroughWords: Rule = rule(
  (l, [a, b], _, out) => {
    const [s, t] = [l.vector(l.scratch(0)), l.vector(l.scratch(1))];
    const [x, y] = [l.vector(inRegister(a)), l.vector(inRegister(b))];
    l.a.op("vpsraw", s, x, 8);
    l.a.op("vpsraw", t, y, 8);
    l.a.op("vpmaddwd", s, s, t);
    l.a.op("vpaddd", l.vector(out), l.vector(out), s);
    l.a.op("vpsllw", s, x, 8);
    l.a.op("vpsraw", s, s, 8);
    l.a.op("vpsllw", t, y, 8);
    l.a.op("vpsraw", t, t, 8);
    l.a.op("vpmaddwd", s, s, t);
    l.a.op("vpaddd", l.vector(out), l.vector(out), s);
  },
  { scratch: 2, tied: 2 },
);

const float = new DataView(new ArrayBuffer(4));

export function floatBits(value: number): number {
  float.setFloat32(0, value);
  return float.getInt32(0);
}
