// attention for any head and cache type: a workgroup computes one head of one token over the paged cache, 64 positions at a
// time. The softmax is online: sums are rescaled whenever a larger score appears, so that no row of scores is stored.

import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { beginText, endText, headBindings, scoreText, startOf } from "./attention-options.ts";
import { type Kernel, LANES, makeKernel } from "./kernel.ts";
import { type KvFormat, type KvFormats, kvRowWords } from "./kv-format.ts";
import { cacheRowText } from "./kv-write.ts";

export function attentionKernel(
  node: NodeOf<"attention">,
  { k: keys, v: values }: KvFormats,
  batch: BatchLayout,
): Kernel {
  const { q, out, state, heads, kvHeads, headDim, vHeadDim } = node;
  const quads = headDim / 4;
  const vQuads = vHeadDim / 4;
  /** Sums of four values that a lane keeps: lane, lane + 64, ... */
  const kept = Math.ceil(vQuads / LANES);
  const begin = beginText(node, batch) ?? "0u";
  const { top, total } = startOf(node, "group.x");
  const rowWords = kvRowWords(keys, kvHeads * headDim);
  const isSame = headDim === vHeadDim && keys === values;
  const own = isSame ? sameRows : ownRows(node, values);
  return makeKernel({
    name: `attention ${heads}/${kvHeads} heads of ${headDim}${headDim === vHeadDim ? "" : ` and ${vHeadDim}`}`,
    bindings: [
      { name: "q", type: "vec4f", source: { kind: "value", value: q } },
      { name: "keys", type: "u32", source: { kind: "keys", state } },
      { name: "values", type: "u32", source: { kind: "values", state } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      ...headBindings(node),
      { name: "result", type: "vec4f", source: { kind: "value", value: out }, writes: true },
    ],
    declarations: `${cacheRowText(batch, state)}${keys.load4("keys", kvHeads * headDim)}${values.load4("values", kvHeads * vHeadDim)}
var<workgroup> query: array<vec4f, ${quads}>;
var<workgroup> scores: array<f32, ${LANES}>;
var<workgroup> rows: array<u32, ${LANES}>; // of the positions: where they lie in the cache`,
    rows: out.rows,
    grid: (tokens) => [heads, tokens, 1],
    body: `
  let token = group.y;
  let first = (token * ${heads}u + group.x) * ${quads}u;
  let kvColumn = (group.x / ${heads / kvHeads}u) * ${headDim}u;
  for (var i = lane; i < ${quads}u; i += ${LANES}u) { query[i] = q[first + i]; }
  let length = ${endText(node, batch)};
  var top = ${top};
  var total = ${total};
  var sums = array<vec4f, ${kept}>();
  workgroupBarrier();
  for (var start = ${begin}; start < length; start += ${LANES}u) {
    let position = start + lane;
    var score = -3.0e38;
    if (position < length) {
      let at = cacheRow(token, position) * ${rowWords}u;
      rows[lane] = ${own.row};
      var sum = 0.0;
      for (var i = 0u; i < ${quads}u; i++) { sum += dot(query[i], keys4(at, kvColumn + i * 4u)); }
      score = ${scoreText(node, "sum", "group.x", batch, "position")};
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
        if (quad < ${vQuads}u) { sums[m] += weight * values4(rows[j], ${own.column} + quad * 4u); }
      }
    }
    workgroupBarrier();
  }
  for (var m = 0u; m < ${kept}u; m++) {
    let quad = lane + m * ${LANES}u;
    if (quad < ${vQuads}u) { result[${own.first} + quad] = sums[m] / total; }
  }`,
  });
}

/** The indices of values in their rows and in the result, if they are the same as those of keys and queries. */
const sameRows = { row: "at", column: "kvColumn", first: "first" };

/** The same, where heads of values have another size. */
function ownRows(
  { heads, kvHeads, vHeadDim }: NodeOf<"attention">,
  format: KvFormat,
): typeof sameRows {
  return {
    row: `cacheRow(token, position) * ${kvRowWords(format, kvHeads * vHeadDim)}u`,
    column: `(group.x / ${heads / kvHeads}u) * ${vHeadDim}u`,
    first: `(token * ${heads}u + group.x) * ${vHeadDim / 4}u`,
  };
}
