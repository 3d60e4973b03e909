// matmul_id for many tokens on matrix units: a workgroup computes outputs of an expert for a tile of its pairs, with the kernel that
// matmul-matrices.ts has for tokens. Which pairs share a tile, and in which rows their activations lie: group-pairs.ts. Each row has its
// own sums, which are added up in the order of the columns: a pair's result depends neither on its tile nor on the batch.

import type { NodeOf } from "../../../graph/graph.ts";
import { gateText } from "./elementwise.ts";
import { mostTiles, pairOfRowAt, rowTileAt } from "./group-pairs.ts";
import type { Binding, Kernel } from "./kernel.ts";
import { type MatrixWork, matrixKernel, rowOf } from "./matmul-matrices.ts";
import type { MatrixCalls } from "./matrix-calls.ts";
import { rowsOf, type SplitShape, tokensOf } from "./matrix-shapes.ts";

export interface ExpertMatrices {
  readonly node: NodeOf<"matmul_id">;
  readonly shape: SplitShape;
  /** So many experts are in GPU memory (experts/expert-slots.ts); undefined: all. */
  readonly slotCount: number | undefined;
  /** `node` computes gate: its weights are followed by those of up, and the activation of both is stored. */
  readonly gated?: { readonly up: NodeOf<"matmul_id">; readonly activation: NodeOf<"gate"> };
}

/** For batches of at least `minRows` tokens. */
export function expertMatricesKernel(
  matmul: ExpertMatrices,
  minRows: number,
  calls: MatrixCalls,
): Kernel {
  const { node, shape, slotCount, gated } = matmul;
  const { weight, routes, out } = node;
  const [experts, outputs, cols] = weight.shape as [number, number, number];
  const isGated = gated !== undefined;
  const tokens = tokensOf(shape);
  const slots = routes.cols / 2;
  const row = rowOf(shape, isGated ? 2 * outputs : outputs, isGated, experts * outputs);
  const hasSlots = slotCount !== undefined;
  const names = [weight.dtype.name, isGated && "gate"].filter(Boolean).join(" ");
  const work: MatrixWork = {
    name: `matmul-experts matrices ${rowsOf(shape)}x${tokens} ${names} [${experts}, ${isGated ? 2 * outputs : outputs}, ${cols}]`,
    weight,
    source: isGated ? { kind: "stack", weight } : { kind: "weight", weight, part: 0 },
    isGated,
    row: (r) => `(firstRow + ${row(r)})`,
    outputs,
    bindings: bindingsOf(matmul),
    declarations: putText(matmul),
    rows: out.rows,
    minRows,
    maxRows: Infinity,
    // Tiles of the same expert follow each other, and find the weights in the cache.
    grid: (count, own) => [mostTiles(count * slots, experts, tokens), Math.ceil(outputs / own), 1],
    tile: (own) => `
  if (group.x >= tiles[0]) { return; }
  let at = ${rowTileAt("group.x")};
  let expert = tiles[at];
  let firstToken = tiles[at + 1u];
  let tokenCount = tiles[at + 2u];
  let firstOutput = group.y * ${own}u;
  ${hasSlots ? `let place = slots[expert];\n  if (place >= ${slotCount}u) { return; }` : "let place = expert;"}
  let firstRow = place * ${outputs}u;`,
    skips: true,
    value: (first, second) => (isGated ? `expert, ${first}, ${second}` : `expert, ${first}`),
    rest: () => "",
    restAt: () => "",
  };
  return matrixKernel(work, shape, calls);
}

function bindingsOf({ node, slotCount, gated }: ExpertMatrices): Binding[] {
  const { routes, bias, out } = node;
  const value = gated ? gated.activation.out : out;
  const bindings: Binding[] = [
    { name: "tiles", type: "u32", source: { kind: "tiles" } },
    { name: "result", type: "f32", source: { kind: "value", value }, writes: true },
  ];
  const biases = Object.entries({ bias, upBias: gated?.up.bias });
  for (const [name, weight] of biases) {
    if (weight) bindings.push({ name, type: "f32", source: { kind: "weight", weight, part: 0 } });
  }
  if (slotCount !== undefined) {
    bindings.push({ name: "slots", type: "u32", source: { kind: "slots", routes } });
  }
  return bindings;
}

/** Stores an output of the pair of a row. */
function putText({ node, gated }: ExpertMatrices): string {
  const outputs = node.weight.shape[1]!;
  const at = `tiles[${pairOfRowAt("row")}] * ${outputs}u + output`;
  const plus = (name: string, isThere: boolean): string =>
    isThere ? ` + ${name}[expert * ${outputs}u + output]` : "";
  const first = `sum${plus("bias", node.bias !== undefined)}`;
  if (!gated) {
    return `
fn put(row: u32, output: u32, expert: u32, sum: f32) { result[${at}] = ${first}; }`;
  }
  return `
fn put(row: u32, output: u32, expert: u32, sum: f32, upSum: f32) {
  let gate = ${first};
  let up = upSum${plus("upBias", gated.up.bias !== undefined)};
  result[${at}] = ${gateText(gated.activation.activation, "gate", "up")};
}`;
}
