// The layout of quantized matrices on the GPU for exact kernels: the quants and scales that the CPU packs into its row
// panels (src/kernels/ops/packed/), here row by row. One kernel reads every type, and each row's sums can be those of
// the CPU.
//
// The wide plane has the quants of each block of 32 columns, four bytes a word, as 4 bits (up to 4), 6 bits or 8 bits each:
//   4 words: quant words v and v + 4 in the low and the high nibbles; 6 bits: 2 words more, upper bits of 4 quant words each;
//   8 bits: 8 words as they are.
// The narrow plane has the scales of each span:
//   one block: a word, its scale and its min as half floats, or its scale as a float;
//   eight: the header's scale and min as floats, 16 small scales, then 16 small mins where there are any, in bytes.

import type { DType } from "../../../dtypes/dtype.ts";
import { weightElements } from "../../../graph/cost.ts";
import type { Weight } from "../../../graph/graph.ts";
import type { QuantLayout } from "../../../kernels/ops/packed/packed.ts";
import { newSpan, type Packing } from "../../../kernels/ops/packed/packing.ts";
import { packingOf } from "../../../kernels/ops/packed/packings.ts";
import { type StoredShape, storedShape } from "../weight-layout.ts";

export interface ExactFormat {
  readonly packing: Packing;
  readonly layout: QuantLayout;
  /** The values of a codebook's indices: 16 signed bytes. */
  readonly codebook: Int8Array | undefined;
  /** Columns of a span, and words of it in each plane. */
  readonly spanCols: number;
  readonly quantWords: number;
  readonly wideWords: number;
  readonly narrowWords: number;
}

/** Shaders multiply signed bytes. */
const DOT4 = "signed";

const formats = new Map<string, ExactFormat | undefined>();

/** undefined: the type is not packed. */
export function exactFormatOf({ name }: DType): ExactFormat | undefined {
  if (!formats.has(name)) formats.set(name, makeFormat(packingOf(name)));
  return formats.get(name);
}

function makeFormat(packing: Packing | undefined): ExactFormat | undefined {
  if (!packing) return undefined;
  const layout = packing.layout(DOT4);
  const { bits, spanBlocks, hasMin } = layout;
  const quantWords = bits <= 4 ? 4 : bits <= 6 ? 6 : 8;
  return {
    packing,
    layout,
    codebook: packing.codebook?.(DOT4),
    spanCols: 32 * spanBlocks,
    quantWords,
    wideWords: quantWords * spanBlocks,
    narrowWords: spanBlocks === 1 ? 1 : hasMin ? 10 : 6,
  };
}

/** Rows and bytes of a row in each plane; vectors and floats lie as ever. */
export function exactShape(weight: Weight): StoredShape {
  const format = weight.shape.length === 1 ? undefined : exactFormatOf(weight.dtype);
  if (!format) return storedShape(weight);
  const cols = weight.shape.at(-1)!;
  const spans = cols / format.spanCols;
  return {
    rows: weightElements(weight) / cols,
    wide: 4 * spans * format.wideWords,
    narrow: 4 * spans * format.narrowWords,
  };
}

/** Packs `spans` spans of the file's bytes into both planes. */
export function packSpans(
  format: ExactFormat,
  from: Uint8Array<ArrayBuffer>,
  spans: number,
  wide: Uint32Array,
  narrow: Uint32Array,
): void {
  const { packing, layout, wideWords, narrowWords } = format;
  const view = new DataView(from.buffer, from.byteOffset, from.byteLength);
  const span = newSpan();
  const floats = new Float32Array(narrow.buffer, narrow.byteOffset, narrow.length);
  const bytes = new Int8Array(narrow.buffer, narrow.byteOffset, narrow.byteLength);
  for (let s = 0; s < spans; s++) {
    packing.read(view, s * packing.spanBytes, span, DOT4);
    for (let block = 0; block < layout.spanBlocks; block++) {
      packQuants(format, span.quants, 8 * block, wide, s * wideWords + block * format.quantWords);
    }
    const at = s * narrowWords;
    if (layout.scales === "bfloats") narrow[at] = span.halves[0]! << 16;
    else if (layout.scales === "halves") {
      narrow[at] = span.halves[0]! | (layout.hasMin ? span.halves[1]! << 16 : 0);
    } else {
      floats[at] = span.header[0]!;
      floats[at + 1] = layout.hasMin ? span.header[1]! : 0;
      bytes.set(span.smallScales, 4 * (at + 2));
      if (layout.hasMin) bytes.set(span.smallMins, 4 * (at + 6));
    }
  }
}

function packQuants(
  { quantWords }: ExactFormat,
  quants: Uint32Array,
  from: number,
  wide: Uint32Array,
  to: number,
): void {
  if (quantWords === 8) {
    for (let v = 0; v < 8; v++) wide[to + v] = quants[from + v]!;
    return;
  }
  for (let v = 0; v < 4; v++) {
    const [low, high] = [quants[from + v]!, quants[from + v + 4]!];
    wide[to + v] = (low & 0x0f0f0f0f) | ((high & 0x0f0f0f0f) << 4);
  }
  for (let h = 4; h < quantWords; h++) {
    let upper = 0;
    for (let m = 0; m < 4; m++) {
      upper |= ((quants[from + 4 * (h - 4) + m]! >>> 4) & 0x03030303) << (2 * m);
    }
    wide[to + h] = upper;
  }
}

/** The type of an element of the wide plane: as much as every block is a multiple of. */
export function wideType({ quantWords }: ExactFormat): "vec4u" | "vec2u" {
  return quantWords === 6 ? "vec2u" : "vec4u";
}

/**
 * WGSL over `wide`: `fn quantsAt(block: u32) -> Quants`, the quant words of a block of 32 columns, as their values plus the
 * layout's offset: `low` has the first 16, `high` the others. `book` is filled by bookText().
 */
export function quantsText({ quantWords, codebook }: ExactFormat): string {
  return `
struct Quants { low: vec4u, high: vec4u }
${codebook ? lookedText : ""}fn quantsAt(block: u32) -> Quants {${quantBodies[quantWords]!(codebook !== undefined)}
}`;
}

const NIBBLES = "vec4u(0x0f0f0f0fu)";
const upper = (word: string): string =>
  `(((vec4u(${word}) >> vec4u(0u, 2u, 4u, 6u)) & vec4u(0x03030303u)) << vec4u(4u))`;

/** By the words of a block. */
const quantBodies: Readonly<Record<number, (lookup: boolean) => string>> = {
  4: (lookup) => {
    const looked = (four: string): string => (lookup ? `looked(${four})` : four);
    return `
  let words = wide[block];
  return Quants(${looked(`words & ${NIBBLES}`)}, ${looked(`(words >> vec4u(4u)) & ${NIBBLES}`)});`;
  },
  6: () => `
  let words = vec4u(wide[block * 3u], wide[block * 3u + 1u]);
  let more = wide[block * 3u + 2u];
  return Quants((words & ${NIBBLES}) | ${upper("more.x")}, ((words >> vec4u(4u)) & ${NIBBLES}) | ${upper("more.y")});`,
  8: () => `
  return Quants(wide[block * 2u], wide[block * 2u + 1u]);`,
};

const lookedText = `var<workgroup> book: array<u32, 16>;
fn looked1(four: u32) -> u32 {
  return book[four & 15u] | (book[(four >> 8u) & 15u] << 8u) | (book[(four >> 16u) & 15u] << 16u) | (book[four >> 24u] << 24u);
}
fn looked(words: vec4u) -> vec4u { return vec4u(looked1(words.x), looked1(words.y), looked1(words.z), looked1(words.w)); }
`;

/** Fills `book`, by the first lane of a workgroup. */
export function bookText({ codebook }: ExactFormat): string {
  if (!codebook) return "";
  const bytes = Array.from(codebook, (value, i) => `book[${i}] = ${value & 255}u;`);
  return `if (lane == 0u) { ${bytes.join(" ")} }
  workgroupBarrier();`;
}
