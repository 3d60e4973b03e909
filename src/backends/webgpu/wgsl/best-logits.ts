// The best logits of every row, in order: of equal ones the lower id first, as the sampler counts them (base/select-best.ts). Only
// these go to the host where a sampler needs no others, and not the whole vocabulary. Each row has the number that it needs (batch-area.ts).
//
// A row may have adjusted tokens (adjust.ts): the best are looked for among all others, and theirs are given beside.
//
// Nothing is computed with floats: a logit is an integer that grows with it, so the selection is exact, and its results have the
// bits of the logits. A NaN counts as the best, so that it is seen.
//
// Two kernels: the first has a workgroup for each part of a row; the second, with one for each row, merges the parts and draws the next
// token (draw.ts). A generated token waits for both, so the time is that of the longest chain of loads, barriers and stores:
//
//   1. Each lane loads its items, 4 to 16 of them, at once; they stay in registers. Its best one is its champion.
//   2. The champions are in 8 groups, and each has a rank among the 32 of its group. For `wanted` items, the champion of rank
//      wanted / 8 is its group's bound: that many are no worse. The worst of the 8 bounds is the bound of all.
//      Where one item is wanted, it is the best of 8, and the kernel ends here.
//   3. Items no worse than the bound are listed, about 100 for 64 of 1,024. An item's rank is the number of better ones in the list.
//
// Groups of neighbours would differ: the ids of a vocabulary have an order. So neighbours are in different groups. If one group is so
// much worse than the others that more items are listed than fit, the bound is the champion of rank `wanted` of all, and only the
// items of as many lanes can be listed. Of equal champions that of the lower lane has the lower id, in both kernels: only keys are
// compared.
//
// In cycles of a large GPU (about 600 for a load, 30 for one of workgroup memory or a barrier; a core loads 32 words of workgroup memory in
// a cycle): items 600, keys of a group 30 + 256, bounds 30 + 128, list up to 350, ranks 30 + 4 for each item listed, and four barriers; in
// all about 2,000, or 1,200 for one item. Ranking all 256 champions would take 2,048 for their keys alone, and 4,096 with ids. These are
// counts, not measurements. Nothing depends on subgroups, nor on zeros in workgroup memory or on loads beyond a buffer, which Dawn leaves
// unchecked (platform/node-gpu.ts).

import { ADJUSTED_ROOM } from "../../../graph/adjusted-list.ts";
import { countOf } from "../../../graph/batch.ts";
import type { Value } from "../../../graph/graph.ts";
import { type BatchLayout, DRAW_WORDS } from "../batch-area.ts";
import {
  adjustedText,
  leaveOut,
  leaveOutDeclarations,
  mergeAdjusted,
  mergeDeclarations,
} from "./adjust.ts";
import { drawDeclarations, drawText } from "./draw.ts";
import { type Binding, type Kernel, makeKernel } from "./kernel.ts";

/** The most logits that are found in each row. */
export const BEST = 64;

/**
 * Words of a row of results: BEST pairs of a logit and an id, then the token that was drawn and whether layer kernels failed, then the
 * index of the first adjusted token and their number (those that the GPU drew: times 65,536). Behind all rows, pairs of adjusted tokens.
 */
export const BEST_WORDS: number = 2 * BEST + 4;

/** The word that says whether layer kernels failed. */
export const FAILED_AT: number = 2 * BEST + 1;

/** Words of the results of `rows` rows, with room for `pairs` pairs of adjusted tokens. */
export const bestWords = (rows: number, pairs: number): number => rows * BEST_WORDS + 2 * pairs;

/** Room for the pairs of a batch's adjusted tokens: few different numbers, because commands that copy as much are used again. */
export function pairCapacity(adjusted: number, rows: number): number {
  if (adjusted === 0) return 0;
  return Math.min(2 ** Math.ceil(Math.log2(Math.max(adjusted, 64))), mostPairs(rows));
}

export const mostPairs = (rows: number): number => rows * ADJUSTED_ROOM;

/** Lanes of a workgroup, in groups for their champions. */
export const SIZE = 256;
const GROUPS = 8;
const GROUP: number = SIZE / GROUPS;
/** Words of a group's keys: one more than it has, so that lanes load the keys of all groups at once. */
const GROUP_WORDS: number = GROUP + 1;

/** Items of a lane, at least and at most. */
const LEAST_ITEMS = 4;
const MOST_ITEMS = 16;
/** Items that can be listed: all of BEST lanes. */
const MOST_LISTED: number = BEST * MOST_ITEMS;
/** Parts of a row: the second kernel has no more items than the first. */
const MOST_PARTS: number = (SIZE * MOST_ITEMS) / BEST;

/** Items of a lane of the first kernel; undefined: rows are too long. */
export function itemsOf({ cols }: Value): number | undefined {
  for (let items = LEAST_ITEMS; items <= MOST_ITEMS; items *= 2) {
    if (cols <= MOST_PARTS * SIZE * items) return items;
  }
  return undefined;
}

/** Parts of a row; 0: it is longer than 262,144, and its best are not looked for. */
export function bestParts(logits: Value): number {
  const items = itemsOf(logits);
  return items === undefined ? 0 : Math.ceil(logits.cols / (SIZE * items));
}

/**
 * The kernels; `logits`: [rows, vocab]. None if rows are too long. `exchanges`: there are layer kernels, which may fail. Tokens are drawn
 * in batches that say so, where row r of the logits belongs to token r.
 */
export function bestLogitsKernels(
  logits: Value,
  batch: BatchLayout,
  exchanges: boolean = false,
): Kernel[] {
  const parts = bestParts(logits);
  if (parts === 0) return [];
  return [partsKernel(logits, parts, batch), mergeKernel(logits, parts, batch, exchanges)];
}

/** The offset of the pairs of adjusted tokens. */
const behind: string = `batch[${countOf("logits")}u] * ${BEST_WORDS / 2}u`;

const found: Binding = { name: "found", type: "vec2u", source: { kind: "bestParts" } }; // [row][part][BEST]

function partsKernel(logits: Value, parts: number, batch: BatchLayout): Kernel {
  const { cols, rows } = logits;
  const items = itemsOf(logits)!;
  const isWhole = cols % 4 === 0;
  // Nothing beyond the row is loaded.
  const loads = Array.from({ length: items / 4 }, (_, q) =>
    isWhole
      ? `let quad${q} = logits[(group.y * ${cols}u + min(id + ${4 * q}u, ${cols - 4}u)) / 4u];`
      : `let quad${q} = vec4u(${four((i) => `logits[group.y * ${cols}u + min(id + ${4 * q + i}u, ${cols - 1}u)]`)});`,
  );
  const item = (i: number): string =>
    `select(NONE, vec2u(keyOf(quad${i >> 2}[${i % 4}]), id + ${i}u), id + ${i}u < ${cols}u && (leftOut & ${1 << i}u) == 0u)`;
  const logit = (at: string): string =>
    isWhole ? `logits[${at} / 4u][${at} % 4u]` : `logits[${at}]`;
  const shape = { cols, span: SIZE * items, items, logit };
  return makeKernel({
    name: `best of parts [${cols}]`,
    bindings: [
      {
        name: "logits",
        type: isWhole ? "vec4u" : "u32",
        source: { kind: "value", value: logits },
      },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { ...found, writes: true },
      { name: "best", type: "vec2u", source: { kind: "best" }, writes: true },
    ],
    size: SIZE,
    declarations: declarations(`${leaveOutDeclarations(shape)}
fn put(row: u32, part: u32, place: u32, one: vec2u) { found[(row * ${parts}u + part) * ${BEST}u + place] = one; }`),
    rows,
    grid: (count) => [parts, count, 1],
    body: `
  let draw = ${batch.draws}u + group.y * ${DRAW_WORDS}u;
  let wanted = clamp(batch[draw], 1u, ${BEST}u);
  let id = (group.x * ${SIZE}u + lane) * ${items}u;
  ${loads.join("\n  ")}
  ${adjustedText(behind)}
  ${leaveOut(batch, shape)}
  ${lets(items, item)}
  ${selection(items, "return;")}`,
  });
}

function mergeKernel(
  { cols, rows }: Value,
  parts: number,
  batch: BatchLayout,
  exchanges: boolean,
): Kernel {
  // Each lane has every lanes-th item of a part, which are in order.
  const lanes = Math.min(BEST, 2 ** Math.floor(Math.log2(SIZE / parts)));
  const items = BEST / lanes;
  const load = (i: number): string => `found[first + ${i * lanes}u]`;
  const item = (i: number): string =>
    `select(NONE, loaded${i}, part < ${parts}u && lane % ${lanes}u + ${i * lanes}u < wanted)`;
  return makeKernel({
    name: `best of ${parts} parts`,
    bindings: [
      found,
      { name: "batch", type: "u32", source: { kind: "batch" }, writes: true },
      { name: "best", type: "vec2u", source: { kind: "best" }, writes: true },
      ...(exchanges
        ? [{ name: "exchange", type: "u32", source: { kind: "exchange" } } as const]
        : []),
    ],
    size: SIZE,
    declarations: declarations(`${drawDeclarations(BEST)}${mergeDeclarations}
fn put(row: u32, part: u32, place: u32, one: vec2u) {
  let bits = bitsOf(one.x);
  best[row * ${BEST_WORDS / 2}u + place] = vec2u(bits, one.y);
  ordered[place] = vec2u(bits, one.y);
}
fn end(row: u32, token: u32, failed: u32, adjusted: vec2u) {
  best[row * ${BEST_WORDS / 2}u + ${BEST}u] = vec2u(token, failed);
  best[row * ${BEST_WORDS / 2}u + ${BEST + 1}u] = adjusted;
}`),
    rows,
    grid: (count) => [1, count, 1],
    body: `
  let draw = ${batch.draws}u + group.y * ${DRAW_WORDS}u;
  let wanted = clamp(batch[draw], 1u, ${BEST}u);
  let topK = min(batch[draw + 1u], min(wanted, ${cols}u)); // 0: no token is drawn
  let settings = vec4u(${four((i) => `batch[draw + ${i + 2}u]`)});
  let failed = ${exchanges ? "exchange[0]" : "0u"};
  ${adjustedText(behind)}
  if (lane == 0u) { drawnOf = topK; adjustedOf = known + unknown; atomicStore(&chosen, 0u); }
  let part = lane / ${lanes}u;
  let first = (group.y * ${parts}u + min(part, ${parts - 1}u)) * ${BEST}u + lane % ${lanes}u;
  ${Array.from({ length: items }, (_, i) => `let loaded${i} = ${load(i)};`).join("\n  ")}
  ${lets(items, item)}
  ${selection(
    items,
    `
    if (lane == 0u) {
      let token = min(highest.y, ${cols - 1}u);
      if (topK > 0u) { batch[${batch.tokens}u + group.y] = token; }
      end(group.y, token, failed, vec2u());
    }
    return;`,
    // Adjusted tokens may be better than the best of the others.
    "select(wanted, 0u, known + unknown > 0u)",
  )}
  ${drawText(batch, cols, BEST, mergeAdjusted(batch, BEST))}`,
  });
}

const lets = (items: number, item: (i: number) => string): string =>
  Array.from({ length: items }, (_, i) => `let item${i} = ${item(i)};`).join("\n  ");

/** An item is a key and an id; no item: key 0, which no logit has. A key of a logit's bits, and the reverse. */
export const keyText: string = `
const NONE = vec2u(0u, 0xffffffffu);
fn keyOf(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0xffffffffu; } // NaN
  if (bits == 0x80000000u) { return 0x80000000u; } // -0 is 0
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}
fn bitsOf(key: u32) -> u32 { return select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u); }
fn isBetter(a: vec2u, b: vec2u) -> bool { return a.x > b.x || (a.x == b.x && a.y < b.y); }`;

const declarations = (more: string): string => `${keyText}
var<workgroup> champions: array<u32, ${GROUPS * GROUP_WORDS}>; // [group][place of the lane]: keys
var<workgroup> bounds: array<vec2u, ${GROUPS}>;
var<workgroup> listed: atomic<u32>;
var<workgroup> overflows: u32;
var<workgroup> wantedByAll: u32;
var<workgroup> listKeys: array<u32, ${MOST_LISTED + 3}>;
var<workgroup> listIds: array<u32, ${MOST_LISTED}>;
fn isListed(one: vec2u, bound: vec2u) -> bool { return one.x != 0u && !isBetter(bound, one); }
fn groupOf(lane: u32) -> u32 { return (lane + lane / ${GROUPS}u) % ${GROUPS}u; }
fn ones(are: vec4<bool>) -> vec4u { return select(vec4u(), vec4u(1u), are); }
fn sum(v: vec4u) -> u32 { return v.x + v.y + v.z + v.w; }
fn list(to: u32, one: vec2u) { if (to < ${MOST_LISTED}u) { listKeys[to] = one.x; listIds[to] = one.y; } }${more}`;

const four = (text: (i: number) => string): string => [0, 1, 2, 3].map(text).join(", ");

/**
 * WGSL that puts the best of all lanes' items; `endsWithOne`: the code after it if only the `highest` one was wanted, and `asked` is 1.
 */
function selection(items: number, endsWithOne: string, asked: string = "wanted"): string {
  const each = (text: (item: string) => string): string =>
    Array.from({ length: items }, (_, i) => text(`item${i}`)).join("\n  ");
  const listing = `
  var count = 0u;
  ${each((item) => `if (isListed(${item}, bound)) { count++; }`)}
  if (count > 0u) {
    var to = atomicAdd(&listed, count);
    // One lane has the item that does not fit any more.
    if (to <= ${MOST_LISTED}u && to + count > ${MOST_LISTED}u) { overflows = 1u; }
    ${each((item) => `if (isListed(${item}, bound)) { list(to, ${item}); to++; }`)}
  }`;
  return `
  var own = item0;
  ${each((item) => `if (${item}.x > own.x) { own = ${item}; }`)}
  let mine = lane / ${GROUPS}u;
  let keys = groupOf(lane) * ${GROUP_WORDS}u;
  champions[keys + mine] = own.x;
  if (lane < ${GROUPS}u) { bounds[lane] = NONE; }
  if (lane == 0u) { atomicStore(&listed, 0u); overflows = 0u; wantedByAll = ${asked}; }
  workgroupBarrier();
  var before = vec4u();
  for (var i = 0u; i < ${GROUP}u; i += 4u) {
    let others = vec4u(${four((j) => `champions[keys + i + ${j}u]`)});
    let isBefore = vec4u(i, i + 1u, i + 2u, i + 3u) < vec4u(mine);
    before += ones((others > own.xxxx) | ((others == own.xxxx) & isBefore));
  }
  if (sum(before) == (wanted - 1u) / ${GROUPS}u && own.x != 0u) { bounds[groupOf(lane)] = own; }
  // Also a barrier, and all lanes go the same way.
  if (workgroupUniformLoad(&wantedByAll) == 1u) {
    var highest = bounds[0];
    for (var i = 1u; i < ${GROUPS}u; i++) { if (isBetter(bounds[i], highest)) { highest = bounds[i]; } }
    if (lane == 0u) { put(group.y, group.x, 0u, highest); }
    ${endsWithOne}
  }
  var bound = bounds[0];
  for (var i = 1u; i < ${GROUPS}u; i++) { if (isBetter(bound, bounds[i])) { bound = bounds[i]; } }
  {${listing}
  }
  ${items * SIZE > MOST_LISTED ? again(listing) : "workgroupBarrier();"}
  let all = atomicLoad(&listed);
  for (var i = lane; i < all; i += ${SIZE}u) {
    let one = vec2u(listKeys[i], listIds[i]);
    var better = vec4u();
    var same = vec4u();
    for (var j = 0u; j < all; j += 4u) {
      let others = vec4u(${four((k) => `listKeys[j + ${k}u]`)});
      let isThere = vec4u(j, j + 1u, j + 2u, j + 3u) < vec4u(all);
      better += ones((others > one.xxxx) & isThere);
      same += ones((others == one.xxxx) & isThere);
    }
    var place = sum(better);
    if (sum(same) > 1u) {
      for (var j = 0u; j < all; j++) { if (listKeys[j] == one.x && listIds[j] < one.y) { place++; } }
    }
    if (place < wanted) { put(group.y, group.x, place, one); }
  }
  for (var i = all + lane; i < wanted; i += ${SIZE}u) { put(group.y, group.x, i, NONE); }`;
}

/** WGSL that lists less, where too much was listed. */
const again = (listing: string): string => `
  if (workgroupUniformLoad(&overflows) != 0u) {
    if (lane == 0u) { atomicStore(&listed, 0u); }
    var place = 0u;
    for (var i = 0u; i < ${SIZE}u; i++) {
      let other = champions[groupOf(i) * ${GROUP_WORDS}u + i / ${GROUPS}u];
      if (other > own.x || (other == own.x && i < lane)) { place++; }
    }
    if (place == wanted - 1u) { bounds[0] = own; }
    workgroupBarrier();
    bound = bounds[0];
    ${listing}
    workgroupBarrier();
  }`;
