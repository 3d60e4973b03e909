// Packs weights from the file's layout into row panels, on all threads: while the next piece of the file is read into one
// buffer of the shared memory, leader and helpers pack the piece in the other. That goes on from one matrix to the next: the
// last piece of a matrix is packed while the first of the next one is read.
//
// A row panel is packed by a kernel (kernels/ops/packed/pack-kernels.ts), or in TypeScript (pack.ts) where there is none.
//
// To the team (team.ts) this is a program like any other: one instruction per matrix, of which only that of the current piece
// has chunks, a row panel each. Helpers run this program first, and the model's after it.

import type { CallTable } from "../../../base/call-table.ts";
import { WorkerError } from "../../../base/errors.ts";
import type { Kernel } from "../../../kernels/ir/kernel.ts";
import { FLOAT_UNROLL } from "../../../kernels/ops/matmul/floats.ts";
import { acceptRaised } from "../../../kernels/ops/packed/half-panels.ts";
import { type PanelMemory, packPanel } from "../../../kernels/ops/packed/pack.ts";
import { visitsOf } from "../../../kernels/ops/packed/pack-floats.ts";
import { PACK_SCRATCH_BYTES } from "../../../kernels/ops/packed/pack-kernel.ts";
import { packKernelOf } from "../../../kernels/ops/packed/pack-kernels.ts";
import { factorsBytes, PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { layoutFor } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import type { WeightReader } from "../../backend.ts";
import type { Executor, Kernels } from "../executor.ts";
import { waitForOthers } from "../threads/batch-wait.ts";
import { controlWords, TeamMember } from "../threads/team.ts";
import type { Arena, ArenaViews } from "./arena.ts";
import { floatPanelsFor, floatTypeOf } from "./float-panels.ts";
import type { Memories } from "./memories.ts";

/** A weight to pack: plain data, sent to every thread. */
export interface PackInstruction {
  readonly kind: "blocks" | "floats";
  readonly dtype: string;
  /** The number of matrices of `rows` rows, one after the other in the file; each begins with a new panel. */
  readonly matrices: number;
  readonly rows: number;
  readonly cols: number;
  /** Bytes of a row in the file. */
  readonly rowBytes: number;
  readonly at: number;
  readonly rowPanelBytes: number;
}

export interface PackProgram {
  readonly instructions: readonly PackInstruction[];
  /** The target, which the layout of panels depends on. */
  readonly target: KernelTarget;
  readonly threads: number;
  /** i32 area of the team: see team.ts. */
  readonly control: number;
  /** i32: the instruction, its first panel, its rows and the buffer of the current piece. */
  readonly piece: number;
  /** Addresses of the two buffers. */
  readonly buffers: readonly [number, number];
  readonly bufferBytes: number;
  /** Scratch memory of kernels, for each thread. */
  readonly scratch: number;
}

const INSTRUCTION = 0;
const FIRST_PANEL = 1;
const ROWS = 2;
const BUFFER = 3;
const WORDS = 4;

/** Bytes read from the file at a time, at least one panel. */
export const PIECE_BYTES: number = 4 << 20;

export function layOutPacking(
  instructions: readonly PackInstruction[],
  target: KernelTarget,
  arena: Arena,
  threads: number,
): PackProgram {
  const panels = instructions.map(({ rowBytes }) => PANEL_ROWS * rowBytes);
  const bufferBytes = instructions.length === 0 ? 0 : Math.max(PIECE_BYTES, ...panels);
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
  };
}

/** The kernels that a program calls where it has them: one for each type. */
export function packKernels({ instructions, target }: PackProgram): Kernel[] {
  const kernels = new Map<string, Kernel | undefined>();
  for (const { kind, dtype } of instructions) {
    if (!kernels.has(dtype)) kernels.set(dtype, kernelMakers[kind](dtype, target));
  }
  return [...kernels.values()].filter((kernel) => kernel !== undefined);
}

const kernelMakers: Readonly<
  Record<PackInstruction["kind"], (dtype: string, target: KernelTarget) => Kernel | undefined>
> = {
  blocks: packKernelOf,
  floats: (dtype, target) => floatPanelsFor(floatTypeOf(dtype)!, target).packKernel(dtype, target),
};

/** The executors of the instructions, on thread `thread`. */
export function packExecutors(
  program: PackProgram,
  memories: Memories,
  kernels: Kernels,
  thread: number,
): Executor[] {
  const scratch = program.scratch + thread * PACK_SCRATCH_BYTES;
  const { views } = memories.place(0);
  const piece = views.i32.subarray(program.piece / 4, program.piece / 4 + WORDS);
  return program.instructions.map((instruction, index) => {
    const kernel = kernels[`pack_${instruction.dtype}`];
    const context = { memories, target: program.target, kernel, scratch };
    const pack = packers[instruction.kind](instruction, context);
    const { rowBytes } = instruction;
    return {
      chunks: () => (piece[INSTRUCTION] === index ? Math.ceil(piece[ROWS]! / PANEL_ROWS) : 0),
      run: (chunk) => {
        const row = chunk * PANEL_ROWS;
        const rows = Math.min(PANEL_ROWS, piece[ROWS]! - row);
        const at = program.buffers[piece[BUFFER]!]! + row * rowBytes;
        pack(at, rows, piece[FIRST_PANEL]! + chunk);
      },
    };
  });
}

/** A piece of a file in one of the buffers. */
interface Piece {
  readonly index: number;
  readonly firstPanel: number;
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
  /** Time spent packing so far. */
  packMs = 0;

  /** `isLost`: whether a helper has died; `calls`: where to record the pieces, if anywhere. */
  constructor(
    program: PackProgram,
    memories: Memories,
    kernels: Kernels,
    isLost: () => boolean,
    calls?: CallTable | undefined,
  ) {
    const { views } = memories.place(0);
    this.#isLost = isLost;
    this.#calls = calls;
    this.#program = program;
    this.#views = views;
    const executors = packExecutors(program, memories, kernels, 0);
    this.#team = new TeamMember({ buffer: views.buffer, ...program, thread: 0 }, executors);
  }

  /**
   * Reads what instruction `index` is for, one matrix after the other, and packs all but its last piece: that one is packed while
   * the next weight is read, or by flush().
   */
  async pack(index: number, read: WeightReader): Promise<void> {
    const { matrices } = this.#program.instructions[index]!;
    for (let matrix = 0; matrix < matrices; matrix++) await this.#packMatrix(index, matrix, read);
  }

  async #packMatrix(index: number, matrix: number, read: WeightReader): Promise<void> {
    const { instructions, bufferBytes, buffers } = this.#program;
    const { rows, rowBytes } = instructions[index]!;
    const firstByte = matrix * rows * rowBytes;
    const firstPanel = matrix * Math.ceil(rows / PANEL_ROWS);
    const pieceRows = Math.floor(bufferBytes / (PANEL_ROWS * rowBytes)) * PANEL_ROWS;
    for (let row = 0; row < rows; row += pieceRows) {
      const count = Math.min(pieceRows, rows - row);
      const buffer = 1 - (this.#pending?.buffer ?? 1);
      const at = buffers[buffer]!;
      const target = this.#views.u8.subarray(at, at + count * rowBytes);
      const reading = read(target, firstByte + row * rowBytes);
      reading.catch(() => {}); // awaited below, after what may throw before it
      await this.flush();
      await reading;
      this.#pending = { index, firstPanel: firstPanel + row / PANEL_ROWS, rows: count, buffer };
    }
  }

  /** Packs what was read last. */
  async flush(): Promise<void> {
    const piece = this.#pending;
    this.#pending = undefined;
    if (piece) await this.#run(piece);
  }

  /** Ends this program, so that the helpers go on to the model's. */
  finish(): void {
    this.#team.stop();
  }

  async #run({ index, firstPanel, rows, buffer }: Piece): Promise<void> {
    const piece = this.#program.piece / 4;
    const { i32 } = this.#views;
    i32[piece + INSTRUCTION] = index;
    i32[piece + FIRST_PANEL] = firstPanel;
    i32[piece + ROWS] = rows;
    i32[piece + BUFFER] = buffer;
    const started = performance.now();
    try {
      const end = this.#team.runBatch();
      if (end === "waits") await waitForOthers(this.#team, { isLost: this.#isLost });
      const ms = performance.now() - started;
      this.packMs += ms;
      this.#calls?.add("pack weights", ms, rows * this.#program.instructions[index]!.rowBytes);
    } catch (cause) {
      throw new WorkerError("packing the weights failed. Open the model again", { cause });
    }
  }
}

/** Packs up to 16 rows at this address into panel number `panel`. */
type PackRows = (from: number, rows: number, panel: number) => void;

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
};

/** Whether a matrix of floats with so many columns has a tiled kernel. */
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
