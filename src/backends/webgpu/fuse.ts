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
import { inlinedIn, isHeadNorm } from "./fuse-inlined.ts";
import { stackable } from "./weight-layout.ts";
import type { HeadNorms, RopedAttention } from "./wgsl/attention-roped.ts";
import { boundBuffers, type FusedExperts } from "./wgsl/experts-fused.ts";
import { type Inlined, nothingInlined } from "./wgsl/inlined.ts";
import { asMatrix } from "./wgsl/matmul-experts.ts";
import { type FusedMatmul, laneDotOf } from "./wgsl/matmul-gemv.ts";
import { roundsActivations } from "./wgsl/round-activations.ts";

export interface Group {
  readonly nodes: readonly GraphNode[];
  /** Each is a dispatch (or several, where weights are in parts); none: nodes are computed one by one. */
  readonly fused: readonly FusedMatmul[];
  /** Fused attention; a matmul of the group then reads its result. */
  readonly attention?: RopedAttention;
  /** A fused mixture of experts, whose router is the group's fused matmul. */
  readonly experts?: FusedExperts;
  /** The same if the host fills slots of experts behind the router: only the norm and the router belong to the group. */
  readonly hosted?: FusedExperts;
  /** The slots of experts, added up and to a residual. */
  readonly combined?: Required<Pick<FusedExperts, "combine" | "add">>;
  /** Nodes whose kernel computes others as it reads and stores: one, or two norms of heads. */
  readonly inlining?: readonly InliningNode[];
}

export interface InliningNode {
  readonly node: GraphNode;
  readonly inlined: Inlined;
}

/** A section of the graph as patterns see it. */
interface View {
  readonly nodes: readonly GraphNode[];
  readonly facts: GpuFacts;
  readonly readers: ReadonlyMap<Value, readonly GraphNode[]>;
  /** The number of nodes that read each weight. */
  readonly uses: ReadonlyMap<Weight, number>;
  /** Values that earlier groups compute. */
  readonly known: ReadonlySet<Value>;
  /** Values that are read after the section. */
  readonly outputs: ReadonlySet<Value>;
  /** All experts are in GPU memory. */
  readonly hasExperts: boolean;
  /** By the node that takes them. */
  readonly inlined: ReadonlyMap<GraphNode, Inlined>;
}

type Pattern = (node: GraphNode, view: View) => Group | undefined;

/** In order of preference. */
const patterns: readonly Pattern[] = [
  normedMatmuls,
  routedExperts,
  combineAndAdd,
  matmulAndAdd,
  ropedAttention,
  inlining,
];

/**
 * Nodes of different sections are not fused: between them another part of a split graph computes. Nor are experts with their router, unless `hasExperts`: the host
 * takes part in between.
 */
export function fuse(graph: Graph, facts: GpuFacts, hasExperts = true): Group[] {
  const known = new Set<Value>();
  const uses = usesOf(graph);
  const outputs = outputsOfSections(graph);
  const groups: Group[] = [];
  for (const { from, to, takes } of sectionsOf(graph)) {
    for (const value of takes) known.add(value);
    const nodes = graph.nodes.slice(from, to);
    const readers = readersOf(nodes);
    const only = (value: Value) => onlyReader(readers, outputs, value);
    const inlined = inlinedIn({ nodes, only, storageBuffers: facts.storageBuffers });
    const view = { nodes, facts, readers, uses, known, outputs, hasExperts, inlined };
    fuseSection(view, known, groups);
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
  // Nodes that a later one takes wait for it.
  const waiting = new Set(
    [...view.inlined.values()].flatMap(({ before, after }) => [...before, ...after]),
  );
  for (const node of view.nodes) {
    if (done.has(node) || waiting.has(node)) continue;
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
  return groups.flatMap(({ fused, experts }) => [
    ...fused
      .filter(({ matmuls }) => matmuls.length > 1)
      .map(({ matmuls }) => matmuls.map(({ weight }) => weight)),
    ...(experts ? [[experts.gate.weight, experts.up.weight]] : []),
  ]);
}

/** A node that computes others as it reads and stores; a norm of heads with another one, as of queries and keys. */
function inlining(node: GraphNode, view: View): Group | undefined {
  const own = view.inlined.get(node);
  const other = node.op === "rms_norm" && isHeadNorm(node) && otherNorm(node, view);
  if (!own && !other) return undefined;
  const all = [{ node, inlined: own ?? nothingInlined }];
  if (other) all.push({ node: other, inlined: view.inlined.get(other) ?? nothingInlined });
  const nodes = all.flatMap((one) => [...one.inlined.before, one.node, ...one.inlined.after]);
  return { nodes, fused: [], inlining: all };
}

/** The next norm of heads of the same size whose operands are there. */
function otherNorm(norm: NodeOf<"rms_norm">, view: View): NodeOf<"rms_norm"> | undefined {
  const { nodes, known, inlined } = view;
  const next = nodes
    .slice(nodes.indexOf(norm) + 1)
    .find((node): node is NodeOf<"rms_norm"> => node.op === "rms_norm" && isHeadNorm(node));
  if (!next || known.has(next.out) || next.out.rows !== norm.out.rows) return undefined;
  if (next.weight.shape[0] !== norm.weight.shape[0]) return undefined;
  const { before, after } = inlined.get(next) ?? nothingInlined;
  const own = new Set([...before, next, ...after].map(({ out }) => out));
  const read = [...before, next, ...after].flatMap(inputsOf).filter((value) => !own.has(value));
  return read.every((value) => known.has(value)) ? next : undefined;
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
  const [single] = matmuls;
  const added = matmuls.length === 1 ? matmulAndAdd(single!, view) : undefined;
  if (added) {
    return { nodes: [...before, ...added.nodes], fused: [{ ...added.fused[0]!, ...source }] };
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

/** Norm, router, and experts with gate, up and down, which alone read the norm; with the residual behind them. */
function routedExperts(norm: GraphNode, view: View): Group | undefined {
  if (norm.op !== "rms_norm" || norm.weight.shape[0] !== norm.x.cols) return undefined;
  if (view.outputs.has(norm.out)) return undefined;
  const readers = view.readers.get(norm.out) ?? [];
  const [router, ...others] = readers.filter(({ op }) => op === "matmul") as NodeOf<"matmul">[];
  const [gate, up, ...more] = readers.filter(
    ({ op }) => op === "matmul_id",
  ) as NodeOf<"matmul_id">[];
  if (!router || !gate || !up || others.length + more.length > 0 || readers.length !== 3)
    return undefined;
  const route = only(view, router.out);
  const activation = only(view, gate.out);
  if (route?.op !== "route" || activation?.op !== "gate" || only(view, up.out) !== activation)
    return undefined;
  if (activation.gate !== gate.out || activation.up !== up.out) return undefined;
  const down = only(view, activation.out);
  const combine = down?.op === "matmul_id" ? only(view, down.out) : undefined;
  if (down?.op !== "matmul_id" || combine?.op !== "combine") return undefined;
  const routed = [gate, up, down, combine];
  if (routed.some(({ routes }) => routes !== route.out)) return undefined;
  if (view.outputs.has(route.out) || view.readers.get(route.out)!.length !== routed.length)
    return undefined;
  const add = addOf(combine.out, view);
  const fused = { x: norm.x, norm, matmuls: [router] };
  const experts = { router: fused, norm, route, gate, up, activation, down, combine, add };
  if (!fitsExperts(experts, view)) return undefined;
  if (!view.hasExperts) return { nodes: [norm, router], fused: [fused], hosted: experts };
  const nodes = [
    norm,
    router,
    route,
    gate,
    up,
    activation,
    down,
    combine,
    ...(add ? [add.node] : []),
  ];
  return { nodes, fused: [fused], experts };
}

function fitsExperts(experts: FusedExperts, view: View): boolean {
  const { router, route, gate, up, down } = experts;
  const weights = [gate.weight, up.weight, down.weight];
  const { facts, uses } = view;
  return (
    route.routing.gating !== "all" &&
    gate.weight.shape.every((size, i) => size === up.weight.shape[i]) &&
    weights.every((weight) => uses.get(weight) === 1 && isTuned(asMatrix(weight), view)) &&
    isTuned(router.matmuls[0]!.weight, view) &&
    !roundsActivations(router.matmuls[0]!.weight) &&
    stackable([gate.weight, up.weight], facts) &&
    stackable([down.weight], facts) &&
    boundBuffers(experts) <= facts.storageBuffers
  );
}

/** The add that alone reads a value, where its other operand is known. */
function addOf(value: Value, view: View): FusedExperts["add"] {
  const node = only(view, value);
  if (node?.op !== "add" || node.a === node.b) return undefined;
  const residual = node.a === value ? node.b : node.a;
  return view.known.has(residual) ? { node, residual } : undefined;
}

/** The slots of experts that are not all fused, and the add that reads them: as where they are. */
function combineAndAdd(node: GraphNode, view: View): Group | undefined {
  const add = node.op === "combine" ? addOf(node.out, view) : undefined;
  if (node.op !== "combine" || !add) return undefined;
  return { nodes: [node, add.node], fused: [], combined: { combine: node, add } };
}

/** A matmul, and the add that reads it. */
function matmulAndAdd(node: GraphNode, view: View): Group | undefined {
  if (node.op !== "matmul" || !isTuned(node.weight, view)) return undefined;
  const add = addOf(node.out, view);
  if (!add) return { nodes: [node], fused: [{ x: node.x, matmuls: [node] }] };
  return { nodes: [node, add.node], fused: [{ x: node.x, matmuls: [node], add }] };
}

/** [Norms of heads,] both ropes, kv_write and attention, in some order, with nothing in between; and the matmul that reads attention. */
function ropedAttention(node: GraphNode, view: View): Group | undefined {
  const { nodes } = view;
  const norms = headNorms(node, view);
  const first = nodes.indexOf(node) + (norms ? 2 : 0);
  const four = nodes.slice(first, first + 4);
  const attention = four.find((each) => each.op === "attention");
  const write = four.find((each) => each.op === "kv_write");
  const ropes = four.filter((each) => each.op === "rope");
  const q = ropes.find(({ out }) => out === attention?.q);
  const k = ropes.find(({ out }) => out === write?.k);
  if (!q || !k || !write || !attention) return undefined;
  if (norms && norms.q.out !== q.x) return undefined;
  if (attention.bias) return undefined;
  if (only(view, q.out) !== attention || only(view, k.out) !== write) return undefined;
  if (write.state !== attention.state) return undefined;
  if (norms && norms.q.weight.shape[0] !== attention.headDim) return undefined;
  const own = [...(norms ? [norms.q, norms.k] : []), q, k, write, attention];
  const roped = { norms, q, k, write, attention };
  const reader = only(view, attention.out);
  const output = reader && matmulAndAdd(reader, view);
  if (!output) return { nodes: own, fused: [], attention: roped };
  return { nodes: [...own, ...output.nodes], fused: output.fused, attention: roped };
}

/** The norms of each head of q and k, which ropes alone read. */
function headNorms(node: GraphNode, view: View): HeadNorms | undefined {
  const { nodes } = view;
  const [q, k, ...ropes] = nodes.slice(nodes.indexOf(node)).slice(0, 4);
  if (q?.op !== "rms_norm" || k?.op !== "rms_norm") return undefined;
  if (view.inlined.has(q) || view.inlined.has(k)) return undefined;
  const isRotated = [q, k].every(({ out }, i) => only(view, out) === ropes[i]);
  return isRotated && q.weight.shape[0] === k.weight.shape[0] ? { q, k } : undefined;
}

function isTuned(weight: Weight, { facts }: View): boolean {
  return laneDotOf(weight, facts.workgroupStorageBytes) !== undefined;
}

/** The node that alone reads a value, which is no output. */
function only({ readers, outputs }: View, value: Value): GraphNode | undefined {
  return onlyReader(readers, outputs, value);
}

function onlyReader(
  readers: View["readers"],
  outputs: View["outputs"],
  value: Value,
): GraphNode | undefined {
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
