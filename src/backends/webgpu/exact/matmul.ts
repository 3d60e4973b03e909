// matmul with the sums of the CPU's kernels (src/kernels/ops/matmul/dot4.ts): products of quants are integers and exact; what they
// come to under each span's scales is added up span by span, in the order of the columns.
//
// Lanes compute the spans of several rows side by side and leave the terms of the sums in workgroup memory; then a lane for each
// row and token adds them up, one after the other. Float weights have no such terms: a lane computes a row by itself.

import { countOf } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { activationText } from "../wgsl/activations.ts";
import { halfText } from "../wgsl/halves.ts";
import { type Binding, type Kernel, LANES } from "../wgsl/kernel.ts";
import { dot4Text } from "../wgsl/matmul-few.ts";
import { groupGrid, valueBindings } from "../wgsl/matvec.ts";
import { weightText } from "../wgsl/weights.ts";
import { activationPlaces, roundOnce } from "./activations.ts";
import { multiplyAddText } from "./arithmetic.ts";
import { exactKernel, vector, write, zero } from "./kernel.ts";
import type { ExactContext, ExactLower, ExactOp } from "./op.ts";
import { bookText, type ExactFormat, exactFormatOf, quantsText } from "./weights.ts";

/** Tokens that share what is unpacked of a row. */
const TOKENS = 4;
/** Lanes of a workgroup, and how many of them walk along a row: fewer than 4 would leave more sums than there are lanes. */
const SIZE = 128;
const [LEAST_ACROSS, MOST_ACROSS] = [TOKENS, 32];

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
    const kernels = own.flatMap((part, number) =>
      format
        ? [1, TOKENS].map((tokens) => blocksKernel(node, format, part, number, tokens, context))
        : [floatsKernel(node, part, number, context)],
    );
    return [...roundOnce(node, context), ...kernels];
  },
};

/** How lanes share the work: `across` walk along a row, `rows` of a workgroup, of which a lane takes `each`. */
function shapeOf(spans: number, tokens: number): { across: number; each: number; rows: number } {
  const wanted = 2 ** Math.ceil(Math.log2(spans));
  const across = Math.min(MOST_ACROSS, Math.max(LEAST_ACROSS, wanted));
  const each = TOKENS / tokens;
  return { across, each, rows: (SIZE / across) * each };
}

function blocksKernel(
  node: NodeOf<"matmul">,
  format: ExactFormat,
  { rowStart, rows }: WeightPart,
  part: number,
  tokens: number,
  { arithmetic, packedDots }: ExactContext,
): Kernel {
  const { weight, x, out, bias } = node;
  const { hasMin } = format.layout;
  const spans = x.cols / format.spanCols;
  const shape = shapeOf(spans, tokens);
  const { across } = shape;
  const groups = Math.ceil(rows / shape.rows);
  const source = { kind: "weight", weight, part } as const;
  const terms = shape.rows * tokens * across;
  // [row][token][lane across]
  const at = (row: string, token: number): string =>
    `((${row}) * ${tokens}u + ${token}u) * ${across}u + member`;
  return exactKernel({
    name: `matmul ${weight.dtype.name} [${rows}, ${x.cols}]`,
    bindings: [
      { name: "wide", type: "u32", source },
      { name: "narrow", type: "u32", source: { ...source, plane: "narrow" } },
      { name: "acts", type: "u32", source: { kind: "rounded" } },
      write(out),
      ...(bias ? [vector("bias", bias)] : []),
    ],
    size: SIZE,
    declarations: `${multiplyAddText(arithmetic, zero)}
${halfText}
${packedDots ? "fn dot4(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }" : dot4Text}${quantsText(format)}${dotsText}
var<workgroup> terms: array<vec2f, ${terms}>; // what a span came to, and its scale
${hasMin ? `var<workgroup> minTerms: array<vec2f, ${terms}>;` : ""}
var<private> values: array<vec2f, ${tokens}>;
var<private> mins: array<vec2f, ${tokens}>;
${spanFunction(format, x.cols, tokens)}`,
    rows: out.rows,
    ...(tokens === 1 ? { maxRows: 1 } : { minRows: 2 }),
    grid: (count) => groupGrid(groups)(Math.ceil(count / tokens)),
    body: `
  let index = group.x + group.y * groups.x;
  if (index >= ${groups}u) { return; }
  ${bookText(format)}
  let count = batch[${countOf[out.rows]}u];
  let token = group.z * ${tokens}u;
  let member = lane % ${across}u;
  let first = (lane / ${across}u) * ${shape.each}u;
  var sum = 0.0;
  for (var start = 0u; start < ${spans}u; start += ${across}u) {
    let span = start + member;
    if (span < ${spans}u) {
      for (var j = 0u; j < ${shape.each}u; j++) {
        spanOf(min(index * ${shape.rows}u + first + j, ${rows - 1}u), span, token, count - 1u);
        ${each(tokens, (t) => `terms[${at("first + j", t)}] = values[${t}];${hasMin ? ` minTerms[${at("first + j", t)}] = mins[${t}];` : ""}`)}
      }
    }
    workgroupBarrier();
    if (lane < ${shape.rows * tokens}u) {
      let last = min(${across}u, ${spans}u - start);
      for (var i = 0u; i < last; i++) {
        let term = terms[lane * ${across}u + i];
        sum = multiplyAdd(term.x, term.y, sum);
        ${hasMin ? `let low = minTerms[lane * ${across}u + i]; sum = multiplyAdd(low.x, low.y, sum);` : ""}
      }
    }
    workgroupBarrier();
  }
  let row = index * ${shape.rows}u + lane / ${tokens}u;
  let own = token + lane % ${tokens}u;
  if (lane < ${shape.rows * tokens}u && row < ${rows}u && own < count) {
    let at = ${rowStart}u + row;
    result[own * ${out.cols}u + at] = sum${bias ? " + bias[at]" : ""};
  }`,
  });
}

const dotsText = `
fn dots(quants: array<u32, 8>, at: u32, part: u32) -> i32 {
  var q = quants;
  var sum = 0;
  for (var v = 4u * part; v < 4u * part + 4u; v++) { sum += dot4(q[v], acts[at + v]); }
  return sum;
}`;

/** `fn spanOf(row, span, token, last)`: fills `values` and `mins` of all tokens; those beyond the last repeat it. */
function spanFunction(format: ExactFormat, cols: number, tokens: number): string {
  const { layout, spanCols, wideWords, narrowWords } = format;
  const spans = cols / spanCols;
  const body = layout.spanBlocks === 1 ? blockText(format, cols) : smallScalesText(format, cols);
  return `
fn spanOf(row: u32, span: u32, token: u32, last: u32) {
  let unit = row * ${spans}u + span;
  let at = unit * ${wideWords}u;
  let scales = unit * ${narrowWords}u;
  ${body(tokens)}
}`;
}

/** A block with a scale of its own. */
function blockText({ layout }: ExactFormat, cols: number): (tokens: number) => string {
  const { scales, sums } = activationPlaces(cols);
  const { offset, hasMin } = layout;
  const scale =
    layout.scales === "f32" ? "bitcast<f32>(narrow[scales])" : "half(narrow[scales] & 65535u)";
  return (tokens) => `let quants = quantsAt(at);
  let scale = ${scale};
  ${hasMin ? "let low = half(narrow[scales] >> 16u);" : ""}
  ${each(
    tokens,
    (t) => `{
    let x = min(token + ${t}u, last) * ${cols}u;
    let xAt = x + span * 8u;
    let xScale = bitcast<f32>(acts[x + ${scales}u + span]);
    ${offset > 0 || hasMin ? `let sum = bitcast<i32>(acts[x + ${sums}u + span * 2u]) + bitcast<i32>(acts[x + ${sums}u + span * 2u + 1u]);` : ""}
    let dot = dots(quants, xAt, 0u) + dots(quants, xAt, 1u)${offset > 0 ? ` - ${offset} * sum` : ""};
    values[${t}] = vec2f(f32(dot), scale * xScale);
    ${hasMin ? `mins[${t}] = vec2f(low, xScale * f32(sum));` : ""}
  }`,
  )}`;
}

/** Eight blocks under a header: their sums are whole numbers, added up as floats. */
function smallScalesText({ layout, quantWords }: ExactFormat, cols: number) {
  const { scales: xScales, sums } = activationPlaces(cols);
  const { offset, hasMin, scaleCols } = layout;
  const parts = 32 / scaleCols;
  const small = (plane: number): string =>
    `(bitcast<i32>(narrow[scales + ${plane}u + (number >> 2u)] << (24u - 8u * (number & 3u))) >> 24u)`;
  const perPart = (t: number): string => {
    const sum =
      parts === 1
        ? `bitcast<i32>(acts[x + ${sums}u + part * 2u]) + bitcast<i32>(acts[x + ${sums}u + part * 2u + 1u])`
        : `bitcast<i32>(acts[x + ${sums}u + part])`;
    const dot =
      parts === 1 ? "dots(quants, xAt, 0u) + dots(quants, xAt, 1u)" : "dots(quants, xAt, side)";
    return `{
        let x = min(token + ${t}u, last) * ${cols}u;
        let xAt = x + (span * 8u + block) * 8u;
        ${offset > 0 || hasMin ? `let sum = ${sum};` : ""}
        let dot = ${dot}${offset > 0 ? ` - ${offset} * sum` : ""};
        values[${t}].x = multiplyAdd(f32(dot), f32(small), values[${t}].x);
        ${hasMin ? `lows[${t}] += low * sum;` : ""}
      }`;
  };
  return (tokens: number): string => `${each(tokens, (t) => `values[${t}].x = 0.0;`)}
  ${hasMin ? `var lows = array<i32, ${tokens}>();` : ""}
  for (var block = 0u; block < 8u; block++) {
    let quants = quantsAt(at + block * ${quantWords}u);
    for (var side = 0u; side < ${parts}u; side++) {
      let number = block * ${parts}u + side;
      let part = span * ${8 * parts}u + number;
      let small = ${small(2)};
      ${hasMin ? `let low = ${small(6)};` : ""}
      ${each(tokens, perPart)}
    }
  }
  let header = bitcast<f32>(narrow[scales]);
  ${hasMin ? "let lowHeader = bitcast<f32>(narrow[scales + 1u]);" : ""}
  ${each(
    tokens,
    (t) => `{
    let xScale = bitcast<f32>(acts[min(token + ${t}u, last) * ${cols}u + ${xScales}u + span * 8u]);
    values[${t}].y = header * xScale;
    ${hasMin ? `mins[${t}] = vec2f(f32(lows[${t}]), lowHeader * xScale);` : ""}
  }`,
  )}`;
}

/** F32, F16 and BF16: column by column. */
function floatsKernel(
  node: NodeOf<"matmul">,
  { rowStart, rows }: WeightPart,
  part: number,
  { arithmetic }: ExactContext,
): Kernel {
  const { weight, x, out, bias } = node;
  const text = weightText(weight, part);
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
export const embed: ExactLower<"embed"> = (node, { weights, batch }) => {
  const { table, out } = node;
  const format = exactFormatOf(table.dtype)!;
  const { layout, spanCols, wideWords, narrowWords, quantWords } = format;
  const { cols } = out;
  return weights.parts.get(table.name)!.map(({ rowStart, rows }, part) => {
    const source = { kind: "weight", weight: table, part } as const;
    const bindings: Binding[] = [
      { name: "wide", type: "u32", source },
      { name: "narrow", type: "u32", source: { ...source, plane: "narrow" } },
      write(out),
    ];
    const small = (plane: number): string =>
      `f32(bitcast<i32>(narrow[scales + ${plane}u + (number >> 2u)] << (24u - 8u * (number & 3u))) >> 24u)`;
    const scale =
      layout.scales === "halves"
        ? "half(narrow[scales] & 65535u)"
        : layout.scales === "f32"
          ? "bitcast<f32>(narrow[scales])"
          : `bitcast<f32>(narrow[scales]) * ${small(2)}`;
    const low =
      layout.scales === "halves"
        ? "half(narrow[scales] >> 16u)"
        : `bitcast<f32>(narrow[scales + 1u]) * ${small(6)}`;
    return exactKernel({
      name: `embed ${table.dtype.name} [${rows}, ${cols}]`,
      bindings,
      declarations: `\n${halfText}${quantsText(format)}`,
      rows: out.rows,
      grid: (count) => [Math.ceil(cols / 32 / LANES), count, 1],
      body: `
  ${bookText(format)}
  let block = group.x * ${LANES}u + lane; // 32 columns of the row
  let row = batch[${batch.tokens}u + group.y] - ${rowStart}u; // wraps around below rowStart
  if (block >= ${cols / 32}u || row >= ${rows}u) { return; }
  let unit = row * ${cols / spanCols}u + block / ${layout.spanBlocks}u;
  let inSpan = block % ${layout.spanBlocks}u;
  var quants = quantsAt(unit * ${wideWords}u + inSpan * ${quantWords}u);
  let scales = unit * ${narrowWords}u;
  for (var i = 0u; i < 32u; i++) {
    let number = inSpan * ${32 / layout.scaleCols}u + i / ${layout.scaleCols}u;
    let quant = (bitcast<i32>(quants[i >> 2u] << (24u - 8u * (i & 3u))) >> 24u) - ${layout.offset};
    let value = (${scale}) * f32(quant);
    result[group.y * ${cols}u + block * 32u + i] = value${layout.hasMin ? ` + ${low}` : ""};
  }`,
    });
  });
};

/** The same text for 0, 1, 2, ...: compilers are slow with arrays that a variable indexes. */
function each(count: number, text: (j: number) => string): string {
  return Array.from({ length: count }, (_, j) => text(j)).join("\n  ");
}
