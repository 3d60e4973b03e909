// Sorts the (token, slot) pairs of a batch by expert, into tiles of pairs that share the weights they read. One workgroup, once for all
// matmuls that have the same routes. For matmul-experts.ts:
//
//   [number of tiles] then, of each tile: [expert][number of its pairs][its pairs; room for a whole tile]
//
// For matrix units (experts-matrices.ts) each pair has a row, in which its activations are stored. The rows of an expert follow each other,
// and begin at a multiple of 16. There are no more tiles than units of 16 rows, so all lists have such units, and their offsets do not
// depend on the size of the batch:
//
//   [number of tiles] then, of each unit: [tile: expert, first row, end of its rows][pairs of 16 rows][rows of 16 pairs]
//
// Which pairs of an expert share a tile depends on the order of atomics, and no result depends on it: every pair has its own sums.

import { countOf } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import { type Kernel, makeKernel } from "./kernel.ts";
import { UNIT } from "./matrix-calls.ts";

/** The most pairs of a tile that there is room for. */
export const MOST_TILE = 8;

/** Words before the pairs of a tile. */
const HEAD = 2;

/** Lanes, as many as every device allows. */
const SIZE = 256;

/** The most tiles of `pairs` pairs: a tile of each expert may have fewer pairs than there is room for. */
export function mostTiles(pairs: number, experts: number, tile: number): number {
  return Math.min(pairs, Math.floor(pairs / tile) + experts);
}

/** Words of the tiles of `pairs` pairs, for any size and form. */
export function tileWords(pairs: number, experts: number): number {
  const ofPairs = pairs * (HEAD + 1) + experts * (HEAD + MOST_TILE);
  return 1 + Math.max(ofPairs, mostTiles(pairs, experts, UNIT) * UNIT_WORDS);
}

/** Rows of `pairs` pairs for matrix units. */
export function mostMatrixRows(pairs: number, experts: number): number {
  return mostTiles(pairs, experts, UNIT) * UNIT;
}

/** The first word of a tile, its expert; WGSL. */
export const tileAt = (index: string, tile: number): string => `1u + (${index}) * ${HEAD + tile}u`;

/** The words with the number of pairs of the tile at `at`, and with each of its pairs; WGSL. */
export const countAt = (at: string): string => `${at} + 1u`;
export const pairAt = (at: string, i: string): string => `${at} + ${HEAD}u + ${i}`;

/** Words of a unit of 16 rows. */
const TILE_WORDS = 3;
const UNIT_WORDS = TILE_WORDS + 2 * UNIT;

/** WGSL: where a tile for matrix units is: its expert, the first of its rows, and the end of them. */
export const rowTileAt = (index: string): string => `1u + (${index}) * ${UNIT_WORDS}u`;

/** WGSL: where the pair of a row is, and the row of a pair. */
export const pairOfRowAt = (row: string): string =>
  `${rowTileAt(`(${row}) / ${UNIT}u`)} + ${TILE_WORDS}u + (${row}) % ${UNIT}u`;
export const rowOfPairAt = (pair: string): string =>
  `${rowTileAt(`(${pair}) / ${UNIT}u`)} + ${TILE_WORDS + UNIT}u + (${pair}) % ${UNIT}u`;

/** WGSL of the matrix of a pair. */
export function expertText({ routes, weight }: NodeOf<"matmul_id">, pair: string): string {
  const slots = routes.cols / 2;
  const at = `(${pair} / ${slots}u) * ${2 * slots}u + ${pair} % ${slots}u`;
  return `min(u32(routes[${at}]), ${weight.shape[0]! - 1}u)`;
}

/** The batches that pairs are grouped for. */
type Batches = Pick<Kernel, "minRows" | "maxRows">;

/** Tiles of up to `tile` pairs. */
export function groupPairsKernel(
  node: NodeOf<"matmul_id">,
  tile: number,
  batches: Batches,
): Kernel {
  return groupKernel(node, batches, {
    name: "group pairs",
    sizes: (count) => `vec2u((${count} + ${tile - 1}u) / ${tile}u, 0u)`,
    tile,
    store: `let at = ${tileAt("next.x", tile)};
      tiles[at] = e;
      tiles[${countAt("at")}] = min(pairs - done, ${tile}u);`,
    place: `let at = ${tileAt(`firsts[e].x + place / ${tile}u`, tile)};
    tiles[${pairAt("at", `place % ${tile}u`)}] = pair;`,
  });
}

/** Rows, and tiles of up to `tile` of them, a multiple of 16. */
export function groupRowsKernel(node: NodeOf<"matmul_id">, tile: number, batches: Batches): Kernel {
  return groupKernel(node, batches, {
    name: `group rows x${tile}`,
    sizes: (count) =>
      `vec2u((${count} + ${tile - 1}u) / ${tile}u, (${count} + ${UNIT - 1}u) / ${UNIT}u * ${UNIT}u)`,
    tile,
    store: `let at = ${rowTileAt("next.x")};
      tiles[at] = e;
      tiles[at + 1u] = next.y + done;
      tiles[at + 2u] = next.y + min(pairs, done + ${tile}u);`,
    place: `let row = firsts[e].y + place;
    tiles[${pairOfRowAt("row")}] = pair;
    tiles[${rowOfPairAt("pair")}] = row;`,
  });
}

interface GroupText {
  readonly name: string;
  /** WGSL: the numbers of tiles and rows of an expert with `count` pairs, a vec2u. */
  sizes(count: string): string;
  /** Pairs of a tile. */
  readonly tile: number;
  /** Stores tile `next.x` of expert `e`, which has `pairs`, of which `done` are in tiles before; its rows begin at `next.y`. */
  readonly store: string;
  /** Stores `pair`, number `place` of expert `e`, whose first tile and row are `firsts[e]`. */
  readonly place: string;
}

function groupKernel(
  node: NodeOf<"matmul_id">,
  batches: Batches,
  { name, sizes, tile, store, place }: GroupText,
): Kernel {
  const { routes, weight, out } = node;
  const experts = weight.shape[0]!;
  const slots = routes.cols / 2;
  const own = Math.ceil(experts / SIZE);
  return makeKernel({
    name: `${name} [${slots} of ${experts}]`,
    bindings: [
      { name: "routes", type: "f32", source: { kind: "value", value: routes } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "tiles", type: "u32", source: { kind: "tiles" }, writes: true },
    ],
    size: SIZE,
    declarations: `
var<workgroup> counts: array<atomic<u32>, ${experts}>; // pairs of each expert
var<workgroup> firsts: array<vec2u, ${experts}>; // its first tile and row
var<workgroup> ends: array<vec2u, ${SIZE}>; // behind the last tile and row of the experts of a lane
fn expertOf(pair: u32) -> u32 { return ${expertText(node, "pair")}; }`,
    rows: out.rows,
    ...batches,
    sameBits: true,
    grid: () => [1, 1, 1],
    body: `
  let pairCount = batch[${countOf(out.rows)}u] * ${slots}u;
  for (var e = lane; e < ${experts}u; e += ${SIZE}u) { atomicStore(&counts[e], 0u); }
  workgroupBarrier();
  for (var pair = lane; pair < pairCount; pair += ${SIZE}u) { atomicAdd(&counts[expertOf(pair)], 1u); }
  workgroupBarrier();
  // A lane has neighbouring experts.
  let start = min(lane * ${own}u, ${experts}u);
  let end = min(start + ${own}u, ${experts}u);
  var size = vec2u();
  for (var e = start; e < end; e++) { size += ${sizes("atomicLoad(&counts[e])")}; }
  ends[lane] = size;
  workgroupBarrier();
  for (var stride = 1u; stride < ${SIZE}u; stride *= 2u) {
    var before = vec2u();
    if (lane >= stride) { before = ends[lane - stride]; }
    workgroupBarrier();
    ends[lane] += before;
    workgroupBarrier();
  }
  if (lane == ${SIZE - 1}u) { tiles[0] = ends[lane].x; }
  var next = ends[lane] - size;
  for (var e = start; e < end; e++) {
    let pairs = atomicLoad(&counts[e]);
    atomicStore(&counts[e], 0u); // now those that have their place
    firsts[e] = next;
    for (var done = 0u; done < pairs; done += ${tile}u) {
      ${store}
      next.x++;
    }
    next.y = firsts[e].y + ${sizes("pairs")}.y;
  }
  workgroupBarrier();
  for (var pair = lane; pair < pairCount; pair += ${SIZE}u) {
    let e = expertOf(pair);
    let place = atomicAdd(&counts[e], 1u);
    ${place}
  }`,
  });
}
