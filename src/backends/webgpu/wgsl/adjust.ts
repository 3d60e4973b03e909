// WGSL for adjusted tokens, whose logits the host's sampler changes (graph/adjusted-list.ts). The kernels of best-logits.ts leave them out of
// the best, and store theirs behind the results as they are: the host adjusts them, in doubles.
//
// Ahead of the host the next token is drawn on the GPU (draw.ts). There they are adjusted as well, in floats, and merged with the best of the others.
// Tokens that were drawn since the host made the list are known only here: the last `unknown` ones, by their positions.

import { ADJUSTED_ROOM } from "../../../graph/adjusted-list.ts";
import { ADJUSTED_WORDS, type BatchLayout, DRAWN_WORDS } from "../batch-area.ts";

/** After `draw`, the address of the row's words. `behind`: where pairs of a logit and an id begin; `pairs`: those of the row. */
export const adjustedText = (behind: string): string => `
  let firstAdjusted = batch[draw + 6u];
  let known = min(batch[draw + 7u], ${ADJUSTED_ROOM}u);
  let unknown = min(batch[draw + 8u], ${ADJUSTED_ROOM}u - known);
  let pairs = ${behind} + firstAdjusted;`;

interface PartShape {
  readonly cols: number;
  /** Ids of a part, and of a lane. */
  readonly span: number;
  readonly items: number;
  /** The logit at an index, as bits. */
  readonly logit: (at: string) => string;
}

export const leaveOutDeclarations = ({ span }: PartShape): string => `
var<workgroup> marks: array<atomic<u32>, ${span / 32}>; // a bit for each id of the part: it is adjusted`;

/** Stores the pairs of adjusted tokens of this part, a lane for each, and gives `leftOut`: a bit for each item of the lane. */
export function leaveOut(batch: BatchLayout, { cols, span, items, logit }: PartShape): string {
  const { adjusted, drawn, positions } = batch;
  return `
  var adjustedId = 0xffffffffu;
  if (lane < known) { adjustedId = batch[${adjusted}u + (firstAdjusted + lane) * ${ADJUSTED_WORDS}u]; }
  else if (lane < known + unknown) {
    let position = batch[${positions}u + group.y] - (lane - known);
    adjustedId = batch[${drawn}u + group.y * ${DRAWN_WORDS}u + position % ${DRAWN_WORDS}u];
  }
  if (lane < ${span / 32}u) { atomicStore(&marks[lane], 0u); }
  workgroupBarrier();
  let inPart = adjustedId - group.x * ${span}u;
  if (adjustedId < ${cols}u && inPart < ${span}u) {
    let at = group.y * ${cols}u + adjustedId;
    atomicOr(&marks[inPart / 32u], 1u << (inPart % 32u));
    best[pairs + lane] = vec2u(${logit("at")}, adjustedId);
  }
  workgroupBarrier();
  let leftOut = atomicLoad(&marks[lane * ${items}u / 32u]) >> (lane * ${items}u % 32u);`;
}

export const mergeDeclarations: string = `
var<workgroup> adjustedOf: u32; // how many
var<workgroup> isKnown: array<u32, ${DRAWN_WORDS}>; // 1: the token that was drawn is among the known ones`;

/**
 * Adjusts, and puts the best of both into `ordered`, which has the best of the others. A lane for each adjusted token and, as well, for each
 * of the others. The lists of best-logits.ts have both meanwhile, one behind the other.
 */
export const mergeAdjusted = ({ adjusted }: BatchLayout, most: number): string => `
  let adjustedCount = workgroupUniformLoad(&adjustedOf);
  if (adjustedCount > 0u) {
    var pair = vec2u();
    if (lane < adjustedCount) { pair = best[pairs + lane]; listIds[lane] = pair.y; }
    if (lane < ${DRAWN_WORDS}u) { isKnown[lane] = 0u; }
    workgroupBarrier();
    var occurrences = 0u;
    var bias = 0.0;
    if (lane < known) {
      let at = ${adjusted}u + (firstAdjusted + lane) * ${ADJUSTED_WORDS}u;
      occurrences = batch[at + 1u];
      bias = bitcast<f32>(batch[at + 2u]);
    }
    for (var i = 0u; i < unknown; i++) {
      if (lane < adjustedCount && listIds[known + i] == pair.y) {
        occurrences++;
        if (lane < known) { isKnown[i] = 1u; } // by one lane: each known token is listed once
      }
    }
    workgroupBarrier();
    var isOne = lane < known;
    if (lane >= known && lane < adjustedCount) {
      isOne = isKnown[lane - known] == 0u;
      for (var i = known; i < lane; i++) { if (listIds[i] == pair.y) { isOne = false; } }
    }
    let biased = bitcast<f32>(pair.x) + bias;
    let repeat = bitcast<f32>(batch[draw + 9u]);
    let less = f32(occurrences) * bitcast<f32>(batch[draw + 10u]) + bitcast<f32>(batch[draw + 11u]);
    let penalised = select(biased * repeat, biased / repeat, biased > 0.0) - less;
    let bits = bitcast<u32>(select(biased, penalised, occurrences > 0u));
    let own = select(NONE, vec2u(keyOf(bits), pair.y), isOne);
    if (lane < adjustedCount) { listKeys[lane] = own.x; }
    let other = ordered[min(lane, ${most - 1}u)];
    let isOther = lane < drawn && other.y != NONE.y;
    let otherKey = select(NONE, vec2u(keyOf(other.x), other.y), isOther);
    if (lane < drawn) { listKeys[${ADJUSTED_ROOM}u + lane] = otherKey.x; listIds[${ADJUSTED_ROOM}u + lane] = otherKey.y; }
    workgroupBarrier();
    var ownPlace = 0u;
    var otherPlace = lane;
    for (var i = 0u; i < adjustedCount; i++) {
      let one = vec2u(listKeys[i], listIds[i]);
      if (isBetter(one, own)) { ownPlace++; }
      if (isBetter(one, otherKey)) { otherPlace++; }
    }
    for (var i = 0u; i < drawn; i++) {
      if (isBetter(vec2u(listKeys[${ADJUSTED_ROOM}u + i], listIds[${ADJUSTED_ROOM}u + i]), own)) { ownPlace++; }
    }
    if (isOne && ownPlace < drawn) { ordered[ownPlace] = vec2u(bits, pair.y); }
    if (isOther && otherPlace < drawn) { ordered[otherPlace] = other; }
    workgroupBarrier();
  }`;
