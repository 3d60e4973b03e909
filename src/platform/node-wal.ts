// SQLite's write-ahead log as bytes (https://sqlite.org/fileformat2.html#walformat). SQLite reads a log up to the first frame with
// a wrong checksum and silently drops the rest; this code finds whether there was a rest.

/** The contents of a log file. */
export interface WalFacts {
  /** The salts of its header as one text: each generation of a log has its own. */
  readonly salts: string;
  /** Whether SQLite reads it at all. */
  readonly isHeaderSound: boolean;
  /** The end of the last sound transaction. */
  readonly end: number;
  /** Frames of its generation after the first unsound one, that one included. SQLite drops them. */
  readonly droppedFrames: number;
  /** Transactions that end in one of these. */
  readonly droppedCommits: number;
}

const headerBytes = 32;
const frameHeaderBytes = 24;

/** undefined: the log is empty. */
export function readWal(bytes: Uint8Array): WalFacts | undefined {
  if (bytes.length <= headerBytes) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const salts = saltsOf(bytes);
  const magic = view.getUint32(0);
  const pageBytes = view.getUint32(8);
  const isLittle = magic === 0x377f0682;
  const sums = new Sums(view, isLittle);
  sums.add(0, 24);
  const isKnown = isLittle || magic === 0x377f0683;
  if (!isKnown || !sums.are(24) || pageBytes < 512 || pageBytes > 65_536) {
    return { salts, isHeaderSound: false, end: 0, droppedFrames: 0, droppedCommits: 0 };
  }
  const frameBytes = frameHeaderBytes + pageBytes;
  let isSound = true;
  let end = 0;
  let droppedFrames = 0;
  let droppedCommits = 0;
  for (let at = headerBytes; at + frameHeaderBytes <= bytes.length; at += frameBytes) {
    const isOurs =
      view.getUint32(at + 8) === view.getUint32(16) &&
      view.getUint32(at + 12) === view.getUint32(20);
    const isWhole = at + frameBytes <= bytes.length;
    if (isSound && isOurs && isWhole) {
      sums.add(at, 8);
      sums.add(at + frameHeaderBytes, pageBytes);
      isSound = sums.are(at + 16);
    } else {
      isSound = false;
    }
    const isCommit = view.getUint32(at + 4) !== 0;
    if (isSound && isCommit) end = at + frameBytes;
    if (isSound || !isOurs) continue;
    droppedFrames++;
    if (isCommit) droppedCommits++;
  }
  return { salts, isHeaderSound: true, end, droppedFrames, droppedCommits };
}

/** The salts of a log that begins with these bytes. */
function saltsOf(bytes: Uint8Array): string {
  return [...bytes.subarray(16, 24)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The running checksum of a log. */
class Sums {
  readonly #view: DataView;
  readonly #isLittle: boolean;
  #first = 0;
  #second = 0;

  constructor(view: DataView, isLittle: boolean) {
    this.#view = view;
    this.#isLittle = isLittle;
  }

  add(at: number, length: number): void {
    for (let i = at; i < at + length; i += 8) {
      this.#first = (this.#first + this.#view.getUint32(i, this.#isLittle) + this.#second) >>> 0;
      this.#second =
        (this.#second + this.#view.getUint32(i + 4, this.#isLittle) + this.#first) >>> 0;
    }
  }

  /** Whether these bytes are the checksum so far. */
  are(at: number): boolean {
    return (
      this.#view.getUint32(at) === this.#first && this.#view.getUint32(at + 4) === this.#second
    );
  }
}

/** Follows a log that grows: where its last frame ends. */
export class WalEnd {
  readonly #read: (into: Uint8Array, at: number) => number;
  #salts = "";
  #end = headerBytes;

  /** `read`: reads the log at an offset; returns the number of bytes it got. */
  constructor(read: (into: Uint8Array, at: number) => number) {
    this.#read = read;
  }

  now(): { salts: string; end: number } {
    const header = new Uint8Array(headerBytes);
    if (this.#read(header, 0) < headerBytes) return { salts: "", end: 0 };
    const salts = saltsOf(header);
    if (salts !== this.#salts) this.#end = headerBytes;
    this.#salts = salts;
    const frameBytes = frameHeaderBytes + new DataView(header.buffer).getUint32(8);
    const frame = new Uint8Array(frameHeaderBytes);
    // In a frame's header the salts are 8 bytes earlier than in the log's.
    const salted = (): string => saltsOf(new Uint8Array([...new Uint8Array(8), ...frame]));
    while (this.#read(frame, this.#end) === frameHeaderBytes && salted() === salts) {
      this.#end += frameBytes;
    }
    return { salts, end: this.#end };
  }
}
