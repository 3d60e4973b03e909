// What a profile adds up of the steps of one phase, whichever backend runs them: their number and time, their sizes, and
// which of them are recorded. What was recorded, by whom and how, is the backend's.
//
// Recording has a price, so not every step of generation is recorded: the first ones, all that are long, and then some.
// Those stand for all.

import type { Step } from "../graph/step.ts";
import type { PhaseTimes } from "./backend.ts";

/** Of generation: these first steps, then one of so many, and all that are longer than SHORT_MS. */
const FIRST_STEPS = 16;
const SAMPLED = 16;
const SHORT_MS = 8;

interface SizeSum {
  readonly tokens: number;
  readonly outputs: number;
  steps: number;
  /** Sum over steps of the average context. */
  contexts: number;
}

export class StepSums {
  steps = 0;
  stepMs = 0;
  recordedSteps = 0;
  recordedMs = 0;
  readonly #sizes = new Map<number, SizeSum>();

  /** A step begins. */
  begin(step: Step): void {
    const size = this.#sizeOf(step);
    let positions = 0;
    for (let t = 0; t < step.tokenCount; t++) positions += step.positions[t]! + 1;
    size.steps++;
    size.contexts += positions / Math.max(1, step.tokenCount);
  }

  /** Whether the next step of generation should be recorded. */
  get isSampled(): boolean {
    const { steps, stepMs } = this;
    return steps < FIRST_STEPS || steps % SAMPLED === 0 || stepMs / steps >= SHORT_MS;
  }

  end(ms: number, isRecorded: boolean): void {
    this.steps++;
    this.stepMs += ms;
    if (!isRecorded) return;
    this.recordedSteps++;
    this.recordedMs += ms;
  }

  reset(): void {
    this.steps = 0;
    this.stepMs = 0;
    this.recordedSteps = 0;
    this.recordedMs = 0;
    this.#sizes.clear();
  }

  /** Of all steps, from the busy times of those that were recorded. */
  times(busyMs: readonly Float64Array[]): PhaseTimes {
    const factor = this.recordedMs > 0 ? this.stepMs / this.recordedMs : 1;
    return {
      stepMs: this.stepMs,
      sizes: [...this.#sizes.values()].map(({ tokens, outputs, steps, contexts }) => ({
        tokens,
        outputs,
        steps,
        context: contexts / steps,
      })),
      busyMs: busyMs.map((times) => times.map((ms) => ms * factor)),
    };
  }

  #sizeOf({ tokenCount, outputCount }: Step): SizeSum {
    const key = tokenCount * 65536 + outputCount;
    let size = this.#sizes.get(key);
    if (!size) {
      size = { tokens: tokenCount, outputs: outputCount, steps: 0, contexts: 0 };
      this.#sizes.set(key, size);
    }
    return size;
  }
}
