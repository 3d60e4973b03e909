// The x86-64 instructions that kernels need, under the names of Intel's manual: its opcode column as data. x64.ts encodes
// with it. A new instruction is one line.
//
// A vector instruction has a VEX form (xmm and ymm, registers 0 to 15), an EVEX form (all registers, zmm, {1to16}), or
// both; where there are both, the assembler takes the shortest that can encode the operands. Where the two mean different
// things or need different processors (vpdpbusd in VEX is AVX-VNNI), they are two rows.
//
// Vector rows: forms; prefix, map, W, opcode and /digit as in the manual; the encoding of each operand (r is ModRM.reg, m
// is ModRM.rm, v is VEX.vvvv, i an immediate byte); the size of the memory operand in bytes, which is the unit of an EVEX
// form's short displacements. "lanes" is a whole vector that may also be one 32-bit value for all lanes.
//
// General rows: the opcode for operands (r/m, r), (r, r/m), (r/m, imm8), (r/m, imm32), (r, r/m, imm8), (r, r/m, imm32),
// for one operand r/m, for a register that is added to the opcode (o); and the value of ModRM.reg if no operand uses it.

export const instructions = {
  add: { mr: [0x01], rm: [0x03], mi8: [0x83], mi32: [0x81], digit: 0 },
  sub: { mr: [0x29], rm: [0x2b], mi8: [0x83], mi32: [0x81], digit: 5 },
  test: { mr: [0x85], digit: 0 },
  mov: { mr: [0x89], rm: [0x8b], mi32: [0xc7], digit: 0 }, // into memory: 32 bits
  movsxd: { rm: [0x63], digit: 0 },
  lea: { rm: [0x8d], digit: 0 },
  imul: { rm: [0x0f, 0xaf], rmi8: [0x6b], rmi32: [0x69], digit: 0 },
  shr: { mi8: [0xc1], digit: 5 },
  neg: { m: [0xf7], digit: 3 },
  dec: { m: [0xff], digit: 1 },
  prefetcht0: { m: [0x0f, 0x18], digit: 1 },
  push: { o: [0x50], digit: 0 },
  pop: { o: [0x58], digit: 0 },

  // Loads, stores and moves.
  vmovups: ["both", "0F.W0 10", "rm", "whole"],
  "vmovups.store": ["both", "0F.W0 11", "mr", "whole"],
  vmovaps: ["both", "0F.W0 28", "rm", "whole"],
  vmovss: ["both", "F3.0F.W0 10", "rm", 4],
  "vmovss.store": ["both", "F3.0F.W0 11", "mr", 4],
  vmovd: ["both", "66.0F.W0 6E", "rm", 4],
  "vmovd.store": ["both", "66.0F.W0 7E", "mr", 4],
  vbroadcastss: ["both", "66.0F38.W0 18", "rm", 4],
  vpbroadcastd: ["both", "66.0F38.W0 58", "rm", 4],
  "vpbroadcastd.r32": ["evex", "66.0F38.W0 7C", "rm", 4],
  vcvtph2ps: ["both", "66.0F38.W0 13", "rm", "half"],
  vcvtps2ph: ["both", "66.0F3A.W0 1D", "mri", "half"],
  vpmovsxbd: ["both", "66.0F38.W0 21", "rm", "quarter"],
  vpmovsxwd: ["both", "66.0F38.W0 23", "rm", "half"],
  vpmovzxwd: ["both", "66.0F38.W0 33", "rm", "half"],

  // Bits. Those without a d are VEX's, those with it EVEX's.
  vpand: ["vex", "66.0F.W0 DB", "rvm", "whole"],
  vpandn: ["vex", "66.0F.W0 DF", "rvm", "whole"],
  vpor: ["vex", "66.0F.W0 EB", "rvm", "whole"],
  vpxor: ["vex", "66.0F.W0 EF", "rvm", "whole"],
  vpandd: ["evex", "66.0F.W0 DB", "rvm", "lanes"],
  vpord: ["evex", "66.0F.W0 EB", "rvm", "lanes"],
  vpxord: ["evex", "66.0F.W0 EF", "rvm", "lanes"],
  vpternlogd: ["evex", "66.0F3A.W0 25", "rvmi", "lanes"],

  // Bytes and 16-bit integers.
  vpaddb: ["both", "66.0F.W0 FC", "rvm", "whole"],
  vpsubb: ["both", "66.0F.W0 F8", "rvm", "whole"],
  vpshufb: ["both", "66.0F38.W0 00", "rvm", "whole"],
  vpunpcklbw: ["both", "66.0F.W0 60", "rvm", "whole"],
  vpunpckhbw: ["both", "66.0F.W0 68", "rvm", "whole"],
  vpunpcklwd: ["both", "66.0F.W0 61", "rvm", "whole"],
  vpunpckhwd: ["both", "66.0F.W0 69", "rvm", "whole"],
  vpsrlw: ["both", "66.0F.W0 71 /2", "vmi", "whole"],
  vpsraw: ["both", "66.0F.W0 71 /4", "vmi", "whole"],
  vpsllw: ["both", "66.0F.W0 71 /6", "vmi", "whole"],
  vpmaddubsw: ["both", "66.0F38.W0 04", "rvm", "whole"],
  vpmaddwd: ["both", "66.0F.W0 F5", "rvm", "whole"],
  vpackssdw: ["both", "66.0F.W0 6B", "rvm", "lanes"],
  vpacksswb: ["both", "66.0F.W0 63", "rvm", "whole"],

  // 32-bit integers.
  vpdpbusd: ["evex", "66.0F38.W0 50", "rvm", "lanes"],
  "vpdpbusd.vex": ["vex", "66.0F38.W0 50", "rvm", "whole"],
  vpaddd: ["both", "66.0F.W0 FE", "rvm", "lanes"],
  vpsubd: ["both", "66.0F.W0 FA", "rvm", "lanes"],
  vpmulld: ["both", "66.0F38.W0 40", "rvm", "lanes"],
  vpmaxsd: ["both", "66.0F38.W0 3D", "rvm", "lanes"],
  vpminsd: ["both", "66.0F38.W0 39", "rvm", "lanes"],
  vpsrld: ["both", "66.0F.W0 72 /2", "vmi", "lanes"],
  vpsrad: ["both", "66.0F.W0 72 /4", "vmi", "lanes"],
  vpslld: ["both", "66.0F.W0 72 /6", "vmi", "lanes"],
  vpshufd: ["both", "66.0F.W0 70", "rmi", "lanes"],
  vpermd: ["both", "66.0F38.W0 36", "rvm", "lanes"],
  vextracti128: ["vex", "66.0F3A.W0 39", "mri", 16],
  vextracti32x4: ["evex", "66.0F3A.W0 39", "mri", 16],
  vextracti64x4: ["evex", "66.0F3A.W1 3B", "mri", 32],

  // Floats.
  vaddps: ["both", "0F.W0 58", "rvm", "lanes"],
  vsubps: ["both", "0F.W0 5C", "rvm", "lanes"],
  vmulps: ["both", "0F.W0 59", "rvm", "lanes"],
  vdivps: ["both", "0F.W0 5E", "rvm", "lanes"],
  vminps: ["both", "0F.W0 5D", "rvm", "lanes"],
  vmaxps: ["both", "0F.W0 5F", "rvm", "lanes"],
  vsqrtps: ["both", "0F.W0 51", "rm", "lanes"],
  vfmadd231ps: ["both", "66.0F38.W0 B8", "rvm", "lanes"],
  vcvtdq2ps: ["both", "0F.W0 5B", "rm", "lanes"],
  vcvtps2dq: ["both", "66.0F.W0 5B", "rm", "lanes"],
  /** In VEX the result is a vector, in EVEX a mask register: two names. */
  vcmpps: ["vex", "0F.W0 C2", "rvmi", "whole"],
  "vcmpps.k": ["evex", "0F.W0 C2", "rvmi", "lanes"],
  vpmovm2d: ["evex", "F3.0F38.W0 38", "rm", "whole"],
  vhaddps: ["vex", "F2.0F.W0 7C", "rvm", "whole"],
  vshufps: ["both", "0F.W0 C6", "rvmi", "lanes"],
  vaddss: ["both", "F3.0F.W0 58", "rvm", 4],
  vsubss: ["both", "F3.0F.W0 5C", "rvm", 4],
  vmulss: ["both", "F3.0F.W0 59", "rvm", 4],
  vdivss: ["both", "F3.0F.W0 5E", "rvm", 4],
  vsqrtss: ["both", "F3.0F.W0 51", "rvm", 4],
  vcvtsi2ss: ["both", "F3.0F.W0 2A", "rvm", 4],
  vcvtsd2ss: ["vex", "F2.0F.W0 5A", "rvm", 8],
  vcvttsd2si: ["both", "F2.0F.W1 2C", "rm", 8],

  // AMX tiles. The stride between their rows in memory is in the index register.
  ldtilecfg: ["vex", "0F38.W0 49", "m", 64],
  tilezero: ["vex", "F2.0F38.W0 49", "r", 64],
  tileloadd: ["vex", "F2.0F38.W0 4B", "rm", 64],
  tilestored: ["vex", "F3.0F38.W0 4B", "mr", 64],
  tdpbssd: ["vex", "F2.0F38.W0 5E", "rmv", 64],
} as const;

export type Instruction = keyof typeof instructions;

/** A row of a vector instruction, parsed. */
export interface VectorRow {
  readonly kind: "vector";
  readonly forms: "vex" | "evex" | "both";
  /** Numbers of the prefix (none, 66, F3, F2) and of the opcode map (0F, 0F38, 0F3A). */
  readonly prefix: number;
  readonly map: number;
  readonly wide: boolean;
  readonly opcode: number;
  readonly digit: number;
  readonly places: readonly string[];
  readonly memory: "whole" | "half" | "quarter" | number;
  /** The memory operand may be one 32-bit value for all lanes (EVEX). */
  readonly broadcast: boolean;
}

type OpcodeForm = "mr" | "rm" | "mi8" | "mi32" | "rmi8" | "rmi32" | "m" | "o";

export type GeneralRow = {
  readonly [F in OpcodeForm]?: readonly number[];
} & { readonly kind: "general"; readonly digit: number };

const prefixes: readonly string[] = ["", "66", "F3", "F2"];
const maps: readonly string[] = ["", "0F", "0F38", "0F3A"];

type Written = readonly [VectorRow["forms"], string, string, "lanes" | VectorRow["memory"]];

function vectorRow([forms, code, places, memory]: Written): VectorRow {
  const [fields, opcode, digit = "/0"] = code.split(" ") as [string, string, string?];
  const parts = fields.split(".");
  const wide = parts.pop() === "W1";
  const map = maps.indexOf(parts.pop()!);
  return {
    kind: "vector",
    forms,
    prefix: prefixes.indexOf(parts.pop() ?? ""),
    map,
    wide,
    opcode: Number.parseInt(opcode, 16),
    digit: Number(digit.slice(1)),
    places: [...places],
    memory: memory === "lanes" ? "whole" : memory,
    broadcast: memory === "lanes",
  };
}

const rows = new Map<string, VectorRow | GeneralRow>(
  Object.entries(instructions).map(([name, row]) => [
    name,
    "digit" in row ? { kind: "general", ...row } : vectorRow(row),
  ]),
);

export function rowOf(name: Instruction): VectorRow | GeneralRow {
  return rows.get(name)!;
}

/** Conditions of jumps, and their numbers. */
export const conditions = { ne: 0x5, le: 0xe, g: 0xf } as const;

export type Condition = keyof typeof conditions;
