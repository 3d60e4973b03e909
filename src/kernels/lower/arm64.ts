// The lowering of the kernel IR to arm64 machine code: NEON with the dot products of Armv8.2 (SDOT), and SMMLA where the
// target has it; vectors of 16 bytes. The table below has every op. to-machine.ts assigns registers, arm64-emit.ts emits the
// code around the ops.
//
// Multiplications and dot products have a second form, where the immediate is not 0: lane (immediate - 1) of operand 0 is
// used for all lanes of the other. arm64-lanes.ts makes these from splat loads. arm64-folds.ts makes other ops that need
// fewer instructions.

import type { Arm64Instruction } from "../asm/arm64-instructions.ts";
import type { NativeFunction } from "../asm/native-function.ts";
import type { Kernel, Statement } from "../ir/kernel.ts";
import type { OpName } from "../ir/ops.ts";
import {
  Arm64Emitter,
  generalRegisters,
  type MemoryForm,
  passingRegisters,
  SCRATCH_VECTOR,
  vectorRegisters,
} from "./arm64-emit.ts";
import { foldOps } from "./arm64-folds.ts";
import { laneUses, useLanes } from "./arm64-lanes.ts";
import {
  KernelRefused,
  type MachineTarget,
  noPairs,
  noTiles,
  noWords,
  type Operand,
} from "./machine.ts";
import { toMachine } from "./to-machine.ts";

export interface Arm64Target {
  readonly name: string;
  /** Has SMMLA; otherwise a kernel that needs it is refused. */
  readonly i8mm?: boolean;
}

/** The cheapest way to read activations that fits the registers; refuses a kernel that fits with none. */
export function lowerToArm64(kernel: Kernel, target: Arm64Target): NativeFunction {
  let best: { readonly code: NativeFunction; readonly weight: number } | undefined;
  let refused: KernelRefused | undefined;
  const folded = foldOps(kernel);
  const table = target.i8mm ? lowerings : { ...lowerings, ...noPairs(target.name) };
  for (const use of laneUses) {
    try {
      const emitter = new Arm64Emitter((e, { op, args, imm, out }) => table[op](e, args, out, imm));
      const code = emitter.emit(toMachine(useLanes(folded, use), machineFor(kernel, target)));
      if (!best || emitter.weight < best.weight) best = { code, weight: emitter.weight };
    } catch (error) {
      if (!(error instanceof KernelRefused)) throw error;
      refused = error;
    }
  }
  if (best) return best.code;
  throw refused!;
}

const sums: ReadonlySet<OpName> = new Set([
  ...(["i32v.dot4", "i32v.dot4_ss", "i8mm.dot8_ss", "f32v.fma"] as const),
]);
const writesEarly: ReadonlySet<OpName> = new Set(["i8v.pack_i32", "f32v.sum", "i8v.or"]);
const usesScratch: ReadonlySet<OpName> = new Set([
  ...(["f32v.min", "f32v.max", "i8v.pack_i32", "i32v.sum", "f32v.store_f16"] as const),
  ...(["f32v.store_sums"] as const),
]);

function machineFor(kernel: Kernel, { name }: Arm64Target): MachineTarget {
  const needsScratch = hasOp(kernel.body, usesScratch);
  return {
    name,
    width: 16,
    vectors: vectorRegisters.filter((register) => !needsScratch || register !== SCRATCH_VECTOR),
    generals: generalRegisters,
    passing: passingRegisters,
    tied: (op) => (sums.has(op) ? 2 : undefined),
    readsFirst: (op) => !writesEarly.has(op),
    foldsLoad: () => false,
    foldsConstant: () => false,
    // A copy takes a vector unit; the load of a literal does not.
    copiesConstants: false,
  };
}

function hasOp(statements: readonly Statement[], wanted: ReadonlySet<OpName>): boolean {
  return statements.some((statement) => {
    if (statement.kind === "loop") return hasOp(statement.body, wanted);
    return statement.kind === "op" && wanted.has(statement.op);
  });
}

type Lower = (e: Arm64Emitter, args: readonly Operand[], out: number, imm: number) => void;

/** The register of an operand that is always in one: a vector, a float, an address. */
function at(operand: Operand | undefined): number {
  if (operand?.kind === "register") return operand.register;
  throw new Error(`arm64: an operand is ${operand?.kind ?? "missing"}, expected a register`);
}

/** One instruction: result, operands in order. */
function simple(instruction: Arm64Instruction): Lower {
  return (e, args, out) => e.op(instruction, out, ...args.map(at));
}

/** One instruction, with the two operands swapped. */
function swapped(instruction: Arm64Instruction): Lower {
  return (e, [a, b], out) => e.op(instruction, out, at(b), at(a));
}

/** Two operands in general registers, either of which may be a constant. */
function general(instruction: Arm64Instruction): Lower {
  return (e, [a, b], out) => e.op(instruction, out, e.general(a!), e.secondGeneral(b!));
}

/** One instruction, which also has a form by lane. */
function byLane(instruction: Arm64Instruction, laneInstruction: Arm64Instruction): Lower {
  return (e, [a, b], out, imm) => {
    if (imm === 0) e.op(instruction, out, at(a), at(b));
    else e.op(laneInstruction, out, at(b), at(a), imm - 1);
  };
}

const word: MemoryForm = { scaled: "ldr.w", unscaled: "ldur.w", bytes: 4 };
const wordStore: MemoryForm = { scaled: "str.w", unscaled: "stur.w", bytes: 4 };
const single: MemoryForm = { scaled: "ldr.s", unscaled: "ldur.s", bytes: 4 };
const singleStore: MemoryForm = { scaled: "str.s", unscaled: "stur.s", bytes: 4 };
const half: MemoryForm = { scaled: "ldr.d", unscaled: "ldur.d", bytes: 8 };
const halfStore: MemoryForm = { scaled: "str.d", unscaled: "stur.d", bytes: 8 };
const whole: MemoryForm = { scaled: "ldr.q", unscaled: "ldur.q", bytes: 16 };
const wholeStore: MemoryForm = { scaled: "str.q", unscaled: "stur.q", bytes: 16 };

/** A load, then instructions from its register to itself. */
function load(form: MemoryForm, ...then: readonly Arm64Instruction[]): Lower {
  return (e, [base], out, imm) => {
    e.memory(form, out, at(base), imm);
    for (const instruction of then) e.op(instruction, out, out);
  };
}

function store(form: MemoryForm): Lower {
  return (e, [base, value], _, imm) => e.memory(form, e.general(value!), at(base), imm);
}

const loadSplat: Lower = (e, [base], out, imm) => {
  if (imm === 0) e.op("ld1r.4s", out, at(base));
  else {
    e.memory(single, out, at(base), imm);
    e.op("dup.4s", out, out, 0);
  }
};

/** A right shift by 0 has no encoding; a left shift by 0 has. */
function shift(instruction: Arm64Instruction, none: Arm64Instruction): Lower {
  return (e, [x], out, imm) => e.op(imm === 0 ? none : instruction, out, at(x), imm);
}

/** A cast: at most a move. */
const move: Lower = (e, [x], out) => e.move(out, at(x));

/** `b` where mask(a, b), `a` elsewhere. */
function choose(mask: (e: Arm64Emitter, to: number, a: number, b: number) => void): Lower {
  return (e, args, out) => {
    const [a, b] = [at(args[0]), at(args[1])];
    const isApart = out !== a && out !== b;
    mask(e, isApart ? out : SCRATCH_VECTOR, a, b);
    if (isApart) e.op("bsl.16b", out, b, a);
    else if (out === a) e.op("bit.16b", out, b, SCRATCH_VECTOR);
    else e.op("bif.16b", out, a, SCRATCH_VECTOR);
  };
}

const select: Lower = (e, args, out) => {
  const [mask, a, b] = [at(args[0]), at(args[1]), at(args[2])];
  if (out === a) e.op("bif.16b", out, b, mask);
  else if (out === b) e.op("bit.16b", out, a, mask);
  else {
    e.move(out, mask);
    e.op("bsl.16b", out, a, b);
  }
};

const addToPointer: Lower = (e, [base, bytes], out) => {
  if (bytes?.kind === "constant") e.addTo(out, at(base), bytes.bits);
  else e.op("add.sxtw", out, at(base), e.general(bytes!));
};

/** Integer add or subtract, with an immediate where an operand is a constant. */
function addOrSubtract(sign: 1 | -1, instruction: Arm64Instruction): Lower {
  return (e, args, out, imm) => {
    const [a, b] = [args[0]!, args[1]!];
    const by = b.kind === "constant" ? sign * b.bits : Number.NaN;
    if (a.kind !== "register" || !(Math.abs(by) < 4096)) general(instruction)(e, args, out, imm);
    else e.op(by < 0 ? "sub.w_imm" : "add.w_imm", out, a.register, Math.abs(by));
  };
}

/** A plain or; or fields that arm64-folds.ts joined: a shift, then an insertion for each of the others. */
const joinBits: Lower = (e, args, out, imm) => {
  if (imm === 0) return e.op("orr.16b", out, at(args[0]), at(args[1]));
  args.forEach((arg, i) => {
    e.op(i === 0 ? "ushr.16b" : "sri.16b", out, at(arg), Math.floor(imm / 8 ** i) & 7);
  });
};

const dot4: Lower = (e, [a, b], out, imm) => {
  if (imm === 0) e.op("sdot.4s", out, at(b), at(a));
  else e.op("sdot.4s_lane", out, at(b), at(a), imm - 1);
};

const lowerings: { readonly [O in OpName]: Lower } = {
  "i32.const": (e, _, out, imm) => e.integer(out, imm),
  "i32.add": addOrSubtract(1, "add.w"),
  "i32.sub": addOrSubtract(-1, "sub.w"),
  "i32.mul": general("mul.w"),
  "i32.shr_u": (e, [x], out, imm) => e.op("lsr.w", out, e.general(x!), imm),
  "i32.load": load(word),
  "i32.store": store(wordStore),
  "f32.const": (e, _, out, imm) => e.vector(out, bitsOf(imm)),
  "f32.add": simple("fadd.s"),
  "f32.sub": simple("fsub.s"),
  "f32.mul": simple("fmul.s"),
  "f32.div": simple("fdiv.s"),
  "f32.max": simple("fmax.s"),
  "f32.sqrt": simple("fsqrt.s"),
  "f32.from_i32": (e, [x], out) => e.op("scvtf.s_w", out, e.general(x!)),
  "f32.load": load(single),
  "f32.store": store(singleStore),
  "ptr.add": addToPointer,
  "ptr.add_product": (e, [base, a, b], out) =>
    e.op("smaddl", out, e.general(a!), e.secondGeneral(b!), at(base)),
  // A hint: left out where the displacement has no encoding.
  "ptr.prefetch": (e, [base], _, imm) => {
    if (imm % 8 === 0 && imm < 32768) e.op("prfm.pldl1keep", at(base), imm);
  },

  "i8v.load": load(whole),
  "i32v.load": load(whole),
  "f32v.load": load(whole),
  "i8v.store": store(wholeStore),
  "i32v.store": store(wholeStore),
  "f32v.store": store(wholeStore),
  "i8v.load_splat32": loadSplat,
  "i32v.load_splat": loadSplat,
  "f32v.load_splat": loadSplat,
  "f32v.load_f16": load(half, "fcvtl.4s"),
  "f32v.load_f16_finite": load(half, "fcvtl.4s"),
  "f32v.load_bf16": load(half, "shll.4s"),
  "f32v.store_f16": (e, [base, x], _, imm) => {
    e.op("fcvtn.4h", SCRATCH_VECTOR, at(x));
    e.memory(halfStore, SCRATCH_VECTOR, at(base), imm);
  },
  "i32v.load_i8": load(single, "sxtl.8h", "sxtl.4s"),
  "i32v.load_i16": load(half, "sxtl.4s"),

  "i8v.splat": (e, _, out, imm) => e.vector(out, Math.imul(imm & 255, 0x01010101)),
  "i32v.splat": (e, [x], out) => {
    if (x?.kind === "constant") e.vector(out, x.bits);
    else e.op("dup.4s_w", out, at(x));
  },
  "i32v.const": (e, _, out, imm) => e.vector(out, imm | 0),
  "f32v.splat": (e, [x], out) => e.op("dup.4s", out, at(x), 0),
  "f32v.const": (e, _, out, imm) => e.vector(out, bitsOf(imm)),
  "f32v.as_i32v": move,
  "i32v.as_f32v": move,
  "i32v.as_i8v": move,
  "i8v.as_i32v": move,

  "i8v.and": simple("and.16b"),
  "i8v.or": joinBits,
  "i8v.xor": simple("eor.16b"),
  "i8v.add": simple("add.16b"),
  "i8v.sub": simple("sub.16b"),
  "i8v.shr_u": shift("ushr.16b", "shl.16b"),
  "i8v.shl": shift("shl.16b", "shl.16b"),
  "i8v.lookup16": simple("tbl.16b"),
  "i8v.zip8_low": simple("zip1.16b"),
  "i8v.zip8_high": simple("zip2.16b"),
  "i8v.zip16_low": simple("zip1.8h"),
  "i8v.zip16_high": simple("zip2.8h"),
  "i32v.dot4": dot4,
  "i32v.dot4_ss": dot4,

  "i32v.add": simple("add.4s"),
  "i32v.sub": simple("sub.4s"),
  "i32v.mul": byLane("mul.4s", "mul.4s_lane"),
  "i32v.and": simple("and.16b"),
  "i32v.or": simple("orr.16b"),
  "i32v.select": select,
  "i32v.max_s": simple("smax.4s"),
  "i32v.min_s": simple("smin.4s"),
  "i32v.shl": shift("shl.4s", "shl.4s"),
  "i32v.shr_u": shift("ushr.4s", "shl.4s"),
  "i32v.shr_s": shift("sshr.4s", "shl.4s"),
  "i32v.sum": (e, [x], out) => {
    e.op("addv.s", SCRATCH_VECTOR, at(x));
    e.op("fmov.w_s", out, SCRATCH_VECTOR);
  },
  "i8v.pack_i32": (e, [a, b, c, d], out) => {
    e.op("sqxtn.4h", SCRATCH_VECTOR, at(c));
    e.op("sqxtn2.8h", SCRATCH_VECTOR, at(d));
    e.op("sqxtn.4h", out, at(a));
    e.op("sqxtn2.8h", out, at(b));
    e.op("sqxtn.8b", out, out);
    e.op("sqxtn2.16b", out, SCRATCH_VECTOR);
  },

  "f32v.add": simple("fadd.4s"),
  "f32v.sub": simple("fsub.4s"),
  "f32v.mul": byLane("fmul.4s", "fmul.4s_lane"),
  "f32v.div": simple("fdiv.4s"),
  // fmin and fmax treat zeros and NaNs differently.
  "f32v.min": choose((e, to, a, b) => e.op("fcmgt.4s", to, a, b)),
  "f32v.max": choose((e, to, a, b) => e.op("fcmgt.4s", to, b, a)),
  "f32v.lt": swapped("fcmgt.4s"),
  "f32v.abs": simple("fabs.4s"),
  "f32v.neg": simple("fneg.4s"),
  "f32v.sqrt": simple("fsqrt.4s"),
  "f32v.fma": byLane("fmla.4s", "fmla.4s_lane"),
  "f32v.swap_pairs": simple("rev64.4s"),
  "f32v.add_pairs": simple("faddp.4s"),
  "f32v.store_sums": (e, [base, ...vectors], _, imm) => {
    for (const i of [0, 2]) {
      e.op("faddp.4s", SCRATCH_VECTOR, at(vectors[i]), at(vectors[i + 1]));
      e.op("faddp.4s", SCRATCH_VECTOR, SCRATCH_VECTOR, SCRATCH_VECTOR);
      e.memory(halfStore, SCRATCH_VECTOR, at(base), imm + 4 * i);
    }
  },
  "i32v.from_f32v": simple("fcvtns.4s"),
  "f32v.from_i32v": simple("scvtf.4s"),
  // Adds halves, in the order of the interpreter.
  "f32v.sum": (e, [x], out) => {
    e.op("ext.16b", out, at(x), at(x), 8);
    e.op("fadd.2s", out, out, at(x));
    e.op("faddp.s", out, out);
  },
  "f32v.hmax": simple("fmaxv.s"),
  "i8mm.dot8_ss": (e, [a, b], out) => e.op("smmla.4s", out, at(a), at(b)),
  "arm64.zip32_low": simple("zip1.4s"),
  "arm64.zip32_high": simple("zip2.4s"),
  "arm64.zip64_low": simple("zip1.2d"),
  "arm64.zip64_high": simple("zip2.2d"),
  ...noTiles("arm64"),
  ...noWords("arm64"),
};

function bitsOf(value: number): number {
  return new Int32Array(Float32Array.of(value).buffer)[0]!;
}
