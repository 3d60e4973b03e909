// disk_wait: no op of the graph. It releases weights on disk that the instructions before it have read, and waits until those of
// the instructions behind it are in the ring (disk/program.ts). The last one of a program only releases.

import { noAnswer, recordFailure } from "../disk/failure.ts";
import { SLEEP_MS, WORD } from "../disk/program.ts";
import { ChunkUnavailable } from "../executor.ts";
import type { InstructionDef } from "./op.ts";

export interface DiskWait {
  readonly op: "disk_wait";
  /** Addresses of DiskProgram.words, .done and .message. */
  readonly words: number;
  readonly done: number;
  readonly message: number;
  /** Weights of a round. */
  readonly weights: number;
  /** Weights before this one are released. */
  readonly first: number;
  /** The pieces of the weights that it waits for, from number `first` on. */
  readonly pieces: readonly number[];
  /** The first of them, for messages, and DiskProgram.waitMs. */
  readonly name: string;
  readonly waitMs: number;
}

export const diskWait: InstructionDef<DiskWait> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",

  execute(instruction, { views }) {
    const { words: wordsAt, done: doneAt, weights, first, pieces, name, waitMs } = instruction;
    const { i32 } = views;
    const words = i32.subarray(wordsAt / 4, wordsAt / 4 + WORD.count);
    const done = i32.subarray(doneAt / 4, doneAt / 4 + weights);
    const release = () => {
      const before = Atomics.load(words, WORD.released);
      const inRound = before % weights;
      if (inRound === first) return;
      for (let i = inRound; i < first; i++) Atomics.store(done, i, 0);
      Atomics.store(words, WORD.released, before - inRound + first);
      Atomics.add(words, WORD.work, 1);
      Atomics.notify(words, WORD.work);
    };
    const isLoaded = () => {
      for (let i = 0; i < pieces.length; i++) {
        if (Atomics.load(done, first + i) < pieces[i]!) return false;
      }
      return true;
    };
    const wait = () => {
      let since = performance.now();
      for (let seen = Atomics.load(words, WORD.loaded); !isLoaded(); ) {
        if (Atomics.load(words, WORD.failed) !== 0) throw new ChunkUnavailable();
        if (Atomics.wait(words, WORD.loaded, seen, SLEEP_MS) === "timed-out") {
          if (performance.now() - since > waitMs) {
            recordFailure(instruction, views, noAnswer(name, waitMs));
          }
        } else since = performance.now();
        seen = Atomics.load(words, WORD.loaded);
      }
    };
    return {
      chunks: () => 1,
      run: () => {
        release();
        wait();
      },
    };
  },
};
