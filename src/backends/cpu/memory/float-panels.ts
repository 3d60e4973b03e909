// Row panels of float weights: for each type, how a panel is packed from rows of the file, how a row is read back, and which
// kernel widens a panel to float32 for several tokens. The matmul kernels are in kernels/ops/matmul/floats.ts.
//
// Panels do not depend on the width of a vector. Those of F16 depend on how the target reads half floats: with an instruction
// for that, nothing is widened, also for several tokens.

import { bf16ToF32, f16ToF32 } from "../../../base/half.ts";
import type { Kernel } from "../../../kernels/ir/kernel.ts";
import {
  acceptRaised,
  HALF_PANEL_HEADER,
  packHalfPanel,
  readHalfPanel,
} from "../../../kernels/ops/packed/half-panels.ts";
import {
  packCodedHalvesKernel,
  packF32Kernel,
  packHalvesKernel,
} from "../../../kernels/ops/packed/pack-floats.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import type { LayoutTarget } from "../../../kernels/ops/packed/packing.ts";
import type { Halves, KernelTarget } from "../../../kernels/target.ts";

export type FloatType = "f32" | "f16" | "bf16";

export interface FloatPanels {
  /** Bytes of a panel of `cols` columns. */
  rowPanelBytes(cols: number): number;
  /** The kernel that widens a panel: (panel, out, n). */
  readonly widen?: string;
  /** The kernel that packs 16 rows. */
  packKernel(dtype: string, target: LayoutTarget): Kernel;
  /** Completes the rows that the kernel packed at this address; false: they have to be packed by pack(). */
  accept?(buffer: ArrayBufferLike, at: number): boolean;
  /** Packs up to 16 rows of the file into the panel at this address. Missing rows must be zero there. */
  pack(source: DataView, rows: number, cols: number, buffer: ArrayBufferLike, at: number): void;
  /** Reads row 0 to 15 of the panel at this address into target[to...]. */
  read(
    buffer: ArrayBufferLike,
    at: number,
    row: number,
    cols: number,
    target: Float32Array,
    to: number,
  ): void;
}

const f32Panels: FloatPanels = {
  rowPanelBytes: (cols) => 4 * PANEL_ROWS * cols,
  packKernel: (_, target) => packF32Kernel(target),
  pack: (source, rows, cols, buffer, at) => {
    const words = new Uint32Array(buffer, at, PANEL_ROWS * cols);
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) {
        words[col * PANEL_ROWS + row] = source.getUint32(4 * (row * cols + col), true);
      }
    }
  },
  read: (buffer, at, row, cols, target, to) => {
    const values = new Float32Array(buffer, at, PANEL_ROWS * cols);
    for (let c = 0; c < cols; c++) target[to + c] = values[c * PANEL_ROWS + row]!;
  },
};

const codedF16Panels: FloatPanels = {
  rowPanelBytes: (cols) => HALF_PANEL_HEADER + 2 * PANEL_ROWS * cols,
  widen: "widen_tile_f16",
  packKernel: packCodedHalvesKernel,
  accept: (buffer, at) => {
    const words = HALF_PANEL_HEADER / 4;
    return acceptRaised(new Int32Array(buffer, at, words), new Float32Array(buffer, at, words));
  },
  pack: (source, rows, cols, buffer, at) => {
    const codes = new Uint16Array(buffer, at + HALF_PANEL_HEADER, PANEL_ROWS * cols);
    packHalfPanel(source, rows, cols, codes, new Float32Array(buffer, at, HALF_PANEL_HEADER / 4));
  },
  read: (buffer, at, row, cols, target, to) => {
    const codes = new Uint16Array(buffer, at + HALF_PANEL_HEADER, PANEL_ROWS * cols);
    const header = new Float32Array(buffer, at, HALF_PANEL_HEADER / 4);
    readHalfPanel(codes, header, row, cols, target, to);
  },
};

/** Two bytes a weight, as in the file. */
function plainHalfPanels(value: (bits: number) => number): FloatPanels {
  return {
    rowPanelBytes: (cols) => 2 * PANEL_ROWS * cols,
    packKernel: packHalvesKernel,
    pack: (source, rows, cols, buffer, at) => {
      const halves = new Uint16Array(buffer, at, PANEL_ROWS * cols);
      for (let row = 0; row < rows; row++) {
        for (let col = 0; col < cols; col++) {
          halves[col * PANEL_ROWS + row] = source.getUint16(2 * (row * cols + col), true);
        }
      }
    },
    read: (buffer, at, row, cols, target, to) => {
      const halves = new Uint16Array(buffer, at, PANEL_ROWS * cols);
      for (let c = 0; c < cols; c++) target[to + c] = value(halves[c * PANEL_ROWS + row]!);
    },
  };
}

const bf16Panels = plainHalfPanels(bf16ToF32);

const floatPanels: Readonly<Record<Halves, Readonly<Record<FloatType, FloatPanels>>>> = {
  coded: { f32: f32Panels, f16: codedF16Panels, bf16: { ...bf16Panels, widen: "widen_bf16" } },
  hardware: { f32: f32Panels, f16: plainHalfPanels((bits) => f16ToF32(bits)), bf16: bf16Panels },
};

export function floatPanelsFor(
  type: FloatType,
  { halves }: Pick<KernelTarget, "halves">,
): FloatPanels {
  return floatPanels[halves][type];
}

/** The type, if it has panels. */
export function floatTypeOf(dtype: string): FloatType | undefined {
  return Object.hasOwn(floatPanels.coded, dtype) ? (dtype as FloatType) : undefined;
}
