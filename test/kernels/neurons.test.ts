// Neuron rows and columns (kernels/ops/neurons/) for every processor, whichever this is: row panels that kernels make of them have
// the bytes that packing the file makes, and all their kernels fit the registers.

import { expect, test } from "vitest";
import { lowerings } from "../../src/backends/cpu/native/native.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import {
  floatColumnsKernel,
  floatListKernel,
  floatNeuronsFor,
  floatPanelsTogether,
  gatherFloatsKernel,
  ROUND_BYTES,
} from "../../src/kernels/ops/neurons/float-neurons.ts";
import { neuronColumnsKernel, rowsTogether } from "../../src/kernels/ops/neurons/neuron-columns.ts";
import { neuronGatherKernel } from "../../src/kernels/ops/neurons/neuron-gather.ts";
import {
  columnBlockBytes,
  columnBytes,
  neuronLayoutFor,
  neuronRowBytes,
  packNeuronColumns,
  packNeuronRows,
  slabsOf,
  tileRows,
} from "../../src/kernels/ops/neurons/neuron-layouts.ts";
import { neuronListKernel } from "../../src/kernels/ops/neurons/neuron-list.ts";
import {
  neuronColumnPanelsKernel,
  neuronRowPanelKernel,
  panelBytesOfRows,
  panelsOfTile,
} from "../../src/kernels/ops/neurons/neuron-panels.ts";
import {
  ENTRIES_BEHIND,
  neuronRowListKernel,
  zerosKernel,
} from "../../src/kernels/ops/neurons/neuron-row-list.ts";
import { neuronRowsKernel } from "../../src/kernels/ops/neurons/neuron-rows.ts";
import { neuronSlabsKernel } from "../../src/kernels/ops/neurons/neuron-slabs.ts";
import {
  gatherRowsKernel,
  splitPanel,
  wordRowsFor,
} from "../../src/kernels/ops/neurons/word-rows.ts";
import { packPanel } from "../../src/kernels/ops/packed/pack.ts";
import { PANEL_ROWS, rowPanelBytes } from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { Random } from "../support/random.ts";

const cases = Object.values(nativeTargets).flatMap((target) =>
  ["q4_0", "q8_0"].map((type) => ({ target, type, about: `${target.name}, ${type}` })),
);

function viewsOf(buffer: ArrayBuffer) {
  return {
    bytes: new Int8Array(buffer),
    halves: new Uint16Array(buffer),
    words: new Uint32Array(buffer),
    floats: new Float32Array(buffer),
  };
}

function fileRows(type: string, rows: number, cols: number): Uint8Array<ArrayBuffer> {
  const dtype = dtypeByName(type)!;
  const random = new Random(rows);
  const values = Float32Array.from({ length: rows * cols }, () => random.normal());
  const bytes = new Uint8Array(bytesFor(dtype, values.length));
  dtype.quantize!(values, 0, bytes, 0, values.length / dtype.blockElems);
  return bytes;
}

test.each(cases)("panels of neurons are those of the file: $about", ({ target, type }) => {
  const packing = packingOf(type)!;
  const layout = neuronLayoutFor(packing, target)!;
  const panel = layoutFor(packing, target);
  // No whole slabs; two tiles.
  const [n, cols] = [2 * rowsTogether(layout), 96];
  const file = fileRows(type, n, cols);
  const rowBytes = file.length / n;
  const size = rowPanelBytes(panel, cols);
  const expected = new ArrayBuffer((n / PANEL_ROWS) * size);
  for (let first = 0; first < n; first += PANEL_ROWS) {
    const source = new DataView(file.buffer, first * rowBytes, PANEL_ROWS * rowBytes);
    const at = (first / PANEL_ROWS) * size;
    packPanel(packing, target, source, PANEL_ROWS, cols, viewsOf(expected), at);
  }
  const panelOf = (index: number) => new Uint8Array(expected, index * size, size);

  const room = panelsOfTile(layout) * panelBytesOfRows(layout, panel, cols);
  const rows = neuronRowBytes(layout, cols);
  const ofRows = new ArrayBuffer(n * rows + room);
  packNeuronRows(packing, target, new DataView(file.buffer), n, cols, viewsOf(ofRows), 0);
  const rowKernel = neuronRowPanelKernel("rows", layout, panel);
  for (let index = 0; index < n / PANEL_ROWS; index++) {
    const args = [index * PANEL_ROWS * rows, n * rows, rows, slabsOf(layout, cols)];
    interpret(rowKernel, ofRows, args);
    expect(new Uint8Array(ofRows, n * rows, size)).toEqual(panelOf(index));
  }

  const blockBytes = columnBlockBytes(layout, n);
  const matrix = (cols / 32) * blockBytes;
  const ofColumns = new ArrayBuffer(matrix + room);
  for (let tile = 0; tile < n / tileRows(layout); tile++) {
    const source = new DataView(file.buffer, tile * tileRows(layout) * rowBytes);
    packNeuronColumns(packing, target, source, tile, n, cols, viewsOf(ofColumns), 0);
  }
  const columnKernel = neuronColumnPanelsKernel("columns", layout, panel);
  for (let tile = 0; tile < n / tileRows(layout); tile++) {
    const quants = 2 * n + tile * layout.width;
    const scales = tile * tileRows(layout) * 2;
    const sizes = [cols / 32, blockBytes, columnBytes(layout, n), size];
    interpret(columnKernel, ofColumns, [scales, quants, matrix, ...sizes]);
    for (let index = 0; index < panelsOfTile(layout); index++) {
      const made = new Uint8Array(ofColumns, matrix + index * size, size);
      expect(made).toEqual(panelOf(tile * panelsOfTile(layout) + index));
    }
  }
});

test.each(cases)("kernels of neurons fit the registers: $about", ({ target, type }) => {
  const packing = packingOf(type)!;
  const layout = neuronLayoutFor(packing, target)!;
  const panel = layoutFor(packing, target);
  const kernels = [
    neuronRowsKernel("neuron_rows", layout),
    neuronColumnsKernel("neuron_columns", layout),
    neuronListKernel("neuron_list", layout.width, target.halves, layout.offset),
    neuronRowListKernel("neuron_row_list", layout.width),
    neuronSlabsKernel("neuron_slabs", layout.width, target.halves, layout.offset),
    neuronGatherKernel("neuron_gather", layout.width),
    zerosKernel("zeros", layout.width),
    neuronRowPanelKernel("row_panel", layout, panel),
    neuronColumnPanelsKernel("column_panels", layout, panel),
  ];
  // A kernel that does not fit is refused, with an error.
  for (const kernel of kernels) {
    expect(lowerings[target.name as keyof typeof lowerings](kernel).bytes.length).toBeGreaterThan(
      0,
    );
  }
});

const wordTypes = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k"];
const wordCases = Object.values(nativeTargets).flatMap((target) =>
  wordTypes.map((type) => ({ target, type, about: `${target.name}, ${type}` })),
);

test.each(wordCases)("panels of word rows are those of the rows: $about", ({ target, type }) => {
  const packing = packingOf(type)!;
  const rows = wordRowsFor(type, target)!;
  const [n, cols] = [2 * PANEL_ROWS, 512];
  const file = fileRows(type, n, cols);
  const size = rowPanelBytes(layoutFor(packing, target), cols);
  const fileRow = file.length / n;
  const pack = (order: readonly number[]): Uint8Array => {
    const source = Uint8Array.from(
      order.flatMap((row) => [...file.subarray(row * fileRow, (row + 1) * fileRow)]),
    );
    const panel = new ArrayBuffer(size);
    packPanel(packing, target, new DataView(source.buffer), PANEL_ROWS, cols, viewsOf(panel), 0);
    return new Uint8Array(panel);
  };
  const [list, made] = [2 * size, 2 * size + 8 * 2 * PANEL_ROWS];
  const memory = new ArrayBuffer(made + size);
  for (let panel = 0; panel < 2; panel++) {
    const first = panel * PANEL_ROWS;
    new Uint8Array(memory, panel * size, size).set(
      pack(Array.from({ length: PANEL_ROWS }, (_, row) => first + row)),
    );
    const words = new Uint32Array(memory, panel * size, size / 4);
    splitPanel(rows, cols / 256, words, new Uint32Array(size / 4));
  }
  // Rows of both panels, in any order.
  const order = Array.from({ length: PANEL_ROWS }, (_, row) => (row * 7 + 3) % n);
  const entries = [...order, ...order].flatMap((row) => [row * (size / PANEL_ROWS), 4 * row]);
  new Int32Array(memory, list, entries.length).set(entries);
  const kernel = gatherRowsKernel("gather", rows);
  interpret(kernel, memory, [0, list, made, cols / 256]);
  expect(new Uint8Array(memory, made, size)).toEqual(pack(order));
  expect(lowerings[target.name as keyof typeof lowerings](kernel).bytes.length).toBeGreaterThan(0);
});

const floatCases = Object.values(nativeTargets).flatMap((target) =>
  ["f32", "f16", "bf16"].map((type) => ({ target, type, about: `${target.name}, ${type}` })),
);

test.each(floatCases)("panels of rows of floats have a column side by side: $about", (each) => {
  const { target, type } = each;
  const format = floatNeuronsFor(type, target)!;
  const Values = format.bytes === 4 ? Uint32Array : Uint16Array;
  const [n, cols] = [2 * PANEL_ROWS, 64];
  const rowBytes = cols * format.bytes;
  const [list, made] = [n * rowBytes, n * rowBytes + 16 * PANEL_ROWS];
  const memory = new ArrayBuffer(made + PANEL_ROWS * rowBytes);
  const values = Array.from({ length: n * cols }, (_, i) =>
    format.bytes === 4 ? Math.imul(i + 1, 0x9e3779b1) >>> 0 : Math.imul(i + 1, 0x9e37) & 0xffff,
  );
  new Values(memory).set(values);
  const order = Array.from({ length: PANEL_ROWS }, (_, row) => (row * 5 + 1) % n);
  const entries = [...order, ...order].flatMap((row) => [row * rowBytes, 4 * row]);
  new Int32Array(memory, list, entries.length).set(entries);
  const kernel = gatherFloatsKernel("gather", target.width, format);
  interpret(kernel, memory, [0, list, made, rowBytes / ROUND_BYTES]);
  const expected = Array.from({ length: cols }, (_, col) =>
    order.map((row) => values[row * cols + col]!),
  );
  expect([...new Values(memory, made, PANEL_ROWS * cols)]).toEqual(expected.flat());
  const together = floatPanelsTogether(target.width);
  for (const own of [
    kernel,
    floatListKernel("list", target.width),
    floatColumnsKernel("columns", target.width, format, together),
    floatColumnsKernel("columns", target.width, format, 1),
  ]) {
    const lower = lowerings[target.name as keyof typeof lowerings];
    expect(lower(own).bytes.length).toBeGreaterThan(0);
  }
});

test("a list has the columns whose activation is not zero", () => {
  const xs = [0, 1, -0, -2, 2 ** -149, NaN, 0, 3];
  const [list, written] = [64, 512];
  const memory = new ArrayBuffer(1024);
  new Float32Array(memory).set(xs);
  interpret(floatListKernel("list", 16), memory, [0, list, xs.length, 100, written]);
  const some = [1, 3, 4, 5, 7];
  expect(new Int32Array(memory, written, 1)[0]).toBe(some.length);
  const columns = new Int32Array(memory, list);
  const values = new Float32Array(memory, list);
  some.forEach((column, i) => {
    expect([columns[2 * i], values[2 * i + 1]]).toEqual([100 * column, Math.fround(xs[column]!)]);
  });
});

test("a list has the rows whose gate is above zero or not a number, then the last one again", () => {
  const gates = [0, 1, -1, -0, 2 ** -149, -(2 ** -149), Infinity, -Infinity, NaN, 3];
  const [at, results, list, written] = [0, 64, 128, 512];
  const memory = new ArrayBuffer(1024);
  new Float32Array(memory).set([...gates, 0, 0, 0, 0, 0, 0, ...gates]); // results are not zero yet
  new Int32Array(memory)[8] = 0xffc00000 | 0; // a NaN with a sign
  const kernel = neuronRowListKernel("list", 16);
  const [rowBytes, firstRow] = [100, 7];
  const row = [gates.length, firstRow * rowBytes, rowBytes, firstRow * 4] as const;
  interpret(kernel, memory, [at, results, list, ...row, written]);
  const open = [1, 4, 6, 8, 9];
  expect(new Int32Array(memory, written, 1)[0]).toBe(open.length);
  const entries = [...open, ...Array.from({ length: ENTRIES_BEHIND }, () => open.at(-1)!)];
  expect([...new Int32Array(memory, list, 2 * entries.length)]).toEqual(
    entries.flatMap((each) => [(firstRow + each) * rowBytes, (firstRow + each) * 4]),
  );
  expect([...new Float32Array(memory, results, gates.length)].every((x) => x === 0)).toBe(true);
  new Int32Array(memory, at, gates.length).fill(0x80000000 | 0);
  interpret(kernel, memory, [at, results, list, ...row, written]);
  expect(new Int32Array(memory, written, 1)[0]).toBe(0);
});
