// Finds the weights of a graph that are read neuron by neuron (docs/inside/sparse.md): the matrices before and behind a ReLU, whose zeros make
// rows of `up` and columns of `down` unnecessary. Read off the graph; no architecture is named.
//
//   columns  a matmul of a ReLU's result, or of a product with it: down(relu(gate) * up), down(relu(up)^2)
//   rows     the other factor of such a product, where it is a matmul: `up` is needed where the gate is not zero; and a gate that
//            scores open (graph/predict.ts)
//
// A neuron that is left out counts as zero, as does 0 * up for any finite up; weights and activations are finite.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { weightBytes } from "../../../graph/cost.ts";
import {
  type GraphNode,
  type NodeOf,
  type Value,
  type Weight,
  weightsOf,
} from "../../../graph/graph.ts";
import {
  isOpening,
  makersOf,
  matmulBehind,
  openedBy,
  readersOf,
  reluNetworks,
} from "../../../graph/relu-networks.ts";
import { floatNeuronsFor, ROUND_BYTES } from "../../../kernels/ops/neurons/float-neurons.ts";
import { rowsTogether } from "../../../kernels/ops/neurons/neuron-columns.ts";
import { neuronLayoutFor } from "../../../kernels/ops/neurons/neuron-layouts.ts";
import { wordRowsFor } from "../../../kernels/ops/neurons/word-rows.ts";
import { BLOCK_COLS, PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import type { NeuronChoice, NeuronWeights } from "../../backend.ts";
import { hasFloatPanels } from "./repack.ts";

export type NeuronUse =
  | { readonly kind: "columns" }
  /** Rows whose gate is not above zero are left out; `inner`: the activations behind it. */
  | { readonly kind: "rows"; readonly gate: Value; readonly inner: Value };

const everything: NeuronChoice = { columns: true, dense: [] };

/** The use of each weight that could be read neuron by neuron, or why it is not. */
export function neuronUses(
  nodes: readonly GraphNode[],
  target: KernelTarget,
  { columns, dense }: NeuronChoice = everything,
): Map<Weight, NeuronUse | string> {
  const uses = new Map<Weight, NeuronUse | string>();
  const [makers, readers] = [makersOf(nodes), readersOf(nodes)];
  const useRows = (factor: Value, gate: Value, inner: Value) => {
    const up = matmulBehind(makers, readers, factor);
    if (!up) return;
    const before = nodes.indexOf(up) > nodes.findIndex(({ out }) => out === gate);
    const reason = before ? rowsOf(up, target) : "it is computed before its gate";
    uses.set(up.weight, reason ?? { kind: "rows", gate, inner });
  };
  for (const network of reluNetworks(nodes)) {
    const { down, relu } = network;
    if (dense.includes(down.x.name)) continue;
    const left = columnsOf(down, target) ?? (columns ? undefined : "rows only");
    uses.set(down.weight, left ?? { kind: "columns" });
    if (relu.op === "gate") useRows(relu.up, relu.gate, down.x);
    const opening = makers.get(openedBy(network));
    if (opening && isOpening(opening)) useRows(opening.up, opening.gate, down.x);
  }
  for (const [weight, use] of uses) {
    const readBy = nodes.filter((node) => weightsOf(node).includes(weight));
    if (typeof use !== "string" && readBy.length > 1) uses.set(weight, "several ops read it");
  }
  return uses;
}

/** Weights that could be left out if neurons are zero; undefined: none. */
export function neuronWeights(
  nodes: readonly GraphNode[],
  target: KernelTarget,
): NeuronWeights | undefined {
  const uses = neuronUses(nodes, target);
  let bytes = 0;
  const kinds = new Set<NeuronUse["kind"]>();
  const values = new Set<Value>();
  for (const node of nodes) {
    const use = node.op === "matmul" ? uses.get(node.weight) : undefined;
    if (node.op !== "matmul" || typeof use !== "object") continue;
    bytes += weightBytes(node.weight);
    kinds.add(use.kind);
    values.add(use.kind === "columns" ? node.x : use.inner);
  }
  return bytes > 0 ? { bytes, values: [...values], hasBoth: kinds.size === 2 } : undefined;
}

/** Why columns of a weight cannot be left out. */
function columnsOf({ weight }: NodeOf<"matmul">, target: KernelTarget): string | undefined {
  const packing = packingOf(weight.dtype.name);
  const layout = packing && neuronLayoutFor(packing, target);
  const [n, cols] = weight.shape as [number, number];
  const isFloat = floatNeuronsFor(weight.dtype.name, target) !== undefined;
  if (!layout && !(isFloat && hasFloatPanels(cols)))
    return `${weight.dtype.name} has no neuron columns`;
  const rows = layout ? rowsTogether(layout) : PANEL_ROWS;
  return n % rows === 0 ? undefined : `${n} rows, neuron columns take multiples of ${rows}`;
}

/** Why rows of a weight cannot be left out. */
function rowsOf({ weight, bias }: NodeOf<"matmul">, target: KernelTarget): string | undefined {
  const { dtype, shape } = weight;
  const [rows, cols] = shape as [number, number];
  const packing = packingOf(dtype.name);
  const isPlain = packing && neuronLayoutFor(packing, target) !== undefined;
  const isFloat =
    floatNeuronsFor(dtype.name, target) !== undefined && bytesFor(dtype, cols) % ROUND_BYTES === 0;
  const isGathered = isFloat || wordRowsFor(dtype.name, target) !== undefined;
  if (!isPlain && !isGathered) return `${dtype.name} has no neuron rows`;
  if (!isPlain && rows % BLOCK_COLS !== 0) return `${rows} rows, which fill no panels`;
  return bias && !isPlain ? "it has a bias" : undefined;
}
