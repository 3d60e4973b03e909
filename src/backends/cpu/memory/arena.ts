// The one memory of the CPU backend: weights, values, KV cache and scratch, one after the other in a WebAssembly.Memory that
// all threads share.
//
// First everything is laid out (allocate() returns addresses and allocates nothing), so that the size is known. Then commit()
// makes the memory, once: with 32-bit addresses up to 4 GiB, because kernels are a few percent faster with them, and with
// 64-bit addresses above, where the engine has them.
//
// In guard mode (guard.ts) every buffer ends at the end of a page, and the page after it is unused, so that accesses beyond
// the end of a buffer are found.

import { MemoryError } from "../../../base/errors.ts";
import type { BufferRange } from "../../../kernels/ir/bounds.ts";
import type { MemoryUse } from "../../backend.ts";

/** Bytes of a page of WebAssembly, which is a multiple of any system's. */
export const PAGE = 65536;
const GIB = 2 ** 30;
/** The bytes that 32-bit addresses reach. */
const NARROW_BYTES: number = 4 * GIB;
/** The most bytes that engines allow with 64-bit addresses. */
const WIDE_BYTES: number = 16 * GIB;
/** A cache line. No two buffers share one, to avoid false sharing. */
const ALIGNMENT = 64;

/** Bytes of a thread's report of an access outside its buffer, in guard mode: a cache line. */
export const REPORT_BYTES: number = ALIGNMENT;

export interface ArenaOptions {
  readonly shared: boolean;
  /** The engine has 64-bit addresses. */
  readonly memory64: boolean;
  /** The first address that is used; above 0 only for tests of large addresses. */
  readonly start: number;
  /** Keep buffers apart: see above. */
  readonly guard?: boolean | undefined;
}

/** What a piece of memory is for. */
export type Purpose = "weights" | "kv" | "work";

/** A buffer in guard mode. */
export interface GuardedBuffer extends BufferRange {
  /** The first page that it uses; the bytes before the buffer in it are unused. */
  readonly firstPage: number;
  /** The page after it. */
  readonly guardPage: number;
  /** The number of equal buffers in it, one for each thread. */
  readonly pieces: number;
}

interface Committed {
  readonly memory: WebAssembly.Memory;
  readonly views: ArenaViews;
}

export class Arena {
  readonly #options: ArenaOptions;
  readonly #bytes: Record<Purpose, number> = { weights: 0, kv: 0, work: 0 };
  readonly #guarded: GuardedBuffer[] = [];
  #end: number;
  #committed: Committed | undefined;

  constructor(options: ArenaOptions) {
    this.#options = options;
    // The first page is unused, too: address 0 stands for "none".
    this.#end = options.guard ? Math.ceil(options.start / PAGE) * PAGE + PAGE : options.start;
  }

  /** The most that this engine's memories can hold. */
  get limitBytes(): number {
    return this.#options.memory64 ? WIDE_BYTES : NARROW_BYTES;
  }

  get use(): MemoryUse {
    const { weights, kv, work } = this.#bytes;
    return { weightBytes: weights, kvBytes: kv, workBytes: work };
  }

  /** Addresses have 64 bits. */
  get isWide(): boolean {
    return this.#end > NARROW_BYTES;
  }

  /**
   * The address of `bytes` bytes, which will be zero. `name` is for messages; `pieces`: the number of equal buffers in it, of
   * which a kernel gets one.
   */
  allocate(bytes: number, purpose: Purpose, name: string, pieces: number = 1): number {
    if (this.#committed) throw new Error(`arena: ${bytes} bytes of ${purpose} after commit()`);
    if (this.#options.guard) return this.#allocateGuarded(bytes, purpose, name, pieces);
    const at = Math.ceil(this.#end / ALIGNMENT) * ALIGNMENT;
    this.#bytes[purpose] += at + bytes - this.#end;
    this.#end = at + bytes;
    return at;
  }

  /** The buffers, in guard mode. */
  get guarded(): readonly GuardedBuffer[] {
    return this.#guarded;
  }

  #allocateGuarded(bytes: number, purpose: Purpose, name: string, pieces: number): number {
    const firstPage = this.#end;
    const guardPage = firstPage + Math.max(1, Math.ceil(bytes / PAGE)) * PAGE;
    const alignment = alignmentOf(bytes);
    const from = guardPage - Math.ceil(bytes / alignment) * alignment;
    this.#guarded.push({ name, from, to: from + bytes, firstPage, guardPage, pieces });
    this.#end = guardPage + PAGE;
    this.#bytes[purpose] += this.#end - firstPage;
    return from;
  }

  /** Makes the memory. The system gives pages when they are first written to. */
  commit(): void {
    const gib = (this.#end / GIB).toFixed(2);
    if (this.#end > this.limitBytes) {
      throw new MemoryError(
        `the model needs ${gib} GiB, but this backend can use at most ${this.limitBytes / GIB} GiB here. Use a smaller type or context${this.#options.memory64 ? "" : ", or Node.js 24 or newer, where the limit is 16 GiB"}`,
      );
    }
    try {
      const memory = newMemory(this.memoryLimits);
      this.#committed = { memory, views: arenaViews(memory.buffer) };
    } catch (cause) {
      throw new MemoryError(
        `could not allocate ${gib} GiB of memory. Close other programs, or use a smaller model or context`,
        { cause },
      );
    }
  }

  /** As a module that imports this memory declares it. */
  get memoryLimits(): MemoryLimits {
    const pages = Math.max(1, Math.ceil(this.#end / PAGE));
    const { shared } = this.#options;
    return { initial: pages, maximum: pages, shared, memory64: this.isWide };
  }

  get memory(): WebAssembly.Memory {
    return this.#made.memory;
  }

  /** The memory as typed arrays. For long work beyond 1 GiB take a subarray: small indices are faster. */
  get views(): ArenaViews {
    return this.#made.views;
  }

  get #made(): Committed {
    if (!this.#committed) throw new Error("arena: used before commit()");
    return this.#committed;
  }
}

/** The largest alignment of a buffer of this size that ends at the end of a page; at least that of a float. */
function alignmentOf(bytes: number): number {
  let alignment = 4;
  while (alignment < ALIGNMENT && bytes % (2 * alignment) === 0) alignment *= 2;
  return alignment;
}

export interface MemoryLimits {
  readonly initial: number;
  readonly maximum: number;
  readonly shared: boolean;
  readonly memory64: boolean;
}

function newMemory({ initial, maximum, shared, memory64 }: MemoryLimits): WebAssembly.Memory {
  if (!memory64) return new WebAssembly.Memory({ initial, maximum, shared });
  const wide = { address: "i64", initial: BigInt(initial), maximum: BigInt(maximum), shared };
  // TypeScript does not know 64-bit memories yet.
  return new WebAssembly.Memory(wide as unknown as WebAssembly.MemoryDescriptor);
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
