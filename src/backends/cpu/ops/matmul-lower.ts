// Matmuls on the CPU backend: the instruction of each, the activations that are prepared for it once for all
// products that read the same value, and the scratch memory that they share. Which kernels: matmul-kernels.ts.

import { ModelError } from "../../../base/errors.ts";
import { bytesFor } from "../../../dtypes/dtype.ts";
import { dtypeByName } from "../../../dtypes/table.ts";
import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import {
  type MatmulChoice,
  type MatmulProblem,
  type MatmulVariant,
  matmulVariants,
} from "../../../kernels/matmul-variants.ts";
import { quantizeActivationsKernel } from "../../../kernels/ops/matmul/quantize-activations.ts";
import { dotRows } from "../../../kernels/ops/matmul/rows.ts";
import { activationBlockBytes, TILE_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { layoutFor } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import type { CompileOptions } from "../compile-options.ts";
import { floatTilesFor } from "../memory/float-tiles.ts";
import type { PlacedWeight } from "../memory/weights.ts";
import type { Quantize, Round } from "./activations.ts";
import type { Unary } from "./elementwise.ts";
import type { MatmulBlocks, MatmulFloats, MatmulRows } from "./matmul.ts";
import type { TiledVariant } from "./matmul-data.ts";
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
}

/** A choice, and where the table is that tells all threads of it: i32 [rows + 1]. */
export interface Chosen {
  readonly choice: MatmulChoice;
  readonly table: number;
}

type VariantNames = Pick<TiledVariant, "vector" | "vectorStreams" | "vectorHalf" | "matrix">;

export class MatmulLowering {
  readonly #c: MatmulCompiler;
  readonly #prepared = new Map<string, Prepared>();
  /** Areas that all products share, with room for each thread. */
  readonly #scratch = new Map<string, number>();
  readonly #chosen = new Map<string, Chosen>();
  readonly #names = new Map<string, VariantNames>();

  constructor(compiler: MatmulCompiler) {
    this.#c = compiler;
  }

  lower(node: NodeOf<"matmul">): MatmulBlocks | MatmulFloats | MatmulRows {
    const placed = this.#c.options.weights.get(node.weight);
    if (placed.blocks) return this.#blocks(node, placed.blocks);
    if (placed.floats) return this.#floats(node, placed.floats);
    return this.#rowByRow(node, placed.raw!);
  }

  /** A slot was written: what was prepared from its old value is of no use any more. */
  forget(slot: number): void {
    for (const prepared of this.#prepared.values()) {
      const held = prepared.holds;
      if (held && this.#c.address(held) === slot) prepared.holds = undefined;
    }
  }

  #blocks(node: NodeOf<"matmul">, place: NonNullable<PlacedWeight["blocks"]>): MatmulBlocks {
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
      return variantOf(variant, kernels, (node.x.cols / 32) * blockBytes);
    });
    this.#c.explain(`${node.name}: ${type}, ${choiceText(chosen.choice)}`);
    const tileScratchBytes = matmulScratchBytes(this.#c.rows);
    return {
      op: "matmul_blocks",
      ...this.#shape(node),
      variants,
      width: target.width,
      choice: chosen.table,
      x: this.#quantized(node.x, packing.activationSpan, chosen),
      w: place.at,
      tileBytes: place.tileBytes,
      spans: node.x.cols / (32 * layout.spanBlocks),
      levels: place.levels,
      tileScratch: chosen.choice.variants.some(({ amx, i8mm }) => amx || i8mm)
        ? this.#perThread("unpacked tiles", tileScratchBytes)
        : -1,
      tileScratchBytes,
      scratch: this.#tailTiles(),
      scratchBytes: this.#tailTileBytes,
    };
  }

  #floats(node: NodeOf<"matmul">, place: NonNullable<PlacedWeight["floats"]>): MatmulFloats {
    const { type } = place;
    const { target } = this.#c.options;
    const chosen = this.#choose([problemOf(node)]);
    const variants = chosen.choice.variants.map((variant) => {
      const kernels = this.#named(`${type} ${variant.id}`, () =>
        floatKernels(type, target, variant),
      );
      return variantOf(variant, kernels, node.x.cols * 4);
    });
    const { widen } = floatTilesFor(type, target);
    const wideBytes = TILE_ROWS * this.#longestRow() * 4;
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
      x: this.#rounded(node.x, node.weight),
      w: place.at,
      tileBytes: place.tileBytes,
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

  /** All products of packed blocks that read the same prepared activations as this one, itself included. */
  #sharing({ x }: NodeOf<"matmul">, span: 1 | 8): MatmulProblem[] {
    const { plan, weights } = this.#c.options;
    return plan.graph.nodes.flatMap((node) => {
      if (node.op !== "matmul" || node.x !== x || !weights.get(node.weight).blocks) return [];
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

  #rowByRow(node: NodeOf<"matmul">, raw: number): MatmulRows {
    const { dtype } = node.weight;
    this.#c.explain(`${node.name}: dot_rows (rows of ${dtype.name} unpacked one by one)`);
    const scratchBytes = this.#longestRow() * 4;
    return {
      op: "matmul_rows",
      ...this.#shape(node),
      kernel: this.#c.kernel(dotRows(WIDTH)),
      dtype: dtype.name,
      x: this.#rounded(node.x, node.weight),
      w: raw,
      rowBytes: bytesFor(dtype, node.x.cols),
      scratch: this.#perThread("rows", scratchBytes),
      scratchBytes,
    };
  }

  #shape(node: NodeOf<"matmul">) {
    return {
      rows: node.out.rows,
      n: node.out.cols,
      k: node.x.cols,
      out: this.#c.address(node.out),
      bias: node.bias ? this.#c.vector(node.bias) : -1,
    };
  }

  /** Activations as bytes; prepared once for all matrices that read the same value. */
  #quantized(x: Value, span: 1 | 8, { choice, table }: Chosen): number {
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
    // The buffer is shared by all groups, whatever they choose.
    const isReplicated = matmulVariants(target).some((variant) => variant.replicated);
    const blockBytes = activationBlockBytes(isReplicated, target.width);
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
    return Math.max(...graph.nodes.map((node) => (node.op === "matmul" ? node.x.cols : 0)));
  }

  /** f32 [rows][16] for each thread: results of a tile that has rows beyond n. */
  #tailTiles(): number {
    return this.#perThread("tail tiles", this.#tailTileBytes);
  }

  get #tailTileBytes(): number {
    return TILE_ROWS * this.#c.rows * 4;
  }

  /** Scratch memory that all products share; the sizes of one key must be equal. */
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

function problemOf({ weight, x, out }: NodeOf<"matmul">): MatmulProblem {
  return { dtype: weight.dtype.name, n: out.cols, k: x.cols };
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
