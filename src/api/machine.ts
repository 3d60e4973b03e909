// Public types for hardware: opt levels, machine code, GPUs, how they are measured, and the speed of one matmul. Part
// of api.ts. None of it needs a model.

/**
 * How matmuls are computed. 1: plain TypeScript (the reference); 2: WebAssembly SIMD, row by row; 3: WebAssembly SIMD
 * with register tiles; 4: register tiles and machine code for this processor (docs/native.md).
 */
export type OptLevel = 1 | 2 | 3 | 4;

/** Whether this machine can run machine code: the target, or the reason why not. */
export type MachineCodeInfo =
  | {
      /** "x64-amx", "x64-avx512", "x64-avx2-vnni", "x64-avx2", "arm64-i8mm", "arm64-dotprod" */
      target: string;
      vectorBytes: number;
    }
  | { refused: string };

/** The GPU that backend "webgpu" would compute on. */
export interface GpuInfo {
  name: string;
  vendor: string;
  architecture: string;
  driver: string;
  /** A software GPU computes on the processor: correct, and slow. */
  isSoftware: boolean;
  /** The largest buffer, and how much of one a shader can bind. */
  maxBufferBytes: number;
  maxBindingBytes: number;
  /** The memory that may be used, if set by LANTERN_GPU_MEMORY: WebGPU does not report it. */
  memoryBytes?: number | undefined;
  workgroupStorageBytes: number;
  /** Whether shaders can use half floats. */
  f16: boolean;
  /** The smallest and the largest subgroup size. */
  subgroups?: { min: number; max: number } | undefined;
  /** true: kernels use subgroups, whose shuffles were checked. A text: why they do not, although the device says that they could. */
  subgroupShuffles?: true | string | undefined;
  subgroupMatrix: boolean;
  timestampQueries: boolean;
}

/** How machineMeasurement() measures, if it has to. */
export interface MachineOptions {
  /** Measure even if there is a stored measurement. */
  anew?: boolean | undefined;
  /**
   * How long to measure, plus about a second to start (default 7). Less time is less exact, above all on a busy
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

/** How gpuMeasurement() measures, if it has to. */
export interface GpuMeasureOptions {
  /** Measure even if there is a stored measurement. */
  anew?: boolean | undefined;
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
  /** How long to measure; at least one matmul is computed. */
  seconds: number;
  /** The register tile, rows x tokens; default: what the opt level would use. Opt level 1 has none. */
  tile?: RegisterTile;
}

/** B0 rows of the weights and B1 tokens, whose sums a kernel keeps in registers. */
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
