// What tune() and testTune() are asked, and what they answer.

import type { TuneMode } from "./space.ts";
import type { TuneFile } from "./tune-file.ts";

export interface TuneOptions {
  /** What computes: "cpu" (default) or "webgpu". */
  backend?: string;
  /** A model whose matmuls are tuned (a path, or what open() takes); or `shapes`. */
  model?: string | URL;
  /** "7b", "13b", or a name of limitsNames(). */
  shapes?: string;
  /** Types of the weights, with `shapes`. Default: q4_0. */
  types?: readonly string[];
  /** Default: 1 and all cores; quick: all cores. */
  threads?: readonly number[];
  /** Numbers of tokens: some small ones, and mStep, 2 mStep, ... up to mStep x mNum. Default 8 and 16. */
  mStep?: number;
  mNum?: number;
  /** quick: seconds; normal: minutes; full: all of every matrix. Default: normal. */
  mode?: TuneMode;
  /** false: WebAssembly's kernels, also where this machine runs machine code (default true). */
  native?: boolean;
  /** Keep the times for the next open() (default true). A function is asked when they are there. */
  remember?: boolean | (() => boolean);
  signal?: AbortSignal;
  onProgress?: (share: number, now: string) => void;
}

export interface TuneResult {
  readonly file: TuneFile;
  /** Where it is remembered; undefined where it is not. */
  readonly place: string | undefined;
}

export interface TuneTestOptions {
  file: TuneFile;
  /** How many points to measure again (default 12). */
  points?: number;
  signal?: AbortSignal;
  onProgress?: (share: number, now: string) => void;
}

/** A point of a tune file, measured again. */
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
}
