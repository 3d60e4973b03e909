// Measures the transfers of a matmul's activations and results between the host and a GPU, and estimates those of any size
// from the measurements. They decide whether a matmul whose activations are on the host is worth computing on the GPU.

import type { GpuDevice } from "../backends/webgpu/device.ts";
import type { GpuLink } from "../limits/gpu-device.ts";
import { fastest, GpuCopies } from "../machine/gpu-link.ts";
import type { TransferLine, TuneFile, TuneProblem } from "./tune-file.ts";

/** A copy of more is not measured: longer ones take proportionally longer. */
const MOST_BYTES: number = 64 << 20;
/** Small copies vary more, and take less time. */
const SMALL_BYTES: number = 1 << 20;
const ROUNDS = { small: 30, large: 5, software: 3 } as const;

/**
 * `prepared`: for each number of tokens, the bytes of an activation as the kernels read it. The numbers of tokens whose
 * copies are too large are left out, but never the smallest.
 */
export async function measureTransfers(
  gpu: GpuDevice,
  problem: TuneProblem,
  tokens: readonly number[],
  prepared: readonly (number | undefined)[],
): Promise<TransferLine[]> {
  const wide = Math.max(inBytes(problem, 1), outBytes(problem, 1));
  const most = Math.min(MOST_BYTES, gpu.facts.maxBufferBytes);
  const measured = tokens.filter((m, i) => i === 0 || m * wide <= most);
  const copies = new GpuCopies(gpu, measured.at(-1)! * wide);
  const us = async (there: number, back: number): Promise<number> => {
    const size = there + back <= SMALL_BYTES ? "small" : "large";
    const rounds = ROUNDS[gpu.facts.isSoftware ? "software" : size];
    return 1e6 * (await fastest(rounds, () => copies.roundTrip(there, back)));
  };
  try {
    const lines: TransferLine[] = [];
    for (const [i, m] of measured.entries()) {
      // The time of a transfer is the difference to the same round trip without it.
      const least = await us(0, 4);
      const sent = async (bytes: number) => Math.max(0, (await us(bytes, 4)) - least);
      const width = prepared[i];
      lines.push({
        m,
        there: await sent(inBytes(problem, m)),
        prepared: width === undefined ? undefined : await sent(m * problem.k * width),
        back: await us(0, outBytes(problem, m)),
      });
    }
    return lines;
  } finally {
    copies.dispose();
  }
}

/** Activations as floats: [m, k]. */
function inBytes({ k }: TuneProblem, m: number): number {
  return 4 * m * k;
}

/** Results: [m, n], or one row for each of a token's experts. */
function outBytes({ n, experts }: TuneProblem, m: number): number {
  return 4 * m * n * (experts?.used ?? 1);
}

/** Microseconds to move a number of bytes: to the GPU, and from it, waiting for it included. */
export interface TransferTimes {
  there(bytes: number): number;
  /** Microseconds of activations of `bytes` bytes as floats, but sent as kernels read them; undefined: not measured. */
  readonly prepared?: ((bytes: number) => number) | undefined;
  back(bytes: number): number;
}

/** From the transfers of a file; undefined: it has none, and is older than they are. */
export function transferTimes({ groups }: TuneFile): TransferTimes | undefined {
  const there: Point[] = [];
  const prepared: Point[] = [];
  const back: Point[] = [];
  for (const group of groups) {
    for (const line of group.transfers ?? []) {
      there.push({ bytes: inBytes(group, line.m), us: line.there });
      back.push({ bytes: outBytes(group, line.m), us: line.back });
      if (line.prepared === undefined) continue;
      prepared.push({ bytes: inBytes(group, line.m), us: line.prepared });
    }
  }
  if (there.length === 0) return undefined;
  return {
    there: lineThrough(there),
    prepared: prepared.length > 0 ? lineThrough(prepared) : undefined,
    back: lineThrough(back),
  };
}

/** The same from a link's rates. */
export function linkTimes({
  uploadBytesPerSecond,
  downloadBytesPerSecond,
  roundTripSeconds,
}: GpuLink): TransferTimes {
  return {
    there: (bytes) => (1e6 * bytes) / uploadBytesPerSecond,
    back: (bytes) => 1e6 * (roundTripSeconds + bytes / downloadBytesPerSecond),
  };
}

interface Point {
  readonly bytes: number;
  readonly us: number;
}

/** Linear between the measured sizes; of equal sizes the fastest counts. Beyond the largest, in proportion to its growth. */
function lineThrough(points: readonly Point[]): (bytes: number) => number {
  const bySize = new Map<number, number>();
  for (const { bytes, us } of points) {
    bySize.set(bytes, Math.min(us, bySize.get(bytes) ?? Number.POSITIVE_INFINITY));
  }
  const sorted = [...bySize].sort(([a], [b]) => a - b);
  const [first, last] = [sorted[0]!, sorted.at(-1)!];
  return (bytes) => {
    if (bytes <= first[0]) return first[1];
    const at = sorted.findIndex(([size]) => size >= bytes);
    if (at < 0)
      return last[1] + ((last[1] - first[1]) * (bytes - last[0])) / (last[0] - first[0] || last[0]);
    const [low, high] = [sorted[at - 1]!, sorted[at]!];
    return low[1] + ((high[1] - low[1]) * (bytes - low[0])) / (high[0] - low[0]);
  };
}
