// A kernel: parameters and a body of statements over typed registers. Plain data: it can be printed, verified,
// interpreted and lowered. builder.ts makes it.

import type { OpName, Type } from "./ops.ts";

/** A register. Those made by ops are set once; variables can be set again. */
export interface Reg<T extends Type = Type> {
  readonly id: number;
  readonly type: T;
  /** For the printer. */
  readonly name?: string;
}

export type Statement =
  | {
      readonly kind: "op";
      readonly op: OpName;
      readonly args: readonly Reg[];
      readonly imm: number;
      readonly out: Reg | undefined;
    }
  /** variable = value */
  | { readonly kind: "set"; readonly variable: Reg; readonly value: Reg }
  /** Runs the body `count` times; 0 or less: not at all. The count is read once, before the first round. */
  | { readonly kind: "loop"; readonly count: Reg<"i32">; readonly body: readonly Statement[] };

export interface Kernel {
  /** The name says the parameters, as "matmul.q4_0.4x1" does: see docs/inside/kernels.md. */
  readonly name: string;
  /** Bytes of a vector register. */
  readonly width: number;
  readonly params: readonly Reg[];
  readonly body: readonly Statement[];
  /** The number of registers; ids are below it. */
  readonly registers: number;
  /** Names the kernel among all of its target (lazy-kernel.ts); undefined: its code is made anew in every run. */
  readonly key?: string;
}
