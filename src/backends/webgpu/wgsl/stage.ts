// Stages the activations of a matmul (matmul-few.ts) in workgroup memory: normalised, where a norm is fused with it, and
// rounded to DType.activation: 8-bit quants with a scale for each block, or half floats.

import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { type AttentionSplit, mergeText, partsText, splitBindings } from "./attention-split.ts";
import { activationHalfText, nearestHalfText } from "./halves.ts";
import { type Binding, float } from "./kernel.ts";
import { type BlockQuants, blockQuantsOf } from "./round-activations.ts";
import { type Exchange, TEAM } from "./teams.ts";

/** The input of a matmul, with the nodes before it that are fused with it. */
export interface StageSource {
  readonly x: Value;
  /** Only these rows of x are read. */
  readonly select?: NodeOf<"select"> | undefined;
  readonly norm?: NodeOf<"rms_norm"> | undefined;
  /** x is attention in parts, which are merged here. */
  readonly merge?: NodeOf<"attention"> | undefined;
  /** The first workgroup also stores the normalised values here. */
  readonly keep?: Value | undefined;
}

export interface StageText {
  readonly bindings: readonly Binding[];
  readonly declarations: string;
  /** Fills `staged` (vec4u) and `scales`; ends with a barrier. Reads `token` and `index`, the number of the workgroup. */
  readonly body: string;
}

/** Bytes of workgroup memory that staging needs. */
export function stageBytes({ dtype, shape }: Weight): number {
  const cols = shape[1]!;
  const quants = blockQuantsOf(dtype.activation);
  return (quants ? cols + (cols / quants.block) * 4 : cols * 2) + 1024;
}

export function stageText(
  source: StageSource,
  weight: Weight,
  size: number,
  exchange: Exchange,
  batch: BatchLayout,
  split: AttentionSplit,
): StageText {
  const { x, select, norm, keep, merge } = source;
  const quads = x.cols / 4;
  const quants = blockQuantsOf(weight.dtype.activation);
  const stored = quants ? quantText(quants, quads, size, exchange) : halfText(quads, size);
  const value = (quad: string): string => {
    if (merge) return `merged4(token, ${quad}, parts)`;
    return norm ? `x[row + ${quad}] * factor * norm[${quad}]` : `x[row + ${quad}]`;
  };
  return {
    bindings: stageBindings(source),
    declarations: `${merge ? mergeText(merge, split) : ""}${norm ? normDeclarations(size, exchange) : ""}${stored.declarations}`,
    body: `
  ${merge ? `let parts = ${partsText(split, merge, batch)};` : ""}
  let row = ${select ? `batch[${batch.outputRows}u + token]` : "token"} * ${quads}u;
  ${norm ? factorText(norm, quads, size) : ""}
  ${keep ? `if (index == 0u) { for (var i = lane; i < ${quads}u; i += ${size}u) { keep[token * ${quads}u + i] = ${value("i")}; } }` : ""}
  ${stored.body(value)}
  workgroupBarrier();`,
  };
}

function stageBindings({ x, select, norm, keep, merge }: StageSource): Binding[] {
  if (merge) {
    return [...splitBindings(false), { name: "batch", type: "u32", source: { kind: "batch" } }];
  }
  const bindings: Binding[] = [{ name: "x", type: "vec4f", source: { kind: "value", value: x } }];
  if (norm) {
    const source = { kind: "weight", weight: norm.weight, part: 0 } as const;
    bindings.push({ name: "norm", type: "vec4f", source });
  }
  if (select) bindings.push({ name: "batch", type: "u32", source: { kind: "batch" } });
  if (keep) {
    const source = { kind: "value", value: keep } as const;
    bindings.push({ name: "keep", type: "vec4f", source, writes: true });
  }
  return bindings;
}

const normDeclarations = (size: number, exchange: Exchange): string => `
var<workgroup> squares: array<f32, ${size / TEAM}>;${exchange.reduce("sumOfTeam", TEAM, "sum")}`;

/** Sets `factor`, by which a row is normalised; every workgroup computes it again. */
function factorText({ eps }: NodeOf<"rms_norm">, quads: number, size: number): string {
  const teams = size / TEAM;
  return `
  var square = 0.0;
  for (var i = lane; i < ${quads}u; i += ${size}u) { square += dot(x[row + i], x[row + i]); }
  square = sumOfTeam(square, lane);
  if (lane % ${TEAM}u == 0u) { squares[lane / ${TEAM}u] = square; }
  workgroupBarrier();
  square = ${Array.from({ length: teams }, (_, i) => `squares[${i}]`).join(" + ")};
  let factor = 1.0 / sqrt(square / ${float(quads * 4)} + ${float(eps)});`;
}

interface Stored {
  readonly declarations: string;
  body(value: (quad: string) => string): string;
}

/** Eight lanes share a block of 32 values, 32 lanes one of 256. */
function quantText(quants: BlockQuants, quads: number, size: number, exchange: Exchange): Stored {
  const { block } = quants;
  const width = block === 32 ? 8 : TEAM;
  const own = block / 4 / width; // vectors of 4 values
  const each = (text: (k: number) => string, between = "\n    "): string =>
    Array.from({ length: own }, (_, k) => text(k)).join(between);
  return {
    declarations: `${nearestHalfText}${exchange.reduce("largestOfBlock", width, "max")}
var<workgroup> staged: array<vec4u, ${quads / 4}>;
var<workgroup> scales: array<f32, ${(quads * 4) / block}>;
fn largestOf(values: vec4f) -> f32 {
  let sizes = abs(values);
  return max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
}
fn packed(quants: vec4f) -> u32 {
  let bytes = bitcast<vec4u>(vec4i(quants)) & vec4u(255u);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}
fn quantsOf(values: vec4f, inverse: f32) -> vec4f { ${quants.round} }`,
    body: (value) => `
  for (var start = 0u; start < ${quads}u; start += ${size * own}u) {
    let quad = start + lane * ${own}u;
    let exists = quad < ${quads}u;
    ${each((k) => `var v${k} = vec4f();`, " ")}
    if (exists) { ${each((k) => `v${k} = ${value(`(quad + ${k}u)`)};`, " ")} }
    let largest = largestOfBlock(${each((k) => `largestOf(v${k})`, ", ").replace(/^(.*), (.*)$/, "max($1, $2)")}, lane);
    ${quants.scale}
    if (exists) {
      ${each((k) => `staged[(quad + ${k}u) >> 2u][(quad + ${k}u) & 3u] = packed(quantsOf(v${k}, inverse));`)}
      if (lane % ${width}u == 0u) { scales[quad / ${block / 4}u] = scale; }
    }
  }`,
  };
}

function halfText(quads: number, size: number): Stored {
  return {
    declarations: `${nearestHalfText}${activationHalfText}
var<workgroup> staged: array<vec4u, ${quads / 2}>;`,
    body: (value) => `
  for (var quad = lane; quad < ${quads}u; quad += ${size}u) {
    let v = ${value("quad")};
    let at = (quad & 1u) * 2u;
    staged[quad >> 1u][at] = packActivations(v.xy);
    staged[quad >> 1u][at + 1u] = packActivations(v.zw);
  }`,
  };
}
