// Adds the ops of adapters (LoRA) to a graph: y = W x becomes y = W x + scale * factor * B (A x) for every matrix W that an adapter
// has factors for, and the embedding of a token likewise. Weights of the graph are not changed, copied or read for that.
//
// The rows of a batch that use adapter 2 are rows of their own ("tokens@2"): gather takes them, two matmuls compute them, and adapt adds
// the result to the rows that they came from. So a batch without such rows skips these ops, and other rows keep their bits.
//
// Matmuls of the same activations stay next to each other (q, k and v), and so do those of their factors: backends compute such
// neighbours at the same time.

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
  /** [rank, inputs]; of the embedding table: [vocabulary, rank]. */
  readonly a: Weight;
  /** [outputs, rank] */
  readonly b: Weight;
  /** What their product is multiplied with, beside the scale of a request. */
  readonly factor: number;
  /** They are added to embeddings, not to matmuls. */
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
    matmuls: named(nodes.flatMap((node) => (node.op === "matmul" ? node.weight : []))),
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

/** An addition to the result of a node. */
interface Addition {
  readonly node: NodeOf<"matmul"> | NodeOf<"embed">;
  readonly adapter: number;
  readonly pair: AdapterPair;
}

class Adapting {
  readonly #graph: Graph;
  readonly #adapters: readonly AdapterPairs[];
  readonly #nodes: GraphNode[] = [];
  /** What later nodes read in place of a value. */
  readonly #replaced = new Map<Value, Value>();
  #values: number;

  constructor(graph: Graph, adapters: readonly AdapterPairs[]) {
    this.#graph = graph;
    this.#adapters = adapters;
    const ids = graph.nodes.flatMap(({ out }) => out?.id ?? []);
    this.#values = Math.max(graph.input?.id ?? -1, ...ids) + 1;
  }

  run(): Graph {
    const { nodes, layerStarts } = this.#graph;
    /** Where each node is now. */
    const places: number[] = [];
    for (let from = 0; from < nodes.length; ) {
      const to = this.#endOfRun(from);
      const run = nodes.slice(from, to);
      for (const node of run) {
        places.push(this.#nodes.length);
        this.#nodes.push(withInputs(node, (value) => this.#now(value)));
      }
      this.#add(run.flatMap((node) => this.#additions(node)));
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
    if (first.op !== "matmul") return to;
    for (; !layerStarts.includes(to); to++) {
      const next = nodes[to];
      if (next?.op !== "matmul" || next.x !== first.x || next.out.rows !== first.out.rows) break;
    }
    return to;
  }

  #now(value: Value): Value {
    return this.#replaced.get(value) ?? value;
  }

  #additions(node: GraphNode): Addition[] {
    const weight = node.op === "matmul" ? node.weight : isEmbedding(node) ? node.table : undefined;
    if (!weight || isPart(weight)) return [];
    return this.#adapters.flatMap((pairs, adapter) => {
      const pair = pairs.get(tensorOf(weight)!);
      if (!pair || pair.isOfEmbedding !== isEmbedding(node)) return [];
      return [{ node: node as Addition["node"], adapter, pair }];
    });
  }

  /** Each kind of op for all of them, before the next kind. */
  #add(additions: readonly Addition[]): void {
    const gathered = new Map<string, Value>();
    const inner = new Map<string, Value>();
    const named = ({ node, adapter }: Addition, what: string) => `${node.name}_${what}@${adapter}`;
    for (const addition of additions) {
      const { node, adapter, pair } = addition;
      const isOfEmbedding = node.op === "embed";
      const x = isOfEmbedding
        ? this.#push(
            { ...node, table: pair.a },
            named(addition, "lora_a"),
            "tokens",
            pair.a.shape[1]!,
          )
        : this.#now(node.x);
      const rows = `${node.out.rows as BatchRows}@${adapter}` as const;
      const key = isOfEmbedding ? node.name : "";
      const known = gathered.get(`${rows} ${key}`);
      const own = known ?? this.#push({ op: "gather", x }, named(addition, "rows"), rows, x.cols);
      gathered.set(`${rows} ${key}`, own);
    }
    for (const addition of additions) {
      const { node, adapter, pair } = addition;
      const isOfEmbedding = node.op === "embed";
      const x = gathered.get(`${node.out.rows}@${adapter} ${isOfEmbedding ? node.name : ""}`)!;
      const known = isOfEmbedding ? x : inner.get(pair.a.name);
      const matmul = { op: "matmul", x, weight: pair.a, bias: undefined } as const;
      inner.set(
        isOfEmbedding ? node.name + pair.a.name : pair.a.name,
        known ?? this.#push(matmul, named(addition, "lora_a"), x.rows, pair.a.shape[0]!),
      );
    }
    const deltas = additions.map((addition) => {
      const { node, pair } = addition;
      const x = inner.get(node.op === "embed" ? node.name + pair.a.name : pair.a.name)!;
      const weight = node.op === "embed" ? pair.b : rowsFor(pair.b, node.weight);
      const matmul = { op: "matmul", x, weight, bias: undefined } as const;
      return this.#push(matmul, named(addition, "lora_b"), x.rows, node.out.cols);
    });
    additions.forEach((addition, i) => {
      const { node, pair } = addition;
      const base = this.#now(node.out);
      const made = { op: "adapt", base, x: deltas[i]!, factor: pair.factor } as const;
      const out = this.#push(made, named(addition, "lora"), base.rows, base.cols);
      this.#replaced.set(node.out, out);
    });
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
