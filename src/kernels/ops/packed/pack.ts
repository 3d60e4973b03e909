// Packs rows of a quantized weight, as they are in the file, into row panels (packed.ts). Runs once, while a model is loaded;
// missing rows of the last panel are zeros.

import { halfFactor, raisedHalves } from "./half-panels.ts";
import { writePaired, writeQuants } from "./pack-quants.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  factorsBytes,
  groupOfQuants,
  groupRows,
  headerBytes,
  isSecond,
  PANEL_ROWS,
  quantsAt,
  quantsBytes,
  runAt,
  runBlocks,
  scaleByte,
  scaleParts,
  scalesAt,
  spanBytes,
} from "./packed.ts";
import { type LayoutTarget, layoutFor, newSpan, type Packing, type Span } from "./packing.ts";

/** The memory that panels are written to, as four typed arrays. */
export interface PanelMemory {
  readonly bytes: Int8Array;
  readonly halves: Uint16Array;
  readonly words: Uint32Array;
  readonly floats: Float32Array;
}

const scratch: Span = newSpan();
/** For each row of a group: the bits of its largest half-float scale or min, without the sign. */
const largest = new Int32Array(PANEL_ROWS);

/** Packs up to 16 rows into the panel at byte address `address`. `source` holds the rows one after the other. */
export function packPanel(
  packing: Packing,
  target: LayoutTarget,
  source: DataView,
  rows: number,
  cols: number,
  memory: PanelMemory,
  address: number,
): void {
  const { dot4 } = target;
  const layout = layoutFor(packing, target);
  const places = placesOf(layout);
  const spans = cols / (BLOCK_COLS * layout.spanBlocks);
  const rowBytes = spans * packing.spanBytes;
  const spanWords = spanBytes(layout) / 4;
  const start = (address + factorsBytes(layout)) / 4;
  const inGroup = groupRows(layout);
  const laneStep = layout.scales === "plain_halves" || layout.scales === "bfloats" ? 2 : 4;
  if (rows < PANEL_ROWS) memory.words.fill(0, address / 4, start + spans * spanWords);
  // Group by group, since the rows of a group are interleaved in memory: the written bytes stay in the L1 cache.
  for (let first = 0; first < rows; first += inGroup) {
    const group = first / inGroup;
    const write = layout.paired ? writePaired(isSecond(layout, group)) : writeQuants[layout.bits];
    const quants = (groupOfQuants(layout, group) * quantsBytes(layout)) / 4;
    const header = (group * headerBytes(layout)) / 4;
    const scales = scalesAt(layout, group);
    const lanes = Math.min(inGroup, rows - first);
    let at = start;
    largest.fill(0);
    for (let s = 0; s < spans; s++) {
      for (let lane = 0; lane < lanes; lane++) {
        const from = (first + lane) * rowBytes + s * packing.spanBytes;
        packing.read(source, from, scratch, dot4);
        if (layout.scales === "halves") raiseHalves(layout, scratch, lane);
        writeScales(
          layout,
          places,
          scratch,
          memory,
          at + lane + header,
          4 * at + scales + laneStep * lane,
        );
        for (let block = 0; block < places.quants.length; block++) {
          const word = at + lane + quants + places.quants[block]!;
          write(scratch.quants, 8 * block, memory.words, word, inGroup);
        }
      }
      at += spanWords;
    }
    if (layout.scales !== "halves") continue;
    for (let lane = 0; lane < lanes; lane++) {
      const factor = halfFactor(largest[lane]!);
      memory.floats[address / 4 + first + lane] = factor;
      if (factor === 1) continue;
      for (let s = 0; s < spans; s++) {
        packing.read(source, (first + lane) * rowBytes + s * packing.spanBytes, scratch, dot4);
        const word = start + s * spanWords;
        writeScales(
          layout,
          places,
          scratch,
          memory,
          word + lane + header,
          4 * word + scales + laneStep * lane,
        );
      }
    }
  }
}

/** Offsets of the parts of group 0's first row in a span. */
interface Places {
  /** For each block, the word where its quants begin. */
  readonly quants: Int32Array;
  /** For each scale, [block][part], its byte. */
  readonly scales: Int32Array;
}

function placesOf(layout: BlockLayout): Places {
  const [inRun, parts] = [runBlocks(layout), scaleParts(layout)];
  const runOf = (block: number) => runAt(layout, Math.floor(block / inRun));
  const quants = Array.from({ length: layout.spanBlocks }, (_, block) => {
    return (runOf(block) + quantsAt(layout, block % inRun)) / 4;
  });
  const scales = Array.from({ length: layout.spanBlocks * parts }, (_, i) => {
    const block = Math.floor(i / parts);
    return runOf(block) + scaleByte(layout, block % inRun, i % parts);
  });
  return { quants: Int32Array.from(quants), scales: Int32Array.from(scales) };
}

/** Writes the scales of one row of a span. Its header is at word `header`; `at` is the distance of its bytes from `places`. */
function writeScales(
  { hasMin, scales, width }: BlockLayout,
  places: Places,
  span: Span,
  { floats, bytes, halves }: PanelMemory,
  header: number,
  at: number,
): void {
  const inGroup = width / 4;
  const first = at + places.scales[0]!;
  if (scales === "halves") {
    halves[first / 2 + 1] = span.halves[0]!;
    if (hasMin) halves[first / 2] = span.halves[1]!;
    return;
  }
  if (scales === "plain_halves" || scales === "bfloats") {
    halves[first / 2] = span.halves[0]!;
    if (hasMin) halves[first / 2 + inGroup] = span.halves[1]!;
    return;
  }
  const { smallScales, smallMins } = span;
  floats[header] = span.header[0]!;
  if (hasMin) floats[header + inGroup] = span.header[1]!;
  for (let i = 0; i < places.scales.length; i++) {
    const place = at + places.scales[i]!;
    const scale = smallScales[i]!;
    if (scales === "nibbles") bytes[place] = scale | (smallMins[i]! << 4);
    else {
      bytes[place] = scale;
      if (hasMin) bytes[place + 1] = smallMins[i]!;
    }
  }
}

/** Codes the scale (and the min) of a block as in half-panels.ts, and updates `largest`. */
function raiseHalves({ hasMin }: BlockLayout, { halves }: Span, lane: number): void {
  const raised = raisedHalves();
  for (let i = 0; i < (hasMin ? 2 : 1); i++) {
    const half = halves[i]!;
    if ((half & 0x7fff) > largest[lane]!) largest[lane] = half & 0x7fff;
    halves[i] = raised[half]!;
  }
}
