// Packs weights from the file's layout into row panels, on all threads: while the next piece of a matrix is read into one
// buffer of the shared memory, leader and helpers pack the piece in the other.
//
// To the team (team.ts) this is a program like any other: one instruction per matrix, of which only that of the current piece
// has chunks, a row panel each. Helpers run this program first, and the model's after it.

import { WorkerError } from "../../../base/errors.ts";
import { FLOAT_UNROLL } from "../../../kernels/ops/matmul/floats.ts";
import { type PanelMemory, packPanel } from "../../../kernels/ops/packed/pack.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import type { WeightReader } from "../../backend.ts";
import type { Executor } from "../executor.ts";
import { waitForOthers } from "../threads/batch-wait.ts";
import { controlWords, TeamMember } from "../threads/team.ts";
import type { Arena, ArenaViews } from "./arena.ts";
import { floatPanelsFor, floatTypeOf } from "./float-panels.ts";

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
  };
}

/** The executors of the instructions, on any thread. */
export function packExecutors(program: PackProgram, views: ArenaViews): Executor[] {
  const piece = views.i32.subarray(program.piece / 4, program.piece / 4 + WORDS);
  return program.instructions.map((instruction, index) => {
    const pack = packers[instruction.kind](instruction, program.target, views);
    const { rowBytes } = instruction;
    return {
      chunks: () => (piece[INSTRUCTION] === index ? Math.ceil(piece[ROWS]! / PANEL_ROWS) : 0),
      run: (chunk) => {
        const row = chunk * PANEL_ROWS;
        const rows = Math.min(PANEL_ROWS, piece[ROWS]! - row);
        const at = program.buffers[piece[BUFFER]!]! + row * rowBytes;
        pack(new DataView(views.buffer, at, rows * rowBytes), rows, piece[FIRST_PANEL]! + chunk);
      },
    };
  });
}

/** The leader's side. */
export class Packer {
  readonly #program: PackProgram;
  readonly #views: ArenaViews;
  readonly #team: TeamMember;
  readonly #isLost: () => boolean;
  /** Time spent packing so far. */
  packMs = 0;

  /** `isLost`: whether a helper has died. */
  constructor(program: PackProgram, views: ArenaViews, isLost: () => boolean) {
    this.#isLost = isLost;
    this.#program = program;
    this.#views = views;
    const executors = packExecutors(program, views);
    this.#team = new TeamMember({ buffer: views.buffer, ...program, thread: 0 }, executors);
  }

  /** Reads and packs the weight of instruction `index`, one matrix after the other. */
  async pack(index: number, read: WeightReader): Promise<void> {
    const { matrices } = this.#program.instructions[index]!;
    for (let matrix = 0; matrix < matrices; matrix++) await this.#packMatrix(index, matrix, read);
  }

  async #packMatrix(index: number, matrix: number, read: WeightReader): Promise<void> {
    const { instructions, bufferBytes, buffers } = this.#program;
    const { rows, rowBytes } = instructions[index]!;
    const firstByte = matrix * rows * rowBytes;
    const firstPanel = matrix * Math.ceil(rows / PANEL_ROWS);
    const panel = PANEL_ROWS * rowBytes;
    const pieceRows = Math.floor(bufferBytes / panel) * PANEL_ROWS;
    const rowsOf = (row: number) => Math.min(pieceRows, rows - row);
    const readPiece = (row: number, buffer: number) => {
      const at = buffers[buffer]!;
      const target = this.#views.u8.subarray(at, at + rowsOf(row) * rowBytes);
      return read(target, firstByte + row * rowBytes);
    };
    await readPiece(0, 0);
    for (let row = 0, buffer = 0; row < rows; row += pieceRows, buffer = 1 - buffer) {
      const next = row + pieceRows;
      const reading = next < rows ? readPiece(next, 1 - buffer) : undefined;
      reading?.catch(() => {}); // awaited below, after what may throw before it
      await this.#run(index, firstPanel + row / PANEL_ROWS, rowsOf(row), buffer);
      await reading;
    }
  }

  /** Ends this program, so that the helpers go on to the model's. */
  finish(): void {
    this.#team.stop();
  }

  async #run(index: number, firstPanel: number, rows: number, buffer: number): Promise<void> {
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
      this.packMs += performance.now() - started;
    } catch (cause) {
      throw new WorkerError("packing the weights failed. Open the model again", { cause });
    }
  }
}

/** Packs up to 16 rows into panel number `panel`. */
type PackRows = (source: DataView, rows: number, panel: number) => void;

const packers: Readonly<
  Record<
    PackInstruction["kind"],
    (instruction: PackInstruction, target: KernelTarget, views: ArenaViews) => PackRows
  >
> = {
  blocks: ({ dtype, cols, at, rowPanelBytes }, target, views) => {
    const packing = packingOf(dtype)!;
    return (source, rows, panel) => {
      const memory = panelWindow(views, at + panel * rowPanelBytes, rowPanelBytes);
      packPanel(packing, target, source, rows, cols, memory, 0);
    };
  },
  floats: ({ dtype, cols, at, rowPanelBytes }, target, views) => {
    const panels = floatPanelsFor(floatTypeOf(dtype)!, target);
    return (source, rows, panel) =>
      panels.pack(source, rows, cols, views.buffer, at + panel * rowPanelBytes);
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
