// What packed weights take in memory, type by type, and that every type which can be a weight has a packing whose
// activations are those of its dtype; that a packing reads random bytes as the block is described, and that rows come out of
// panels so. (Through the CPU backend: test/backends/weights.test.ts.)

import { expect, test } from "vitest";
import { bf16ToF32, f16ToF32 } from "../../src/base/half.ts";
import type { DType } from "../../src/dtypes/dtype.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import type { Dot4 } from "../../src/kernels/ir/meanings.ts";
import { fitsTwos, mostTwos } from "../../src/kernels/ops/matmul/word-dots.ts";
import { packPanel } from "../../src/kernels/ops/packed/pack.ts";
import { writeQuants } from "../../src/kernels/ops/packed/pack-quants.ts";
import { factorsBytes, PANEL_ROWS, rowPanelBytes } from "../../src/kernels/ops/packed/packed.ts";
import {
  codebookFor,
  layoutFor,
  newSpan,
  type Packing,
  type Span,
} from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { type QuantBits, quantFields } from "../../src/kernels/ops/packed/quant-fields.ts";
import { unpackRow } from "../../src/kernels/ops/packed/unpack.ts";
import { nativeTargets, wasmTarget } from "../../src/kernels/target.ts";
import { blockValues } from "../dtypes/block-values.ts";
import { Random } from "../support/random.ts";

const sizes = Object.keys(quantFields).map((size) => Number(size) as QuantBits);

/** Bits of a weight in memory and in the file: the table of docs/inside/kernels.md. */
const bits: Record<string, [memory: number, file: number]> = {
  q4_0: [4.5, 4.5],
  q4_1: [5, 5],
  q5_0: [5.5, 5.5],
  q5_1: [6, 6],
  q8_0: [8.5, 8.5],
  q2_k: [2.75, 2.625],
  q3_k: [3.625, 3.4375],
  q4_k: [4.75, 4.5],
  q5_k: [5.75, 5.5],
  q6_k: [6.625, 6.5625],
  iq4_nl: [4.5, 4.5],
  iq4_xs: [4.375, 4.25],
  mxfp4: [4.5, 4.25],
  tq1_0: [2.375, 1.6875],
  tq2_0: [2.375, 2.0625],
  iq1_s: [3.375, 1.5625],
  iq1_m: [3.625, 1.75],
  iq2_xxs: [3.375, 2.0625],
  iq2_xs: [3.625, 2.3125],
  iq2_s: [3.625, 2.5625],
  iq3_xxs: [4.375, 3.0625],
  iq3_s: [4.375, 3.4375],
};

const targets = [
  ...(["i7", "signed", "unsigned", "words"] as const).map((dot4) =>
    wasmTarget({ dot4, vectorRegisters: 16 }),
  ),
  ...Object.values(nativeTargets),
];

test.each(packedTypes())("%s takes as much memory as is written", (type) => {
  const dtype = dtypeByName(type)!;
  const cols = 512;
  for (const target of targets) {
    // The factors in front of a tile do not grow with its columns.
    const layout = layoutFor(packingOf(type)!, target);
    const bytes = rowPanelBytes(layout, cols) - factorsBytes(layout);
    const inMemory = (8 * bytes) / (PANEL_ROWS * cols);
    expect([inMemory, (8 * dtype.blockBytes) / dtype.blockElems]).toEqual(bits[type]);
  }
});

test("every quantized type is packed, except those of activations", () => {
  const quantized = allDTypes().filter((dtype) => dtype.blockElems > 1);
  const names = quantized.map((dtype) => dtype.name).filter((name) => !/^q8_[1k]$/.test(name));
  expect(new Set(packedTypes())).toEqual(new Set(names));
});

test.each(packedTypes())("%s has the activations of its dtype", (type) => {
  const perScale = dtypeByName(dtypeByName(type)!.activation)!.blockElems / 32;
  const packing = packingOf(type)!;
  expect(packing.activationSpan).toBe(perScale);
  expect(packing.spanBytes / packing.layout("i7").spanBlocks).toBe(
    dtypeByName(type)!.blockBytes / (dtypeByName(type)!.blockElems / 32),
  );
});

test.each(sizes)("quants of %i bits fill their vectors exactly", (size) => {
  const taken = new Set<string>();
  for (const fields of quantFields[size]) {
    const bitsOfCode = fields.flatMap(({ vector, from, width, to }) =>
      Array.from({ length: width }, (_, i) => {
        taken.add(`${vector}:${from + i}`);
        return to + i;
      }),
    );
    const all = Array.from({ length: size }, (_, i) => i);
    expect(bitsOfCode.toSorted((a, b) => a - b)).toEqual(all);
  }
  const all = Array.from({ length: 8 * size }, (_, i) => `${i >> 3}:${i & 7}`);
  expect(taken).toEqual(new Set(all));
});

test.each(packedTypes())("%s has a codebook that means the same on every target", (type) => {
  const packing = packingOf(type)!;
  for (const target of targets) {
    const layout = layoutFor(packing, target);
    const codebook = codebookFor(packing, target);
    expect(codebook !== undefined).toBe(layout.lookup);
    // Kernels of machine code take the offset out by a shift.
    if (layout.halves === "hardware") expect(Math.log2(layout.offset || 1) % 1).toBe(0);
    if (!codebook) continue;
    const own = packing.codebook!("signed");
    const offset = packing.layout("signed").offset;
    const meant = Array.from({ length: target.width }, (_, i) => own[i % 16]! - offset);
    const raised = layout.offset > 0;
    const values = [...codebook].map((level) => (raised ? (level & 255) - layout.offset : level));
    expect(values).toEqual(meant);
    const isSafe = raised ? [...codebook].every((level) => level >= 0) : true;
    expect(isSafe || target.dot4 === "unsigned" || layout.widened).toBe(true);
  }
});

/** What a span means, value by value: code, codebook, offset, scale and min as kernels use them. */
function spanValues(packing: Packing, span: Span, dot4: Dot4): number[] {
  const layout = packing.layout(dot4);
  const codebook = packing.codebook?.(dot4);
  const quants = new Uint8Array(span.quants.buffer);
  const f = Math.fround;
  return Array.from({ length: 32 * layout.spanBlocks }, (_, col) => {
    const code = codebook ? codebook[quants[col]!]! : quants[col]!;
    // Bytes that are not raised are signed.
    const q = layout.bits === 8 && layout.offset === 0 ? (code << 24) >> 24 : code;
    const centred = (codebook && layout.offset > 0 ? q & 255 : q) - layout.offset;
    if (layout.scales === "bfloats") return f(bf16ToF32(span.halves[0]!) * centred);
    if (layout.scales === "halves") {
      const value = f(f16ToF32(span.halves[0]!) * centred);
      return layout.hasMin ? f(value + f16ToF32(span.halves[1]!)) : value;
    }
    const part = Math.floor(col / layout.scaleCols);
    const value = f(f(span.header[0]! * span.smallScales[part]!) * centred);
    return layout.hasMin ? f(value + f(span.header[1]! * span.smallMins[part]!)) : value;
  });
}

test.each(packedTypes())("%s is read as its block is described, whatever the scales", (type) => {
  const dtype = dtypeByName(type)!;
  const packing = packingOf(type)!;
  const random = new Random(type.length);
  const span = newSpan();
  for (const dot4 of ["i7", "signed", "unsigned", "words"] as const) {
    for (let i = 0; i < 20; i++) {
      const bytes = Uint8Array.from({ length: dtype.blockBytes }, () => random.below(256));
      packing.read(new DataView(bytes.buffer), 0, span, dot4);
      // Up to the sign of a zero.
      const meant = Array.from(blockValues(dtype, bytes), (value) => value + 0);
      const got = spanValues(packing, span, dot4).map((value) => value + 0);
      expect(got, `block ${i}, dot4 ${dot4}`).toEqual(meant);
    }
  }
});

/** Rows of random blocks, 256 columns each, whose values are all finite; and the values, by the description of a block. */
function randomRows(dtype: DType): { bytes: Uint8Array; values: Float32Array } {
  const random = new Random(dtype.name.length);
  const blocks = (PANEL_ROWS * panelCols) / dtype.blockElems;
  const bytes = new Uint8Array(blocks * dtype.blockBytes);
  const values = new Float32Array(PANEL_ROWS * panelCols);
  for (let block = 0; block < blocks; ) {
    const own = Uint8Array.from({ length: dtype.blockBytes }, () => random.below(256));
    const meant = blockValues(dtype, own);
    if (!meant.every(Number.isFinite)) continue;
    bytes.set(own, block * dtype.blockBytes);
    values.set(meant, block++ * dtype.blockElems);
  }
  return { bytes, values };
}

const panelCols = 256;

test.each(packedTypes())("%s: rows in panels mean what their blocks are described as", (type) => {
  const packing = packingOf(type)!;
  const { bytes, values } = randomRows(dtypeByName(type)!);
  const row = new Float32Array(panelCols);
  for (const target of targets) {
    const buffer = new ArrayBuffer(rowPanelBytes(layoutFor(packing, target), panelCols));
    const memory = {
      bytes: new Int8Array(buffer),
      halves: new Uint16Array(buffer),
      words: new Uint32Array(buffer),
      floats: new Float32Array(buffer),
    };
    packPanel(packing, target, new DataView(bytes.buffer), PANEL_ROWS, panelCols, memory, 0);
    for (let r = 0; r < PANEL_ROWS; r++) {
      unpackRow(packing, target, memory, 0, r, panelCols, row, 0);
      const meant = values.subarray(r * panelCols, (r + 1) * panelCols);
      const wrong = row.findIndex((value, col) => value !== meant[col]); // 0 and -0 are the same
      expect(wrong, `${target.name}, row ${r}`).toBe(-1);
    }
  }
});

const written = sizes.flatMap((size) => [4, 8, 16].map((lanes) => [size, lanes] as const));

test.each(written)(
  "quants of %i bits are written where the table says, %i lanes",
  (size, lanes) => {
    const random = new Random(size);
    const bytes = Uint8Array.from({ length: 64 }, () => random.below(2 ** size));
    const memory = new Uint32Array(200).fill(0xdeadbeef);
    const [block, lane] = [1, 2];
    writeQuants[size](new Uint32Array(bytes.buffer), 8 * block, memory, 16 + lane, lanes);

    const words = Array.from({ length: size }, (_, vector) => memory[16 + lane + lanes * vector]!);
    const read = quantFields[size].flatMap((fields) =>
      [0, 8, 16, 24].map((byte) =>
        fields.reduce((code, { vector, from, width, to }) => {
          return code | (((words[vector]! >>> (byte + from)) & (2 ** width - 1)) << to);
        }, 0),
      ),
    );
    expect(read).toEqual([...bytes.subarray(32 * block, 32 * block + 32)]);
    // The other lanes, and what is before and behind, are as they were.
    expect(memory.filter((word) => word !== 0xdeadbeef).length).toBe(size);
  },
);

test("pairs of products that are added in 16 bits cannot overflow", () => {
  const target = wasmTarget({ dot4: "i7", vectorRegisters: 16 });
  const layouts = packedTypes().map((type) => {
    const packing = packingOf(type)!;
    return { type, layout: layoutFor(packing, target), codebook: codebookFor(packing, target) };
  });
  const inPairs = layouts.filter(({ layout }) => layout.products === "twos");
  expect(inPairs.length).toBeGreaterThan(15);
  for (const { type, layout, codebook } of inPairs) {
    const largest = codebook ? Math.max(...codebook) : 2 ** layout.bits - 1;
    expect(mostTwos(layout), type).toBeGreaterThanOrEqual(1);
    expect(mostTwos(layout) * 2 * largest * 128, type).toBeLessThan(2 ** 15);
  }
});

test("sums that start with their offset fit 16 bits at the end, for the largest activations", () => {
  const target = wasmTarget({ dot4: "i7", vectorRegisters: 16 });
  const fitting: string[] = [];
  for (const type of packedTypes()) {
    const packing = packingOf(type)!;
    const layout = layoutFor(packing, target);
    const vectors = layout.scaleCols / 4;
    if (layout.products !== "twos" || !fitsTwos(layout, vectors)) continue;
    fitting.push(type);
    const all =
      codebookFor(packing, target) ?? Array.from({ length: 2 ** layout.bits }, (_, q) => q);
    const values = Array.from(all, (value) => value - layout.offset);
    // A lane adds two products of each vector; activations are -127..127.
    const largest = Math.max(...values.map(Math.abs));
    expect(vectors * 2 * largest * 127, type).toBeLessThan(2 ** 15);
    expect(2 * Math.max(...all) * 127, type).toBeLessThan(2 ** 15); // a product of two saturates
  }
  expect(fitting).toEqual(expect.arrayContaining(["q5_0", "q6_k", "q3_k", "mxfp4", "iq3_s"]));
});
