// Reads a row of a weight out of its row panel (packed.ts), as floats: for tied embeddings, where the embedding table is also
// the output matrix and is in memory only once. The values are those of the dtype's dequantize().

import { bf16ToF32, f16ToF32 } from "../../../base/half.ts";
import { codeFactor } from "./half-panels.ts";
import type { PanelMemory } from "./pack.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  factorsBytes,
  groupOfQuants,
  groupRows,
  headerBytes,
  isSecond,
  quantsAt,
  quantsBytes,
  runAt,
  runBlocks,
  scaleByte,
  scaleParts,
  scalesAt,
  spanBytes,
} from "./packed.ts";
import { codebookFor, type LayoutTarget, layoutFor, type Packing } from "./packing.ts";
import { quantFields } from "./quant-fields.ts";

/** Unpacks row `row` (0 to 15) of the panel at byte address `at` into out[to...]. */
export function unpackRow(
  packing: Packing,
  target: LayoutTarget,
  memory: PanelMemory,
  at: number,
  row: number,
  cols: number,
  out: Float32Array,
  to: number,
): void {
  const layout = layoutFor(packing, target);
  const codebook = codebookFor(packing, target);
  const group = Math.floor(row / groupRows(layout));
  const lane = row % groupRows(layout);
  const inRun = runBlocks(layout);
  const spans = at + factorsBytes(layout);
  const factor = layout.scales === "halves" ? codeFactor(memory.floats[at / 4 + row]!) : 1;
  for (let b = 0; b < cols / BLOCK_COLS; b++) {
    const span = spans + Math.floor(b / layout.spanBlocks) * spanBytes(layout);
    const run = span + runAt(layout, Math.floor((b % layout.spanBlocks) / inRun));
    const block = b % inRun;
    const place: Place = {
      header: span + group * headerBytes(layout),
      scales: run + scalesAt(layout, group),
      quants: run + quantsAt(layout, block) + groupOfQuants(layout, group) * quantsBytes(layout),
      block,
      isSecond: isSecond(layout, group),
      lane,
      factor,
    };
    const quants = unpackQuants(layout, memory, place);
    for (let part = 0; part < scaleParts(layout); part++) {
      const scale = scaleOf(layout, memory, place, part);
      const min = layout.hasMin ? minOf(layout, memory, place, part) : 0;
      const first = part * layout.scaleCols;
      for (let col = first; col < first + layout.scaleCols; col++) {
        const value = scale * meantBy(layout, codebook, quants[col]!);
        out[to + b * BLOCK_COLS + col] = layout.hasMin ? value + min : value;
      }
    }
  }
}

/** One row of a block: byte addresses of its group's parts, the block's number in the run, the row's in the group. */
interface Place {
  readonly header: number;
  readonly scales: number;
  readonly quants: number;
  readonly block: number;
  /** The group is the second of a pair. */
  readonly isSecond: boolean;
  readonly lane: number;
  /** The factor on coded half-float scales (codeFactor()). */
  readonly factor: number;
}

const quantsOfBlock = new Uint8Array(BLOCK_COLS);

/** The 32 quants of one row of a block. */
function unpackQuants(
  layout: BlockLayout,
  memory: PanelMemory,
  { quants, lane, isSecond: isHigh }: Place,
): Uint8Array {
  const start = quants / 4 + lane;
  const vectorWords = groupRows(layout);
  if (layout.paired) {
    for (let col = 0; col < BLOCK_COLS; col++) {
      const byte = memory.words[start + vectorWords * (col >> 2)]! >>> (8 * (col & 3));
      quantsOfBlock[col] = isHigh ? ((byte >>> 4) & 15) ^ 8 : byte & 15;
    }
    return quantsOfBlock;
  }
  quantFields[layout.bits].forEach((fields, v) => {
    for (let i = 0; i < 4; i++) {
      let quant = 0;
      for (const { vector, from, width, to } of fields) {
        const byte = memory.words[start + vectorWords * vector]! >>> (8 * i);
        quant |= ((byte >>> from) & ((1 << width) - 1)) << to;
      }
      quantsOfBlock[4 * v + i] = quant;
    }
  });
  return quantsOfBlock;
}

function meantBy(layout: BlockLayout, codebook: Int8Array | undefined, quant: number): number {
  const byte = codebook ? codebook[quant]! : quant;
  // Bytes are signed, except those that were raised by an offset.
  return layout.offset === 0 ? (byte << 24) >> 24 : (byte & 0xff) - layout.offset;
}

function scaleOf(
  layout: BlockLayout,
  { bytes, halves, floats }: PanelMemory,
  { header, scales, block, lane, factor }: Place,
  part: number,
): number {
  if (layout.scales === "halves") return f16ToF32(halves[scales / 2 + 2 * lane + 1]!) * factor;
  if (layout.scales === "plain_halves") return f16ToF32(halves[scales / 2 + lane]!);
  if (layout.scales === "bfloats") return bf16ToF32(halves[scales / 2 + lane]!);
  const small = bytes[scales + 4 * lane + scaleByte(layout, block, part)]!;
  return floats[header / 4 + lane]! * (layout.scales === "nibbles" ? small & 15 : small);
}

function minOf(
  layout: BlockLayout,
  { bytes, halves, floats }: PanelMemory,
  { header, scales, block, lane, factor }: Place,
  part: number,
): number {
  const inGroup = groupRows(layout);
  if (layout.scales === "halves") return f16ToF32(halves[scales / 2 + 2 * lane]!) * factor;
  if (layout.scales === "plain_halves") return f16ToF32(halves[scales / 2 + inGroup + lane]!);
  const at = scales + 4 * lane + scaleByte(layout, block, part);
  const small = layout.scales === "nibbles" ? (bytes[at]! >> 4) & 15 : bytes[at + 1]!;
  return floats[header / 4 + inGroup + lane]! * small;
}
