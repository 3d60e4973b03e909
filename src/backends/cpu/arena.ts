// The one memory of the CPU backend: weights, values, KV cache and scratch behind each other in a WebAssembly.Memory
// that all threads see. It only grows, while a model is loaded; after prepare() nothing is allocated.

import { MemoryError } from "../../base/errors.ts";

const PAGE = 65536;
/** What 32-bit addresses reach. */
const MAX_PAGES = 65536;
/** A cache line: nothing that two threads write shares one. */
const ALIGNMENT = 64;

export class Arena {
  readonly memory: WebAssembly.Memory;
  readonly shared: boolean;
  #end = 0;
  #views: ArenaViews | undefined;

  constructor(shared: boolean) {
    this.shared = shared;
    this.memory = new WebAssembly.Memory({ initial: 1, maximum: MAX_PAGES, shared });
  }

  get usedBytes(): number {
    return this.#end;
  }

  /** `bytes` zeroed bytes; their address. Views taken before may be stale after this. */
  allocate(bytes: number, what: string): number {
    const at = Math.ceil(this.#end / ALIGNMENT) * ALIGNMENT;
    const end = at + bytes;
    const missing = Math.ceil(end / PAGE) - this.memory.buffer.byteLength / PAGE;
    if (missing > 0) this.#grow(missing, end, what);
    this.#end = end;
    return at;
  }

  /** The memory as it is now, seen as each type. */
  get views(): ArenaViews {
    if (this.#views?.buffer !== this.memory.buffer) this.#views = arenaViews(this.memory.buffer);
    return this.#views;
  }

  #grow(pages: number, end: number, what: string): void {
    const gib = (end / 2 ** 30).toFixed(2);
    if (end > MAX_PAGES * PAGE) {
      throw new MemoryError(
        `${what} does not fit: the model needs ${gib} GiB so far, and this backend reaches 4 GiB. Use a smaller type or context`,
      );
    }
    try {
      this.memory.grow(pages);
    } catch (cause) {
      throw new MemoryError(
        `could not get ${gib} GiB of memory for ${what}: close other programs, or use a smaller model or context`,
        { cause },
      );
    }
  }
}

export interface ArenaViews {
  readonly buffer: ArrayBufferLike;
  readonly u8: Uint8Array;
  readonly i8: Int8Array;
  readonly i32: Int32Array;
  readonly u32: Uint32Array;
  readonly f32: Float32Array;
}

export function arenaViews(buffer: ArrayBufferLike): ArenaViews {
  return {
    buffer,
    u8: new Uint8Array(buffer),
    i8: new Int8Array(buffer),
    i32: new Int32Array(buffer),
    u32: new Uint32Array(buffer),
    f32: new Float32Array(buffer),
  };
}
