// Measures the time to wake a thread: from the notify of one thread until another, asleep in a wait, runs. Two
// measuring threads wake each other alternately; half of such a round trip is one wake-up. It may vary by a factor of
// five:
// the scheduler, the power state of a core and other programs decide.

import { WorkerError } from "../base/errors.ts";
import type { EngineThread } from "../platform/platform.ts";
import type { WakeReport, WakeTask } from "./thread.ts";

/** Microseconds of a wake-up. */
export interface NotifyCost {
  /** The median. */
  readonly us: number;
  /** A tenth of the times are less than `low`, a tenth more than `high`. */
  readonly low: number;
  readonly high: number;
}

const ROUNDS = 500;
/** The first round trips include the start of a thread. */
const WARM_UPS = 50;
/** The measurement ends then, with the rounds so far: other programs may keep a core. */
const MOST_MS = 1000;

/** undefined if memory cannot be shared between threads, or if no round trip was completed in time. */
export async function measureNotify(
  startThread: () => EngineThread,
): Promise<NotifyCost | undefined> {
  if (typeof SharedArrayBuffer === "undefined") return undefined;
  const words = new Int32Array(new SharedArrayBuffer(64));
  const threads = [startThread(), startThread()];
  try {
    const reports = await Promise.all(
      threads.map((thread, side) => {
        const task: WakeTask = {
          kind: "wake",
          words,
          side,
          rounds: WARM_UPS + ROUNDS,
          ms: MOST_MS,
        };
        return ask(thread, task);
      }),
    );
    return costOf([...reports[0]!.us].slice(WARM_UPS));
  } finally {
    await Promise.all(threads.map((thread) => thread.terminate()));
  }
}

function ask(thread: EngineThread, task: WakeTask): Promise<WakeReport> {
  return new Promise((resolve, reject) => {
    thread.onMessage((report) => resolve(report as WakeReport));
    thread.onFailure((cause) =>
      reject(new WorkerError(`a measuring thread failed (${cause.message})`, { cause })),
    );
    thread.post(task);
  });
}

function costOf(times: readonly number[]): NotifyCost | undefined {
  if (times.length === 0) return undefined;
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))]!;
  return { us: at(0.5), low: at(0.1), high: at(0.9) };
}
