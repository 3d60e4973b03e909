// A plan: a graph with a buffer slot for every value, for a given largest batch. Values whose live ranges do not overlap
// share a slot, so the working memory of a 22-layer model is that of one layer. Computed once per loaded model; the backend
// allocates the slots once.

import {
  adapterOf,
  type Graph,
  type GraphNode,
  inputsOf,
  outputsOf,
  type Rows,
  sectionsOf,
  type Value,
} from "./graph.ts";

export interface PlanLimits {
  /** Most tokens in one batch. */
  maxTokens: number;
  /** Most outputs in one batch. */
  maxOutputs: number;
  /** Adapters that a batch has rows of. Default: none. */
  adapters?: number;
}

export interface Plan {
  readonly graph: Graph;
  readonly limits: PlanLimits;
  /** Slot of each value, by value id. */
  readonly slotOf: readonly number[];
  /** Float32 elements of each slot. */
  readonly slotSizes: readonly number[];
}

export function makePlan(graph: Graph, limits: PlanLimits): Plan {
  const lastUse = lastUses(graph);
  const slotOf: number[] = [];
  const slotSizes: number[] = [];
  const free: number[] = [];
  const take = (value: Value): void => {
    slotOf[value.id] = takeSlot(elements(value, limits), free, slotSizes);
  };
  for (const { from, to, takes, gives } of sectionsOf(graph)) {
    for (const value of takes) take(value);
    const given = new Set(gives);
    for (let index = from; index < to; index++) {
      const node = graph.nodes[index]!;
      const dying = dyingAt(node, index, lastUse);
      if (node.op === "adapt" && dying.has(node.base) && !given.has(node.base)) {
        slotOf[node.out.id] = slotOf[node.base.id]!;
        dying.delete(node.base);
      } // The result's slot is taken before those of the operands are freed, so no other op overwrites what it still reads.
      else if (node.out) take(node.out);
      for (const value of dying) {
        if (!given.has(value)) free.push(slotOf[value.id]!);
      }
    }
    // Values that the other part reads keep their slots until the section ends.
    for (const value of gives) if (lastUse[value.id]! < to) free.push(slotOf[value.id]!);
  }
  const { adapters = 0 } = graph;
  return { graph, limits: adapters > 0 ? { ...limits, adapters } : limits, slotOf, slotSizes };
}

/** Bytes of all slots. */
export function planBytes(plan: Plan): number {
  return plan.slotSizes.reduce((sum, size) => sum + size * 4, 0);
}

/** Most rows of a kind. */
export function mostRows(rows: Rows, { maxTokens, maxOutputs }: PlanLimits): number {
  return (adapterOf(rows)?.rows ?? rows) === "tokens" ? maxTokens : maxOutputs;
}

function elements({ rows, cols }: Value, limits: PlanLimits): number {
  return mostRows(rows, limits) * cols;
}

/** Index of the last node that reads each value, or that makes it, if none does. Outputs live to the end. */
function lastUses(graph: Graph): number[] {
  const lastUse: number[] = [];
  graph.nodes.forEach((node, index) => {
    if (node.out) lastUse[node.out.id] = index;
    for (const input of inputsOf(node)) lastUse[input.id] = index;
  });
  for (const kept of outputsOf(graph)) lastUse[kept.id] = Number.POSITIVE_INFINITY;
  return lastUse;
}

function dyingAt(node: GraphNode, index: number, lastUse: readonly number[]): Set<Value> {
  const dying = new Set(inputsOf(node).filter((input) => lastUse[input.id] === index));
  if (node.out && lastUse[node.out.id] === index) dying.add(node.out);
  return dying;
}

/** The free slot that fits best: the smallest that is large enough, else the largest (which then grows), else a new one. */
function takeSlot(size: number, free: number[], slotSizes: number[]): number {
  let best = -1;
  for (let i = 0; i < free.length; i++) {
    if (best < 0 || fitsBetter(slotSizes[free[i]!]!, slotSizes[free[best]!]!, size)) best = i;
  }
  if (best < 0) return slotSizes.push(size) - 1;
  const slot = free.splice(best, 1)[0]!;
  slotSizes[slot] = Math.max(slotSizes[slot]!, size);
  return slot;
}

function fitsBetter(candidate: number, current: number, size: number): boolean {
  if (candidate >= size) return current < size || candidate < current;
  return current < size && candidate > current;
}
