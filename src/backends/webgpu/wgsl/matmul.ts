// matmul for many tokens, without matrix units: a workgroup computes a tile of 32 outputs x 32 tokens. Weights are unpacked
// into workgroup memory once for all of its tokens, 32 columns at a time; each of 64 threads computes 4 x 4 results.
//
// A thread loads 4 rows x 4 columns and transposes them, so that tiles are [column][4 rows]: one vector has a column's values
// for four outputs (or tokens).

import { countOf } from "../../../graph/batch.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import type { WeightPart } from "../weight-layout.ts";
import { activationText } from "./activations.ts";
import { type Kernel, makeKernel } from "./kernel.ts";
import { MATVEC_TOKENS, valueBindings } from "./matvec.ts";
import { weightText } from "./weights.ts";

/** Outputs, tokens and columns of a tile. */
const TILE = 32;
const QUADS = TILE / 4;

export function matmulKernel(
  node: NodeOf<"matmul">,
  parts: readonly WeightPart[],
  part: number,
): Kernel {
  const { x, weight, out } = node;
  const { rows } = parts[part]!;
  const cols = x.cols;
  const text = weightText(weight, { kind: "weight", weight, part });
  return makeKernel({
    name: `matmul ${weight.dtype.name} [${rows}, ${cols}]`,
    bindings: [
      ...text.bindings,
      ...valueBindings(node),
      { name: "batch", type: "u32", source: { kind: "batch" } },
    ],
    declarations: `${text.declarations}${activationText(cols)}
var<workgroup> weightTile: array<vec4f, ${TILE * QUADS}>; // [column][4 outputs]
var<workgroup> tokenTile: array<vec4f, ${TILE * QUADS}>; // [column][4 tokens]
${storeText(node, parts[part]!)}`,
    rows: out.rows,
    minRows: MATVEC_TOKENS + 1,
    grid: (tokens) => [Math.ceil(rows / TILE), Math.ceil(tokens / TILE), 1],
    body: `
  let tokenCount = batch[${countOf(out.rows)}u];
  let low = lane % ${QUADS}u;
  let high = lane / ${QUADS}u;
  // Computes outputs of quad \`low\` and tokens of quad \`high\`; loads rows of quad \`high\` and columns of quad \`low\`.
  let firstOutput = group.x * ${TILE}u;
  let firstToken = group.y * ${TILE}u;
  ${each((j) => `var sums${j} = vec4f();`)} // of token j: 4 outputs
  for (var start = 0u; start < ${cols}u; start += ${TILE}u) {
    let i = start + low * 4u;
    var w = mat4x4f();
    var t = mat4x4f();
    if (i < ${cols}u) {
      let output = firstOutput + high * 4u;
      let token = firstToken + high * 4u;
      w = transpose(mat4x4f(${each((j) => `weight4(min(output + ${j}u, ${rows - 1}u), i)`, ", ")}));
      t = transpose(mat4x4f(${each((j) => `activation4(min(token + ${j}u, tokenCount - 1u), i)`, ", ")}));
    }
    let to = low * ${4 * QUADS}u + high;
    ${each((j) => `weightTile[to + ${j * QUADS}u] = w[${j}];`)}
    ${each((j) => `tokenTile[to + ${j * QUADS}u] = t[${j}];`)}
    workgroupBarrier();
    for (var column = 0u; column < ${TILE * QUADS}u; column += ${QUADS}u) {
      let four = weightTile[column + low];
      let values = tokenTile[column + high];
      ${each((j) => `sums${j} += four * values[${j}];`)}
    }
    workgroupBarrier();
  }
  ${each((j) => `store(firstToken + high * 4u + ${j}u, tokenCount, firstOutput + low * 4u, sums${j});`)}`,
  });
}

/** `fn store`: stores the sums of four outputs of a token, without padding. */
function storeText({ out, bias }: NodeOf<"matmul">, { rowStart, rows }: WeightPart): string {
  const value = (j: number): string =>
    bias ? `sums[${j}] + bias[${rowStart}u + output + ${j}u]` : `sums[${j}]`;
  return `
fn store(token: u32, tokenCount: u32, output: u32, sums: vec4f) {
  if (token >= tokenCount) { return; }
  let at = token * ${out.cols}u + ${rowStart}u + output;
  ${each((j) => `if (output + ${j}u < ${rows}u) { result[at + ${j}u] = ${value(j)}; }`)}
}`;
}

/** The same text for 0, 1, 2, 3: arrays indexed by a variable are slow. */
function each(text: (j: number) => string, between = " "): string {
  return [0, 1, 2, 3].map(text).join(between);
}
