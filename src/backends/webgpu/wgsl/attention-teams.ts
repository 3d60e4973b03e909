// attention for heads of 8, 16, 32, 64, 128 or 256 values, over a cache that is read 8 values at a time. A workgroup computes
// one head of one token. A crew is as many lanes as hold a row of the head; of n crews, each takes every n-th position with
// an online softmax, and the crews are merged at the end. With subgroups there is no barrier in the loop.
//
// attention-roped.ts builds its kernel with composeAttention(), too, with its own query and the token's own key and value.

import type { NodeOf, Value } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { beginText, endText, headBindings, scoreText, startOf } from "./attention-options.ts";
import {
  type AttentionSplit,
  mostParts,
  splitBindings,
  splitStoreText,
} from "./attention-split.ts";
import { type Binding, type Kernel, type KernelSpec, makeKernel } from "./kernel.ts";
import { type KvEights, type KvFormat, type KvFormats, kvRowWords } from "./kv-format.ts";
import { cacheRowText } from "./kv-write.ts";
import { type Exchange, TEAM } from "./teams.ts";

/** Positions of a crew whose keys and values are loaded before any of them is used. */
const AHEAD = 4;

export interface AttentionParts {
  readonly name: string;
  readonly node: NodeOf<"attention">;
  /** Of keys and values alike. */
  readonly format: KvFormat;
  readonly batch: BatchLayout;
  readonly exchange: Exchange;
  /** Lanes of a workgroup. */
  readonly size: number;
  /** Bindings besides keys, values, batch and result. */
  readonly bindings: readonly Binding[];
  readonly declarations?: string;
  readonly writesCache?: boolean;
  /** WGSL that sets `query: mat2x4f`, values part * 8 ... + 7 of the head, from `token`, `head` and `part`. */
  readonly query: string;
  /** WGSL after that, which may set top, total and sums from a position that is not in the cache, and lower `length`. */
  readonly own?: string;
  readonly minRows?: number;
  readonly maxRows?: number;
  readonly sameBits?: boolean;
  /** The context is split: each workgroup of a head computes a part, and stores it for merging. */
  readonly split?: AttentionSplit | undefined;
}

/** Whether there is such a kernel for these heads and this cache. */
export function hasTeams({ headDim, vHeadDim }: NodeOf<"attention">, { k, v }: KvFormats): boolean {
  const crew = headDim / 8;
  if (vHeadDim !== headDim || k !== v) return false;
  return k.eights !== undefined && crew <= TEAM && Number.isInteger(Math.log2(crew));
}

export function attentionTeamsKernel(
  node: NodeOf<"attention">,
  { k: format }: KvFormats,
  batch: BatchLayout,
  exchange: Exchange,
  size: number,
): Kernel {
  const { heads, kvHeads, headDim, q } = node;
  const quads = headDim / 4;
  return composeAttention({
    name: `attention-teams ${heads}/${kvHeads} heads of ${headDim}`,
    node,
    format,
    batch,
    exchange,
    size,
    bindings: [{ name: "q", type: "vec4f", source: { kind: "value", value: q } }],
    query: `
  let start4 = (token * ${heads}u + head) * ${quads}u + part * 2u;
  let query = mat2x4f(q[start4], q[start4 + 1u]);`,
  });
}

export function composeAttention(parts: AttentionParts): Kernel {
  return makeKernel(attentionSpec(parts));
}

export function attentionSpec(parts: AttentionParts): KernelSpec {
  const { node, format, batch, exchange, size } = parts;
  const { heads, kvHeads, headDim, out, state } = node;
  const eights = format.eights!;
  const crew = headDim / 8;
  const crews = size / crew;
  const writes = parts.writesCache ?? false;
  const none = startOf({ ...node, sinks: undefined }, "");
  const start = node.sinks ? onlyFirst(startOf(node, "head"), none) : none;
  return {
    name: parts.name,
    bindings: [
      ...parts.bindings,
      { name: "keys", type: "vec4u", source: { kind: "keys", state }, writes },
      { name: "values", type: "vec4u", source: { kind: "values", state }, writes },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      ...headBindings(node),
      ...(parts.split ? splitBindings(true) : [resultOf(out)]),
    ],
    enables: exchange.enables,
    size,
    declarations: `${cacheRowText(batch, state)}${cacheText(eights)}${parts.declarations ?? ""}
${exchange.declarations(size)}${exchange.reduce("sumOfCrew", crew, "sum")}
var<workgroup> crewTops: array<f32, ${crews}>;
var<workgroup> crewTotals: array<f32, ${crews}>;
var<workgroup> merged: array<vec4f, ${size * 2}>; // [crew][value / 4]
fn product(a: mat2x4f, b: mat2x4f) -> f32 { return dot(a[0], b[0]) + dot(a[1], b[1]); }`,
    rows: out.rows,
    minRows: parts.minRows ?? 1,
    maxRows: parts.maxRows ?? Infinity,
    sameBits: parts.sameBits ?? false,
    grid: (tokens) => [heads, tokens, parts.split ? mostParts(parts.split, node) : 1],
    body: `
  let token = group.y;
  let head = group.x;
  let part = lane % ${crew}u;
  let crew = lane / ${crew}u;
  let kvColumn = (head / ${heads / kvHeads}u) * ${headDim}u + part * 8u;
  var length = ${endText(node, batch)};
  var top = ${start.top};
  var total = ${start.total};
  var sums = mat2x4f();
  ${partText(node, parts.split, batch)}
  ${parts.query}
  ${parts.own ?? ""}
  let end = ${parts.split ? `min(length, begin + ${parts.split.span}u)` : "length"};
  ${positionsText(node, batch, crews, kvRowWords(format, kvHeads * headDim))}
  ${mergeText(headDim / 4, crews)}
  ${parts.split ? splitStoreText(node, parts.split) : `if (lane < ${headDim / 4}u) { result[(token * ${heads}u + head) * ${headDim / 4}u + lane] = sum / all; }`}`,
  };
}

/** Sets `begin`; returns where the part is beyond the token's context. */
function partText(
  node: NodeOf<"attention">,
  split: AttentionSplit | undefined,
  batch: BatchLayout,
): string {
  const part = split && `group.z * ${split.span}u`;
  const begin = beginText(node, batch);
  if (begin === undefined) {
    return `let begin = ${part ?? "0u"};
  ${split ? "if (begin > 0u && begin + 1u >= length) { return; }" : ""}`;
  }
  return `let begin = ${begin}${part ? ` + ${part}` : ""};
  ${split ? "if (group.z > 0u && begin + 1u >= length) { return; }" : ""}`;
}

/** A start for the first crew only: crews are merged at the end, and a sink must count once. */
function onlyFirst(
  first: ReturnType<typeof startOf>,
  others: ReturnType<typeof startOf>,
): ReturnType<typeof startOf> {
  const pick = (one: string, other: string): string => `select(${other}, ${one}, crew == 0u)`;
  return { top: pick(first.top, others.top), total: pick(first.total, others.total) };
}

/** Reads of keys and values, which the roped kernel also writes. */
function cacheText({ load }: KvEights): string {
  return `${load("keys")}${load("values")}`;
}

function resultOf(value: Value): Binding {
  return { name: "result", type: "vec4f", source: { kind: "value", value }, writes: true };
}

/** Positions `begin` to `end` of the cache. */
function positionsText(
  node: NodeOf<"attention">,
  batch: BatchLayout,
  crews: number,
  rowWords: number,
): string {
  const each = (text: (u: number) => string): string =>
    Array.from({ length: AHEAD }, (_, u) => text(u)).join("\n    ");
  const largest = Array.from({ length: AHEAD }, (_, u) => `score${u}`).reduce(
    (a, b) => `max(${a}, ${b})`,
  );
  return `
  for (var start = begin; start < end; start += ${crews * AHEAD}u) {
    ${each((u) => `let position${u} = start + ${u * crews}u + crew;`)}
    ${each((u) => `let at${u} = cacheRow(token, min(position${u}, end - 1u)) * ${rowWords}u;`)}
    ${each((u) => `let key${u} = keys8(at${u}, kvColumn);`)}
    ${each((u) => `let value${u} = values8(at${u}, kvColumn);`)}
    ${each((u) => `var score${u} = ${scoreText(node, `sumOfCrew(product(query, key${u}), lane)`, "head", batch, `position${u}`)};`)}
    ${each((u) => `score${u} = select(-3.0e38, score${u}, position${u} < end);`)}
    let newTop = max(top, ${largest});
    let shrink = exp(max(top - newTop, -100.0));
    ${each((u) => `let weight${u} = select(0.0, exp(max(score${u} - newTop, -100.0)), position${u} < end);`)}
    top = newTop;
    total = total * shrink + ${Array.from({ length: AHEAD }, (_, u) => `weight${u}`).join(" + ")};
    sums = sums * shrink;
    ${each((u) => `sums = sums + value${u} * weight${u};`)}
  }`;
}

/** Sets \`sum\` (of 4 values by lane), \`all\` and \`highest\`, over all crews. */
function mergeText(quads: number, crews: number): string {
  return `
  if (part == 0u) { crewTops[crew] = top; crewTotals[crew] = total; }
  merged[lane * 2u] = sums[0];
  merged[lane * 2u + 1u] = sums[1];
  workgroupBarrier();
  var highest = crewTops[0];
  for (var i = 1u; i < ${crews}u; i++) { highest = max(highest, crewTops[i]); }
  var all = 0.0;
  var sum = vec4f();
  for (var i = 0u; i < ${crews}u; i++) {
    let weight = exp(max(crewTops[i] - highest, -100.0));
    all += crewTotals[i] * weight;
    sum += merged[i * ${quads}u + lane % ${quads}u] * weight;
  }`;
}
