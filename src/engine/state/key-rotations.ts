// The rotation of the keys in a KV cache, by layer: it is undone and done again when a token moves to another position. A model
// cannot move tokens if its keys encode positions in another way, or if its state has no gaps: shiftRefusal() says why.

import {
  type Graph,
  type GraphNode,
  inputsOf,
  isBidirectional,
  type KvState,
  kvStates,
  type NodeOf,
  type Rope,
  recurrentStates,
  type Value,
  type Weight,
} from "../../graph/graph.ts";
import { type ReadTensor, weightReader } from "../../graph/weight-source.ts";

/** The rotation of the heads of a layer's keys. */
export interface KeyRotation {
  readonly headDim: number;
  readonly rope: Rope;
  /** Divide the frequencies: [dims / 2]. */
  readonly factors: Float32Array | undefined;
}

/** One for each KV state, in order; undefined: its keys do not encode positions. */
export type KeyRotations = readonly (KeyRotation | undefined)[];

/** Why tokens of this model cannot move to another position; undefined: they can. */
export function shiftRefusal(graph: Graph): string | undefined {
  const { nodes } = graph;
  if (isBidirectional(graph)) return "its tokens attend in both directions";
  if (recurrentStates(graph).length > 0) {
    return "it has recurrent layers, whose state cannot lose tokens in the middle";
  }
  const states = kvStates(graph);
  if (states.length === 0) return "it has no KV cache";
  if (states.some(({ window }) => window !== undefined)) {
    return "it has layers with a window, which do not hold all tokens";
  }
  if (nodes.some((node) => node.op === "embed" && node.by === "position")) {
    return "its positions are learned and are part of every value, not of the keys alone";
  }
  if (nodes.some((node) => node.op === "attention" && (node.alibi || node.bias))) {
    return "its attention adds a bias for the distance of two tokens, and its keys are not rotated";
  }
  return states.map((state) => writeOf(graph, state)).find((write) => typeof write === "string") as
    | string
    | undefined;
}

/** The rotations of a model that shiftRefusal() does not refuse; reads the factors of frequencies from its file. */
export async function keyRotations(graph: Graph, readTensor: ReadTensor): Promise<KeyRotations> {
  const read = new Map<string, Float32Array>();
  const rotations: (KeyRotation | undefined)[] = [];
  for (const state of kvStates(graph)) {
    const rope = writeOf(graph, state);
    if (typeof rope === "string" || !rope) {
      rotations.push(undefined);
      continue;
    }
    const { factors } = rope;
    if (factors && !read.has(factors.name)) {
      read.set(factors.name, await valuesOf(factors, readTensor));
    }
    const { headDim } = rope;
    rotations.push({ headDim, rope: rope.rope, factors: factors && read.get(factors.name) });
  }
  return rotations;
}

/** The op that rotates the keys of a state right before they are stored; undefined: none does; otherwise the problem. */
function writeOf(graph: Graph, state: KvState): NodeOf<"rope"> | string | undefined {
  const { nodes, states } = graph;
  const write = nodes.find(
    (node) => node.op === "kv_write" && states[node.state] === state,
  ) as NodeOf<"kv_write">;
  const made = maker(nodes, write.k);
  if (made?.op === "rope") return made;
  // Up to the projection: is there a rotation on the way?
  const waiting: (GraphNode | undefined)[] = [made];
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    if (node.op === "rope") {
      return "its keys are not rotated as a whole, right before they are stored (latent attention)";
    }
    if (node.op === "matmul" || node.op === "matmul_id") continue;
    waiting.push(...inputsOf(node).flatMap((value) => maker(nodes, value) ?? []));
  }
  return undefined;
}

function maker(nodes: readonly GraphNode[], value: Value): GraphNode | undefined {
  return nodes.find(({ out }) => out === value);
}

async function valuesOf(weight: Weight, readTensor: ReadTensor): Promise<Float32Array> {
  const count = weight.shape.reduce((a, b) => a * b, 1);
  const { dtype } = weight;
  const blocks = count / dtype.blockElems;
  const bytes = new Uint8Array(blocks * dtype.blockBytes);
  await weightReader(weight, readTensor)(bytes, 0);
  const values = new Float32Array(count);
  dtype.dequantize(bytes, 0, values, 0, blocks);
  return values;
}
