// One row for each op of the IR: which of its operands may be in memory, what it overwrites, and its instructions on
// AVX2 and AVX-512. Part of x64.ts.

import {
  maskRegister,
  memory,
  r32,
  r64,
  type Operand as X64Operand,
  xmm,
  ymm,
} from "../asm/x64.ts";
import type { Instruction } from "../asm/x64-instructions.ts";
import type { OpName } from "../ir/ops.ts";
import type { Operand } from "./machine.ts";
import type { Lowering, X64Target } from "./x64.ts";

/** Vector registers that an op needs besides its own. */
export type Scratch = 0 | 1 | 2;

export type Lower = (l: Lowering, args: readonly Operand[], imm: number, out: number) => void;

export interface Rule {
  readonly lower: Lower;
  /** Operands that may be in memory, or a constant there. */
  readonly memoryAt: readonly number[];
  /** That may be one value for all lanes. */
  readonly foldsSplat: boolean;
  readonly scratch: Scratch;
  readonly tied: number | undefined;
  readonly readsFirst: boolean;
}

type Level = X64Target["level"];

/** An instruction that has another name in EVEX. */
interface Names {
  readonly vex: Instruction;
  readonly evex: Instruction;
}

function nameFor(l: Lowering, names: Instruction | Names): Instruction {
  if (typeof names === "string") return names;
  return l.isEvex ? names.evex : names.vex;
}

/** The register of an operand that is always in one. */
function inRegister(operand: Operand | undefined): number {
  if (operand?.kind === "register") return operand.register;
  throw new Error(`an operand is ${operand?.kind ?? "missing"}, expected a register`);
}

function rule(lower: Lower, properties: Partial<Omit<Rule, "lower">> = {}): Rule {
  return {
    lower,
    ...{ memoryAt: [], foldsSplat: false, scratch: 0, tied: undefined, readsFirst: true },
    ...properties,
  };
}

/** out = instruction(first, second), the second from memory if it is there; of a commutative one, either. */
function binary(
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

function unary(name: Instruction, ...immediate: number[]): Rule {
  return rule((l, [x], _, out) => l.a.op(name, l.vector(out), l.source(name, x!), ...immediate), {
    memoryAt: [0],
    foldsSplat: true,
  });
}

function shift(name: Instruction): Rule {
  return rule((l, [x], imm, out) => {
    l.a.op(name, l.vector(out), l.vector(inRegister(x)), imm);
  });
}

function load(name: Instruction): Rule {
  return rule((l, [p], imm, out) => l.a.op(name, l.vector(out), at(p!, imm)));
}

function store(name: Instruction): Rule {
  return rule((l, [p, x], imm) => l.a.op(name, at(p!, imm), l.vector(inRegister(x))));
}

function at(pointer: Operand, disp: number): X64Operand {
  return memory(r64(inRegister(pointer)), disp);
}

/** An op on f32. */
function single(name: Instruction, isCommutative: boolean): Rule {
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
function extend(l: Lowering, out: number): void {
  l.a.op("movsxd", r64(out), r32(out));
}

/** out = a + b, of all 64 bits; either may be a constant. */
function addIntegers(l: Lowering, a: Operand, b: Operand, out: number): void {
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

const subIntegers: Lower = (l, [a, b], _, out) => {
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
function mulIntegers(l: Lowering, a: Operand, b: Operand, out: number): void {
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
 * operand in these cases; where the two orders differ, the bits in which they do tell which case it is.
 * `x` becomes the result; `y` is lost. `spare` is another register.
 */
function maximum(
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

/** The upper half of `from`, whose length is `bytes`, into `to`. */
function upperHalf(l: Lowering, bytes: number, to: number, from: number): void {
  if (bytes === 64) l.a.op("vextracti64x4", ymm(to), l.vector(from), 1);
  else if (bytes === 32) {
    l.a.op(l.isEvex ? "vextracti32x4" : "vextracti128", xmm(to), ymm(from), 1);
  } else l.a.op("vpshufd", xmm(to), xmm(from), bytes === 16 ? 0x0e : 0x01);
}

/** All lanes into the lowest one of `out`: halves onto each other. */
function reduce(
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

/** Dwords of four packed vectors, which are interleaved by their 16-byte groups, in order. */
function packOrder(width: number): Uint8Array {
  const groups = width / 16;
  const order = Array.from(
    { length: 4 * groups },
    (_, i) => (i % groups) * 4 + Math.floor(i / groups),
  );
  return new Uint8Array(Uint32Array.from(order).buffer);
}

const bits = (name: "vpand" | "vpor" | "vpxor"): Rule =>
  binary({ vex: name, evex: `${name}d` as const }, "commutative");

/** acc + the products, through 16-bit sums of two: exact for 0..127. */
const dotThroughWords: Rule = rule(
  (l, [xs, codes], _, out) => {
    const t = l.vector(l.scratch(0));
    l.a.op("vpmaddubsw", t, l.vector(inRegister(codes)), l.source("vpmaddubsw", xs!));
    l.a.op("vpmaddwd", t, t, l.source("vpmaddwd", { kind: "constant", bits: 0x00010001 }));
    l.a.op("vpaddd", l.vector(out), l.vector(out), t);
  },
  { memoryAt: [0], scratch: 1, tied: 2 },
);

/** Bytes sign-extended to 16 bits: the odd ones by a shift, the even ones by two. */
const signedDotThroughWords: Rule = rule(
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

const rules: { readonly [O in OpName]: Rule } = {
  "i32.const": rule((l, _, imm, out) => l.integer(out, imm | 0)),
  "i32.add": rule((l, [a, b], _, out) => {
    addIntegers(l, a!, b!, out);
    extend(l, out);
  }),
  "i32.sub": rule(subIntegers),
  "i32.mul": rule((l, [a, b], _, out) => {
    mulIntegers(l, a!, b!, out);
    extend(l, out);
  }),
  "i32.shr_u": rule((l, [x], imm, out) => {
    if (x!.kind === "constant") l.integer(out, (x!.bits >>> imm) | 0);
    else {
      if (inRegister(x) !== out) l.a.op("mov", r32(out), r32(inRegister(x)));
      if (imm > 0) l.a.op("shr", r32(out), imm);
      extend(l, out);
    }
  }),
  "i32.load": rule((l, [p], imm, out) => l.a.op("movsxd", r64(out), at(p!, imm))),
  "i32.store": rule((l, [p, x], imm) =>
    l.a.op("mov", at(p!, imm), x!.kind === "constant" ? x!.bits : r32(inRegister(x))),
  ),
  "f32.const": rule((l, _, imm, out) => l.splat(out, floatBits(imm))),
  "f32.add": single("vaddss", true),
  "f32.sub": single("vsubss", false),
  "f32.mul": single("vmulss", true),
  "f32.div": single("vdivss", false),
  "f32.max": rule(
    (l, [a, b], _, out) => {
      const y = l.scratch(0);
      l.a.op("vmovaps", xmm(y), xmm(inRegister(b)));
      if (inRegister(a) !== out) l.a.op("vmovaps", xmm(out), xmm(inRegister(a)));
      maximum(l, xmm, [out, y, l.scratch(1)]);
    },
    { scratch: 2 },
  ),
  "f32.sqrt": rule((l, [x], _, out) =>
    l.a.op("vsqrtss", xmm(out), xmm(inRegister(x)), xmm(inRegister(x))),
  ),
  "f32.from_i32": rule((l, [x], _, out) => {
    if (x!.kind === "constant") l.splat(out, floatBits(x!.bits));
    else {
      l.zero(out);
      l.a.op("vcvtsi2ss", xmm(out), xmm(out), r32(inRegister(x)));
    }
  }),
  "f32.load": rule((l, [p], imm, out) => l.a.op("vmovss", xmm(out), at(p!, imm))),
  "f32.store": rule((l, [p, x], imm) => l.a.op("vmovss.store", at(p!, imm), xmm(inRegister(x)))),
  "ptr.add": rule((l, [p, bytes], _, out) => addIntegers(l, p!, bytes!, out)),
  "ptr.add_product": rule(
    (l, [p, a, b], _, out) => {
      mulIntegers(l, a!, b!, out);
      l.a.op("add", r64(out), r64(inRegister(p)));
    },
    { readsFirst: false },
  ),

  "ptr.prefetch": rule((l, [p], imm) => l.a.op("prefetcht0", at(p!, imm))),

  "i8v.load": load("vmovups"),
  "i32v.load": load("vmovups"),
  "f32v.load": load("vmovups"),
  "i8v.store": store("vmovups.store"),
  "i32v.store": store("vmovups.store"),
  "f32v.store": store("vmovups.store"),
  "i8v.load_splat32": load("vpbroadcastd"),
  "i32v.load_splat": load("vpbroadcastd"),
  "f32v.load_splat": load("vbroadcastss"),
  "f32v.load_f16": load("vcvtph2ps"),
  "f32v.load_f16_finite": load("vcvtph2ps"),
  "f32v.load_bf16": rule((l, [p], imm, out) => {
    l.a.op("vpmovzxwd", l.vector(out), at(p!, imm));
    l.a.op("vpslld", l.vector(out), l.vector(out), 16);
  }),
  "f32v.store_f16": rule((l, [p, x], imm) =>
    l.a.op("vcvtps2ph", at(p!, imm), l.vector(inRegister(x)), 0),
  ),
  "i32v.load_i8": load("vpmovsxbd"),
  "i32v.load_i16": load("vpmovsxwd"),

  "i8v.splat": rule((l, _, imm, out) => l.splat(out, Math.imul(imm & 255, 0x01010101))),
  "i32v.splat": rule((l, [x], _, out) => {
    if (x!.kind === "constant") l.splat(out, x!.bits);
    else if (l.isEvex) l.a.op("vpbroadcastd.r32", l.vector(out), r32(inRegister(x)));
    else {
      l.a.op("vmovd", xmm(out), r32(inRegister(x)));
      l.a.op("vpbroadcastd", l.vector(out), xmm(out));
    }
  }),
  "i32v.const": rule((l, _, imm, out) => l.splat(out, imm | 0)),
  "f32v.splat": rule(
    (l, [x], _, out) => l.a.op("vbroadcastss", l.vector(out), l.sourceSingle(x!)),
    { memoryAt: [0] },
  ),
  "f32v.const": rule((l, _, imm, out) => l.splat(out, floatBits(imm))),
  ...casts("f32v.as_i32v", "i32v.as_f32v", "i32v.as_i8v", "i8v.as_i32v"),

  "i8v.and": bits("vpand"),
  "i8v.or": bits("vpor"),
  "i8v.xor": bits("vpxor"),
  "i8v.add": binary("vpaddb", "commutative", "bytes"),
  "i8v.sub": binary("vpsubb", "ordered", "bytes"),
  ...expanded("i8v.shr_u", "i8v.shl", "f32v.abs", "f32v.neg"),
  "i8v.lookup16": binary("vpshufb", "ordered", "bytes"),
  "i32v.dot4": rule(
    (l, [xs, codes], _, out) => {
      const name = nameFor(l, { vex: "vpdpbusd.vex", evex: "vpdpbusd" });
      l.a.op(name, l.vector(out), l.vector(inRegister(codes)), l.source(name, xs!));
    },
    { memoryAt: [0], foldsSplat: true, tied: 2 },
  ),
  "i32v.dot4_ss": signedDotThroughWords,

  "i32v.add": binary("vpaddd", "commutative"),
  "i32v.sub": binary("vpsubd", "ordered"),
  "i32v.mul": binary("vpmulld", "commutative"),
  "i32v.and": bits("vpand"),
  "i32v.or": bits("vpor"),
  "i32v.select": rule(
    (l, [_, a, b], __, out) => {
      // 0xca: the second operand where the first (out, the mask) has ones, else the third; 0xac: the other way round.
      const [first, second, table] = a!.kind === "register" ? [a!, b!, 0xca] : [b!, a!, 0xac];
      const source = l.source("vpternlogd", second);
      l.a.op("vpternlogd", l.vector(out), l.vector(inRegister(first)), source, table);
    },
    { memoryAt: [1, 2], foldsSplat: true, tied: 0 },
  ),
  "i32v.max_s": binary("vpmaxsd", "commutative"),
  "i32v.min_s": binary("vpminsd", "commutative"),
  "i32v.shl": shift("vpslld"),
  "i32v.shr_u": shift("vpsrld"),
  "i32v.shr_s": shift("vpsrad"),
  "i32v.sum": rule(
    (l, [x], _, out) => {
      const [sum, half] = [l.scratch(0), l.scratch(1)];
      reduce(l, inRegister(x), sum, half, (vector, a, b, to) => {
        l.a.op("vpaddd", vector(to), vector(a), vector(b));
      });
      l.a.op("vmovd.store", r32(out), xmm(sum));
      extend(l, out);
    },
    { scratch: 2 },
  ),
  "i8v.pack_i32": rule(
    (l, args, _, out) => {
      const [a, b, c, d] = args.map((arg) => l.vector(inRegister(arg)));
      const [to, t] = [l.vector(out), l.vector(l.scratch(0))];
      l.a.op("vpackssdw", to, a!, b!);
      l.a.op("vpackssdw", t, c!, d!);
      l.a.op("vpacksswb", to, to, t);
      l.a.op("vmovups", t, l.constant(packOrder(l.width)));
      l.a.op("vpermd", to, t, to);
    },
    { scratch: 1, readsFirst: false },
  ),

  "f32v.add": binary("vaddps", "commutative"),
  "f32v.sub": binary("vsubps", "ordered"),
  "f32v.mul": binary("vmulps", "commutative"),
  "f32v.div": binary("vdivps", "ordered"),
  // vminps and vmaxps give their second operand where either is NaN, and of two zeros.
  "f32v.min": binary("vminps", "reversed"),
  "f32v.max": binary("vmaxps", "reversed"),
  "f32v.lt": rule(
    (l, [a, b], _, out) => {
      const isLess = 0x11; // false where either is NaN, without an exception
      if (l.isEvex) {
        const source = l.source("vcmpps.k", b!);
        l.a.op("vcmpps.k", maskRegister(1), l.vector(inRegister(a)), source, isLess);
        l.a.op("vpmovm2d", l.vector(out), maskRegister(1));
      } else {
        const source = l.source("vcmpps", b!);
        l.a.op("vcmpps", l.vector(out), l.vector(inRegister(a)), source, isLess);
      }
    },
    { memoryAt: [1], foldsSplat: true },
  ),
  "f32v.sqrt": unary("vsqrtps"),
  "f32v.fma": rule(
    (l, [a, b], _, out) => {
      const [first, second] = a!.kind === "register" ? [a!, b!] : [b!, a!];
      const source = l.source("vfmadd231ps", second);
      l.a.op("vfmadd231ps", l.vector(out), l.vector(inRegister(first)), source);
    },
    { memoryAt: [0, 1], foldsSplat: true, tied: 2 },
  ),
  "f32v.swap_pairs": unary("vpshufd", 0xb1),
  "f32v.add_pairs": rule(
    (l, [a, b], _, out) => {
      const [x, y] = [l.vector(inRegister(a)), l.vector(inRegister(b))];
      const [even, odd] = [l.vector(out), l.vector(l.scratch(0))];
      l.a.op("vshufps", odd, x, y, 0xdd);
      l.a.op("vshufps", even, x, y, 0x88);
      l.a.op("vaddps", even, even, odd);
    },
    { scratch: 1 },
  ),
  "i32v.from_f32v": unary("vcvtps2dq"),
  "f32v.from_i32v": unary("vcvtdq2ps"),
  "f32v.sum": rule(
    (l, [x], _, out) =>
      reduce(l, inRegister(x), out, l.scratch(0), (vector, a, b, to) => {
        l.a.op("vaddps", vector(to), vector(a), vector(b));
      }),
    { scratch: 1 },
  ),
  "f32v.hmax": rule(
    (l, [x], _, out) =>
      reduce(l, inRegister(x), out, l.scratch(0), (vector, a, b, to) => {
        if (a !== to) l.a.op("vmovaps", vector(to), vector(a));
        maximum(l, vector, [to, b, l.scratch(1)]);
      }),
    { scratch: 2 },
  ),
};

/** What AVX2 does otherwise: no operand is one value for all lanes. */
const rulesOfAvx2: Partial<Record<OpName, Rule>> = {
  "i32v.select": rule(
    (l, [_, a, b], __, out) => {
      const t = l.vector(l.scratch(0));
      l.a.op("vpandn", t, l.vector(out), l.vector(inRegister(b)));
      l.a.op("vpand", l.vector(out), l.vector(out), l.vector(inRegister(a)));
      l.a.op("vpor", l.vector(out), l.vector(out), t);
    },
    { scratch: 1, tied: 0 },
  ),
};

const rulesOfPlainAvx2: Partial<Record<OpName, Rule>> = { "i32v.dot4": dotThroughWords };

const tables: Readonly<Record<Level, { readonly [O in OpName]: Rule }>> = {
  avx512: rules,
  "avx2-vnni": withoutSplats({ ...rules, ...rulesOfAvx2 }),
  avx2: withoutSplats({ ...rules, ...rulesOfAvx2, ...rulesOfPlainAvx2 }),
};

export function ruleOf(op: OpName, level: Level): Rule {
  return tables[level][op];
}

function withoutSplats(table: { readonly [O in OpName]: Rule }): { readonly [O in OpName]: Rule } {
  const entries = Object.entries(table).map(([op, rule]) => [op, { ...rule, foldsSplat: false }]);
  return Object.fromEntries(entries) as { readonly [O in OpName]: Rule };
}

/** Resolved by machine.ts: the same bits in the same register. */
function casts<O extends OpName>(...names: O[]): Record<O, Rule> {
  return never(names, "machine.ts resolves it");
}

/** Said in other ops by x64-expand.ts. */
function expanded<O extends OpName>(...names: O[]): Record<O, Rule> {
  return never(names, "x64-expand.ts replaces it");
}

function never<O extends OpName>(names: readonly O[], why: string): Record<O, Rule> {
  const entries = names.map((name) => [
    name,
    rule(() => {
      throw new Error(`${name} has no instruction: ${why}`);
    }),
  ]);
  return Object.fromEntries(entries) as Record<O, Rule>;
}

const float = new DataView(new ArrayBuffer(4));

function floatBits(value: number): number {
  float.setFloat32(0, value);
  return float.getInt32(0);
}
