// Fuses nodes of the graph: a pass over its nodes with a table of patterns. The graph itself does not change. A group is the
// nodes of a fused op, in an order in which they can also be computed one by one, and the fused kernel. Large batches and taps
// compute the nodes one by one.

import {
  type Graph,
  type GraphNode,
  inputsOf,
  type NodeOf,
  outputsOf,
  sectionsOf,
  type Value,
  type Weight,
  weightsOf,
} from "../../graph/graph.ts";
import type { GpuFacts } from "./device.ts";
import { stackable } from "./weight-layout.ts";
import type { RopedAttention } from "./wgsl/attention-roped.ts";
import { type FusedMatmul, laneDotOf } from "./wgsl/matmul-few.ts";

export interface Group {
  readonly nodes: readonly GraphNode[];
  /** Each is a dispatch (or several, where weights are in parts); none: nodes are computed one by one. */
  readonly fused: readonly FusedMatmul[];
  /** Fused attention; a matmul of the group then reads its result. */
  readonly attention?: RopedAttention;
}

/** A section of the graph as patterns see it. */
interface View {
  readonly nodes: readonly GraphNode[];
  readonly facts: GpuFacts;
  readonly readers: ReadonlyMap<Value, readonly GraphNode[]>;
  /** How many nodes read each weight. */
  readonly uses: ReadonlyMap<Weight, number>;
  /** Values that earlier groups compute. */
  readonly known: ReadonlySet<Value>;
  /** Values that are read after the section. */
  readonly outputs: ReadonlySet<Value>;
}

type Pattern = (node: GraphNode, view: View) => Group | undefined;

/** In order of preference. */
const patterns: readonly Pattern[] = [normedMatmuls, matmulAndAdd, ropedAttention];

/** Nodes of different sections are not fused: between them another part of a split graph computes. */
export function fuse(graph: Graph, facts: GpuFacts): Group[] {
  const known = new Set<Value>();
  const uses = usesOf(graph);
  const outputs = outputsOfSections(graph);
  const groups: Group[] = [];
  for (const { from, to, takes } of sectionsOf(graph)) {
    for (const value of takes) known.add(value);
    const nodes = graph.nodes.slice(from, to);
    fuseSection({ nodes, facts, readers: readersOf(nodes), uses, known, outputs }, known, groups);
  }
  return groups;
}

/** Values that are read after their section, or elsewhere. */
function outputsOfSections(graph: Graph): ReadonlySet<Value> {
  const outputs = new Set(outputsOf(graph));
  const madeIn = new Map<Value, number>();
  sectionsOf(graph).forEach(({ from, to, gives }, section) => {
    for (const value of gives) outputs.add(value);
    for (const node of graph.nodes.slice(from, to)) {
      for (const value of inputsOf(node)) if (madeIn.get(value) !== section) outputs.add(value);
      if (node.out) madeIn.set(node.out, section);
    }
  });
  return outputs;
}

function fuseSection(view: View, known: Set<Value>, groups: Group[]): void {
  const done = new Set<GraphNode>();
  const found: Group[] = [];
  for (const node of view.nodes) {
    if (done.has(node)) continue;
    let group: Group | undefined;
    for (const pattern of patterns) group ??= pattern(node, view);
    group ??= { nodes: [node], fused: [] };
    found.push(group);
    for (const each of group.nodes) {
      done.add(each);
      if (each.out) known.add(each.out);
    }
  }
  groups.push(...linked(found, view));
}

/** The same groups; a matmul with a gate knows the matmul that alone reads its result, and the reverse. */
function linked(groups: readonly Group[], view: View): Group[] {
  const makers = new Map<Value, FusedMatmul>();
  const link = (matmul: FusedMatmul): FusedMatmul => {
    const isPlain = !matmul.norm && !matmul.select;
    const reader = matmul.gate && only(view, matmul.gate.out);
    const readBy = reader?.op === "matmul" && isTuned(reader.weight, view) && reader.weight;
    const made = { ...matmul, madeBy: isPlain ? makers.get(matmul.x) : undefined };
    if (!readBy) return made;
    const maker = { ...made, readBy };
    makers.set(matmul.gate!.out, maker);
    return maker;
  };
  return groups.map((group) => ({ ...group, fused: group.fused.map(link) }));
}

/** Weights that one kernel reads as one matrix. */
export function stacksOf(groups: readonly Group[]): Weight[][] {
  return groups.flatMap(({ fused }) =>
    fused
      .filter(({ matmuls }) => matmuls.length > 1)
      .map(({ matmuls }) => matmuls.map(({ weight }) => weight)),
  );
}

/** [select,] norm, and all matmuls of its result; gate and up together with the activation. */
function normedMatmuls(node: GraphNode, view: View): Group | undefined {
  const select = node.op === "select" ? node : undefined;
  const norm = select ? only(view, select.out) : node;
  if (norm?.op !== "rms_norm" || norm.weight.shape[0] !== norm.x.cols) return undefined;
  // Adapters read the norm as well: it is then kept.
  const readers = view.readers.get(norm.out) ?? [];
  const others = readers.filter(({ op }) => op !== "gather");
  const matmuls = others.filter((reader): reader is NodeOf<"matmul"> => reader.op === "matmul");
  const isWhole = matmuls.length > 0 && matmuls.length === others.length;
  if (!isWhole || matmuls.some(({ weight }) => !isTuned(weight, view))) return undefined;
  const kept = view.outputs.has(norm.out) || others.length < readers.length;
  const source = {
    x: select ? select.x : norm.x,
    select,
    norm,
    keep: kept ? norm.out : undefined,
  };
  const gate = gateOf(matmuls, view);
  const before = select ? [select, norm] : [norm];
  if (gate) {
    return { nodes: [...before, ...matmuls, gate], fused: [{ ...source, matmuls, gate }] };
  }
  const fused = stacked(matmuls, view).map((stack) => ({ ...source, matmuls: stack }));
  return { nodes: [...before, ...matmuls], fused };
}

function gateOf(matmuls: readonly NodeOf<"matmul">[], view: View): NodeOf<"gate"> | undefined {
  const [first, second] = matmuls;
  if (matmuls.length !== 2 || first!.bias || second!.bias) return undefined;
  const gate = only(view, first!.out);
  if (gate?.op !== "gate" || gate.gate !== first!.out || gate.up !== second!.out) return undefined;
  if (only(view, second!.out) !== gate || gate.gate.cols !== gate.up.cols) return undefined;
  return canStack(matmuls, view) ? gate : undefined;
}

/** Matmuls that can be computed as one, grouped. */
function stacked(
  matmuls: readonly NodeOf<"matmul">[],
  view: View,
): (readonly NodeOf<"matmul">[])[] {
  const types = new Set(matmuls.map(({ weight }) => weight.dtype));
  return [...types].flatMap((type) => {
    const same = matmuls.filter(({ weight }) => weight.dtype === type);
    return same.length > 1 && canStack(same, view) ? [same] : same.map((matmul) => [matmul]);
  });
}

function canStack(matmuls: readonly NodeOf<"matmul">[], { facts, uses }: View): boolean {
  const weights = matmuls.map(({ weight }) => weight);
  // A weight is stored once, so another reader cannot have its own stack.
  if (weights.some((weight) => uses.get(weight) !== 1)) return false;
  // Storage buffers: both planes, x, norm, batch and hidden state; each result, each bias.
  const biases = matmuls.filter(({ bias }) => bias).length;
  const bindings = 6 + matmuls.length + biases;
  return bindings <= facts.storageBuffers && stackable(weights, facts);
}

/** A matmul, and the add that reads it. */
function matmulAndAdd(node: GraphNode, view: View): Group | undefined {
  if (node.op !== "matmul" || !isTuned(node.weight, view)) return undefined;
  const alone = { nodes: [node], fused: [{ x: node.x, matmuls: [node] }] };
  const add = only(view, node.out);
  if (add?.op !== "add" || add.a === add.b) return alone;
  const residual = add.a === node.out ? add.b : add.a;
  if (!view.known.has(residual)) return alone;
  return {
    nodes: [node, add],
    fused: [{ x: node.x, matmuls: [node], add: { node: add, residual } }],
  };
}

/** Both ropes, kv_write and attention, consecutive in the graph; and the matmul that reads attention. */
function ropedAttention(node: GraphNode, view: View): Group | undefined {
  const { nodes } = view;
  const [q, k, write, attention] = nodes.slice(nodes.indexOf(node));
  if (q?.op !== "rope" || k?.op !== "rope") return undefined;
  if (write?.op !== "kv_write" || attention?.op !== "attention") return undefined;
  if (attention.bias) return undefined;
  if (only(view, q.out) !== attention || only(view, k.out) !== write) return undefined;
  if (write.state !== attention.state) return undefined;
  const own = [q, k, write, attention];
  const roped = { q, k, write, attention };
  const reader = only(view, attention.out);
  const output = reader && matmulAndAdd(reader, view);
  if (!output) return { nodes: own, fused: [], attention: roped };
  return { nodes: [...own, ...output.nodes], fused: output.fused, attention: roped };
}

function isTuned(weight: Weight, { facts }: View): boolean {
  return laneDotOf(weight, facts.workgroupStorageBytes) !== undefined;
}

/** The node that alone reads a value, which is no output. */
function only({ readers, outputs }: View, value: Value): GraphNode | undefined {
  const found = readers.get(value) ?? [];
  return found.length === 1 && !outputs.has(value) ? found[0] : undefined;
}

function usesOf(graph: Graph): Map<Weight, number> {
  const uses = new Map<Weight, number>();
  for (const weight of graph.nodes.flatMap(weightsOf))
    uses.set(weight, (uses.get(weight) ?? 0) + 1);
  return uses;
}

function readersOf(nodes: readonly GraphNode[]): Map<Value, GraphNode[]> {
  const readers = new Map<Value, GraphNode[]>();
  for (const node of nodes) {
    for (const value of new Set(inputsOf(node))) {
      readers.set(value, [...(readers.get(value) ?? []), node]);
    }
  }
  return readers;
}
