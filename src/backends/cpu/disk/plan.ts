// Chooses the weights that stay on disk, and the address of each in the ring: once, before anything is allocated.
//
// A cycle over all layers makes the weights that were used last the last to be used again, so a cache that drops the least
// recently used would never hit. Instead as many weights as the memory holds stay there, and the same others are read for every
// batch. Those are spread evenly over the model, so that the disk is busy all the time and the ring can be small.
//
// Experts are another matter: a token uses a few of them, often those of the token before. They get slots, as many as there is room
// for beside all other weights, and are read on demand (demand.ts). If there is no room for two slots of each matrix, the other
// weights share the ring as well; and if even that is too much, experts are read like all other weights.

import { memoryText } from "../../../base/byte-sizes.ts";
import { bytesFor } from "../../../dtypes/dtype.ts";
import { weightBytes } from "../../../graph/cost.ts";
import { adapterOf, type Graph, type Value, type Weight, weightsOf } from "../../../graph/graph.ts";
import { weightParts } from "../../../graph/weight-source.ts";
import { PACK_SCRATCH_BYTES } from "../../../kernels/ops/packed/pack-kernel.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import type { FilePart } from "../../../platform/platform.ts";
import type { RamBudget, WeightFiles } from "../../backend.ts";
import type { WeightStore } from "../memory/weights.ts";
import { ALIGNMENT } from "./program.ts";
import type { DemandPlace, DiskPlan, RingPlace } from "./ring.ts";

/** Threads that read. Two keep most disks busy; the others pack meanwhile. */
export const READERS = 4;
/** The most bytes that a reader reads at a time, but for rows that are longer. */
export const DISK_PIECE_BYTES: number = 1 << 20;
/** Size of the ring, in multiples of the largest set of weights that is needed at once: one is read while another is used. */
const RING_SETS = 3;
/** The least size of the ring in bytes, but no more than a part of the budget. */
const RING_BYTES: number = 64 << 20;
const RING_PART = 32;
/** The fewest slots of a matrix of experts: one is used while another is read. */
const LEAST_SLOTS = 2;
/** Buffers begin at cache lines. */
const LINE = 64;

type Places = Omit<DiskPlan, "ahead">;

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
  /** The way to read experts (default "measured"). */
  readonly experts?: RamBudget["experts"];
}

/** A matrix of experts that may be read on demand. */
interface ExpertCandidate extends Omit<DemandPlace, "slots"> {
  /** Bytes of an expert in row panels. */
  readonly slotBytes: number;
  /** The routes that choose experts: matrices of the same routes have the same number of slots. */
  readonly routes: Value;
}

/** A sentence: why the budget cannot be kept. */
export function planDisk(request: DiskBudget): DiskPlan | string {
  const { experts: how = "measured" } = request;
  const experts = how === "all" ? [] : expertCandidates(request);
  const onDemand = experts.length === 0 ? undefined : planExperts(experts, request);
  const made = onDemand ?? planCycle(candidates(request), request);
  if (typeof made === "string") return made;
  return { ...made, ahead: how === "all" ? "never" : how };
}

/** Experts on demand; undefined: there is no room for that. */
function planExperts(experts: readonly ExpertCandidate[], request: DiskBudget): Places | undefined {
  const { weights, totalBytes, budgetBytes } = request;
  const sum = experts.reduce((bytes, { weight }) => bytes + line(weights.panelBytes(weight)!), 0);
  const others = totalBytes - sum + demandBytes(experts);
  const demand = withSlots(experts, budgetBytes - others - readerBytes(experts));
  if (demand) return { places: [], demand, ringBytes: 0, setBytes: 0 };
  // The other weights share the ring, and experts have as few slots as a token uses, or two.
  const names = new Set(experts.map(({ weight }) => weight.name));
  const rest = candidates(request).filter(({ weight }) => !names.has(weight.name));
  for (const used of [true, false]) {
    const few = experts.map((one) => ({ ...one, slots: used ? one.used : LEAST_SLOTS }));
    const bytes = few.reduce((all, { slotBytes, slots }) => all + line(slotBytes * slots), 0);
    const ring = planCycle(rest, { ...request, totalBytes: others + bytes }, experts);
    if (typeof ring !== "string") return { ...ring, demand: few.map(asPlace) };
  }
  return undefined;
}

/** The slots that this many bytes hold, divided evenly; undefined: too few. */
function withSlots(all: readonly ExpertCandidate[], room: number): DemandPlace[] | undefined {
  const routes = [...new Set(all.map((one) => one.routes))];
  const slots = new Map(routes.map((value) => [value, 0]));
  let left = room;
  for (let isFull = false; !isFull; ) {
    isFull = true;
    for (const value of routes) {
      const own = all.filter((one) => one.routes === value);
      const bytes = own.reduce((sum, { slotBytes }) => sum + slotBytes, 0);
      const most = Math.max(...own.map(({ weight }) => weight.shape[0]! - 1));
      if (bytes > left || slots.get(value)! >= most) continue;
      left -= bytes;
      slots.set(value, slots.get(value)! + 1);
      isFull = false;
    }
  }
  if ([...slots.values()].some((count) => count < LEAST_SLOTS)) return undefined;
  return all.map((one) => {
    const most = one.weight.shape[0]! - 1;
    return asPlace({ ...one, slots: Math.min(most, slots.get(one.routes)!) });
  });
}

function asPlace({ weight, parts, used, slots }: ExpertCandidate & DemandPlace): DemandPlace {
  return { weight, parts, used, slots };
}

/** Matrices of experts in row panels that one node reads, whose experts lie in one part of a file each. */
function expertCandidates({ graph, weights, files }: DiskBudget): ExpertCandidate[] {
  const uses = usesOf(graph);
  return graph.nodes.flatMap((node) => {
    if (node.op !== "matmul_id" || uses.get(node.weight.name) !== 1) return [];
    if (adapterOf(node.out.rows)) return [];
    const { weight, routes } = node;
    const [experts, rows] = weight.shape as [number, number, number];
    const panelBytes = weights.panelBytes(weight);
    const parts = weightParts(weight, files.partsOf);
    if (panelBytes === undefined || !parts || experts % parts.length !== 0) return [];
    if (experts <= LEAST_SLOTS) return [];
    const used = Math.min(experts, routes.cols / 2);
    // Experts that fill their row panels are packed as one matrix; both ways, all have the same number of panels.
    const slotBytes = panelBytes / experts;
    return rows > 0 ? [{ weight, parts, used, slotBytes, routes }] : [];
  });
}

/** Bytes of slots beside their experts: numbers about experts, slots and pieces, and the ends of cache lines. */
function demandBytes(all: readonly ExpertCandidate[]): number {
  const each = all.map(({ weight }) => {
    const [experts] = weight.shape as [number, number, number];
    const pieces = Math.ceil(weightBytes(weight) / experts / DISK_PIECE_BYTES) + 1;
    return experts * (3 * 4 + 4 * 4 + 8 + 8 * pieces) + 5 * LINE;
  });
  return each.reduce((sum, bytes) => sum + bytes, 16 * LINE);
}

/** Weights in a cycle; a sentence: why not. `readBeside`: weights that the readers read beside it. */
function planCycle(
  all: readonly Candidate[],
  request: DiskBudget,
  readBeside: readonly Pick<Candidate, "weight">[] = [],
): Places | string {
  // The output matrix is large, and not every batch needs it.
  const inner = all.filter(({ isForAll }) => isForAll);
  const tried = [inner, all].map((some) => planWith(some, request, readBeside));
  const made = tried.find((plan) => typeof plan !== "number");
  if (made) return made as Places;
  const least = Math.min(...(tried as number[]));
  if (!Number.isFinite(least)) return "none of its weights can be read from there";
  return `with all that can, it still needs ${memoryText(least)}, and beside the threads that read them ${memoryText(request.budgetBytes)} are left`;
}

/** Matrices in row panels that one node reads, from one part of a file. */
function candidates({ graph, weights, files }: DiskBudget): Candidate[] {
  const uses = usesOf(graph);
  return graph.nodes.flatMap((node) => {
    if (node.op !== "matmul" && node.op !== "matmul_id") return [];
    // Factors of adapters are small, and many batches do not read them.
    if (uses.get(node.weight.name) !== 1 || adapterOf(node.out.rows)) return [];
    const { weight } = node;
    const panelBytes = weights.panelBytes(weight);
    const parts = weightParts(weight, files.partsOf);
    if (panelBytes === undefined || parts?.length !== 1) return [];
    return [{ weight, panelBytes, part: parts[0]!, isForAll: node.out.rows === "tokens" }];
  });
}

/** The number of nodes that read each weight, by its name. */
function usesOf(graph: Graph): ReadonlyMap<string, number> {
  const uses = new Map<string, number>();
  for (const { name } of graph.nodes.flatMap(weightsOf)) uses.set(name, (uses.get(name) ?? 0) + 1);
  return uses;
}

/** A number: the least bytes that suffice. */
function planWith(
  all: readonly Candidate[],
  request: DiskBudget,
  readBeside: readonly Pick<Candidate, "weight">[],
): Places | number {
  const { totalBytes, budgetBytes } = request;
  const sum = all.reduce((bytes, { panelBytes }) => bytes + line(panelBytes), 0);
  const others = totalBytes - sum;
  const largest = Math.max(0, ...all.map(({ panelBytes }) => line(panelBytes)));
  const small = Math.min(RING_BYTES, Math.floor(budgetBytes / RING_PART));
  const setBytes = Math.max(2 * largest, Math.floor(small / RING_SETS));
  const ringBytes = line(RING_SETS * setBytes);
  const least = others + ringBytes + readerBytes([...all, ...readBeside]);
  const room = budgetBytes - least;
  if (all.length === 0) return Number.POSITIVE_INFINITY;
  if (room < 0) return least;
  const places = placed(spread(all, sum, room), ringBytes);
  return { places, demand: [], ringBytes, setBytes };
}

/** Bytes of readers and bookkeeping beside the ring. */
function readerBytes(all: readonly Pick<Candidate, "weight">[]): number {
  const pieces = all.map(({ weight }) => {
    const bytes = weightBytes(weight);
    const rowBytes = bytesFor(weight.dtype, weight.shape.at(-1)!);
    return Math.min(bytes, Math.max(DISK_PIECE_BYTES, PANEL_ROWS * rowBytes));
  });
  const buffer = Math.max(0, ...pieces) + 4 * ALIGNMENT;
  return READERS * (buffer + PACK_SCRATCH_BYTES + 1024) + all.length * 64 + 4 * ALIGNMENT;
}

/** Weights that stay on disk, so that the others take at most `room` bytes, evenly among all. */
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

/** The last weight before number `i` that has used this part of the ring; counted back into the round before. */
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
