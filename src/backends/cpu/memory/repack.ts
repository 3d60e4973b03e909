// Packs weights from the file's layout into row panels, on all threads: while the next piece of the file is read into one
// buffer of the shared memory, leader and helpers pack the piece in the other. Matrices follow each other without a pause:
// the last piece of a matrix is packed while the first of the next one is read.
//
// Weights in local files are read and packed by the threads without that (file-pieces.ts): the program's last instruction.
//
// A row panel is packed by a kernel (kernels/ops/packed/pack-kernels.ts), or in TypeScript (pack.ts) where there is none.
//
// To the team (team.ts) this is a program like any other: one instruction per matrix, of which only that of the current piece
// has chunks, a row panel each. Helpers run this program first, and the model's after it.

import type { CallTable } from "../../../base/call-table.ts";
import { WorkerError } from "../../../base/errors.ts";
import type { Kernel } from "../../../kernels/ir/kernel.ts";
import { FLOAT_UNROLL } from "../../../kernels/ops/matmul/floats.ts";
import {
  type NeuronMemory,
  neuronLayoutFor,
  neuronRowBytes,
  packNeuronColumns,
  packNeuronRows,
} from "../../../kernels/ops/neurons/neuron-layouts.ts";
import { splitPanel, wordRowsFor } from "../../../kernels/ops/neurons/word-rows.ts";
import { acceptRaised } from "../../../kernels/ops/packed/half-panels.ts";
import { type PanelMemory, packPanel } from "../../../kernels/ops/packed/pack.ts";
import { visitsOf } from "../../../kernels/ops/packed/pack-floats.ts";
import { PACK_SCRATCH_BYTES } from "../../../kernels/ops/packed/pack-kernel.ts";
import { packKernelOf } from "../../../kernels/ops/packed/pack-kernels.ts";
import { factorsBytes, PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { layoutFor } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import type { ReadAt } from "../../../platform/platform.ts";
import type { UploadWatch, WeightReader } from "../../backend.ts";
import type { Executor, Kernels } from "../executor.ts";
import { waitForOthers } from "../threads/batch-wait.ts";
import { type BatchEnd, controlWords, TeamMember } from "../threads/team.ts";
import type { Arena, ArenaViews } from "./arena.ts";
import {
  FIRST_PIECE,
  FilePieces,
  type FileWeight,
  GROUP_WORDS,
  PACK_MS,
  type PackRows,
  PIECES,
  READ_MS,
  TIME_NUMBERS,
  UNREADABLE,
} from "./file-pieces.ts";
import { floatPanelsFor, floatTypeOf } from "./float-panels.ts";
import type { Memories } from "./memories.ts";

/** A weight to pack: plain data, sent to every thread. */
export interface PackInstruction {
  readonly kind: "blocks" | "floats" | "neuron rows" | "neuron columns" | "word rows" | "file rows";
  readonly dtype: string;
  /** The number of matrices of `rows` rows, one after the other in the file; each begins with a new panel. */
  readonly matrices: number;
  readonly rows: number;
  readonly cols: number;
  /** Bytes of a row in the file. */
  readonly rowBytes: number;
  /** Rows that are packed at a time: a row panel, or a tile of neuron columns. */
  readonly unitRows: number;
  readonly at: number;
  /** Bytes of 16 rows. */
  readonly rowPanelBytes: number;
}

export interface PackProgram {
  readonly instructions: readonly PackInstruction[];
  /** The target, which the layout of panels depends on. */
  readonly target: KernelTarget;
  readonly threads: number;
  /** i32 area of the team: see team.ts. */
  readonly control: number;
  /** i32: the instruction, its first unit, its rows and the buffer of the current piece. */
  readonly piece: number;
  /** Addresses of the two buffers. */
  readonly buffers: readonly [number, number];
  readonly bufferBytes: number;
  /** Scratch memory of kernels, for each thread. */
  readonly scratch: number;
  /** i32: the group of file pieces that is open; f64 for each thread: see file-pieces.ts. */
  readonly group: number;
  readonly times: number;
  /** The weights that threads read by themselves. Default: none. */
  readonly files?: readonly FileWeight[] | undefined;
}

const INSTRUCTION = 0;
const FIRST_UNIT = 1;
const ROWS = 2;
const BUFFER = 3;
const WORDS = 4;

/** Bytes read from the file at a time, at least one unit. */
export const PIECE_BYTES: number = 4 << 20;
/** The most bytes that a thread reads by itself at a time: they should still be in its cache when they are packed. */
const OWN_PIECE_BYTES = 512 << 10;
/** File bytes of a group for each thread: the leader receives messages after each. */
const GROUP_BYTES = 32 << 20;

export function layOutPacking(
  instructions: readonly PackInstruction[],
  target: KernelTarget,
  arena: Arena,
  threads: number,
): PackProgram {
  const units = instructions.map(({ rowBytes, unitRows }) => unitRows * rowBytes);
  // Threads that read by themselves share the two buffers: each gets a part that holds a unit.
  const inBuffer = Math.ceil(threads / 2);
  const bufferBytes =
    instructions.length === 0 ? 0 : Math.max(PIECE_BYTES, Math.max(...units) * inBuffer);
  return {
    instructions,
    target,
    threads,
    control: arena.allocate(controlWords(threads) * 4, "work", "control of packing"),
    piece: arena.allocate(WORDS * 4, "work", "piece to pack"),
    buffers: [
      arena.allocate(bufferBytes, "work", "first piece of a file"),
      arena.allocate(bufferBytes, "work", "second piece of a file"),
    ],
    bufferBytes,
    scratch: arena.allocate(threads * PACK_SCRATCH_BYTES, "work", "scratch of packing", threads),
    group: arena.allocate(GROUP_WORDS * 4, "work", "group of file pieces"),
    times: arena.allocate(threads * TIME_NUMBERS * 8, "work", "times of file pieces"),
  };
}

/** The kernels that a program calls where it has them: one for each type. */
export function packKernels({ instructions, target }: PackProgram): Kernel[] {
  const kernels = new Map<string, Kernel | undefined>();
  for (const { kind, dtype } of instructions) {
    const kernel = kernels.get(dtype) ?? kernelMakers[kind](dtype, target);
    kernels.set(dtype, kernel);
  }
  return [...kernels.values()].filter((kernel) => kernel !== undefined);
}

const kernelMakers: Readonly<
  Record<PackInstruction["kind"], (dtype: string, target: KernelTarget) => Kernel | undefined>
> = {
  blocks: packKernelOf,
  floats: (dtype, target) => floatPanelsFor(floatTypeOf(dtype)!, target).packKernel(dtype, target),
  "neuron rows": () => undefined,
  "neuron columns": () => undefined,
  "word rows": packKernelOf,
  "file rows": () => undefined,
};

/** The executors of the instructions and, last, of the file pieces, on thread `thread`. */
export function packExecutors(
  program: PackProgram,
  memories: Memories,
  kernels: Kernels,
  thread: number,
  readAt?: ReadAt | undefined,
): { executors: Executor[]; files: FilePieces | undefined } {
  const scratch = program.scratch + thread * PACK_SCRATCH_BYTES;
  const { views } = memories.place(0);
  const piece = views.i32.subarray(program.piece / 4, program.piece / 4 + WORDS);
  const packs = program.instructions.map((instruction) =>
    packRowsOf(program, instruction, memories, kernels, scratch),
  );
  const executors = program.instructions.map(({ rowBytes, unitRows }, index): Executor => {
    const pack = packs[index]!;
    return {
      chunks: () => (piece[INSTRUCTION] === index ? Math.ceil(piece[ROWS]! / unitRows) : 0),
      run: (chunk) => {
        const row = chunk * unitRows;
        const rows = Math.min(unitRows, piece[ROWS]! - row);
        const at = program.buffers[piece[BUFFER]!]! + row * rowBytes;
        pack(at, rows, piece[FIRST_UNIT]! + chunk);
      },
    };
  });
  const files = program.files && readAt && filePieces(program, views, packs, thread, readAt);
  return { executors: files ? [...executors, files] : executors, files };
}

/** Packs rows of an instruction on this thread, with this scratch memory. */
export function packRowsOf(
  { target }: Pick<PackProgram, "target">,
  instruction: PackInstruction,
  memories: Memories,
  kernels: Kernels,
  scratch: number,
): PackRows {
  const kernel = kernels[`pack_${instruction.dtype}`];
  return packers[instruction.kind](instruction, { memories, target, kernel, scratch });
}

function filePieces(
  program: PackProgram,
  views: ArenaViews,
  packs: readonly PackRows[],
  thread: number,
  readAt: ReadAt,
): FilePieces {
  const { instructions, threads, buffers, bufferBytes, group, times } = program;
  const share = Math.floor(bufferBytes / Math.ceil(threads / 2) / 64) * 64;
  const unit = Math.max(0, ...instructions.map(({ rowBytes, unitRows }) => unitRows * rowBytes));
  const place = {
    views,
    buffer: buffers[thread % 2]! + Math.floor(thread / 2) * share,
    bufferBytes: Math.min(share, Math.max(OWN_PIECE_BYTES, unit)),
    group: views.i32.subarray(group / 4, group / 4 + GROUP_WORDS),
    times: new Float64Array(views.buffer, times + thread * TIME_NUMBERS * 8, TIME_NUMBERS),
  };
  return new FilePieces(program.files!, instructions, packs, place, readAt);
}

/** A piece of a file in one of the buffers. */
interface Piece {
  readonly index: number;
  readonly firstUnit: number;
  readonly rows: number;
  readonly buffer: number;
}

/** The leader's side. */
export class Packer {
  readonly #program: PackProgram;
  readonly #views: ArenaViews;
  readonly #team: TeamMember;
  readonly #isLost: () => boolean;
  /** Read, but not packed yet. */
  #pending: Piece | undefined;
  readonly #calls: CallTable | undefined;
  readonly #files: FilePieces | undefined;
  /** The first group of files is open. */
  #isBegun = false;
  /** Time spent packing so far. */
  packMs = 0;

  /** `isLost`: whether a helper has died; `calls`: where to record the pieces, if anywhere. */
  constructor(
    program: PackProgram,
    memories: Memories,
    kernels: Kernels,
    isLost: () => boolean,
    calls?: CallTable | undefined,
    readAt?: ReadAt | undefined,
  ) {
    const { views } = memories.place(0);
    this.#isLost = isLost;
    this.#calls = calls;
    this.#program = program;
    this.#views = views;
    const { executors, files } = packExecutors(program, memories, kernels, 0, readAt);
    this.#files = files;
    this.#team = new TeamMember({ buffer: views.buffer, ...program, thread: 0 }, executors);
  }

  /** Opens the first group of the weights in files: the helpers read and pack it until packFiles() is called. */
  beginFiles(): void {
    if (!this.#files || this.#files.count === 0) return;
    this.#views.i32[this.#program.piece / 4 + INSTRUCTION] = -1;
    this.#openGroup(this.#files, 0);
    this.#team.begin();
    this.#isBegun = true;
  }

  /** Reads and packs the weights in files, on all threads. False: a read failed, and nothing counts as read. */
  async packFiles(watch: UploadWatch): Promise<boolean> {
    const files = this.#files;
    if (!files) return false;
    this.#views.i32[this.#program.piece / 4 + INSTRUCTION] = -1;
    let [readMs, packMs] = [0, 0];
    for (let first = 0; first < files.count; ) {
      await watch.check();
      const end = this.#openGroup(files, first);
      await this.#endGroup();
      if (this.#group[UNREADABLE] !== 0) return false;
      const bytes = files.bytesOf(first, end);
      const now = [this.#threadMs(READ_MS), this.#threadMs(PACK_MS)] as const;
      this.#calls?.add("pack weights", now[1] - packMs, bytes);
      this.packMs += now[1] - packMs;
      watch.progress(bytes, now[0] - readMs);
      [readMs, packMs] = now;
      first = end;
    }
    return true;
  }

  /** Works on the open group until all of it is done. */
  async #endGroup(): Promise<void> {
    const isBegun = this.#isBegun;
    this.#isBegun = false;
    await this.#runBatch(() => (isBegun ? this.#team.resume() : this.#team.runBatch()));
    this.#group[PIECES] = 0;
  }

  /** Tells the threads which pieces come next, from number `first` on; returns the first that does not. */
  #openGroup(files: FilePieces, first: number): number {
    const { threads } = this.#program;
    const bytes = files.bytesOf(0, files.count);
    const step = Math.max(threads, Math.ceil((files.count * GROUP_BYTES * threads) / bytes));
    const end = Math.min(files.count, first + step);
    this.#group[FIRST_PIECE] = first;
    this.#group[PIECES] = end - first;
    return end;
  }

  get #group(): Int32Array {
    const { group } = this.#program;
    return this.#views.i32.subarray(group / 4, group / 4 + GROUP_WORDS);
  }

  /** ms that a thread has spent on reading or on packing files, on average. */
  #threadMs(kind: typeof READ_MS | typeof PACK_MS): number {
    const { threads, times } = this.#program;
    const spent = new Float64Array(this.#views.buffer, times, threads * TIME_NUMBERS);
    let ms = 0;
    for (let thread = 0; thread < threads; thread++) ms += spent[thread * TIME_NUMBERS + kind]!;
    return ms / threads;
  }

  /**
   * Reads the weight of instruction `index`, one matrix after the other, and packs all but its last piece: that one is packed while
   * the next weight is read, or by flush().
   */
  async pack(index: number, read: WeightReader): Promise<void> {
    const { matrices } = this.#program.instructions[index]!;
    for (let matrix = 0; matrix < matrices; matrix++) await this.#packMatrix(index, matrix, read);
  }

  async #packMatrix(index: number, matrix: number, read: WeightReader): Promise<void> {
    const { instructions, bufferBytes, buffers } = this.#program;
    const { rows, rowBytes, unitRows } = instructions[index]!;
    const firstByte = matrix * rows * rowBytes;
    const firstUnit = matrix * Math.ceil(rows / unitRows);
    const pieceRows = Math.floor(bufferBytes / (unitRows * rowBytes)) * unitRows;
    for (let row = 0; row < rows; row += pieceRows) {
      const count = Math.min(pieceRows, rows - row);
      const buffer = 1 - (this.#pending?.buffer ?? 1);
      const at = buffers[buffer]!;
      const target = this.#views.u8.subarray(at, at + count * rowBytes);
      const reading = read(target, firstByte + row * rowBytes);
      reading.catch(() => {}); // awaited below, after code that may throw before it
      await this.flush();
      await reading;
      this.#pending = { index, firstUnit: firstUnit + row / unitRows, rows: count, buffer };
    }
  }

  /** Packs the last piece that was read. */
  async flush(): Promise<void> {
    const piece = this.#pending;
    this.#pending = undefined;
    if (piece) await this.#run(piece);
  }

  /** Ends this program, so that the helpers continue with the model's. */
  finish(): void {
    this.#team.stop();
  }

  async #run({ index, firstUnit, rows, buffer }: Piece): Promise<void> {
    const piece = this.#program.piece / 4;
    const { i32 } = this.#views;
    i32[piece + INSTRUCTION] = index;
    i32[piece + FIRST_UNIT] = firstUnit;
    i32[piece + ROWS] = rows;
    i32[piece + BUFFER] = buffer;
    if (this.#isBegun) await this.#endGroup();
    const started = performance.now();
    await this.#runBatch(() => this.#team.runBatch());
    const ms = performance.now() - started;
    this.packMs += ms;
    this.#calls?.add("pack weights", ms, rows * this.#program.instructions[index]!.rowBytes);
  }

  async #runBatch(run: () => BatchEnd): Promise<void> {
    try {
      const end = run();
      if (end === "waits") await waitForOthers(this.#team, { isLost: this.#isLost });
    } catch (cause) {
      throw new WorkerError("packing the weights failed. Open the model again", { cause });
    }
  }
}

interface PackContext {
  readonly memories: Memories;
  readonly target: KernelTarget;
  /** For panels of 16 rows; undefined: there is none. */
  readonly kernel: Kernels[string] | undefined;
  readonly scratch: number;
}

const packers: Readonly<
  Record<PackInstruction["kind"], (instruction: PackInstruction, context: PackContext) => PackRows>
> = {
  blocks: ({ dtype, cols, rowBytes, at, rowPanelBytes }, { memories, target, kernel, scratch }) => {
    const { views } = memories.place(0);
    const pointer = memories.pointer(at);
    const panels = memories.place(at);
    const packing = packingOf(dtype)!;
    const factors = factorsBytes(layoutFor(packing, target)) / 4;
    const spans = rowBytes / packing.spanBytes;
    return (from, rows, panel) => {
      const to = panels.at + panel * rowPanelBytes;
      if (kernel && rows === PANEL_ROWS) {
        kernel(from, rowBytes, pointer + panel * rowPanelBytes, scratch, spans);
        if (factors === 0) return;
        const { buffer } = panels.views;
        const left = new Int32Array(buffer, to, factors);
        if (acceptRaised(left, new Float32Array(buffer, to, factors))) return;
      }
      const source = new DataView(views.buffer, from, rows * rowBytes);
      packPanel(
        packing,
        target,
        source,
        rows,
        cols,
        panelWindow(panels.views, to, rowPanelBytes),
        0,
      );
    };
  },
  floats: ({ dtype, cols, rowBytes, at, rowPanelBytes }, { memories, target, kernel, scratch }) => {
    const { views } = memories.place(0);
    const pointer = memories.pointer(at);
    const place = memories.place(at);
    const panels = floatPanelsFor(floatTypeOf(dtype)!, target);
    const { whole, rest } = visitsOf(cols, rowBytes / cols);
    return (from, rows, panel) => {
      const to = place.at + panel * rowPanelBytes;
      const { buffer } = place.views;
      if (kernel && rows === PANEL_ROWS) {
        kernel(from, rowBytes, pointer + panel * rowPanelBytes, scratch, whole, rest);
        if (panels.accept?.(buffer, to) ?? true) return;
      }
      panels.pack(new DataView(views.buffer, from, rows * rowBytes), rows, cols, buffer, to);
    };
  },
  "neuron rows": ({ dtype, cols, rowBytes, at }, { memories, target }) => {
    const { views } = memories.place(0);
    const place = memories.place(at);
    const packing = packingOf(dtype)!;
    const bytes = PANEL_ROWS * neuronRowBytes(neuronLayoutFor(packing, target)!, cols);
    return (from, rows, panel) => {
      const source = new DataView(views.buffer, from, rows * rowBytes);
      const memory = neuronMemory(place.views, place.at + panel * bytes, bytes);
      packNeuronRows(packing, target, source, rows, cols, memory, 0);
    };
  },
  "neuron columns": ({ dtype, rows: n, cols, rowBytes, at, rowPanelBytes }, context) => {
    const { memories, target } = context;
    const { views } = memories.place(0);
    const place = memories.place(at);
    const packing = packingOf(dtype)!;
    const memory = neuronMemory(place.views, place.at, (n / PANEL_ROWS) * rowPanelBytes);
    return (from, rows, tile) => {
      const source = new DataView(views.buffer, from, rows * rowBytes);
      packNeuronColumns(packing, target, source, tile, n, cols, memory, 0);
    };
  },
  "file rows": ({ rowBytes, at }, { memories }) => {
    const { views } = memories.place(0);
    const place = memories.place(at);
    return (from, rows, panel) => {
      const to = place.at + panel * PANEL_ROWS * rowBytes;
      place.views.u8.set(views.u8.subarray(from, from + rows * rowBytes), to);
    };
  },
  "word rows": (instruction, context) => {
    const pack = packers.blocks(instruction, context);
    const { dtype, rowBytes, at, rowPanelBytes } = instruction;
    const place = context.memories.place(at);
    const rows = wordRowsFor(dtype, context.target)!;
    const spans = rowBytes / packingOf(dtype)!.spanBytes;
    const copy = new Uint32Array(rowPanelBytes / 4);
    return (from, count, panel) => {
      pack(from, count, panel);
      const to = (place.at + panel * rowPanelBytes) / 4;
      splitPanel(rows, spans, place.views.u32.subarray(to, to + copy.length), copy);
    };
  },
};

/** Memory from this byte on: small indices are faster than those into a large memory. */
function neuronMemory({ buffer }: ArenaViews, at: number, bytes: number): NeuronMemory {
  return {
    halves: new Uint16Array(buffer, at, bytes / 2),
    words: new Uint32Array(buffer, at, bytes / 4),
  };
}

/** Whether a matrix of floats with `cols` columns has a tiled kernel. */
export function hasFloatPanels(cols: number): boolean {
  return cols % FLOAT_UNROLL === 0;
}

/** Views of one panel: small indices are faster than those into a large memory. */
export function panelWindow(views: ArenaViews, at: number, bytes: number): PanelMemory {
  return {
    bytes: views.i8.subarray(at, at + bytes),
    halves: new Uint16Array(views.buffer, at, bytes / 2),
    words: views.u32.subarray(at / 4, (at + bytes) / 4),
    floats: views.f32.subarray(at / 4, (at + bytes) / 4),
  };
}
