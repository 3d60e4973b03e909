// The interface of a scan (scan.ts has them), for the kernel of all scans (scan-kernel.ts), and the division of its work
// among lanes.

import type { BatchLayout } from "../batch-area.ts";
import type { Exchange } from "./subgroups.ts";

/**
 * An element `index` (WGSL) of a token's vector: the values that are loaded from memory, where `row` and `head` are names, and the value that is
 * computed from them. No lane waits for the memory until the chunk before is computed.
 */
export interface Element {
  loads(index: string): readonly string[];
  /** `loaded`: names, in the order of loads(). */
  value(loaded: readonly string[], index: string): string;
}

/** WGSL of the computation with four keys of a column; of(name) is the variable of a vector, of("state") that of the state. */
export type VectorText = (of: (name: string) => string) => string;

export interface Scan {
  readonly name: string;
  readonly state: number;
  readonly heads: number;
  readonly keys: number;
  readonly columns: number;
  /** WGSL of where key `key` of a column is in a head's state. */
  place(key: string, column: string): string;
  /** Vectors that each token has for all columns of a head. */
  readonly keyed: Readonly<Record<string, Element>>;
  /** Values that a token has in each column. */
  readonly valued: Readonly<Record<string, Element>>;
  /** Values that a token has for a head; the index is 0. */
  readonly single: Readonly<Record<string, Element>>;
  /** Vectors that all tokens have in a column. */
  readonly constant: Readonly<Record<string, (key: string, column: string) => string>>;
  /** Adds to `found`, a vec4f: its sum over all keys is `all` in `between`. */
  readonly first?: VectorText;
  readonly between?: string;
  /** Changes the state and adds to `total`, a vec4f. */
  readonly second: VectorText;
  /** WGSL of the result in column `column` from `sum`, the sum of `total`; value(name) is a value in that column. */
  result(value: (name: string) => string): string;
}

export interface ScanContext {
  readonly batch: BatchLayout;
  readonly exchange: Exchange;
  readonly workgroupBytes: number;
}

export interface ScanShape {
  /** Lanes of a column, and columns of a workgroup: both powers of two. */
  readonly parts: number;
  readonly columns: number;
  /** Vectors of 4 keys, as many for each lane of a column: keys behind the last are 0. */
  readonly vectors: number;
  /** Tokens of a chunk. */
  readonly tokens: number;
  /** The parts of a column are neighbouring lanes; otherwise, its columns are. */
  readonly areNeighbours: boolean;
  /** Words of a part's results of a token, with padding: no two lanes of a subgroup store in the same bank. */
  readonly stride: number;
}

/** Lanes that share a column, at most: alone with their keys, and where they exchange a sum for each token. */
const MOST_PARTS = 16;
const MOST_EXCHANGING = 8;

/** Workgroup memory of a scan, if the device has as much: a core of an H200 then runs three. With few workgroups each has a core for itself. */
const USUAL_BYTES = 20_480;
const LONG_BYTES = 40_960;
const FEW_WORKGROUPS = 132;

const MOST_TOKENS = 16;

/** The least power of two that is not less. */
const powerAbove = (count: number): number => 2 ** Math.ceil(Math.log2(count));

export function shapeOf(scan: Scan, { workgroupBytes }: ScanContext): ScanShape {
  const needed = Math.ceil(scan.keys / 4);
  const exchanges = scan.first !== undefined;
  const most = exchanges ? MOST_EXCHANGING : MOST_PARTS;
  const parts = Math.min(most, 2 ** Math.floor(Math.log2(needed)));
  const vectors = Math.ceil(needed / parts) * parts;
  const wide = parts >= 8 ? 16 : parts > 1 ? 32 : 64;
  const columns = Math.min(wide, powerAbove(scan.columns));
  const areNeighbours = exchanges && parts > 1;
  const stride = areNeighbours ? columns + 32 / parts : columns;
  const keyed = Object.keys(scan.keyed).length * vectors * 16;
  const valued = 2 * Object.keys(scan.valued).length * columns * 4;
  const perToken = keyed + valued + Object.keys(scan.single).length * 4 + parts * stride * 4;
  const workgroups = scan.heads * Math.ceil(scan.columns / columns);
  const usual = workgroups > FEW_WORKGROUPS ? USUAL_BYTES : LONG_BYTES;
  // If lanes exchange values through workgroup memory, these come besides.
  const bytes = Math.min(usual, workgroupBytes) - (exchanges ? parts * columns * 4 : 0);
  let tokens = parts > 1 ? MOST_TOKENS : 4;
  while (tokens > 1 && tokens * perToken > bytes) tokens /= 2;
  return { parts, columns, vectors, tokens, areNeighbours, stride };
}
