// The best logits of every row, in order: of equal ones the lower id first, as the sampler counts them (base/select-best.ts). Only
// these go to the host where a sampler needs no others, and not the whole vocabulary.
//
// Nothing is computed with floats: a logit is an integer that grows with it, so the selection is exact, and what it gives has the
// bits of the logits. A NaN counts as the best, so that it is seen.
//
// Two kernels: the first has a workgroup for each part of a row, the second merges the parts. Each lane finds the best of its own
// items; the BEST-th best of these is a bound, since as many items are no worse. What is no worse than the bound is listed, and each
// listed item's place is the number of better ones. Only the BEST lanes whose best is no worse than the bound have such items: no
// more than all of theirs are listed.

import type { Value } from "../../../graph/graph.ts";
import { type Binding, type Kernel, makeKernel } from "./kernel.ts";

/** Logits that are found in each row. */
export const BEST = 64;
/** Items of a part of a row. */
const PART = 4096;
/** Lanes of a workgroup: no fewer than BEST. */
const SIZE = 256;
/** Items that can be listed: all items of BEST lanes. */
const MOST_LISTED: number = BEST * (PART / SIZE);
/** Parts of a row: the second kernel has no more items than the first. */
const MOST_PARTS: number = PART / BEST;

/** Parts of a row; 0: it is longer than 262,144, and its best are not looked for. */
export function bestParts({ cols }: Value): number {
  const parts = Math.ceil(cols / PART);
  return parts > MOST_PARTS ? 0 : parts;
}

/** The kernels; `logits`: [rows, vocab]. None where rows are too long. */
export function bestLogitsKernels(logits: Value): Kernel[] {
  const { cols, rows } = logits;
  const parts = bestParts(logits);
  if (parts === 0) return [];
  const found: Binding = { name: "found", type: "vec2u", source: { kind: "bestParts" } };
  return [
    makeKernel({
      name: `best of parts [${cols}]`,
      bindings: [
        { name: "logits", type: "u32", source: { kind: "value", value: logits } },
        { ...found, writes: true },
      ],
      size: SIZE,
      declarations: `${shared}
fn item(first: u32, i: u32) -> vec2u { return vec2u(keyOf(logits[first + i]), first % ${cols}u + i); }
fn put(to: u32, place: u32, one: vec2u) { found[to + place] = one; }`,
      rows,
      grid: (count) => [parts, count, 1],
      body: selection(
        `group.y * ${cols}u + group.x * ${PART}u`,
        `min(${PART}u, ${cols}u - group.x * ${PART}u)`,
        `(group.y * ${parts}u + group.x) * ${BEST}u`,
      ),
    }),
    makeKernel({
      name: `best of ${parts} parts`,
      bindings: [found, { name: "best", type: "vec2u", source: { kind: "best" }, writes: true }],
      size: SIZE,
      declarations: `${shared}
fn item(first: u32, i: u32) -> vec2u { return found[first + i]; }
fn put(to: u32, place: u32, one: vec2u) {
  let bits = select(~one.x, one.x & 0x7fffffffu, (one.x & 0x80000000u) != 0u);
  best[to + place] = vec2u(bits, one.y);
}`,
      rows,
      grid: (count) => [1, count, 1],
      body: selection(`group.y * ${parts * BEST}u`, `${parts * BEST}u`, `group.y * ${BEST}u`),
    }),
  ];
}

/** An item is a key and an id; no item: key 0, which no logit has. */
const shared = `
const NONE = vec2u(0u, 0xffffffffu);
var<workgroup> champions: array<vec2u, ${SIZE}>;
var<workgroup> list: array<vec2u, ${MOST_LISTED}>;
var<workgroup> listed: atomic<u32>;
var<workgroup> bound: vec2u;
fn keyOf(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0xffffffffu; } // NaN
  if (bits == 0x80000000u) { return 0x80000000u; } // -0 is 0
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}
fn isBetter(a: vec2u, b: vec2u) -> bool { return a.x > b.x || (a.x == b.x && a.y < b.y); }`;

/** WGSL of the selection among items first, first + 1, ...: where they begin, how many they are, and where the best go. */
function selection(first: string, count: string, to: string): string {
  return `
  let first = ${first};
  let count = ${count};
  let to = ${to};
  var own = NONE;
  for (var i = lane; i < count; i += ${SIZE}u) {
    let one = item(first, i);
    if (isBetter(one, own)) { own = one; }
  }
  champions[lane] = own;
  if (lane == 0u) { atomicStore(&listed, 0u); bound = NONE; }
  workgroupBarrier();
  var place = 0u;
  for (var i = 0u; i < ${SIZE}u; i++) { if (isBetter(champions[i], own)) { place++; } }
  if (place == ${BEST - 1}u && own.x != 0u) { bound = own; }
  workgroupBarrier();
  for (var i = lane; i < count; i += ${SIZE}u) {
    let one = item(first, i);
    if (one.x == 0u || isBetter(bound, one)) { continue; }
    list[atomicAdd(&listed, 1u)] = one;
  }
  workgroupBarrier();
  let all = atomicLoad(&listed);
  for (var i = lane; i < all; i += ${SIZE}u) {
    let one = list[i];
    var better = 0u;
    for (var j = 0u; j < all; j++) { if (isBetter(list[j], one)) { better++; } }
    if (better < ${BEST}u) { put(to, better, one); }
  }
  for (var i = all + lane; i < ${BEST}u; i += ${SIZE}u) { put(to, i, NONE); }`;
}
