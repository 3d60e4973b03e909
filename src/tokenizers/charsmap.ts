// SentencePiece's precompiled character map: the sequences of UTF-8 bytes that a unigram tokenizer replaces first (NFKC, other
// kinds of spaces).
//
// It is a trie in a double array of 32-bit units, behind four bytes with its size, followed by the replacements, each of which ends
// with a zero. A unit: bits 0 to 7 are the byte that leads to it, bit 8 says that a sequence may end there, bits 10 to 30 are the
// offset to its children (times 256 if bit 9 is set). The unit after an end has bit 31 set, and the offset of the replacement in
// the others.

import { ModelError } from "../base/errors.ts";

/** Files have some 240 KB. */
const MOST_BYTES = 1 << 26;

export class Charsmap {
  readonly #units: Uint32Array;
  readonly #replacements: Uint8Array;
  /** The end of the last match, and its replacement: #replacements from #from to #to. */
  #end = 0;
  #from = 0;
  #to = 0;

  /** `key`: for messages. */
  constructor(bytes: Uint8Array, key: string) {
    const fail = (got: string, expected: string) =>
      new ModelError(`tokenizer: ${key}: got ${got}, expected ${expected}`);
    checkCharsmapSize(bytes.length, key);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const size = view.getUint32(0, true);
    if (size % 4 !== 0 || size < 4 || 4 + size >= bytes.length) {
      throw fail(`a trie of ${size} bytes`, `a multiple of 4 below ${bytes.length - 4}`);
    }
    this.#units = new Uint32Array(size / 4);
    for (let i = 0; i < this.#units.length; i++) this.#units[i] = view.getUint32(4 + 4 * i, true);
    this.#replacements = bytes.subarray(4 + size);
    if (this.#replacements.at(-1) !== 0)
      throw fail("a last replacement without an end", "a 0 at the end");
  }

  /** Replaces every longest match from left to right. */
  apply(text: Uint8Array, check: () => void): Uint8Array {
    const out = new Bytes(text.length);
    for (let at = 0; at < text.length; ) {
      if ((at & 4095) === 0) check();
      if (this.#match(text, at)) {
        out.add(this.#replacements, this.#from, this.#to);
        at = this.#end;
      } else {
        const end = Math.min(text.length, at + unitsOf(text[at]!));
        out.add(text, at, end);
        at = end;
      }
    }
    return out.taken();
  }

  /** Finds the longest sequence from `at` on that is replaced. */
  #match(text: Uint8Array, at: number): boolean {
    const units = this.#units;
    let node = offsetOf(units[0]!);
    let found = -1;
    for (let i = at; i < text.length; i++) {
      const byte = text[i]!;
      node = (node ^ byte) >>> 0;
      const unit = units[node];
      if (byte === 0 || unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) break;
      node = (node ^ offsetOf(unit)) >>> 0;
      if ((unit & 0x100) === 0) continue;
      const leaf = units[node];
      if (leaf === undefined) break;
      this.#end = i + 1;
      found = leaf & 0x7fffffff;
    }
    if (found < 0 || found >= this.#replacements.length) return false;
    this.#from = found;
    this.#to = this.#replacements.indexOf(0, found);
    return true;
  }
}

/** Runs before the bytes are decoded: a file may claim any number of them. */
export function checkCharsmapSize(bytes: number | undefined, key: string): void {
  if (bytes !== undefined && bytes >= 4 && bytes <= MOST_BYTES) return;
  throw new ModelError(
    `tokenizer: ${key}: got ${bytes ?? "no"} bytes, expected an array of 4 to ${MOST_BYTES}`,
  );
}

function offsetOf(unit: number): number {
  return ((unit >>> 10) << ((unit & 0x200) >>> 6)) >>> 0;
}

/** Bytes of the character that begins with this one. */
function unitsOf(first: number): number {
  return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/** Bytes that grow as they are added. */
class Bytes {
  #bytes: Uint8Array;
  #length = 0;

  constructor(size: number) {
    this.#bytes = new Uint8Array(Math.max(64, size + (size >> 2)));
  }

  add(from: Uint8Array, start: number, end: number): void {
    if (this.#length + end - start > this.#bytes.length) {
      const grown = new Uint8Array(2 * (this.#length + end - start));
      grown.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = grown;
    }
    for (let i = start; i < end; i++) this.#bytes[this.#length++] = from[i]!;
  }

  taken(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }
}
