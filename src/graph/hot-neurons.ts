// Divides the neurons of ReLU networks between two backends (docs/use/sparse.md, backends/split/): the first neurons of each, which are
// to be those that are open most often, are the hot ones, the others the cold ones.
//
//   down(inner(x)) = down[:, :h](inner_hot(x)) + down[:, h:](inner_cold(x))
//
// Each half is a network of its own, with rows of `gate` and `up` and columns of `down`: where the cold half is computed, neurons that are
// zero can be left out as in any other network. Sums of two halves have other last bits than one sum.

import {
  type Graph,
  type GraphNode,
  type NodeOf,
  type Value,
  type Weight,
  weightsOf,
} from "./graph.ts";
import { makersOf, readersOf, reluNetworks } from "./relu-networks.ts";

/** A part of a weight that a backend holds as one of its own. */
export interface WeightPiece {
  readonly weight: Weight;
  /** "rows" from `from` on, or "columns". */
  readonly axis: "rows" | "columns";
  readonly from: number;
}

export interface HotNeurons {
  readonly graph: Graph;
  /** Whether a weight belongs to a hot half, by its name; undefined: it belongs to neither half. */
  readonly isHot: ReadonlyMap<string, boolean>;
  /** The first node of each hot half, and the sums of halves. */
  readonly cuts: ReadonlySet<GraphNode>;
  /** The first node of each cold half, which needs nothing of the hot one. */
  readonly beside: ReadonlySet<GraphNode>;
  /** By the name of the whole weight. */
  readonly pieces: ReadonlyMap<string, readonly WeightPiece[]>;
  /** The number of neurons of the divided networks, and the number of hot ones. */
  readonly neurons: number;
  readonly hotCount: number;
}

/** Halves begin at whole tiles and whole blocks of every type. */
const TOGETHER = 256;

export function divideNeurons(graph: Graph, share: number): HotNeurons {
  const { nodes } = graph;
  const networks = new Map<GraphNode, GraphNode[]>();
  const inside = new Set<GraphNode>();
  const [makers, readers] = [makersOf(nodes), readersOf(nodes)];
  for (const { down } of reluNetworks(nodes)) {
    const inner = nodesBehind(down, makers, readers);
    if (!inner || hotOf(down.x.cols, share) === undefined) continue;
    networks.set(down, inner);
    for (const node of inner) inside.add(node);
  }
  const made: GraphNode[] = [];
  const isHotWeight = new Map<string, boolean>();
  const [cuts, beside] = [new Set<GraphNode>(), new Set<GraphNode>()];
  const pieces = new Map<string, WeightPiece[]>();
  let nextId = Math.max(-1, ...nodes.flatMap(({ out }) => out?.id ?? [])) + 1;
  const valueLike = (value: Value, suffix: string, cols: number): Value => ({
    ...value,
    id: nextId++,
    name: `${value.name}_${suffix}`,
    cols,
  });
  const piece = (
    whole: Weight,
    axis: WeightPiece["axis"],
    [from, count, isHot]: readonly [number, number, boolean],
  ): Weight => {
    const at = `${from}:${from + count}`;
    const [first, ...others] = whole.shape as [number, ...number[]];
    const weight = {
      name: `${whole.name}[${axis === "rows" ? at : `:, ${at}`}]`,
      shape: axis === "rows" ? [count, ...others] : [first, count],
      dtype: whole.dtype,
    };
    pieces.set(whole.name, [...(pieces.get(whole.name) ?? []), { weight, axis, from }]);
    isHotWeight.set(weight.name, isHot);
    return weight;
  };
  const half = (down: NodeOf<"matmul">, inner: readonly GraphNode[], isHot: boolean): Value => {
    const count = hotOf(down.x.cols, share)!;
    const cols = isHot ? count : down.x.cols - count;
    const part = [isHot ? 0 : count, cols, isHot] as const;
    const suffix = isHot ? "hot" : "cold";
    const own = new Map<Value, Value>();
    const push = (node: GraphNode, changed: object): void => {
      const copy = { ...node, ...changed, name: `${node.name}_${suffix}` } as GraphNode;
      made.push(copy);
      if (node === inner[0]) (isHot ? cuts : beside).add(copy);
    };
    for (const node of inner) {
      const out = valueLike(node.out!, suffix, cols);
      own.set(node.out!, out);
      if (node.op === "matmul") {
        const weight = piece(node.weight, "rows", part);
        const bias = node.bias && piece(node.bias, "rows", part);
        push(node, { weight, bias, out });
      } else if (node.op === "gate") {
        push(node, { gate: own.get(node.gate), up: own.get(node.up), out });
      } else push(node, { x: own.get((node as NodeOf<"activate">).x), out });
    }
    const out = valueLike(down.out, suffix, down.out.cols);
    const weight = piece(down.weight, "columns", part);
    push(down, { x: own.get(down.x), weight, bias: isHot ? undefined : down.bias, out });
    return out;
  };
  const places: number[] = [];
  let [neurons, hotCount] = [0, 0];
  for (const node of nodes) {
    places.push(made.length);
    const inner = networks.get(node);
    if (inner) {
      const down = node as NodeOf<"matmul">;
      const [a, b] = [half(down, inner, true), half(down, inner, false)];
      const sum = { op: "add", a, b, name: down.name, out: down.out } as unknown as GraphNode;
      made.push(sum);
      cuts.add(sum);
      neurons += down.x.cols;
      hotCount += hotOf(down.x.cols, share)!;
    } else if (!inside.has(node)) made.push(node);
  }
  places.push(made.length);
  const weights = new Map(made.flatMap(weightsOf).map((weight) => [weight.name, weight]));
  return {
    graph: {
      ...graph,
      nodes: made,
      weights: [...weights.values()],
      layerStarts: graph.layerStarts.map((start) => places[start]!),
    },
    isHot: isHotWeight,
    cuts,
    beside,
    pieces,
    neurons,
    hotCount,
  };
}

/** The number of hot neurons of a network; undefined: it is too small to be divided. */
function hotOf(neurons: number, share: number): number | undefined {
  const count = Math.round((neurons * share) / TOGETHER) * TOGETHER;
  const most = Math.floor((neurons - 1) / TOGETHER) * TOGETHER;
  return most < TOGETHER ? undefined : Math.min(most, Math.max(TOGETHER, count));
}

/**
 * The nodes that compute the neurons that `down` reads, in the graph's order; undefined: another node reads or computes a part of
 * them.
 */
export function nodesBehind(
  down: NodeOf<"matmul">,
  makers: ReadonlyMap<Value, GraphNode>,
  readers: ReadonlyMap<Value, number>,
): GraphNode[] | undefined {
  const found: GraphNode[] = [];
  const visit = (value: Value): boolean => {
    const node = makers.get(value);
    if (!node || readers.get(value) !== 1 || value.cols !== down.x.cols) return false;
    const isWhole =
      node.op === "matmul" ||
      (node.op === "gate" && visit(node.gate) && visit(node.up)) ||
      (node.op === "activate" && visit(node.x));
    if (isWhole) found.push(node);
    return isWhole;
  };
  return visit(down.x) ? found : undefined;
}

/** Reads bytes of a weight from `byteOffset` on, as engines read whole ones. */
type Read = (target: Uint8Array, byteOffset: number) => Promise<void>;

/** Bytes of whole rows that one read takes, for columns. */
const AT_ONCE = 1 << 20;

/** Reads a part of a weight. */
export function pieceReader(whole: Weight, { weight, axis, from }: WeightPiece, read: Read): Read {
  const { dtype } = whole;
  const bytesOf = (elements: number) => (elements / dtype.blockElems) * dtype.blockBytes;
  const columns = whole.shape.at(-1)!;
  if (axis === "rows") {
    const perRow = whole.shape.length === 1 ? bytesOf(1) : bytesOf(columns);
    return (target, at) => read(target, from * perRow + at);
  }
  const [rowBytes, ownBytes] = [bytesOf(columns), bytesOf(weight.shape.at(-1)!)];
  const skipped = bytesOf(from);
  return async (target, at) => {
    const last = Math.ceil((at + target.length) / ownBytes);
    const together = Math.max(1, Math.floor(AT_ONCE / rowBytes));
    for (let row = Math.floor(at / ownBytes); row < last; row += together) {
      const rows = Math.min(together, last - row);
      const bytes = new Uint8Array(rows * rowBytes);
      await read(bytes, row * rowBytes);
      for (let i = 0; i < rows; i++) {
        const start = (row + i) * ownBytes - at; // where this row begins in `target`
        const [begin, end] = [Math.max(0, -start), Math.min(ownBytes, target.length - start)];
        const source = i * rowBytes + skipped;
        target.set(bytes.subarray(source + begin, source + end), start + begin);
      }
    }
  };
}
