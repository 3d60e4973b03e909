// Lowers matmuls to instructions on the CPU backend, with one choice of variants for all matmuls that read the same
// activations. matmul-kernels.ts makes their kernels, matmul-activations.ts prepares their activations.

import { bytesFor } from "../../../dtypes/dtype.ts";
import type { NodeOf } from "../../../graph/graph.ts";
import {
  type MatmulChoice,
  type MatmulProblem,
  type MatmulVariant,
  variantById,
} from "../../../kernels/matmul-variants.ts";
import type { RowTile } from "../../../kernels/ops/matmul/row-tiles.ts";
import { rowBlockOf } from "../../../kernels/ops/matmul/row-tiles.ts";
import { dotRows, scalarRows } from "../../../kernels/ops/matmul/rows.ts";
import {
  activationBlockBytes,
  PANEL_ROWS,
  rowPanelBytes,
} from "../../../kernels/ops/packed/packed.ts";
import { layoutFor } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import { mostUnpackedBytes } from "../../../kernels/ops/packed/unpack-panel.ts";
import { floatPanelsFor, floatTypeOf } from "../memory/float-panels.ts";
import type { PlacedWeight } from "../memory/weights.ts";
import type { FloatColumns } from "./float-columns.ts";
import type { GatheredRows } from "./gathered-rows.ts";
import type { MatmulBlocks, MatmulFloats } from "./matmul.ts";
import { MatmulActivations, type Roundings } from "./matmul-activations.ts";
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
import {
  type Chosen,
  colsOf,
  isMatmul,
  type MatmulCompiler,
  type MatmulNode,
} from "./matmul-node.ts";
import { type MatmulRowTiles, rowTileKernels, rowTileScratch } from "./matmul-row-tiles.ts";
import { MOST_ALONE } from "./neuron-batch.ts";
import { NeuronLowering } from "./neuron-lower.ts";
import type { NeuronColumns, NeuronRows } from "./neurons.ts";
import type { InstructionLike } from "./op.ts";

/** Bytes of a vector register of WebAssembly, for kernels that are not made for the target. */
export const WIDTH = 16;

/** The activations that an instruction reads, and its data about experts. */
type Input = Pick<TiledMatmul, "x" | "experts">;

type VariantNames = Pick<
  TiledVariant,
  "vector" | "vectorStreams" | "vectorHalf" | "matrix" | "unpack"
>;

export class MatmulLowering {
  readonly #c: MatmulCompiler;
  readonly #activations: MatmulActivations;
  readonly #neurons: NeuronLowering;
  readonly #chosen = new Map<string, Chosen>();
  readonly #names = new Map<string, VariantNames>();

  constructor(compiler: MatmulCompiler) {
    this.#c = compiler;
    this.#activations = new MatmulActivations(compiler);
    this.#neurons = new NeuronLowering(compiler, this.#activations);
  }

  lower(node: MatmulNode): InstructionLike {
    const placed = this.#c.options.weights.get(node.weight);
    this.#neurons.prepare(node.x);
    if (placed.neurons) return this.#byNeuron(node as NodeOf<"matmul">, placed.neurons);
    if (placed.blocks) return this.#inPanels(node, placed.blocks);
    if (placed.floats) return this.#inFloats(node, placed.floats, placed.leavesColumns === true);
    return this.#rowByRow(node, placed.raw!);
  }

  /** Forgets activations that were prepared from a slot, whose value is overwritten. */
  forget(slot: number): void {
    this.#activations.forget(slot);
  }

  #inPanels(node: MatmulNode, place: NonNullable<PlacedWeight["blocks"]>): MatmulBlocks {
    const { matmul, choice } = this.#blocks(node, place);
    const how = `${choiceText(choice)}${this.#dense(node)}`;
    this.#c.explain(`${node.name}: ${node.weight.dtype.name}, ${how}`);
    return matmul;
  }

  /** Neuron by neuron; batches in row panels, where kernels can make them. */
  #byNeuron(
    node: NodeOf<"matmul">,
    place: NonNullable<PlacedWeight["neurons"]>,
  ): NeuronRows | GatheredRows | NeuronColumns {
    const { target } = this.#c.options;
    const packing = packingOf(node.weight.dtype.name);
    if (!packing) {
      const type = floatTypeOf(node.weight.dtype.name)!;
      const size = floatPanelsFor(type, target).rowPanelBytes(colsOf(node));
      const { matmul } = this.#floats(node, { at: -1, rowPanelBytes: size, type });
      return this.#neurons.gathered(node, place.at, matmul);
    }
    const size = rowPanelBytes(layoutFor(packing, target), colsOf(node));
    if (place.isWords) {
      const { matmul } = this.#blocks(node, { at: -1, rowPanelBytes: size, codebook: 0 });
      return this.#neurons.gathered(node, place.at, matmul);
    }
    if (target.halves === "coded") return this.#neurons.lower(node, place, undefined);
    const { nodes } = this.#c.options.plan.graph;
    const isOnly = nodes.filter((other) => isMatmul(other) && other.x === node.x).length === 1;
    const fewest = isOnly ? MOST_ALONE + 1 : 1;
    const { matmul } = this.#blocks(node, { at: -1, rowPanelBytes: size, codebook: 0 }, fewest);
    return this.#neurons.lower(node, place, matmul);
  }

  #blocks(
    node: MatmulNode,
    place: NonNullable<PlacedWeight["blocks"]>,
    fewest = 1,
  ): { matmul: MatmulBlocks; choice: MatmulChoice } {
    const { target } = this.#c.options;
    const type = node.weight.dtype.name;
    const packing = packingOf(type)!;
    const layout = layoutFor(packing, target);
    const chosen = this.#choose(this.#sharing(node, packing.activationSpan));
    const variants = chosen.choice.variants.map((variant) => {
      const kernels = this.#named(`${type} ${variant.id}`, () =>
        blockKernels(type, layout, variant),
      );
      const blockBytes = activationBlockBytes(variant.replicated, target.width, variant.words);
      return variantOf(variant, kernels, (colsOf(node) / 32) * blockBytes);
    });
    const tileScratchBytes = matmulScratchBytes(this.#c.rows);
    const unpackedBytes = mostUnpackedBytes(this.#activations.longestRow());
    const isUnpacked = chosen.choice.variants.some(({ unpacked }) => unpacked);
    const matmul: MatmulBlocks = {
      op: "matmul_blocks",
      ...this.#shape(node),
      variants,
      width: target.width,
      choice: chosen.table,
      ...this.#quantized(node, packing.activationSpan, chosen, place.rowPanelBytes, fewest),
      w: place.at,
      rowPanelBytes: place.rowPanelBytes,
      spans: colsOf(node) / (32 * layout.spanBlocks),
      codebook: place.codebook,
      tileScratch: chosen.choice.variants.some(({ amx, i8mm }) => amx || i8mm)
        ? this.#activations.perThread("unpacked tiles", tileScratchBytes)
        : -1,
      tileScratchBytes,
      unpacked: isUnpacked ? this.#activations.perThread("unpacked panels", unpackedBytes) : -1,
      unpackedBytes,
      scratch: this.#tailTiles(),
      scratchBytes: this.#tailTileBytes,
    };
    return { matmul, choice: chosen.choice };
  }

  #inFloats(
    node: MatmulNode,
    place: NonNullable<PlacedWeight["floats"]>,
    leavesColumns: boolean,
  ): MatmulFloats | FloatColumns {
    const { matmul, choice } = this.#floats(node, place);
    if (leavesColumns && node.op === "matmul") return this.#neurons.columnsOf(node, matmul);
    const how = matmul.widen ? ", widened to f32 for several tokens at once" : "";
    const text = `${choiceText(choice)}${how}${this.#dense(node)}`;
    this.#c.explain(`${node.name}: ${place.type}, ${text}`);
    return matmul;
  }

  #floats(
    node: MatmulNode,
    place: NonNullable<PlacedWeight["floats"]>,
  ): { matmul: MatmulFloats; choice: MatmulChoice } {
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
    const wideBytes = PANEL_ROWS * this.#activations.longestRow() * 4;
    const matmul: MatmulFloats = {
      op: "matmul_floats",
      ...this.#shape(node),
      variants,
      width: target.width,
      groupBytes: ((widen || type === "f32" ? 4 : 2) * target.width) / 4,
      choice: chosen.table,
      widen,
      wide: widen ? this.#activations.perThread("wide tiles", wideBytes) : -1,
      wideBytes,
      ...this.#rounded(node, place.rowPanelBytes),
      record: this.roundings?.record ?? -1,
      w: place.at,
      rowPanelBytes: place.rowPanelBytes,
      scratch: this.#tailTiles(),
      scratchBytes: this.#tailTileBytes,
    };
    return { matmul, choice: chosen.choice };
  }

  /** Why a matmul behind a ReLU reads all of its weight, for --explain. */
  #dense({ weight }: MatmulNode): string {
    const reason = this.#neurons.refusal(weight);
    return reason === undefined ? "" : ` (all neurons: ${reason})`;
  }

  /** The names of a variant's kernels, which are made once: made for every layer, they took 150 MB and a second. */
  #named(key: string, make: () => VariantKernels): VariantNames {
    let names = this.#names.get(key);
    if (!names) {
      const { vector, vectorStreams, vectorHalf, matrix, unpack } = make();
      names = {
        vector: this.#c.kernel(vector),
        vectorStreams: this.#c.kernel(vectorStreams),
        ...(vectorHalf && { vectorHalf: this.#c.kernel(vectorHalf) }),
        ...(unpack && { unpack: this.#c.kernel(unpack) }),
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

  /** All matmuls of quantized types that read the same prepared activations as this one, itself included. */
  #sharing({ op, x }: MatmulNode, span: 1 | 8): MatmulProblem[] {
    const { plan, weights } = this.#c.options;
    return plan.graph.nodes.flatMap((node) => {
      if (!isMatmul(node) || node.op !== op || node.x !== x) return [];
      const { blocks, neurons } = weights.get(node.weight);
      if (!blocks && !neurons) return [];
      return packingOf(node.weight.dtype.name)?.activationSpan === span ? [problemOf(node)] : [];
    });
  }

  /** One choice, and one table of it, for all equal lists of problems, since layers are alike. */
  #choose(problems: readonly MatmulProblem[]): Chosen {
    const key = problems.map(({ dtype, n, k }) => `${dtype} ${n} ${k}`).join(", ");
    const { threads, choose } = this.#c.options;
    return this.#choiceNamed(key, () => choose(problems, this.#c.rows, threads));
  }

  #choiceNamed(key: string, choose: () => MatmulChoice): Chosen {
    const known = this.#chosen.get(key);
    if (known) return known;
    const choice = choose();
    for (const note of choice.notes) this.#c.explain(note);
    const bytes = (this.#c.rows + 1) * 4;
    const table = this.#c.options.arena.allocate(bytes, "work", `choice for ${key}`);
    const chosen = { choice, table };
    this.#chosen.set(key, chosen);
    return chosen;
  }

  get roundings(): Roundings | undefined {
    return this.#activations.roundings;
  }

  /** The choices to write into their tables, once there is memory. */
  get choices(): readonly Chosen[] {
    return [...this.#chosen.values()];
  }

  #rowByRow(node: MatmulNode, raw: number): MatmulRows | MatmulRowTiles {
    const { dtype } = node.weight;
    const { plain, rowTile } = this.#c.options;
    const isScalar = rowTile === "scalar";
    const isInteger = !plain && !isScalar && rowBlockOf(dtype.name) !== undefined;
    if (node.op === "matmul" && !isScalar && (isInteger || rowTile)) {
      return this.#rowTiles(node, raw, isInteger ? "integers" : "floats", rowTile);
    }
    const how = dtype.asFloat32 ? "row by row" : `rows of ${dtype.name} unpacked one by one`;
    const kernel = plain ? undefined : isScalar ? scalarRows(WIDTH) : dotRows(WIDTH);
    this.#c.explain(`${node.name}: ${kernel?.name ?? "plain TypeScript"} (${how})`);
    const scratchBytes = this.#activations.longestRow() * 4;
    return {
      op: "matmul_rows",
      ...this.#shape(node),
      kernel: kernel && this.#c.kernel(kernel),
      dtype: dtype.name,
      x: this.#activations.rounded(node.x, node.weight),
      ...(node.op === "matmul_id" && { experts: this.#expertRows(node) }),
      w: raw,
      rowBytes: bytesFor(dtype, colsOf(node)),
      scratch: this.#activations.perThread("rows", scratchBytes),
      scratchBytes,
    };
  }

  /** In register tiles over the rows of the file; blocks as integers, where the type has them. */
  #rowTiles(
    node: NodeOf<"matmul">,
    raw: number,
    how: "integers" | "floats",
    tile: RowTile = { rows: 1, tokens: 1 },
  ): MatmulRowTiles {
    const { target } = this.#c.options;
    const isInteger = how === "integers";
    const { dtype } = node.weight;
    const shape = this.#shape(node);
    const columns = colsOf(node);
    const integers = isInteger ? { dtype: dtype.name, target } : undefined;
    const tileText = `register tile ${tile.rows}x${tile.tokens}`;
    this.#c.explain(`${node.name}: ${dtype.name} as ${how}, rows as in the file, ${tileText}`);
    const scratchBytes = rowTileScratch(this.#activations.longestRow());
    return {
      op: "matmul_row_tiles",
      ...shape,
      tile,
      kernels: rowTileKernels(this.#c, tile, shape.n, integers),
      dtype: dtype.name,
      x: isInteger
        ? this.#activations.quantized(node.x, 1, this.#chooseTokens(tile.tokens))
        : this.#activations.rounded(node.x, node.weight),
      tokenBytes: isInteger ? (columns / 32) * activationBlockBytes(false, WIDTH) : columns * 4,
      w: raw,
      rowBytes: bytesFor(dtype, columns),
      scratch: this.#activations.perThread("row tiles", scratchBytes),
      scratchBytes,
    };
  }

  /** The same token tile for every number of tokens: how activations are interleaved. */
  #chooseTokens(tokens: number): Chosen {
    const key = `row tiles of ${tokens} tokens`;
    const variant = { ...variantById("4s.compact")!, id: key, tokens };
    const byTokens = Array.from({ length: this.#c.rows + 1 }, () => 0);
    return this.#choiceNamed(key, () => ({ variants: [variant], byTokens, notes: [] }));
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

  /** The activations of a weight of a quantized type, which batches of fewer rows than `fewest` do not read. */
  #quantized(
    node: MatmulNode,
    span: 1 | 8,
    chosen: Chosen,
    rowPanelBytes: number,
    fewest: number,
  ): Input {
    if (node.op === "matmul") {
      return { x: this.#activations.quantized(node.x, span, chosen, fewest) };
    }
    const { x, of } = this.#activations.quantizedExperts(node, span, chosen);
    return { x, experts: { ...of, ...this.#expertPanels(node, rowPanelBytes) } };
  }

  /** The activations of a weight in row panels of floats. */
  #rounded(node: MatmulNode, rowPanelBytes: number): Input {
    if (node.op === "matmul") return { x: this.#activations.rounded(node.x, node.weight) };
    const { x, of } = this.#activations.gatheredExperts(node);
    return { x, experts: { ...of, ...this.#expertPanels(node, rowPanelBytes) } };
  }

  #expertRows(node: NodeOf<"matmul_id">): ExpertMatmul {
    const [, rows, cols] = node.weight.shape as [number, number, number];
    return {
      groups: this.#activations.groups(node),
      perToken: node.x.cols / cols,
      expertBytes: rows * bytesFor(node.weight.dtype, cols),
      ...{ pairBytes: 0, direct: -1, panel: -1, panelBytes: 0 },
    };
  }

  #expertPanels({ weight }: NodeOf<"matmul_id">, rowPanelBytes: number) {
    const panelBytes = GROUP_PANELS * this.#tailTileBytes;
    return {
      expertBytes: Math.ceil(weight.shape[1]! / PANEL_ROWS) * rowPanelBytes,
      panel: this.#activations.perThread("expert panels", panelBytes),
      panelBytes,
      demand: this.#c.options.weights.get(weight).onDemand,
    };
  }

  /** f32 [rows][16] for each thread: results of a row panel with padding rows. */
  #tailTiles(): number {
    return this.#activations.perThread("tail tiles", this.#tailTileBytes);
  }

  get #tailTileBytes(): number {
    return PANEL_ROWS * this.#c.rows * 4;
  }
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

/** "4s.compact for 1 token, 8x4.compact for 2 to 32", for --explain. */
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
