// Which weights of a graph are read neuron by neuron (docs/sparse.md): the matrices before and behind a ReLU, whose zeros make
// rows of `up` and columns of `down` unnecessary. Read off the graph; no architecture is named.
//
//   columns  a matmul of what a ReLU made, or of a product with it: down(relu(gate) * up), down(relu(up)^2)
//   rows     the other factor of such a product, where it is a matmul: `up` is needed where the gate is not zero
//
// A neuron that is left out counts as zero, as does 0 * up for any finite up; weights and activations are finite.

import { bytesFor } from "../../../dtypes/dtype.ts";
import { weightBytes } from "../../../graph/cost.ts";
import {
  type GraphNode,
  inputsOf,
  type NodeOf,
  type Value,
  type Weight,
  weightsOf,
} from "../../../graph/graph.ts";
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

/** Activations that make zeros of what is not above zero. */
const makesZeros: ReadonlySet<string> = new Set(["relu", "relu_squared"]);

const everything: NeuronChoice = { columns: true, dense: [] };

/** The use of each weight that could be read neuron by neuron, or why it is not. */
export function neuronUses(
  nodes: readonly GraphNode[],
  target: KernelTarget,
  { columns, dense }: NeuronChoice = everything,
): Map<Weight, NeuronUse | string> {
  const uses = new Map<Weight, NeuronUse | string>();
  const readers = readersOf(nodes);
  const makers = new Map(nodes.flatMap((node) => (node.out ? [[node.out, node] as const] : [])));
  for (const node of nodes) {
    if (node.op !== "matmul") continue;
    const maker = makers.get(node.x);
    const gate = gateOf(maker);
    if (!gate || dense.includes(node.x.name)) continue;
    const left = columnsOf(node, target) ?? (columns ? undefined : "rows only");
    uses.set(node.weight, left ?? { kind: "columns" });
    if (gate.op !== "gate") continue;
    const up = matmulBehind(makers, readers, gate.up);
    if (!up) continue;
    const before = nodes.indexOf(up) > nodes.findIndex(({ out }) => out === gate.gate);
    const reason = before ? rowsOf(up, target) : "it is computed before its gate";
    uses.set(up.weight, reason ?? { kind: "rows", gate: gate.gate, inner: node.x });
  }
  for (const [weight, use] of uses) {
    const readBy = nodes.filter((node) => weightsOf(node).includes(weight));
    if (typeof use !== "string" && readBy.length > 1) uses.set(weight, "several ops read it");
  }
  return uses;
}

/** What could be left out where neurons are zero; undefined: nothing. */
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

/** The node where zeros come from, if it is one that makes them. */
function gateOf(node: GraphNode | undefined): NodeOf<"gate"> | NodeOf<"activate"> | undefined {
  if (node?.op === "activate") return makesZeros.has(node.activation) ? node : undefined;
  if (node?.op !== "gate" || !makesZeros.has(node.activation)) return undefined;
  return node.gate.cols === node.out.cols ? node : undefined;
}

/** The matmul that makes a factor, perhaps with a ReLU in between; undefined where something else reads it, too. */
function matmulBehind(
  makers: ReadonlyMap<Value, GraphNode>,
  readers: ReadonlyMap<Value, number>,
  factor: Value,
): NodeOf<"matmul"> | undefined {
  const node = makers.get(factor);
  if (!node || readers.get(factor) !== 1) return undefined;
  if (node.op === "matmul") return node;
  if (node.op !== "activate" || !makesZeros.has(node.activation)) return undefined;
  return matmulBehind(makers, readers, node.x);
}

/** How many operands of nodes each value is. */
function readersOf(nodes: readonly GraphNode[]): Map<Value, number> {
  const counts = new Map<Value, number>();
  for (const node of nodes) {
    for (const value of inputsOf(node)) counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return counts;
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
  return bias ? "it has a bias" : undefined;
}
