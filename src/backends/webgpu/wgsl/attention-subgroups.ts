// attention for heads of 8, 16, 32, 64, 128 or 256 values, over a cache that is read in vectors of 16 bytes (KvVectors). A workgroup computes
// one head of one token. A crew is as many lanes as hold a row of the head; of n crews, each takes every n-th position with
// an online softmax, and the crews are merged at the end. With subgroups there is no barrier in the loop.
//
// attention-roped.ts builds its kernel with composeAttention(), too, with its own query and the token's own key and value.

import type { NodeOf, Value } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { beginText, endText, headBindings, scoreText, startOf } from "./attention-options.ts";
import {
  type AttentionSplit,
  type HeadLanes,
  headText,
  isSpread,
  memoryOfHead,
  mostParts,
  type PutText,
  spanText,
  splitBinding,
  splitDeclarations,
  splitStoreText,
} from "./attention-split.ts";
import { type Binding, type Kernel, type KernelSpec, makeKernel } from "./kernel.ts";
import {
  type KvFormat,
  type KvFormats,
  type KvVectors,
  kvRowWords,
  valuesType,
} from "./kv-format.ts";
import { cacheRowText } from "./kv-write.ts";
import type { RecordLanes } from "./record.ts";
import { type Exchange, SUBGROUP } from "./subgroups.ts";

/** Positions of a crew whose keys and values are loaded before any of them is used. Their scores are a vector. */
const AHEAD = 4;

export interface AttentionParts extends Partial<HeadLanes> {
  readonly name: string;
  readonly node: NodeOf<"attention">;
  /** The format of keys and values alike. */
  readonly format: KvFormat;
  readonly batch: BatchLayout;
  readonly exchange: Exchange;
  readonly size: number;
  /** Bindings besides keys, values, batch and result. */
  readonly bindings: readonly Binding[];
  readonly declarations?: string;
  readonly writesCache?: boolean;
  /** WGSL that sets `query`, the lane's values of the head, from `token`, `head` and `part`. */
  readonly query: string;
  /** WGSL after that, which sets top, total and sums from the token's own position, `cached`; those in the cache are before it. */
  readonly own?: string;
  readonly minRows?: number;
  readonly maxRows?: number;
  readonly sameBits?: boolean;
  /** The context is split: each workgroup of a head computes a part, and the last one merges them. */
  readonly split?: AttentionSplit | undefined;
  /** The result is stored as this record; undefined: as floats. */
  readonly record?: RecordLanes | undefined;
}

/** Whether there is such a kernel for these heads and this cache. */
export function hasSubgroups(
  { kvHeads, headDim, vHeadDim }: Pick<NodeOf<"attention">, "kvHeads" | "headDim" | "vHeadDim">,
  { k, v }: KvFormats,
): boolean {
  const { vectors } = k;
  if (!vectors || vHeadDim !== headDim || k !== v) return false;
  const crew = headDim / vectors.values;
  const isWhole = (kvHeads * headDim) % vectors.together === 0;
  return (
    isWhole && crew <= SUBGROUP && Number.isInteger(Math.log2(crew)) && fitsBlocks(headDim, vectors)
  );
}

/** Heads are several of the values that are stored together, or the other way round. */
function fitsBlocks(headDim: number, { together }: KvVectors): boolean {
  return headDim % together === 0 || together % headDim === 0;
}

export function attentionSubgroupsKernel(
  node: NodeOf<"attention">,
  { k: format }: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
  size: number,
): Kernel {
  const { heads, kvHeads, headDim, q } = node;
  return composeAttention({
    name: `attention-subgroups ${heads}/${kvHeads} heads of ${headDim}`,
    node,
    format,
    batch,
    exchange,
    size,
    bindings: [{ name: "q", type: "vec4f", source: { kind: "value", value: q } }],
    query: `
  let query = ${queryText(node, format)};`,
  });
}

/** The lane's values of a query in `q`, which is rotated. */
export function queryText({ heads, headDim }: NodeOf<"attention">, { vectors }: KvFormat): string {
  const start = `(token * ${heads}u + head) * ${headDim / 4}u + part * ${vectors!.values / 4}u`;
  return valuesText(vectors!, (j) => `q[${start} + ${j}u]`);
}

/** The values of a lane, from four at a time. */
export function valuesText(vectors: KvVectors, four: (j: number) => string): string {
  return `${valuesType(vectors)}(${valuesFours(vectors, four, ", ")})`;
}

export function composeAttention(parts: AttentionParts): Kernel {
  return makeKernel(attentionSpec(parts));
}

export function attentionSpec(parts: AttentionParts): KernelSpec {
  const { node, format, batch, exchange, size, together = 1 } = parts;
  const { heads, kvHeads, headDim, out, state } = node;
  const vectors = format.vectors!;
  const type = valuesType(vectors);
  const crew = headDim / vectors.values;
  const crews = size / crew;
  const writes = parts.writesCache ?? false;
  const none = startOf({ ...node, sinks: undefined }, "");
  const { split } = parts;
  const spread = isSpread(node, split, { together });
  const partIndex = spread ? "partIndex" : "group.z";
  const isFirst = split ? `crew == 0u && ${partIndex} == 0u` : "crew == 0u";
  const start = node.sinks ? onlyFirst(startOf(node, "head"), none, isFirst) : none;
  const positions = positionsText(node, batch, crews, kvRowWords(format, kvHeads * headDim));
  const isOwn = `place < ${headDim / 4}u${spread ? " && !isIdle" : ""}`;
  const lanes = size * together;
  const end = split ? "min(cached, begin + span)" : "cached";
  const put: PutText = (value) =>
    parts.record?.put("resultAt", value, isOwn) ?? `if (${isOwn}) { result[resultAt] = ${value}; }`;
  return {
    name: parts.name,
    bindings: [
      ...parts.bindings,
      { name: "keys", type: "vec4u", source: { kind: "keys", state }, writes },
      { name: "values", type: "vec4u", source: { kind: "values", state }, writes },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      ...headBindings(node),
      ...(parts.split ? [splitBinding] : []),
      parts.record?.binding ?? resultOf(out),
    ],
    enables: exchange.enables,
    quiet: spread && exchange.bySubgroup ? ["subgroup_uniformity"] : [], // a head is whole subgroups
    size: lanes,
    declarations: `${cacheRowText(batch, state)}${vectors.declarations}${vectors.load("keys", kvHeads * headDim)}${vectors.load("values", kvHeads * headDim)}${parts.declarations ?? ""}
${exchange.declarations(lanes)}${exchange.sumFour("sumsOfCrew", crew, lanes)}
var<workgroup> crewTops: array<f32, ${crews * together}>;
var<workgroup> crewTotals: array<f32, ${crews * together}>;
var<workgroup> merged: array<vec4f, ${mergedQuads(vectors, size) * together}>; // [head of the workgroup][crew][value / 4]
var<workgroup> turned: array<vec4f, ${lanes}>;${crewsText(crews, exchange)}${split ? splitDeclarations(mostParts(split, node), together) : ""}
${productText(vectors)}`,
    rows: out.rows,
    minRows: parts.minRows ?? 1,
    maxRows: parts.maxRows ?? Infinity,
    sameBits: parts.sameBits ?? false,
    grid: (tokens) => [heads / together, tokens, split ? mostParts(split, node) : 1],
    body: `
  let token = group.y;
  let place = ${together > 1 ? `lane % ${size}u` : "lane"}; // among the lanes of the head
  ${split ? spanText(node, split, batch) : ""}
  ${headText(node, split, { size, together })}
  let part = place % ${crew}u;
  let crew = place / ${crew}u;
  let kvColumn = (head / ${heads / kvHeads}u) * ${headDim}u + part * ${vectors.values}u;
  let length = ${endText(node, batch)};
  let cached = ${parts.own === undefined ? "length" : "length - 1u"};
  var top = ${start.top};
  var total = ${start.total};
  var sums = ${type}();
  ${partText(node, split, batch, partIndex)}
  let end = ${spread && exchange.bySubgroup ? `select(${end}, begin, isIdle)` : end};
  ${positions.before}
  ${parts.query}
  ${parts.own === undefined ? "" : split ? `if (${partIndex} == 0u) {${parts.own}\n  }` : `{${parts.own}\n  }`}
  ${positions.loop}
  ${mergeText(vectors, headDim / 4, crews, { size, together })}
  let resultAt = (token * ${heads}u + head) * ${headDim / 4}u + place; // in the first lanes
  ${split ? splitStoreText(node, split, { size, together }, put) : put("sum / all")}`,
  };
}

/** `fn product`: of a lane's values of the query and of a key; `fn weighted`: its values of a value, times a weight. */
function productText(vectors: KvVectors): string {
  const type = valuesType(vectors);
  const { scale } = vectors;
  const dot = valuesFours(vectors, (j) => `dot(a[${j}], b[${j}])`, " + ");
  return `
fn product(a: ${type}, kept: Kept) -> f32 {
  let b = valuesOf(kept);
  return ${scale ? `(${dot}) * ${scale("kept")}` : dot};
}
fn weighted(kept: Kept, weight: f32) -> ${type} { return valuesOf(kept) * ${scale ? `(weight * ${scale("kept")})` : "weight"}; }`;
}

/** Positions that all crews of a head load ahead. */
export const loadedAhead = (size: number, headDim: number, { values }: KvVectors): number =>
  (size / (headDim / values)) * AHEAD;

/** Sets `begin`; returns where the part is beyond the token's context. */
function partText(
  node: NodeOf<"attention">,
  split: AttentionSplit | undefined,
  batch: BatchLayout,
  partIndex: string,
): string {
  const part = split && `${partIndex} * span`;
  const begin = beginText(node, batch);
  if (begin === undefined) {
    return `let begin = ${part ?? "0u"};
  ${split ? "if (begin > 0u && begin + 1u >= length) { return; }" : ""}`;
  }
  return `let begin = ${begin}${part ? ` + ${part}` : ""};
  ${split ? `if (${partIndex} > 0u && begin + 1u >= length) { return; }` : ""}`;
}

/** A start for the first crew only: crews and parts are merged at the end, and a sink must count once. */
function onlyFirst(
  first: ReturnType<typeof startOf>,
  others: ReturnType<typeof startOf>,
  isFirst: string,
): ReturnType<typeof startOf> {
  const pick = (one: string, other: string): string => `select(${other}, ${one}, ${isFirst})`;
  return { top: pick(first.top, others.top), total: pick(first.total, others.total) };
}

function resultOf(value: Value): Binding {
  return { name: "result", type: "vec4f", source: { kind: "value", value }, writes: true };
}

/** Positions `begin` to `end` of the cache. The first of them are loaded before anything else, and others as soon as those are used. */
function positionsText(
  node: NodeOf<"attention">,
  batch: BatchLayout,
  crews: number,
  rowWords: number,
): { before: string; loop: string } {
  const each = (text: (u: number) => string): string =>
    Array.from({ length: AHEAD }, (_, u) => text(u)).join("\n    ");
  const largest = Array.from({ length: AHEAD }, (_, u) => `score${u}`).reduce(
    (a, b) => `max(${a}, ${b})`,
  );
  const list = (text: (u: number) => string): string =>
    Array.from({ length: AHEAD }, (_, u) => text(u)).join(", ");
  const addresses = (prefix: string, start: string): string =>
    each(
      (u) =>
        `${prefix}at${u} = cacheRow(token, min(${start} + ${u * crews}u + crew, last)) * ${rowWords}u;`,
    );
  const [keys, values] = ["key", "value"].map(
    (name) =>
      (prefix: string): string =>
        each((u) => `${prefix}${name}${u} = ${name}sAt(at${u}, kvColumn);`),
  ) as [(prefix: string) => string, (prefix: string) => string];
  return {
    before: `
  let last = max(end, begin + 1u) - 1u; // there is none where the token is the first
  ${addresses("var ", "begin")}
  ${keys("var ")}
  ${values("var ")}`,
    loop: `
  for (var start = begin; start < end; start += ${crews * AHEAD}u) {
    let dots = sumsOfCrew(vec4f(${list((u) => `product(query, key${u})`)}), lane);
    ${addresses("", `start + ${crews * AHEAD}u`)}
    ${keys("")}
    ${each((u) => `let position${u} = start + ${u * crews}u + crew;`)}
    ${each((u) => `let score${u} = select(-3.0e38, ${scoreText(node, `dots[${u}]`, "head", batch, `position${u}`)}, position${u} < end);`)}
    let newTop = max(top, ${largest});
    let shrink = exp(max(top - newTop, -100.0));
    ${each((u) => `let weight${u} = select(0.0, exp(max(score${u} - newTop, -100.0)), position${u} < end);`)}
    top = newTop;
    total = total * shrink + ${Array.from({ length: AHEAD }, (_, u) => `weight${u}`).join(" + ")};
    sums = sums * shrink;
    ${each((u) => `sums = sums + weighted(value${u}, weight${u});`)}
    ${values("")}
  }`,
  };
}

/** Text for each four of a lane's values. */
function valuesFours({ values }: KvVectors, text: (j: number) => string, between: string): string {
  return Array.from({ length: values / 4 }, (_, j) => text(j)).join(between);
}

/** Lanes whose sums are in workgroup memory: half of them where each has many, so that several workgroups share a core. */
const mergedLanes = ({ values }: KvVectors, size: number): number => (values > 8 ? size / 2 : size);

/** Vectors of them. */
const mergedQuads = (vectors: KvVectors, size: number): number =>
  (mergedLanes(vectors, size) * vectors.values) / 4;

/** Sets `sum` (of 4 values by lane, in the first lanes of a head), `all` and `highest`, over all crews. */
function mergeText(vectors: KvVectors, quads: number, crews: number, heads: HeadLanes): string {
  const { size } = heads;
  const lanes = mergedLanes(vectors, size);
  const left = (crews * lanes) / size;
  const turns = Math.min(size / quads, left);
  const own = (text: (at: string, j: number) => string, from: string): string =>
    valuesFours(
      vectors,
      (j) => text(`merged[firstMerged + ${from} * ${vectors.values / 4}u + ${j}u]`, j),
      " ",
    );
  const weighed = (j: number): string => `sums[${j}] * ownWeight`;
  const first = own(
    (at, j) => `${at} = ${weighed(j)};`,
    lanes < size ? `(place - ${lanes}u)` : "place",
  );
  const second = own((at, j) => `${at} += ${weighed(j)};`, "place");
  return `
  ${memoryOfHead("firstCrew", crews, heads)}
  ${memoryOfHead("firstMerged", mergedQuads(vectors, size), heads)}
  if (part == 0u) { crewTops[firstCrew + crew] = top; }
  workgroupBarrier();
  let highest = ${overCrews("largest", "crewTops", crews)};
  let ownWeight = exp(max(top - highest, -100.0));
  if (part == 0u) { crewTotals[firstCrew + crew] = total * ownWeight; }
  ${
    lanes < size
      ? `if (place >= ${lanes}u) { ${first} }
  workgroupBarrier();
  if (place < ${lanes}u) { ${second} }`
      : first
  }
  workgroupBarrier();
  // Lanes take crews in turns.
  var sum = vec4f();
  for (var i = place / ${quads}u; i < ${left}u; i += ${turns}u) { sum += merged[firstMerged + i * ${quads}u + place % ${quads}u]; }
  turned[lane] = sum;
  workgroupBarrier();
  let all = ${overCrews("sum", "crewTotals", crews)};
  if (place < ${quads}u) {
    for (var i = 1u; i < ${turns}u; i++) { sum += turned[i * ${quads}u + lane]; }
  }`;
}

/** `fn largestOfCrews`, `fn sumOfCrews`: over the crews of a head, each lane with the value of one of them; or over those in workgroup memory, of many crews. */
function crewsText(crews: number, exchange: Exchange): string {
  if (crews <= SUBGROUP) {
    return `${exchange.reduce("largestOfCrews", crews, "max")}${exchange.reduce("sumOfCrews", crews, "sum")}`;
  }
  return `
fn largestOfCrews(first: u32) -> f32 {
  var all = crewTops[first];
  for (var i = 1u; i < ${crews}u; i++) { all = max(all, crewTops[first + i]); }
  return all;
}
fn sumOfCrews(first: u32) -> f32 {
  var all = crewTotals[first];
  for (var i = 1u; i < ${crews}u; i++) { all += crewTotals[first + i]; }
  return all;
}`;
}

/** WGSL that calls one of them. */
function overCrews(name: "largest" | "sum", values: string, crews: number): string {
  const at = crews <= SUBGROUP ? `${values}[firstCrew + place % ${crews}u], lane` : "firstCrew";
  return `${name}OfCrews(${at})`;
}
