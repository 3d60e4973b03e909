// The distance of a backend's values from the reference's: the largest differences of each named value, collected over
// batches and summarized by op. Pure arithmetic on values from a tap.
//
// A difference is relative to the largest value of its row. Relative to the value itself it would be meaningless where sums cancel,
// which happens in every row.

import type { GraphNode } from "../../graph/graph.ts";

/** The largest difference, and where it is. */
export interface Difference {
  /** Absolute difference of the values. */
  readonly absolute: number;
  /** Relative to the largest value of the row. */
  readonly relative: number;
  /** The position of the largest relative difference. */
  readonly batch: number;
  readonly row: number;
  readonly column: number;
  readonly got: number;
  readonly expected: number;
}

/** One named value of the graph. */
export interface ValueDifference {
  readonly name: string;
  readonly op: string;
  /** Computed from the reference's own inputs: the effect of this op alone. */
  readonly alone: Difference;
  /** Computed from the backend's earlier results: rounding accumulates. */
  readonly chained: Difference;
}

/** All values computed by one kind of op. */
export interface OpDifference {
  readonly op: string;
  readonly values: number;
  readonly absolute: number;
  readonly relative: number;
  /** The value with the largest relative difference. */
  readonly worst: string;
  readonly chainedRelative: number;
}

export const noDifference: Difference = {
  absolute: 0,
  relative: 0,
  batch: 0,
  row: 0,
  column: 0,
  got: 0,
  expected: 0,
};

/** Compares rows of `cols` values; NaN is infinitely far away. */
export function differenceOf(
  got: Float32Array,
  expected: Float32Array,
  cols: number,
  batch: number,
): Difference {
  let found: Difference = { ...noDifference, batch };
  let absolute = 0;
  for (let at = 0; at < expected.length; at += cols) {
    let [largest, most, column] = [0, 0, 0];
    for (let i = 0; i < cols; i++) {
      const error = Math.abs(got[at + i]! - expected[at + i]!);
      largest = Math.max(largest, Math.abs(expected[at + i]!));
      if (error <= most) continue; // NaN is not
      [most, column] = [Number.isNaN(error) ? Number.POSITIVE_INFINITY : error, i];
    }
    absolute = Math.max(absolute, most);
    const relative = most === 0 ? 0 : most / largest;
    if (relative <= found.relative) continue;
    const [value, wanted] = [got[at + column]!, expected[at + column]!];
    found = { absolute, relative, batch, row: at / cols, column, got: value, expected: wanted };
  }
  return { ...found, absolute };
}

/** The larger one, with the larger absolute difference of both. */
export function larger(a: Difference, b: Difference): Difference {
  const most = b.relative > a.relative ? b : a;
  return { ...most, absolute: Math.max(a.absolute, b.absolute) };
}

/** The differences by op, in the order in which ops first appear. */
export function byOp(values: readonly ValueDifference[]): OpDifference[] {
  const groups = Map.groupBy(values, ({ op }) => op);
  return [...groups].map(([op, group]) => {
    const worst = group.reduce((a, b) => (b.alone.relative > a.alone.relative ? b : a));
    return {
      op,
      values: group.length,
      absolute: Math.max(...group.map(({ alone }) => alone.absolute)),
      relative: worst.alone.relative,
      worst: worst.name,
      chainedRelative: Math.max(...group.map(({ chained }) => chained.relative)),
    };
  });
}

/** The nodes with compared values: of the requested layers, and all outside layers. */
export function comparedNodes(
  nodes: readonly GraphNode[],
  layerStarts: readonly number[],
  layers: ReadonlySet<number> | undefined,
): GraphNode[] {
  const output = layerStarts.length - 1;
  return nodes.filter((_, index) => {
    const layer = layerStarts.findLastIndex((start) => index >= start);
    return !layers || layer < 0 || layer === output || layers.has(layer);
  });
}
