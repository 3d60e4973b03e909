// Which weights stay on disk, and where each is in the ring: decided once, before anything is allocated.
//
// A cycle over all layers makes the weights that were used last the last to be used again, so a cache that drops the least
// recently used would never hit. Instead as many weights as the memory holds stay there, and the same others are read for every
// batch. Those are spread evenly over the model, so that the disk is busy all the time and the ring can be small.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { weightBytes } from "../../../graph/cost.ts";
import { type Graph, type Weight, weightsOf } from "../../../graph/graph.ts";
import { weightParts } from "../../../graph/weight-source.ts";
import { PACK_SCRATCH_BYTES } from "../../../kernels/ops/packed/pack-kernel.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import type { FilePart } from "../../../platform/platform.ts";
import type { WeightFiles } from "../../backend.ts";
import type { WeightStore } from "../memory/weights.ts";
import { ALIGNMENT } from "./program.ts";
import type { DiskPlan, RingPlace } from "./ring.ts";

/** Threads that read. Two keep most disks busy; the others pack meanwhile. */
export const READERS = 4;
/** The most bytes that a reader reads at a time, but for rows that are longer. */
export const DISK_PIECE_BYTES: number = 1 << 20;
/** The ring holds so many times the largest set of weights that is needed at once: one is read while another is used. */
const RING_SETS = 3;
/** Unless they are small: then so many bytes, but no more than a part of the budget. */
const RING_BYTES: number = 64 << 20;
const RING_PART = 32;
/** Buffers begin at cache lines. */
const LINE = 64;

interface Candidate {
  readonly weight: Weight;
  readonly part: FilePart;
  readonly panelBytes: number;
  /** The result is computed for every token of a batch. */
  readonly isForAll: boolean;
}

export interface DiskBudget {
  readonly graph: Graph;
  /** The layout with all weights in memory, and the bytes that it takes. */
  readonly weights: WeightStore;
  readonly totalBytes: number;
  readonly budgetBytes: number;
  readonly files: WeightFiles;
}

/** A sentence: why the budget cannot be kept. */
export function planDisk(request: DiskBudget): DiskPlan | string {
  const all = candidates(request);
  // The output matrix is large, and not every batch needs it.
  const inner = all.filter(({ isForAll }) => isForAll);
  const tried = [inner, all].map((some) => planWith(some, request));
  const made = tried.find((plan) => typeof plan !== "number");
  if (made) return made as DiskPlan;
  const least = Math.min(...(tried as number[]));
  if (!Number.isFinite(least)) return "none of its weights can be read from there";
  const gib = (bytes: number) => `${(bytes / 2 ** 30).toFixed(2)} GiB`;
  return `with all that can, it still needs ${gib(least)}, and beside the threads that read them ${gib(request.budgetBytes)} are left`;
}

/** Matrices in row panels that one node reads, from one part of a file. */
function candidates({ graph, weights, files }: DiskBudget): Candidate[] {
  const uses = new Map<string, number>();
  for (const { name } of graph.nodes.flatMap(weightsOf)) uses.set(name, (uses.get(name) ?? 0) + 1);
  return graph.nodes.flatMap((node) => {
    if (node.op !== "matmul" && node.op !== "matmul_id") return [];
    if (uses.get(node.weight.name) !== 1) return [];
    const { weight } = node;
    const panelBytes = weights.panelBytes(weight);
    const parts = weightParts(weight, files.partsOf);
    if (panelBytes === undefined || parts?.length !== 1) return [];
    return [{ weight, panelBytes, part: parts[0]!, isForAll: node.out.rows === "tokens" }];
  });
}

/** A number: the least bytes that suffice. */
function planWith(all: readonly Candidate[], request: DiskBudget): DiskPlan | number {
  const { totalBytes, budgetBytes } = request;
  const sum = all.reduce((bytes, { panelBytes }) => bytes + line(panelBytes), 0);
  const others = totalBytes - sum;
  const largest = Math.max(0, ...all.map(({ panelBytes }) => line(panelBytes)));
  const small = Math.min(RING_BYTES, Math.floor(budgetBytes / RING_PART));
  const setBytes = Math.max(2 * largest, Math.floor(small / RING_SETS));
  const ringBytes = line(RING_SETS * setBytes);
  const least = others + ringBytes + readerBytes(all);
  const room = budgetBytes - least;
  if (all.length === 0) return Number.POSITIVE_INFINITY;
  if (room < 0) return least;
  return { places: placed(spread(all, sum, room), ringBytes), ringBytes, setBytes };
}

/** What readers and the bookkeeping take beside the ring. */
function readerBytes(all: readonly Candidate[]): number {
  const pieces = all.map(({ weight }) => {
    const bytes = weightBytes(weight);
    const rowBytes = bytesFor(weight.dtype, weight.shape.at(-1)!);
    return Math.min(bytes, Math.max(DISK_PIECE_BYTES, PANEL_ROWS * rowBytes));
  });
  const buffer = Math.max(0, ...pieces) + 4 * ALIGNMENT;
  return READERS * (buffer + PACK_SCRATCH_BYTES + 1024) + all.length * 64 + 4 * ALIGNMENT;
}

/** Those that stay on disk, so that the others take at most `room` bytes, evenly among all. */
function spread(all: readonly Candidate[], sum: number, room: number): Candidate[] {
  for (let wanted = sum - room; ; wanted += sum / 256) {
    let [passed, taken] = [0, 0];
    const chosen = all.filter(({ panelBytes }) => {
      const bytes = line(panelBytes);
      passed += bytes;
      const isChosen = taken + bytes / 2 <= (wanted * passed) / sum;
      if (isChosen) taken += bytes;
      return isChosen;
    });
    if (sum - taken <= room) return chosen;
  }
}

/** One after the other, and back to the beginning where the ring ends. */
function placed(chosen: readonly Candidate[], ringBytes: number): RingPlace[] {
  let end = 0;
  const places = chosen.map(({ weight, part, panelBytes }) => {
    const at = end + line(panelBytes) > ringBytes ? 0 : end;
    end = at + line(panelBytes);
    return { weight, part, panelBytes, at };
  });
  return places.map((place, i) => ({ ...place, needs: lastBefore(places, i) + 1 }));
}

/** The last weight before number `i` that has been where it goes; counted back into the round before. */
function lastBefore(places: readonly Omit<RingPlace, "needs">[], i: number): number {
  const { at, panelBytes } = places[i]!;
  for (let before = i - 1; ; before--) {
    const other = places[(before + places.length) % places.length]!;
    if (other.at < at + panelBytes && at < other.at + other.panelBytes) return before;
  }
}

function line(bytes: number): number {
  return Math.ceil(bytes / LINE) * LINE;
}
