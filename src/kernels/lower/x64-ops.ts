// The table of the lowering to x86-64, one row for each op of the IR: which operands may be in memory, which one it
// overwrites, and its instructions on AVX2 and AVX-512. Part of x64.ts.

import { maskRegister, r32, r64, tmm, xmm } from "../asm/x64.ts";
import type { OpName, PairOp, TileOp, WordOp, ZipOp } from "../ir/ops.ts";
import { tilesOf } from "../ir/tiles.ts";
import { noPairs, noTiles, noWords, noZips } from "./machine.ts";
import {
  addIntegers,
  addPairs,
  at,
  binary,
  bits,
  dotThroughWords,
  extend,
  floatBits,
  inRegister,
  load,
  maximum,
  mulIntegers,
  nameFor,
  packOrder,
  type Rule,
  reduce,
  rowsInMemory,
  rule,
  shift,
  signedDotThroughWords,
  single,
  store,
  storeGroups,
  subIntegers,
  unary,
  type X64Target,
} from "./x64-rules.ts";

type Isa = X64Target["isa"];

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
  "i8v.zip8_low": binary("vpunpcklbw", "ordered", "bytes"),
  "i8v.zip8_high": binary("vpunpckhbw", "ordered", "bytes"),
  "i8v.zip16_low": binary("vpunpcklwd", "ordered", "bytes"),
  "i8v.zip16_high": binary("vpunpckhwd", "ordered", "bytes"),
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
      // vpternlogd 0xca: the second operand where the first (out, the mask) has ones, else the third; 0xac: the reverse.
      const [first, second, table] = a!.kind === "register" ? [a!, b!, 0xca] : [b!, a!, 0xac];
      const source = l.source("vpternlogd", second);
      l.a.op("vpternlogd", l.vector(out), l.vector(inRegister(first)), source, table);
    },
    { memoryAt: [1, 2], foldsSplat: true, tied: 0 },
  ),
  "i32v.max_s": binary("vpmaxsd", "commutative"),
  "i32v.min_s": binary("vpminsd", "commutative"),
  "i32v.shl": shift("vpslld", "evex"),
  "i32v.shr_u": shift("vpsrld", "evex"),
  "i32v.shr_s": shift("vpsrad", "evex"),
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
    (l, [a, b], _, out) => addPairs(l, inRegister(a), inRegister(b), out, l.scratch(0)),
    { scratch: 1 },
  ),
  "f32v.store_sums": rule(
    (l, [p, ...vectors], imm) => {
      const [a, b, c, d] = vectors.map(inRegister) as [number, number, number, number];
      const [x, y, t] = [l.scratch(0), l.scratch(1), l.scratch(2)];
      addPairs(l, a, b, x, t);
      addPairs(l, c, d, y, t);
      addPairs(l, x, y, x, t);
      storeGroups(l, at(p!, imm), x, y);
    },
    { scratch: 3 },
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

  // The prologue loads all shapes at once (tileConfiguration in x64.ts).
  "amx.shape": rule(() => {}),
  "amx.zero": rule((l, _, imm) => l.a.op("tilezero", tmm(imm))),
  "amx.load": rule((l, [p], imm) => {
    const { tile, rows } = rowsInMemory(l, p!, imm);
    l.a.op("tileloadd", tile, rows);
  }),
  "amx.store": rule((l, [p], imm) => {
    const { tile, rows } = rowsInMemory(l, p!, imm);
    l.a.op("tilestored", rows, tile);
  }),
  "amx.dot4_ss": rule((l, _, imm) => {
    const { sum, a, b } = tilesOf(imm);
    l.a.op("tdpbssd", tmm(sum), tmm(a), tmm(b));
  }),
  ...refusing<PairOp>(noPairs("x86-64")),
  ...refusing<ZipOp>(noZips("x86-64")),
  ...refusing<WordOp>(noWords("x86-64")),
};

/** The ops that differ on AVX2, which also has no broadcast operands. */
const rulesOfAvx2: Partial<Record<OpName, Rule>> = {
  // Fewer instructions, and a register less: EVEX has no vhaddps.
  "f32v.store_sums": rule(
    (l, [p, ...vectors], imm) => {
      const [a, b, c, d] = vectors.map((vector) => l.vector(inRegister(vector)));
      const [x, y] = [l.vector(l.scratch(0)), l.vector(l.scratch(1))];
      l.a.op("vhaddps", x, a!, b!);
      l.a.op("vhaddps", y, c!, d!);
      l.a.op("vhaddps", x, x, y);
      storeGroups(l, at(p!, imm), l.scratch(0), l.scratch(1));
    },
    { scratch: 2 },
  ),
  "i32v.shl": shift("vpslld", "vex"),
  "i32v.shr_u": shift("vpsrld", "vex"),
  "i32v.shr_s": shift("vpsrad", "vex"),
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

const rulesWithoutTiles = refusing<TileOp>(noTiles("AVX2"));

const rulesOfPlainAvx2: Partial<Record<OpName, Rule>> = { "i32v.dot4": dotThroughWords };

const tables: Readonly<Record<Isa, { readonly [O in OpName]: Rule }>> = {
  avx512: rules,
  "avx2-vnni": withoutSplats({ ...rules, ...rulesOfAvx2, ...rulesWithoutTiles }),
  avx2: withoutSplats({
    ...rules,
    ...rulesOfAvx2,
    ...rulesOfPlainAvx2,
    ...rulesWithoutTiles,
  }),
};

export function ruleOf(op: OpName, isa: Isa): Rule {
  return tables[isa][op];
}

function withoutSplats(table: { readonly [O in OpName]: Rule }): { readonly [O in OpName]: Rule } {
  const entries = Object.entries(table).map(([op, rule]) => [op, { ...rule, foldsSplat: false }]);
  return Object.fromEntries(entries) as { readonly [O in OpName]: Rule };
}

function refusing<O extends OpName>(refusals: Record<O, () => never>): Record<O, Rule> {
  const entries = Object.entries<() => never>(refusals).map(([op, refuse]) => [op, rule(refuse)]);
  return Object.fromEntries(entries) as Record<O, Rule>;
}

/** Resolved by linear.ts: the same bits in the same register. */
function casts<O extends OpName>(...names: O[]): Record<O, Rule> {
  return never(names, "machine.ts resolves it");
}

/** Replaced by x64-expand.ts. */
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
