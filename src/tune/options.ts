// The options and results of tune() and testTune(). Errors in options are reported before anything is measured.

import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { type HeldType, heldTypesText, isHeldType } from "../dtypes/held-types.ts";
import type { TuneMode } from "./space.ts";
import type { TuneFile } from "./tune-file.ts";

export interface TuneOptions {
  /** The backend: "cpu" (default) or "webgpu". */
  backend?: string | undefined;
  /** The model whose matmuls are tuned (anything that open() takes); or else `shapes`. */
  model?: string | URL | undefined;
  /** As the option of open(), with `model`: its F32 and BF16 matrices are tuned as this type. */
  weights?: HeldType | undefined;
  /** "7b", "13b", "30b", "65b", "70b", or a name of limitsNames(). */
  shapes?: string | undefined;
  /** Types of the weights, with `shapes`. Default: q4_0. */
  types?: readonly string[] | undefined;
  /** Default: 1 and all cores; quick: all cores. */
  threads?: readonly number[] | undefined;
  /** Numbers of tokens: some small ones, and mStep, 2 mStep, ... up to mStep x mNum. Default 8 and 16. */
  mStep?: number | undefined;
  mNum?: number | undefined;
  /** Exactly these numbers of tokens instead. */
  tokens?: readonly number[] | undefined;
  /** quick: seconds; normal: minutes; full: every matrix completely. Default: normal. */
  mode?: TuneMode | undefined;
  /** false: WebAssembly kernels, even if this machine can run machine code (default true). */
  native?: boolean | undefined;
  /** Only types of which no times are stored (default false). */
  missing?: boolean | undefined;
  /** Called after each matrix with all that was measured so far; the next one waits for it. */
  onMatrix?: ((file: TuneFile) => void | Promise<void>) | undefined;
  /** Store the times for the next open() (default true). A function is called when they are complete. */
  remember?: (boolean | (() => boolean)) | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((share: number, now: string) => void) | undefined;
}

const MOST_THREADS = 256;
/** No batch is larger; and a measurement of more tokens takes minutes. */
const MOST_TOKENS = 4096;
const modes: readonly TuneMode[] = ["quick", "normal", "full"];

/** Checks all options that need no model and no device. */
export function checkTuneOptions(options: TuneOptions): void {
  const { model, shapes, types, threads, mode = "normal", mStep, mNum, tokens } = options;
  if (model !== undefined && shapes !== undefined) {
    throw new UsageError("tune: got both a model and shapes, expected one of them. Drop one");
  }
  if (model !== undefined && types !== undefined) {
    throw new UsageError(
      "tune: got both a model and types, but a model has its own types. Drop one, or give shapes instead of the model",
    );
  }
  if (options.weights !== undefined && !isHeldType(options.weights)) {
    throw new UsageError(`tune: weights: got ${show(options.weights)}, expected ${heldTypesText}`);
  }
  if (options.weights !== undefined && model === undefined) {
    throw new UsageError("tune: got weights without a model, whose weights they are. Give a model");
  }
  if (types?.length === 0) throw new UsageError("tune: types: got none, expected at least one");
  if (threads?.length === 0) throw new UsageError("tune: threads: got none, expected at least one");
  for (const count of threads ?? []) checkCount("threads", count, MOST_THREADS);
  if (tokens?.length === 0) throw new UsageError("tune: tokens: got none, expected at least one");
  for (const count of tokens ?? []) checkCount("tokens", count, MOST_TOKENS);
  if (tokens && (mStep !== undefined || mNum !== undefined)) {
    throw new UsageError(
      "tune: got tokens beside mStep or mNum, which are another way to say them. Drop one",
    );
  }
  if (!modes.includes(mode)) {
    throw new UsageError(`tune: mode: got ${show(mode)}, expected one of ${modes.join(", ")}`);
  }
  if (mode === "quick" && (mStep !== undefined || mNum !== undefined)) {
    throw new UsageError(
      "tune: got mStep or mNum for a quick tune, which has its own numbers of tokens. Drop one of them",
    );
  }
  if (mStep !== undefined) checkCount("mStep", mStep, MOST_TOKENS);
  if (mNum !== undefined) checkCount("mNum", mNum, MOST_TOKENS);
  const most = (mStep ?? 8) * (mNum ?? 16);
  if (most > MOST_TOKENS) {
    throw new UsageError(
      `tune: got mStep x mNum = ${most} tokens, expected at most ${MOST_TOKENS}. Use a smaller mNum`,
    );
  }
}

function checkCount(name: string, count: unknown, most: number): void {
  if (Number.isSafeInteger(count) && (count as number) >= 1 && (count as number) <= most) return;
  throw new UsageError(
    `tune: ${name}: got ${show(count)}, expected a whole number from 1 to ${most}`,
  );
}

export interface TuneResult {
  readonly file: TuneFile;
  /** The path where it is stored; undefined if it is not. */
  readonly place: string | undefined;
  /** The measurements that were left out, and why. */
  readonly notes?: readonly string[];
}

export interface TuneTestOptions {
  file: TuneFile;
  /** The number of points to measure again (default 12). */
  points?: number | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((share: number, now: string) => void) | undefined;
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
  /** Its time relative to the default's, measured alternately; absent: it is the default. */
  readonly overDefault?: number;
  /** Whether it is slower than the default, beyond the noise. */
  readonly isSlower?: boolean;
}
