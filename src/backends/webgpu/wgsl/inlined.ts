// Nodes that a kernel computes itself: those before its own node as it reads their results, those after it as it stores its own. Each
// of their values depends on one value (slices, activations, products), so no other kernel needs their results in memory.
// ../fuse-inlined.ts chooses them.

import {
  type GraphNode,
  inputsOf,
  type NodeOf,
  type Value,
  type Weight,
} from "../../../graph/graph.ts";
import { activationOf, gateText } from "./elementwise.ts";
import { type Binding, float } from "./kernel.ts";

/** Ops of one value of each operand; slice reads it in another column. */
export type InlinedOp =
  | "slice"
  | "activate"
  | "scale"
  | "mul"
  | "gate"
  | "add"
  | "add_weight"
  | "mul_weight";

type InlinedNode = NodeOf<InlinedOp>;

export interface Inlined {
  /** Each is read by a later one of them, or by the kernel's own node; in the graph's order. */
  readonly before: readonly GraphNode[];
  /** The first reads the result of the kernel's node, each other one that of the one before. At most one of all has another operand. */
  readonly after: readonly GraphNode[];
}

export const nothingInlined: Inlined = { before: [], after: [] };

/** WGSL of a node's result, from names of its operands. */
const texts: {
  readonly [K in InlinedOp]: (
    node: NodeOf<K>,
    value: (of: Value) => string,
    column: string,
    weight: (of: Weight) => string,
  ) => string;
} = {
  slice: ({ x }, value) => value(x),
  activate: ({ x, activation }, value) => activationOf(activation, value(x)),
  scale: ({ x, factor }, value) => `${value(x)} * ${float(factor)}`,
  mul: ({ a, b }, value) => `${value(a)} * ${value(b)}`,
  gate: ({ gate, up, activation }, value) => gateText(activation, value(gate), value(up)),
  add: ({ a, b }, value) => `${value(a)} + ${value(b)}`,
  add_weight: ({ x, weight: by }, value, column, weight) =>
    `${value(x)} + ${weight(by)}[${column}]`,
  mul_weight: ({ x, out, weight: by }, value, column, weight) => {
    const size = by.shape[0]!;
    return `${value(x)} * ${weight(by)}[${size === out.cols ? column : `${column} % ${size}u`}]`;
  },
};

/** The value that a node computes, from those of its operands, as WGSL. */
function textOf(
  node: InlinedNode,
  value: (of: Value) => string,
  column: string,
  weight: (of: Weight) => string,
): string {
  return (texts[node.op] as (typeof texts)["slice"])(
    node as NodeOf<"slice">,
    value,
    column,
    weight,
  );
}

/** The column of `x` that column `column` of a slice is. */
function slicedColumn({ x, out, groups, from }: NodeOf<"slice">, column: string): string {
  if (groups === 1) return from === 0 ? column : `(${column} + ${from}u)`;
  const count = out.cols / groups;
  return `(${column} / ${count}u * ${x.cols / groups}u + ${from}u + ${column} % ${count}u)`;
}

/**
 * The WGSL by which a kernel reads values and stores its result. Names in its text do not depend on the layer, so that layers share a
 * pipeline.
 */
export class ValueTexts {
  readonly #bindings: Binding[] = [];
  readonly #names = new Map<Value | Weight, string>();
  readonly #makers: ReadonlyMap<Value, GraphNode>;
  readonly #functions: string[] = [];

  /** @param before the nodes that are computed as values are read */
  constructor(before: readonly GraphNode[]) {
    this.#makers = new Map(before.map((node) => [node.out!, node]));
  }

  /** Bindings of all values and weights that were asked for so far. */
  get bindings(): readonly Binding[] {
    return this.#bindings;
  }

  /** All functions so far. */
  get functions(): string {
    return this.#functions.join("");
  }

  /** Declares `fn NAME(row: u32, column: u32) -> f32`: a value. */
  read(name: string, value: Value): void {
    const lines: string[] = [];
    const found = this.#emit(value, "column", lines);
    this.#functions.push(`
fn ${name}(row: u32, column: u32) -> f32 {
  ${lines.join("\n  ")}
  return ${found};
}`);
  }

  /**
   * The same in two functions, so that no lane waits for the memory before the value is used: `fn NAMERaw(row: u32, column: u32) -> f32`, the
   * loaded value, and `fn NAMEOf(raw: f32, column: u32) -> f32`, the value computed from it. If several values are loaded, the first function
   * does all of it.
   */
  readApart(name: string, value: Value): void {
    const chain: InlinedNode[] = [];
    let from = value;
    for (;;) {
      const maker = this.#makers.get(from) as InlinedNode | undefined;
      const inputs = maker ? inputsOf(maker as GraphNode) : [];
      if (!maker || inputs.length !== 1) break;
      chain.unshift(maker);
      from = inputs[0]!;
    }
    const isWhole = !this.#makers.has(from);
    const columns = new Map<InlinedNode, string>();
    let column = "column";
    for (const node of chain.toReversed()) {
      columns.set(node, column);
      if (node.op === "slice") column = slicedColumn(node as NodeOf<"slice">, column);
    }
    const lines = (isWhole ? chain : []).map((node, i) => {
      const before = i === 0 ? "raw" : `v${i - 1}`;
      const own = columns.get(node)!;
      return `let v${i} = ${textOf(
        node,
        () => before,
        own,
        (weight) => this.vector(weight),
      )};`;
    });
    const loads: string[] = [];
    const found = isWhole
      ? `${this.#values(from)}[row * ${from.cols}u + ${column}]`
      : this.#emit(value, "column", loads);
    this.#functions.push(`
fn ${name}Raw(row: u32, column: u32) -> f32 {
  ${loads.join("\n  ")}
  return ${found};
}
fn ${name}Of(raw: f32, column: u32) -> f32 {
  ${lines.join("\n  ")}
  return ${lines.length > 0 ? `v${lines.length - 1}` : "raw"};
}`);
  }

  /** The name of a weight's floats. */
  vector(weight: Weight): string {
    const known = this.#names.get(weight);
    if (known) return known;
    const name = `weight${this.#names.size}`;
    this.#names.set(weight, name);
    this.#bindings.push({ name, type: "f32", source: { kind: "weight", weight, part: 0 } });
    return name;
  }

  /**
   * Declares `fn restAt(row: u32, column: u32) -> f32`, the other operand of the nodes `after` the kernel's (0 if there is none), which can be
   * loaded early, and `fn stored(sum: f32, rest: f32, column: u32) -> f32`, the stored result. Returns the value of that result: `out`, if no node
   * is behind it. `suffix`: added to both names.
   */
  stored(out: Value, after: readonly GraphNode[], suffix = ""): Value {
    let last = out;
    const lines: string[] = [];
    let rest: Value | undefined;
    for (const [i, node] of after.entries()) {
      const before = last;
      const value = (of: Value): string => {
        if (of === before) return i === 0 ? "sum" : `after${i - 1}`;
        rest = of;
        return "rest";
      };
      const text = textOf(node as InlinedNode, value, "column", (weight) => this.vector(weight));
      lines.push(`let after${i} = ${text};`);
      last = node.out!;
    }
    const loads: string[] = [];
    const found = rest ? this.#emit(rest, rest.cols === 1 ? "0u" : "column", loads) : "0.0";
    this.#functions.push(`
fn restAt${suffix}(row: u32, column: u32) -> f32 {
  ${loads.join("\n  ")}
  return ${found};
}
fn stored${suffix}(sum: f32, rest: f32, column: u32) -> f32 {
  ${lines.join("\n  ")}
  return ${lines.length > 0 ? `after${lines.length - 1}` : "sum"};
}`);
    return last;
  }

  /** Adds lines that compute a value in this column; returns its name. */
  #emit(value: Value, column: string, lines: string[]): string {
    const maker = this.#makers.get(value) as InlinedNode | undefined;
    if (!maker) {
      const name = `v${lines.length}`;
      lines.push(`let ${name} = ${this.#values(value)}[row * ${value.cols}u + ${column}];`);
      return name;
    }
    const at = maker.op === "slice" ? slicedColumn(maker as NodeOf<"slice">, column) : column;
    const text = textOf(
      maker,
      (of) => this.#emit(of, of.cols === 1 && value.cols > 1 ? "0u" : at, lines),
      column,
      (weight) => this.vector(weight),
    );
    const name = `v${lines.length}`;
    lines.push(`let ${name} = ${text};`);
    return name;
  }

  #values(value: Value): string {
    const known = this.#names.get(value);
    if (known) return known;
    const name = `given${this.#names.size}`;
    this.#names.set(value, name);
    this.#bindings.push({ name, type: "f32", source: { kind: "value", value } });
    return name;
  }
}
