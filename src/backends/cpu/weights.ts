// Weights of the CPU backend: where each lies in the arena and in which layout, chosen when it is uploaded.
//
//   vector  float32, for norms and biases
//   raw     as in the file, for the embedding table and for types without a tiled kernel
//   blocks  tiles of quantized codes (kernels/ops/packed.ts)
//   floats  tiles of F32, F16 or BF16
// Rows are read from the file a few tiles at a time and packed at once, so that no second copy exists.

import { bytesFor, type DType } from "../../dtypes/dtype.ts";
import { weightBytes, weightElements } from "../../graph/cost.ts";
import type { OpKind, Weight } from "../../graph/graph.ts";
import { FLOAT_UNROLL } from "../../kernels/ops/matmul-floats.ts";
import { packTile } from "../../kernels/ops/pack.ts";
import { TILE_ROWS, tileBytes } from "../../kernels/ops/packed.ts";
import { type Dot4, packingOf } from "../../kernels/ops/packings.ts";
import type { WeightReader } from "../backend.ts";
import type { Arena } from "./arena.ts";

export type FloatType = "f32" | "f16" | "bf16";

export interface PlacedWeight {
  readonly weight: Weight;
  vector?: number;
  raw?: number;
  blocks?: { at: number; tileBytes: number; levels: number };
  floats?: { at: number; tileBytes: number; type: FloatType };
}

/** Bytes read from the file at a time. */
const PIECE_BYTES = 4 << 20;

export class WeightStore {
  readonly #arena: Arena;
  readonly #dot4: Dot4;
  readonly #tiled: boolean;
  readonly #placed = new Map<string, PlacedWeight>();

  constructor(arena: Arena, dot4: Dot4, tiled: boolean) {
    this.#arena = arena;
    this.#dot4 = dot4;
    this.#tiled = tiled;
  }

  get(weight: Weight): PlacedWeight {
    return this.#placed.get(weight.name)!;
  }

  async upload(weight: Weight, uses: ReadonlySet<OpKind>, read: WeightReader): Promise<void> {
    const placed: PlacedWeight = { weight };
    this.#placed.set(weight.name, placed);
    if (weight.shape.length === 1) return await this.#uploadVector(placed, read);
    const tiled = uses.has("matmul") && this.#tiled && (await this.#uploadTiles(placed, read));
    if (!tiled || uses.has("embed")) {
      placed.raw = this.#arena.allocate(weightBytes(weight), weight.name);
      await readPieces(weightBytes(weight), PIECE_BYTES, read, (piece, at) => {
        this.#arena.views.u8.set(piece, placed.raw! + at);
      });
    }
  }

  async #uploadVector(placed: PlacedWeight, read: WeightReader): Promise<void> {
    const { weight } = placed;
    const elements = weightElements(weight);
    const bytes = new Uint8Array(weightBytes(weight));
    await read(bytes, 0);
    placed.vector = this.#arena.allocate(elements * 4, weight.name);
    const blocks = elements / weight.dtype.blockElems;
    weight.dtype.dequantize(bytes, 0, this.#arena.views.f32, placed.vector / 4, blocks);
  }

  /** False when the type or the shape has no tiles. */
  async #uploadTiles(placed: PlacedWeight, read: WeightReader): Promise<boolean> {
    const { dtype, shape } = placed.weight;
    const packing = packingOf(dtype.name);
    const floats = floatType(dtype);
    const cols = shape[1]!;
    if (packing) await this.#uploadBlocks(placed, packing, read);
    else if (floats && cols % FLOAT_UNROLL === 0) await this.#uploadFloats(placed, floats, read);
    else return false;
    return true;
  }

  async #uploadBlocks(
    placed: PlacedWeight,
    packing: NonNullable<ReturnType<typeof packingOf>>,
    read: WeightReader,
  ): Promise<void> {
    const [rows, cols] = placed.weight.shape as [number, number];
    const size = tileBytes(packing.layout(this.#dot4), cols);
    const levels = packing.levels?.(this.#dot4);
    const levelsAt = levels ? this.#arena.allocate(16, "levels") : 0;
    if (levels) this.#arena.views.i8.set(levels, levelsAt);
    const at = this.#arena.allocate(Math.ceil(rows / TILE_ROWS) * size, placed.weight.name);
    placed.blocks = { at, tileBytes: size, levels: levelsAt };
    await this.#eachTile(placed.weight, read, (view, tile, tileRows) => {
      const { i8, u32, f32 } = this.#arena.views;
      const memory = { bytes: i8, words: u32, floats: f32 };
      packTile(packing, this.#dot4, view, tileRows, cols, memory, at + tile * size);
    });
  }

  async #uploadFloats(placed: PlacedWeight, type: FloatType, read: WeightReader): Promise<void> {
    const [rows, cols] = placed.weight.shape as [number, number];
    const wide = type === "f32";
    const size = TILE_ROWS * cols * (wide ? 4 : 2);
    const at = this.#arena.allocate(Math.ceil(rows / TILE_ROWS) * size, placed.weight.name);
    placed.floats = { at, tileBytes: size, type };
    await this.#eachTile(placed.weight, read, (view, tile, tileRows) => {
      const { u32, u8 } = this.#arena.views;
      const target = wide ? u32 : new Uint16Array(u8.buffer);
      const base = (at + tile * size) / (wide ? 4 : 2);
      for (let row = 0; row < tileRows; row++) {
        for (let c = 0; c < cols; c++) {
          const from = row * cols + c;
          target[base + c * TILE_ROWS + row] = wide
            ? view.getUint32(from * 4, true)
            : view.getUint16(from * 2, true);
        }
      }
    });
  }

  /** Reads the matrix a few tiles of rows at a time. */
  async #eachTile(
    weight: Weight,
    read: WeightReader,
    use: (view: DataView, tile: number, rows: number) => void,
  ): Promise<void> {
    const [rows, cols] = weight.shape as [number, number];
    const rowBytes = bytesFor(weight.dtype, cols);
    const tile = TILE_ROWS * rowBytes;
    const piece = Math.max(1, Math.floor(PIECE_BYTES / tile)) * tile;
    await readPieces(rows * rowBytes, piece, read, (bytes, at) => {
      for (let from = 0; from < bytes.length; from += tile) {
        const length = Math.min(tile, bytes.length - from);
        use(
          new DataView(bytes.buffer, bytes.byteOffset + from, length),
          (at + from) / tile,
          length / rowBytes,
        );
      }
    });
  }
}

function floatType(dtype: DType): FloatType | undefined {
  return dtype.blockElems === 1 && (dtype.blockBytes === 4 || dtype.blockBytes === 2)
    ? (dtype.name as FloatType)
    : undefined;
}

async function readPieces(
  total: number,
  size: number,
  read: WeightReader,
  use: (bytes: Uint8Array<ArrayBuffer>, at: number) => void,
): Promise<void> {
  const buffer = new Uint8Array(Math.min(size, total));
  for (let at = 0; at < total; at += size) {
    const piece = buffer.subarray(0, Math.min(size, total - at));
    await read(piece, at);
    use(piece, at);
  }
}
