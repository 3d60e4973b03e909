// The memories of the CPU backend, and the meaning of the arena's addresses (arena.ts). Most addresses are offsets in the
// main memory. Row panels that only machine code reads may lie in far memories, which WebAssembly does not see:
//
//   address = number of the memory * MEMORY_STEP + offset        the main memory has number 0
//
// Machine code adds the address of the main memory to every pointer that it gets, so a far memory is passed as its distance
// from there, which may be negative. Every thread makes its own Memories, once.

import { WorkerError } from "../../../base/errors.ts";
import type { NativeAccess } from "../../../platform/platform.ts";
import { type ArenaViews, arenaViews, MEMORY_STEP } from "./arena.ts";

/** Bytes of one of the memories. */
export interface Place {
  readonly views: ArenaViews;
  /** The offset in these views. */
  readonly at: number;
}

export class Memories {
  /** By number. */
  readonly #views: readonly ArenaViews[];
  /** From the main memory's first byte to the first byte of each. */
  readonly #distances: readonly number[];

  constructor(main: ArenaViews, far: readonly WebAssembly.Memory[] = [], host?: NativeAccess) {
    this.#views = [main, ...far.map(({ buffer }) => arenaViews(buffer))];
    if (far.length > 0 && typeof host !== "object") {
      throw new WorkerError(`weights are outside of WebAssembly's memory, but ${host}`);
    }
    const addressOf = ({ buffer }: ArenaViews) =>
      (host as Exclude<NativeAccess, string>).address(buffer);
    this.#distances = this.#views.map((views, i) =>
      i === 0 ? 0 : addressOf(views) - addressOf(main),
    );
  }

  /** The pointer to this address, for kernels. */
  pointer(address: number): number {
    const memory = Math.floor(address / MEMORY_STEP);
    return address - memory * MEMORY_STEP + this.#distances[memory]!;
  }

  /** The view and offset of this address, for TypeScript. */
  place(address: number): Place {
    const memory = Math.floor(address / MEMORY_STEP);
    return { views: this.#views[memory]!, at: address - memory * MEMORY_STEP };
  }
}
