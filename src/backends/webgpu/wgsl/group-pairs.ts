// Sorts the (token, slot) pairs of a batch by expert, into tiles of pairs that share the weights they read (matmul-experts.ts). One
// workgroup, once for all matmuls that have the same routes.
//
//   [number of tiles] then, of each tile: [expert][number of its pairs][its pairs; room for a whole tile]
//
// Which pairs of an expert share a tile depends on the order of atomics, and no result depends on it: every pair has its own sums.

import { countOf } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import { type Kernel, makeKernel } from "./kernel.ts";

/** The most pairs of a tile that there is room for. */
export const MOST_TILE = 8;

/** Words before the pairs of a tile. */
const HEAD = 2;

/** Lanes, as many as every device allows. */
const SIZE = 256;

/** The most tiles of so many pairs: a tile of each expert may have fewer pairs than there is room for. */
export function mostTiles(pairs: number, experts: number, tile: number): number {
  return Math.min(pairs, Math.floor(pairs / tile) + experts);
}

/** Words of the tiles of so many pairs, whatever their size. */
export function tileWords(pairs: number, experts: number): number {
  return 1 + pairs * (HEAD + 1) + experts * (HEAD + MOST_TILE);
}

/** The first word of a tile, its expert; WGSL. */
export const tileAt = (index: string, tile: number): string => `1u + (${index}) * ${HEAD + tile}u`;

/** Where the number of pairs of the tile is that begins at `at`, and each of its pairs; WGSL. */
export const countAt = (at: string): string => `${at} + 1u`;
export const pairAt = (at: string, i: string): string => `${at} + ${HEAD}u + ${i}`;

/** WGSL of the matrix of a pair. */
export function expertText({ routes, weight }: NodeOf<"matmul_id">, pair: string): string {
  const slots = routes.cols / 2;
  const at = `(${pair} / ${slots}u) * ${2 * slots}u + ${pair} % ${slots}u`;
  return `min(u32(routes[${at}]), ${weight.shape[0]! - 1}u)`;
}

/** For batches of at least `minRows` tokens. */
export function groupPairsKernel(node: NodeOf<"matmul_id">, tile: number, minRows: number): Kernel {
  const { routes, weight, out } = node;
  const experts = weight.shape[0]!;
  const slots = routes.cols / 2;
  const own = Math.ceil(experts / SIZE);
  return makeKernel({
    name: `group pairs [${slots} of ${experts}]`,
    bindings: [
      { name: "routes", type: "f32", source: { kind: "value", value: routes } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "tiles", type: "u32", source: { kind: "tiles" }, writes: true },
    ],
    size: SIZE,
    declarations: `
var<workgroup> counts: array<atomic<u32>, ${experts}>; // pairs of each expert
var<workgroup> firsts: array<u32, ${experts}>; // its first tile
var<workgroup> ends: array<u32, ${SIZE}>; // behind the last tile of the experts of a lane
fn expertOf(pair: u32) -> u32 { return ${expertText(node, "pair")}; }`,
    rows: out.rows,
    minRows,
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
  var count = 0u;
  for (var e = start; e < end; e++) { count += (atomicLoad(&counts[e]) + ${tile - 1}u) / ${tile}u; }
  ends[lane] = count;
  workgroupBarrier();
  for (var stride = 1u; stride < ${SIZE}u; stride *= 2u) {
    var before = 0u;
    if (lane >= stride) { before = ends[lane - stride]; }
    workgroupBarrier();
    ends[lane] += before;
    workgroupBarrier();
  }
  if (lane == ${SIZE - 1}u) { tiles[0] = ends[lane]; }
  var next = ends[lane] - count;
  for (var e = start; e < end; e++) {
    let pairs = atomicLoad(&counts[e]);
    atomicStore(&counts[e], 0u); // now those that have their place
    firsts[e] = next;
    for (var done = 0u; done < pairs; done += ${tile}u) {
      let at = ${tileAt("next", tile)};
      tiles[at] = e;
      tiles[${countAt("at")}] = min(pairs - done, ${tile}u);
      next++;
    }
  }
  workgroupBarrier();
  for (var pair = lane; pair < pairCount; pair += ${SIZE}u) {
    let e = expertOf(pair);
    let place = atomicAdd(&counts[e], 1u);
    let at = ${tileAt(`firsts[e] + place / ${tile}u`, tile)};
    tiles[${pairAt("at", `place % ${tile}u`)}] = pair;
  }`,
  });
}
