// Assigns a buffer slot to each value. As in graph/plan.ts, values whose live ranges do not overlap share one. Here a live
// range covers whole groups (fuse.ts), so that a group never writes where it reads, and lasts until all nodes before its last
// reader are done, so that the nodes can also be computed one by one in the graph's order.

import { type Graph, type GraphNode, inputsOf, outputsOf, type Value } from "../../graph/graph.ts";
import { mostRows, type PlanLimits } from "../../graph/plan.ts";
import type { Group } from "./fuse.ts";

export interface Slots {
  /** By value id. */
  readonly slotOf: readonly number[];
  /** Bytes of each slot: whole vectors of 4 floats, which shaders read. */
  readonly slotBytes: readonly number[];
}

export function assignSlots(graph: Graph, groups: readonly Group[], limits: PlanLimits): Slots {
  const lastNode = lastNodes(graph);
  const slotOf: number[] = [];
  const slotBytes: number[] = [];
  const free: number[] = [];
  const take = (value: Value): void => {
    slotOf[value.id] = takeSlot(bytesOf(value, limits), free, slotBytes);
    living.add(value);
  };
  const living = new Set<Value>();
  if (graph.input) take(graph.input);
  const done = new Set<GraphNode>();
  let first = 0; // the first node that is not done
  for (const { nodes } of groups) {
    for (const node of nodes) {
      if (node.out) take(node.out);
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

/** Index of the last node that reads each value, or that makes it. Outputs live to the end. */
function lastNodes(graph: Graph): Map<Value, number> {
  const last = new Map<Value, number>();
  if (graph.input) last.set(graph.input, -1);
  graph.nodes.forEach((node, index) => {
    if (node.out) last.set(node.out, index);
    for (const value of inputsOf(node)) last.set(value, index);
  });
  for (const kept of outputsOf(graph)) last.set(kept, Number.POSITIVE_INFINITY);
  return last;
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
