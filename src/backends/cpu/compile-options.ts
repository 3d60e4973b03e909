// The input of the compiler (compile.ts), in a file of its own because ops/matmul-node.ts refers to it, too.

import type { Plan } from "../../graph/plan.ts";
import type { ChooseMatmul } from "../../kernels/matmul-variants.ts";
import type { RowTile } from "../../kernels/ops/matmul/row-tiles.ts";
import type { KernelTarget } from "../../kernels/target.ts";
import type { KvCacheOptions } from "../backend.ts";
import type { DiskLayout } from "./disk/layout.ts";
import type { Arena } from "./memory/arena.ts";
import type { WeightStore } from "./memory/weights.ts";
import type { NativeCompiler } from "./native/elementwise.ts";

export interface CompileOptions {
  readonly plan: Plan;
  readonly kv: KvCacheOptions;
  readonly arena: Arena;
  readonly weights: WeightStore;
  readonly threads: number;
  /** The target of the matmul kernels. */
  readonly target: KernelTarget;
  /** Makes machine code for it, and for other kernels where possible; undefined: all kernels are WebAssembly. */
  readonly native: NativeCompiler | undefined;
  readonly choose: ChooseMatmul;
  /** Opt level 1: no kernels. Matmuls are plain TypeScript on all threads, other ops the reference. */
  readonly plain: boolean;
  /** The register tile where weights are not in row panels; undefined: the default. */
  readonly rowTile: RowTile | "scalar" | undefined;
  /** Weights that stay on disk; undefined: none. */
  readonly disk: DiskLayout | undefined;
}
