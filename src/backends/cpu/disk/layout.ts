// The memory that readers of weights on disk work in, and the cycle of weights as they see it (program.ts).

import { weightBytes } from "../../../graph/cost.ts";
import { PACK_SCRATCH_BYTES } from "../../../kernels/ops/packed/pack-kernel.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import type { Arena } from "../memory/arena.ts";
import type { PackProgram } from "../memory/repack.ts";
import type { WeightStore } from "../memory/weights.ts";
import { DISK_PIECE_BYTES, READERS } from "./plan.ts";
import {
  ALIGNMENT,
  type DiskProgram,
  type DiskWeight,
  MESSAGE_BYTES,
  READER_TIMES,
  WORD,
} from "./program.ts";
import type { DiskPlan } from "./ring.ts";

export interface DiskLayout {
  readonly plan: DiskPlan;
  readonly program: DiskProgram;
  /** Descriptors of the files that weights are read from, by DiskWeight.file. */
  readonly descriptors: readonly number[];
}

export function layOutDisk(
  plan: DiskPlan,
  weights: WeightStore,
  { instructions }: PackProgram,
  arena: Arena,
): DiskLayout {
  const descriptors = [...new Set(plan.places.map(({ part }) => part.descriptor))];
  let first = 0;
  let longest = 0;
  const cycle = plan.places.map(({ weight, part, needs }): DiskWeight => {
    const packing = weights.get(weight).packing!;
    const { rows, rowBytes, matrices } = instructions[packing]!;
    const panel = PANEL_ROWS * rowBytes;
    const most = Math.max(1, Math.floor(DISK_PIECE_BYTES / panel)) * PANEL_ROWS;
    const step = Math.min(most, Math.ceil(rows / PANEL_ROWS) * PANEL_ROWS);
    const perMatrix = Math.ceil(rows / step);
    const pieces = matrices * perMatrix;
    longest = Math.max(longest, step * rowBytes);
    const file = descriptors.indexOf(part.descriptor);
    const bytes = weightBytes(weight);
    const own = { name: weight.name, packing, file, offset: part.offset, bytes, needs };
    const made = { ...own, step, perMatrix, pieces, first };
    first += pieces;
    return made;
  });
  // A piece may begin and end within a block of the disk.
  const bufferBytes = (Math.ceil(longest / ALIGNMENT) + 2) * ALIGNMENT;
  const work = (bytes: number, name: string, pieces = 1) =>
    arena.allocate(bytes, "work", name, pieces);
  const buffers = work(READERS * bufferBytes + ALIGNMENT, "pieces of weights on disk");
  return {
    plan,
    descriptors,
    program: {
      weights: cycle,
      pieces: first,
      readers: READERS,
      words: work(WORD.count * 4, "control of readers"),
      done: work(cycle.length * 4, "pieces that were read"),
      buffers: Math.ceil(buffers / ALIGNMENT) * ALIGNMENT,
      bufferBytes,
      scratch: work(READERS * PACK_SCRATCH_BYTES, "scratch of readers", READERS),
      message: work(4 + MESSAGE_BYTES, "message of a reader"),
      times: work(READERS * READER_TIMES.numbers * 8, "times of readers"),
    },
  };
}
