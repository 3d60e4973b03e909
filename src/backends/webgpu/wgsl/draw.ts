// WGSL that draws the next token of a row from its best logits, and puts it into the batch area: the next batch begins before the host
// knows its tokens (lookahead.ts). It is a guess: the host draws by itself (engine/sampler.ts), and the batches after another token
// are dropped. So floats are enough here, where the host has doubles, and only the usual steps are known: top-k, top-p, min-p and a
// fixed temperature.
//
// It is the end of the kernel that finds the best logits (best-logits.ts). A lane for each of them adds up all that are better, so that no
// lane waits for another's sum.

import { type BatchLayout, DRAWN_WORDS } from "../batch-area.ts";

/** @param most logits that a token is drawn from; a lane for each. */
export const drawDeclarations = (most: number): string => `
var<workgroup> ordered: array<vec2u, ${most}>; // a logit and an id, best first
var<workgroup> plain: array<f32, ${most}>;
var<workgroup> scaled: array<f32, ${most}>;
var<workgroup> drawnOf: u32; // topK; 0: no token is drawn
var<workgroup> chosen: atomic<u32>; // 0 before`;

/**
 * After `settings`: temperature, top-p, ln(min-p) and a random number; and with end(). `merge`: code that changes `ordered`
 * before.
 */
export function drawText(
  { tokens, positions, drawn: last }: BatchLayout,
  cols: number,
  most: number,
  merge: string,
): string {
  // Of all, and of those before the lane: both in order.
  const sums = (values: string): string => `
    for (var i = 0u; i < drawn; i++) {
      total += ${values}[i];
      before += select(0.0, ${values}[i], i < lane);
    }`;
  return `
  let adjusted = vec2u(firstAdjusted, known | (unknown << 16u));
  let drawn = workgroupUniformLoad(&drawnOf);
  if (drawn == 0u) {
    if (lane == 0u) { end(group.y, 0u, failed, adjusted); }
    return;
  }
  ${merge}
  let isDrawn = lane < drawn;
  let below = bitcast<f32>(ordered[min(lane, ${most - 1}u)].x) - bitcast<f32>(ordered[0].x);
  if (lane < ${most}u) { plain[lane] = select(0.0, exp(below), isDrawn); }
  workgroupBarrier();
  if (lane < ${most}u) {
    var total = 0.0;
    var before = 0.0;
    ${sums("plain")}
    let isKept = isDrawn && (lane == 0u || before < bitcast<f32>(settings.y) * total);
    let isLikely = isKept && below >= bitcast<f32>(settings.z);
    scaled[lane] = select(0.0, exp(below / max(bitcast<f32>(settings.x), 1e-6)), isLikely);
  }
  workgroupBarrier();
  if (lane < ${most}u) {
    var total = 0.0;
    var before = 0.0;
    ${sums("scaled")}
    if (scaled[lane] > 0.0 && before <= bitcast<f32>(settings.w) * total) { atomicMax(&chosen, lane); }
  }
  workgroupBarrier();
  if (lane == 0u) {
    let token = min(ordered[atomicLoad(&chosen)].y, ${cols - 1}u); // a NaN has no order: never beyond the vocabulary
    batch[${tokens}u + group.y] = token;
    let position = batch[${positions}u + group.y] + 1u;
    batch[${last}u + group.y * ${DRAWN_WORDS}u + position % ${DRAWN_WORDS}u] = token;
    end(group.y, token, failed, adjusted);
  }`;
}
