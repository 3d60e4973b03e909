// A cursor over the header of a GGUF file, with read-ahead: many small fields, few large reads.
//
// The header's bytes stay in memory, because arrays are decoded from them later. Every length is checked against the
// file's size before anything is read or allocated; a FormatError names the field with the false length.

import { FormatError } from "../../base/errors.ts";
import type { ByteSource } from "../../platform/platform.ts";

/** Size of the first read; each later read doubles the buffer. */
const firstRead = 1 << 20;

/** Vocabularies of real models take less than 40 MB; a header beyond this is not a header. */
const longestHeader = 256 << 20;

/** The format's own limit for keys. */
const longestName = 65535;

// A vocabulary may hold U+FEFF as a token: ignoreBOM keeps it.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export class HeaderCursor {
  readonly file: string;
  readonly size: number;
  position = 0;
  readonly #source: ByteSource;
  #bytes: Uint8Array<ArrayBuffer> = new Uint8Array(0); // the bytes read so far: [0, filled)
  #view: DataView = new DataView(this.#bytes.buffer);

  constructor(source: ByteSource, file: string) {
    this.#source = source;
    this.file = file;
    this.size = source.size;
  }

  get view(): DataView {
    return this.#view;
  }

  get bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes;
  }

  get remaining(): number {
    return this.size - this.position;
  }

  /** Whether the next `length` bytes are in memory. Callers use this to stay synchronous in a loop. */
  has(length: number): boolean {
    return this.position + length <= this.#bytes.byteLength;
  }

  /** Makes the next `length` bytes available, or throws an error that names the field that is cut off. */
  async need(length: number, field: string): Promise<void> {
    if (this.has(length)) return;
    if (length > this.remaining) {
      throw this.error(
        field,
        `end of file after ${this.remaining} bytes`,
        `${length} bytes at offset ${this.position} (the file is truncated or a length is wrong)`,
      );
    }
    const end = this.position + length;
    if (end > longestHeader) {
      throw this.error(field, `a header of at least ${end} bytes`, `at most ${longestHeader}`);
    }
    const filled = this.#bytes.byteLength;
    const target = Math.min(this.size, longestHeader, Math.max(end, filled * 2, firstRead));
    const grown = new Uint8Array(target);
    grown.set(this.#bytes);
    await this.#source.readInto(filled, grown.subarray(filled));
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }

  async u32(field: string): Promise<number> {
    await this.need(4, field);
    const value = this.#view.getUint32(this.position, true);
    this.position += 4;
    return value;
  }

  /** A 64-bit count, length or offset. Beyond 2^53 it is inexact, but still larger than any file. */
  async u64(field: string): Promise<number> {
    await this.need(8, field);
    const value = u64At(this.#view, this.position);
    this.position += 8;
    return value;
  }

  /** A count of items that take at least `bytesEach` bytes each in the rest of the file; at most `limit`. */
  async count(
    field: string,
    bytesEach: number,
    limit: number = Number.POSITIVE_INFINITY,
  ): Promise<number> {
    const count = await this.u64(field);
    const most = Math.floor(this.remaining / bytesEach);
    if (count <= Math.min(most, limit)) return count;
    const exact = this.#view.getBigUint64(this.position - 8, true);
    const why = most <= limit ? " (the rest of the file has no room for more)" : "";
    throw this.error(field, exact, `at most ${Math.min(most, limit)}${why}`);
  }

  async string(field: string): Promise<string> {
    const length = await this.count(`${field} length`, 1);
    await this.need(length, field);
    const text = this.text(this.position, length, field);
    this.position += length;
    return text;
  }

  /** A key or a tensor's name: a string that is not empty and not absurdly long. */
  async name(field: string): Promise<string> {
    const start = this.position;
    const name = await this.string(field);
    const length = this.position - start - 8;
    if (length >= 1 && length <= longestName) return name;
    throw this.error(`${field} length`, length, `1 to ${longestName}`);
  }

  /** UTF-8 text from bytes that are already in memory. */
  text(start: number, length: number, field: string): string {
    return decodeUtf8(this.#bytes.subarray(start, start + length), (got) =>
      this.error(field, got, "valid UTF-8"),
    );
  }

  /** Frees bytes that were read beyond the position. */
  trim(): void {
    this.#bytes = this.#bytes.slice(0, this.position);
    this.#view = new DataView(this.#bytes.buffer);
  }

  error(field: string, got: unknown, expected: string): FormatError {
    return new FormatError("gguf", { file: this.file, field, got, expected });
  }
}

export function u64At(view: DataView, position: number): number {
  return view.getUint32(position, true) + view.getUint32(position + 4, true) * 2 ** 32;
}

/** Strict decoding; `fail` makes the error for bytes that are not UTF-8. */
function decodeUtf8(bytes: Uint8Array, fail: (got: Uint8Array) => Error): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw fail(bytes);
  }
}
