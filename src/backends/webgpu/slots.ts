// Assigns a buffer slot to each value. As in graph/plan.ts, values whose live ranges do not overlap share one. Here a live
// range covers whole groups (fuse.ts), so that a group never writes where it reads, and lasts until all nodes before its last
// reader are done, so that the nodes can also be computed one by one in the graph's order.

import {
  type Graph,
  type GraphNode,
  inputsOf,
  outputsOf,
  sectionsOf,
  type Value,
} from "../../graph/graph.ts";
import { mostRows, type PlanLimits } from "../../graph/plan.ts";
import type { Group } from "./fuse.ts";

export interface Slots {
  /** By value id. */
  readonly slotOf: readonly number[];
  /** Bytes of each slot: whole vectors of 4 floats, which shaders read. */
  readonly slotBytes: readonly number[];
}

/**
 * `repeated`: nodes from one index to another that may run several times: the values that they read and write stay until
 * then.
 */
export function assignSlots(
  graph: Graph,
  groups: readonly Group[],
  limits: PlanLimits,
  repeated: readonly { readonly from: number; readonly to: number }[] = [],
): Slots {
  const lastNode = lastNodes(graph);
  keepWhole(lastNode, graph, groups, repeated);
  const slotOf: number[] = [];
  const slotBytes: number[] = [];
  const free: number[] = [];
  const take = (value: Value): void => {
    slotOf[value.id] = takeSlot(bytesOf(value, limits), free, slotBytes);
    living.add(value);
  };
  const living = new Set<Value>();
  const taken = new Map(sectionsOf(graph).map(({ from, takes }) => [graph.nodes[from]!, takes]));
  const done = new Set<GraphNode>();
  const indices = new Map(graph.nodes.map((node, index) => [node, index]));
  let first = 0; // the first node that is not done
  for (const { nodes } of groups) {
    for (const value of taken.get(nodes[0]!) ?? []) take(value);
    for (const node of nodes) {
      if (node.op === "adapt" && lastNode.get(node.base) === indices.get(node)) {
        // In place: no node reads the base after it.
        slotOf[node.out.id] = slotOf[node.base.id]!;
        living.delete(node.base);
        living.add(node.out);
      } else if (node.out) take(node.out);
      done.add(node);
    }
    while (first < graph.nodes.length && done.has(graph.nodes[first]!)) first++;
    for (const value of living) {
      if (lastNode.get(value)! >= first) continue;
      living.delete(value);
      free.push(slotOf[value.id]!);
    }
  }
  return { slotOf, slotBytes };
}

/**
 * Index of the last node that reads each value, or that makes it; of values that another part reads, the last of its section. Outputs
 * live to the end.
 */
function lastNodes(graph: Graph): Map<Value, number> {
  const last = new Map<Value, number>();
  graph.nodes.forEach((node, index) => {
    if (node.out) last.set(node.out, index);
    for (const value of inputsOf(node)) last.set(value, index);
  });
  for (const { to, gives } of sectionsOf(graph)) {
    // One behind the last: it is copied when all nodes of the section are done.
    for (const value of gives) last.set(value, Math.max(last.get(value)!, to));
  }
  for (const kept of outputsOf(graph)) last.set(kept, Number.POSITIVE_INFINITY);
  return last;
}

function keepWhole(
  last: Map<Value, number>,
  graph: Graph,
  groups: readonly Group[],
  repeated: readonly { readonly from: number; readonly to: number }[],
): void {
  if (repeated.length === 0) return;
  const indices = new Map(graph.nodes.map((node, index) => [node, index]));
  for (const { nodes } of groups) {
    const index = indices.get(nodes[0]!)!;
    const range = repeated.find(({ from, to }) => index >= from && index < to);
    if (!range) continue;
    for (const node of nodes) {
      for (const value of [...inputsOf(node), ...(node.out ? [node.out] : [])]) {
        last.set(value, Math.max(last.get(value)!, range.to));
      }
    }
  }
}

function bytesOf({ rows, cols }: Value, limits: PlanLimits): number {
  return Math.ceil((mostRows(rows, limits) * cols) / 4) * 16;
}

/** The smallest free slot that is large enough; else the largest, which grows; else a new one. */
function takeSlot(bytes: number, free: number[], slotBytes: number[]): number {
  free.sort((a, b) => slotBytes[a]! - slotBytes[b]!);
  if (free.length === 0) return slotBytes.push(bytes) - 1;
  const fitting = free.findIndex((slot) => slotBytes[slot]! >= bytes);
  const [slot] = free.splice(fitting < 0 ? free.length - 1 : fitting, 1);
  slotBytes[slot!] = Math.max(slotBytes[slot!]!, bytes);
  return slot!;
}
