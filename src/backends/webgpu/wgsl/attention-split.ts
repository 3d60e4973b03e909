// Attention of a few tokens over a long context, split into parts of the context (as flash decoding): each part is a workgroup, so
// that a large GPU has enough of them. The last workgroup of a head to be done merges its parts, always in the same order.
//
// WGSL has no order between the stores of one workgroup and the loads of another. So sums pass as atomic words that say themselves
// whether they are there, as in layer.ts: 0 means "not yet", and floats are stored inverted. The merging workgroup sets the words back to 0.
//
// Workgroups of parts beyond the context end at once; a short context is one part, and nothing is merged.

import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import type { Binding } from "./kernel.ts";

export interface AttentionSplit {
  /** Positions of the longest context. */
  readonly positions: number;
}

/** The division of heads among workgroups. */
export interface HeadLanes {
  /** Lanes that compute a head. */
  readonly size: number;
  /** Heads of a workgroup, usually 1. Its lanes are those of one head, then those of the next. */
  readonly together: number;
}

/**
 * Whether heads that share a workgroup are apart if the context is one part: each then has a workgroup, one of those whose part is beyond the context, and the
 * other lanes of that are idle. The bottleneck there is not the memory but the instructions of a few cores.
 */
export function isSpread(
  node: Heads,
  split: AttentionSplit | undefined,
  { together }: Pick<HeadLanes, "together">,
): boolean {
  return together > 1 && split !== undefined && mostParts(split, node) >= together;
}

/** Sets `head`; where heads are spread, also `partIndex` and `isIdle` of a lane, and returns where nothing is left for the workgroup. After spanText(). */
export function headText(node: Heads, split: AttentionSplit | undefined, lanes: HeadLanes): string {
  const { size, together } = lanes;
  if (!isSpread(node, split, lanes)) {
    return `let head = ${together > 1 ? `group.x * ${together}u + lane / ${size}u` : "group.x"};`;
  }
  return `let isOnly = before <= span;
  if (isOnly && group.z >= ${together}u) { return; }
  let isIdle = isOnly && lane >= ${size}u;
  let head = group.x * ${together}u + select(lane / ${size}u, group.z, isOnly);
  let partIndex = select(group.z, 0u, isOnly);`;
}

/** Sets `name` to where the memory of a lane's head begins, of which each head of a workgroup has `count`. */
export function memoryOfHead(name: string, count: number, { size, together }: HeadLanes): string {
  return together > 1 ? `let ${name} = (lane / ${size}u) * ${count}u;` : `const ${name} = 0u;`;
}

const MOST_PARTS = 16;
/** Positions of a part, at least; a context of more is split. */
export const LEAST_SPAN = 256;
/** Positions of a part are a multiple of this. */
const SPAN_STEP = 64;

/**
 * Workgroups of a token, at most: an H200 runs this many of 256 lanes at a time, and half as many of 512. With a few more, most of its cores would wait for those that
 * have two: with 384 of them, a token of a 7B after 6,000 others took 2.56 ms in layer kernels instead of 2.26.
 */
const MOST_WORKGROUPS = 256;

/** The context is split if it is long; undefined: it cannot be. */
export function splitFor({ positions }: AttentionSplit): AttentionSplit | undefined {
  return positions > LEAST_SPAN ? { positions } : undefined;
}

type Heads = Pick<NodeOf<"attention">, "heads" | "headDim" | "window">;

/** Parts of the longest context that a token attends to. */
export function mostParts({ positions }: AttentionSplit, { heads, window }: Heads): number {
  const wanted = Math.max(1, Math.min(MOST_PARTS, Math.floor(MOST_WORKGROUPS / heads)));
  return Math.max(
    1,
    Math.min(wanted, Math.ceil(Math.min(positions, window ?? Infinity) / LEAST_SPAN)),
  );
}

/** Words before a head's parts: the number of parts that are done. */
const HEAD_WORDS = 4;
/** Words of a part behind its sums: the largest score, and the sum of the weights. */
const TOP_WORDS = 4;

/** Words of all parts of a token. */
export function splitWords(node: Heads, split: AttentionSplit): number {
  return node.heads * headWords(node, split);
}

function headWords(node: Heads, split: AttentionSplit): number {
  return HEAD_WORDS + mostParts(split, node) * (node.headDim + TOP_WORDS);
}

/** [token][head][HEAD_WORDS, then for each part its sums and TOP_WORDS] */
export const splitBinding: Binding = {
  name: "partials",
  type: "atomic<u32>",
  source: { kind: "partials" },
  writes: true,
};

/** The number of polls for a word that was stored before its part was counted: it must be there very soon. */
export const POLLS = 65536;

/** `most`: parts of a head; `together`: heads of a workgroup. */
export function splitDeclarations(most: number, together: number): string {
  return `
var<workgroup> arrivals: array<u32, 1>;
var<workgroup> partTops: array<vec2f, ${most * together}>; // [head of the workgroup][part]: the largest score, the sum of the weights
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

/**
 * Stores `sum`, `highest` and `all` of a part; or the result, where it is the only one or the last to be done. The heads of a workgroup, `size` lanes each, are done
 * at the same time: they count once, where the first of them counts.
 */
export function splitStoreText(
  node: NodeOf<"attention">,
  split: AttentionSplit,
  lanes: HeadLanes,
  put: PutText,
): string {
  const { size, together } = lanes;
  const { heads, headDim } = node;
  const quads = headDim / 4;
  const most = mostParts(split, node);
  const words = headWords(node, split);
  const partWords = headDim + TOP_WORDS;
  const turns = size / quads;
  const atOnce = Math.min(AT_ONCE, Math.ceil(most / turns));
  const each = (text: (j: number) => string, between = "\n    "): string =>
    Array.from({ length: atOnce }, (_, j) => text(j)).join(between);
  const four = (text: (word: string) => string): string =>
    [0, 1, 2, 3].map((i) => text(`${i}u`)).join(" ");
  const has = (j: number): string => `i + ${j * turns}u < parts`;
  return `
  let parts = max(1u, (before + span - 1u) / span);
  let quad = place % ${quads}u;
  if (parts == 1u) {
    ${put("sum / all")}
    return;
  }
  let counter = (token * ${heads}u + group.x * ${together}u) * ${words}u;
  let firstPart = (token * ${heads}u + head) * ${words}u + ${HEAD_WORDS}u;
  ${memoryOfHead("firstTop", most, lanes)}
  let ownPart = firstPart + group.z * ${partWords}u; // there are smallBatch: heads are not spread
  if (place < ${quads}u) { ${four((i) => `setPart(ownPart + quad * 4u + ${i}, sum[${i}]);`)} }
  if (place == 0u) {
    setPart(ownPart + ${headDim}u, highest);
    setPart(ownPart + ${headDim + 1}u, all);
  }
  if (lane == 0u) { arrivals[0] = atomicAdd(&partials[counter], 1u); }
  if (workgroupUniformLoad(&arrivals[0]) + 1u < parts) { return; }
  if (lane == 0u) { clearPart(counter); }
  for (var i = place; i < parts; i += ${size}u) {
    let at = firstPart + i * ${partWords}u + ${headDim}u;
    var words = vec2u();
    for (var polls = 0u; polls < ${POLLS}u; polls++) {
      words = vec2u(partWord(at), partWord(at + 1u));
      if (isThere(words.xyxy)) { break; }
    }
    partTops[firstTop + i] = bitcast<vec2f>(~words);
    clearPart(at);
    clearPart(at + 1u);
  }
  workgroupBarrier();
  var largest = partTops[firstTop].x;
  for (var i = 1u; i < parts; i++) { largest = max(largest, partTops[firstTop + i].x); }
  // Lanes take parts in turns.
  var ownSum = vec4f();
  for (var i = place / ${quads}u; i < parts; i += ${atOnce * turns}u) {
    ${each((j) => `let at${j} = firstPart + min(i + ${j * turns}u, parts - 1u) * ${partWords}u + quad * 4u;`)}
    ${each((j) => `var words${j} = vec4u();`)}
    for (var polls = 0u; polls < ${POLLS}u; polls++) {
      ${each((j) => `words${j} = part4(at${j});`)}
      if (${each((j) => `(isThere(words${j}) || !(${has(j)}))`, " && ")}) { break; }
    }
    ${each(
      (j) => `if (${has(j)}) {
      ownSum += bitcast<vec4f>(~words${j}) * exp(max(partTops[firstTop + i + ${j * turns}u].x - largest, -100.0));
      ${four((word) => `clearPart(at${j} + ${word});`)}
    }`,
    )}
  }
  turned[lane] = ownSum;
  workgroupBarrier();
  var whole = vec4f();
  var weights = 1.0;
  if (place < ${quads}u) {
    weights = 0.0;
    for (var i = 0u; i < parts; i++) { weights += partTops[firstTop + i].y * exp(max(partTops[firstTop + i].x - largest, -100.0)); }
    whole = turned[lane];
    for (var i = 1u; i < ${turns}u; i++) { whole += turned[i * ${quads}u + lane]; }
  }
  ${put("whole / weights")}`;
}

/** Sets `before`, the positions of the token's context without its own, and `span`, those of a part: both depend on the token alone. */
export function spanText(
  node: NodeOf<"attention">,
  split: AttentionSplit,
  batch: BatchLayout,
): string {
  const { window, chunked } = node;
  const position = `batch[${batch.positions}u + token]`;
  const within = chunked ? `${position} % ${window}u` : `min(${position}, ${window! - 1}u)`;
  const most = mostParts(split, node);
  return `let before = ${window === undefined ? position : within};
  let span = max(${LEAST_SPAN}u, (before + ${most * SPAN_STEP - 1}u) / ${most * SPAN_STEP}u * ${SPAN_STEP}u);`;
}
