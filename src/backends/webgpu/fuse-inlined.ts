// Chooses the nodes that a kernel computes itself, as it reads and stores (wgsl/inlined.ts): two tables, of the nodes that each op may take before
// and after it. A node is only taken by the one that reads its result, or made its operand, and only if no other node needs the values in between.

import {
  type GraphNode,
  inputsOf,
  type NodeOf,
  type OpKind,
  type Value,
  weightsOf,
} from "../../graph/graph.ts";
import type { Inlined, InlinedOp } from "./wgsl/inlined.ts";

/** A section of the graph. */
export interface InliningView {
  readonly nodes: readonly GraphNode[];
  readonly storageBuffers: number;
  /** The node that alone reads a value, which is no output. */
  only(value: Value): GraphNode | undefined;
}

type Ops = readonly InlinedOp[];

const products: Ops = ["activate", "scale", "mul", "gate", "add_weight", "mul_weight"];

interface Rule {
  readonly before: Ops;
  readonly after: Ops;
  /** Storage buffers that its kernel binds besides values and weights. */
  readonly buffers: number;
}

/** In order of preference: a node that one takes is not there for the next. */
const rules: { readonly [K in OpKind]?: Rule } = {
  short_conv: { before: ["slice", "mul", "scale"], after: products, buffers: 3 },
  rms_norm: { before: ["slice"], after: products, buffers: 1 },
  ssm_scan: { before: ["slice", ...products], after: products, buffers: 3 },
  delta_net: { before: ["slice", ...products], after: products, buffers: 3 },
  wkv: { before: ["slice", ...products], after: products, buffers: 3 },
  gate: { before: ["slice"], after: [], buffers: 1 },
};

/** The nodes that each node takes; nodes that take none are not listed. */
export function inlinedIn(view: InliningView): ReadonlyMap<GraphNode, Inlined> {
  const found = new Map<GraphNode, Inlined>();
  const taken = new Set<GraphNode>();
  const makers = new Map<Value, GraphNode>();
  const indices = new Map<GraphNode, number>();
  for (const [i, node] of view.nodes.entries()) {
    if (node.out) makers.set(node.out, node);
    indices.set(node, i);
  }
  const isFree = (node: GraphNode | undefined, ops: Ops): node is GraphNode =>
    node !== undefined &&
    (ops as readonly string[]).includes(node.op) &&
    !taken.has(node) &&
    !found.has(node);
  for (const [op, rule] of Object.entries(rules)) {
    for (const node of view.nodes) {
      if (node.op !== op || taken.has(node) || !isOwner(node)) continue;
      const isEarlier = (value: Value): boolean => {
        const maker = makers.get(value);
        return maker === undefined || indices.get(maker)! < indices.get(node)!;
      };
      const before = new Set<GraphNode>();
      const takeBefore = (value: Value, reader: GraphNode): void => {
        const maker = makers.get(value);
        if (!isFree(maker, rule.before) || view.only(value) !== reader || !isEarlier(value)) return;
        if (maker.out!.rows !== node.out!.rows) return;
        before.add(maker);
        for (const input of inputsOf(maker)) takeBefore(input, maker);
      };
      for (const input of inputsOf(node)) takeBefore(input, node);
      const after: GraphNode[] = [];
      let rest: Value | undefined;
      for (let last = node; ; ) {
        const next = view.only(last.out!);
        if (!isFree(next, rule.after) || next.out!.cols !== last.out!.cols) break;
        const inputs = inputsOf(next);
        const others = inputs.filter((value) => value !== last.out);
        if (others.length !== inputs.length - 1 || (others.length > 0 && rest)) break;
        if (others.some((value) => !isEarlier(value) || value.rows !== node.out!.rows)) break;
        [rest = rest] = others;
        after.push(next);
        if (others[0]) takeBefore(others[0], next);
        last = next;
      }
      if (before.size + after.length === 0) continue;
      const inlined = { before: view.nodes.filter((each) => before.has(each)), after };
      if (buffersOf(node, inlined) + rule.buffers > view.storageBuffers) continue;
      found.set(node, inlined);
      for (const each of [...inlined.before, ...after]) taken.add(each);
    }
  }
  return found;
}

/** Norms of whole rows are fused with the matmuls that read them. */
function isOwner(node: GraphNode): boolean {
  return node.op !== "rms_norm" || isHeadNorm(node);
}

/** Values of a head that a lane of a norm holds, times its 64 lanes. */
const MOST_HEAD = 1024;

export function isHeadNorm({ weight, x }: NodeOf<"rms_norm">): boolean {
  return weight.shape[0]! !== x.cols && weight.shape[0]! <= MOST_HEAD;
}

/** Values and weights that a kernel reads. */
function buffersOf(node: GraphNode, { before, after }: Inlined): number {
  const all = [...before, node, ...after];
  const made = new Set(all.map(({ out }) => out));
  const read = new Set(all.flatMap(inputsOf).filter((value) => !made.has(value)));
  return read.size + new Set(all.flatMap(weightsOf)).size;
}
