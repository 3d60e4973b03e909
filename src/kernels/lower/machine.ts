// The data types of machine code generation: the description of a processor (MachineTarget), and a kernel as a linear list
// of instructions whose operands are physical registers (MachineKernel). to-machine.ts makes the list, a lowering (x64.ts,
// arm64.ts) encodes it.
//
// The ABI of a native kernel: one f64 argument, the address of a block of f64 slots.
//   slot 0        address of the memory that `ptr` parameters are offsets into
//   slot 1 + i    parameter i: an i32 or f32 as a number, a ptr as an offset
//   then          SCRATCH_SLOTS slots for spilled scalars (8 bytes each)

import {
  type OpName,
  type PairOp,
  pairOps,
  type TileOp,
  type Type,
  tileOps,
  type WordOp,
  wordOps,
  type ZipOp,
  zipOps,
} from "../ir/ops.ts";

/** Integers and addresses are in general registers; vectors and f32 in vector registers. */
export type RegisterClass = "general" | "vector";

/** Processor properties that to-machine.ts needs. Registers are the numbers that its assembler uses. */
export interface MachineTarget {
  readonly name: string;
  /** Bytes of a vector. */
  readonly width: number;
  /** Registers to assign, preferred ones first. The lowering keeps the others for itself. */
  readonly vectors: readonly number[];
  readonly generals: readonly number[];
  /** Three more general registers, only for spilled scalars to pass through. */
  readonly passing: readonly [number, number, number];
  /** The operand whose register an op overwrites with its result: the sum of an fma. */
  tied(op: OpName): number | undefined;
  /** The op reads all operands before it writes its result, so they may share a register. */
  readsFirst(op: OpName): boolean;
  /** Operand `index` of `op` may be a memory operand instead of `load`. */
  foldsLoad(op: OpName, index: number, load: OpName): boolean;
  /** Operand `index` of `op` may be a constant. An i32 always may; otherwise an f32 or vector is put into a register. */
  foldsConstant(op: OpName, index: number): boolean;
  /** A variable is set to a constant by a copy of the register that holds it, if any does; otherwise it is made anew. */
  readonly copiesConstants: boolean;
}

export type Operand =
  | { readonly kind: "register"; readonly register: number }
  /** An i32; or the bits of every 32-bit lane of a vector, or of an f32. */
  | { readonly kind: "constant"; readonly bits: number }
  /** The memory operand of `load`, at general register `base` plus `disp`. */
  | {
      readonly kind: "memory";
      readonly base: number;
      readonly disp: number;
      readonly load: OpName;
    };

export type MachineInstruction =
  /** `out` is -1 where there is no result. Of a tied op, `out` is the register of that operand. */
  | {
      readonly kind: "op";
      readonly op: OpName;
      readonly args: readonly Operand[];
      readonly imm: number;
      readonly out: number;
    }
  | {
      readonly kind: "copy";
      readonly registers: RegisterClass;
      readonly to: number;
      readonly from: number;
    }
  /** bits: as of an operand; an i32 is sign-extended. */
  | {
      readonly kind: "constant";
      readonly registers: RegisterClass;
      readonly to: number;
      readonly bits: number;
    }
  /** Loads or stores a general register, `offset` bytes from the beginning of the block. */
  | { readonly kind: "reload" | "spill"; readonly register: number; readonly offset: number }
  /** The instructions up to the matching `end` run `count` times; not at all if that is 0 or less. */
  | { readonly kind: "loop"; readonly counter: number; readonly count: Operand }
  /** Ends the innermost loop: decrements the counter, and repeats while it is not 0. */
  | { readonly kind: "end"; readonly counter: number };

/** The register or offset that the prologue puts a parameter into. Parameters without a reader are left out. */
export interface MachineParam {
  readonly type: Type;
  /** Bytes from the beginning of the block to its f64. */
  readonly from: number;
  /** Its register, or the offset in the block where it is stored as a 64-bit integer. */
  readonly to: { readonly register: number } | { readonly offset: number };
}

export interface MachineKernel {
  readonly name: string;
  readonly width: number;
  readonly params: readonly MachineParam[];
  readonly instructions: readonly MachineInstruction[];
  /** All registers that are written. The lowering saves those that the ABI wants preserved. */
  readonly written: { readonly [C in RegisterClass]: ReadonlySet<number> };
}

export const SCRATCH_SLOTS = 16;

/** Slots of a kernel's parameter block. */
export function blockSlots(params: number): number {
  return 1 + params + SCRATCH_SLOTS;
}

/** The kernel cannot be lowered to this target; the message says why. */
export class KernelRefused extends Error {
  override readonly name = "KernelRefused";
}

/** The lowerings of ops on AMX tiles for a processor without them: they refuse. */
export function noTiles(target: string): Record<TileOp, () => never> {
  return refusals(tileOps, "AMX", target);
}

/** The same for SMMLA. */
export function noPairs(target: string): Record<PairOp, () => never> {
  return refusals(pairOps, "i8mm", target);
}

/** The same for zips of lanes. */
export function noZips(target: string): Record<ZipOp, () => never> {
  return refusals(zipOps, "arm64", target);
}

/** The same for 16-bit integers. */
export function noWords(target: string): Record<WordOp, () => never> {
  return refusals(wordOps, "WebAssembly", target);
}

function refusals<O extends OpName>(
  list: readonly O[],
  needs: string,
  target: string,
): Record<O, () => never> {
  const refuse = (op: O) => () => {
    throw new KernelRefused(`${op} needs ${needs}, which ${target} does not have`);
  };
  return Object.fromEntries(list.map((op) => [op, refuse(op)])) as Record<O, () => never>;
}
