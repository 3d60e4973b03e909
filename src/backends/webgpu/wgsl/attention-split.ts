// Attention of a few tokens over a long context, split into parts of the context (as flash decoding): each part is a workgroup, so
// that a large GPU has enough of them. The matmul that reads attention merges the parts while it stages them.
//
// Workgroups of parts beyond the context end at once; a short context is one part.

import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import type { Binding } from "./kernel.ts";

export interface AttentionSplit {
  /** Positions of a part. */
  readonly span: number;
  /** Parts of the longest context. */
  readonly most: number;
}

const MOST_PARTS = 16;
const LEAST_SPAN = 256;

export function splitOf(positions: number): AttentionSplit {
  const span = Math.max(LEAST_SPAN, Math.ceil(positions / MOST_PARTS / LEAST_SPAN) * LEAST_SPAN);
  return { span, most: Math.max(1, Math.ceil(positions / span)) };
}

/** [token][part][head][value / 4], and for each token, part and head the largest score and the sum of the weights. */
export function splitBindings(writes: boolean): Binding[] {
  return [
    { name: "partials", type: "vec4f", source: { kind: "partials" }, writes },
    { name: "tops", type: "vec2f", source: { kind: "tops" }, writes },
  ];
}

/** Stores `sum`, `highest` and `all` of a head. */
export function splitStoreText(
  { heads, headDim }: NodeOf<"attention">,
  { most }: AttentionSplit,
): string {
  const quads = headDim / 4;
  return `
  let row = (token * ${most}u + group.z) * ${heads}u + head;
  if (lane < ${quads}u) { partials[row * ${quads}u + lane] = sum; }
  if (lane == 0u) { tops[row] = vec2f(highest, all); }`;
}

/** Parts that are loaded before the first of them is used. */
const AT_ONCE = 4;

/** `fn merged4(token, quad, parts)`: values quad * 4 ... + 3 of the token, merged from so many parts. */
export function mergeText(
  { heads, headDim }: NodeOf<"attention">,
  { most }: AttentionSplit,
): string {
  const quads = headDim / 4;
  const together = Math.min(AT_ONCE, most);
  const each = (text: (j: number) => string): string =>
    Array.from({ length: together }, (_, j) => text(j)).join("\n    ");
  const part = (j: number): string => `(first + min(i + ${j}u, parts - 1u))`;
  return `
fn merged4(token: u32, quad: u32, parts: u32) -> vec4f {
  let head = quad / ${quads}u;
  let first = token * ${most}u;
  var highest = -3.0e38;
  for (var i = 0u; i < parts; i += ${together}u) {
    ${each((j) => `let top${j} = tops[${part(j)} * ${heads}u + head];`)}
    ${each((j) => `highest = max(highest, top${j}.x);`)}
  }
  var all = 0.0;
  var sum = vec4f();
  for (var i = 0u; i < parts; i += ${together}u) {
    ${each((j) => `let top${j} = tops[${part(j)} * ${heads}u + head];`)}
    ${each((j) => `let sums${j} = partials[${part(j)} * ${heads * quads}u + quad];`)}
    ${each(
      (
        j,
      ) => `let weight${j} = select(0.0, exp(max(top${j}.x - highest, -100.0)), i + ${j}u < parts);
    all += top${j}.y * weight${j};
    sum += sums${j} * weight${j};`,
    )}
  }
  return sum / all;
}`;
}

/** The number of parts of the token's context, without its own position. */
export function partsText(
  { span }: AttentionSplit,
  { window, chunked }: NodeOf<"attention">,
  batch: BatchLayout,
): string {
  const position = `batch[${batch.positions}u + token]`;
  const within = chunked ? `(${position} % ${window}u)` : `min(${position}, ${window! - 1}u)`;
  const before = window === undefined ? position : within;
  return `max(1u, (${before} + ${span - 1}u) / ${span}u)`;
}

/** Parts of the longest context that a token attends to. */
export function mostParts({ span, most }: AttentionSplit, { window }: NodeOf<"attention">): number {
  return window === undefined ? most : Math.min(most, Math.max(1, Math.ceil(window / span)));
}
