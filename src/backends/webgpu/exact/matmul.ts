// matmul with the sums of the CPU's kernels (src/kernels/ops/matmul/dot4.ts): products of quants are integers and exact; each
// span's sum, with its scales, is added up span by span, in the order of the columns.
//
// Lanes compute the spans of several rows side by side and leave the terms of the sums in workgroup memory; then a lane for each
// row and token adds them up, one after the other. Float weights have no such terms: a lane computes a row by itself.

import { countOf } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { activationText } from "../wgsl/activations.ts";
import { tableRowText } from "../wgsl/embed.ts";
import { halfText } from "../wgsl/halves.ts";
import { type Binding, type Kernel, LANES } from "../wgsl/kernel.ts";
import { groupGrid, valueBindings } from "../wgsl/matvec.ts";
import { weightText } from "../wgsl/weights.ts";
import { activationPlaces, roundOnce } from "./activations.ts";
import { multiplyAddText } from "./arithmetic.ts";
import { exactKernel, vector, write, zero } from "./kernel.ts";
import type { ExactContext, ExactLower, ExactOp } from "./op.ts";
import { bookText, type ExactFormat, exactFormatOf, quantsText, wideType } from "./weights.ts";

/** Tokens that a workgroup computes one after the other, with weights that are in the cache by then. */
const TOKENS = 8;
/**
 * Lanes of a workgroup, and the number of them that walk along a row: fewer than 4 would leave more sums than there are
 * lanes.
 */
const SIZE = 128;
const [LEAST_ACROSS, MOST_ACROSS] = [4, 32];
/** Rows of a lane. */
const OWN_ROWS = 4;

export const matmul: ExactOp<"matmul"> = {
  supports: ({ weight, x }) => {
    if (exactFormatOf(weight.dtype)) return true;
    if (weight.dtype.block.kind !== "floats") {
      return `matmuls of ${weight.dtype.name}, for which the CPU has no packed kernels`;
    }
    return x.cols % 4 === 0 || `matmuls of ${x.cols} columns; they must be a multiple of 4`;
  },
  lower(node, context) {
    const { weight } = node;
    const own = context.weights.parts.get(weight.name)!;
    const format = exactFormatOf(weight.dtype);
    const kernels = own.map((part, number) =>
      format
        ? blocksKernel(node, format, part, number, context)
        : floatsKernel(node, part, number, context),
    );
    return [...roundOnce(node, context), ...kernels];
  },
};

function blocksKernel(
  node: NodeOf<"matmul">,
  format: ExactFormat,
  { rowStart, rows }: WeightPart,
  part: number,
  { arithmetic, packedDots }: ExactContext,
): Kernel {
  const { weight, x, out, bias } = node;
  const { hasMin, spanBlocks } = format.layout;
  const spans = x.cols / format.spanCols;
  const across = Math.min(MOST_ACROSS, Math.max(LEAST_ACROSS, 2 ** Math.ceil(Math.log2(spans))));
  const groupRows = (SIZE / across) * OWN_ROWS;
  const groups = Math.ceil(rows / groupRows);
  const source = { kind: "weight", weight, part } as const;
  const add = `let term = terms[lane * ${across}u + i];
        sum = multiplyAdd(term.x, term.y, sum);${hasMin ? `\n        sum = multiplyAdd(term.z, term.w, sum);` : ""}`;
  return exactKernel({
    name: `matmul ${weight.dtype.name} [${rows}, ${x.cols}]`,
    bindings: [
      { name: "wide", type: wideType(format), source },
      { name: "narrow", type: "u32", source: { ...source, plane: "narrow" } },
      { name: "quants", type: "vec4u", source: { kind: "rounded" } },
      { name: "fields", type: "u32", source: { kind: "rounded" } },
      write(out),
      ...(bias ? [vector("bias", bias)] : []),
    ],
    size: SIZE,
    declarations: `${multiplyAddText(arithmetic, zero)}
${halfText}${dotsText(packedDots)}${quantsText(format)}
// What each span came to and its scale; the same of its mins: [row][lane across].
var<workgroup> terms: array<${hasMin ? "vec4f" : "vec2f"}, ${groupRows * across}>;
${spanBlocks === 1 ? blockFunction(format, x.cols) : smallScalesFunction(format, x.cols)}`,
    rows: out.rows,
    grid: (tokens) => groupGrid(groups)(Math.ceil(tokens / TOKENS)),
    body: `
  let index = group.x + group.y * groups.x;
  if (index >= ${groups}u) { return; }
  ${bookText(format)}
  let member = lane % ${across}u;
  let first = (lane / ${across}u) * ${OWN_ROWS}u;
  let row = index * ${groupRows}u + lane;
  let last = min(batch[${countOf(out.rows)}u], (group.z + 1u) * ${TOKENS}u);
  for (var token = group.z * ${TOKENS}u; token < last; token++) {
    var sum = 0.0;
    for (var start = 0u; start < ${spans}u; start += ${across}u) {
      let span = start + member;
      workgroupBarrier();
      if (span < ${spans}u) {
        for (var j = first; j < first + ${OWN_ROWS}u; j++) {
          terms[j * ${across}u + member] = termOf(min(index * ${groupRows}u + j, ${rows - 1}u), span, token);
        }
      }
      workgroupBarrier();
      if (lane < ${groupRows}u) {
        for (var i = 0u; i < min(${across}u, ${spans}u - start); i++) {
        ${add}
        }
      }
    }
    if (lane < ${groupRows}u && row < ${rows}u) {
      let at = ${rowStart}u + row;
      result[token * ${out.cols}u + at] = sum${bias ? " + bias[at]" : ""};
    }
  }`,
  });
}

/** `fn dots`: sixteen 8-bit numbers times sixteen others. */
const dotsText = (packed: boolean): string => (packed ? packedDotsText : plainDotsText);

const packedDotsText = `
fn dots(a: vec4u, b: vec4u) -> i32 {
  return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}`;

const plainDotsText = `
fn products(a: vec4u, b: vec4u, shift: u32) -> vec4i {
  return (bitcast<vec4i>(a << vec4u(shift)) >> vec4u(24u)) * (bitcast<vec4i>(b << vec4u(shift)) >> vec4u(24u));
}
fn dots(a: vec4u, b: vec4u) -> i32 {
  let four = products(a, b, 0u) + products(a, b, 8u) + products(a, b, 16u) + products(a, b, 24u);
  return four.x + four.y + four.z + four.w;
}`;

/** `fn termOf(row, span, token)`, where a span is a block with a scale of its own. */
function blockFunction({ layout }: ExactFormat, cols: number): string {
  const { scales, sums } = activationPlaces(cols);
  const { offset, hasMin } = layout;
  const scale =
    layout.scales === "bfloats" ? "bitcast<f32>(narrow[block])" : "half(narrow[block] & 65535u)";
  const sum = `let sum = bitcast<i32>(fields[x + ${sums}u + 2u * span]) + bitcast<i32>(fields[x + ${sums + 1}u + 2u * span]);`;
  const value = `f32(dot${offset > 0 ? ` - ${offset} * sum` : ""}), ${scale} * xScale`;
  return `
fn termOf(row: u32, span: u32, token: u32) -> ${hasMin ? "vec4f" : "vec2f"} {
  let block = row * ${cols / 32}u + span;
  let x = token * ${cols}u;
  let own = quantsAt(block);
  let at = x / 4u + 2u * span;
  let dot = dots(own.low, quants[at]) + dots(own.high, quants[at + 1u]);
  let xScale = bitcast<f32>(fields[x + ${scales}u + span]);
  ${offset > 0 || hasMin ? sum : ""}
  return ${hasMin ? `vec4f(${value}, half(narrow[block] >> 16u), xScale * f32(sum))` : `vec2f(${value})`};
}`;
}

/** The same, where a span is eight blocks under a header. Its sums are whole numbers, added up as floats. */
function smallScalesFunction({ layout, narrowWords }: ExactFormat, cols: number): string {
  const { scales, sums } = activationPlaces(cols);
  const { offset, hasMin, scaleCols } = layout;
  const small = (plane: number, number: string): string =>
    `(bitcast<i32>(narrow[at + ${plane}u + ((${number}) >> 2u)] << (24u - 8u * ((${number}) & 3u))) >> 24u)`;
  const needsSums = offset > 0 || hasMin;
  const part = (dot: string, sum: string, number: string): string => {
    const value = offset > 0 ? `${dot} - ${offset} * ${sum}` : dot;
    return `value = multiplyAdd(f32(${value}), f32(${small(2, number)}), value);
    ${hasMin ? `low += ${small(6, number)} * ${sum};` : ""}`;
  };
  const sumAt = (side: number): string =>
    `let sum${side} = bitcast<i32>(fields[x + ${sums + side}u + 2u * (span * 8u + block)]);`;
  return `
fn termOf(row: u32, span: u32, token: u32) -> ${hasMin ? "vec4f" : "vec2f"} {
  let unit = row * ${cols / 256}u + span;
  let at = unit * ${narrowWords}u;
  let x = token * ${cols}u;
  var value = 0.0;
  ${hasMin ? "var low = 0;" : ""}
  for (var block = 0u; block < 8u; block++) {
    let own = quantsAt(unit * 8u + block);
    let xAt = x / 4u + 2u * (span * 8u + block);
    let dot0 = dots(own.low, quants[xAt]);
    let dot1 = dots(own.high, quants[xAt + 1u]);
    ${needsSums ? `${sumAt(0)} ${sumAt(1)}` : ""}
    ${
      scaleCols === 32
        ? part("(dot0 + dot1)", "(sum0 + sum1)", "block")
        : `${part("dot0", "sum0", "2u * block")}
    ${part("dot1", "sum1", "2u * block + 1u")}`
    }
  }
  let xScale = bitcast<f32>(fields[x + ${scales}u + span * 8u]);
  let scale = bitcast<f32>(narrow[at]) * xScale;
  return ${hasMin ? "vec4f(value, scale, f32(low), bitcast<f32>(narrow[at + 1u]) * xScale)" : "vec2f(value, scale)"};
}`;
}

/** F32, F16 and BF16: column by column. */
function floatsKernel(
  node: NodeOf<"matmul">,
  { rowStart, rows }: WeightPart,
  part: number,
  { arithmetic }: ExactContext,
): Kernel {
  const { weight, x, out, bias } = node;
  const text = weightText(weight, { kind: "weight", weight, part });
  const groups = Math.ceil(rows / LANES);
  return exactKernel({
    name: `matmul ${weight.dtype.name} [${rows}, ${x.cols}]`,
    bindings: [...text.bindings, ...valueBindings(node)],
    declarations: `${text.declarations}${activationText(x.cols)}${multiplyAddText(arithmetic, zero)}`,
    rows: out.rows,
    grid: groupGrid(groups),
    body: `
  let row = (group.x + group.y * groups.x) * ${LANES}u + lane;
  if (row >= ${rows}u) { return; }
  var sum = 0.0;
  for (var i = 0u; i < ${x.cols}u; i += 4u) {
    let w = weight4(row, i);
    let values = activation4(group.z, i);
    ${each(4, (j) => `sum = multiplyAdd(w[${j}], values[${j}], sum);`)}
  }
  let at = ${rowStart}u + row;
  result[group.z * ${out.cols}u + at] = sum${bias ? " + bias[at]" : ""};`,
  });
}

/** The values of a table's rows, out of the planes. */
export const embed: ExactLower<"embed"> = (node, { weights, batch, arithmetic }) => {
  const { table, out } = node;
  const format = exactFormatOf(table.dtype)!;
  const { layout, spanCols, narrowWords } = format;
  const { cols } = out;
  return weights.parts.get(table.name)!.map(({ rowStart, rows }, part) => {
    const source = { kind: "weight", weight: table, part } as const;
    const bindings: Binding[] = [
      { name: "wide", type: wideType(format), source },
      { name: "narrow", type: "u32", source: { ...source, plane: "narrow" } },
      write(out),
    ];
    const small = (plane: number): string =>
      `f32(bitcast<i32>(narrow[scales + ${plane}u + (number >> 2u)] << (24u - 8u * (number & 3u))) >> 24u)`;
    const scale =
      layout.scales === "halves"
        ? "half(narrow[scales] & 65535u)"
        : layout.scales === "bfloats"
          ? "bitcast<f32>(narrow[scales])"
          : `rounded(bitcast<f32>(narrow[scales]) * ${small(2)})`;
    const low =
      layout.scales === "halves"
        ? "half(narrow[scales] >> 16u)"
        : `rounded(bitcast<f32>(narrow[scales + 1u]) * ${small(6)})`;
    return exactKernel({
      name: `embed ${table.dtype.name} [${rows}, ${cols}]`,
      bindings,
      declarations: `\n${halfText}${quantsText(format)}${multiplyAddText(arithmetic, zero)}`,
      rows: out.rows,
      grid: (count) => [Math.ceil(cols / 32 / LANES), count, 1],
      body: `
  ${bookText(format)}
  let block = group.x * ${LANES}u + lane; // 32 columns of the row${tableRowText(node, batch, rowStart)}
  if (block >= ${cols / 32}u || row >= ${rows}u) { return; }
  let unit = row * ${cols / spanCols}u + block / ${layout.spanBlocks}u;
  let inSpan = block % ${layout.spanBlocks}u;
  let own = quantsAt(unit * ${layout.spanBlocks}u + inSpan);
  let scales = unit * ${narrowWords}u;
  for (var i = 0u; i < 32u; i++) {
    let number = inSpan * ${32 / layout.scaleCols}u + i / ${layout.scaleCols}u;
    let four = select(own.low, own.high, i >= 16u)[(i >> 2u) & 3u];
    let quant = (bitcast<i32>(four << (24u - 8u * (i & 3u))) >> 24u) - ${layout.offset};
    let value = rounded(${scale} * f32(quant));
    result[group.y * ${cols}u + block * 32u + i] = value${layout.hasMin ? ` + ${low}` : ""};
  }`,
    });
  });
};

/** The same text for 0, 1, 2, ...: compilers are slow with arrays that a variable indexes. */
function each(count: number, text: (j: number) => string): string {
  return Array.from({ length: count }, (_, j) => text(j)).join("\n  ");
}
