// A reader: a thread that reads pieces of weights on disk, packs each and writes it into the ring or into an expert's slot, until it
// is stopped. Experts come first: a batch waits for them. It blocks in the system while the disk works, so several of them keep the
// disk busy on few cores.

import { messageOf } from "../../../base/errors.ts";
import { PACK_SCRATCH_BYTES } from "../../../kernels/ops/packed/pack-kernel.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import type { ReadAt } from "../../../platform/platform.ts";
import type { Kernels } from "../executor.ts";
import type { ArenaViews } from "../memory/arena.ts";
import type { PackRows } from "../memory/file-pieces.ts";
import type { Memories } from "../memory/memories.ts";
import { type PackProgram, packRowsOf } from "../memory/repack.ts";
import { DemandSlots } from "./demand-slots.ts";
import { recordFailure } from "./failure.ts";
import {
  ALIGNMENT,
  type DiskProgram,
  type DiskWeight,
  READER_TIMES,
  SLEEP_MS,
  WORD,
} from "./program.ts";

export interface ReaderJob {
  readonly program: DiskProgram;
  readonly packing: PackProgram;
  /** Open files, by DiskWeight.file. */
  readonly descriptors: readonly number[];
  readonly reader: number;
}

/** The main function of a reader's thread. */
export function serveReader(
  job: ReaderJob,
  memories: Memories,
  kernels: Kernels,
  readAt: ReadAt,
): void {
  const { program, packing, reader } = job;
  const { views } = memories.place(0);
  const scratch = program.scratch + reader * PACK_SCRATCH_BYTES;
  const packOf = ({ packing: index }: { readonly packing: number }) =>
    packRowsOf(packing, packing.instructions[index]!, memories, kernels, scratch);
  const packs = {
    cycle: program.weights.map(packOf),
    demand: (program.demand?.weights ?? []).map(packOf),
  };
  new DiskReader(job, views, packs, readAt).serve();
}

/** The packing functions of each weight's rows. */
interface Packs {
  readonly cycle: readonly PackRows[];
  readonly demand: readonly PackRows[];
}

class DiskReader {
  readonly #job: ReaderJob;
  readonly #views: ArenaViews;
  readonly #u8: Uint8Array;
  readonly #words: Int32Array;
  readonly #done: Int32Array;
  readonly #times: Float64Array;
  readonly #buffer: number;
  readonly #packs: Packs;
  readonly #demand: DemandSlots | undefined;
  readonly #readAt: ReadAt;

  constructor(job: ReaderJob, views: ArenaViews, packs: Packs, readAt: ReadAt) {
    const { u8, i32 } = views;
    const { words, done, times, buffers, bufferBytes, weights, demand } = job.program;
    const { numbers } = READER_TIMES;
    this.#job = job;
    this.#views = views;
    this.#u8 = u8;
    this.#words = i32.subarray(words / 4, words / 4 + WORD.count);
    this.#done = i32.subarray(done / 4, done / 4 + weights.length);
    this.#times = new Float64Array(u8.buffer, times + job.reader * numbers * 8, numbers);
    this.#buffer = buffers + job.reader * bufferBytes;
    this.#packs = packs;
    this.#demand = demand && new DemandSlots(demand, views);
    this.#readAt = readAt;
  }

  serve(): void {
    const words = this.#words;
    while (Atomics.load(words, WORD.stopped) === 0) {
      const work = Atomics.load(words, WORD.work);
      Atomics.add(words, WORD.busy, 1);
      const hasRead = this.#isIdle ? false : this.#readExpert() || this.#readNext();
      Atomics.sub(words, WORD.busy, 1);
      Atomics.notify(words, WORD.busy);
      if (!hasRead) Atomics.wait(words, WORD.work, work, SLEEP_MS);
    }
  }

  get #isIdle(): boolean {
    const words = this.#words;
    return (Atomics.load(words, WORD.paused) | Atomics.load(words, WORD.failed)) !== 0;
  }

  /** Reads a piece of an expert; false: none is asked for. */
  #readExpert(): boolean {
    const piece = this.#demand?.take();
    if (!piece) return false;
    const weight = this.#job.program.demand!.weights[piece.weight]!;
    const { experts, expertBytes, rows, panels, step, parts } = weight;
    const { rowBytes } = this.#job.packing.instructions[weight.packing]!;
    const row = piece.piece * step;
    const inPart = experts / parts.length;
    const { file, offset } = parts[Math.floor(piece.expert / inPart)]!;
    const from = offset + (piece.expert % inPart) * expertBytes + row * rowBytes;
    const count = Math.min(step, rows - row);
    const firstPanel = piece.slot * panels + row / PANEL_ROWS;
    try {
      this.#readAndPack(this.#packs.demand[piece.weight]!, file, from, count, rowBytes, firstPanel);
      this.#demand!.put(piece, count * rowBytes);
    } catch (error) {
      this.#fail(`expert ${piece.expert} of ${weight.name}: ${messageOf(error)}`);
    }
    return true;
  }

  /** Reads the next piece of the cycle; false: the ring has no room for it. */
  #readNext(): boolean {
    if (this.#job.program.weights.length === 0) return false;
    const piece = this.#take();
    if (piece === undefined) return false;
    this.#readPiece(piece);
    return true;
  }

  /** The number of a piece that may be read now, counted on from round to round; undefined: none. */
  #take(): number | undefined {
    const words = this.#words;
    const { weights, pieces } = this.#job.program;
    for (;;) {
      const released = Atomics.load(words, WORD.released);
      const piece = Atomics.load(words, WORD.next);
      const round = Math.floor(piece / pieces);
      const { needs } = weights[this.#find(piece % pieces)]!;
      if (released < round * weights.length + needs) return undefined;
      if (Atomics.compareExchange(words, WORD.next, piece, piece + 1) === piece) return piece;
    }
  }

  #readPiece(number: number): void {
    const words = this.#words;
    const { weights, pieces } = this.#job.program;
    const index = this.#find(number % pieces);
    const weight = weights[index]!;
    try {
      this.#readWeight(weight, this.#packs.cycle[index]!, (number % pieces) - weight.first);
    } catch (error) {
      this.#fail(`${weight.name}: ${messageOf(error)}`);
      return;
    }
    if (Atomics.add(this.#done, index, 1) + 1 < weight.pieces) return;
    Atomics.add(words, WORD.loaded, 1);
    Atomics.notify(words, WORD.loaded);
  }

  #readWeight(weight: DiskWeight, pack: PackRows, piece: number): void {
    const { instructions } = this.#job.packing;
    const { rows, rowBytes } = instructions[weight.packing]!;
    const matrix = Math.floor(piece / weight.perMatrix);
    const row = (piece % weight.perMatrix) * weight.step;
    const count = Math.min(weight.step, rows - row);
    const firstPanel = matrix * Math.ceil(rows / PANEL_ROWS) + row / PANEL_ROWS;
    const from = weight.offset + (matrix * rows + row) * rowBytes;
    this.#readAndPack(pack, weight.file, from, count, rowBytes, firstPanel);
  }

  /** Reads `count` rows from this byte of a file on, and packs them into row panels from number `firstPanel` on. */
  #readAndPack(
    pack: PackRows,
    file: number,
    from: number,
    count: number,
    rowBytes: number,
    firstPanel: number,
  ): void {
    const times = this.#times;
    const start = performance.now();
    const at = this.#read(this.#job.descriptors[file]!, from, count * rowBytes);
    const read = performance.now();
    for (let done = 0; done < count; done += PANEL_ROWS) {
      const panelRows = Math.min(PANEL_ROWS, count - done);
      pack(at + done * rowBytes, panelRows, firstPanel + done / PANEL_ROWS);
    }
    times[READER_TIMES.read]! += read - start;
    times[READER_TIMES.pack]! += performance.now() - read;
    times[READER_TIMES.bytes]! += count * rowBytes;
  }

  /** Reads these bytes of a file into the buffer; returns their address. Whole blocks are read, as direct reads must be. */
  #read(descriptor: number, from: number, bytes: number): number {
    const skipped = from % ALIGNMENT;
    const length = Math.ceil((skipped + bytes) / ALIGNMENT) * ALIGNMENT;
    for (let done = 0; done < skipped + bytes; ) {
      const target = this.#u8.subarray(this.#buffer + done, this.#buffer + length);
      const count = this.#readAt(descriptor, target, from - skipped + done);
      done += count;
      // Only at the end of the file does a read end within a block.
      if (done < skipped + bytes && (count === 0 || done % ALIGNMENT !== 0)) {
        throw new Error(`the file ends at byte ${from - skipped + done}`);
      }
    }
    return this.#buffer + skipped;
  }

  #fail(message: string): void {
    recordFailure(this.#job.program, this.#views, message);
  }

  /** The weight that this piece of a round belongs to. */
  #find(piece: number): number {
    const { weights } = this.#job.program;
    let low = 0;
    for (let high = weights.length - 1; low < high; ) {
      const middle = (low + high + 1) >> 1;
      if (weights[middle]!.first <= piece) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
