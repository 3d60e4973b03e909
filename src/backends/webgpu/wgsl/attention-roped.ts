// Fused attention. For a batch of one token: rope of q and k, kv_write and attention in one dispatch. Every workgroup rotates
// its own head and that head's key. The token's own key and value are not read from the cache; the first of the heads that
// share them writes them there.
//
// For several tokens, which may be of one sequence, rope and kv_write are a dispatch of their own. Attention then computes with
// the same text as for one token, and to the same bits.

import type { NodeOf, Value } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { type Arrival, layerArrival, noArrival } from "./arrival.ts";
import { scoreText } from "./attention-options.ts";
import type { AttentionSplit } from "./attention-split.ts";
import { attentionSpec, composeAttention, hasTeams } from "./attention-teams.ts";
import { nearestHalfText } from "./halves.ts";
import { type Kernel, type KernelSpec, makeKernel, perItem } from "./kernel.ts";
import { type KvFormats, kvRowWords } from "./kv-format.ts";
import { cacheRowText } from "./kv-write.ts";
import type { Exchange } from "./teams.ts";

export interface RopedAttention {
  readonly q: NodeOf<"rope">;
  readonly k: NodeOf<"rope">;
  readonly write: NodeOf<"kv_write">;
  readonly attention: NodeOf<"attention">;
}

/** Whether there is such a kernel: the rotation must not split vectors of 4, and sinks would need one more binding. */
export function hasRoped({ q, k, attention }: RopedAttention, formats: KvFormats): boolean {
  if (!attention.causal || attention.sinks) return false;
  const whole = (rope: NodeOf<"rope">): boolean => rope.rope.dims % 8 === 0;
  return hasTeams(attention, formats) && whole(q) && whole(k);
}

export function attentionRopedKernel(
  attention: RopedAttention,
  formats: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
  size: number,
  split?: AttentionSplit,
): Kernel {
  const spec = (arrival: Arrival): KernelSpec =>
    ropedSpec(attention, formats, batch, exchange, size, split, arrival);
  return { ...makeKernel(spec(noArrival)), inLayer: () => spec(layerArrival) };
}

function ropedSpec(
  { q, k, write, attention }: RopedAttention,
  { k: format }: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
  size: number,
  split: AttentionSplit | undefined,
  { barrier, declare, loads }: Arrival,
): KernelSpec {
  const { heads, kvHeads, headDim } = attention;
  const eights = format.eights!;
  const read = (name: string, value: Value) =>
    ({ name, type: "vec4f", source: { kind: "value", value } }) as const;
  const query = `query = mat2x4f(q4(token, head * ${headDim}u, part * 8u), q4(token, head * ${headDim}u, part * 8u + 4u));`;
  const kvHead = `let kvHead = (head / ${heads / kvHeads}u) * ${headDim}u;`;
  const key = `key = kept8(mat2x4f(k4(token, kvHead, part * 8u), k4(token, kvHead, part * 8u + 4u)));`;
  const value = `value = kept8(mat2x4f(v[kvColumn / 4u], v[kvColumn / 4u + 1u]));`;
  const rows = ["query", "key", "value"].map((name) => declare?.(name, "mat2x4f")).join(" ");
  return attentionSpec({
    name: `attention-roped ${split ? "in parts " : ""}${heads}/${kvHeads} heads of ${headDim}`,
    node: attention,
    format,
    batch,
    exchange,
    size,
    split,
    bindings: [read("q", q.x), read("k", k.x), read("v", write.v)],
    writesCache: true,
    maxRows: 1,
    sameBits: true,
    declarations: `${rotateText("q", q, batch)}${rotateText("k", k, batch)}${nearestHalfText}${eights.kept}
${eights.store("keys")}${eights.store("values")}`,
    query: declare
      ? `
  ${barrier}
  ${kvHead}
  ${rows}
  ${loads([query, key, value].join("\n    "))}`
      : `
  let ${query}`,
    own: `${
      declare
        ? ""
        : `
  ${kvHead}
  let ${key}
  let ${value}`
    }
  let score = ${scoreText(attention, "sumOfCrew(product(query, key), lane)", "head")};
  length -= 1u;
  if (crew == 0u${split ? " && group.z == 0u" : ""}) {
    top = score;
    total = 1.0;
    sums = value;
    if (head % ${heads / kvHeads}u == 0u) {
      let to = cacheRow(token, length) * ${kvRowWords(format, kvHeads * headDim)}u;
      keysStore8(to, kvColumn, key);
      valuesStore8(to, kvColumn, value);
    }
  }`,
  });
}

/** Batches of several tokens: rotates q into its value, and stores keys and values in the cache. */
export function ropeWriteKernel(
  { q, k, write, attention }: RopedAttention,
  { k: format }: KvFormats,
  batch: BatchLayout,
): Kernel {
  const { heads, kvHeads, headDim, state } = attention;
  const eights = format.eights!;
  const crew = headDim / 8;
  const read = (name: string, value: Value) =>
    ({ name, type: "vec4f", source: { kind: "value", value } }) as const;
  return makeKernel({
    name: `rope and kv_write [${q.x.cols}, ${k.x.cols}]`,
    bindings: [
      read("q", q.x),
      read("k", k.x),
      read("v", write.v),
      { ...read("result", q.out), writes: true },
      { name: "keys", type: "vec4u", source: { kind: "keys", state }, writes: true },
      { name: "values", type: "vec4u", source: { kind: "values", state }, writes: true },
      { name: "batch", type: "u32", source: { kind: "batch" } },
    ],
    declarations: `${cacheRowText(batch, state)}${rotateText("q", q, batch)}${rotateText("k", k, batch)}${nearestHalfText}${eights.kept}
${eights.store("keys")}${eights.store("values")}`,
    rows: attention.out.rows,
    minRows: 2,
    sameBits: true,
    grid: perItem((heads + kvHeads) * crew),
    body: `
  let item = group.x * 64u + lane;
  let token = group.y;
  let part = item % ${crew}u;
  let head = item / ${crew}u;
  if (head < ${heads}u) {
    let at = ((token * ${heads}u + head) * ${headDim}u + part * 8u) / 4u;
    result[at] = q4(token, head * ${headDim}u, part * 8u);
    result[at + 1u] = q4(token, head * ${headDim}u, part * 8u + 4u);
  } else if (head < ${heads + kvHeads}u) {
    let kvHead = (head - ${heads}u) * ${headDim}u;
    let column = kvHead + part * 8u;
    let own = (token * ${kvHeads * headDim}u + column) / 4u;
    let to = cacheRow(token, batch[${batch.positions}u + token]) * ${kvRowWords(format, kvHeads * headDim)}u;
    keysStore8(to, column, kept8(mat2x4f(k4(token, kvHead, part * 8u), k4(token, kvHead, part * 8u + 4u))));
    valuesStore8(to, column, kept8(mat2x4f(v[own], v[own + 1u])));
  }`,
  });
}

/** After ropeWriteKernel(), which has stored the token's own key and value. */
export function attentionSeveralKernel(
  { q, attention }: RopedAttention,
  { k: format }: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
  size: number,
  most: number,
  split?: AttentionSplit,
): Kernel {
  const { heads, kvHeads, headDim } = attention;
  const rowWords = kvRowWords(format, kvHeads * headDim);
  return composeAttention({
    name: `attention-several ${split ? "in parts " : ""}${heads}/${kvHeads} heads of ${headDim}`,
    node: attention,
    format,
    batch,
    exchange,
    size,
    split,
    bindings: [{ name: "q", type: "vec4f", source: { kind: "value", value: q.out } }],
    minRows: 2,
    maxRows: most,
    sameBits: true,
    query: `
  let start4 = (token * ${heads}u + head) * ${headDim / 4}u + part * 2u;
  let query = mat2x4f(q[start4], q[start4 + 1u]);`,
    own: `
  length -= 1u;
  let ownAt = cacheRow(token, length) * ${rowWords}u;
  let key = keys8(ownAt, kvColumn);
  let score = ${scoreText(attention, "sumOfCrew(product(query, key), lane)", "head")};
  if (crew == 0u${split ? " && group.z == 0u" : ""}) {
    top = score;
    total = 1.0;
    sums = values8(ownAt, kvColumn);
  }`,
  });
}

/** `fn NAME4(token, head, i)`: rotated values i ... i + 3 of the head that begins at value \`head\` of the token's row of \`NAME\`. */
function rotateText(name: string, node: NodeOf<"rope">, batch: BatchLayout): string {
  const { rope, factors } = node;
  const { at } = batch.angles.find((area) => area.rope === rope && area.factors === factors)!;
  const pairs = rope.dims / 2;
  const angle = (pair: string): string =>
    `vec2f(bitcast<f32>(batch[angles + 2u * (${pair})]), bitcast<f32>(batch[angles + 2u * (${pair}) + 1u]))`;
  const interleaved = `
  let a = ${angle("i / 2u")};
  let b = ${angle("i / 2u + 1u")};
  return vec4f(
    x.x * a.x - x.y * a.y, x.x * a.y + x.y * a.x,
    x.z * b.x - x.w * b.y, x.z * b.y + x.w * b.x);`;
  const half = `
  let isFirst = i < ${pairs}u;
  let pair = select(i - ${pairs}u, i, isFirst);
  let other = ${name}[(row + head + select(i - ${pairs}u, i + ${pairs}u, isFirst)) / 4u];
  let four = array<vec2f, 4>(${[0, 1, 2, 3].map((j) => angle(`pair + ${j}u`)).join(", ")});
  let cosines = vec4f(four[0].x, four[1].x, four[2].x, four[3].x);
  let sines = vec4f(four[0].y, four[1].y, four[2].y, four[3].y);
  return select(other * sines + x * cosines, x * cosines - other * sines, isFirst);`;
  return `
fn ${name}4(token: u32, head: u32, i: u32) -> vec4f {
  let row = token * ${node.x.cols}u;
  let x = ${name}[(row + head + i) / 4u];
  if (i >= ${rope.dims}u) { return x; }
  let angles = ${at}u + token * ${rope.dims}u;${rope.layout === "interleaved" ? interleaved : half}
}`;
}
