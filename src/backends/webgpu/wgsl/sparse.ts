// index_scores, top_k and sparse_attention: the positions that a token chooses, and attention over them.

import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { float, type Kernel, LANES, makeKernel, perItem } from "./kernel.ts";
import { type KvFormats, kvRowWords } from "./kv-format.ts";
import { cacheRowText } from "./kv-write.ts";

/** A lane scores a position. */
export function indexScoresKernel(
  { q, weights, out, state, heads }: NodeOf<"index_scores">,
  { k, v }: KvFormats,
  batch: BatchLayout,
): Kernel {
  const half = q.cols / heads / 2;
  const quads = half / 4;
  const context = out.cols;
  return makeKernel({
    name: `index_scores ${heads} heads of ${2 * half} [${context}]`,
    bindings: [
      { name: "q", type: "vec4f", source: { kind: "value", value: q } },
      { name: "weights", type: "f32", source: { kind: "value", value: weights } },
      { name: "keys", type: "u32", source: { kind: "keys", state } },
      { name: "values", type: "u32", source: { kind: "values", state } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    declarations: `${cacheRowText(batch, state)}${k.load4("keys", half)}${v.load4("values", half)}`,
    rows: out.rows,
    grid: perItem(context),
    body: `
  let position = group.x * ${LANES}u + lane;
  let token = group.y;
  if (position >= ${context}u) { return; }
  var total = 0.0;
  if (position <= batch[${batch.positions}u + token]) {
    let row = cacheRow(token, position);
    let keyAt = row * ${kvRowWords(k, half)}u;
    let valueAt = row * ${kvRowWords(v, half)}u;
    for (var head = 0u; head < ${heads}u; head++) {
      let first = (token * ${heads}u + head) * ${2 * quads}u;
      var sum = 0.0;
      for (var i = 0u; i < ${quads}u; i++) {
        sum += dot(q[first + i], keys4(keyAt, i * 4u)) + dot(q[first + ${quads}u + i], values4(valueAt, i * 4u));
      }
      total += max(sum, 0.0) * weights[token * ${heads}u + head];
    }
  }
  result[token * ${context}u + position] = total;`,
  });
}

/**
 * A workgroup chooses for a token: a lane keeps the heap of graph/reference-index.ts, and all lanes load the scores that it
 * looks at.
 */
export function topKKernel({ x, out }: NodeOf<"top_k">, batch: BatchLayout): Kernel {
  const [context, most] = [x.cols, out.cols];
  return makeKernel({
    name: `top_k [${most} of ${context}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    declarations: `
var<workgroup> loaded: array<f32, ${LANES}>;
fn valueOf(first: u32, place: u32) -> f32 { return x[first + u32(result[place])]; }
fn sink(first: u32, to: u32, at: u32) {
  let moved = result[to + at];
  let own = valueOf(first, to + at);
  var hole = at;
  while (hole < ${(most - 1) >> 1}u) {
    var child = 2u * hole + 2u;
    if (valueOf(first, to + child) > valueOf(first, to + child - 1u)) { child--; }
    result[to + hole] = result[to + child];
    hole = child;
  }${
    most % 2 === 0
      ? `
  if (hole == ${(most - 2) >> 1}u) {
    result[to + hole] = result[to + 2u * hole + 1u];
    hole = 2u * hole + 1u;
  }`
      : ""
  }
  while (hole > at) {
    let parent = (hole - 1u) / 2u;
    if (!(valueOf(first, to + parent) > own)) { break; }
    result[to + hole] = result[to + parent];
    hole = parent;
  }
  result[to + hole] = moved;
}`,
    rows: out.rows,
    grid: (tokens) => [1, tokens, 1],
    body: `
  let first = group.y * ${context}u;
  let to = group.y * ${most}u;
  let count = min(batch[${batch.positions}u + group.y] + 1u, ${context}u);
  for (var i = lane; i < ${most}u; i += ${LANES}u) { result[to + i] = select(-1.0, f32(i), i < count); }
  storageBarrier();
  if (lane == 0u && count > ${most}u) {
    for (var i = ${most >> 1}u; i > 0u; i--) { sink(first, to, i - 1u); }
  }
  for (var start = ${most}u; start < count; start += ${LANES}u) {
    if (start + lane < count) { loaded[lane] = x[first + start + lane]; }
    workgroupBarrier();
    if (lane == 0u) {
      for (var i = 0u; i < ${LANES}u && start + i < count; i++) {
        if (loaded[i] > valueOf(first, to)) {
          result[to] = f32(start + i);
          sink(first, to, 0u);
        }
      }
    }
    workgroupBarrier();
  }`,
  });
}

/** As the kernel of attention.ts, over a list of positions. */
export function sparseAttentionKernel(
  node: NodeOf<"sparse_attention">,
  { k, v }: KvFormats,
  batch: BatchLayout,
): Kernel {
  const { q, chosen, out, state, heads, kvHeads, headDim, vHeadDim, scale } = node;
  const [quads, vQuads] = [headDim / 4, vHeadDim / 4];
  const most = chosen.cols;
  const kept = Math.ceil(vQuads / LANES);
  return makeKernel({
    name: `sparse_attention ${heads}/${kvHeads} heads of ${headDim} and ${vHeadDim} [${most}]`,
    bindings: [
      { name: "q", type: "vec4f", source: { kind: "value", value: q } },
      { name: "chosen", type: "f32", source: { kind: "value", value: chosen } },
      { name: "keys", type: "u32", source: { kind: "keys", state } },
      { name: "values", type: "u32", source: { kind: "values", state } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "vec4f", source: { kind: "value", value: out }, writes: true },
    ],
    declarations: `${cacheRowText(batch, state)}${k.load4("keys", kvHeads * headDim)}${v.load4("values", kvHeads * vHeadDim)}
var<workgroup> query: array<vec4f, ${quads}>;
var<workgroup> scores: array<f32, ${LANES}>;
var<workgroup> rows: array<u32, ${LANES}>;`,
    rows: out.rows,
    grid: (tokens) => [heads, tokens, 1],
    body: `
  let token = group.y;
  let first = (token * ${heads}u + group.x) * ${quads}u;
  let kvHead = group.x / ${heads / kvHeads}u;
  for (var i = lane; i < ${quads}u; i += ${LANES}u) { query[i] = q[first + i]; }
  let length = min(batch[${batch.positions}u + token] + 1u, ${most}u);
  workgroupBarrier();
  var top = -3.0e38;
  var total = 0.0;
  var sums = array<vec4f, ${kept}>();
  for (var start = 0u; start < length; start += ${LANES}u) {
    var score = -3.0e38;
    if (start + lane < length) {
      let position = u32(chosen[token * ${most}u + start + lane]);
      let row = cacheRow(token, position);
      let at = row * ${kvRowWords(k, kvHeads * headDim)}u;
      rows[lane] = row * ${kvRowWords(v, kvHeads * vHeadDim)}u;
      var sum = 0.0;
      for (var i = 0u; i < ${quads}u; i++) { sum += dot(query[i], keys4(at, kvHead * ${headDim}u + i * 4u)); }
      score = sum * ${float(scale)};
    }
    scores[lane] = score;
    workgroupBarrier();
    let count = min(${LANES}u, length - start);
    var newTop = top;
    for (var j = 0u; j < count; j++) { newTop = max(newTop, scores[j]); }
    workgroupBarrier();
    scores[lane] = exp(max(score - newTop, -100.0));
    workgroupBarrier();
    let shrink = exp(max(top - newTop, -100.0));
    top = newTop;
    total *= shrink;
    for (var m = 0u; m < ${kept}u; m++) { sums[m] *= shrink; }
    for (var j = 0u; j < count; j++) {
      let weight = scores[j];
      total += weight;
      for (var m = 0u; m < ${kept}u; m++) {
        let quad = lane + m * ${LANES}u;
        if (quad < ${vQuads}u) { sums[m] += weight * values4(rows[j], kvHead * ${vHeadDim}u + quad * 4u); }
      }
    }
    workgroupBarrier();
  }
  for (var m = 0u; m < ${kept}u; m++) {
    let quad = lane + m * ${LANES}u;
    if (quad < ${vQuads}u) { result[(token * ${heads}u + group.x) * ${vQuads}u + quad] = sums[m] / total; }
  }`,
  });
}
