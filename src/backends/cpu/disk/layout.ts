// The memory that readers of weights on disk work in, and the cycle of weights as they see it (program.ts).

import { weightBytes } from "../../../graph/cost.ts";
import { PACK_SCRATCH_BYTES } from "../../../kernels/ops/packed/pack-kernel.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import type { Arena } from "../memory/arena.ts";
import type { PackProgram } from "../memory/repack.ts";
import type { WeightStore } from "../memory/weights.ts";
import {
  type AheadMode,
  DEMAND_NUMBER,
  DEMAND_WORD,
  type DemandProgram,
  type DemandWeight,
  demandWords,
} from "./demand.ts";
import type { FailurePlace } from "./failure.ts";
import { DISK_PIECE_BYTES, READERS } from "./plan.ts";
import {
  ALIGNMENT,
  type DiskProgram,
  type DiskWeight,
  MESSAGE_BYTES,
  MOST_WAIT_MS,
  READER_TIMES,
  WORD,
} from "./program.ts";
import type { DemandPlace, DiskPlan } from "./ring.ts";

/** Matrices of an expert: gate, up and down. */
const MATRICES = 3;

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
  const parts = [
    ...plan.places.map(({ part }) => part),
    ...plan.demand.flatMap((one) => one.parts),
  ];
  const descriptors = [...new Set(parts.map(({ descriptor }) => descriptor))];
  let first = 0;
  let longest = 0;
  const cycle = plan.places.map(({ weight, part, needs }): DiskWeight => {
    const packing = weights.get(weight).packing!;
    const { rows, rowBytes, matrices } = instructions[packing]!;
    const step = pieceRows(rows, rowBytes);
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
  const demand = plan.demand.map((place) => {
    const packing = weights.get(place.weight).packing!;
    const { rowBytes } = instructions[packing]!;
    const { made, step } = demandWeight(place, packing, rowBytes, descriptors);
    longest = Math.max(longest, step * rowBytes);
    const words = arena.allocate(demandWords(made).count * 4, "work", "slots of experts");
    const uses = arena.allocate((made.slots + 1) * 8, "work", "uses of experts");
    return { ...made, words, uses };
  });
  // A piece may begin and end within a block of the disk.
  const bufferBytes = (Math.ceil(longest / ALIGNMENT) + 2) * ALIGNMENT;
  const work = (bytes: number, name: string, pieces = 1) =>
    arena.allocate(bytes, "work", name, pieces);
  const buffers = work(READERS * bufferBytes + ALIGNMENT, "pieces of weights on disk");
  const words = work(WORD.count * 4, "control of readers");
  const message = work(4 + MESSAGE_BYTES, "message of a reader");
  return {
    plan,
    descriptors,
    program: {
      ...(demand.length > 0 && {
        demand: demandProgram(demand, { words, message }, work, plan.ahead),
      }),
      weights: cycle,
      pieces: first,
      readers: READERS,
      words,
      done: work(cycle.length * 4, "pieces that were read"),
      buffers: Math.ceil(buffers / ALIGNMENT) * ALIGNMENT,
      bufferBytes,
      scratch: work(READERS * PACK_SCRATCH_BYTES, "scratch of readers", READERS),
      message,
      waitMs: MOST_WAIT_MS,
      times: work(READERS * READER_TIMES.numbers * 8, "times of readers"),
    },
  };
}

type UnplacedDemand = Omit<DemandWeight, "words" | "uses">;

function demandWeight(
  { weight, parts, used, slots }: DemandPlace,
  packing: number,
  rowBytes: number,
  descriptors: readonly number[],
): { made: UnplacedDemand; step: number } {
  const [experts, rows] = weight.shape as [number, number, number];
  const step = pieceRows(rows, rowBytes);
  const made = {
    name: weight.name,
    packing,
    parts: parts.map(({ descriptor, offset }) => ({
      file: descriptors.indexOf(descriptor),
      offset,
    })),
    experts,
    used,
    slots,
    expertBytes: weightBytes(weight) / experts,
    rows,
    panels: Math.ceil(rows / PANEL_ROWS),
    step,
    pieces: Math.ceil(rows / step),
  };
  return { made, step };
}

function demandProgram(
  weights: readonly DemandWeight[],
  readers: FailurePlace,
  work: (bytes: number, name: string) => number,
  ahead: AheadMode,
): DemandProgram {
  // Every slot may be asked for once; one entry more tells a full ring from an empty one.
  // Guesses are only for the next layer, and each of its matrices has a few.
  const mostGuesses = Math.max(...weights.map(({ used, pieces }) => MATRICES * used * pieces));
  const queueLength = 1 + weights.reduce((sum, { slots, pieces }) => sum + slots * pieces, 0);
  return {
    weights,
    readers,
    waitMs: MOST_WAIT_MS,
    queueLength,
    control: work(DEMAND_WORD.count * 4, "control of experts on demand"),
    queue: work(queueLength * 8, "pieces of experts to read"),
    numbers: work(DEMAND_NUMBER.count * 8, "counts of experts on demand"),
    guesses: work(mostGuesses * 8, "pieces of experts to read ahead"),
    mostGuesses,
    ahead,
  };
}

/** Rows that are read at a time: whole row panels, of at most DISK_PIECE_BYTES if one is not larger. */
function pieceRows(rows: number, rowBytes: number): number {
  const most = Math.max(1, Math.floor(DISK_PIECE_BYTES / (PANEL_ROWS * rowBytes))) * PANEL_ROWS;
  return Math.min(most, Math.ceil(rows / PANEL_ROWS) * PANEL_ROWS);
}
