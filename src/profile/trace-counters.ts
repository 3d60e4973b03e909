// Counters of a trace: how busy threads or a GPU are, in slices of time, and the memory that is held. trace.ts writes them.
//
// Only some batches are recorded op by op. Slices of a recorded batch have its measured utilisation; slices of any other batch have the
// average of the recorded ones of its phase, as another series of the counter.

import { EVENT_NUMBERS, type MemoryUse, type RecordedEvents } from "../backends/backend.ts";

/** A batch of the engine, in ms. */
export interface BatchSpan {
  readonly phase: string;
  readonly start: number;
  readonly end: number;
}

interface Sample {
  readonly ms: number;
  readonly values: Record<string, number>;
}

/** A slice of a batch takes at least so long. */
const SLICE_MS = 0.5;
/** Slices of a batch, at most. */
const MOST_SLICES = 64;

/** In percent of all threads. `batches`: in order of time. */
export function utilisation(
  events: readonly RecordedEvents[],
  batches: readonly BatchSpan[],
): Sample[] {
  if (events.length === 0) return [];
  const busy = batches.map((batch) => slicesOf(batch));
  for (const { numbers } of events) {
    let batch = 0;
    for (let at = 0; at < numbers.length; at += EVENT_NUMBERS) {
      const [start, end] = [numbers[at + 2]!, numbers[at + 3]!];
      while (batch > 0 && batches[batch]!.start > start) batch--;
      while (batch < batches.length - 1 && batches[batch + 1]!.start <= start) batch++;
      if (batches[batch]) addBusy(busy[batch]!, batches[batch]!, start, end);
    }
  }
  const shares = busy.map(
    ({ width, ms }) => ms && Array.from(ms, (one) => (100 * one) / (width * events.length)),
  );
  const averages = new Map<string, number>();
  for (const [phase, group] of Map.groupBy(batches.keys(), (i) => batches[i]!.phase)) {
    const known = group.flatMap((i) => shares[i] ?? []);
    if (known.length > 0) averages.set(phase, average(known));
  }
  const samples: Sample[] = [];
  batches.forEach(({ phase, start, end }, i) => {
    const { width } = busy[i]!;
    const estimate = averages.get(phase);
    shares[i]?.forEach((share, slice) => {
      samples.push(sample(start + slice * width, Math.min(100, share), 0));
    });
    if (!shares[i] && estimate !== undefined) samples.push(sample(start, 0, estimate));
    if (shares[i] || estimate !== undefined) samples.push(sample(end, 0, 0));
  });
  return samples;
}

function sample(ms: number, recorded: number, estimated: number): Sample {
  return { ms, values: { "% recorded": recorded, "% as in recorded batches": estimated } };
}

interface Slices {
  readonly width: number;
  /** Busy time of all threads in each slice; undefined: nothing of this batch was recorded. */
  ms: Float64Array | undefined;
}

function slicesOf({ start, end }: BatchSpan): Slices {
  const count = Math.max(1, Math.min(MOST_SLICES, Math.floor((end - start) / SLICE_MS)));
  return { width: Math.max((end - start) / count, Number.MIN_VALUE), ms: undefined };
}

/** Adds each slice's part of an event. */
function addBusy(slices: Slices, { start, end }: BatchSpan, from: number, to: number): void {
  const { width } = slices;
  slices.ms ??= new Float64Array(Math.max(1, Math.round((end - start) / width)));
  const { ms } = slices;
  const first = Math.max(0, Math.floor((from - start) / width));
  for (let i = first; i < ms.length; i++) {
    const [left, right] = [start + i * width, start + (i + 1) * width];
    if (left >= to) break;
    ms[i]! += Math.max(0, Math.min(to, right) - Math.max(from, left));
  }
}

/** Memory of a backend; `held`: bytes of its device's buffers, with the time of each change: time, bytes. */
export function memoryCounters(
  { weightBytes, kvBytes, workBytes }: MemoryUse,
  held: Float64Array | undefined,
  batches: readonly BatchSpan[],
): Sample[] {
  if (held && held.length > 0) {
    return Array.from({ length: held.length / 2 }, (_, i) => ({
      ms: held[2 * i]!,
      values: { bytes: held[2 * i + 1]! },
    }));
  }
  const [first, last] = [batches[0], batches.at(-1)];
  if (!first || !last) return [];
  const values = { weights: weightBytes, "KV cache": kvBytes, "working memory": workBytes };
  return [first.start, last.end].map((ms) => ({ ms, values }));
}

function average(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
