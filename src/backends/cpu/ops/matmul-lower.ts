// Matmuls on the CPU backend: the instruction of each, the activations that are prepared for it once for all
// matmuls that read the same value, and the scratch memory that they share. Which kernels: matmul-kernels.ts.

import { ModelError } from "../../../base/errors.ts";
import { bytesFor } from "../../../dtypes/dtype.ts";
import { dtypeByName } from "../../../dtypes/table.ts";
import type { GraphNode, NodeOf, Value, Weight } from "../../../graph/graph.ts";
import {
  type MatmulChoice,
  type MatmulProblem,
  type MatmulVariant,
  matmulVariants,
} from "../../../kernels/matmul-variants.ts";
import { quantizeActivationsKernel } from "../../../kernels/ops/matmul/quantize-activations.ts";
import { dotRows } from "../../../kernels/ops/matmul/rows.ts";
import { activationBlockBytes, PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { layoutFor } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import type { CompileOptions } from "../compile-options.ts";
import { floatPanelsFor } from "../memory/float-panels.ts";
import type { PlacedWeight } from "../memory/weights.ts";
import type { Quantize, Round } from "./activations.ts";
import type { Unary } from "./elementwise.ts";
import type { GatherExperts, QuantizeExperts } from "./expert-activations.ts";
import { type GroupExperts, type GroupTable, groupTableBytes } from "./expert-groups.ts";
import type { MatmulBlocks, MatmulFloats } from "./matmul.ts";
import {
  type ExpertMatmul,
  GROUP_PANELS,
  type MatmulRows,
  type TiledMatmul,
  type TiledVariant,
} from "./matmul-data.ts";
import {
  blockKernels,
  floatKernels,
  matmulScratchBytes,
  type VariantKernels,
} from "./matmul-kernels.ts";
import type { NodeCompiler } from "./op.ts";

/** Bytes of a vector register in kernels that are not made for the target: WebAssembly's. */
export const WIDTH = 16;

/** What lowering a matmul asks of the compiler. */
export interface MatmulCompiler extends NodeCompiler {
  readonly options: CompileOptions;
  /** Most rows that a value can have. */
  readonly rows: number;
  explain(line: string): void;
}

/** One buffer of prepared activations, and which value it holds now. */
interface Prepared {
  at: number;
  holds: Value | undefined;
  /** In the order of whose groups, where it is that of experts. */
  routes?: Value | undefined;
}

/** A choice, and where the table is that tells all threads of it: i32 [rows + 1]. */
export interface Chosen {
  readonly choice: MatmulChoice;
  readonly table: number;
}

type MatmulNode = NodeOf<"matmul"> | NodeOf<"matmul_id">;

/** What the activations of experts add to an instruction. */
type Experts = Pick<TiledMatmul, "x" | "experts">;

type VariantNames = Pick<TiledVariant, "vector" | "vectorStreams" | "vectorHalf" | "matrix">;

export class MatmulLowering {
  readonly #c: MatmulCompiler;
  readonly #prepared = new Map<string, Prepared>();
  /** Areas that all matmuls share, with room for each thread. */
  readonly #scratch = new Map<string, number>();
  readonly #chosen = new Map<string, Chosen>();
  readonly #names = new Map<string, VariantNames>();
  /** Groups of experts, and of which routes they are now. */
  readonly #groupTables = new Map<string, Prepared>();

  constructor(compiler: MatmulCompiler) {
    this.#c = compiler;
  }

  lower(node: MatmulNode): MatmulBlocks | MatmulFloats | MatmulRows {
    const placed = this.#c.options.weights.get(node.weight);
    if (placed.blocks) return this.#blocks(node, placed.blocks);
    if (placed.floats) return this.#floats(node, placed.floats);
    return this.#rowByRow(node, placed.raw!);
  }

  /** A slot was written: what was prepared from its old value is of no use any more. */
  forget(slot: number): void {
    for (const prepared of [...this.#prepared.values(), ...this.#groupTables.values()]) {
      const { holds, routes } = prepared;
      const isWritten = (held: Value | undefined) => held && this.#c.address(held) === slot;
      if (isWritten(holds) || isWritten(routes)) prepared.holds = undefined;
    }
  }

  #blocks(node: MatmulNode, place: NonNullable<PlacedWeight["blocks"]>): MatmulBlocks {
    const { target } = this.#c.options;
    const type = node.weight.dtype.name;
    const packing = packingOf(type)!;
    const layout = layoutFor(packing, target);
    const chosen = this.#choose(this.#sharing(node, packing.activationSpan));
    const variants = chosen.choice.variants.map((variant) => {
      const kernels = this.#named(`${type} ${variant.id}`, () =>
        blockKernels(type, layout, variant),
      );
      const blockBytes = activationBlockBytes(variant.replicated, target.width);
      return variantOf(variant, kernels, (colsOf(node) / 32) * blockBytes);
    });
    this.#c.explain(`${node.name}: ${type}, ${choiceText(chosen.choice)}`);
    const tileScratchBytes = matmulScratchBytes(this.#c.rows);
    return {
      op: "matmul_blocks",
      ...this.#shape(node),
      variants,
      width: target.width,
      choice: chosen.table,
      ...(node.op === "matmul"
        ? { x: this.#quantized(node.x, packing.activationSpan, chosen) }
        : this.#quantizedExperts(node, packing.activationSpan, chosen, place.rowPanelBytes)),
      w: place.at,
      rowPanelBytes: place.rowPanelBytes,
      spans: colsOf(node) / (32 * layout.spanBlocks),
      codebook: place.codebook,
      tileScratch: chosen.choice.variants.some(({ amx, i8mm }) => amx || i8mm)
        ? this.#perThread("unpacked tiles", tileScratchBytes)
        : -1,
      tileScratchBytes,
      scratch: this.#tailTiles(),
      scratchBytes: this.#tailTileBytes,
    };
  }

  #floats(node: MatmulNode, place: NonNullable<PlacedWeight["floats"]>): MatmulFloats {
    const { type } = place;
    const { target } = this.#c.options;
    const chosen = this.#choose([problemOf(node)]);
    const variants = chosen.choice.variants.map((variant) => {
      const kernels = this.#named(`${type} ${variant.id}`, () =>
        floatKernels(type, target, variant),
      );
      return variantOf(variant, kernels, colsOf(node) * 4);
    });
    const { widen } = floatPanelsFor(type, target);
    const wideBytes = PANEL_ROWS * this.#longestRow() * 4;
    const how = widen ? ", widened to f32 for tiles of tokens" : "";
    this.#c.explain(`${node.name}: ${type}, ${choiceText(chosen.choice)}${how}`);
    return {
      op: "matmul_floats",
      ...this.#shape(node),
      variants,
      width: target.width,
      groupBytes: ((widen || type === "f32" ? 4 : 2) * target.width) / 4,
      choice: chosen.table,
      widen,
      wide: widen ? this.#perThread("wide tiles", wideBytes) : -1,
      wideBytes,
      ...(node.op === "matmul"
        ? { x: this.#rounded(node.x, node.weight) }
        : this.#gatheredExperts(node, place.rowPanelBytes)),
      w: place.at,
      rowPanelBytes: place.rowPanelBytes,
      scratch: this.#tailTiles(),
      scratchBytes: this.#tailTileBytes,
    };
  }

  /** The names of a variant's kernels. They are made once: for every layer again, they took 150 MB and a second. */
  #named(key: string, make: () => VariantKernels): VariantNames {
    let names = this.#names.get(key);
    if (!names) {
      const { vector, vectorStreams, vectorHalf, matrix } = make();
      names = {
        vector: this.#c.kernel(vector),
        vectorStreams: this.#c.kernel(vectorStreams),
        ...(vectorHalf && { vectorHalf: this.#c.kernel(vectorHalf) }),
        matrix: matrix.map(({ kernel, groups, inStreams }) => ({
          kernel: this.#c.kernel(kernel),
          groups,
          ...(inStreams && { inStreams: this.#c.kernel(inStreams) }),
        })),
      };
      this.#names.set(key, names);
    }
    return names;
  }

  /** All matmuls of packed blocks that read the same prepared activations as this one, itself included. */
  #sharing({ op, x }: MatmulNode, span: 1 | 8): MatmulProblem[] {
    const { plan, weights } = this.#c.options;
    return plan.graph.nodes.flatMap((node) => {
      if (!isMatmul(node) || node.op !== op || node.x !== x) return [];
      if (!weights.get(node.weight).blocks) return [];
      return packingOf(node.weight.dtype.name)?.activationSpan === span ? [problemOf(node)] : [];
    });
  }

  /** Layers are alike: one choice, and one table of it, for all groups of the same problems. */
  #choose(problems: readonly MatmulProblem[]): Chosen {
    const key = problems.map(({ dtype, n, k }) => `${dtype} ${n} ${k}`).join(", ");
    const known = this.#chosen.get(key);
    if (known) return known;
    const { arena, threads, choose } = this.#c.options;
    const choice = choose(problems, this.#c.rows, threads);
    for (const note of choice.notes) this.#c.explain(note);
    const chosen = {
      choice,
      table: arena.allocate((this.#c.rows + 1) * 4, "work", `choice for ${key}`),
    };
    this.#chosen.set(key, chosen);
    return chosen;
  }

  /** What the tables of choices must hold, once there is memory. */
  get choices(): readonly Chosen[] {
    return [...this.#chosen.values()];
  }

  #rowByRow(node: MatmulNode, raw: number): MatmulRows {
    const { dtype } = node.weight;
    this.#c.explain(`${node.name}: dot_rows (rows of ${dtype.name} unpacked one by one)`);
    const scratchBytes = this.#longestRow() * 4;
    return {
      op: "matmul_rows",
      ...this.#shape(node),
      kernel: this.#c.kernel(dotRows(WIDTH)),
      dtype: dtype.name,
      x: this.#rounded(node.x, node.weight),
      ...(node.op === "matmul_id" && { experts: this.#expertRows(node) }),
      w: raw,
      rowBytes: bytesFor(dtype, colsOf(node)),
      scratch: this.#perThread("rows", scratchBytes),
      scratchBytes,
    };
  }

  #shape(node: MatmulNode) {
    return {
      rows: node.out.rows,
      n: node.weight.shape.at(-2)!,
      k: colsOf(node),
      out: this.#c.address(node.out),
      bias: node.bias ? this.#c.vector(node.bias) : -1,
    };
  }

  /** Activations as bytes; prepared once for all matrices that read the same value. */
  #quantized(x: Value, span: 1 | 8, { choice, table }: Chosen): number {
    const { variants, blockBytes } = this.#activationVariants(span, choice);
    const rowBytes = (this.#longestRow() / 32) * blockBytes;
    const prepared = this.#activations(`bytes per ${span * 32}`, rowBytes);
    if (prepared.holds === x) return prepared.at;
    prepared.holds = x;
    const quantize: Quantize = {
      op: "quantize",
      rows: x.rows,
      variants,
      choice: table,
      x: this.#c.address(x),
      out: prepared.at,
      cols: x.cols,
      span,
    };
    this.#c.push(quantize);
    return prepared.at;
  }

  /** How the variants of a choice store activations; bytes of a block: enough for all variants that there are. */
  #activationVariants(span: 1 | 8, choice: MatmulChoice) {
    const { target } = this.#c.options;
    const variants = choice.variants.map(({ replicated, tokens }) => ({
      kernel: this.#c.kernel(
        quantizeActivationsKernel({
          name: `quantize_${span * 32}${replicated ? "_replicated" : ""}`,
          span,
          replicated,
          target,
        }),
      ),
      blockBytes: activationBlockBytes(replicated, target.width),
      tile: tokens,
    }));
    // Buffers are shared by all groups, whatever they choose.
    const isReplicated = matmulVariants(target).some((variant) => variant.replicated);
    return { variants, blockBytes: activationBlockBytes(isReplicated, target.width) };
  }

  /** Activations rounded to what the reference rounds them to beside this weight, still as floats. */
  #rounded(x: Value, weight: Weight): number {
    const { activation } = weight.dtype;
    if (activation === "f32") return this.#c.address(x);
    const dtype = dtypeByName(activation);
    if (!dtype?.quantize)
      throw new ModelError(`${weight.name}: no type "${activation}" to round to`);
    const prepared = this.#activations(`floats as ${activation}`, this.#longestRow() * 4);
    if (prepared.holds === x) return prepared.at;
    prepared.holds = x;
    const scratchBytes = this.#longestRow() * 4 + 64;
    const from = { rows: x.rows, x: this.#c.address(x), out: prepared.at, cols: x.cols };
    const kernel = `round_${activation}`;
    if (this.#c.hasKernel(kernel)) {
      const unary: Unary = { op: "unary", ...from, kernel, argument: 0 };
      this.#c.push(unary);
      return prepared.at;
    }
    const round: Round = {
      op: "round",
      ...from,
      dtype: activation,
      scratch: this.#perThread("rounding", scratchBytes),
      scratchBytes,
    };
    this.#c.push(round);
    return prepared.at;
  }

  /** As #quantized(), in the order of the experts' groups. */
  #quantizedExperts(
    node: NodeOf<"matmul_id">,
    span: 1 | 8,
    { choice, table }: Chosen,
    rowPanelBytes: number,
  ): Experts {
    const groups = this.#groups(node);
    const perToken = node.x.cols / colsOf(node);
    const { variants, blockBytes } = this.#activationVariants(span, choice);
    const pairBytes = (colsOf(node) / 32) * blockBytes;
    const prepared = this.#activations(
      `bytes per ${span * 32}, by expert`,
      this.#longestSlots((cols) => (cols / 32) * blockBytes),
    );
    if (prepared.holds !== node.x || prepared.routes !== node.routes) {
      Object.assign(prepared, { holds: node.x, routes: node.routes });
      const quantize: QuantizeExperts = {
        op: "quantize_experts",
        rows: node.x.rows,
        groups,
        variants,
        choice: table,
        x: this.#c.address(node.x),
        out: prepared.at,
        cols: colsOf(node),
        perToken,
        span,
        pairBytes,
      };
      this.#c.push(quantize);
    }
    const own = { groups, perToken, pairBytes, direct: -1 };
    return { x: prepared.at, experts: { ...own, ...this.#expertPanels(node, rowPanelBytes) } };
  }

  /** As #rounded(), in the order of the experts' groups; experts with one token read what is rounded where it is. */
  #gatheredExperts(node: NodeOf<"matmul_id">, rowPanelBytes: number): Experts {
    const groups = this.#groups(node);
    const cols = colsOf(node);
    const perToken = node.x.cols / cols;
    const direct = this.#rounded(node.x, node.weight);
    const key = `floats as ${node.weight.dtype.activation}, by expert`;
    const prepared = this.#activations(
      key,
      this.#longestSlots((count) => count * 4),
    );
    if (prepared.holds !== node.x || prepared.routes !== node.routes) {
      Object.assign(prepared, { holds: node.x, routes: node.routes });
      const gather: GatherExperts = {
        op: "gather_experts",
        rows: node.x.rows,
        groups,
        x: direct,
        out: prepared.at,
        cols,
        perToken,
      };
      this.#c.push(gather);
    }
    const own = { groups, perToken, pairBytes: cols * 4, direct };
    return { x: prepared.at, experts: { ...own, ...this.#expertPanels(node, rowPanelBytes) } };
  }

  #expertRows(node: NodeOf<"matmul_id">): ExpertMatmul {
    const [, rows, cols] = node.weight.shape as [number, number, number];
    return {
      groups: this.#groups(node),
      perToken: node.x.cols / cols,
      expertBytes: rows * bytesFor(node.weight.dtype, cols),
      ...{ pairBytes: 0, direct: -1, panel: -1, panelBytes: 0 },
    };
  }

  #expertPanels({ weight }: NodeOf<"matmul_id">, rowPanelBytes: number) {
    const panelBytes = GROUP_PANELS * this.#tailTileBytes;
    return {
      expertBytes: Math.ceil(weight.shape[1]! / PANEL_ROWS) * rowPanelBytes,
      panel: this.#perThread("expert panels", panelBytes),
      panelBytes,
    };
  }

  /** The groups of a node's routes; made once for all matmuls that follow them. */
  #groups({ routes, weight }: NodeOf<"matmul_id">): GroupTable {
    const [slots, experts] = [routes.cols / 2, weight.shape[0]!];
    const pairs = this.#c.rows * slots;
    const shape = { rows: routes.rows, slots, experts, most: Math.min(experts, pairs), pairs };
    const key = `${slots} of ${experts} experts`;
    let known = this.#groupTables.get(key);
    if (!known) {
      const at = this.#c.options.arena.allocate(groupTableBytes(shape), "work", key);
      known = { at, holds: undefined };
      this.#groupTables.set(key, known);
    }
    const table = { at: known.at, ...shape };
    if (known.holds !== routes) {
      known.holds = routes;
      const group: GroupExperts = { op: "group_experts", table, routes: this.#c.address(routes) };
      this.#c.push(group);
    }
    return table;
  }

  /** Bytes of all slots of a token, at most. */
  #longestSlots(bytesOf: (cols: number) => number): number {
    const { graph } = this.#c.options.plan;
    const ofNodes = graph.nodes.map((node) =>
      node.op === "matmul_id" ? (node.routes.cols / 2) * bytesOf(colsOf(node)) : 0,
    );
    return Math.max(...ofNodes);
  }

  /** A buffer of `rowBytes` for each row. */
  #activations(key: string, rowBytes: number): Prepared {
    let prepared = this.#prepared.get(key);
    if (!prepared) {
      const { arena } = this.#c.options;
      prepared = { at: arena.allocate(this.#c.rows * rowBytes, "work", key), holds: undefined };
      this.#prepared.set(key, prepared);
    }
    return prepared;
  }

  #longestRow(): number {
    const { graph } = this.#c.options.plan;
    return Math.max(...graph.nodes.map((node) => (isMatmul(node) ? node.x.cols : 0)));
  }

  /** f32 [rows][16] for each thread: results of a tile that has rows beyond n. */
  #tailTiles(): number {
    return this.#perThread("tail tiles", this.#tailTileBytes);
  }

  get #tailTileBytes(): number {
    return PANEL_ROWS * this.#c.rows * 4;
  }

  /** Scratch memory that all matmuls share; the sizes of one key must be equal. */
  #perThread(key: string, bytes: number): number {
    let at = this.#scratch.get(key);
    if (at === undefined) {
      const { arena, threads } = this.#c.options;
      at = arena.allocate(threads * bytes, "work", key, threads);
      this.#scratch.set(key, at);
    }
    return at;
  }
}

function isMatmul(node: GraphNode): node is MatmulNode {
  return node.op === "matmul" || node.op === "matmul_id";
}

/** Columns of the matrix, or of each expert's. */
function colsOf({ weight }: MatmulNode): number {
  return weight.shape.at(-1)!;
}

function problemOf({ weight }: MatmulNode): MatmulProblem {
  return { dtype: weight.dtype.name, n: weight.shape.at(-2)!, k: weight.shape.at(-1)! };
}

function variantOf(
  { tokens, streams, shared }: MatmulVariant,
  kernels: VariantNames,
  tokenBytes: number,
): TiledVariant {
  return { ...kernels, tile: tokens, streams, shared, tokenBytes };
}

/** "4s.compact for 1 token, 8x4.compact for 2 to 32": for people. */
function choiceText({ variants, byTokens }: MatmulChoice): string {
  const parts: string[] = [];
  for (let from = 1; from < byTokens.length; ) {
    let to = from;
    while (byTokens[to + 1] === byTokens[from]) to++;
    const tokens = from === to ? `${from}` : `${from} to ${to}`;
    parts.push(`${variants[byTokens[from]!]!.id} for ${tokens} tokens`);
    from = to + 1;
  }
  return parts.join(", ");
}
