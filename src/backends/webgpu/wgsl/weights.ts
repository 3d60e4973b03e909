// WGSL that reads a matrix of any type: `fn weight4(row: u32, i: u32) -> vec4f`, four values from column i on, a multiple of 4.
// It is built around a type's unpack (unpack/).

import type { Weight } from "../../../graph/graph.ts";
import { unpackOf } from "../unpack/table.ts";
import type { BlockUnpack, ElementUnpack } from "../unpack/unpack.ts";
import { unpackHelpers } from "../unpack/unpack.ts";
import type { Binding, Source } from "./kernel.ts";

export interface WeightText {
  readonly bindings: readonly Binding[];
  readonly declarations: string;
}

/** For a weight whose type the GPU reads (readable() in ops/readable.ts). */
export function weightText(
  weight: Weight,
  source: Extract<Source, { kind: "weight" | "stack" }>,
): WeightText {
  const unpack = unpackOf(weight.dtype);
  const bindings: Binding[] = [{ name: "weights", type: "u32", source }];
  if (unpack.kind === "element") {
    return { bindings, declarations: elementText(unpack, weight.shape.at(-1)!) };
  }
  if (unpack.planes) {
    bindings.push({ name: "narrow", type: "u32", source: { ...source, plane: "narrow" } });
  }
  if (unpack.book) {
    bindings.push({ name: "book", type: "u32", source: { kind: "table", words: unpack.book() } });
  }
  return { bindings, declarations: blockText(unpack, weight) };
}

function blockText(unpack: BlockUnpack, { dtype, shape }: Weight): string {
  const { blockElems } = dtype;
  const blockBytes = unpack.planes?.wide ?? dtype.blockBytes;
  const scale = unpack.planes
    ? `
fn narrowHalf(n: u32) -> f32 { return half((narrow[n >> 1u] >> ((n & 1u) * 16u)) & 65535u); }
fn narrowByte(n: u32) -> u32 { return (narrow[n >> 2u] >> ((n & 3u) * 8u)) & 255u; }`
    : "";
  return `${unpackHelpers}${scale}${unpack.tables ?? ""}
fn unpack(b: u32, n: u32, i: u32) -> vec4f {${unpack.body}
}
fn weight4(row: u32, i: u32) -> vec4f {
  let block = row * ${shape.at(-1)! / blockElems}u + i / ${blockElems}u;
  return unpack(block * ${blockBytes}u, block, i % ${blockElems}u);
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
