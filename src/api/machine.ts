// Public types for hardware: opt levels, machine code, GPUs, the options of measuring them, and the speed of one matmul. Part of
// api.ts. No type needs a model.

/**
 * The way matmuls are computed. 1: plain TypeScript (the reference); 2: WebAssembly SIMD, row by row; 3: WebAssembly SIMD with
 * register tiles; 4: register tiles and machine code for this processor (docs/inside/native.md).
 */
export type OptLevel = 1 | 2 | 3 | 4;

/** Instruction sets that kernels are made for, by their usual names; "wasm": WebAssembly instead of machine code. */
export type Isa = "amx" | "avx512-vnni" | "avx2-vnni" | "avx2" | "i8mm" | "dotprod" | "wasm";

/** Whether this machine can run machine code: the target, or the reason why not. */
export type MachineCodeInfo = CpuFeatures &
  (
    | {
        /** "x64-amx", "x64-avx512", "x64-avx2-vnni", "x64-avx2", "arm64-i8mm", "arm64-dotprod" */
        target: string;
        vectorBytes: number;
      }
    | { refused: string }
  );

/** The processor's features that kernels can use. Empty: not known here. */
export interface CpuFeatures {
  /** Its features, as Linux names them. */
  features: readonly string[];
  /** The instruction sets that it has all features of, the best first; "wasm" is always there. */
  isas: readonly Isa[];
}

/** The GPU that backend "webgpu" would compute on. */
export interface GpuInfo {
  name: string;
  vendor: string;
  architecture: string;
  driver: string;
  /** A software GPU computes on the processor: correct, and slow. */
  isSoftware: boolean;
  /** The largest buffer, and the part of one that a shader can bind. */
  maxBufferBytes: number;
  maxBindingBytes: number;
  /** The memory that may be used, if set by LANTERN_GPU_MEMORY: WebGPU does not report it. */
  memoryBytes?: number | undefined;
  workgroupStorageBytes: number;
  /** Whether shaders can use half floats. */
  f16: boolean;
  /** The smallest and the largest subgroup size. */
  subgroups?: { min: number; max: number } | undefined;
  /**
   * true: kernels use subgroups, whose shuffles were checked. A text: the reason why they do not, although the device offers them.
   */
  subgroupShuffles?: true | string | undefined;
  subgroupMatrix: boolean;
  timestampQueries: boolean;
}

/** The options of machineMeasurement(), if it has to measure. */
export interface MachineOptions {
  /** Measure even if there is a stored measurement. */
  anew?: boolean | undefined;
  /**
   * The duration of the measurement, plus about a second to start (default 7). A shorter one is less exact, above all on a busy
   * machine.
   */
  seconds?: number | undefined;
  /**
   * At most half a second in all, instead of `seconds`: less exact, and marked so (MachineMeasurement.quick). It is
   * stored until there is a better one; a stored one of either kind is as good (default false).
   */
  quick?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** Called with the fraction that is done, 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
  /** Called with a sentence when a stored measurement is not used or cannot be written. */
  onNote?: ((note: string) => void) | undefined;
}

/** The options of gpuMeasurement(), if it has to measure. */
export interface GpuMeasureOptions {
  /** Measure even if there is a stored measurement. */
  anew?: boolean | undefined;
  /** As MachineOptions.quick. A software adapter is refused: its computations take seconds. */
  quick?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** Called with the fraction that is done, 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
  /** Called with a sentence when a stored measurement is not used or cannot be written. */
  onNote?: ((note: string) => void) | undefined;
}

/** One matmul to measure: activations [m, k] times weights [n, k], transposed. */
export interface MatmulBenchOptions {
  /** Type of the weights: "q4_1". */
  type: string;
  n: number;
  k: number;
  m: number;
  level: OptLevel;
  threads: number;
  /** The duration of the measurement; at least one matmul is computed. */
  seconds: number;
  /** The register tile, rows x tokens; default: the opt level's own. Opt level 1 has none. */
  tile?: RegisterTile | undefined;
}

/** B0 rows of the weights and B1 tokens, with sums that a kernel keeps in registers. */
export interface RegisterTile {
  rows: number;
  tokens: number;
}

export interface MatmulSpeed {
  /** A multiply and an add count as two operations. */
  gflops: number;
  /** Describes the kernel that computed it. */
  kernel: string;
}
