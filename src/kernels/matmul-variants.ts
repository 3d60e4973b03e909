// The ways in which a matrix product can be computed here: the space that tuning searches, made from the parameters of
// the kernels in ops/. Each way accepts a problem or says why not.
//
// A way is plain data: src/backends/cpu lowers it, src/tune measures it. Weights lie in the same tiles for all ways of a
// layout; what differs is how many rows and tokens are computed at once, how activations are stored, and how many
// streams a product with few tokens reads at once.

import { packingOf } from "./ops/packings.ts";

export interface MatmulProblem {
  /** Type of the weights. */
  readonly dtype: string;
  /** Rows of the weights: outputs. */
  readonly n: number;
  /** Columns of the weights: inputs. */
  readonly k: number;
}

/** What of the processor matters to the choice. */
export interface MatmulTarget {
  /** Registers that hold a vector, as far as is known. */
  readonly vectorRegisters: number;
}

export interface MatmulVariant {
  /** "8x4.compact", "16x2.4s.compact", "4s.replicated.serial": unique. */
  readonly id: string;
  /** Groups of four rows and tokens that are computed at once; one token: no tile of tokens, they come one by one. */
  readonly groups: 1 | 2 | 4;
  readonly tokens: number;
  /** Activations repeated in every lane of a vector. */
  readonly replicated: boolean;
  /** Tiles that a product with one token walks at once. */
  readonly streams: number;
  /**
   * Full tiles of tokens walk as many at once, too, one tile of tokens after the other: faster where the weights come
   * from memory. Otherwise a tile of rows is done with all tokens before the next.
   */
  readonly streamed: boolean;
  /** Cut into chunks for all threads; otherwise one thread does it. */
  readonly shared: boolean;
}

export interface Refusal {
  readonly variant: MatmulVariant;
  readonly reason: string;
}

/** Which variant computes which number of tokens, for products that read the same activations. */
export interface MatmulChoice {
  readonly variants: readonly MatmulVariant[];
  /** By number of tokens, from 0 to the most of a step: an index into `variants`. */
  readonly byTokens: readonly number[];
  /** Candidates and reasons, for people; one line each. */
  readonly notes: readonly string[];
}

/** Chooses for products that share their activations (and so, how these are stored). */
export type ChooseMatmul = (
  problems: readonly MatmulProblem[],
  maxTokens: number,
  threads: number,
) => MatmulChoice;

/** Tiles that a product with one token walks at once, where nothing was measured: four give 1.7 times one's bandwidth. */
export const DEFAULT_STREAMS = 4;

const styles = [false, true];

/** Tiles of tokens that stream: groups and tokens whose integers fit 16 registers, or nearly. */
const streamedTiles = [
  [4, 2],
  [4, 3],
  [2, 4],
  [2, 6],
] as const;

const variants: readonly MatmulVariant[] = [
  ...styles.flatMap((replicated) =>
    [1, 2, 4, 8].map((streams) => variant({ groups: 4, tokens: 1, replicated, streams })),
  ),
  ...styles.flatMap((replicated) =>
    ([1, 2, 4] as const).flatMap((groups) =>
      [2, 3, 4, 6, 8].map((tokens) =>
        variant({ groups, tokens, replicated, streams: DEFAULT_STREAMS }),
      ),
    ),
  ),
  ...styles.flatMap((replicated) =>
    streamedTiles.map(([groups, tokens]) =>
      variant({ groups, tokens, replicated, streams: DEFAULT_STREAMS, streamed: true }),
    ),
  ),
  variant({ groups: 4, tokens: 1, replicated: false, streams: DEFAULT_STREAMS, shared: false }),
];

export function matmulVariants(): readonly MatmulVariant[] {
  return variants;
}

export function variantById(id: string): MatmulVariant | undefined {
  return variants.find((candidate) => candidate.id === id);
}

/**
 * Where nothing was measured here. On Sapphire Rapids (16 registers, splat loads free) 8x4 was the fastest, and 8x6 for
 * floats, whose sums are all that a tile keeps; on a Neoverse-N1 (32 registers, splat loads cost a slot) 16x4 with
 * replicated activations. Floats there: 16x4 has the fewest splat loads for a sum; not measured.
 */
function defaultTile(dtype: string, target: MatmulTarget): MatmulVariant {
  const isWide = target.vectorRegisters >= 32;
  if (packingOf(dtype)) return variantById(isWide ? "16x4.replicated" : "8x4.compact")!;
  return variantById(isWide ? "16x4.compact" : "8x6.compact")!;
}

/** Of so many tokens. Two to four stream: 1.5 to 1.9 times as fast as a tile of rows at a time (one thread). */
export function defaultVariant(dtype: string, tokens: number, target: MatmulTarget): MatmulVariant {
  const tile = defaultTile(dtype, target);
  const streamed = streamedTiles.find(([, width]) => width === tokens && width <= 4);
  if (!streamed || !packingOf(dtype)) return tile;
  return variantById(idOf({ ...tile, groups: streamed[0], tokens, streamed: true }))!;
}

export function defaultChoice(target: MatmulTarget): ChooseMatmul {
  return (problems, maxTokens) => {
    const variants = [defaultTile(problems[0]!.dtype, target)];
    const byTokens = Array.from({ length: maxTokens + 1 }, (_, tokens) =>
      indexIn(variants, defaultVariant(problems[0]!.dtype, tokens, target)),
    );
    return { variants, byTokens, notes: [] };
  };
}

/** Where a variant stands in a list, which it joins if it must. */
export function indexIn(variants: MatmulVariant[], wanted: MatmulVariant): number {
  const known = variants.findIndex(({ id }) => id === wanted.id);
  return known >= 0 ? known : variants.push(wanted) - 1;
}

/**
 * The variant that does the same for so many tokens: a tile that they do not fill is computed by the kernels of a
 * narrower one. What is measured of one holds for the other.
 */
export function effectiveVariant(variant: MatmulVariant, tokens: number): MatmulVariant {
  if (variant.tokens <= tokens || !variant.shared) return variant;
  const groups = tokens === 1 ? 4 : variant.groups;
  // Only full tiles of tokens stream.
  return variantById(idOf({ ...variant, groups, tokens, streamed: false })) ?? variant;
}

/** True where the variant can compute the problem on this processor, otherwise the reason. */
export function acceptsProblem(
  { groups, tokens, replicated, streamed, shared }: MatmulVariant,
  { dtype, n }: MatmulProblem,
  { vectorRegisters }: MatmulTarget,
): true | string {
  const packing = packingOf(dtype);
  if (!packing && replicated) return `activations beside ${dtype} are floats: nothing to replicate`;
  if (!packing && streamed) return `tiles of tokens beside ${dtype} read one stream`;
  const live = liveVectors(groups, tokens, streamed);
  // Sums are needed once per block only: twice the registers still pays, more does not.
  if (live > 2 * vectorRegisters) {
    return `keeps ${live} vectors alive, this processor has ${vectorRegisters} registers`;
  }
  if (!shared && n > SERIAL_ROWS) return `${n} rows are worth sharing among threads`;
  return true;
}

/** Rows up to which it may be faster not to wake anybody. */
const SERIAL_ROWS = 1024;

/**
 * Integer and float sums of the tile, the codes of its rows and one token's activations. The float sums of several
 * streams are more than any processor's registers hold: they are left to the cache.
 */
function liveVectors(groups: number, tokens: number, streamed: boolean): number {
  return (streamed ? 1 : 2) * groups * tokens + 2 * groups + 1;
}

function variant(
  parts: Omit<MatmulVariant, "id" | "shared" | "streamed"> & {
    shared?: boolean;
    streamed?: boolean;
  },
): MatmulVariant {
  const whole = { shared: true, streamed: false, ...parts };
  return { ...whole, id: idOf(whole) };
}

function idOf(parts: Omit<MatmulVariant, "id">): string {
  const { groups, tokens, replicated, streams, streamed, shared } = parts;
  const shape = [
    ...(tokens > 1 ? [`${groups * 4}x${tokens}`] : []),
    ...(tokens === 1 || streamed ? [`${streams}s`] : []),
  ];
  return [...shape, replicated ? "replicated" : "compact", ...(shared ? [] : ["serial"])].join(".");
}
