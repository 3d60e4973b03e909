// Forms of every instruction of the x86-64 encoder, with their text for an assembler: all lengths of vectors, low and high
// registers, memory at each kind of address and displacement, constants, jumps. An instruction that is added to the
// table is covered by being there; one whose operands are not all alike needs a line below.

import {
  type MemoryOperand,
  maskRegister,
  memory,
  memoryAt,
  type Operand,
  type Register,
  r32,
  r64,
  tmm,
  X64Assembler,
  xmm,
  ymm,
  zmm,
} from "../../src/kernels/asm/x64.ts";
import {
  type GeneralRow,
  type Instruction,
  instructions,
  rowOf,
  type VectorRow,
} from "../../src/kernels/asm/x64-instructions.ts";

export interface Form {
  readonly text: string;
  readonly emit: (a: X64Assembler) => void;
}

type VectorLength = 16 | 32 | 64;

/** What an operand is: V a vector, h and q of half and a quarter its length, x an xmm, k a mask, r and R of 32 and 64 bits. */
const shapes: Partial<Record<Instruction, string>> = {
  vbroadcastss: "V x",
  vpbroadcastd: "V x",
  "vpbroadcastd.r32": "V r",
  vmovss: "x [",
  "vmovss.store": "[ x",
  "vmovups.store": "[ V",
  vmovd: "x r",
  "vmovd.store": "r x",
  vcvtph2ps: "V h",
  vcvtps2ph: "h V i",
  vpmovsxbd: "V q",
  vpmovsxwd: "V h",
  vpmovzxwd: "V h",
  vextracti128: "x V i",
  vextracti32x4: "x V i",
  vextracti64x4: "h V i",
  "vcmpps.k": "k V V i",
  vpmovm2d: "V k",
  vcvtsi2ss: "x x r",
  vcvttsd2si: "R x",
  vcvtsd2ss: "x x x",
  ldtilecfg: "[",
  tilezero: "t",
  tileloadd: "t [",
  tilestored: "[ t",
  tdpbssd: "t t t",
};

/** Lengths of vectors that instructions have, where it is not all that their forms have. */
const lengths: Partial<Record<Instruction, readonly VectorLength[]>> = {
  vbroadcastss: [32, 64],
  vpermd: [32, 64],
  vextracti128: [32],
  vextracti32x4: [32, 64],
  vextracti64x4: [64],
  ...Object.fromEntries(
    (Object.keys(instructions) as Instruction[])
      .filter((name) => (rowOf(name) as VectorRow).memory === 4)
      .map((name) => [name, name.includes("broadcast") ? [32, 64] : [16]]),
  ),
  vcvttsd2si: [16],
  vcvtsd2ss: [16],
  ...{ ldtilecfg: [16], tilezero: [16], tileloadd: [16], tilestored: [16], tdpbssd: [16] },
};

/** Whose address has an index, always. */
const withIndex = new Set<Instruction>(["tileloadd", "tilestored"]);

/** Without a form that reads (or writes) memory, as far as kernels need. */
const registersOnly = new Set<Instruction>([
  ...([
    "vextracti128",
    "vextracti32x4",
    "vextracti64x4",
    "vpbroadcastd.r32",
    "vpmovm2d",
    "vcvtsi2ss",
  ] as const),
  ...(["vpsrlw", "vpsraw", "vpsllw"] as const),
  ...(["tilezero", "tdpbssd"] as const),
]);

const vectors = { 16: xmm, 32: ymm, 64: zmm } as const;
const r64Names = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split(" ");
const r32Names = "eax ecx edx ebx esp ebp esi edi r8d r9d r10d r11d r12d r13d r14d r15d".split(" ");

function nameOf({ kind, number }: Register): string {
  if (kind === "r32") return r32Names[number]!;
  if (kind === "r64") return r64Names[number]!;
  return `${kind}${number}`;
}

function textOf(operand: Operand, broadcastLanes: number): string {
  if (typeof operand === "number") return String(operand);
  if (operand.kind !== "memory") return nameOf(operand);
  const { base, index, scale, displacement, broadcast, label } = operand as MemoryOperand;
  const offset = displacement === 0 ? "" : `${displacement < 0 ? "" : "+"}${displacement}`;
  const inside = label
    ? "rip+constant"
    : `${nameOf(base!)}${index ? `+${nameOf(index)}*${scale}` : ""}${offset}`;
  return broadcast ? `dword ptr [${inside}]{1to${broadcastLanes}}` : `[${inside}]`;
}

function form(name: Instruction, length: number, prefix: string, ...operands: Operand[]): Form {
  const mnemonic = prefix + name.split(".")[0]!;
  return {
    text: `${mnemonic} ${operands.map((operand) => textOf(operand, length / 4)).join(", ")}`,
    emit: (a) => a.op(name, ...operands),
  };
}

/** Instructions that are tried with every kind of address; the others, encoded by the same lines, with two. */
const everywhere = new Set<Instruction>(["mov", "vmovups.store", "vaddps", "vpmovsxbd", "vmovss"]);

/** Kinds of addresses; short displacements are multiples of `unit`, where they count in that. */
function addresses(name: Instruction, unit: number, broadcast: boolean): Operand[] {
  const of = (base: number, displacement: number) => memory(r64(base), displacement, { broadcast });
  if (withIndex.has(name)) {
    return [
      memory(r64(3), 0, { index: r64(1) }),
      memory(r64(5), 0, { index: r64(9) }),
      memory(r64(12), 64, { index: r64(2) }),
      memory(r64(8), 1000, { index: r64(15) }),
    ];
  }
  if (!everywhere.has(name)) return [of(7, unit), of(9, unit * -129)];
  return [
    of(0, 0),
    of(7, unit),
    of(9, -unit),
    ...[unit * 127, unit * 128, unit * -128, unit * -129].map((bytes) => of(6, bytes)),
    ...[1, 3, 127, 128, 100000].map((bytes) => of(2, bytes)),
    ...[4, 5, 12, 13].flatMap((base) => [of(base, 0), of(base, unit)]),
    memory(r64(3), 0, { index: r64(1), scale: 4, broadcast }),
    memory(r64(5), 0, { index: r64(9), scale: 1, broadcast }),
    memory(r64(14), unit, { index: r64(10), scale: 8, broadcast }),
  ];
}

function lengthsOf(name: Instruction, { forms }: VectorRow): readonly VectorLength[] {
  return lengths[name] ?? (forms === "vex" ? [16, 32] : [16, 32, 64]);
}

function vectorForms(name: Instruction, row: VectorRow): Form[] {
  const shape = shapes[name] ?? row.places.map((place) => (place === "i" ? "i" : "V")).join(" ");
  const kinds = shape.split(" ");
  return lengthsOf(name, row).flatMap((length) => vectorFormsAt(name, row, kinds, length));
}

function vectorFormsAt(
  name: Instruction,
  row: VectorRow,
  kinds: readonly string[],
  length: VectorLength,
): Form[] {
  const half = Math.max(length / 2, 16) as VectorLength;
  const quarter = Math.max(length / 4, 16) as VectorLength;
  const isSingle = row.memory === 4 || row.memory === 8;
  const make = (kind: string, number: number): Operand => {
    if (kind === "V") return vectors[isSingle && length === 16 ? 16 : length](number);
    if (kind === "h") return vectors[half](number);
    if (kind === "q") return vectors[quarter](number);
    if (kind === "x") return xmm(number);
    if (kind === "k") return maskRegister(number & 7);
    if (kind === "t") return tmm(number & 7);
    if (kind === "r") return r32(number & 15);
    return kind === "R" ? r64(number & 15) : 0x1b;
  };
  const at = row.places.indexOf("m");
  const build = (first: number, step: number, memoryOperand?: Operand): Form => {
    const operands = kinds.map((kind, i) =>
      i === at && memoryOperand !== undefined ? memoryOperand : make(kind, first + step * i),
    );
    return form(name, length, name.endsWith(".vex") ? "{vex} " : "", ...operands);
  };
  const isInMemory = kinds[at] === "[";
  const inRegisters = isInMemory
    ? []
    : [build(1, 1), build(9, 2), ...(row.forms === "vex" ? [] : [build(19, 4), build(29, -11)])];
  if (registersOnly.has(name)) return inRegisters;
  const high = row.forms === "vex" ? 14 : 25;
  const unit = typeof row.memory === "number" ? row.memory : memoryUnit(row, length);
  const inMemory = addresses(name, unit, false).map((address, i) =>
    i % 2 === 0 ? build(2, 1, address) : build(high, -3, address),
  );
  const canBroadcast = row.broadcast && row.forms !== "vex" && length > 16;
  const broadcast = canBroadcast
    ? addresses(name, 4, true).map((address) => build(3, 9, address))
    : [];
  return [...inRegisters, ...inMemory, ...broadcast];
}

function memoryUnit({ memory: part }: VectorRow, length: number): number {
  return part === "whole" ? length : part === "half" ? length / 2 : length / 4;
}

function generalForms(name: Instruction, row: GeneralRow): Form[] {
  const forms: Form[] = [];
  const add = (...operands: Operand[]) => forms.push(form(name, 0, "", ...operands));
  const isPointer = name === "lea";
  for (const make of [r32, r64]) {
    const isMixed = name === "movsxd";
    if (isMixed && make === r32) continue;
    const source = isMixed ? r32 : make;
    if (row.o && make === r64) for (const n of [0, 3, 8, 15]) add(make(n));
    if (row.m && name !== "prefetcht0") for (const n of [1, 10]) add(make(n));
    if (row.m && name === "prefetcht0" && make === r64) {
      for (const address of addresses(name, 64, false)) add(address);
    }
    if ((row.mr || row.rm) && !isPointer) {
      for (const [to, from] of [
        [0, 3],
        [8, 1],
        [2, 15],
        [13, 12],
      ] as const) {
        add(make(to), source(from));
      }
    }
    if (row.rm) for (const address of addresses(name, 8, false)) add(make(6), address);
    if (row.mr && row.rm) for (const address of addresses(name, 8, false)) add(address, make(11));
    if (row.mi8) for (const n of [3, 12]) add(make(n), name.startsWith("sh") ? 7 : -128);
    // Register 0 has forms of its own, one byte shorter, for large constants: not used.
    if (row.mi32 && make === r64) for (const n of [3, 12]) add(make(n), -70000);
    if (row.mi32 && row.mi8 && make === r32) for (const n of [3, 12]) add(make(n), 70000);
    if (row.rmi8) add(make(9), make(2), -3);
    if (row.rmi32) add(make(1), make(14), 100000);
  }
  return forms;
}

const others: readonly Form[] = [
  {
    text: "mov dword ptr [rsi+64], 1000",
    emit: (a) => a.op("mov", memory(r64(6), 64), 1000),
  },
  { text: "ret", emit: (a) => a.ret() },
  { text: "vzeroupper", emit: (a) => a.vzeroupper() },
  { text: "tilerelease", emit: (a) => a.tilerelease() },
  { text: "mov ecx, -5", emit: (a) => a.moveImmediate(r32(1), -5) },
  { text: "mov r9d, 123456789", emit: (a) => a.moveImmediate(r32(9), 123456789) },
  { text: "mov r9, -5", emit: (a) => a.moveImmediate(r64(9), -5) },
];

export const forms: readonly Form[] = [
  ...(Object.keys(instructions) as Instruction[]).flatMap((name) => {
    const row = rowOf(name);
    return row.kind === "vector" ? vectorForms(name, row) : generalForms(name, row);
  }),
  ...others,
];

/** Texts with labels, whole: what lies between a jump and its label, and constants behind the code. */
export const programs: readonly { readonly text: string; readonly bytes: Uint8Array }[] = [
  {
    text: "top: dec ecx\njne top\n",
    bytes: assemble((a) => {
      const top = a.label();
      a.bind(top);
      a.op("dec", r32(1));
      a.jump("ne", top);
    }),
  },
  {
    text: `test ecx, ecx\n.byte 0x0f, 0x8e\n.long end - . - 4\ntop: ${"vaddps zmm1, zmm2, [rsi+4096]\n".repeat(30)}dec ecx\njg top\nend: ret\n`,
    bytes: assemble((a) => {
      const [top, end] = [a.label(), a.label()];
      a.op("test", r32(1), r32(1));
      a.jump("le", end);
      a.bind(top);
      for (let i = 0; i < 30; i++) a.op("vaddps", zmm(1), zmm(2), memory(r64(6), 4096));
      a.op("dec", r32(1));
      a.jump("g", top);
      a.bind(end);
      a.ret();
    }),
  },
  {
    text:
      "vpternlogd zmm1, zmm2, dword ptr [rip+one]{1to16}, 0x1b\nvmovups zmm3, [rip+many]\nvpandd zmm4, zmm5, dword ptr [rip+one]{1to16}\nret\n" +
      ".balign 64, 0xcc\nmany: .fill 64, 1, 7\none: .long 0x01020304\n",
    bytes: assemble((a) => {
      const many = a.constant(new Uint8Array(64).fill(7));
      a.op("vpternlogd", zmm(1), zmm(2), memoryAt(one(a), true), 0x1b);
      a.op("vmovups", zmm(3), memoryAt(many));
      a.op("vpandd", zmm(4), zmm(5), memoryAt(one(a), true));
      a.ret();
    }),
  },
];

function one(a: X64Assembler) {
  return a.constant(Uint8Array.of(4, 3, 2, 1));
}

function assemble(emit: (a: X64Assembler) => void): Uint8Array {
  const a = new X64Assembler("program");
  emit(a);
  return a.finish().bytes;
}
