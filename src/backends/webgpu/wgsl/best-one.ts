// The best logit of every row, in batches in which each row needs one and none has adjusted tokens: greedy sampling. One dispatch instead of the two of best-logits.ts, and little text:
// between two tokens a GPU's caches have seen all weights, so the time of such a kernel is mostly that of loading its own machine code.
//
// A workgroup finds the best of a part of a row. The last of a row to be done compares those of all parts. WGSL has no order between the stores of one workgroup and
// the loads of another, so that words say themselves whether they are there, as in attention-split.ts: 0 means "not yet". The comparing workgroup sets them back to 0.

import type { Value } from "../../../graph/graph.ts";
import { type BatchLayout, DRAW_WORDS } from "../batch-area.ts";
import { POLLS } from "./attention-split.ts";
import { BEST, BEST_WORDS, bestParts, itemsOf, keyText, SIZE } from "./best-logits.ts";
import { type Kernel, makeKernel } from "./kernel.ts";

/** Words of a row: the number of parts that are done, then a key and an id (one more than it) for each of them. */
export const oneWords = (logits: Value): number => 1 + 2 * bestParts(logits);

/** None if rows are too long; `logits`, `exchanges` as in bestLogitsKernels(). */
export function bestOneKernels(
  logits: Value,
  batch: BatchLayout,
  exchanges: boolean = false,
): Kernel[] {
  const parts = bestParts(logits);
  if (parts === 0) return [];
  const { cols, rows } = logits;
  const items = itemsOf(logits)!;
  const isWhole = cols % 4 === 0;
  const at = (i: string, last: number): string => `group.y * ${cols}u + min(${i}, ${last}u)`;
  const four = isWhole
    ? `logits[(${at("id + i", cols - 4)}) / 4u]`
    : `vec4u(${[0, 1, 2, 3].map((i) => `logits[${at(`id + i + ${i}u`, cols - 1)}]`).join(", ")})`;
  const words = oneWords(logits);
  return [
    makeKernel({
      name: `best one [${cols}]`,
      bindings: [
        {
          name: "logits",
          type: isWhole ? "vec4u" : "u32",
          source: { kind: "value", value: logits },
        },
        { name: "batch", type: "u32", source: { kind: "batch" }, writes: true },
        { name: "found", type: "atomic<u32>", source: { kind: "bestOne" }, writes: true },
        { name: "best", type: "vec2u", source: { kind: "best" }, writes: true },
        ...(exchanges
          ? [{ name: "exchange", type: "u32", source: { kind: "exchange" } } as const]
          : []),
      ],
      size: SIZE,
      declarations: `${keyText}
var<workgroup> compared: array<vec2u, ${SIZE}>;
var<workgroup> done: u32;
fn bestOfAll(own: vec2u, lane: u32) -> vec2u {
  workgroupBarrier();
  compared[lane] = own;
  var all = own;
  for (var some = ${SIZE / 4}u; some > 0u; some /= 4u) {
    workgroupBarrier();
    if (lane < some) {
      for (var i = 1u; i < 4u; i++) {
        let other = compared[lane + i * some];
        if (isBetter(other, all)) { all = other; }
      }
      compared[lane] = all;
    }
  }
  workgroupBarrier();
  return compared[0];
}`,
      rows,
      grid: (count) => [parts, count, 1],
      body: `
  let id = (group.x * ${SIZE}u + lane) * ${items}u;
  let first = group.y * ${words}u;
  var own = NONE;
  for (var i = 0u; i < ${items}u; i += 4u) {
    let four = ${four};
    for (var j = 0u; j < 4u; j++) {
      let key = keyOf(four[j]);
      if (key > own.x && id + i + j < ${cols}u) { own = vec2u(key, id + i + j); }
    }
  }
  let ofPart = bestOfAll(own, lane);
  if (lane == 0u) {
    atomicStore(&found[first + 1u + 2u * group.x], ofPart.x);
    atomicStore(&found[first + 2u + 2u * group.x], ofPart.y + 1u);
    done = atomicAdd(&found[first], 1u);
  }
  if (workgroupUniformLoad(&done) + 1u < ${parts}u) { return; }
  if (lane == 0u) { atomicStore(&found[first], 0u); }
  var other = NONE;
  if (lane < ${parts}u) {
    let at = first + 1u + 2u * lane;
    for (var polls = 0u; polls < ${POLLS}u; polls++) {
      other = vec2u(atomicLoad(&found[at]), atomicLoad(&found[at + 1u]));
      if (all(other != vec2u())) { break; }
    }
    other.y -= 1u;
    atomicStore(&found[at], 0u);
    atomicStore(&found[at + 1u], 0u);
  }
  let highest = bestOfAll(other, lane);
  if (lane == 0u) {
    let token = min(highest.y, ${cols - 1}u);
    let to = group.y * ${BEST_WORDS / 2}u;
    best[to] = vec2u(bitsOf(highest.x), highest.y);
    best[to + ${BEST}u] = vec2u(token, ${exchanges ? "exchange[0]" : "0u"});
    best[to + ${BEST + 1}u] = vec2u();
    if (batch[${batch.draws}u + group.y * ${DRAW_WORDS}u + 1u] > 0u) { batch[${batch.tokens}u + group.y] = token; }
  }`,
    }),
  ];
}
