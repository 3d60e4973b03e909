// Expands ops that x86-64 has no instruction for into ops that it has. It runs before registers are assigned, so that their
// masks and factors are constants like the kernel's own, in shared registers. Part of x64.ts.
//
// The result ignores vector types (a shift of 32-bit lanes may take bytes), which matter to verify.ts, but not to
// to-machine.ts.

import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import type { OpName, Type } from "../ir/ops.ts";

type Op = Extract<Statement, { kind: "op" }>;

/** Emits an op; without `out`, into a new register. */
type Emit = (op: OpName, args: readonly Reg[], imm?: number, out?: Reg) => Reg;

/** undefined: the op stays as it is. */
type Expand = (statement: Op, emit: Emit, known: ReadonlyMap<number, number>) => true | undefined;

const bytesOf = (byte: number): number => Math.imul(byte & 255, 0x01010101);

/** Shifts bytes in 32-bit lanes, and masks the bits of neighbouring bytes. */
function masked(shift: OpName, mask: (imm: number) => number): Expand {
  return ({ args, imm, out }, emit) => {
    const shifted = emit(shift, args, imm);
    emit("i8v.and", [shifted, emit("i32v.const", [], bytesOf(mask(imm)))], 0, out);
    return true;
  };
}

function withConstant(op: OpName, bits: number): Expand {
  return ({ args, out }, emit) => {
    emit(op, [args[0]!, emit("i32v.const", [], bits)], 0, out);
    return true;
  };
}

/** vpmulld is slow: multiplications by powers of two, and their negatives, become shifts. */
const multiply: Expand = ({ args, out }, emit, known) => {
  const at = args.findIndex(({ id }) => known.has(id));
  const factor = at < 0 ? 0 : known.get(args[at]!.id)!;
  const bits = Math.log2(Math.abs(factor));
  if (factor === 0 || !Number.isInteger(bits) || bits > 30) return undefined;
  const x = args[1 - at]!;
  if (factor > 0) emit("i32v.shl", [x], bits, out);
  else emit("i32v.sub", [emit("i32v.const", [], 0), emit("i32v.shl", [x], bits)], 0, out);
  return true;
};

/** Signed times signed where one operand must be unsigned: adds 128 to the second, and subtracts 128 times the first. */
const signedDot: Expand = ({ args: [a, b, acc], out }, emit) => {
  const raise = emit("i32v.const", [], bytesOf(128));
  const extra = emit("i32v.dot4", [a!, raise, emit("i32v.const", [], 0)]);
  const start = emit("i32v.sub", [acc!, extra]);
  emit("i32v.dot4", [a!, emit("i8v.xor", [b!, raise]), start], 0, out);
  return true;
};

const expansions: Partial<Record<OpName, Expand>> = {
  "i8v.shr_u": masked("i32v.shr_u", (imm) => 0xff >> imm),
  "i8v.shl": masked("i32v.shl", (imm) => 0xff << imm),
  "f32v.abs": withConstant("i32v.and", 0x7fffffff),
  "f32v.neg": withConstant("i8v.xor", -0x80000000),
  "i32v.mul": multiply,
};

const expansionsWithDot: typeof expansions = { ...expansions, "i32v.dot4_ss": signedDot };

/** `hasDot`: the target has i32v.dot4 as an instruction, whose second operand is unsigned. */
export function expandForX64(kernel: Kernel, hasDot: boolean): Kernel {
  const table = hasDot ? expansionsWithDot : expansions;
  const known = new Map<number, number>();
  let registers = kernel.registers;
  const expand = (list: readonly Statement[]): Statement[] => {
    const body: Statement[] = [];
    const emit: Emit = (op, args, imm = 0, out = { id: registers++, type: "i32v" as Type }) => {
      body.push({ kind: "op", op, args, imm, out });
      return out;
    };
    for (const statement of list) {
      if (statement.kind === "loop") body.push({ ...statement, body: expand(statement.body) });
      else if (statement.kind === "set") body.push(statement);
      else {
        if (statement.op === "i32v.const") known.set(statement.out!.id, statement.imm | 0);
        if (!table[statement.op]?.(statement, emit, known)) body.push(statement);
      }
    }
    return body;
  };
  return { ...kernel, body: expand(kernel.body), registers };
}
