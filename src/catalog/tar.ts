// Streams one file out of a tar stream: supports the part of the format (ustar, GNU long names, pax paths) that npm's
// tarballs use. Keeps only the current header in memory, and stops after the wanted file.

import { SourceError } from "../base/errors.ts";

const blockBytes = 512;
const longestName = 1 << 16; // a pax or GNU long-name record beyond this is not a name
const text: TextDecoder = new TextDecoder();

interface TarHeader {
  name: string;
  size: number;
  type: string;
}

/** The bytes of `wanted` in the archive; a SourceError if it is missing or the archive is damaged. */
export async function* tarFile(
  archive: AsyncIterable<Uint8Array>,
  wanted: string,
  archiveName: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = new ByteReader(archive, archiveName);
  try {
    yield* fileIn(reader, wanted, archiveName);
  } finally {
    await reader.close(); // stops the download after the wanted file
  }
}

async function* fileIn(
  reader: ByteReader,
  wanted: string,
  archiveName: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  let longName: string | undefined;
  for (;;) {
    const block = await reader.take(blockBytes);
    if (block === undefined || block.every((byte) => byte === 0)) break;
    const header = parseHeader(block, archiveName);
    const padded = Math.ceil(header.size / blockBytes) * blockBytes;
    if (header.type === "L" || header.type === "x" || header.type === "g") {
      const record = await reader.record(header, padded);
      if (header.type === "L") longName = text.decode(record).replace(/\0.*$/s, "");
      if (header.type === "x") longName = paxPath(text.decode(record)) ?? longName;
      continue;
    }
    const name = longName ?? header.name;
    longName = undefined;
    if (name === wanted && (header.type === "0" || header.type === "\0")) {
      yield* reader.chunks(header.size);
      return;
    }
    for await (const _ of reader.chunks(padded)) {
      // skipped
    }
  }
  throw new SourceError(`tar: ${archiveName} has no file "${wanted}"`);
}

function parseHeader(block: Uint8Array, archiveName: string): TarHeader {
  // The checksum field itself counts as eight spaces.
  let sum = 8 * 0x20;
  for (let i = 0; i < blockBytes; i++) if (i < 148 || i >= 156) sum += block[i]!;
  if (octal(block, 148, 8) !== sum) {
    throw new SourceError(
      `tar: ${archiveName} is damaged: the checksum of a header is ${octal(block, 148, 8)}, expected ${sum}. Download it again`,
    );
  }
  const size = octal(block, 124, 12);
  if (!Number.isSafeInteger(size)) {
    throw new SourceError(
      `tar: ${archiveName} has a file whose size cannot be read, expected octal digits. Download it again`,
    );
  }
  const prefix = cString(block, 345, 155);
  const name = cString(block, 0, 100);
  return {
    name: prefix ? `${prefix}/${name}` : name,
    size,
    type: String.fromCharCode(block[156]!),
  };
}

function cString(block: Uint8Array, offset: number, length: number): string {
  const field = block.subarray(offset, offset + length);
  const end = field.indexOf(0);
  return text.decode(end < 0 ? field : field.subarray(0, end));
}

function octal(block: Uint8Array, offset: number, length: number): number {
  const digits = cString(block, offset, length).trim();
  return /^[0-7]+$/.test(digits) ? Number.parseInt(digits, 8) : Number.NaN;
}

/** The path in a pax record ("27 path=package/model.part\n" ...), if it has one. */
function paxPath(record: string): string | undefined {
  return /^\d+ path=(.*)$/m.exec(record)?.[1];
}

/** Reads exact numbers of bytes from a stream of chunks. */
class ByteReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  readonly #name: string;
  #rest: Uint8Array = new Uint8Array(0);

  constructor(source: AsyncIterable<Uint8Array>, name: string) {
    this.#chunks = source[Symbol.asyncIterator]();
    this.#name = name;
  }

  /** Exactly `length` bytes; undefined at the very end of the stream. */
  async take(length: number): Promise<Uint8Array | undefined> {
    const result = new Uint8Array(length);
    let filled = 0;
    while (filled < length) {
      if (this.#rest.length === 0 && !(await this.#fill())) {
        if (filled === 0) return undefined;
        throw this.#cut();
      }
      const part = this.#rest.subarray(0, length - filled);
      result.set(part, filled);
      filled += part.length;
      this.#rest = this.#rest.subarray(part.length);
    }
    return result;
  }

  /** The next `length` bytes as they come. */
  async *chunks(length: number): AsyncGenerator<Uint8Array, void, undefined> {
    for (let left = length; left > 0; ) {
      if (this.#rest.length === 0 && !(await this.#fill())) throw this.#cut();
      const part = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(part.length);
      left -= part.length;
      yield part;
    }
  }

  async record(header: TarHeader, padded: number): Promise<Uint8Array> {
    if (header.size > longestName) {
      throw new SourceError(
        `tar: ${this.#name} has a name record of ${header.size} bytes, expected at most ${longestName}`,
      );
    }
    const block = padded === 0 ? new Uint8Array(0) : await this.take(padded);
    if (block === undefined) throw this.#cut();
    return block.subarray(0, header.size);
  }

  /** Tells the source to stop. */
  async close(): Promise<void> {
    await this.#chunks.return?.();
  }

  async #fill(): Promise<boolean> {
    const next = await this.#chunks.next();
    if (next.done) return false;
    this.#rest = next.value;
    return true;
  }

  #cut(): SourceError {
    return new SourceError(`tar: ${this.#name} ends in the middle of a file. Download it again`);
  }
}
