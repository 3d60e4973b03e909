// Adds the ops of adapters (LoRA) to a graph: y = W x becomes y = W x + scale * factor * B (A x) for every matrix W that an adapter
// has factors for, and the embedding of a token likewise. Weights of the graph are not changed, copied or read for that.
//
// The rows of a batch that use adapter 2 form a tensor of their own ("tokens@2"): gather selects them, two matmuls compute them, and
// adapt adds the result to the original rows. A batch without such rows skips these ops, and the bits of other rows stay the same. For
// experts, the factors have a matrix for each expert, and the rows keep their routes.
//
// Matmuls of the same activations stay next to each other (q, k and v), and so do those of their factors: backends compute such
// neighbours at the same time. Their gathers come before them, where a split graph has the activations (split.ts).

import {
  type BatchRows,
  type Graph,
  type GraphNode,
  type NodeOf,
  type Outputs,
  type Rows,
  type Value,
  type Weight,
  weightsOf,
  withInputs,
} from "./graph.ts";
import { rowsOf, tensorOf } from "./weight-source.ts";

/** The factors of one matrix. */
export interface AdapterPair {
  /** [rank, inputs]; of the embedding table: [vocabulary, rank]; of experts: [experts, rank, inputs]. */
  readonly a: Weight;
  /** [outputs, rank]; of experts: [experts, outputs, rank]. */
  readonly b: Weight;
  /** The factor of their matmul, beside the scale of a request. */
  readonly factor: number;
  /** The factors are added to embeddings, not to matmuls. */
  readonly isOfEmbedding: boolean;
}

/** By the tensor that they are added to. */
export type AdapterPairs = ReadonlyMap<string, AdapterPair>;

/** The graph with the ops of all adapters; their numbers are those of the list. */
export function adaptGraph(graph: Graph, adapters: readonly AdapterPairs[]): Graph {
  return adapters.length === 0 ? graph : new Adapting(graph, adapters).run();
}

/** The tensors whose factors adaptGraph() would add somewhere. */
export function adaptableTensors({ nodes }: Graph): {
  readonly matmuls: ReadonlySet<string>;
  readonly embeddings: ReadonlySet<string>;
} {
  const named = (weights: readonly Weight[]) =>
    new Set(weights.flatMap((weight) => (isPart(weight) ? [] : (tensorOf(weight) ?? []))));
  return {
    matmuls: named(nodes.flatMap((node) => (isMatmul(node) ? node.weight : []))),
    embeddings: named(nodes.flatMap((node) => (isEmbedding(node) ? node.table : []))),
  };
}

/** Its values are not rows of a tensor as they are. */
function isPart({ source }: Weight): boolean {
  return source !== undefined && !("row" in source);
}

function isEmbedding(node: GraphNode): node is NodeOf<"embed"> {
  return node.op === "embed" && node.by === "token";
}

type Matmul = NodeOf<"matmul"> | NodeOf<"matmul_id">;

function isMatmul(node: GraphNode): node is Matmul {
  return node.op === "matmul" || node.op === "matmul_id";
}

/** An addition to the result of a node. */
interface Addition {
  readonly node: Matmul | NodeOf<"embed">;
  readonly adapter: number;
  readonly pair: AdapterPair;
}

class Adapting {
  readonly #graph: Graph;
  readonly #adapters: readonly AdapterPairs[];
  readonly #nodes: GraphNode[] = [];
  /** Replacements of values for later nodes. */
  readonly #replaced = new Map<Value, Value>();
  /** By the value that they are rows of, and the adapter. */
  readonly #gathers = new Map<string, Value>();
  #values: number;

  constructor(graph: Graph, adapters: readonly AdapterPairs[]) {
    this.#graph = graph;
    this.#adapters = adapters;
    const ids = graph.nodes.flatMap(({ out }) => out?.id ?? []);
    this.#values = Math.max(graph.input?.id ?? -1, ...ids) + 1;
  }

  run(): Graph {
    const { nodes, layerStarts } = this.#graph;
    /** The new index of each node. */
    const places: number[] = [];
    for (let from = 0; from < nodes.length; ) {
      const to = this.#endOfRun(from);
      const run = nodes.slice(from, to);
      const additions = run.flatMap((node) => this.#additions(node));
      const start = this.#nodes.length;
      // Values of another layer may lie elsewhere.
      if (layerStarts.includes(from)) this.#gathers.clear();
      this.#gatherFor(additions);
      for (const [i, node] of run.entries()) {
        places.push(i === 0 ? start : this.#nodes.length);
        this.#nodes.push(withInputs(node, (value) => this.#now(value)));
      }
      this.#add(additions);
      from = to;
    }
    places.push(this.#nodes.length);
    const outputs = Object.entries(this.#graph.outputs) as [keyof Outputs, Value][];
    const weights = new Map(this.#nodes.flatMap(weightsOf).map((weight) => [weight.name, weight]));
    return {
      ...this.#graph,
      nodes: this.#nodes,
      weights: [...weights.values()],
      layerStarts: layerStarts.map((start) => places[start]!),
      outputs: Object.fromEntries(outputs.map(([name, value]) => [name, this.#now(value)])),
      adapters: this.#adapters.length,
    };
  }

  /** Behind the last of the matmuls from here on that read the same value. */
  #endOfRun(from: number): number {
    const { nodes, layerStarts } = this.#graph;
    const first = nodes[from]!;
    let to = from + 1;
    if (!isMatmul(first)) return to;
    for (; !layerStarts.includes(to); to++) {
      const next = nodes[to];
      if (next?.op !== first.op || next.x !== first.x || next.out.rows !== first.out.rows) break;
      if (next.op === "matmul_id" && next.routes !== (first as typeof next).routes) break;
    }
    return to;
  }

  #now(value: Value): Value {
    return this.#replaced.get(value) ?? value;
  }

  #additions(node: GraphNode): Addition[] {
    const weight = isMatmul(node) ? node.weight : isEmbedding(node) ? node.table : undefined;
    if (!weight || isPart(weight)) return [];
    return this.#adapters.flatMap((pairs, adapter) => {
      const pair = pairs.get(tensorOf(weight)!);
      if (!pair || pair.isOfEmbedding !== isEmbedding(node)) return [];
      return [{ node: node as Addition["node"], adapter, pair }];
    });
  }

  /** The rows of their activations, and of their routes. */
  #gatherFor(additions: readonly Addition[]): void {
    for (const { node, adapter } of additions) {
      if (node.op === "embed") continue;
      this.#gathered(node.x, adapter, node);
      if (node.op === "matmul_id") this.#gathered(node.routes, adapter, node);
    }
  }

  /** The rows of a value that use the adapter; once for all nodes of a layer that read it. */
  #gathered(value: Value, adapter: number, { name }: Addition["node"]): Value {
    const x = this.#now(value);
    const key = `${x.id}@${adapter}`;
    const known = this.#gathers.get(key);
    if (known) return known;
    const rows = `${x.rows as BatchRows}@${adapter}` as const;
    const own = this.#push({ op: "gather", x }, `${name}_${x.name}@${adapter}`, rows, x.cols);
    this.#gathers.set(key, own);
    return own;
  }

  /** Each kind of op for all of them, before the next kind. */
  #add(additions: readonly Addition[]): void {
    const named = ({ node, adapter }: Addition, what: string) => `${node.name}_${what}@${adapter}`;
    const inner = new Map<string, Value>();
    const inners = additions.map((addition) => {
      const { node, adapter, pair } = addition;
      const name = named(addition, "lora_a");
      if (node.op === "embed") {
        const [, rank] = pair.a.shape as [number, number];
        const all = this.#push({ ...node, table: pair.a }, name, "tokens", rank);
        return this.#gathered(all, adapter, node);
      }
      // Parts of a tensor share the factor a.
      const known = inner.get(pair.a.name);
      const x = this.#gathered(node.x, adapter, node);
      const own = known ?? this.#matmul(node, adapter, pair.a, x, name);
      inner.set(pair.a.name, own);
      return own;
    });
    const deltas = additions.map((addition, i) => {
      const { node, adapter, pair } = addition;
      const [x, name] = [inners[i]!, named(addition, "lora_b")];
      if (node.op === "embed") {
        const matmul = { op: "matmul", x, weight: pair.b, bias: undefined } as const;
        return this.#push(matmul, name, x.rows, node.out.cols);
      }
      return this.#matmul(node, adapter, rowsFor(pair.b, node.weight), x, name);
    });
    additions.forEach((addition, i) => {
      const { node, pair } = addition;
      const base = this.#now(node.out);
      const made = { op: "adapt", base, x: deltas[i]!, factor: pair.factor } as const;
      const out = this.#push(made, named(addition, "lora"), base.rows, base.cols);
      this.#replaced.set(node.out, out);
    });
  }

  /** The matmul of a factor with rows of the adapter, or that of a factor for each expert. */
  #matmul(node: Matmul, adapter: number, weight: Weight, x: Value, name: string): Value {
    const outputs = weight.shape.at(-2)!;
    const operands = { x, weight, bias: undefined };
    if (node.op === "matmul")
      return this.#push({ op: "matmul", ...operands }, name, x.rows, outputs);
    const routes = this.#gathered(node.routes, adapter, node);
    const made = { op: "matmul_id", ...operands, routes };
    return this.#push(made, name, x.rows, (routes.cols / 2) * outputs);
  }

  #push(node: object, name: string, rows: Rows, cols: number): Value {
    const out: Value = { id: this.#values++, name, rows, cols };
    this.#nodes.push({ ...node, name, out } as unknown as GraphNode);
    return out;
  }
}

/** The rows of b that belong to a matrix which is a part of its tensor. */
function rowsFor(b: Weight, { source, shape }: Weight): Weight {
  const row = source !== undefined && "row" in source ? source.row : 0;
  return shape[0] === b.shape[0] ? b : rowsOf(b, row, shape[0]!);
}
