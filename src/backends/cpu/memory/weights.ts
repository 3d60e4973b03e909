// The weights of the CPU backend: the address and the layout of each in the arena.
//
//   vector  float32, for norms and biases
//   taps    float32, the weights of a convolution as [taps, cols]
//   raw     as in the file, for the embedding table and for types without a tiled kernel
//   blocks  row panels of quantized types (kernels/ops/packed/packed.ts)
//   floats  row panels of F32, F16 or BF16
//   neurons rows or columns that a ReLU makes unnecessary (kernels/ops/neurons/neuron-layouts.ts)
// All are placed before the memory is made, and then read from the file one by one, a piece at a time: there is never a second
// copy of a matrix. Tied embeddings are in row panels only. Row panels of weights that stay on disk are in a ring, where they take
// turns (disk/).

import { bytesFor } from "../../../dtypes/dtype.ts";
import { weightBytes, weightElements } from "../../../graph/cost.ts";
import type { OpKind, Weight } from "../../../graph/graph.ts";
import { weightParts } from "../../../graph/weight-source.ts";
import {
  columnBlockBytes,
  neuronLayoutFor,
  neuronRowBytes,
  tileRows,
} from "../../../kernels/ops/neurons/neuron-layouts.ts";
import { PANEL_ROWS, rowPanelBytes } from "../../../kernels/ops/packed/packed.ts";
import { codebookFor, layoutFor } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import type { WeightFiles, WeightReader } from "../../backend.ts";
import type { DiskPlan } from "../disk/ring.ts";
import type { TableRows } from "../program.ts";
import type { Arena } from "./arena.ts";
import type { FileWeight } from "./file-pieces.ts";
import { type FloatType, floatPanelsFor, floatTypeOf } from "./float-panels.ts";
import type { NeuronUse } from "./neuron-weights.ts";
import {
  hasFloatPanels,
  layOutPacking,
  type Packer,
  type PackInstruction,
  type PackProgram,
  PIECE_BYTES,
} from "./repack.ts";

export interface PlacedWeight {
  readonly weight: Weight;
  readonly vector?: number;
  readonly taps?: number;
  readonly raw?: number;
  readonly blocks?: { at: number; rowPanelBytes: number; codebook: number };
  readonly floats?: { at: number; rowPanelBytes: number; type: FloatType };
  readonly neurons?: { at: number; kind: NeuronUse["kind"]; isWords: boolean };
  /** The weight is in row panels of floats, of which columns are left out (ops/float-columns.ts). */
  readonly leavesColumns?: boolean;
  /** The instruction that packs it, and the bytes of its row panels. */
  readonly packing?: number;
  readonly panelBytes?: number;
  /** It stays on disk: its number in the cycle (disk/program.ts). */
  readonly onDisk?: number;
  /** Its experts are read on demand: its number among such weights (disk/demand.ts). */
  readonly onDemand?: number;
}

export class WeightStore {
  readonly #arena: Arena;
  readonly #target: KernelTarget;
  readonly #level: 1 | 2 | 3;
  readonly #placed = new Map<string, PlacedWeight>();
  readonly #instructions: PackInstruction[] = [];
  readonly #disk: DiskPlan | undefined;
  #ring = 0;

  constructor(arena: Arena, target: KernelTarget, level: 1 | 2 | 3, disk?: DiskPlan | undefined) {
    this.#arena = arena;
    this.#target = target;
    this.#level = level;
    this.#disk = disk;
  }

  /**
   * Places every weight; `uses` are the ops that read it, `neurons` how it is read where a ReLU makes parts unnecessary. Returns
   * the program by which `threads` threads pack the panels.
   */
  place(
    uses: ReadonlyMap<Weight, ReadonlySet<OpKind>>,
    threads: number,
    neurons: ReadonlyMap<Weight, NeuronUse | string> = new Map(),
  ): PackProgram {
    if (this.#disk) this.#ring = this.#arena.allocate(this.#disk.ringBytes, "weights", "ring");
    for (const [weight, ops] of uses) {
      const use = this.#level === 3 ? neurons.get(weight) : undefined;
      const placed = typeof use === "object" ? this.#placeNeurons(weight, use) : undefined;
      this.#placed.set(weight.name, placed ?? this.#place(weight, ops));
    }
    return layOutPacking(this.#instructions, this.#target, this.#arena, threads);
  }

  get(weight: Weight): PlacedWeight {
    return this.#placed.get(weight.name)!;
  }

  /** Bytes of its row panels; undefined: it is not in row panels. */
  panelBytes(weight: Weight): number | undefined {
    return this.get(weight).panelBytes;
  }

  /** The weights that threads read by themselves: those that lie in files, but for vectors, which are few and small. */
  inFiles({ partsOf }: WeightFiles): FileWeight[] {
    return [...this.#placed.values()].flatMap((placed) => {
      const { weight, raw, packing } = placed;
      if ((raw === undefined && packing === undefined) || staysOnDisk(placed)) return [];
      const parts = weightParts(weight, partsOf);
      return parts ? [{ name: weight.name, bytes: weightBytes(weight), parts, packing, raw }] : [];
    });
  }

  /** Writes the codebooks that kernels read beside row panels; before run(). */
  writeCodebooks(): void {
    for (const { weight, blocks } of this.#placed.values()) {
      const tiled = blocks && packingOf(weight.dtype.name);
      const codebook = tiled && codebookFor(tiled, this.#target);
      if (codebook) this.#arena.views.i8.set(codebook, blocks.codebook);
    }
  }

  /** Reads a weight from the file to its address. */
  async upload(weight: Weight, read: WeightReader, packer: Packer): Promise<void> {
    const placed = this.get(weight);
    const { vector, taps, raw, packing } = placed;
    const { views } = this.#arena;
    if (staysOnDisk(placed)) return;
    if (packing !== undefined) {
      await packer.pack(packing, read);
    } else if (vector !== undefined) {
      views.f32.set(await floatsOf(weight, read), vector / 4);
    } else if (taps !== undefined) {
      const [rows, cols] = weight.shape as [number, number];
      (await floatsOf(weight, read)).forEach((value, i) => {
        views.f32[taps / 4 + (i % cols) * rows + Math.floor(i / cols)] = value;
      });
    } else await this.#uploadRaw(views.u8, raw!, weightBytes(weight), read);
  }

  /** The location and layout of a matrix's rows, for makeRowReader(). */
  rowsOf(weight: Weight): TableRows {
    const { raw, blocks, floats } = this.get(weight);
    const cols = weight.shape[1]!;
    const table = { cols, dtype: weight.dtype.name };
    const target = this.#target;
    if (raw !== undefined) {
      return { ...table, layout: "raw", at: raw, rowBytes: bytesFor(weight.dtype, cols) };
    }
    if (blocks) {
      const { at, rowPanelBytes: size } = blocks;
      return { ...table, layout: "blocks", at, rowPanelBytes: size, target };
    }
    return {
      ...table,
      layout: "floats",
      at: floats!.at,
      rowPanelBytes: floats!.rowPanelBytes,
      target,
    };
  }

  #place(weight: Weight, uses: ReadonlySet<OpKind>): PlacedWeight {
    const arena = this.#arena;
    if (weight.shape.length === 1) {
      return { weight, vector: arena.allocate(weightElements(weight) * 4, "weights", weight.name) };
    }
    if (this.#level > 1 && uses.has("short_conv") && hasConvKernel(weight.shape[0]!)) {
      return { weight, taps: arena.allocate(weightElements(weight) * 4, "weights", weight.name) };
    }
    const multiplied = uses.has("matmul") || uses.has("matmul_id");
    const panels = multiplied && this.#level === 3 ? this.#placePanels(weight) : undefined;
    return panels ?? { weight, raw: arena.allocate(weightBytes(weight), "weights", weight.name) };
  }

  /** undefined: the type or the shape has no row panels. */
  #placePanels(weight: Weight): PlacedWeight | undefined {
    const { dtype, shape } = weight;
    const onDemand =
      this.#disk?.demand.findIndex((place) => place.weight.name === weight.name) ?? -1;
    const slots = this.#disk?.demand[onDemand]?.slots;
    const { matrices, rows, cols } =
      slots === undefined
        ? asMatrices(shape)
        : { matrices: slots, rows: shape[1]!, cols: shape[2]! };
    const packing = packingOf(dtype.name);
    const type = floatTypeOf(dtype.name);
    const kind = packing ? "blocks" : "floats";
    if (!packing && !(type && hasFloatPanels(cols))) return undefined;
    const size = packing
      ? rowPanelBytes(layoutFor(packing, this.#target), cols)
      : floatPanelsFor(type!, this.#target).rowPanelBytes(cols);
    const codebook = packing?.codebook
      ? this.#arena.allocate(this.#target.width, "weights", `codebook of ${weight.name}`)
      : 0;
    const panels = matrices * Math.ceil(rows / PANEL_ROWS);
    const panelBytes = panels * size;
    const places = this.#disk?.places ?? [];
    const onDisk = places.findIndex((place) => place.weight.name === weight.name);
    const isOnDisk = onDisk >= 0;
    const at = isOnDisk
      ? this.#ring + places[onDisk]!.at
      : this.#arena.allocatePanels(panelBytes, weight.name);
    const rowBytes = bytesFor(dtype, cols);
    const own = {
      kind,
      dtype: dtype.name,
      matrices,
      rows,
      cols,
      rowBytes,
      unitRows: PANEL_ROWS,
      at,
      rowPanelBytes: size,
    };
    const index = this.#instructions.push(own as PackInstruction) - 1;
    const place = { ...(isOnDisk && { onDisk }), ...(slots !== undefined && { onDemand }) };
    const packed = { weight, packing: index, panelBytes, ...place };
    return packing
      ? { ...packed, blocks: { at, rowPanelBytes: size, codebook } }
      : { ...packed, floats: { at, rowPanelBytes: size, type: type! } };
  }

  #placeNeurons(weight: Weight, { kind }: NeuronUse): PlacedWeight {
    const [rows, cols] = weight.shape as [number, number];
    const packing = packingOf(weight.dtype.name);
    const rowBytes = bytesFor(weight.dtype, cols);
    if (!packing) {
      if (kind === "columns") return { ...this.#placePanels(weight)!, leavesColumns: true };
      return this.#placeRows(weight, "file rows", PANEL_ROWS * rowBytes);
    }
    const layout = neuronLayoutFor(packing, this.#target);
    if (!layout) {
      const size = rowPanelBytes(layoutFor(packing, this.#target), cols);
      return this.#placeRows(weight, "word rows", size);
    }
    const bytes =
      kind === "rows"
        ? Math.ceil(rows / PANEL_ROWS) * PANEL_ROWS * neuronRowBytes(layout, cols)
        : (cols / 32) * columnBlockBytes(layout, rows);
    const at = this.#arena.allocatePanels(bytes, weight.name);
    const size = (bytes / rows) * PANEL_ROWS;
    const unitRows = kind === "rows" ? PANEL_ROWS : tileRows(layout);
    const own = { dtype: weight.dtype.name, matrices: 1, rows, cols, rowBytes, unitRows, at };
    const packKind = kind === "rows" ? "neuron rows" : "neuron columns";
    const index = this.#instructions.push({ kind: packKind, ...own, rowPanelBytes: size }) - 1;
    return { weight, neurons: { at, kind, isWords: false }, packing: index };
  }

  /** Rows that become row panels as they are read: as large as these. */
  #placeRows(weight: Weight, kind: "word rows" | "file rows", size: number): PlacedWeight {
    const [rows, cols] = weight.shape as [number, number];
    const at = this.#arena.allocatePanels((rows / PANEL_ROWS) * size, weight.name);
    const rowBytes = bytesFor(weight.dtype, cols);
    const own = { dtype: weight.dtype.name, matrices: 1, rows, cols, rowBytes, at };
    const unit = { unitRows: PANEL_ROWS, rowPanelBytes: size };
    const index = this.#instructions.push({ kind, ...own, ...unit }) - 1;
    return { weight, neurons: { at, kind: "rows", isWords: true }, packing: index };
  }

  async #uploadRaw(
    memory: Uint8Array,
    at: number,
    bytes: number,
    read: WeightReader,
  ): Promise<void> {
    for (let done = 0; done < bytes; done += PIECE_BYTES) {
      const end = Math.min(bytes, done + PIECE_BYTES);
      await read(memory.subarray(at + done, at + end), done);
    }
  }
}

/** Whether a weight is not read when the model is opened. */
export function staysOnDisk({ onDisk, onDemand }: PlacedWeight): boolean {
  return onDisk !== undefined || onDemand !== undefined;
}

/** Whether kernels compute a convolution of `cols` columns, which then need its weights as [taps, cols]. */
function hasConvKernel(cols: number): boolean {
  return cols % 4 === 0;
}

async function floatsOf(weight: Weight, read: WeightReader): Promise<Float32Array> {
  const bytes = new Uint8Array(weightBytes(weight));
  await read(bytes, 0);
  const floats = new Float32Array(weightElements(weight));
  weight.dtype.dequantize(bytes, 0, floats, 0, floats.length / weight.dtype.blockElems);
  return floats;
}

/**
 * A weight as consecutive matrices, each of which begins with a new panel. Experts whose rows fill their panels are packed
 * as one matrix.
 */
function asMatrices(shape: readonly number[]): { matrices: number; rows: number; cols: number } {
  const [rows, cols] = [shape.at(-2)!, shape.at(-1)!];
  const matrices = shape.length === 3 ? shape[0]! : 1;
  const isWhole = rows % PANEL_ROWS === 0;
  return isWhole ? { matrices: 1, rows: matrices * rows, cols } : { matrices, rows, cols };
}
