// attention of many tokens on matrix units (Chromium's experimental subgroup matrices), over a cache of half floats, or of quants that
// become half floats on their way to workgroup memory. A workgroup computes one head of 64 or 128 tokens of a batch, each subgroup 16 of
// them, block after block of the cache.
//
// The softmax takes one pass. A shader cannot reach single elements of a matrix, so sums cannot be scaled in registers whenever a
// larger score comes. Each token has a reference instead, to which its weights are relative and which its first block sets: half
// floats leave room for weights far above 1. Only a score beyond that room raises the reference. Then sums go through workgroup
// memory to be scaled, those of other tokens by exactly 1.
//
// A block has few barriers: while weights are made of its scores, its values and the next keys are put into the tile. All of
// workgroup memory is vectors of 16 bytes, for any format of the matrices.
//
// A tile may have tokens of several sequences: one sequence is computed after the other, and the weights of other tokens are 0.
// The result of a token depends on its own positions alone, in their order, and so not on the other tokens of a batch, nor on
// the subgroups.

import { countOf, KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { scoreText } from "./attention-options.ts";
import { float, type Kernel, makeKernel } from "./kernel.ts";
import { type KvFormats, type KvVectors, kvRowWords } from "./kv-format.ts";
import { each } from "./matmul-chunks.ts";
import { type MatrixCalls, UNIT } from "./matrix-calls.ts";
import type { Matrices } from "./matrix-shapes.ts";
import { SUBGROUP } from "./subgroups.ts";

/** Positions that are computed at a time: a block of the cache. */
const POSITIONS = KV_BLOCK_TOKENS;
/** Matrices beside each other that hold scores or weights of a block. */
const MATRICES = POSITIONS / UNIT;
/** Rows of the tile: keys, then values. */
const ROWS = 2 * POSITIONS;
/** Half floats, and floats, of a vector. */
const HALVES = 8;
const FLOATS = 4;
/** Vectors of a row of scores, and from it to the next: rows do not begin in the same bank. */
const SCORES = POSITIONS / FLOATS;
const SCORES_PITCH = SCORES + 1;
/** Vectors of a row of a matrix of weights. */
const WEIGHTS = UNIT / HALVES;
/** The largest head whose matrices fit the registers. */
const MOST_HEAD_VALUES = 128;
/** The most that a score may exceed its token's reference. Scores are powers of 2 here, and half floats end at 2^16. */
const ROOM = "15.0";
/** The score of a position that is not attended to, and the reference of a token without any yet: far above, so that its weights are 0. */
const LOWEST = "-3.0e38";
const UNSET = "-1.0e38";
/** A power of 2 that is 0 as a half float. */
const LEAST = "-140.0";
/** The number of a block, of all sequences. */
const STEP = "block + 1u + steps";
/** Workgroup memory with which two workgroups share a core. Measured on an NVIDIA H200. */
const HALF_A_CORE = 24 * 1024;

/** Whether there is such a kernel for these heads, this cache and these options. */
export function hasMatrixAttention(
  node: NodeOf<"attention">,
  { k, v }: KvFormats,
  { bytes }: Pick<Matrices, "bytes">,
): boolean {
  const { headDim, vHeadDim, kvHeads, causal, window, sinks, alibi, bias } = node;
  const isPlain = causal && window === undefined && !sinks && !alibi && !bias;
  const fits = headDim === vHeadDim && headDim % (2 * UNIT) === 0 && headDim <= MOST_HEAD_VALUES;
  const hasCapacity = bytesOf(headDim, FEW_SUBGROUPS) <= bytes;
  const { vectors } = k;
  const isWhole = k === v && vectors?.halves && (kvHeads * headDim) % vectors.together === 0;
  return isPlain && fits && hasCapacity && isWhole === true;
}

const FEW_SUBGROUPS = 4;
const MANY_SUBGROUPS = 8;

/** Subgroups of a workgroup: where two workgroups do not fit on a core, twice as many, which load each block once. */
export function subgroupsFor(headDim: number, bytes: number): number {
  const isMany =
    bytesOf(headDim, FEW_SUBGROUPS) > HALF_A_CORE && bytesOf(headDim, MANY_SUBGROUPS) <= bytes;
  return isMany ? MANY_SUBGROUPS : FEW_SUBGROUPS;
}

/** Workgroup memory. */
function bytesOf(headDim: number, subgroups: number): number {
  const tokens = subgroups * UNIT;
  return 16 * (ROWS * pitchOf(headDim) + tokens * (SCORES_PITCH + MATRICES * WEIGHTS)) + 4;
}

/** Vectors from a row of the tile to the next: rows do not begin in the same bank. */
function pitchOf(headDim: number): number {
  return headDim / HALVES + 1;
}

export function attentionMatricesKernel(
  node: NodeOf<"attention">,
  { k: format }: KvFormats,
  batch: BatchLayout,
  calls: MatrixCalls,
  minRows: number,
  subgroups: number,
): Kernel {
  const { heads, kvHeads, headDim, q, out, state } = node;
  const lanes = subgroups * SUBGROUP;
  const tokens = subgroups * UNIT;
  const vectors = format.vectors!;
  const cols = kvHeads * headDim;
  const tile = tileOf(headDim, vectors, kvRowWords(format, cols), lanes);
  const { depth } = tile;
  return makeKernel({
    name: `attention-matrices ${heads}/${kvHeads} heads of ${headDim}`,
    bindings: [
      { name: "q", type: "vec4f", source: { kind: "value", value: q } },
      { name: "keys", type: "vec4u", source: { kind: "keys", state } },
      { name: "values", type: "vec4u", source: { kind: "values", state } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "vec4f", source: { kind: "value", value: out }, writes: true },
    ],
    quiet: ["chromium.subgroup_matrix_uniformity"], // the numbers of a subgroup are uniform in its lanes
    enables: [calls.enables],
    size: lanes,
    declarations: `
var<workgroup> tile: array<vec4u, ${ROWS * tile.pitch}>; // queries; then keys, and values behind them: [row][value]
var<workgroup> scores: array<vec4f, ${tokens * SCORES_PITCH}>; // [token][position]
var<workgroup> weights: array<vec4u, ${tokens * MATRICES * WEIGHTS}>; // [subgroup][matrix][token][position]
var<workgroup> raisedIn: atomic<u32>; // the last step in which a reference was raised
${vectors.declarations}${vectors.load("keys", cols)}${vectors.load("values", cols)}${vectors.halves!}
${calls.types}`,
    rows: out.rows,
    minRows,
    grid: (count) => [heads, Math.ceil(count / tokens), 1],
    body: `
  if (lane == 0u) { atomicStore(&raisedIn, 0u); }
  let tokenCount = batch[${countOf(out.rows)}u];
  let head = group.x;
  let firstToken = batch[${batch.short}u] + (groups.y - 1u - group.y) * ${tokens}u; // the longest first
  let lastToken = min(firstToken + ${tokens}u, tokenCount);
  let subgroup = lane / ${SUBGROUP}u;
  let row = (lane % ${SUBGROUP}u) / 2u; // of the subgroup's tokens
  let part = lane % 2u; // of the row's scores
  let own = (subgroup * ${UNIT}u + row) * ${SCORES_PITCH}u + part * ${UNIT / FLOATS}u;
  let token = min(firstToken + subgroup * ${UNIT}u + row, tokenCount - 1u);
  let ownLength = batch[${batch.positions}u + token] + 1u;
  let ownSequence = batch[${batch.sequences}u + token];
  ${queriesText(node, tile, calls, subgroups)}
  ${tile.addresses(`head / ${heads / kvHeads}u * ${headDim}u`)}
  var reference = ${UNSET};
  var total = 0.0;
  ${each(depth, (d) => `var sums${d}: Sums;`)}
  var steps = 0u; // of earlier sequences
  for (var begin = firstToken; begin < lastToken;) {
    let sequence = batch[${batch.sequences}u + begin];
    var end = lastToken;
    if (batch[${batch.sequences}u + end - 1u] != sequence) {
      end = begin + 1u;
      while (batch[${batch.sequences}u + end] == sequence) { end++; }
    }
    let lastBlock = batch[${batch.positions}u + end - 1u] / ${POSITIONS}u; // positions of a sequence are consecutive
    let length = select(0u, ownLength, ownSequence == sequence);
    let table = ${batch.tables[state]}u + sequence * ${batch.tableLength}u;
    let first = batch[table];
    // The slots of the next two blocks; after the last block, it again.
    var next = batch[table + min(1u, lastBlock)];
    var second = batch[table + min(2u, lastBlock)];
    ${tile.load("var key", "keys", "first")}
    ${tile.load("var value", "values", "first")}
    ${tile.put("key", 0)}
    ${tile.load("key", "keys", "next")}
    workgroupBarrier();
    for (var block = 0u; block <= lastBlock; block++) {
      ${scoresText(tile, calls)}
      workgroupBarrier(); // nobody needs these keys any more, nor the values before
      ${tile.put("key", 0)}
      ${tile.put("value", POSITIONS)}
      ${tile.load("key", "keys", "second")}
      ${tile.load("value", "values", "next")}
      next = second;
      second = batch[table + min(block + 3u, lastBlock)];
      ${weightsText(node)}
      if (workgroupUniformLoad(&raisedIn) == ${STEP}) { // with barriers before and behind
        ${scaleText(depth, calls)}
      }
      ${sumsText(tile, calls)}
    }
    steps += lastBlock + 1u;
    begin = end;
  }
  ${resultText(node, calls)}`,
  });
}

/** The tile of keys and values, and how lanes fill it: each with some vectors of a block, which are loaded long before. */
interface Tile {
  readonly pitch: number;
  /** Matrices that hold a head. */
  readonly depth: number;
  /** The rows of the lane's vectors in a block of the cache, row0, row1, ..., and where they begin in them; `head`: where the head begins. */
  addresses(head: string): string;
  load(to: string, from: string, slot: string): string;
  /** From row `first` on. */
  put(from: string, first: number): string;
  /** Of matrix `d` of the 16 rows from `row` on. */
  at(row: number, d: number): string;
}

function tileOf(headDim: number, vectors: KvVectors, rowWords: number, lanes: number): Tile {
  const { values } = vectors;
  const inHead = headDim / values;
  const pitch = pitchOf(headDim);
  const items = Math.ceil((POSITIONS * inHead) / lanes);
  const isWhole = (POSITIONS * inHead) % lanes === 0;
  // If a row's vectors divide the lanes, the terms without i are separate: a compiler adds the rest up.
  const vector = (i: number): readonly [string, string] =>
    lanes % inHead === 0
      ? [`(lane / ${inHead}u + ${(i * lanes) / inHead}u)`, `lane % ${inHead}u`]
      : [`((lane + ${i * lanes}u) / ${inHead}u)`, `(lane + ${i * lanes}u) % ${inHead}u`];
  return {
    pitch,
    depth: headDim / UNIT,
    addresses: (head) =>
      each(items, (i) => {
        const [row, column] = vector(i);
        const inBlock = isWhole ? row : `min(${row}, ${POSITIONS - 1}u)`;
        return `let row${i} = ${inBlock} * ${rowWords}u;
  let column${i} = ${head} + ${column} * ${values}u;`;
      }),
    load: (to, from, slot) =>
      each(
        items,
        (i) => `${to}${i} = ${from}At(${slot} * ${POSITIONS * rowWords}u + row${i}, column${i});`,
      ),
    put: (from, first) =>
      each(items, (i) => {
        const [row, column] = vector(i);
        const isOwn = isWhole ? "" : `if (${row} < ${POSITIONS}u) `;
        const at = `(${first}u + ${row}) * ${pitch}u + ${column} * ${values / HALVES}u`;
        const stores = each(values / HALVES, (j) => `tile[${at} + ${j}u] = halves[${j}];`);
        return `${isOwn}{ let halves = halvesOf(${from}${i}); ${stores} }`;
      }),
    at: (row, d) => `${row * pitch + (d * UNIT) / HALVES}u`,
  };
}

/** query0, query1, ...: the queries of the subgroup's tokens as half floats, through the tile, as many tokens at a time as it has rows. */
function queriesText(
  { heads, headDim }: NodeOf<"attention">,
  tile: Tile,
  calls: MatrixCalls,
  subgroups: number,
): string {
  const eights = headDim / HALVES;
  const items = (ROWS * eights) / (subgroups * SUBGROUP);
  const turns = (subgroups * UNIT) / ROWS;
  const load = (d: number): string => {
    const at = `(subgroup * ${UNIT}u % ${ROWS}u) * ${tile.pitch}u + ${tile.at(0, d)}`;
    return calls.load("Left", "&tile", at, "row", tile.pitch, "vec4u");
  };
  const vector = (i: number): readonly [row: string, column: string] => {
    const item = `(lane + ${i * subgroups * SUBGROUP}u)`;
    return [`${item} / ${eights}u`, `${item} % ${eights}u`];
  };
  const loaded = (turn: number, i: number): string => {
    const [row, column] = vector(i);
    const token = `min(firstToken + ${turn * ROWS}u + ${row}, tokenCount - 1u)`;
    const name = `${turn}_${i}`;
    return `
  let source${name} = (${token} * ${heads}u + head) * ${headDim / FLOATS}u + ${column} * 2u;
  let low${name} = vec4h(q[source${name}]);
  let high${name} = vec4h(q[source${name} + 1u]);`;
  };
  const put = (turn: number, i: number): string => {
    const [row, column] = vector(i);
    const eight = ["low", "high"].map((half) => `bitcast<vec2u>(${half}${turn}_${i})`).join(", ");
    return `tile[${row} * ${tile.pitch}u + ${column}] = vec4u(${eight});`;
  };
  return `
  ${each(tile.depth, (d) => `var query${d}: Left;`)}
  ${each(
    turns,
    (turn) => `
  ${each(items, (i) => loaded(turn, i))}
  ${each(items, (i) => put(turn, i))}
  workgroupBarrier();
  ${turns > 1 ? `if (subgroup * ${UNIT}u / ${ROWS}u == ${turn}u) ` : ""}{
    ${each(tile.depth, (d) => `query${d} = ${load(d)};`)}
  }
  workgroupBarrier();`,
  )}`;
}

/** The offset of matrix `n` of the subgroup's rows of scores. */
function scoresAt(n: number): string {
  return `subgroup * ${UNIT * SCORES_PITCH}u + ${(n * UNIT) / FLOATS}u`;
}

/** Stores matrices as scores, or other sums that replace them. */
function storesText(calls: MatrixCalls, name: (n: number) => string): string {
  return each(
    MATRICES,
    (n) => `${calls.store("&scores", scoresAt(n), name(n), SCORES_PITCH, "vec4f")};`,
  );
}

/** Dot products of the subgroup's tokens and the positions of the block. Two sums grow side by side: neither waits for itself. */
function scoresText(tile: Tile, calls: MatrixCalls): string {
  const product = (d: number, n: number): string => {
    const right = calls.load("Right", "&tile", tile.at(n * UNIT, d), "col", tile.pitch, "vec4u");
    const name = `right${d}_${n}`;
    return `let ${name} = ${right};
        found${n} = ${calls.multiply(`query${d}`, name, `found${n}`)};`;
  };
  return `{
      ${each(MATRICES, (n) => `var found${n} = Sums(); // a matrix declared in a loop without a value would keep that of the last turn`)}
      ${each(tile.depth, (d) => each(MATRICES, (n) => product(d, n)))}
      ${storesText(calls, (n) => `found${n}`)}
      }`;
}

/** Makes weights of the lane's scores, half a row of them, and raises its token's reference where a score needs it. */
function weightsText(node: NodeOf<"attention">): string {
  const fours = UNIT / FLOATS;
  /** As a power of 2. */
  const score = (j: number): string => {
    const dot = `dots${Math.floor(j / FLOATS)}[${j % FLOATS}]`;
    if (node.softcap !== undefined)
      return `(${scoreText(node, dot, "head")}) * ${float(Math.LOG2E)}`;
    return `${dot} * ${float(node.scale * Math.LOG2E)}`;
  };
  const pair = (j: number): string => `bitcast<u32>(vec2h(weight${j}, weight${j + 1}))`;
  const eight = (j: number): string =>
    `vec4u(${pair(j)}, ${pair(j + 2)}, ${pair(j + 4)}, ${pair(j + 6)})`;
  return `
      let seen = i32(length) - i32(block * ${POSITIONS}u + part * ${UNIT}u); // how many of them the token attends to
      ${each(fours, (i) => `let dots${i} = scores[own + ${i}u];`)}
      ${each(UNIT, (j) => `let score${j} = select(${LOWEST}, ${score(j)}, ${j} < seen);`)}
      let most = ${tree(
        UNIT,
        (j) => `score${j}`,
        (a, b) => `max(${a}, ${b})`,
      )};
      let top = max(most, subgroupShuffleXor(most, 1u));
      let isRaised = top > reference + ${ROOM};
      let raised = select(reference, top, isRaised);
      let factor = select(1.0, exp2(max(reference - raised, ${LEAST})), isRaised);
      if (isRaised && reference > ${UNSET}) { atomicStore(&raisedIn, ${STEP}); }
      reference = raised;
      ${each(UNIT, (j) => `let weight${j} = f16(exp2(max(score${j} - reference, ${LEAST})));`)}
      total = total * factor + ${tree(
        UNIT,
        (j) => `f32(weight${j})`,
        (a, b) => `(${a} + ${b})`,
      )};
      ${each(WEIGHTS, (i) => `weights[((subgroup * ${MATRICES}u + part) * ${UNIT}u + row) * ${WEIGHTS}u + ${i}u] = ${eight(i * HALVES)};`)}`;
}

/** Multiplies all sums by the factors of their tokens. */
function scaleText(depth: number, calls: MatrixCalls): string {
  return each(
    depth / MATRICES,
    (d) => `
        ${storesText(calls, (n) => `sums${d * MATRICES + n}`)}
        workgroupBarrier();
        ${each(UNIT / FLOATS, (i) => `scores[own + ${i}u] *= factor;`)}
        workgroupBarrier();
        ${each(MATRICES, (n) => `sums${d * MATRICES + n} = ${calls.load("Sums", "&scores", scoresAt(n), "row", SCORES_PITCH, "vec4f")};`)}
        workgroupBarrier();`,
  );
}

/** Adds the values of the block, times their weights. */
function sumsText(tile: Tile, calls: MatrixCalls): string {
  const left = (n: number): string =>
    calls.load(
      "Left",
      "&weights",
      `(subgroup * ${MATRICES}u + ${n}u) * ${UNIT * WEIGHTS}u`,
      "row",
      WEIGHTS,
      "vec4u",
    );
  const right = (n: number, d: number): string =>
    calls.load("Right", "&tile", tile.at(POSITIONS + n * UNIT, d), "row", tile.pitch, "vec4u");
  const product = (n: number, d: number): string => {
    const name = `value${n}_${d}`;
    return `let ${name} = ${right(n, d)};
      sums${d} = ${calls.multiply(`left${n}`, name, `sums${d}`)};`;
  };
  return `{
      ${each(MATRICES, (n) => `let left${n} = ${left(n)};`)}
      ${each(MATRICES, (n) => each(tile.depth, (d) => product(n, d)))}
      }`;
}

/** Divides sums by their token's total and stores them, a row of 32 values by 8 lanes. */
function resultText({ heads, headDim }: NodeOf<"attention">, calls: MatrixCalls): string {
  const rows = SUBGROUP / SCORES;
  const rowText = (d: number, i: number): string => `{
    let at = subgroup * ${UNIT}u + ${i * rows}u + lane % ${SUBGROUP}u / ${SCORES}u;
    let four = scores[at * ${SCORES_PITCH}u + lane % ${SCORES}u] * scores[at * ${SCORES_PITCH}u + ${SCORES}u].x;
    if (firstToken + at < tokenCount) {
      result[((firstToken + at) * ${heads}u + head) * ${headDim / FLOATS}u + ${d * SCORES}u + lane % ${SCORES}u] = four;
    }
  }`;
  return `
  workgroupBarrier();
  total += subgroupShuffleXor(total, 1u);
  if (part == 0u) { scores[own + ${SCORES}u] = vec4f(1.0 / total); } // behind the row
  ${each(
    headDim / POSITIONS,
    (d) => `
  ${storesText(calls, (n) => `sums${d * MATRICES + n}`)}
  workgroupBarrier();
  ${each(UNIT / rows, (i) => rowText(d, i))}
  workgroupBarrier();`,
  )}`;
}

/** Combines `count` terms, a power of two, neighbours first. */
function tree(
  count: number,
  term: (i: number) => string,
  combine: (a: string, b: string) => string,
  first = 0,
): string {
  if (count === 1) return term(first);
  const half = count / 2;
  return combine(tree(half, term, combine, first), tree(half, term, combine, first + half));
}
