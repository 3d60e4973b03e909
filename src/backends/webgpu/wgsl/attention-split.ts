// Attention of a few tokens over a long context, split into parts of the context (as flash decoding): each part is a workgroup, so
// that a large GPU has enough of them. The last workgroup of a head to be done merges its parts, always in the same order.
//
// WGSL has no order between the stores of one workgroup and the loads of another. So sums pass as atomic words that say themselves
// whether they are there, as in layer.ts: 0 means "not yet", and floats are stored inverted. Who merges sets the words back to 0.
//
// Workgroups of parts beyond the context end at once; a short context is one part, and nothing is merged.

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

type Heads = Pick<NodeOf<"attention">, "heads" | "headDim">;

/** Words before a head's parts: how many of them are done. */
const HEAD_WORDS = 4;
/** Words of a part behind its sums: the largest score, and the sum of the weights. */
const TOP_WORDS = 4;

/** Words of all parts of a token. */
export function splitWords({ heads, headDim }: Heads, { most }: AttentionSplit): number {
  return heads * (HEAD_WORDS + most * (headDim + TOP_WORDS));
}

/** [token][head][HEAD_WORDS, then for each part its sums and TOP_WORDS] */
export const splitBinding: Binding = {
  name: "partials",
  type: "atomic<u32>",
  source: { kind: "partials" },
  writes: true,
};

/** How often a word is looked for that was stored before its part was counted: it must be there very soon. */
const POLLS = 65536;

export function splitDeclarations({ most }: AttentionSplit): string {
  return `
var<workgroup> arrivals: array<u32, 1>;
var<workgroup> partTops: array<vec2f, ${most}>; // [part]: the largest score, the sum of the weights
fn partWord(at: u32) -> u32 { return atomicLoad(&partials[at]); }
fn part4(at: u32) -> vec4u { return vec4u(partWord(at), partWord(at + 1u), partWord(at + 2u), partWord(at + 3u)); }
fn isThere(words: vec4u) -> bool { return all(words != vec4u()); }
fn setPart(at: u32, value: f32) { atomicStore(&partials[at], max(~bitcast<u32>(value), 1u)); }
fn clearPart(at: u32) { atomicStore(&partials[at], 0u); }`;
}

/** Parts that a lane loads before the first of them is used. */
const AT_ONCE = 4;

/** WGSL that stores four values of the result, which each of the first lanes has; the whole workgroup executes it. */
export type PutText = (value: string) => string;

/** Stores `sum`, `highest` and `all` of a part; or the result, where it is the only one or the last to be done. */
export function splitStoreText(
  node: NodeOf<"attention">,
  split: AttentionSplit,
  batch: BatchLayout,
  size: number,
  put: PutText,
): string {
  const { heads, headDim } = node;
  const quads = headDim / 4;
  const partWords = headDim + TOP_WORDS;
  const turns = size / quads;
  const together = Math.min(AT_ONCE, Math.ceil(split.most / turns));
  const each = (text: (j: number) => string, between = "\n    "): string =>
    Array.from({ length: together }, (_, j) => text(j)).join(between);
  const four = (text: (word: string) => string): string =>
    [0, 1, 2, 3].map((i) => text(`${i}u`)).join(" ");
  const has = (j: number): string => `i + ${j * turns}u < parts`;
  return `
  let parts = ${partsText(split, node, batch)};
  let quad = lane % ${quads}u;
  if (parts == 1u) {
    ${put("sum / all")}
    return;
  }
  let counter = (token * ${heads}u + head) * ${splitWords({ heads: 1, headDim }, split)}u;
  let firstPart = counter + ${HEAD_WORDS}u;
  let ownPart = firstPart + group.z * ${partWords}u;
  if (lane < ${quads}u) { ${four((i) => `setPart(ownPart + quad * 4u + ${i}, sum[${i}]);`)} }
  if (lane == 0u) {
    setPart(ownPart + ${headDim}u, highest);
    setPart(ownPart + ${headDim + 1}u, all);
    arrivals[0] = atomicAdd(&partials[counter], 1u);
  }
  if (workgroupUniformLoad(&arrivals[0]) + 1u < parts) { return; }
  if (lane == 0u) { clearPart(counter); }
  for (var i = lane; i < parts; i += ${size}u) {
    let at = firstPart + i * ${partWords}u + ${headDim}u;
    var words = vec2u();
    for (var polls = 0u; polls < ${POLLS}u; polls++) {
      words = vec2u(partWord(at), partWord(at + 1u));
      if (isThere(words.xyxy)) { break; }
    }
    partTops[i] = bitcast<vec2f>(~words);
    clearPart(at);
    clearPart(at + 1u);
  }
  workgroupBarrier();
  var largest = partTops[0].x;
  for (var i = 1u; i < parts; i++) { largest = max(largest, partTops[i].x); }
  // Lanes take parts in turns.
  var ownSum = vec4f();
  for (var i = lane / ${quads}u; i < parts; i += ${together * turns}u) {
    ${each((j) => `let at${j} = firstPart + min(i + ${j * turns}u, parts - 1u) * ${partWords}u + quad * 4u;`)}
    ${each((j) => `var words${j} = vec4u();`)}
    for (var polls = 0u; polls < ${POLLS}u; polls++) {
      ${each((j) => `words${j} = part4(at${j});`)}
      if (${each((j) => `(isThere(words${j}) || !(${has(j)}))`, " && ")}) { break; }
    }
    ${each(
      (j) => `if (${has(j)}) {
      ownSum += bitcast<vec4f>(~words${j}) * exp(max(partTops[i + ${j * turns}u].x - largest, -100.0));
      ${four((word) => `clearPart(at${j} + ${word});`)}
    }`,
    )}
  }
  turned[lane] = ownSum;
  workgroupBarrier();
  var whole = vec4f();
  var weights = 1.0;
  if (lane < ${quads}u) {
    weights = 0.0;
    for (var i = 0u; i < parts; i++) { weights += partTops[i].y * exp(max(partTops[i].x - largest, -100.0)); }
    whole = turned[lane];
    for (var i = 1u; i < ${turns}u; i++) { whole += turned[i * ${quads}u + lane]; }
  }
  ${put("whole / weights")}`;
}

/** The number of parts of the token's context, without its own position. */
function partsText(
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
