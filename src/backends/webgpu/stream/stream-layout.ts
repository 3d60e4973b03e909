// Lays out a model whose matrices are not in GPU memory: while a batch is computed they come from the host, a layer at a time, into
// two slots that layers use alternately, so that one is filled while the kernels of the other run. Vectors stay in GPU memory, and
// so do weights that no layer or more than one reads. A row of an embedding table is not worth its table: the host looks rows up
// (host-rows.ts).
//
// weight-stream.ts fills the slots; here is only the layout. Nothing is allocated.

import { ModelError } from "../../../base/errors.ts";
import {
  type Graph,
  layerCount,
  sectionsOf,
  type Weight,
  weightsOf,
} from "../../../graph/graph.ts";
import { makePlan, type Plan } from "../../../graph/plan.ts";
import {
  layOutWeights,
  planesOf,
  type WeightLayout,
  type WeightLimits,
  type WeightPart,
} from "../weight-layout.ts";

/** Layers whose matrices are in GPU memory at a time. */
export const STREAM_SLOTS = 2;

/** Bytes that are read, copied and unpacked at once. */
export const STREAM_PIECE: number = 4 * 2 ** 20;

/** Pieces that are read at the same time: Node reads files on four threads, and a piece more each waits to be copied. */
export const STREAM_STAGES = 8;

/** Bytes of the stages, and of one piece on the GPU that is not yet cut into planes. */
export const STREAM_BYTES: number = (STREAM_STAGES + 1) * STREAM_PIECE;

/** The same plan without its embeddings, whose results the batch takes as from another part of a split graph. */
export function withoutEmbeddings(plan: Plan): Plan {
  const { graph } = plan;
  const own = sectionsOf(graph);
  if (own.length > 1 || own[0]!.takes.length > 0) {
    throw new ModelError(
      "op offload: tensors of this model are placed by name, and it does not begin with whole layers on the processor. Leave out opOffload, or overrideTensors and cpuExperts",
    );
  }
  if (graph.adapters) throw new ModelError("op offload: adapters change layers of this model");
  const kept = graph.nodes.filter(({ op }) => op !== "embed");
  const made = graph.nodes.flatMap((node) => (node.op === "embed" ? [node.out] : []));
  const used = new Set(kept.flatMap(weightsOf).map(({ name }) => name));
  const before = (index: number) =>
    graph.nodes.slice(0, index).filter(({ op }) => op !== "embed").length;
  const { gives } = own[0]!;
  const sections = [{ from: 0, to: kept.length, takes: made, gives }];
  return makePlan(
    {
      ...graph,
      nodes: kept,
      weights: graph.weights.filter(({ name }) => used.has(name)),
      layerStarts: graph.layerStarts.map(before),
      sections,
    },
    plan.limits,
  );
}

/** The matrices that are streamed, by layer, in order; layers without any are left out. */
function streamedUnits(graph: Graph): Weight[][] {
  const { nodes, layerStarts } = graph;
  const layers = layerCount(graph);
  const readBy = new Map<string, Set<number>>();
  const weights = new Map<string, Weight>();
  nodes.forEach((node, i) => {
    const layer = layerStarts.findLastIndex((start) => start <= i);
    for (const weight of weightsOf(node)) {
      readBy.set(weight.name, (readBy.get(weight.name) ?? new Set()).add(layer));
      weights.set(weight.name, weight);
    }
  });
  const units: Weight[][] = Array.from({ length: layers }, () => []);
  for (const [name, readers] of readBy) {
    const [layer = -1] = readers;
    const weight = weights.get(name)!;
    if (readers.size === 1 && layer >= 0 && layer < layers && weight.shape.length > 1) {
      units[layer]!.push(weight);
    }
  }
  return units.filter((unit) => unit.length > 0);
}

export function layOutStreamed(
  graph: Graph,
  limits: WeightLimits,
  stacks: readonly (readonly Weight[])[],
): WeightLayout {
  const units = streamedUnits(graph);
  const unitOf = new Map(units.flatMap((unit, i) => unit.map(({ name }) => [name, i] as const)));
  const within = (unit: number | undefined) =>
    stacks.filter((stack) => stack.every(({ name }) => unitOf.get(name) === unit));
  const resident = graph.weights.filter(({ name }) => !unitOf.has(name));
  const { buffers, parts, stacks: stacked } = layOutWeights(resident, limits, within(undefined));
  const all = { parts: new Map(parts), stacks: new Map(stacked) };
  const own = units.map((unit, i) => layOutWeights(unit, limits, within(i)));
  const sizes = [...buffers];
  for (let slot = 0; slot < STREAM_SLOTS; slot++) {
    const layouts = own.filter((_, unit) => unit % STREAM_SLOTS === slot);
    const first = sizes.length;
    const placed = (part: WeightPart) => ({ ...part, buffer: first + part.buffer });
    for (const layout of layouts) {
      layout.buffers.forEach((bytes, i) => {
        sizes[first + i] = Math.max(sizes[first + i] ?? 0, bytes);
      });
      for (const [name, list] of layout.parts) all.parts.set(name, list.map(placed));
      for (const [name, part] of layout.stacks) all.stacks.set(name, placed(part));
    }
  }
  return { buffers: sizes, ...all, totalBytes: sum(sizes), streamed: { units, unitOf } };
}

/** A range of a weight's bytes in the file, and its offset in the slot. */
export interface StreamPiece {
  readonly unit: number;
  readonly weight: Weight;
  readonly at: number;
  readonly bytes: number;
  /** Destinations: for types with planes, a range of each plane; otherwise one range that has the bytes as they are. */
  readonly to: readonly StreamTarget[];
}

export interface StreamTarget {
  readonly buffer: number;
  readonly offset: number;
  readonly bytes: number;
  /** Of the blocks: the bytes of the plane, from byte `from` on; undefined: all of them. */
  readonly plane?: { readonly blockBytes: number; readonly from: number; readonly bytes: number };
}

/** Blocks of a piece come in multiples of this, so that each plane's range begins where a binding may. */
const BLOCKS = 256;

/** In the order in which they are read. */
export function streamPieces({ parts, streamed }: WeightLayout): StreamPiece[] {
  return (streamed?.units ?? []).flatMap((weights, unit) =>
    weights.flatMap((weight) =>
      parts.get(weight.name)!.flatMap((part) => piecesOf(unit, weight, part)),
    ),
  );
}

function piecesOf(unit: number, weight: Weight, part: WeightPart): StreamPiece[] {
  const { buffer, wide, narrow, rowStart, rows } = part;
  const { blockBytes, blockElems } = weight.dtype;
  const planes = planesOf(weight);
  const rowBlocks = weight.shape.at(-1)! / blockElems;
  const start = rowStart * rowBlocks * blockBytes;
  const total = rows * rowBlocks * blockBytes;
  const most = planes
    ? Math.floor(STREAM_PIECE / blockBytes / BLOCKS) * BLOCKS * blockBytes
    : STREAM_PIECE;
  const pieces: StreamPiece[] = [];
  for (let at = 0; at < total; at += most) {
    const bytes = Math.min(most, total - at);
    const block = at / blockBytes;
    const planeTarget = (base: number, size: number, from: number): StreamTarget => ({
      buffer,
      offset: base + block * size,
      bytes: words((bytes / blockBytes) * size),
      plane: { blockBytes, from, bytes: size },
    });
    const to = planes
      ? [
          planeTarget(wide.offset, planes.wide, planes.wideFrom),
          planeTarget(narrow!.offset, planes.narrow, planes.narrowFrom),
        ]
      : [{ buffer, offset: wide.offset + at, bytes: words(bytes) }];
    pieces.push({ unit, weight, at: start + at, bytes, to });
  }
  return pieces;
}

function words(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}

function sum(sizes: readonly number[]): number {
  return sizes.reduce((total, bytes) => total + bytes, 0);
}
