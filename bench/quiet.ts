// Is the machine ours? A comparison that was made while something else ran says nothing, so it is not reported.
//
// Two signs: other processes' CPU time (machine-load.ts), and a calibration loop that always does the same work: where
// it takes longer than it once did, the clock is throttled or a hypervisor gave the core to somebody else.

import { setTimeout as sleep } from "node:timers/promises";
import { othersCores, quietCores } from "../src/base/machine-load.ts";
import type { MachineLoad, Terminal } from "../src/platform/node-cli.ts";

/** A loop that takes this much longer than the fastest one seen was disturbed. */
const slowestCalibration = 1.25;

const lookMs = 1000;

export class QuietWatch {
  readonly #terminal: Pick<Terminal, "load">;
  #bestMs = Number.POSITIVE_INFINITY;
  #before: MachineLoad;

  constructor(terminal: Pick<Terminal, "load">) {
    this.#terminal = terminal;
    this.#before = terminal.load();
    for (let i = 0; i < 10; i++) this.#calibrate(); // also compiles the loop
  }

  /** Starts a stretch that disturbance() will judge. */
  begin(): void {
    this.#before = this.#terminal.load();
  }

  /** What disturbed the stretch since begin(); undefined: nothing did. */
  disturbance(): string | undefined {
    const others = othersCores(this.#before, this.#terminal.load());
    if (others > quietCores) return `other processes used ${others.toFixed(2)} cores`;
    const slower = this.#calibrate();
    if (slower > slowestCalibration) return `a fixed loop ran ${slower.toFixed(2)}x slower`;
    return undefined;
  }

  /** Waits until a second passes undisturbed; what still disturbs after `seconds`, if anything does. */
  async settle(seconds: number): Promise<string | undefined> {
    for (let left = seconds; ; left -= lookMs / 1000) {
      this.begin();
      await sleep(lookMs);
      const disturbance = this.disturbance();
      if (disturbance === undefined || left <= 0) return disturbance;
    }
  }

  /** How many times longer than ever before the loop takes now, at best of three. */
  #calibrate(): number {
    const took = Math.min(calibrationMs(), calibrationMs(), calibrationMs());
    this.#bestMs = Math.min(this.#bestMs, took);
    return took / this.#bestMs;
  }
}

/** A few milliseconds of integer arithmetic that no compiler can leave out. */
function calibrationMs(): number {
  const started = performance.now();
  let state = 1;
  for (let i = 0; i < 4_000_000; i++) state = (Math.imul(state, 1664525) + 1013904223) | 0;
  const took = performance.now() - started;
  return state === 0 ? Number.NaN : took;
}
