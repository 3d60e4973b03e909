// Reports to the leader that a weight cannot be read: the first thread writes why, and all others give up. A reader does so when
// a read fails, a compute thread when no read ends.

import type { ArenaViews } from "../memory/arena.ts";
import { type DiskProgram, MESSAGE_BYTES, WORD } from "./program.ts";

/** The memory in which failures are recorded. */
export type FailurePlace = Pick<DiskProgram, "words" | "message">;

/** Records why the batch cannot continue, unless another thread has already, and wakes the waiting threads. */
export function recordFailure(
  { words: wordsAt, message: at }: FailurePlace,
  { i32, u8 }: Pick<ArenaViews, "i32" | "u8">,
  message: string,
): void {
  const words = i32.subarray(wordsAt / 4, wordsAt / 4 + WORD.count);
  if (Atomics.compareExchange(words, WORD.failed, 0, 1) !== 0) return;
  const bytes = new TextEncoder().encode(message).subarray(0, MESSAGE_BYTES);
  u8.set(bytes, at + 4);
  i32[at / 4] = bytes.length;
  Atomics.store(words, WORD.failed, 2);
  Atomics.add(words, WORD.loaded, 1);
  Atomics.notify(words, WORD.loaded);
}

/** For a compute thread: nothing was read for so long. */
export function noAnswer(name: string, waitMs: number): string {
  return `${name}: the disk has not answered for ${waitMs / 1000} s`;
}
