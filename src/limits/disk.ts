// The speed limit of a disk for a model that keeps part of its weights there: every batch reads them once. Arithmetic, like the rest
// of this folder.

import type { SpeedLimit, SpeedLimits } from "../api/rates.ts";
import type { PhaseTimes } from "./phase.ts";

/** Bytes that every batch reads, and how fast the disk reads them. */
export interface DiskReads {
  readonly diskBytes: number;
  readonly bytesPerSecond: number;
}

/** Tokens per second of a single generation, one token in a batch. */
export function diskTokensPerSecond({ diskBytes, bytesPerSecond }: DiskReads): number {
  return bytesPerSecond / diskBytes;
}

/** The speed that a disk allows a model with a given memory limit. */
export interface DiskReport extends DiskReads {
  readonly ramBytes: number;
  /** Bytes of weights that are in memory. */
  readonly memoryBytes: number;
  readonly tokensPerSecond: number;
}

/**
 * The least that is read for each token: the weights that remain on disk when memory holds the state of a context, and nothing else
 * but weights. Of experts, a token reads its own. undefined: all weights are in memory.
 */
export function diskReport(
  memory: {
    readonly weightBytes: number;
    readonly storedBytes: number;
    readonly stateBytes: number;
  },
  ramBytes: number,
  bytesPerSecond: number,
): DiskReport | undefined {
  const { weightBytes, storedBytes, stateBytes } = memory;
  const beyond = Math.min(storedBytes, storedBytes + stateBytes - ramBytes);
  if (beyond <= 0) return undefined;
  const diskBytes = beyond * Math.min(1, weightBytes / storedBytes);
  const reads = { diskBytes, bytesPerSecond };
  const tokensPerSecond = diskTokensPerSecond(reads);
  return { ...reads, ramBytes, memoryBytes: storedBytes - beyond, tokensPerSecond };
}

/** Times of a generation, and the bytes of experts that were read on demand meanwhile. */
type DiskTimes = Omit<PhaseTimes, "work"> & {
  readonly experts?: { readonly promptBytes: number; readonly generatedBytes: number };
};

/**
 * The limits of both phases with the disk: the slower of the two counts. A prompt reads the weights at least once. Several sequences,
 * or drafted tokens, may share a batch: `batches` is the number of batches of the generation, if it is known. Of experts, the
 * measured reads count: only they show how many were in memory.
 */
export function limitsWithDisk(
  times: DiskTimes,
  limits: SpeedLimits | undefined,
  disk: DiskReads,
  batches: number = times.generatedTokens,
): SpeedLimits {
  const { promptTokens, cachedTokens, promptMs, generatedTokens, generatedMs } = times;
  const { promptBytes = 0, generatedBytes = 0 } = times.experts ?? {};
  const { diskBytes, bytesPerSecond: rate } = disk;
  const read = { tokens: promptTokens - cachedTokens, ms: promptMs };
  const written = { tokens: generatedTokens, ms: generatedMs };
  return {
    prompt: slower(limits?.prompt, diskLimit(diskBytes + promptBytes, rate, read)),
    generation: slower(
      limits?.generation,
      diskLimit(batches * diskBytes + generatedBytes, rate, written),
    ),
  };
}

function slower(a: SpeedLimit | undefined, b: SpeedLimit | undefined): SpeedLimit | undefined {
  if (!a || !b) return a ?? b;
  return b.tokensPerSecond < a.tokensPerSecond ? b : a;
}

/** undefined: nothing was computed. */
function diskLimit(
  bytes: number,
  bytesPerSecond: number,
  measured: { tokens: number; ms: number },
): SpeedLimit | undefined {
  const least = bytes / bytesPerSecond;
  const seconds = measured.ms / 1000;
  if (!(measured.tokens > 0 && seconds > 0 && least > 0)) return undefined;
  return {
    resource: "disk",
    tokensPerSecond: measured.tokens / least,
    fraction: least / seconds,
    achievedPerSecond: bytes / seconds,
    possiblePerSecond: bytesPerSecond,
  };
}
