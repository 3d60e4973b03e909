// Public types: what computes. Levels, machine code, GPUs, how they are measured, and the speed of one matmul. Part of
// api.ts; no model is needed for any of it.

/**
 * How matmuls are computed. 1: plain TypeScript (the reference); 2: WebAssembly SIMD, row by row; 3: WebAssembly SIMD and
 * tiles; 4: tiles and machine code for this processor (docs/native.md).
 */
export type OptLevel = 1 | 2 | 3 | 4;

/** What machine code can be run on this machine: a target, or the reason why there is none. */
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
  /** Computes on the processor: right, and slow. */
  isSoftware: boolean;
  /** The largest buffer, and how much of one a shader can read. */
  maxBufferBytes: number;
  maxBindingBytes: number;
  /** The memory that may be used, where somebody said so (LANTERN_GPU_MEMORY): WebGPU does not. */
  memoryBytes?: number | undefined;
  workgroupStorageBytes: number;
  /** Half floats in shaders. */
  f16: boolean;
  /** Threads that can exchange values directly, at least and at most. */
  subgroups?: { min: number; max: number } | undefined;
  subgroupMatrix: boolean;
  timestampQueries: boolean;
}

/** How machineMeasurement() measures, if it has to. */
export interface MachineOptions {
  /** Measure even if a measurement is remembered. */
  anew?: boolean | undefined;
  /** How long to measure, besides a second for the start (default 7). Less is less exact, above all on a busy machine. */
  seconds?: number | undefined;
  signal?: AbortSignal | undefined;
  /** Of the measurement, how much is done: 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
  /** What was remembered and is not used, or could not be written: a sentence. */
  onNote?: ((note: string) => void) | undefined;
}

/** How gpuMeasurement() measures, if it has to. */
export interface GpuMeasureOptions {
  /** Measure even if a measurement is remembered. */
  anew?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** Of the measurement, how much is done: 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
  /** What was remembered and is not used, or could not be written: a sentence. */
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
}

export interface MatmulSpeed {
  /** A multiply and an add count as two operations. */
  gflops: number;
  /** What computed it, in words. */
  kernel: string;
}
