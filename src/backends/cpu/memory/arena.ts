// The one memory of the CPU backend: weights, values, KV cache and scratch, one after the other in a WebAssembly.Memory that
// all threads share.
//
// First everything is laid out (allocate() returns addresses and allocates nothing), so that the size is known. Then commit()
// makes the memory, once: with 32-bit addresses up to 4 GiB, because kernels are a few percent faster with them, and with
// 64-bit addresses above, where the engine has them.
//
// Row panels that only machine code reads may lie in far memories instead, beyond the 16 GiB of one: allocatePanels() gives
// addresses there, and memories.ts defines them.
//
// In guard mode (guard.ts) every buffer ends at the end of a page, and the page after it is unused, so that accesses beyond
// the end of a buffer are found.

import { memoryText } from "../../../base/byte-sizes.ts";
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
/** From the addresses of one memory to those of the next. */
export const MEMORY_STEP: number = 2 ** 44;
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
  /** Machine code reads the row panels, so that they may lie in far memories; undefined: they may not. */
  readonly far?: FarLimits | undefined;
}

export interface FarLimits {
  /** Row panels lie in the main memory up to here: the rest of it is for KV cache and work. */
  readonly nearBytes: number;
  /** Bytes of a far memory. */
  readonly memoryBytes: number;
}

export const farLimits: FarLimits = { nearBytes: WIDE_BYTES / 2, memoryBytes: WIDE_BYTES };

/** The purpose of a piece of memory. */
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
  readonly far: readonly WebAssembly.Memory[];
}

export class Arena {
  readonly #options: ArenaOptions;
  readonly #bytes: Record<Purpose, number> = { weights: 0, kv: 0, work: 0 };
  readonly #guarded: GuardedBuffer[] = [];
  /** Bytes of each far memory. */
  readonly #far: number[] = [];
  #end: number;
  #committed: Committed | undefined;

  constructor(options: ArenaOptions) {
    this.#options = options;
    // The first page is unused, too: address 0 stands for "none".
    this.#end = options.guard ? Math.ceil(options.start / PAGE) * PAGE + PAGE : options.start;
  }

  /** The capacity of this engine's memories: the main memory, and far ones. */
  get limitBytes(): number {
    return this.#mainLimit + this.#farBytes;
  }

  get #mainLimit(): number {
    return this.#options.memory64 ? WIDE_BYTES : NARROW_BYTES;
  }

  get #farBytes(): number {
    return this.#far.reduce((sum, bytes) => sum + bytes, 0);
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

  /** The address of row panels, in the main memory or a far one. */
  allocatePanels(bytes: number, name: string): number {
    const { far, guard } = this.#options;
    const isNear = !far || guard || bytes > far.memoryBytes || this.#end + bytes <= far.nearBytes;
    if (isNear) return this.allocate(bytes, "weights", name);
    const aligned = Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
    const last = this.#far.length - 1;
    if (last < 0 || this.#far[last]! + aligned > far.memoryBytes) this.#far.push(0);
    const memory = this.#far.length;
    const at = this.#far[memory - 1]!;
    this.#far[memory - 1] = at + aligned;
    this.#bytes.weights += aligned;
    return memory * MEMORY_STEP + at;
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

  /** Makes the memories. The system gives pages when they are first written to. */
  commit(): void {
    const size = memoryText(this.#end + this.#farBytes);
    if (this.#end > this.#mainLimit) {
      throw new MemoryError(
        `the model needs ${size}, but this backend can use at most ${memoryText(this.limitBytes)} here. Use a smaller type or context${this.#options.memory64 ? "" : ", or Node.js 24 or newer, where the limit is 16 GiB"}`,
      );
    }
    try {
      const memory = newMemory(this.memoryLimits);
      const far = this.#far.map((bytes) => newMemory(this.#limitsOf(bytes, true)));
      this.#committed = { memory, views: arenaViews(memory.buffer), far };
    } catch (cause) {
      throw new MemoryError(
        `could not allocate ${size} of memory. Close other programs, or use a smaller model or context`,
        { cause },
      );
    }
  }

  /** The limits with which a module that imports this memory declares it. */
  get memoryLimits(): MemoryLimits {
    return this.#limitsOf(this.#end, this.isWide);
  }

  #limitsOf(bytes: number, memory64: boolean): MemoryLimits {
    const pages = Math.max(1, Math.ceil(bytes / PAGE));
    const { shared } = this.#options;
    return { initial: pages, maximum: pages, shared, memory64 };
  }

  /** The far memories, by number from 1 on. */
  get far(): readonly WebAssembly.Memory[] {
    return this.#made.far;
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

/**
 * Shared memory is made small and grows at once, in place: V8 counts a memory's initial size among a thread's own objects, and
 * would run a garbage collection for it, in the middle of opening a model.
 */
function newMemory({ initial, maximum, shared, memory64 }: MemoryLimits): WebAssembly.Memory {
  const first = shared ? 1 : initial;
  const memory = memoryOf(first, maximum, shared, memory64);
  if (first < initial) memory.grow(memory64 ? wide(initial - first) : initial - first);
  return memory;
}

function memoryOf(initial: number, maximum: number, shared: boolean, memory64: boolean) {
  if (!memory64) return new WebAssembly.Memory({ initial, maximum, shared });
  const limits = { address: "i64", initial: BigInt(initial), maximum: BigInt(maximum), shared };
  // TypeScript does not know 64-bit memories yet.
  return new WebAssembly.Memory(limits as unknown as WebAssembly.MemoryDescriptor);
}

/** As a memory with 64-bit addresses takes it; TypeScript knows none of these yet. */
function wide(pages: number): number {
  return BigInt(pages) as unknown as number;
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
