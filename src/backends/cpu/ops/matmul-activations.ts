// Prepares the activations of matmuls: quantized to bytes, or rounded as floats; for experts, in the order of their groups. An
// instruction prepares them before the first matmul that reads them, once for all that read the same value. This file makes
// these instructions (activations.ts, expert-activations.ts and expert-groups.ts define them), and owns the buffers that they
// write and the scratch memory that all matmuls share. matmul-lower.ts makes the matmuls.

import { ModelError } from "../../../base/errors.ts";
import { dtypeByName } from "../../../dtypes/table.ts";
import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import { type MatmulChoice, matmulVariants } from "../../../kernels/matmul-variants.ts";
import { quantizeActivationsKernel } from "../../../kernels/ops/matmul/quantize-activations.ts";
import { activationBlockBytes } from "../../../kernels/ops/packed/packed.ts";
import type { Widened } from "../../backend.ts";
import type { Quantize, Round } from "./activations.ts";
import { guessNext } from "./disk-ahead.ts";
import type { DiskExperts } from "./disk-experts.ts";
import type { GatherExperts, QuantizeExperts } from "./expert-activations.ts";
import { type GroupExperts, type GroupTable, groupTableBytes } from "./expert-groups.ts";
import type { ExpertMatmul } from "./matmul-data.ts";
import { type Chosen, colsOf, isMatmul, type MatmulCompiler } from "./matmul-node.ts";
import type { NeuronList, NeuronSlabs } from "./neuron-activations.ts";

/** A buffer, and the value that it was prepared from. */
interface Prepared {
  readonly at: number;
  holds: Value | undefined;
  /** The routes whose groups it is ordered by, for experts. */
  routes: Value | undefined;
}

/** The address of the activations of experts, and the matmul's data about them. */
interface ExpertActivations {
  readonly x: number;
  readonly of: Pick<ExpertMatmul, "groups" | "perToken" | "pairBytes" | "direct">;
}

type RoundedValue = Pick<Widened, "value" | "weight" | "dtype">;

/** The values that `round` instructions round, and the address that records the first that keeps a row (activations.ts). */
export interface Roundings {
  readonly record: number;
  readonly rounded: readonly RoundedValue[];
}

export class MatmulActivations {
  readonly #c: MatmulCompiler;
  /** By the kind of their contents: all layers share them. */
  readonly #prepared = new Map<string, Prepared>();
  /** Areas that all matmuls share, with a part for each thread. */
  readonly #scratch = new Map<string, number>();

  /** The values that `round` instructions round, by their number - 1. */
  readonly #rounded: RoundedValue[] = [];
  /** The address that records the first of them that keeps a row. */
  #record: number | undefined;

  constructor(compiler: MatmulCompiler) {
    this.#c = compiler;
  }

  /** undefined: nothing is rounded. */
  get roundings(): Roundings | undefined {
    return this.#record === undefined
      ? undefined
      : { record: this.#record, rounded: this.#rounded };
  }

  /** Forgets activations that were prepared from a slot, whose value is overwritten. */
  forget(slot: number): void {
    const isWritten = (held: Value | undefined) => held && this.#c.address(held) === slot;
    for (const prepared of this.#prepared.values()) {
      if (isWritten(prepared.holds) || isWritten(prepared.routes)) prepared.holds = undefined;
    }
  }

  /** Activations as bytes: [rows][cols / 32] blocks; not where a batch has fewer than `fewest` rows. */
  quantized(x: Value, span: 1 | 8, { choice, table }: Chosen, fewest = 1): number {
    const { variants, blockBytes } = this.#variants(span, choice);
    const bytes = this.#c.rows * ((this.longestRow() / 32) * blockBytes);
    return this.#once(`bytes per ${span * 32}`, bytes, x, undefined, (out): Quantize => {
      const from = { rows: x.rows, x: this.#c.address(x), out, cols: x.cols };
      return { op: "quantize", ...from, variants, choice: table, span, fewest };
    });
  }

  /** Activations rounded to this weight's activation type, as floats: f32 [rows][cols]. */
  rounded(x: Value, weight: Weight): number {
    const { activation } = weight.dtype;
    if (activation === "f32") return this.#c.address(x);
    if (!dtypeByName(activation)?.quantize)
      throw new ModelError(`${weight.name}: no type "${activation}" to round to`);
    const rowBytes = this.longestRow() * 4;
    const bytes = this.#c.rows * rowBytes;
    return this.#once(`floats as ${activation}`, bytes, x, undefined, (out): Round => {
      const kernel = `round_${activation}`;
      const scratchBytes = rowBytes + 64;
      this.#rounded.push({ value: x.name, weight: weight.name, dtype: activation });
      this.#record ??= this.#c.options.arena.allocate(8, "work", "activations that stayed floats");
      return {
        op: "round",
        rows: x.rows,
        kernel: this.#c.hasKernel(kernel) ? kernel : undefined,
        dtype: activation,
        x: this.#c.address(x),
        out,
        cols: x.cols,
        part: weight.shape.at(-1)!,
        scratch: this.perThread("rounding", scratchBytes),
        scratchBytes,
        record: this.#record,
        number: this.#rounded.length,
      };
    });
  }

  /** As quantized(), in the order of the experts' groups: [pairs][cols / 32] blocks. */
  quantizedExperts(
    node: NodeOf<"matmul_id">,
    span: 1 | 8,
    { choice, table }: Chosen,
  ): ExpertActivations {
    const groups = this.groups(node);
    const { variants, blockBytes } = this.#variants(span, choice);
    const from = this.#expertRows(node, groups, this.#c.address(node.x));
    const pairBytes = (from.cols / 32) * blockBytes;
    const key = `bytes per ${span * 32}, by expert`;
    const bytes = this.#c.rows * this.#longestSlots((cols) => (cols / 32) * blockBytes);
    const x = this.#once(key, bytes, node.x, node.routes, (out): QuantizeExperts => {
      return { op: "quantize_experts", ...from, out, variants, choice: table, span, pairBytes };
    });
    return { x, of: { groups, perToken: from.perToken, pairBytes, direct: -1 } };
  }

  /** As rounded(), in the order of the experts' groups; experts with one token read the rounded values in place. */
  gatheredExperts(node: NodeOf<"matmul_id">): ExpertActivations {
    const groups = this.groups(node);
    const direct = this.rounded(node.x, node.weight);
    const from = this.#expertRows(node, groups, direct);
    const key = `floats as ${node.weight.dtype.activation}, by expert`;
    const bytes = this.#c.rows * this.#longestSlots((cols) => cols * 4);
    const x = this.#once(key, bytes, node.x, node.routes, (out): GatherExperts => {
      return { op: "gather_experts", ...from, out };
    });
    return { x, of: { groups, perToken: from.perToken, pairBytes: from.cols * 4, direct } };
  }

  #expertRows(node: NodeOf<"matmul_id">, groups: GroupTable, x: number) {
    const cols = colsOf(node);
    return { rows: node.x.rows, groups, x, cols, perToken: node.x.cols / cols };
  }

  /** The groups of a node's routes. */
  groups({ routes, weight }: NodeOf<"matmul_id">): GroupTable {
    let isNew = false;
    const [slots, experts] = [routes.cols / 2, weight.shape[0]!];
    const pairs = this.#c.rows * slots;
    // If experts share a matrix, its pairs may be more than the rows of a batch: then they are several groups.
    const most = Math.min(experts + slots, pairs);
    const shape = { rows: routes.rows, slots, experts, most, pairs };
    // The groups of an adapter's rows do not replace those of all rows, which the next matmul reads again.
    const key = `${slots} of ${experts} experts of ${routes.rows}`;
    const at = this.#once(key, groupTableBytes(shape), routes, undefined, (table): GroupExperts => {
      const from = this.#c.address(routes);
      isNew = true;
      return { op: "group_experts", table: { at: table, ...shape }, routes: from };
    });
    const table = { at, ...shape };
    if (isNew) this.#askForExperts(routes, table);
    return table;
  }

  /** Asks for a batch's experts, if experts of these routes are read on demand. */
  #askForExperts(routes: Value, table: GroupTable): void {
    const { plan, weights: store } = this.#c.options;
    const weights = plan.graph.nodes.flatMap((node) => {
      const isRouted = node.op === "matmul_id" && node.routes === routes;
      return isRouted ? (store.get(node.weight).onDemand ?? []) : [];
    });
    if (weights.length === 0) return;
    const numbers = plan.graph.nodes.flatMap((node) =>
      node.op === "matmul_id" ? (store.get(node.weight).onDemand ?? []) : [],
    );
    const instruction: DiskExperts = {
      op: "disk_experts",
      ...{ table, weights },
      isFirst: weights.includes(numbers[0]!),
      isLast: weights.includes(numbers.at(-1)!),
    };
    this.#c.push(instruction);
    for (const made of guessNext(this.#c, routes)) this.#c.push(made);
  }

  /** Columns of the longest row that a matmul reads. */
  longestRow(): number {
    const { graph } = this.#c.options.plan;
    return Math.max(...graph.nodes.map((node) => (isMatmul(node) ? node.x.cols : 0)));
  }

  /** Scratch memory that all matmuls share; the sizes of one key must be equal. */
  perThread(key: string, bytes: number): number {
    let at = this.#scratch.get(key);
    if (at === undefined) {
      const { arena, threads } = this.#c.options;
      at = arena.allocate(threads * bytes, "work", key, threads);
      this.#scratch.set(key, at);
    }
    return at;
  }

  /** The buffer of this key, prepared from `x` unless it is already. */
  once(
    key: string,
    bytes: number,
    x: Value,
    prepare: (out: number) => NeuronSlabs | NeuronList,
  ): number {
    return this.#once(key, bytes, x, undefined, prepare);
  }

  /** The buffer of this key, prepared from `holds` by the instruction that `prepare` makes, unless it is already. */
  #once(
    key: string,
    bytes: number,
    holds: Value,
    routes: Value | undefined,
    prepare: (
      out: number,
    ) =>
      | Quantize
      | Round
      | QuantizeExperts
      | GatherExperts
      | GroupExperts
      | NeuronSlabs
      | NeuronList,
  ): number {
    let prepared = this.#prepared.get(key);
    if (!prepared) {
      const at = this.#c.options.arena.allocate(bytes, "work", key);
      prepared = { at, holds: undefined, routes: undefined };
      this.#prepared.set(key, prepared);
    }
    if (prepared.holds !== holds || prepared.routes !== routes) {
      prepared.holds = holds;
      prepared.routes = routes;
      this.#c.push(prepare(prepared.at));
    }
    return prepared.at;
  }

  /** The activation layouts of a choice's variants, and the bytes of a block that are enough for all variants. */
  #variants(span: 1 | 8, choice: MatmulChoice) {
    const { target } = this.#c.options;
    const variants = choice.variants.map(({ replicated, words, tokens }) => ({
      kernel: this.#c.kernel(
        quantizeActivationsKernel({
          name: `quantize_${span * 32}${replicated ? "_replicated" : words ? "_words" : ""}`,
          span,
          replicated,
          words,
          target,
        }),
      ),
      blockBytes: activationBlockBytes(replicated, target.width, words),
      tile: tokens,
    }));
    // Matmuls with different choices share the buffers.
    const isReplicated = matmulVariants(target).some((variant) => variant.replicated);
    return { variants, blockBytes: activationBlockBytes(isReplicated, target.width) };
  }

  /** The most bytes of all slots of a token. */
  #longestSlots(bytesOf: (cols: number) => number): number {
    const { graph } = this.#c.options.plan;
    const ofNodes = graph.nodes.map((node) =>
      node.op === "matmul_id" ? (node.routes.cols / 2) * bytesOf(colsOf(node)) : 0,
    );
    return Math.max(...ofNodes);
  }
}
