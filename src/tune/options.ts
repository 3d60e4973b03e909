// The options and results of tune() and testTune().

import type { TuneMode } from "./space.ts";
import type { TuneFile } from "./tune-file.ts";

export interface TuneOptions {
  /** The backend: "cpu" (default) or "webgpu". */
  backend?: string;
  /** The model whose matmuls are tuned (anything that open() takes); or else `shapes`. */
  model?: string | URL;
  /** "7b", "13b", "30b", "65b", "70b", or a name of limitsNames(). */
  shapes?: string;
  /** Types of the weights, with `shapes`. Default: q4_0. */
  types?: readonly string[];
  /** Default: 1 and all cores; quick: all cores. */
  threads?: readonly number[];
  /** Numbers of tokens: some small ones, and mStep, 2 mStep, ... up to mStep x mNum. Default 8 and 16. */
  mStep?: number;
  mNum?: number;
  /** quick: seconds; normal: minutes; full: every matrix completely. Default: normal. */
  mode?: TuneMode;
  /** false: WebAssembly kernels, even if this machine can run machine code (default true). */
  native?: boolean;
  /** Store the times for the next open() (default true). A function is called when they are complete. */
  remember?: boolean | (() => boolean);
  signal?: AbortSignal;
  onProgress?: (share: number, now: string) => void;
}

export interface TuneResult {
  readonly file: TuneFile;
  /** Where it is stored; undefined if it is not. */
  readonly place: string | undefined;
}

export interface TuneTestOptions {
  file: TuneFile;
  /** How many points to measure again (default 12). */
  points?: number;
  signal?: AbortSignal;
  onProgress?: (share: number, now: string) => void;
}

/** A point of a tune file that was measured again. */
export interface TuneTestPoint {
  readonly dtype: string;
  readonly n: number;
  readonly k: number;
  readonly threads: number;
  readonly m: number;
  readonly profile: string;
  /** Microseconds, init and compute together. */
  readonly predicted: number;
  readonly measured: number;
  /** Its time relative to the default's, measured in turns with it; absent: it is the default. */
  readonly overDefault?: number;
  /** Whether it is slower than the default, beyond the noise. */
  readonly isSlower?: boolean;
}
