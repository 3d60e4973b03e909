// WGSL that reads a matrix of any type: `fn weight4(row: u32, i: u32) -> vec4f`, four values from column i on, i being a
// multiple of 4. Around a type's unpack (unpack/), or its single elements.

import type { Weight } from "../../../graph/graph.ts";
import { unpackOf } from "../unpack/table.ts";
import type { BlockUnpack, ElementUnpack } from "../unpack/unpack.ts";
import { unpackHelpers } from "../unpack/unpack.ts";
import type { Binding } from "./kernel.ts";

export interface WeightText {
  readonly bindings: readonly Binding[];
  readonly declarations: string;
}

/** For a weight whose type the GPU reads (checked by whoever asks). */
export function weightText(weight: Weight, part: number): WeightText {
  const unpack = unpackOf(weight.dtype)!;
  const bindings: Binding[] = [
    { name: "weights", type: "u32", source: { kind: "weight", weight, part } },
  ];
  if (unpack.kind === "element") {
    return { bindings, declarations: elementText(unpack, weight.shape[1]!) };
  }
  if (unpack.book) {
    bindings.push({ name: "book", type: "u32", source: { kind: "table", words: unpack.book() } });
  }
  return { bindings, declarations: blockText(unpack, weight) };
}

function blockText(unpack: BlockUnpack, { dtype, shape }: Weight): string {
  const rowBytes = (shape[1]! / dtype.blockElems) * dtype.blockBytes;
  const dot32 = unpack.dot32
    ? `
var<private> xs: array<vec4f, 8>;
var<private> xTotal: f32;
fn dotBytes(words: vec4u, first: u32) -> f32 {
  return (dot(bytesOf(words.x), xs[first]) + dot(bytesOf(words.y), xs[first + 1u]))
    + (dot(bytesOf(words.z), xs[first + 2u]) + dot(bytesOf(words.w), xs[first + 3u]));
}
fn dot32(b: u32, i: u32) -> f32 {${unpack.dot32}
}`
    : "";
  return `${unpackHelpers}${unpack.tables ?? ""}${dot32}
fn unpack(b: u32, i: u32) -> vec4f {${unpack.body}
}
fn weight4(row: u32, i: u32) -> vec4f {
  let block = row * ${rowBytes}u + (i / ${dtype.blockElems}u) * ${dtype.blockBytes}u;
  return unpack(block, i % ${dtype.blockElems}u);
}`;
}

function elementText(unpack: ElementUnpack, cols: number): string {
  const value = (j: number): string =>
    cols % 4 === 0 ? `element(at + ${j}u)` : `elementInRow(at + ${j}u, i + ${j}u)`;
  return `${unpackHelpers}
fn element(i: u32) -> f32 { ${unpack.body} }
fn elementInRow(at: u32, i: u32) -> f32 {
  if (i >= ${cols}u) { return 0.0; }
  return element(at);
}
fn weight4(row: u32, i: u32) -> vec4f {
  let at = row * ${cols}u + i;
  return vec4f(${[0, 1, 2, 3].map(value).join(", ")});
}`;
}
