// What matrix units multiply (matmul-matrices.ts): weights, unpacked to half floats in workgroup memory tile by tile, and tokens, which
// lie in memory as matrices of 16 x 16, one behind the other, and are loaded from there. The weights of the next tile are loaded
// before this one is multiplied, and unpacked after.
//
// Each four columns are in the order first, third, second, fourth: so nibbles and bytes come out of a word two at a time. The
// order does not matter as long as both have the same.

import type { Weight } from "../../../graph/graph.ts";
import { unpackOf } from "../unpack/table.ts";
import type { HalfUnpack, LaneDot } from "../unpack/unpack.ts";
import type { Binding, Source } from "./kernel.ts";
import { UNIT } from "./matrix-calls.ts";
import { weightText } from "./weights.ts";

/** WGSL: where the element of a token and a column is, in a buffer of matrices whose rows have so many columns. */
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
  /** Lanes of the workgroup. */
  readonly size: number;
  readonly cols: number;
}

/** Which rows of which matrix a tile has. */
export interface TileRows {
  readonly source: Extract<Source, { kind: "weight" | "stack" }>;
  /** WGSL: the row of the matrix that row `r` of the tile is; one that exists. */
  readonly row: (r: string) => string;
}

export interface TileText {
  readonly bindings: readonly Binding[];
  readonly declarations: string;
  /** Loads the data of the tile from column `next` on; the first time with "var " before each name. */
  load(declare: string): string;
  /**
   * Unpacks and stores it; column `start` is the tile's first. Indices are products with 8, so that a compiler knows that eight
   * stores side by side can be one.
   */
  readonly store: string;
}

export function weightTile(weight: Weight, rows: TileRows, shape: TileShape): TileText {
  const lane = unpackOf(weight.dtype).lane;
  if (lane?.halves === "as they are") return halvesTile(lane, rows, shape);
  return lane?.halves && shape.depth % lane.halves.span === 0
    ? lanesTile(lane, lane.halves, weight, rows, shape)
    : anyTile(weight, rows, shape);
}

/** Any type: four values at a time, loaded and stored together. */
function anyTile(weight: Weight, { source, row }: TileRows, shape: TileShape): TileText {
  const { tileRows, depth, pitch, size } = shape;
  const { bindings, declarations } = weightText(weight, source);
  return {
    bindings,
    declarations,
    load: () => "",
    store: `
    for (var item = lane; item < ${(tileRows * depth) / 4}u; item += ${size}u) {
      let row = item / ${depth / 4}u;
      let column = (item % ${depth / 4}u) * 4u;
      let values = vec4h(weight4(${row("row")}, start + column).xzyw);
      let to = row * ${pitch}u + column;
      ${each(4, (j) => `weightTile[to + ${j}u] = values[${j}];`)}
    }`,
  };
}

/** Half floats: eight at a time. */
function halvesTile(
  lane: LaneDot,
  { source, row }: TileRows,
  { tileRows, depth, pitch, size, cols }: TileShape,
): TileText {
  const eights = depth / 8;
  const items = tileRows * eights;
  const item = (i: number): string => itemOf(i, items, size);
  const own = Math.ceil(items / size);
  return {
    bindings: [{ name: "wide", type: "vec4u", source }],
    declarations: "",
    load: (declare) =>
      each(own, (i) => {
        const first = `(${row(`${item(i)} / ${eights}u`)} * ${cols / 8}u)`;
        const at = lane.loads.w!.at(first, `(next / 8u + ${item(i)} % ${eights}u)`);
        return `${declare}w${i} = ${at};`;
      }),
    store: each(
      own,
      (i) => `{
      let to = (${item(i)} / ${eights}u * ${pitch / 8}u + ${item(i)} % ${eights}u) * 8u;
      ${each(2, (half) => {
        const pair = (j: number): string => `bitcast<vec2h>(w${i}[${2 * half + j}])`;
        const values = [`${pair(0)}.x`, `${pair(1)}.x`, `${pair(0)}.y`, `${pair(1)}.y`];
        return each(4, (j) => `weightTile[to + ${4 * half + j}u] = ${values[j]};`);
      })}
    }`,
    ),
  };
}

/** Item `i` of a lane, of those of a tile; those beyond the last repeat it. */
function itemOf(i: number, items: number, size: number): string {
  return items % size === 0 ? `(lane + ${i * size}u)` : `min(lane + ${i * size}u, ${items - 1}u)`;
}

/** Types with a LaneDot: 16 bytes of quants at a time, loaded as in matmul-few.ts. */
function lanesTile(
  lane: LaneDot,
  halves: HalfUnpack,
  weight: Weight,
  { source, row: rowOf }: TileRows,
  { tileRows, depth, pitch, size, cols }: TileShape,
): TileText {
  const chunks = depth / lane.columns;
  const items = tileRows * chunks;
  const names = Object.keys(lane.loads);
  const bindings: Binding[] = [{ name: "wide", type: "vec4u", source }];
  const unpack = unpackOf(weight.dtype);
  if (unpack.kind === "block" && unpack.planes) {
    bindings.push({ name: "narrow", type: "u32", source: { ...source, plane: "narrow" } });
  }
  const own = Math.ceil(items / size);
  /** Item i of a lane: chunk `sub` of row `row` of the tile. */
  const item = (i: number): string => itemOf(i, items, size);
  return {
    bindings,
    declarations: halves.functions,
    load: (declare) =>
      each(own, (i) => {
        const row = `(${rowOf(`${item(i)} / ${chunks}u`)} * ${cols / lane.unit}u)`;
        const c = `(next / ${lane.columns}u + ${item(i)} % ${chunks}u)`;
        return names
          .map((name) => `${declare}${name}${i} = ${lane.loads[name]!.at(row, c)};`)
          .join(" ");
      }),
    store: each(own, (i) => {
      const row = `(${rowOf(`${item(i)} / ${chunks}u`)} * ${cols / lane.unit}u)`;
      return `{
      let c = start / ${lane.columns}u + ${item(i)} % ${chunks}u;
      let lowAt = ${lane.lowAt};
      let line = (${item(i)} / ${chunks}u) * ${pitch / 8}u - start / 8u;
      let low = (line + lowAt * 2u) * 8u;
      let high = (line + (${lane.highAt}) * 2u) * 8u;
      let h = ${halves.values((name) => `${name}${i}`, row, "c")};
      ${each(4, (q) => each(4, (j) => `weightTile[low + ${4 * q + j}u] = h[${q}][${j}];`))}
      ${each(4, (q) => each(4, (j) => `weightTile[high + ${4 * q + j}u] = h[${q + 4}][${j}];`))}
    }`;
    }),
  };
}

function each(many: number, text: (i: number) => string): string {
  return Array.from({ length: many }, (_, i) => text(i)).join("\n      ");
}
