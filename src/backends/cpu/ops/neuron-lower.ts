// Lowers matmuls whose weights lie in neuron rows or columns (neurons.ts), and prepares their activations.

import type { NodeOf, Value, Weight } from "../../../graph/graph.ts";
import type { Kernel } from "../../../kernels/ir/kernel.ts";
import { quantizeActivationsKernel } from "../../../kernels/ops/matmul/quantize-activations.ts";
import {
  floatColumnsKernel,
  floatListKernel,
  floatNeuronsFor,
  floatPanelsTogether,
  gatherFloatsKernel,
  ROUND_BYTES,
} from "../../../kernels/ops/neurons/float-neurons.ts";
import { neuronColumnsKernel, tilesTogether } from "../../../kernels/ops/neurons/neuron-columns.ts";
import { neuronGatherKernel } from "../../../kernels/ops/neurons/neuron-gather.ts";
import {
  columnBlockBytes,
  columnBytes,
  lanesOf,
  type NeuronLayout,
  neuronLayoutFor,
  neuronRowBytes,
  slabsOf,
  tileRows,
} from "../../../kernels/ops/neurons/neuron-layouts.ts";
import { neuronListKernel } from "../../../kernels/ops/neurons/neuron-list.ts";
import {
  neuronColumnPanelsKernel,
  neuronRowPanelKernel,
  panelBytesOfRows,
  panelsOfTile,
} from "../../../kernels/ops/neurons/neuron-panels.ts";
import { neuronRowListKernel, zerosKernel } from "../../../kernels/ops/neurons/neuron-row-list.ts";
import { neuronRowsKernel, neuronRowsScratch } from "../../../kernels/ops/neurons/neuron-rows.ts";
import { neuronSlabsKernel } from "../../../kernels/ops/neurons/neuron-slabs.ts";
import { gatherRowsKernel, wordRowsFor } from "../../../kernels/ops/neurons/word-rows.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { layoutFor } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import { type NeuronUse, neuronUses } from "../memory/neuron-weights.ts";
import type { PlacedWeight } from "../memory/weights.ts";
import { type FloatColumns, floatListBytes } from "./float-columns.ts";
import {
  type GatheredRows,
  gatheredListBytes,
  PANELS_BEHIND,
  PANELS_TOGETHER,
} from "./gathered-rows.ts";
import type { MatmulBlocks, MatmulFloats } from "./matmul.ts";
import type { MatmulActivations } from "./matmul-activations.ts";
import type { MatmulCompiler } from "./matmul-node.ts";
import {
  listPlace,
  type NeuronList,
  type NeuronSlabs,
  neuronScratchBytes,
  PART_BLOCKS,
  slabsBytes,
} from "./neuron-activations.ts";
import { MOST_ALONE, type NeuronBatch } from "./neuron-batch.ts";
import { gatheredBytes, type NeuronColumns, type NeuronRows, rowListBytes } from "./neurons.ts";

type Place = NonNullable<PlacedWeight["neurons"]>;

export class NeuronLowering {
  readonly #c: MatmulCompiler;
  readonly #activations: MatmulActivations;
  readonly #uses: ReadonlyMap<Weight, NeuronUse | string>;
  /** The matmul of neuron rows that reads each value. */
  readonly #rowsOf = new Map<Value, NodeOf<"matmul">>();

  constructor(compiler: MatmulCompiler, activations: MatmulActivations) {
    this.#c = compiler;
    this.#activations = activations;
    const { plan, target, weights } = compiler.options;
    this.#uses = neuronUses(plan.graph.nodes, target);
    for (const node of plan.graph.nodes) {
      const place = node.op === "matmul" ? weights.get(node.weight).neurons : undefined;
      if (node.op !== "matmul" || place?.kind !== "rows" || place.isWords) continue;
      this.#rowsOf.set(node.x, node);
    }
  }

  /**
   * Before a matmul: prepares the activations of a later one of neuron rows, in the stage that prepares this one's
   * activations.
   */
  prepare(x: Value): void {
    const rows = this.#rowsOf.get(x);
    if (rows) this.#slabs(rows);
  }

  /** Why a matmul that a ReLU makes sparse reads all of its weight; undefined: none does. */
  refusal(weight: Weight): string | undefined {
    const use = this.#uses.get(weight);
    return typeof use === "object"
      ? "`sparse` is off, or it was measured to be slower, or weights stay on disk"
      : use;
  }

  /** `matmul` computes batches from row panels; undefined: they are computed token by token. */
  lower(
    node: NodeOf<"matmul">,
    place: Place,
    matmul: MatmulBlocks | undefined,
  ): NeuronRows | NeuronColumns {
    const use = this.#uses.get(node.weight) as NeuronUse;
    return use.kind === "rows"
      ? this.#rows(node, place, use.gate, matmul)
      : this.#columns(node, place, matmul);
  }

  #rows(
    node: NodeOf<"matmul">,
    { at }: Place,
    gate: Value,
    matmul: MatmulBlocks | undefined,
  ): NeuronRows {
    const layout = this.#layoutOf(node.weight);
    const type = node.weight.dtype.name;
    const [n, cols] = node.weight.shape as [number, number];
    this.#c.explain(`${node.name}: ${type}, rows whose gate (${gate.name}) is above zero`);
    const listBytes = rowListBytes(n);
    return {
      op: "neuron_rows",
      rows: node.out.rows,
      n,
      out: this.#c.address(node.out),
      bias: node.bias ? this.#c.vector(node.bias) : -1,
      kernel: this.#c.kernel(neuronRowsKernel(`neuron_rows.${type}`, layout)),
      lister: this.#c.kernel(neuronRowListKernel("neuron_row_list", layout.width)),
      gate: this.#c.address(gate),
      x: this.#slabs(node),
      tokenBytes: slabsBytes(cols, layout.width),
      slabs: slabsOf(layout, cols),
      w: at,
      rowBytes: neuronRowBytes(layout, cols),
      list: this.#activations.perThread(`list of ${n} neurons`, listBytes),
      listBytes,
      ...this.#c.scratch(neuronRowsScratch(layout)),
      batch: matmul && this.#batch(node, matmul, "rows"),
    };
  }

  /** Rows that become row panels as they are read, which `matmul` computes. */
  gathered(node: NodeOf<"matmul">, at: number, matmul: MatmulBlocks | MatmulFloats): GatheredRows {
    const { gate } = this.#uses.get(node.weight) as NeuronUse & { kind: "rows" };
    const type = node.weight.dtype.name;
    const [n] = node.weight.shape as [number, number];
    this.#c.explain(
      `${node.name}: ${type}, rows whose gate (${gate.name}) is above zero, in panels`,
    );
    const { width } = this.#c.options.target;
    const lister = neuronRowListKernel("gathered_row_list", width, PANELS_BEHIND);
    const listBytes = gatheredListBytes(n);
    const panelsBytes = PANELS_TOGETHER * matmul.rowPanelBytes;
    const { gatherer, rounds } = this.#gatherer(node, matmul);
    return {
      op: "gathered_rows",
      rows: node.out.rows,
      n,
      out: this.#c.address(node.out),
      gate: this.#c.address(gate),
      w: at,
      rowBytes: matmul.rowPanelBytes / PANEL_ROWS,
      rounds,
      matmul,
      lister: this.#c.kernel(lister),
      gatherer: this.#c.kernel(gatherer),
      gates: this.#activations.perThread(`gates of ${n} neurons`, 4 * n),
      list: this.#activations.perThread(`gathered list of ${n} neurons`, listBytes),
      listBytes,
      panels: this.#activations.perThread(`${panelsBytes} bytes of gathered panels`, panelsBytes),
      panelsBytes,
    };
  }

  /** The kernel that makes a panel, and the number of its rounds. */
  #gatherer(
    { weight }: NodeOf<"matmul">,
    matmul: MatmulBlocks | MatmulFloats,
  ): { gatherer: Kernel; rounds: number } {
    const { target } = this.#c.options;
    const type = weight.dtype.name;
    const name = `gather_rows.${type}`;
    if (matmul.op === "matmul_blocks") {
      return { gatherer: gatherRowsKernel(name, wordRowsFor(type, target)!), rounds: matmul.spans };
    }
    const gatherer = gatherFloatsKernel(name, target.width, floatNeuronsFor(type, target)!);
    return { gatherer, rounds: matmul.rowPanelBytes / PANEL_ROWS / ROUND_BYTES };
  }

  /** Columns of row panels of floats, which `matmul` computes where there are several tokens. */
  columnsOf({ name, weight }: NodeOf<"matmul">, matmul: MatmulFloats): FloatColumns {
    const { target } = this.#c.options;
    const type = weight.dtype.name;
    const format = floatNeuronsFor(type, target)!;
    const together = floatPanelsTogether(target.width);
    const kernelFor = (panels: number) => {
      const made = floatColumnsKernel(`columns.${type}.${panels}`, target.width, format, panels);
      return this.#c.kernel(made);
    };
    this.#c.explain(`${name}: ${type}, columns whose activation is not zero`);
    const listBytes = floatListBytes(matmul.k);
    return {
      op: "float_columns",
      matmul,
      lister: this.#c.kernel(floatListKernel("float_list", target.width)),
      kernel: kernelFor(together),
      single: kernelFor(1),
      together,
      columnBytes: format.bytes * PANEL_ROWS,
      list: this.#activations.perThread(`list of ${matmul.k} float columns`, listBytes),
      listBytes,
    };
  }

  /** The plan for batches of a matmul, in row panels that a kernel makes. */
  #batch({ weight }: NodeOf<"matmul">, matmul: MatmulBlocks, kind: NeuronUse["kind"]): NeuronBatch {
    const layout = this.#layoutOf(weight);
    const type = weight.dtype.name;
    const panel = layoutFor(packingOf(type)!, this.#c.options.target);
    const isRows = kind === "rows";
    const panels = isRows ? 1 : panelsOfTile(layout);
    const kernelOf = isRows ? neuronRowPanelKernel : neuronColumnPanelsKernel;
    const longest = this.#activations.longestRow();
    const panelBytes = panelBytesOfRows(layout, panel, weight.shape[1]!);
    const scratchBytes = panels * panelBytesOfRows(layout, panel, longest);
    return {
      matmul,
      kernel: this.#c.kernel(kernelOf(`panels_of_neuron_${kind}.${type}`, layout, panel)),
      panels,
      panelBytes,
      scratch: this.#activations.perThread(`${panels} panels of neurons, ${type}`, scratchBytes),
      scratchBytes,
    };
  }

  #slabs({ x, weight }: NodeOf<"matmul">): number {
    const layout = this.#layoutOf(weight);
    const tokenBytes = slabsBytes(x.cols, layout.width);
    const key = `slabs of ${x.cols} less ${layout.offset}`;
    return this.#activations.once(key, this.#c.rows * tokenBytes, x, (out): NeuronSlabs => {
      const from = this.#quantized(x);
      const { halves } = this.#c.options.target;
      const [name, { width, offset }] = [`neuron_slabs.${layout.offset}`, layout];
      const slabber = this.#c.kernel(neuronSlabsKernel(name, width, halves, offset));
      return { op: "neuron_slabs", ...from, slabber, out, tokenBytes, lanes: lanesOf(layout) };
    });
  }

  #columns(node: NodeOf<"matmul">, { at }: Place, matmul: MatmulBlocks | undefined): NeuronColumns {
    const { weight, x } = node;
    const layout = this.#layoutOf(weight);
    const type = weight.dtype.name;
    const [n, cols] = weight.shape as [number, number];
    this.#c.explain(`${node.name}: ${type}, columns whose activation is not zero`);
    const { threads, target } = this.#c.options;
    const mostBlocks = this.#mostTokens > MOST_ALONE ? PART_BLOCKS : cols;
    const place = listPlace(cols, threads, mostBlocks, {
      blockBytes: columnBlockBytes(layout, n),
      firstColumn: 2 * n,
      columnBytes: columnBytes(layout, n),
    });
    const key = `list of ${cols} columns of ${n}, ${layout.bits} bits less ${layout.offset}`;
    const lists = this.#activations.once(key, this.#c.rows * place.bytes, x, (out): NeuronList => {
      const from = this.#quantized(x);
      const lister = neuronListKernel(
        `neuron_list.${layout.offset}`,
        layout.width,
        target.halves,
        layout.offset,
      );
      const made = { lister: this.#c.kernel(lister), tokenBytes: place.bytes, place };
      return { op: "neuron_list", ...from, ...made, out };
    });
    return {
      op: "neuron_columns",
      rows: node.out.rows,
      n,
      out: this.#c.address(node.out),
      bias: node.bias ? this.#c.vector(node.bias) : -1,
      kernel: this.#c.kernel(neuronColumnsKernel(`neuron_columns.${type}`, layout)),
      zeros: this.#c.kernel(zerosKernel("zeros", layout.width)),
      width: layout.width,
      x: lists,
      place,
      gatherer: this.#c.kernel(neuronGatherKernel("neuron_gather", layout.width)),
      gathered: this.#activations.perThread(`list of ${cols} columns`, gatheredBytes(place)),
      gatheredBytes: gatheredBytes(place),
      w: at,
      tileRows: tileRows(layout),
      tileBytes: layout.width,
      tilesTogether: tilesTogether(layout),
      batch: matmul && this.#batch(node, matmul, "columns"),
    };
  }

  /** The quantization of activations: as that of all other matmuls. */
  #quantized(x: Value) {
    const { target } = this.#c.options;
    const shape = { name: "quantize_32", span: 1, replicated: false, target } as const;
    const bytes = neuronScratchBytes(x.cols, target.width);
    return {
      rows: x.rows,
      x: this.#c.address(x),
      cols: x.cols,
      kernel: this.#c.kernel(quantizeActivationsKernel(shape)),
      mostTokens: this.#mostTokens,
      ...this.#c.scratch(bytes),
    };
  }

  /** The most tokens whose neurons are read one by one: without machine code, any. */
  get #mostTokens(): number {
    return this.#c.options.target.halves === "coded" ? this.#c.rows : MOST_ALONE;
  }

  #layoutOf(weight: Weight): NeuronLayout {
    return neuronLayoutFor(packingOf(weight.dtype.name)!, this.#c.options.target)!;
  }
}
