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
import { type AttentionSplit, type HeadLanes, memoryOfHead } from "./attention-split.ts";
import {
  attentionSpec,
  composeAttention,
  hasTeams,
  queryText,
  valuesText,
} from "./attention-teams.ts";
import { nearestHalfText } from "./halves.ts";
import { type Kernel, type KernelSpec, LANES, makeKernel, perItem } from "./kernel.ts";
import { type KvFormat, type KvFormats, type KvVectors, kvRowWords } from "./kv-format.ts";
import { cacheRowText } from "./kv-write.ts";
import { type RecordLanes, type RecordRow, recordLanes } from "./record.ts";
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
  record?: RecordRow,
): Kernel {
  const lanes = record && recordLanes(record, exchange);
  const spec = (together: number, arrival: Arrival): KernelSpec =>
    ropedSpec(attention, formats, batch, exchange, { size, together }, split, lanes, arrival);
  return {
    ...makeKernel(spec(1, noArrival)),
    inLayer: (inAll = size) => {
      const together = inAll / size;
      const isWhole = Number.isInteger(together) && attention.attention.heads % together === 0;
      return isWhole ? spec(together, layerArrival) : undefined;
    },
  };
}

function ropedSpec(
  { q, k, write, attention }: RopedAttention,
  { k: format }: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
  lanes: HeadLanes,
  split: AttentionSplit | undefined,
  record: RecordLanes | undefined,
  arrival: Arrival,
): KernelSpec {
  const { heads, kvHeads, headDim } = attention;
  const vectors = format.vectors!;
  const read = (name: string, value: Value) =>
    ({ name, type: "vec4f", source: { kind: "value", value } }) as const;
  const shared = headsTogether(format, headDim);
  const rows = rowsText(attention, vectors, shared, lanes, arrival);
  return attentionSpec({
    name: `attention-roped ${split ? "in parts " : ""}${record ? "to record " : ""}${heads}/${kvHeads} heads of ${headDim}`,
    node: attention,
    format,
    batch,
    exchange,
    ...lanes,
    split,
    record,
    bindings: [read("q", q.x), read("k", k.x), read("v", write.v)],
    writesCache: true,
    maxRows: 1,
    sameBits: true,
    declarations: withRecord(
      `${rotateText("q", q, batch)}${rotateText("k", k, batch)}${storeText(format, exchange, kvHeads * headDim)}${rows.declarations}`,
      record,
    ),
    query: rows.body,
    own: `
  let keptKey = keptOf(ownKey, lane);
  let keptValue = keptOf(ownValue, lane);
  let onceKey = onceOf(keptKey, lane);
  let onceValue = onceOf(keptValue, lane);
  let score = ${scoreText(attention, "sumsOfCrew(vec4f(product(query, keptKey)), lane).x", "head")};
  if (crew == kvHead % ${shared}u) {
    top = score;
    total = 1.0;
    sums = weighted(keptValue, 1.0);
  }
  if (crew < ${shared}u && head % ${(shared * heads) / kvHeads}u == 0u) {
    let to = cacheRow(token, cached) * ${kvRowWords(format, kvHeads * headDim)}u;
    keysStore(to, column, keptKey, onceKey);
    valuesStore(to, column, keptValue, onceValue);
  }`,
  });
}

/**
 * Sets `query`, `ownKey` and `ownValue`: a lane's values of the head, of the token's own key and of its value, and `column`, which they are of all heads'. Lanes load and
 * rotate each four of them once, and all crews get them from workgroup memory: from what other workgroups compute (layer.ts), every load is one from far away.
 */
function rowsText(
  { heads, kvHeads, headDim }: NodeOf<"attention">,
  vectors: KvVectors,
  shared: number,
  lanes: HeadLanes,
  { barrier, declare, loads }: Arrival,
): { readonly declarations: string; readonly body: string } {
  const quads = headDim / 4;
  // The query, then the keys and the values of the heads that are stored together.
  const count = quads * (1 + 2 * shared);
  const own = (row: string): string =>
    valuesText(
      vectors,
      (j) => `headRows[firstRow + ${row} * ${quads}u + part * ${vectors.values / 4}u + ${j}u]`,
    );
  return {
    declarations: `
var<workgroup> headRows: array<vec4f, ${count * lanes.together}>; // [head of the workgroup][row][value / 4]
fn rowFour(token: u32, head: u32, kvFirst: u32, i: u32) -> vec4f {
  let row = i / ${quads}u;
  let at = (i % ${quads}u) * 4u;
  if (row == 0u) { return q4(token, head * ${headDim}u, at); }
  let first = (kvFirst + (row - 1u) % ${shared}u) * ${headDim}u;
  if (row <= ${shared}u) { return k4(token, first, at); }
  return v[(first + at) / 4u];
}`,
    body: `
  let kvHead = head / ${heads / kvHeads}u;
  let kvFirst = kvHead - kvHead % ${shared}u;
  let kvOwn = crew % ${shared}u;
  let column = (kvFirst + kvOwn) * ${headDim}u + part * ${vectors.values}u;
  ${memoryOfHead("firstRow", count, lanes)}
  ${barrier}
  for (var i = place; i < ${count}u; i += ${lanes.size}u) {
    ${declare?.("four", "vec4f") ?? ""}
    ${loads(`${declare ? "" : "let "}four = rowFour(token, head, kvFirst, i);`)}
    headRows[firstRow + i] = four;
  }
  workgroupBarrier();
  let query = ${own("0u")};
  let ownKey = ${own("(1u + kvOwn)")};
  let ownValue = ${own(`(${1 + shared}u + kvOwn)`)};`,
  };
}

/** A format of the cache may have some of the functions of records. */
function withRecord(declarations: string, record: RecordLanes | undefined): string {
  if (!record) return declarations;
  const missing = record.functions.filter((text) => !declarations.includes(text));
  return `${declarations}${missing.join("")}${record.declarations}`;
}

/** Heads whose values are stored together: as many crews have the token's own key and value of one of them each. */
function headsTogether({ vectors }: KvFormat, headDim: number): number {
  return Math.max(1, vectors!.together / headDim);
}

/** What stores a lane's keys and values in the cache. */
function storeText({ vectors }: KvFormat, exchange: Exchange, cols: number): string {
  return `${nearestHalfText}${vectors!.keep(exchange)}${vectors!.store("keys", cols)}${vectors!.store("values", cols)}`;
}

/** Batches of several tokens: rotates q into its value, and stores keys and values in the cache. */
export function ropeWriteKernel(
  { q, k, write, attention }: RopedAttention,
  { k: format }: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
): Kernel {
  const { heads, kvHeads, headDim, state } = attention;
  const vectors = format.vectors!;
  const { values } = vectors;
  const crew = headDim / values;
  const fours = Array.from({ length: values / 4 }, (_, j) => j);
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
    enables: exchange.enables,
    declarations: `${exchange.declarations(LANES)}${cacheRowText(batch, state)}${rotateText("q", q, batch)}${rotateText("k", k, batch)}${vectors.declarations}${storeText(format, exchange, kvHeads * headDim)}`,
    rows: attention.out.rows,
    minRows: 2,
    sameBits: true,
    grid: perItem((heads + kvHeads) * crew),
    body: `
  let item = group.x * ${LANES}u + lane;
  let token = group.y;
  let first = item % ${crew}u * ${values}u;
  let head = item / ${crew}u;
  if (head < ${heads}u) {
    let at = ((token * ${heads}u + head) * ${headDim}u + first) / 4u;
    ${fours.map((j) => `result[at + ${j}u] = q4(token, head * ${headDim}u, first + ${4 * j}u);`).join("\n    ")}
  }
  // All lanes exchange values: those without a key compute another's.
  let kvHead = (clamp(head, ${heads}u, ${heads + kvHeads - 1}u) - ${heads}u) * ${headDim}u;
  let column = kvHead + first;
  let own = (token * ${kvHeads * headDim}u + column) / 4u;
  let key = keptOf(${valuesText(vectors, (j) => `k4(token, kvHead, first + ${4 * j}u)`)}, lane);
  let value = keptOf(${valuesText(vectors, (j) => `v[own + ${j}u]`)}, lane);
  let onceKey = onceOf(key, lane);
  let onceValue = onceOf(value, lane);
  if (head >= ${heads}u && head < ${heads + kvHeads}u) {
    let to = cacheRow(token, batch[${batch.positions}u + token]) * ${kvRowWords(format, kvHeads * headDim)}u;
    keysStore(to, column, key, onceKey);
    valuesStore(to, column, value, onceValue);
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
  const shared = headsTogether(format, headDim);
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
  let query = ${queryText(attention, format)};`,
    own: `
  let ownAt = cacheRow(token, cached) * ${rowWords}u;
  let score = ${scoreText(attention, "sumsOfCrew(vec4f(product(query, keysAt(ownAt, kvColumn))), lane).x", "head")};
  if (crew == head / ${heads / kvHeads}u % ${shared}u) {
    top = score;
    total = 1.0;
    sums = weighted(valuesAt(ownAt, kvColumn), 1.0);
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
