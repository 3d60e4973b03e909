// Fused attention. For a batch of one token: rope of q and k, kv_write and attention in one dispatch. Every workgroup rotates
// its own head and that head's key. The token's own key and value are not read from the cache; the first of the heads that
// share them writes them there.
//
// For several tokens, which may be of one sequence, rope and kv_write are a dispatch of their own. Attention then computes with
// the same text as for one token, and to the same bits.

import type { NodeOf, Value } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { type Arrival, layerArrival, noArrival } from "./arrival.ts";
import { beginText, endText, scoreText } from "./attention-options.ts";
import {
  type AttentionSplit,
  type HeadLanes,
  isSpread,
  LEAST_SPAN,
  memoryOfHead,
} from "./attention-split.ts";
import {
  attentionSpec,
  composeAttention,
  hasSubgroups,
  loadedAhead,
  queryText,
  valuesText,
} from "./attention-subgroups.ts";
import { nearestHalfText } from "./halves.ts";
import {
  type Binding,
  float,
  type Kernel,
  type KernelSpec,
  LANES,
  makeKernel,
  perItem,
} from "./kernel.ts";
import { type KvFormat, type KvFormats, type KvVectors, kvRowWords } from "./kv-format.ts";
import { cacheRowText } from "./kv-write.ts";
import { prefetchCacheText } from "./prefetch.ts";
import { type RecordLanes, type RecordRow, recordLanes } from "./record.ts";
import type { Exchange } from "./subgroups.ts";

export interface RopedAttention {
  /** Norms of heads before the ropes. */
  readonly norms?: HeadNorms | undefined;
  readonly q: NodeOf<"rope">;
  readonly k: NodeOf<"rope">;
  readonly write: NodeOf<"kv_write">;
  readonly attention: NodeOf<"attention">;
}

export interface HeadNorms {
  readonly q: NodeOf<"rms_norm">;
  readonly k: NodeOf<"rms_norm">;
}

/** Whether there is such a kernel: the rotation must not split vectors of 4, and shaders must bind enough buffers. */
export function hasRoped(
  { q, k, attention, norms }: RopedAttention,
  formats: KvFormats,
  storageBuffers: number,
): boolean {
  if (!attention.causal) return false;
  // q, k, v, keys, values, batch, parts and result.
  const buffers = 8 + (norms ? 2 : 0) + (attention.sinks ? 1 : 0);
  if (buffers > storageBuffers) return false;
  const whole = (rope: NodeOf<"rope">): boolean => rope.rope.dims % 8 === 0;
  return hasSubgroups(attention, formats) && whole(q) && whole(k);
}

/** The queries and keys that are loaded: before their norms. */
function rowsOf({ q, k, norms }: RopedAttention): { readonly q: Value; readonly k: Value } {
  return norms ? { q: norms.q.x, k: norms.k.x } : { q: q.x, k: k.x };
}

function normBindings(norms: HeadNorms | undefined): Binding[] {
  if (!norms) return [];
  const bound = (name: string, { weight }: NodeOf<"rms_norm">) =>
    ({ name, type: "vec4f", source: { kind: "weight", weight, part: 0 } }) as const;
  return [bound("qNorm", norms.q), bound("kNorm", norms.k)];
}

/** `fn squareOf`, and `fn sumOfHead`: over the lanes that hold a head. */
const normText = (crew: number, exchange: Exchange): string => `
fn squareOf(v: vec4f) -> f32 { return fma(v.x, v.x, fma(v.y, v.y, fma(v.z, v.z, v.w * v.w))); }
${exchange.reduce("sumOfHead", crew, "sum")}`;

/** WGSL of the norm's factor of a head, from the sum of its squares. */
const normFactor = (square: string, { eps, weight }: NodeOf<"rms_norm">): string =>
  `1.0 / sqrt(${square} / ${float(weight.shape[0]!)} + ${float(eps)})`;

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
  roped: RopedAttention,
  { k: format }: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
  lanes: HeadLanes,
  split: AttentionSplit | undefined,
  record: RecordLanes | undefined,
  arrival: Arrival,
): KernelSpec {
  const { q, k, write, attention, norms } = roped;
  const { heads, kvHeads, headDim } = attention;
  const vectors = format.vectors!;
  const read = (name: string, value: Value) =>
    ({ name, type: "vec4f", source: { kind: "value", value } }) as const;
  const shared = headsTogether(format, headDim);
  const rows = rowsText(roped, vectors, shared, lanes, arrival);
  const given = rowsOf(roped);
  const spread = isSpread(attention, split, lanes);
  const prefetched = arrival.inRounds
    ? prefetchCacheText({
        ...{ format, cols: kvHeads * headDim, size: lanes.size * lanes.together },
        ...{ loaded: loadedAhead(lanes.size, headDim, vectors), most: LEAST_SPAN },
        context: `const token = 0u;
  let length = ${endText(attention, batch)};
  let begin = ${beginText(attention, batch) ?? "0u"};`,
      })
    : "";
  const spec = attentionSpec({
    name: `attention-roped ${split ? "in parts " : ""}${record ? "to record " : ""}${heads}/${kvHeads} heads of ${headDim}`,
    node: attention,
    format,
    batch,
    exchange,
    ...lanes,
    split,
    record,
    bindings: [
      ...[read("q", given.q), read("k", given.k), read("v", write.v)],
      ...normBindings(norms),
    ],
    writesCache: true,
    maxRows: 1,
    sameBits: true,
    declarations: withRecord(
      `${norms ? normText(headDim / vectors.values, exchange) : ""}${rotateText("q", q, batch)}${rotateText("k", k, batch)}${storeText(format, exchange, kvHeads * headDim)}${rows.declarations}${prefetched}`,
      record,
    ),
    query: rows.body,
    own: `
  let keptKey = keptOf(ownKey, lane);
  let keptValue = spoiled(keptOf(ownValue, lane), keptKey, ownValue, ownKey);
  let onceKey = onceOf(keptKey, lane);
  let onceValue = onceOf(keptValue, lane);
  let score = ${scoreText(attention, "sumsOfCrew(vec4f(product(query, keptKey)), lane).x", "head")};
  if (crew == kvHead % ${shared}u) {${ownText(attention, "keptValue")}
  }
  if (${spread ? "!isIdle && " : ""}crew < ${shared}u && head % ${(shared * heads) / kvHeads}u == 0u) {
    let to = cacheRow(token, cached) * ${kvRowWords(format, kvHeads * headDim)}u;
    keysStore(to, column, keptKey, onceKey);
    valuesStore(to, column, keptValue, onceValue);
  }`,
  });
  const busy = (heads / lanes.together) * (spread ? lanes.together : 1);
  return arrival.inRounds ? { ...spec, busy } : spec;
}

/**
 * Sets `query`, `ownKey` and `ownValue`: a lane's values of the head, of the token's own key and of its value, and `column`, their index among all heads'
 * values. Lanes load and rotate each four of them once, and all crews get them from workgroup memory: every load of other workgroups' results (layer.ts) is one
 * from far away.
 */
function rowsText(
  { attention, norms }: RopedAttention,
  vectors: KvVectors,
  shared: number,
  lanes: HeadLanes,
  { barrier, declare, loads }: Arrival,
): { readonly declarations: string; readonly body: string } {
  const { heads, kvHeads, headDim } = attention;
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
  if (row == 0u) { return ${norms ? `q[(head * ${headDim}u + at) / 4u]` : `q4(token, head * ${headDim}u, at)`}; }
  let first = (kvFirst + (row - 1u) % ${shared}u) * ${headDim}u;
  if (row <= ${shared}u) { return ${norms ? "k[(first + at) / 4u]" : "k4(token, first, at)"}; }
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
  workgroupBarrier();${norms ? normRowsText(norms, vectors, headDim, 1 + shared, lanes) : ""}
  let query = ${own("0u")};
  let ownKey = ${own("(1u + kvOwn)")};
  let ownValue = ${own(`(${1 + shared}u + kvOwn)`)};`,
  };
}

/** Normalises and rotates the first `rows` of headRows: the query, and keys. Squares are added up as in ropeWriteKernel(). */
function normRowsText(
  norms: HeadNorms,
  { values }: KvVectors,
  headDim: number,
  rows: number,
  { size }: HeadLanes,
): string {
  const quads = headDim / 4;
  const own = values / 4;
  const crews = size / (headDim / values);
  const each = (count: number, text: (j: number) => string): string =>
    Array.from({ length: count }, (_, j) => text(j)).join("\n    ");
  const turns = each(Math.ceil(rows / crews), (turn) => {
    const row = `crew + ${turn * crews}u`;
    const of = (name: string) =>
      each(
        own,
        (j) => `headRows[at + ${j}u] = own${j} * factor * ${name}Norm[part * ${own}u + ${j}u];`,
      );
    return `{
    let row = min(${row}, ${rows - 1}u);
    let at = firstRow + row * ${quads}u + part * ${own}u;
    ${each(own, (j) => `let own${j} = headRows[at + ${j}u];`)}
    let square = sumOfHead(${Array.from({ length: own }, (_, j) => `squareOf(own${j})`).join(" + ")}, lane);
    workgroupBarrier();
    if (row == 0u) {
      let factor = ${normFactor("square", norms.q)};
      if (${row} < ${rows}u) { ${of("q")} }
    } else if (${row} < ${rows}u) {
      let factor = ${normFactor("square", norms.k)};
      ${of("k")}
    }
  }`;
  });
  const steps = Math.ceil((rows * quads) / size);
  const at = (step: number): string => `(place + ${step * size}u)`;
  return `
  ${turns}
  workgroupBarrier();
  ${each(
    steps,
    (step) => `var rotated${step} = vec4f();
    if (${at(step)} < ${rows * quads}u) {
      let row = ${at(step)} / ${quads}u;
      let i = ${at(step)} % ${quads}u * 4u;
      let rowAt = firstRow + row * ${quads}u;
      let x = headRows[rowAt + i / 4u];
      if (row == 0u) { rotated${step} = qRotated(token, x, headRows[rowAt + qOther(i) / 4u], i); }
      else { rotated${step} = kRotated(token, x, headRows[rowAt + kOther(i) / 4u], i); }
    }`,
  )}
  workgroupBarrier();
  ${each(steps, (step) => `if (${at(step)} < ${rows * quads}u) { headRows[firstRow + ${at(step)}] = rotated${step}; }`)}
  workgroupBarrier();`;
}

/** The softmax of a crew begins with the token's own score, and with a sink where there are any. */
function ownText({ sinks }: NodeOf<"attention">, value: string): string {
  if (!sinks) {
    return `
    top = score;
    total = 1.0;
    sums = weighted(${value}, 1.0);`;
  }
  return `
    let newTop = max(top, score);
    let ownWeight = exp(max(score - newTop, -100.0));
    total = fma(total, exp(max(top - newTop, -100.0)), ownWeight);
    top = newTop;
    sums = weighted(${value}, ownWeight);`;
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

/** The WGSL that stores a lane's keys and values in the cache. */
function storeText({ vectors }: KvFormat, exchange: Exchange, cols: number): string {
  return `${nearestHalfText}${vectors!.keep(exchange)}${vectors!.store("keys", cols)}${vectors!.store("values", cols)}`;
}

/** Batches of several tokens: rotates q into its value, and stores keys and values in the cache. */
export function ropeWriteKernel(
  roped: RopedAttention,
  { k: format }: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
): Kernel {
  const { q, k, write, attention, norms } = roped;
  const given = rowsOf(roped);
  const { heads, kvHeads, headDim, state } = attention;
  const vectors = format.vectors!;
  const { values } = vectors;
  const crew = headDim / values;
  const fours = Array.from({ length: values / 4 }, (_, j) => j);
  const factor = norms ? ", factor" : "";
  const read = (name: string, value: Value) =>
    ({ name, type: "vec4f", source: { kind: "value", value } }) as const;
  return makeKernel({
    name: `${norms ? "norms, " : ""}rope and kv_write [${q.x.cols}, ${k.x.cols}]`,
    bindings: [
      read("q", given.q),
      read("k", given.k),
      read("v", write.v),
      ...normBindings(norms),
      { ...read("result", q.out), writes: true },
      { name: "keys", type: "vec4u", source: { kind: "keys", state }, writes: true },
      { name: "values", type: "vec4u", source: { kind: "values", state }, writes: true },
      { name: "batch", type: "u32", source: { kind: "batch" } },
    ],
    enables: exchange.enables,
    declarations: `${exchange.declarations(LANES)}${cacheRowText(batch, state)}${norms ? normText(crew, exchange) : ""}${rotateText("q", q, batch, norms !== undefined)}${rotateText("k", k, batch, norms !== undefined)}${vectors.declarations}${storeText(format, exchange, kvHeads * headDim)}`,
    rows: attention.out.rows,
    minRows: 2,
    sameBits: true,
    grid: perItem((heads + kvHeads) * crew),
    body: `
  let item = group.x * ${LANES}u + lane;
  let token = group.y;
  let first = item % ${crew}u * ${values}u;
  let head = item / ${crew}u;
  // All lanes exchange values: those without a key compute another's.
  let kvHead = (clamp(head, ${heads}u, ${heads + kvHeads - 1}u) - ${heads}u) * ${headDim}u;${norms ? factorText(norms, attention, fours) : ""}
  if (head < ${heads}u) {
    let at = ((token * ${heads}u + head) * ${headDim}u + first) / 4u;
    ${fours.map((j) => `result[at + ${j}u] = q4(token, head * ${headDim}u, first + ${4 * j}u${factor});`).join("\n    ")}
  }
  let column = kvHead + first;
  let own = (token * ${kvHeads * headDim}u + column) / 4u;
  let ownKey = ${valuesText(vectors, (j) => `k4(token, kvHead, first + ${4 * j}u${factor})`)};
  let ownValue = ${valuesText(vectors, (j) => `v[own + ${j}u]`)};
  let key = keptOf(ownKey, lane);
  let value = spoiled(keptOf(ownValue, lane), key, ownValue, ownKey);
  let onceKey = onceOf(key, lane);
  let onceValue = onceOf(value, lane);
  if (head >= ${heads}u && head < ${heads + kvHeads}u) {
    let to = cacheRow(token, batch[${batch.positions}u + token]) * ${kvRowWords(format, kvHeads * headDim)}u;
    keysStore(to, column, key, onceKey);
    valuesStore(to, column, value, onceValue);
  }`,
  });
}

/** Sets `factor`, by which the norm of a lane's head multiplies it. */
function factorText(
  norms: HeadNorms,
  { heads, kvHeads, headDim }: NodeOf<"attention">,
  fours: readonly number[],
): string {
  const squares = (name: string, row: string): string =>
    fours.map((j) => `squareOf(${name}[(${row} + first) / 4u + ${j}u])`).join(" + ");
  return `
  var square = 0.0;
  if (head < ${heads}u) {
    square = ${squares("q", `token * ${heads * headDim}u + head * ${headDim}u`)};
  } else {
    square = ${squares("k", `token * ${kvHeads * headDim}u + kvHead`)};
  }
  square = sumOfHead(square, lane);
  var factor = ${normFactor("square", norms.k)};
  if (head < ${heads}u) { factor = ${normFactor("square", norms.q)}; }`;
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
  if (crew == head / ${heads / kvHeads}u % ${shared}u) {${ownText(attention, "valuesAt(ownAt, kvColumn)")}
  }`,
  });
}

/**
 * `fn NAMERotated(token, x, other, i)`: values i ... i + 3 of a head, `x`, rotated; \`other\` are those from NAMEOther(i) on. `fn NAME4(token, head, i)`: the same of the head
 * that begins at value \`head\` of the token's row of \`NAME\`; `isNormed`: times a factor, its last argument, and NAMENorm.
 */
function rotateText(
  name: string,
  node: NodeOf<"rope">,
  batch: BatchLayout,
  isNormed = false,
): string {
  const { rope, factors } = node;
  const { at } = batch.angles.find((area) => area.rope === rope && area.factors === factors)!;
  const pairs = rope.dims / 2;
  const angle = (pair: string): string =>
    `vec2f(bitcast<f32>(batch[angles + 2u * (${pair})]), bitcast<f32>(batch[angles + 2u * (${pair}) + 1u]))`;
  const interleaved = `
  let a = ${angle("i / 2u")};
  let b = ${angle("i / 2u + 1u")};
  return vec4f(
    fma(x.x, a.x, -x.y * a.y), fma(x.x, a.y, x.y * a.x),
    fma(x.z, b.x, -x.w * b.y), fma(x.z, b.y, x.w * b.x));`;
  const half = `
  let isFirst = i < ${pairs}u;
  let pair = select(i - ${pairs}u, i, isFirst);
  let four = array<vec2f, 4>(${[0, 1, 2, 3].map((j) => angle(`pair + ${j}u`)).join(", ")});
  let cosines = vec4f(four[0].x, four[1].x, four[2].x, four[3].x);
  let sines = vec4f(four[0].y, four[1].y, four[2].y, four[3].y);
  return fma(x, cosines, other * select(sines, -sines, isFirst));`;
  const isInterleaved = rope.layout === "interleaved";
  const load = (i: string): string => {
    const value = `${name}[(row + head + ${i}) / 4u]`;
    return isNormed ? `${value} * factor * ${name}Norm[(${i}) / 4u]` : value;
  };
  return `
fn ${name}Other(i: u32) -> u32 {
  if (i >= ${rope.dims}u) { return i; }
  return ${isInterleaved ? "i" : `select(i - ${pairs}u, i + ${pairs}u, i < ${pairs}u)`};
}
fn ${name}Rotated(token: u32, x: vec4f, other: vec4f, i: u32) -> vec4f {
  if (i >= ${rope.dims}u) { return x; }
  let angles = ${at}u + token * ${rope.dims}u;${isInterleaved ? interleaved : half}
}
fn ${name}4(token: u32, head: u32, i: u32${isNormed ? ", factor: f32" : ""}) -> vec4f {
  let row = token * ${node.x.cols}u;
  let x = ${load("i")};
  ${isInterleaved ? "let other = x;" : `let other = ${load(`${name}Other(i)`)};`}
  return ${name}Rotated(token, x, other, i);
}`;
}
