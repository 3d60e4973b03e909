// attention and kv_write with the sums of the CPU's kernels (src/kernels/ops/attention/): each score in as many partial sums as a
// vector has lanes, the softmax over all positions at once, values mixed in the order of the positions.
//
// A workgroup computes one head of one token. Its scores are in a buffer, since a row of them may be as long as the context.

import { UsageError } from "../../../base/errors.ts";
import type { DType } from "../../../dtypes/dtype.ts";
import type { KvPair } from "../../../dtypes/kv-types.ts";
import type { Graph, NodeOf } from "../../../graph/graph.ts";
import { beginText, endText } from "../wgsl/attention-options.ts";
import { halfText } from "../wgsl/halves.ts";
import { float, type Kernel } from "../wgsl/kernel.ts";
import { type KvFormat, kvRowWords } from "../wgsl/kv-format.ts";
import { type EvenNibbles, evenLoad4, evenNibbles, evenStore } from "../wgsl/kv-nibbles.ts";
import { cacheRowText, kvWriteKernel } from "../wgsl/kv-write.ts";
import {
  divideText,
  exponentialText,
  fusedText,
  multiplyAddText,
  type Roundings,
  tangentText,
} from "./arithmetic.ts";
import { cappedText } from "./elementwise.ts";
import { exactKernel, read, write, zero } from "./kernel.ts";
import { laneSumText, partialText } from "./norms.ts";
import type { ExactContext, ExactLower, ExactOp } from "./op.ts";

/** Lanes of a workgroup. */
const SIZE = 64;
/** Vectors of a round of the CPU's softmax. */
const SOFTMAX_UNROLL = 2;

/** The reading of cache rows. Q8_0's scale is applied to keys at once, but to values only with their weight. */
interface CacheText {
  /** WGSL of `fn NAME4(at, i) -> vec4f`, the values i ... i + 3 without their scale. */
  load4(name: string, cols: number, format: KvFormat): string;
  /** WGSL of `fn NAMEScale(at, i) -> f32`; undefined: there is none. */
  scale?(name: string, cols: number): string;
  /** The writing of rows, if the usual way divides as the device does. */
  written?(format: KvFormat, roundings: Roundings): KvFormat;
}

/** The word of a scale is a float already; half floats are widened without the device's conversion. */
const heads = {
  scale: (word: string) => `bitcast<f32>(${word})`,
  both: (word: string) => `vec2f(half(${word} & 65535u), half(${word} >> 16u))`,
};

const caches: Readonly<Record<string, CacheText>> = {
  f32: { load4: (name, cols, format) => format.load4(name, cols) },
  f16: {
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let a = ${name}[at + i / 2u];
  let b = ${name}[at + i / 2u + 1u];
  return vec4f(half(a & 65535u), half(a >> 16u), half(b & 65535u), half(b >> 16u));
}`,
  },
  bf16: { load4: (name, cols, format) => format.load4(name, cols) },
  q8_0: {
    load4: (name) => `
fn ${name}4(at: u32, i: u32) -> vec4f {
  let word = ${name}[at + i / 4u];
  return vec4f(bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u));
}`,
    scale: (name, cols) => `
fn ${name}Scale(at: u32, i: u32) -> f32 { return bitcast<f32>(${name}[at + ${cols / 4}u + i / 32u]); }`,
    written: exactQ8,
  },
  ...Object.fromEntries(
    Object.entries(evenNibbles).map(([name, type]): [string, CacheText] => [
      name,
      {
        load4: evenLoad4(type, heads),
        written: (format, roundings) => ({ ...format, ...exactStore(type, roundings) }),
      },
    ]),
  ),
};

/** The CPU reads whole blocks of the cache; heads that are none it leaves to the reference. */
export function checkHeads({ nodes }: Graph, { k, v }: KvPair): void {
  for (const { name } of [k, v]) {
    if (Object.hasOwn(caches, name)) continue;
    throw new UsageError(
      `exact: a KV cache of ${name}, expected one of ${Object.keys(caches).join(", ")}. Use another kvType, or use \`exact: false\``,
    );
  }
  for (const node of nodes) {
    if (node.op !== "attention") continue;
    checkHead(node.headDim, k);
    checkHead(node.vHeadDim, v);
  }
}

function checkHead(size: number, { name, blockElems }: DType): void {
  if (size % blockElems === 0) return;
  throw new UsageError(
    `exact: heads of ${size} values in a KV cache of ${name}, whose blocks have ${blockElems}. Use \`kvType: "f16"\` or \`kvType: "f32"\`, or \`exact: false\``,
  );
}

/** Bytes of the scores of all heads and tokens: [tokens][heads][context]. */
export function scoreBytes(
  { heads }: Pick<NodeOf<"attention">, "heads">,
  tokens: number,
  context: number,
): number {
  return tokens * heads * context * 4;
}

export const kvWrite: ExactLower<"kv_write"> = (node, { kv, kvTypes, batch, arithmetic }) => {
  const k = writtenOf(kvTypes.k, kv.k, arithmetic);
  const v = kv.k === kv.v ? k : writtenOf(kvTypes.v, kv.v, arithmetic);
  return [kvWriteKernel(node, { k, v }, batch)];
};

function writtenOf({ name }: DType, format: KvFormat, roundings: Roundings): KvFormat {
  return caches[name]!.written?.(format, roundings) ?? format;
}

/** Quotients and products as the CPU rounds them. */
function exactStore(
  type: EvenNibbles,
  roundings: Roundings,
): Pick<KvFormat, "functions" | "store"> {
  const store = evenStore(type, {
    divide: (a, b) => `divide(${a}, ${b})`,
    rounded: (product) => `rounded(${product})`,
  });
  return { functions: [...divideFunctions(roundings), roundedFunction], store };
}

const divideFunctions = (roundings: Roundings): string[] => [
  fusedText(roundings, zero),
  divideText(roundings, zero),
];
const roundedFunction = `
fn rounded(value: f32) -> f32 { return bitcast<f32>(bitcast<u32>(value) ^ ${zero}); }`;

/** Rounds as quantize_kv_q8_0 does. */
function exactQ8(format: KvFormat, roundings: Roundings): KvFormat {
  return {
    ...format,
    functions: divideFunctions(roundings),
    store: (from, to, cols) => `{
    var largest = 0.0;
    for (var j = 0u; j < 32u; j++) { largest = max(largest, abs(${from}[source + j])); }
    let scale = divide(largest, 127.0);
    let inverse = divide(1.0, max(scale, ${float(2 ** -126)}));
    ${to}[first + ${cols / 4}u + unit] = bitcast<u32>(nearestHalf(scale));
    for (var word = 0u; word < 8u; word++) {
      var bytes = 0u;
      for (var j = 0u; j < 4u; j++) {
        let level = i32(round(${from}[source + word * 4u + j] * inverse));
        bytes |= (bitcast<u32>(level) & 255u) << (8u * j);
      }
      ${to}[first + unit * 8u + word] = bytes;
    }
  }`,
  };
}

export const attention: ExactOp<"attention"> = {
  supports: ({ headDim, vHeadDim, sinks, alibi, bias }) => {
    if (bias) return "attention with a bias by distance, which the CPU adds with more digits";
    if (alibi) return "attention with ALiBi, which the CPU subtracts with more digits";
    if (sinks) return "attention with sinks, which the CPU divides with more digits";
    for (const size of [headDim, vHeadDim]) {
      if (size % 4 !== 0) return `heads of ${size} values; they must be a multiple of 4`;
    }
    return true;
  },
  lower: (node, context) => [attentionKernel(node, context)],
};

function attentionKernel(node: NodeOf<"attention">, context: ExactContext): Kernel {
  const { q, out, state, heads, kvHeads, headDim, vHeadDim, scale, softcap } = node;
  const { arithmetic, batch, kv, kvTypes, lanes: lanesOf } = context;
  const [keys, values] = [caches[kvTypes.k.name]!, caches[kvTypes.v.name]!];
  const lanes = lanesOf(`attn_scores_${kvTypes.k.name}`);
  const begin = beginText(node, batch) ?? "0u";
  const sharing = heads / kvHeads;
  const [kCols, vCols] = [kvHeads * headDim, kvHeads * vHeadDim];
  const capped =
    softcap === undefined ? "sum" : cappedText("sum", float(Math.fround(softcap / scale)));
  return exactKernel({
    name: `attention ${heads}/${kvHeads} heads of ${headDim}${headDim === vHeadDim ? "" : ` and ${vHeadDim}`}`,
    bindings: [
      read("q", q),
      { name: "keys", type: "u32", source: { kind: "keys", state } },
      { name: "values", type: "u32", source: { kind: "values", state } },
      { name: "scores", type: "f32", source: { kind: "partials" }, writes: true },
      write(out),
    ],
    size: SIZE,
    declarations: `${cacheRowText(batch, state)}
${halfText}${keys.load4("keys", kCols, kv.k)}${values.load4("values", vCols, kv.v)}${keys.scale?.("keys", kCols) ?? ""}${values.scale?.("values", vCols) ?? ""}
${multiplyAddText(arithmetic, zero)}${divideText(arithmetic, zero)}${exponentialText}${softcap === undefined ? "" : tangentText}${partialText}
var<workgroup> query: array<vec4f, ${headDim / 4}>;
var<workgroup> tops: array<f32, ${SIZE}>;
${scoreFunction(headDim, lanes, keys)}`,
    rows: out.rows,
    grid: (tokens) => [heads, tokens, 1],
    body: `
  let token = group.y;
  let own = token * ${heads}u + group.x;
  let kvHead = group.x / ${sharing}u;
  for (var i = lane; i < ${headDim / 4}u; i += ${SIZE}u) {
    let at = own * ${headDim}u + i * 4u;
    query[i] = vec4f(q[at], q[at + 1u], q[at + 2u], q[at + 3u]);
  }
  workgroupBarrier();
  let length = ${endText(node, batch)};
  let first = ${begin};
  let count = length - first;
  let row = own * ${context.context}u;
  var top = -3.4e38;
  for (var p = lane; p < count; p += ${SIZE}u) {
    let at = cacheRow(token, first + p) * ${kvRowWords(kv.k, kCols)}u;
    let sum = score(at, kvHead * ${headDim}u);
    let bent = ${capped};
    scores[row + p] = bent;
    top = max(top, bent);
  }
  tops[lane] = top;
  storageBarrier();
  workgroupBarrier();
  for (var i = 0u; i < ${SIZE}u; i++) { top = max(top, tops[i]); }
  for (var p = lane; p < count; p += ${SIZE}u) {
    scores[row + p] = exponential((scores[row + p] - top) * ${float(scale)});
  }
  storageBarrier();
  workgroupBarrier();
  ${laneSumText("count", lanesOf("softmax"), SOFTMAX_UNROLL, (sum, i) => `${sum} + scores[row + ${i}]`)}
  let factor = divide(1.0, partial[0]);
  for (var p = lane; p < count; p += ${SIZE}u) { scores[row + p] = scores[row + p] * factor; }
  storageBarrier();
  workgroupBarrier();
  for (var i = lane * 4u; i < ${vHeadDim}u; i += ${SIZE * 4}u) {
    let column = kvHead * ${vHeadDim}u + i;
    var sums = vec4f();
    for (var p = 0u; p < count; p++) {
      let at = cacheRow(token, first + p) * ${kvRowWords(kv.v, vCols)}u;
      let weight = ${values.scale ? "rounded(scores[row + p] * valuesScale(at, column))" : "scores[row + p]"};
      sums = multiplyAdd4(vec4f(weight), values4(at, column), sums);
    }
    for (var j = 0u; j < 4u; j++) { result[own * ${vHeadDim}u + i + j] = sums[j]; }
  }`,
  });
}

/** `fn score(at, column) -> f32`: the query times the key there, lane by lane, and the lanes as f32v.store_sums adds them. */
function scoreFunction(headDim: number, lanes: number, { scale }: CacheText): string {
  const fours = Array.from({ length: lanes / 4 }, (_, j) => j);
  const key = (j: number): string => {
    const at = `column + i + ${4 * j}u`;
    return scale ? `rounded4(keys4(at, ${at}) * keysScale(at, ${at}))` : `keys4(at, ${at})`;
  };
  let sums = fours.map((j) => `((s${j}.x + s${j}.y) + (s${j}.z + s${j}.w))`);
  while (sums.length > 1) {
    const half = sums.length / 2;
    sums = sums.slice(0, half).map((sum, j) => `(${sum} + ${sums[j + half]!})`);
  }
  return `
fn score(at: u32, column: u32) -> f32 {
  ${fours.map((j) => `var s${j} = vec4f();`).join(" ")}
  for (var i = 0u; i < ${headDim}u; i += ${lanes}u) {
    ${fours.map((j) => `s${j} = multiplyAdd4(query[i / 4u + ${j}u], ${key(j)}, s${j});`).join("\n    ")}
  }
  return ${sums[0]!};
}`;
}
