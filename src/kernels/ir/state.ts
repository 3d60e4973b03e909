// The state of the interpreter: vector registers, memory with bounds checks, and AMX tiles. meanings.ts changes it.
//
// Registers are views of the same bytes as typed arrays, so this needs a little-endian machine.

import { type BufferRange, outsideText } from "./bounds.ts";
import type { OpName } from "./ops.ts";
import type { TileShape } from "./tiles.ts";

/** A vector register: the same bytes as every lane type. */
export class Vector {
  readonly u8: Uint8Array;
  readonly i8: Int8Array;
  readonly i16: Int16Array;
  readonly i32: Int32Array;
  readonly u32: Uint32Array;
  readonly f32: Float32Array;

  constructor(width: number) {
    const bytes = new ArrayBuffer(width);
    this.u8 = new Uint8Array(bytes);
    this.i8 = new Int8Array(bytes);
    this.i16 = new Int16Array(bytes);
    this.i32 = new Int32Array(bytes);
    this.u32 = new Uint32Array(bytes);
    this.f32 = new Float32Array(bytes);
  }
}

/** The memory of one run, with its bounds checked. */
export class Memory {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  /** The op that is running, for errors. */
  op: OpName | undefined;
  /** The buffers that it may access; undefined: all memory. And its statement, for errors. */
  buffers: readonly (BufferRange | undefined)[] | undefined;
  place: (() => string) | undefined;
  /** The AMX tiles that have a shape, by number. */
  readonly tiles: (Tile | undefined)[] = [];
  readonly #kernel: string;

  constructor(kernel: string, memory: ArrayBufferLike) {
    this.#kernel = kernel;
    this.bytes = new Uint8Array(memory);
    this.view = new DataView(memory);
  }

  /** pointer + displacement, where `length` bytes must be. */
  at(pointer: number, displacement: number, length: number): number {
    const address = pointer + displacement;
    if (!Number.isInteger(address) || address < 0 || address + length > this.bytes.length) {
      this.fail(
        `address ${address} (pointer ${pointer}, displacement ${displacement}), ${length} bytes: ` +
          `outside the memory of ${this.bytes.length} bytes`,
      );
    }
    const isInside = this.buffers?.some((b) => b && address >= b.from && address + length <= b.to);
    if (isInside === false) this.fail(outsideText(address, length, this.buffers!));
    return address;
  }

  /** A tile that has a shape. */
  tile(number: number): Tile {
    return this.tiles[number] ?? this.fail(`tile ${number} has no shape`);
  }

  fail(what: string): never {
    throw new Error(`${this.#kernel}: ${this.place?.() ?? this.op}: ${what}`);
  }
}

/** An AMX tile: its rows one after the other. */
export interface Tile extends TileShape {
  readonly cells: Int8Array<ArrayBuffer>;
}
