// Well-typed kernels at random: any op on any values that are in scope, loops in loops, variables, pointers that move.
//
// What the IR leaves open is kept out of what is compared exactly: which NaN arithmetic gives. So floats, halves and
// integers have memory of their own, and the bits of a float are only looked at where it cannot be NaN, which is known
// from a bound on its magnitude that every float carries (infinite: could be anything). Floats and halves are aligned, so
// that no NaN is half overwritten.

import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Kernel, Reg } from "../../src/kernels/ir/kernel.ts";
import { type OpName, shapeOf, type Type } from "../../src/kernels/ir/ops.ts";
import { Random } from "../support/random.ts";
import { anyOp, everyOp } from "./op-cases.ts";
import type { Region } from "./same-memory.ts";

const regionBytes = 8192;
const kinds = ["bytes", "f32", "f16", "finite"] as const;
type Kind = (typeof kinds)[number];

/** Where each memory op may go. */
function regionOf(op: OpName): Kind {
  // Halves of either kind that nothing writes, all finite.
  if (op === "f32v.load_bf16" || op === "f32v.load_f16_finite") return "finite";
  if (op.endsWith("_f16")) return "f16";
  return op.startsWith("f32") ? "f32" : "bytes";
}

/** Displacements are multiples of this. */
function grain(op: OpName): number {
  const kind = regionOf(op);
  return kind === "bytes" ? 1 : kind === "f32" ? 4 : 2;
}

export const regions: readonly Region[] = (["bytes", "f32", "f16"] as const).map((kind, index) => ({
  from: index * regionBytes,
  to: (index + 1) * regionBytes,
  kind,
}));

/** Pointers to the middle of each region, and a loop count. */
export const randomArgs: readonly number[] = [
  ...kinds.map((_, index) => (index + 0.5) * regionBytes),
  3,
];

export function randomMemory(seed: number): Uint8Array<ArrayBuffer> {
  const random = new Random(seed);
  const memory = Uint8Array.from({ length: kinds.length * regionBytes }, () => random.below(256));
  const finite = memory.subarray(3 * regionBytes);
  finite.forEach((byte, i) => {
    finite[i] = byte & 0xfb; // no exponent of all ones
  });
  const floats = new Float32Array(memory.buffer, regionBytes, regionBytes / 4);
  floats.forEach((_, i) => {
    floats[i] = random.normal() * 2 ** (random.below(30) - 15);
  });
  return memory;
}

interface Float {
  readonly reg: Reg;
  readonly bound: number;
}

interface Pointer {
  readonly reg: Reg<"ptr">;
  readonly kind: Kind;
  /** How far it can be from the middle of its region. */
  readonly drift: number;
}

const maxDepth = 2;
/** Rounds of the innermost loop, all together: 3 x 3. A pointer moves once in each, by no more than this. */
const maxStep = 48;
const loopDrift = 9 * maxStep;
const lastStores = 2048;

export function randomKernel(seed: number, width = 16): Kernel {
  return new Generator(seed, width).run();
}

class Generator {
  readonly #random: Random;
  readonly #k: KernelBuilder;
  /** What is in scope. Leaving a loop cuts these back. */
  #values: Reg[] = [];
  #bounds = new Map<number, number>();
  #pointers: Pointer[] = [];
  #variables: Reg[] = [];
  readonly #moved = new Set<Reg>();
  readonly #count: Reg<"i32">;

  constructor(seed: number, width: number) {
    this.#random = new Random(seed);
    this.#k = new KernelBuilder(`random.${seed}`, width);
    for (const kind of kinds) {
      this.#pointers.push({ reg: this.#k.param("ptr", kind), kind, drift: 0 });
    }
    this.#count = this.#k.param("i32", "count");
    this.#values.push(this.#count);
  }

  run(): Kernel {
    const k = this.#k;
    this.#add(k.op("f32.const", [], 1.25), 2);
    this.#add(k.op("i8v.load", [this.#base("bytes")]));
    this.#add(k.op("i32v.load", [this.#base("bytes")], 16));
    this.#add(k.op("f32v.load", [this.#base("f32")]));
    this.#statements(12, 0);
    this.#loop(0);
    this.#statements(8, 0);
    this.#storeAll();
    return k.finish();
  }

  #statements(count: number, depth: number): void {
    for (let i = 0; i < count; i++) {
      const choice = this.#random.below(20);
      if (choice === 0 && depth < maxDepth) this.#loop(depth);
      else if (choice <= 2) this.#declare(depth);
      else if (choice <= 4) this.#setSome();
      else if (choice === 5) this.#movePointer();
      else this.#someOp();
    }
  }

  #loop(depth: number): void {
    const k = this.#k;
    const inScope = [this.#values, this.#pointers, this.#variables].map((list) => list.length);
    const count = this.#random.pick([0, 1, 2, 3, 3, -2]);
    const kind = this.#random.below(3);
    const reg = kind === 0 ? this.#count : k.i32(count);
    const counter = kind === 2 ? k.variable(reg) : undefined;
    k.loop(counter ?? reg, () => {
      this.#statements(4 + this.#random.below(8), depth + 1);
      // The count was read before the first round: this changes nothing.
      if (counter) k.set(counter, this.#pick("i32"));
    });
    this.#values.length = inScope[0]!;
    this.#pointers.length = inScope[1]!;
    this.#variables.length = inScope[2]!;
  }

  #declare(depth: number): void {
    if (this.#random.below(3) === 0) {
      // Declared where it moves, it starts anew in every round: only outer ones drift.
      const { reg, kind, drift } = this.#random.pick(this.#pointers);
      if (drift > 0 || depth === maxDepth) return;
      const variable = this.#k.variable(reg);
      this.#pointers.push({ reg: variable, kind, drift: loopDrift });
      this.#variables.push(variable);
      return;
    }
    const value = this.#random.pick(this.#values);
    const variable = this.#k.variable(value);
    this.#variables.push(variable);
    this.#add(variable);
  }

  /** A variable may become anything of its type, in this round or another: its bound is infinite. */
  #setSome(): void {
    const settable = this.#variables.filter(({ type }) => type !== "ptr");
    if (settable.length === 0) return;
    const variable = this.#random.pick(settable);
    this.#k.set(variable, this.#pick(variable.type));
  }

  /** Each pointer variable has one place where it moves. */
  #movePointer(): void {
    const movable = this.#variables.filter((reg) => reg.type === "ptr" && !this.#moved.has(reg));
    if (movable.length === 0) return;
    const pointer = this.#random.pick(movable);
    this.#moved.add(pointer);
    this.#k.advance(pointer as Reg<"ptr">, 4 * (this.#random.below(maxStep / 2 + 1) - maxStep / 4));
  }

  #someOp(): void {
    const op = this.#random.pick(everyOp);
    if (op === "ptr.add" || op === "ptr.add_product") this.#addToPointer(op);
    else {
      const args = shapeOf(op).args.map((type, index) => this.#operand(op, type, index));
      const out = anyOp(this.#k, op, args, this.#immediate(op));
      if (out) this.#add(out, this.#boundOf(op, args));
    }
  }

  #addToPointer(op: "ptr.add" | "ptr.add_product"): void {
    const { reg, kind, drift } = this.#random.pick(this.#pointers);
    const words = this.#random.below(65) - 32;
    if (drift > loopDrift + 512) return;
    const k = this.#k;
    const moved =
      op === "ptr.add"
        ? k.op(op, [reg, k.i32(4 * words)])
        : k.op(op, [reg, k.i32(words), k.i32(4)]);
    this.#pointers.push({ reg: moved, kind, drift: drift + 128 });
  }

  #operand(op: OpName, type: Type, index: number): Reg {
    const k = this.#k;
    if (type === "ptr") {
      const kind = regionOf(op);
      return this.#random.pick(this.#pointers.filter((pointer) => pointer.kind === kind)).reg;
    }
    if (index === 1 && (op === "i32v.dot4" || op === "i8v.lookup16")) {
      const mask = k.op("i8v.splat", [], op === "i32v.dot4" ? 127 : 15);
      return k.op("i8v.and", [this.#pick("i8v") as Reg<"i8v">, mask]);
    }
    if (op === "i32v.from_f32v") return this.#boundedFloat(2 ** 30);
    if (op === "f32v.as_i32v") return this.#boundedFloat(2 ** 100);
    return this.#pick(type);
  }

  #boundedFloat(limit: number): Reg {
    const known = this.#values
      .filter(({ type }) => type === "f32v")
      .map((reg): Float => ({ reg, bound: this.#bounds.get(reg.id)! }))
      .filter(({ bound }) => bound <= limit);
    if (known.length > 0 && this.#random.below(2) === 0) return this.#random.pick(known).reg;
    const k = this.#k;
    const small = k.op("i32v.shr_s", [this.#pick("i32v") as Reg<"i32v">], 22);
    const halves = k.op("f32v.const", [], 0.5); // so that there are ties
    const made = k.op("f32v.mul", [k.op("f32v.from_i32v", [small]), halves]);
    this.#add(made, 512);
    return made;
  }

  #immediate(op: OpName): number {
    const { imm, out } = shapeOf(op);
    if (imm === undefined) return 0;
    if (imm === "disp") return this.#random.below(256 / grain(op)) * grain(op);
    if (imm === "shift") return this.#random.below(out === "i8v" ? 8 : 32);
    if (out === "i8v") return this.#random.below(384) - 128;
    if (out === "f32" || out === "f32v") return this.#random.normal() * 100;
    return (this.#random.unit() * 2 ** 32) | 0;
  }

  /** How large the result can be; infinite where it could be infinite or NaN, or is no float. */
  #boundOf(op: OpName, args: readonly Reg[]): number {
    const [a = 0, b = 0, c = 0] = args.map((reg) => this.#bounds.get(reg.id) ?? Infinity);
    const name = op.slice(op.indexOf(".") + 1);
    const byName: Readonly<Record<string, number>> = {
      const: 4000,
      splat: a,
      add: a + b,
      sub: a + b,
      mul: a * b,
      fma: a * b + c,
      min: Math.max(a, b),
      max: Math.max(a, b),
      abs: a,
      neg: a,
      swap_pairs: a,
      hmax: a,
      sum: this.#k.lanes * a,
      load_f16_finite: 65504,
      from_i32: 2 ** 31,
      from_i32v: 2 ** 31,
    };
    const bound = (byName[name] ?? Infinity) * 1.001; // for rounding
    return bound < 2 ** 100 ? bound : Infinity;
  }

  #pick(type: Type): Reg {
    return this.#random.pick(this.#values.filter((value) => value.type === type));
  }

  #base(kind: Kind): Reg<"ptr"> {
    return this.#pointers[kinds.indexOf(kind)]!.reg;
  }

  #add(reg: Reg, bound = Infinity): void {
    this.#values.push(reg);
    this.#bounds.set(reg.id, bound);
  }

  /** So that everything that was computed is seen. */
  #storeAll(): void {
    this.#values.forEach((value, index) => {
      const kind = value.type.startsWith("f32") ? "f32" : "bytes";
      // Behind the middle there are as many bytes before the last stores as for them.
      const disp = lastStores + ((this.#k.width * index) % (lastStores - this.#k.width));
      anyOp(this.#k, `${value.type}.store` as OpName, [this.#base(kind), value], disp);
    });
  }
}
