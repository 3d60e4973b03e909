// Splits a graph in two parts, which two backends run (backends/split/). By default the front has the layers before one, and
// the back the others and the output. A weight may be placed elsewhere: the nodes that read it go with it, and the graph is
// cut in the middle of a layer. Nothing runs here.
//
// A part computes its nodes in sections. Sections of the two parts alternate; at the end of each, the values that the other
// part reads are copied there. Values are the same objects with the same ids in both parts, so traces of a batch are those
// of the whole graph. States are numbered from 0 in each part, because each keeps only those of its own layers.

import { ModelError } from "../base/errors.ts";
import {
  type Graph,
  type GraphNode,
  inputsOf,
  type LayerState,
  layerCount,
  type Outputs,
  type Section,
  type Value,
  type Weight,
  weightsOf,
} from "./graph.ts";

/** A part of a split graph. */
export type Side = "front" | "back";

export interface Places {
  /** The part of a weight that is not in its layer's part; undefined: it is. */
  weight(weight: Weight): Side | undefined;
  /** Whether the back cannot compute a node; the front then does, unless it reads state. Default: it can. */
  refuses?(node: GraphNode): boolean;
  /** A section ends before these. */
  readonly cuts?: ReadonlySet<GraphNode>;
  /** Sections that begin with these need nothing of the section before. */
  readonly beside?: ReadonlySet<GraphNode>;
}

const byLayer: Places = { weight: () => undefined };

export interface SplitGraph {
  readonly front: Graph;
  readonly back: Graph;
  /** The sections of both parts, in the order in which they are computed. */
  readonly turns: readonly Turn[];
}

/** A section of a part. */
export interface Turn {
  readonly side: Side;
  /** Its index among the part's sections. */
  readonly section: number;
  /** It reads nothing of the section before, which belongs to the other part: both are computed at the same time. */
  readonly isBeside?: boolean;
}

/**
 * front: the layers before `firstLayer`. back: that layer, those after it, and the output. -1: all is in the back, also the nodes
 * before the first layer; layers + 1: all is in the front.
 */
export function splitGraph(graph: Graph, firstLayer: number, places: Places = byLayer): SplitGraph {
  const { nodes, states } = graph;
  if (graph.input) throw new ModelError(`a graph with an input (${graph.input.name}) is not split`);
  const at = firstNode(graph, firstLayer);
  const shared = sharedBefore(graph, firstLayer);
  if (shared) {
    throw new ModelError(
      `this model cannot be split before layer ${firstLayer}: ${shared.name} reads the KV cache of a layer before it`,
    );
  }
  const sides = placeNodes(nodes, at, places);
  const turns = turnsOf(nodes, sides, places);
  const frontStates = statesBefore(graph, firstLayer).length;
  const part = (side: Side): Graph => {
    const own = nodes.filter((_, i) => sides[i] === side);
    const isFront = side === "front";
    const starts = layerStartsOf(graph, firstLayer, isFront);
    return {
      nodes: isFront ? own : own.map((node) => renumbered(node, frontStates)),
      weights: weightsIn(graph, own),
      states: isFront
        ? states.slice(0, frontStates)
        : states
            .slice(frontStates)
            .map((state) => ({ ...state, layer: state.layer - Math.max(0, firstLayer) })),
      layerStarts: starts.map((start) => count(sides.slice(0, start), side)),
      ...(graph.adapters && { adapters: graph.adapters }),
      sections: turns.flatMap((turn) => (turn.side === side ? [turn.nodes] : [])),
      outputs: outputsIn(graph, own),
    };
  };
  const sections = { front: 0, back: 0 };
  return {
    front: part("front"),
    back: part("back"),
    turns: turns.map(({ side, isBeside }) => ({
      side,
      section: sections[side]++,
      ...(isBeside && { isBeside }),
    })),
  };
}

/** Whether no layer from this one on reads the KV cache of one before. */
export function canSplit(graph: Graph, firstLayer: number): boolean {
  return sharedBefore(graph, firstLayer) === undefined;
}

/** The index of the first node of the back. */
function firstNode(graph: Graph, firstLayer: number): number {
  const layers = layerCount(graph);
  if (!Number.isInteger(firstLayer) || firstLayer < -1 || firstLayer > layers + 1) {
    throw new ModelError(
      `a model of ${layers} layers cannot be split before layer ${firstLayer}: expected a layer from -1 to ${layers + 1}`,
    );
  }
  return firstLayer < 0 ? 0 : (graph.layerStarts[firstLayer] ?? graph.nodes.length);
}

/**
 * The side of each node. A node goes with its largest weight; one that reads state is where its layer is, since the state is
 * there; one without either follows the larger part of its operands, where some of them were computed elsewhere than in their
 * layer.
 */
function placeNodes(nodes: readonly GraphNode[], at: number, places: Places): Side[] {
  const made = new Map<Value, Side>();
  const moved = new Set<Value>();
  return nodes.map((node, i) => {
    const home: Side = i < at ? "front" : "back";
    const wanted = sideOf(node, home, places, made, moved);
    const isRefused = stateOf(node) === undefined && places.refuses?.(node);
    const side = isRefused ? "front" : wanted;
    if (node.out) made.set(node.out, side);
    if (node.out && side !== home) moved.add(node.out);
    return side;
  });
}

function sideOf(
  node: GraphNode,
  home: Side,
  places: Places,
  made: ReadonlyMap<Value, Side>,
  moved: ReadonlySet<Value>,
): Side {
  const weights = weightsOf(node);
  if (stateOf(node) !== undefined) return home;
  if (weights.length > 0) {
    const largest = weights.reduce((a, b) => (sizeOf(b) > sizeOf(a) ? b : a));
    return places.weight(largest) ?? home;
  }
  const operands = inputsOf(node);
  if (!operands.some((value) => moved.has(value))) return home;
  const away: Side = home === "front" ? "back" : "front";
  const cols = (side: Side) =>
    operands.reduce((sum, value) => sum + (made.get(value) === side ? value.cols : 0), 0);
  return cols(away) > cols(home) ? away : home;
}

function sizeOf({ shape }: Weight): number {
  return shape.reduce((product, length) => product * length, 1);
}

/** Runs of nodes of the same side, as sections of their part, and the values that pass between them. */
function turnsOf(
  nodes: readonly GraphNode[],
  sides: readonly Side[],
  { cuts, beside }: Places,
): { readonly side: Side; readonly nodes: Section; readonly isBeside: boolean }[] {
  const runs: { side: Side; nodes: GraphNode[]; isBeside: boolean }[] = [];
  nodes.forEach((node, i) => {
    const side = sides[i]!;
    const last = runs.at(-1);
    const isBeside = last !== undefined && last.side !== side && beside?.has(node) === true;
    if (last?.side === side && !cuts?.has(node)) last.nodes.push(node);
    else runs.push({ side, nodes: [node], isBeside });
  });
  const readBy = { front: new Set<Value>(), back: new Set<Value>() };
  nodes.forEach((node, i) => {
    for (const value of inputsOf(node)) readBy[sides[i]!].add(value);
  });
  const next = { front: 0, back: 0 };
  /** Values that each part was given and has not taken. */
  const waiting: Record<Side, readonly Value[]> = { front: [], back: [] };
  let before: readonly Value[] = [];
  return runs.map(({ side, nodes: own, isBeside }) => {
    const other: Side = side === "front" ? "back" : "front";
    const gives = own.flatMap(({ out }) => (out && readBy[other].has(out) ? [out] : []));
    const from = next[side];
    next[side] += own.length;
    const isLater = isBeside && before.length > 0; // values that the section before gives are for the section after this one
    const takes = isLater ? [] : waiting[side];
    if (!isLater) waiting[side] = [];
    if (gives.length > 0) waiting[other] = gives;
    before = gives;
    return { side, nodes: { from, to: next[side], takes, gives }, isBeside };
  });
}

function sharedBefore(graph: Graph, firstLayer: number): GraphNode | undefined {
  const own = statesBefore(graph, firstLayer).length;
  const second = graph.nodes.slice(graph.layerStarts[firstLayer] ?? graph.nodes.length);
  return second.find((node) => (stateOf(node) ?? own) < own);
}

function statesBefore({ states }: Graph, firstLayer: number): LayerState[] {
  return states.filter(({ layer }) => layer < firstLayer);
}

/** In the whole graph: where the layers of a part begin, and where it ends. */
function layerStartsOf({ layerStarts }: Graph, firstLayer: number, isFront: boolean): number[] {
  const first = Math.max(0, firstLayer);
  return isFront ? layerStarts.slice(0, first + 1) : layerStarts.slice(first);
}

function count(sides: readonly Side[], side: Side): number {
  return sides.filter((one) => one === side).length;
}

function weightsIn({ weights }: Graph, nodes: readonly GraphNode[]): Weight[] {
  const used = new Set(nodes.flatMap(weightsOf).map(({ name }) => name));
  return weights.filter(({ name }) => used.has(name));
}

function outputsIn({ outputs }: Graph, nodes: readonly GraphNode[]): Outputs {
  const made = new Set(nodes.map(({ out }) => out));
  return Object.fromEntries(Object.entries(outputs).filter(([, value]) => made.has(value)));
}

function stateOf(node: GraphNode): number | undefined {
  return "state" in node ? node.state : undefined;
}

function renumbered(node: GraphNode, by: number): GraphNode {
  return "state" in node ? { ...node, state: node.state - by } : node;
}
