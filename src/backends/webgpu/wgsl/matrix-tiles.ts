// The operands of matrix units (matmul-matrices.ts): weights, unpacked to half floats in workgroup memory tile by tile, and tokens,
// which lie in memory as matrices of 16 x 16, one behind the other, and are loaded from there.
//
// Tiles are arrays of 16 bytes, eight half floats, so that a driver stores and loads them whole.
//
// Each four columns are in the order first, third, second, fourth: so nibbles and bytes come out of a word two at a time. The
// order does not matter as long as both have the same.

import type { Weight } from "../../../graph/graph.ts";
import { unpackOf } from "../unpack/table.ts";
import type { HalfUnpack, LaneDot } from "../unpack/unpack.ts";
import type { Binding, Source } from "./kernel.ts";
import { UNIT } from "./matrix-calls.ts";
import { weightText } from "./weights.ts";

/** WGSL: the index of the element of a token and a column, in a buffer of matrices whose rows have `cols` columns. */
export function matrixAt(token: string, column: string, cols: number): string {
  return `(((${token}) / ${UNIT}u * ${cols / UNIT}u + (${column}) / ${UNIT}u) * ${UNIT * UNIT}u + (${token}) % ${UNIT}u * ${UNIT}u + (${column}) % ${UNIT}u)`;
}

/** The sizes of a tile, and of its matrix. */
export interface TileShape {
  /** Rows of the tile. */
  readonly tileRows: number;
  /** Columns of the tile. */
  readonly depth: number;
  /** Elements from a row of the tile to the next: padded, so that rows do not begin in the same bank. */
  readonly pitch: number;
  /** Lanes that fill it. */
  readonly lanes: number;
  readonly cols: number;
}

/** Which rows of which matrix a tile has. */
export interface TileRows {
  readonly source: Extract<Source, { kind: "weight" | "stack" }>;
  /** WGSL: the row of the matrix that row `r` of the tile is; one that exists. */
  readonly row: (r: string) => string;
}

/** The lanes that fill a tile are numbered by `worker`. */
export interface TileText {
  readonly bindings: readonly Binding[];
  readonly declarations: string;
  /** Loads the data of the tile from column `first` on; the first time with "var " before each name. */
  load(declare: string, first: string): string;
  /** Unpacks the loaded weights from column `first` on, and stores them into array `to`, from vector `base` on. */
  store(to: string, base: string, first: string): string;
}

export function weightTile(weight: Weight, rows: TileRows, shape: TileShape): TileText {
  const lane = unpackOf(weight.dtype).lane;
  if (lane?.halves === "as they are") return halvesTile(lane, rows, shape);
  return lane?.halves && shape.depth % lane.halves.span === 0
    ? lanesTile(lane, lane.halves, weight, rows, shape)
    : anyTile(weight, rows, shape);
}

/** Any type: eight values at a time, loaded and stored together. */
function anyTile(weight: Weight, { source, row }: TileRows, shape: TileShape): TileText {
  const { tileRows, depth, pitch, lanes } = shape;
  const { bindings, declarations } = weightText(weight, source);
  const four = (first: string, at: number): string =>
    `bitcast<vec2u>(vec4h(weight4(row, ${first} + inRow * 8u + ${at}u).xzyw))`;
  return {
    bindings,
    declarations,
    load: () => "",
    store: (to, base, first) => `
    for (var item = worker; item < ${(tileRows * depth) / 8}u; item += ${lanes}u) {
      let row = ${row(`(item / ${depth / 8}u)`)};
      let inRow = item % ${depth / 8}u; // eight columns
      ${to}[${base} + item / ${depth / 8}u * ${pitch / 8}u + inRow] = vec4u(${four(first, 0)}, ${four(first, 4)});
    }`,
  };
}

/** Half floats: eight at a time. */
function halvesTile(
  lane: LaneDot,
  { source, row }: TileRows,
  { tileRows, depth, pitch, lanes, cols }: TileShape,
): TileText {
  const eights = depth / 8;
  const items = tileRows * eights;
  const item = (i: number): string => itemOf(i, items, lanes);
  const own = Math.ceil(items / lanes);
  return {
    bindings: [{ name: "wide", type: "vec4u", source }],
    declarations: `
fn inOrder(w: vec2u) -> vec2u { return vec2u((w.x & 0xffffu) | (w.y << 16u), (w.x >> 16u) | (w.y & 0xffff0000u)); }`,
    load: (declare, next) =>
      each(own, (i) => {
        const first = `(${row(`${item(i)} / ${eights}u`)} * ${cols / 8}u)`;
        const at = lane.loads.w!.at(first, `((${next}) / 8u + ${item(i)} % ${eights}u)`);
        return `${declare}w${i} = ${at};`;
      }),
    store: (to, base) =>
      each(
        own,
        (i) =>
          `${to}[${base} + ${item(i)} / ${eights}u * ${pitch / 8}u + ${item(i)} % ${eights}u] = vec4u(inOrder(w${i}.xy), inOrder(w${i}.zw));`,
      ),
  };
}

/** Item `i` of a lane, of those of a tile; those beyond the last repeat it. */
function itemOf(i: number, items: number, lanes: number): string {
  return items % lanes === 0
    ? `(worker + ${i * lanes}u)`
    : `min(worker + ${i * lanes}u, ${items - 1}u)`;
}

/** Types with a LaneDot: 16 bytes of quants at a time, loaded as in matmul-gemv.ts. */
function lanesTile(
  lane: LaneDot,
  halves: HalfUnpack,
  weight: Weight,
  { source, row: rowOf }: TileRows,
  { tileRows, depth, pitch, lanes, cols }: TileShape,
): TileText {
  const chunks = depth / lane.columns;
  const items = tileRows * chunks;
  const names = Object.keys(lane.loads);
  const bindings: Binding[] = [{ name: "wide", type: "vec4u", source }];
  const unpack = unpackOf(weight.dtype);
  if (unpack.kind === "block" && unpack.planes) {
    bindings.push({ name: "narrow", type: "u32", source: { ...source, plane: "narrow" } });
  }
  const own = Math.ceil(items / lanes);
  /** Item i of a lane: chunk `sub` of row `row` of the tile. */
  const item = (i: number): string => itemOf(i, items, lanes);
  /** Vectors 2 pair and 2 pair + 1 of the unpacked values. */
  const vector = (pair: number): string =>
    `vec4u(bitcast<vec2u>(h[${2 * pair}]), bitcast<vec2u>(h[${2 * pair + 1}]))`;
  return {
    bindings,
    declarations: halves.functions,
    load: (declare, first) =>
      each(own, (i) => {
        const row = `(${rowOf(`${item(i)} / ${chunks}u`)} * ${cols / lane.unit}u)`;
        const c = `((${first}) / ${lane.columns}u + ${item(i)} % ${chunks}u)`;
        return names
          .map((name) => `${declare}${name}${i} = ${lane.loads[name]!.at(row, c)};`)
          .join(" ");
      }),
    store: (to, base, first) =>
      each(own, (i) => {
        const row = `(${rowOf(`${item(i)} / ${chunks}u`)} * ${cols / lane.unit}u)`;
        return `{
      let c = (${first}) / ${lane.columns}u + ${item(i)} % ${chunks}u;
      let lowAt = ${lane.lowAt};
      let line = ${base} + (${item(i)} / ${chunks}u) * ${pitch / 8}u - (${first}) / 8u;
      let low = line + lowAt * 2u;
      let high = line + (${lane.highAt}) * 2u;
      let h = ${halves.values((name) => `${name}${i}`, row, "c")};
      ${to}[low] = ${vector(0)};
      ${to}[low + 1u] = ${vector(1)};
      ${to}[high] = ${vector(2)};
      ${to}[high + 1u] = ${vector(3)};
    }`;
      }),
  };
}

function each(many: number, text: (i: number) => string): string {
  return Array.from({ length: many }, (_, i) => text(i)).join("\n      ");
}
