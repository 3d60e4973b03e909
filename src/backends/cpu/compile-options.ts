// What a program is compiled from (compile.ts).

import type { Plan } from "../../graph/plan.ts";
import type { ChooseMatmul } from "../../kernels/matmul-variants.ts";
import type { KernelTarget } from "../../kernels/target.ts";
import type { KvCacheOptions } from "../backend.ts";
import type { Arena } from "./memory/arena.ts";
import type { WeightStore } from "./memory/weights.ts";
import type { NativeCompiler } from "./native/elementwise.ts";

export interface CompileOptions {
  readonly plan: Plan;
  readonly kv: KvCacheOptions;
  readonly arena: Arena;
  readonly weights: WeightStore;
  readonly threads: number;
  /** What the kernels of matmuls are made for. */
  readonly target: KernelTarget;
  /** What makes code for it, and for other kernels where it can; undefined: all are WebAssembly. */
  readonly native: NativeCompiler | undefined;
  readonly choose: ChooseMatmul;
}
