// The instructions of x86-64 that kernels need, under the names of Intel's manual: what the manual's opcode column says,
// as data. x64.ts makes bytes of it. A new instruction is one line.
//
// A vector instruction has a VEX form (xmm and ymm, registers 0 to 15), an EVEX form (all registers, zmm, {1to16}), or
// both; where there are both, the assembler takes the shorter one that can say it. The two may need different processors:
// vpdpbusd in VEX is AVX-VNNI, in EVEX AVX-512 VNNI.

/** Where operands go: r is ModRM.reg, m is ModRM.rm, v is VEX.vvvv, i an immediate byte. */
export type Place = "r" | "m" | "v" | "i";

/**
 * How many bytes the memory operand has, which is what an EVEX form counts its short displacements in: the vector's
 * length or a part of it, or a number.
 */
export type MemoryBytes = "whole" | "half" | "quarter" | number;

export interface VectorRow {
  readonly kind: "vector";
  readonly forms: "vex" | "evex" | "both";
  /** Number of the prefix (none, 66, F3, F2) and of the opcode map (0F, 0F38, 0F3A). */
  readonly prefix: 0 | 1 | 2 | 3;
  readonly map: 1 | 2 | 3;
  readonly wide: boolean;
  readonly opcode: number;
  readonly places: readonly Place[];
  readonly memory: MemoryBytes;
  /** What stands in ModRM.reg where no operand does. */
  readonly digit: number;
  /** The memory operand may be one 32-bit value for all lanes (EVEX). */
  readonly broadcast: boolean;
}

export interface GeneralRow {
  readonly kind: "general";
  /** The opcode for operands (r/m, r), (r, r/m), (r/m, imm8), (r/m, imm32), (r, r/m, imm8) and (r, r/m, imm32). */
  readonly mr?: readonly number[];
  readonly rm?: readonly number[];
  readonly mi8?: readonly number[];
  readonly mi32?: readonly number[];
  readonly rmi8?: readonly number[];
  readonly rmi32?: readonly number[];
  /** One operand, r/m. */
  readonly m?: readonly number[];
  /** One register, which is added to the opcode; no REX.W. */
  readonly o?: readonly number[];
  /** What stands in ModRM.reg where no operand does. */
  readonly digit: number;
}

type Forms = VectorRow["forms"];
type Code = `${"" | "66." | "F3." | "F2."}${"0F" | "0F38" | "0F3A"}.${"W0" | "W1"} ${string}`;

const prefixes: readonly string[] = ["", "66", "F3", "F2"];
const maps: readonly string[] = ["", "0F", "0F38", "0F3A"];

/** `code` is written as in the manual: prefix, map, W, opcode, and /digit. */
function vector(forms: Forms, code: Code, places: string, memory: MemoryBytes): VectorRow {
  const [fields, opcode, digit = "/0"] = code.split(" ") as [string, string, string?];
  const parts = fields.split(".");
  const wide = parts.pop() === "W1";
  const map = maps.indexOf(parts.pop()!);
  return {
    kind: "vector",
    forms,
    prefix: prefixes.indexOf(parts.pop() ?? "") as VectorRow["prefix"],
    map: map as VectorRow["map"],
    wide,
    opcode: Number.parseInt(opcode, 16),
    places: [...places] as Place[],
    memory,
    digit: Number(digit.slice(1)),
    broadcast: false,
  };
}

/** A vector instruction on 32-bit lanes, whose memory operand may be one value for all of them. */
function lanes(forms: Forms, code: Code, places = "rvm"): VectorRow {
  return { ...vector(forms, code, places, "whole"), broadcast: true };
}

function bytes(forms: Forms, code: Code, places = "rvm"): VectorRow {
  return vector(forms, code, places, "whole");
}

/** An instruction on the lowest 32-bit lane. */
function single(code: Code, places = "rvm"): VectorRow {
  return vector("both", code, places, 4);
}

/** The eight classic operations, which differ in three bits. */
function classic(digit: number): GeneralRow {
  const opcode = 8 * digit;
  return general({ mr: [opcode + 1], rm: [opcode + 3], mi8: [0x83], mi32: [0x81], digit });
}

function general(forms: Partial<GeneralRow>): GeneralRow {
  return { kind: "general", digit: 0, ...forms };
}

export const instructions = {
  add: classic(0),
  sub: classic(5),
  cmp: classic(7),
  test: general({ mr: [0x85] }),
  mov: general({ mr: [0x89], rm: [0x8b], mi32: [0xc7] }),
  movsxd: general({ rm: [0x63] }),
  lea: general({ rm: [0x8d] }),
  imul: general({ rm: [0x0f, 0xaf], rmi8: [0x6b], rmi32: [0x69] }),
  shl: general({ mi8: [0xc1], digit: 4 }),
  shr: general({ mi8: [0xc1], digit: 5 }),
  neg: general({ m: [0xf7], digit: 3 }),
  dec: general({ m: [0xff], digit: 1 }),
  prefetcht0: general({ m: [0x0f, 0x18], digit: 1 }),
  push: general({ o: [0x50] }),
  pop: general({ o: [0x58] }),

  // In and out.
  vmovups: bytes("both", "0F.W0 10", "rm"),
  "vmovups.store": bytes("both", "0F.W0 11", "mr"),
  vmovaps: bytes("both", "0F.W0 28", "rm"),
  vmovss: single("F3.0F.W0 10", "rm"),
  "vmovss.store": single("F3.0F.W0 11", "mr"),
  vmovd: single("66.0F.W0 6E", "rm"),
  "vmovd.store": single("66.0F.W0 7E", "mr"),
  vbroadcastss: single("66.0F38.W0 18", "rm"),
  vpbroadcastd: single("66.0F38.W0 58", "rm"),
  "vpbroadcastd.r32": vector("evex", "66.0F38.W0 7C", "rm", 4),
  vcvtph2ps: vector("both", "66.0F38.W0 13", "rm", "half"),
  vcvtps2ph: vector("both", "66.0F3A.W0 1D", "mri", "half"),
  vpmovsxbd: vector("both", "66.0F38.W0 21", "rm", "quarter"),
  vpmovsxwd: vector("both", "66.0F38.W0 23", "rm", "half"),
  vpmovzxwd: vector("both", "66.0F38.W0 33", "rm", "half"),

  // Bits. Those without a d are VEX's, those with it EVEX's.
  vpand: bytes("vex", "66.0F.W0 DB"),
  vpandn: bytes("vex", "66.0F.W0 DF"),
  vpor: bytes("vex", "66.0F.W0 EB"),
  vpxor: bytes("vex", "66.0F.W0 EF"),
  vpandd: lanes("evex", "66.0F.W0 DB"),
  vpandnd: lanes("evex", "66.0F.W0 DF"),
  vpord: lanes("evex", "66.0F.W0 EB"),
  vpxord: lanes("evex", "66.0F.W0 EF"),
  vpternlogd: lanes("evex", "66.0F3A.W0 25", "rvmi"),

  // Bytes and 16-bit integers.
  vpaddb: bytes("both", "66.0F.W0 FC"),
  vpsubb: bytes("both", "66.0F.W0 F8"),
  vpshufb: bytes("both", "66.0F38.W0 00"),
  vpsrlw: bytes("both", "66.0F.W0 71 /2", "vmi"),
  vpsraw: bytes("both", "66.0F.W0 71 /4", "vmi"),
  vpsllw: bytes("both", "66.0F.W0 71 /6", "vmi"),
  vpmaddubsw: bytes("both", "66.0F38.W0 04"),
  vpmaddwd: bytes("both", "66.0F.W0 F5"),
  vpackssdw: lanes("both", "66.0F.W0 6B"),
  vpacksswb: bytes("both", "66.0F.W0 63"),

  // 32-bit integers.
  vpdpbusd: lanes("both", "66.0F38.W0 50"),
  vpaddd: lanes("both", "66.0F.W0 FE"),
  vpsubd: lanes("both", "66.0F.W0 FA"),
  vpmulld: lanes("both", "66.0F38.W0 40"),
  vpmaxsd: lanes("both", "66.0F38.W0 3D"),
  vpminsd: lanes("both", "66.0F38.W0 39"),
  vpsrld: lanes("both", "66.0F.W0 72 /2", "vmi"),
  vpsrad: lanes("both", "66.0F.W0 72 /4", "vmi"),
  vpslld: lanes("both", "66.0F.W0 72 /6", "vmi"),
  vpshufd: lanes("both", "66.0F.W0 70", "rmi"),
  vpermd: lanes("both", "66.0F38.W0 36"),
  vextracti128: vector("vex", "66.0F3A.W0 39", "mri", 16),
  vextracti32x4: vector("evex", "66.0F3A.W0 39", "mri", 16),
  vextracti64x4: vector("evex", "66.0F3A.W1 3B", "mri", 32),

  // Floats.
  vaddps: lanes("both", "0F.W0 58"),
  vsubps: lanes("both", "0F.W0 5C"),
  vmulps: lanes("both", "0F.W0 59"),
  vdivps: lanes("both", "0F.W0 5E"),
  vminps: lanes("both", "0F.W0 5D"),
  vmaxps: lanes("both", "0F.W0 5F"),
  vsqrtps: lanes("both", "0F.W0 51", "rm"),
  vfmadd132ps: lanes("both", "66.0F38.W0 98"),
  vfmadd213ps: lanes("both", "66.0F38.W0 A8"),
  vfmadd231ps: lanes("both", "66.0F38.W0 B8"),
  vcvtdq2ps: lanes("both", "0F.W0 5B", "rm"),
  vcvtps2dq: lanes("both", "66.0F.W0 5B", "rm"),
  /** In VEX the result is a vector, in EVEX a mask register: two names. */
  vcmpps: bytes("vex", "0F.W0 C2", "rvmi"),
  "vcmpps.k": lanes("evex", "0F.W0 C2", "rvmi"),
  vpmovm2d: bytes("evex", "F3.0F38.W0 38", "rm"),
  vshufps: lanes("both", "0F.W0 C6", "rvmi"),
  vaddss: single("F3.0F.W0 58"),
  vsubss: single("F3.0F.W0 5C"),
  vmulss: single("F3.0F.W0 59"),
  vdivss: single("F3.0F.W0 5E"),
  vsqrtss: single("F3.0F.W0 51"),
  vcvtsi2ss: single("F3.0F.W0 2A"),
  vcvttsd2si: vector("both", "F2.0F.W1 2C", "rm", 8),
  "vcvttsd2si.32": vector("both", "F2.0F.W0 2C", "rm", 8),
} as const satisfies Readonly<Record<string, VectorRow | GeneralRow>>;

export type Instruction = keyof typeof instructions;

/** Conditions of jumps, and their numbers. */
export const conditions = { e: 0x4, ne: 0x5, l: 0xc, ge: 0xd, le: 0xe, g: 0xf } as const;

export type Condition = keyof typeof conditions;
