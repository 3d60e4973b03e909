// The ways in which a matrix product can be computed here: the space that tuning searches, made from the parameters of
// the kernels in ops/. Each way accepts a problem or says why not.
//
// A way is plain data: src/backends/cpu lowers it, src/tune measures it. Weights lie in the same tiles for all ways of a
// layout; what differs is how many rows and tokens are computed at once, how activations are stored, and how many
// streams a product with one token reads at once.

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
  /** "8x4.compact", "4s.replicated.serial": unique. */
  readonly id: string;
  /** Groups of four rows and tokens that are computed at once; one token: no tile of tokens, they come one by one. */
  readonly groups: 1 | 2 | 4;
  readonly tokens: number;
  /** Activations repeated in every lane of a vector. */
  readonly replicated: boolean;
  /** Tiles that a product with one token walks at once. */
  readonly streams: number;
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
export function defaultVariant(dtype: string, target: MatmulTarget): MatmulVariant {
  const isWide = target.vectorRegisters >= 32;
  if (packingOf(dtype)) return variantById(isWide ? "16x4.replicated" : "8x4.compact")!;
  return variantById(isWide ? "16x4.compact" : "8x6.compact")!;
}

export function defaultChoice(target: MatmulTarget): ChooseMatmul {
  return (problems, maxTokens) => ({
    variants: [defaultVariant(problems[0]!.dtype, target)],
    byTokens: new Array<number>(maxTokens + 1).fill(0),
    notes: [],
  });
}

/**
 * The variant that does the same for so many tokens: a tile that they do not fill is computed by the kernels of a
 * narrower one. What is measured of one holds for the other.
 */
export function effectiveVariant(variant: MatmulVariant, tokens: number): MatmulVariant {
  if (variant.tokens <= tokens || !variant.shared) return variant;
  const { groups, replicated, streams, shared } = variant;
  const rows = tokens === 1 ? 4 : groups;
  return variantById(idOf({ groups: rows, tokens, replicated, streams, shared })) ?? variant;
}

/** True where the variant can compute the problem on this processor, otherwise the reason. */
export function acceptsProblem(
  { groups, tokens, replicated, shared }: MatmulVariant,
  { dtype, n }: MatmulProblem,
  { vectorRegisters }: MatmulTarget,
): true | string {
  const packing = packingOf(dtype);
  if (!packing && replicated) return `activations beside ${dtype} are floats: nothing to replicate`;
  const live = liveVectors(groups, tokens);
  // Sums are needed once per block only: twice the registers still pays, more does not.
  if (live > 2 * vectorRegisters) {
    return `keeps ${live} vectors alive, this processor has ${vectorRegisters} registers`;
  }
  if (!shared && n > SERIAL_ROWS) return `${n} rows are worth sharing among threads`;
  return true;
}

/** Rows up to which it may be faster not to wake anybody. */
const SERIAL_ROWS = 1024;

/** Integer and float sums of the tile, the codes of its rows and one token's activations. */
function liveVectors(groups: number, tokens: number): number {
  return 2 * groups * tokens + 2 * groups + 1;
}

function variant(
  parts: Omit<MatmulVariant, "id" | "shared"> & { shared?: boolean },
): MatmulVariant {
  const { shared = true } = parts;
  return { ...parts, shared, id: idOf({ ...parts, shared }) };
}

function idOf({ groups, tokens, replicated, streams, shared }: Omit<MatmulVariant, "id">): string {
  const shape = tokens === 1 ? `${streams}s` : `${groups * 4}x${tokens}`;
  const style = replicated ? "replicated" : "compact";
  return [shape, style, ...(shared ? [] : ["serial"])].join(".");
}
