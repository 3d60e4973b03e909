// attention of many tokens on matrix units (Chromium's experimental subgroup matrices), over a cache of half floats. A workgroup
// computes one head of 64 tokens of a batch, each team 16 of them, block after block of the cache.
//
// A shader cannot reach single elements of a matrix, so sums cannot be scaled while they grow, as an online softmax would. The
// blocks are passed twice instead: first for the largest score of each token, then for weights and sums. Scores go through
// workgroup memory. Queries and weights are rounded to half floats; sums are float32.
//
// Tokens of a tile may be of several sequences: each sequence is computed in turn, and the weights of other tokens are 0. What
// a token gets depends on its own positions alone, in their order, and so not on the other tokens of a batch.

import { countOf, KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { scoreText } from "./attention-options.ts";
import { type Kernel, makeKernel } from "./kernel.ts";
import { type KvFormats, kvRowWords } from "./kv-format.ts";
import { each } from "./matmul-few.ts";
import { type MatrixCalls, UNIT } from "./matrix-calls.ts";
import { TEAM } from "./teams.ts";

const TEAMS = 4;
const LANES = TEAMS * TEAM;
/** Tokens of a workgroup. */
const TOKENS = TEAMS * UNIT;
/** Positions that are computed at a time: a block of the cache. */
const POSITIONS = KV_BLOCK_TOKENS;
/** Elements from a row of scores, and of weights, to the next: rows do not begin in the same bank. */
const SCORES_PITCH = POSITIONS + 4;
const WEIGHTS_PITCH = POSITIONS + 8;
/** The largest head whose matrices fit the registers. */
const MOST_HEAD_VALUES = 128;

/** Whether there is such a kernel for these heads, this cache and these options. */
export function hasMatrixAttention(node: NodeOf<"attention">, { k, v }: KvFormats): boolean {
  const { headDim, vHeadDim, causal, window, sinks, alibi, bias } = node;
  const isPlain = causal && window === undefined && !sinks && !alibi && !bias;
  const fits = headDim === vHeadDim && headDim % (2 * UNIT) === 0 && headDim <= MOST_HEAD_VALUES;
  return isPlain && fits && k === v && k.isHalves === true;
}

export function attentionMatricesKernel(
  node: NodeOf<"attention">,
  { k: format }: KvFormats,
  batch: BatchLayout,
  calls: MatrixCalls,
  minRows: number,
): Kernel {
  const { heads, kvHeads, headDim, q, out, state } = node;
  const eights = headDim / 8;
  const depth = headDim / UNIT;
  const pitch = headDim + 8;
  const rowEights = kvRowWords(format, kvHeads * headDim) / 4;
  const kvHead = `(head / ${heads / kvHeads}u)`;
  /** Copies a block of keys or values into the tile from row `first` on, 16 bytes at a time. */
  const stage = (from: string, first: number): string => `
    for (var item = lane; item < ${POSITIONS * eights}u; item += ${LANES}u) {
      let eight = ${from}[(slot * ${POSITIONS}u + item / ${eights}u) * ${rowEights}u + ${kvHead} * ${eights}u + item % ${eights}u];
      let to = ((${first}u + item / ${eights}u) * ${pitch / 8}u + item % ${eights}u) * 8u;
      ${pairs("eight")}
    }`;
  const pairs = (eight: string): string =>
    each(
      4,
      (j) =>
        `let pair${j} = bitcast<vec2h>(${eight}[${j}]); tile[to + ${2 * j}u] = pair${j}.x; tile[to + ${2 * j + 1}u] = pair${j}.y;`,
    );
  /** Scores of the team's tokens and the positions of the block: token by position. */
  const scoresText = `
    ${each(
      POSITIONS / UNIT,
      (n) => `{
      var found = Sums(); // a matrix declared in a loop without a value would keep that of the last turn
      ${each(
        depth,
        (d) =>
          `found = ${calls.multiply(`query${d}`, calls.load("Right", "&tile", `(${(n * UNIT * pitch) / 8}u + ${(d * UNIT) / 8}u) * 8u`, "col", pitch), "found")};`,
      )}
      ${calls.store("&scores", `(team * ${(UNIT * SCORES_PITCH) / 4}u + ${(n * UNIT) / 4}u) * 4u`, "found", SCORES_PITCH)};
    }`,
    )}
    workgroupBarrier();`;
  /** Does something with each of the lane's 16 scores: half a row. */
  const eachScore = (text: string): string => `
    for (var j = 0u; j < ${UNIT}u; j++) {
      let position = block * ${POSITIONS}u + part * ${UNIT}u + j;
      let score = ${scoreText(node, `scores[(team * ${UNIT}u + row) * ${SCORES_PITCH}u + part * ${UNIT}u + j]`, "head")};
      ${text}
    }`;
  return makeKernel({
    name: `attention-matrices ${heads}/${kvHeads} heads of ${headDim}`,
    bindings: [
      { name: "q", type: "vec4f", source: { kind: "value", value: q } },
      { name: "keys", type: "vec4u", source: { kind: "keys", state } },
      { name: "values", type: "vec4u", source: { kind: "values", state } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    quiet: ["chromium.subgroup_matrix_uniformity"],
    enables: [calls.enables],
    size: LANES,
    declarations: `
var<workgroup> tile: array<f16, ${TOKENS * pitch}>; // queries; then keys, and values behind them: [row][value]
var<workgroup> scores: array<f32, ${TOKENS * SCORES_PITCH}>; // [token][position]
var<workgroup> weights: array<f16, ${TOKENS * WEIGHTS_PITCH}>; // [token][position]
${calls.types}`,
    rows: out.rows,
    minRows,
    grid: (tokens) => [heads, Math.ceil(tokens / TOKENS), 1],
    body: `
  let tokenCount = batch[${countOf(out.rows)}u];
  let head = group.x;
  let firstToken = batch[${batch.short}u] + group.y * ${TOKENS}u;
  let lastToken = min(firstToken + ${TOKENS}u, tokenCount);
  let team = lane / ${TEAM}u;
  let row = (lane % ${TEAM}u) / 2u; // of the team's tokens; a lane has every second part of its scores
  let part = lane % 2u;
  let token = min(firstToken + team * ${UNIT}u + row, tokenCount - 1u);
  let length = batch[${batch.positions}u + token] + 1u;
  for (var item = lane; item < ${TOKENS * eights}u; item += ${LANES}u) {
    let source = min(firstToken + item / ${eights}u, tokenCount - 1u);
    let at = (source * ${heads}u + head) * ${headDim / 4}u + item % ${eights}u * 2u;
    let low = vec4h(q[at]);
    let high = vec4h(q[at + 1u]);
    let to = (item / ${eights}u * ${pitch / 8}u + item % ${eights}u) * 8u;
    ${each(4, (j) => `tile[to + ${j}u] = low[${j}]; tile[to + ${j + 4}u] = high[${j}];`)}
  }
  workgroupBarrier();
  ${each(depth, (d) => `let query${d} = ${calls.load("Left", "&tile", `(team * ${(UNIT * pitch) / 8}u + ${(d * UNIT) / 8}u) * 8u`, "row", pitch)};`)}
  workgroupBarrier();
  var top = -3.0e38;
  var total = 0.0;
  ${each(depth, (d) => `var sums${d}: Sums;`)}
  for (var begin = firstToken; begin < lastToken;) {
    let sequence = batch[${batch.sequences}u + begin];
    var end = begin;
    var longest = 0u;
    while (end < lastToken && batch[${batch.sequences}u + end] == sequence) {
      longest = max(longest, batch[${batch.positions}u + end] + 1u);
      end++;
    }
    let isOwn = token >= begin && token < end;
    let table = ${batch.tables[state]}u + sequence * ${batch.tableLength}u;
    let blocks = (longest + ${POSITIONS - 1}u) / ${POSITIONS}u;
    for (var block = 0u; block < blocks; block++) {
      let slot = batch[table + block];
      ${stage("keys", 0)}
      workgroupBarrier();
      ${scoresText}
      if (isOwn) { ${eachScore("if (position < length) { top = max(top, score); }")} }
    }
    top = max(top, subgroupShuffleXor(top, 1u));
    workgroupBarrier();
    for (var block = 0u; block < blocks; block++) {
      let slot = batch[table + block];
      ${stage("keys", 0)}
      ${stage("values", POSITIONS)}
      workgroupBarrier();
      ${scoresText}
      ${eachScore(`let weight = f16(select(0.0, exp(max(score - top, -100.0)), isOwn && position < length));
      total += f32(weight);
      weights[(team * ${UNIT}u + row) * ${WEIGHTS_PITCH}u + part * ${UNIT}u + j] = weight;`)}
      workgroupBarrier();
      ${each(
        POSITIONS / UNIT,
        (n) => `{
      let left = ${calls.load("Left", "&weights", `(team * ${(UNIT * WEIGHTS_PITCH) / 8}u + ${(n * UNIT) / 8}u) * 8u`, "row", WEIGHTS_PITCH)};
      ${each(
        depth,
        (d) =>
          `sums${d} = ${calls.multiply("left", calls.load("Right", "&tile", `(${((POSITIONS + n * UNIT) * pitch) / 8}u + ${(d * UNIT) / 8}u) * 8u`, "row", pitch), `sums${d}`)};`,
      )}
      }`,
      )}
      workgroupBarrier();
    }
    begin = end;
  }
  total += subgroupShuffleXor(total, 1u);
  let isThere = firstToken + team * ${UNIT}u + row < tokenCount;
  ${each(
    depth / 2,
    (d) => `
  ${calls.store("&scores", `(team * ${(UNIT * SCORES_PITCH) / 4}u) * 4u`, `sums${2 * d}`, SCORES_PITCH)};
  ${calls.store("&scores", `(team * ${(UNIT * SCORES_PITCH) / 4}u + ${UNIT / 4}u) * 4u`, `sums${2 * d + 1}`, SCORES_PITCH)};
  workgroupBarrier();
  if (isThere) {
    for (var j = 0u; j < ${UNIT}u; j++) {
      result[(token * ${heads}u + head) * ${headDim}u + ${2 * d * UNIT}u + part * ${UNIT}u + j] = scores[(team * ${UNIT}u + row) * ${SCORES_PITCH}u + part * ${UNIT}u + j] / total;
    }
  }
  workgroupBarrier();`,
  )}`,
  });
}
