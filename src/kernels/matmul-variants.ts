// The ways in which a matmul can be computed here: the space that tuning searches, made from the parameters of
// the kernels in ops/. Each way accepts a problem or says why not.
//
// A way is plain data: src/backends/cpu lowers it, src/tune measures it. Weights lie in the same row panels for all ways of a
// layout; what differs is how many rows and tokens are computed at once, how activations are stored, and how many
// streams a matmul with few tokens reads at once. Each target has a list of its own: WebAssembly's compilers spill what
// registers do not hold, machine code never does, and a wide vector has more rows.

import { type Knobs, knobWords, splitKnobs } from "./knobs.ts";
import type { QuantLayout } from "./ops/packed/packed.ts";
import { packingOf } from "./ops/packed/packings.ts";
import type { KernelTarget } from "./target.ts";

export interface MatmulProblem {
  /** Type of the weights. */
  readonly dtype: string;
  /** Rows of the weights: outputs. */
  readonly n: number;
  /** Columns of the weights: inputs. */
  readonly k: number;
}

/** What of the target matters to the choice; without a name and a width it is WebAssembly. */
export type MatmulTarget = Pick<KernelTarget, "vectorRegisters"> &
  Partial<Pick<KernelTarget, "name" | "width" | "dot4" | "amx" | "i8mm">>;

export interface MatmulVariant {
  /** "8x4.compact", "16x2.4s.compact", "16x16.amx.compact", "16x4.i8mm.compact", "4s.replicated.serial": unique. */
  readonly id: string;
  /** Rows and tokens that are computed at once; one token: no tile of tokens, they come one by one. */
  readonly rows: 4 | 8 | 16;
  readonly tokens: number;
  /** Activations repeated in every lane of a vector. */
  readonly replicated: boolean;
  /** Row panels that a matmul with one token walks at once. */
  readonly streams: number;
  /**
   * Full tiles of tokens walk as many at once, too, one tile of tokens after the other: faster where the weights come
   * from memory. Otherwise a row panel is done with all tokens before the next.
   */
  readonly streamed: boolean;
  /** Tiles of tokens that are wider than vector kernels have them are computed in AMX tiles. */
  readonly amx: boolean;
  /** Tiles of tokens are computed by products of pairs of rows. */
  readonly i8mm: boolean;
  /** Cut into chunks for all threads; otherwise one thread does it. */
  readonly shared: boolean;
  /** Machine code: how its instructions are scheduled, as far as that is not as usual. Ids end with it. */
  readonly knobs?: Knobs;
}

/** Which variant computes which number of tokens, for matmuls that read the same activations. */
export interface MatmulChoice {
  readonly variants: readonly MatmulVariant[];
  /** By number of tokens, from 0 to the most of a step: an index into `variants`. */
  readonly byTokens: readonly number[];
  /** Candidates and reasons, for people; one line each. */
  readonly notes: readonly string[];
}

/** Chooses for matmuls that share their activations (and so, how these are stored). */
export type ChooseMatmul = (
  problems: readonly MatmulProblem[],
  maxTokens: number,
  threads: number,
) => MatmulChoice;

/** Row panels that a matmul with one token walks at once, where nothing was measured: four give 1.7 times one's bandwidth. */
const DEFAULT_STREAMS = 4;

const styles = [false, true];

type Tile = readonly [rows: MatmulVariant["rows"], tokens: number];

/** Tiles of tokens that stream on WebAssembly: rows and tokens whose integers fit 16 registers, or nearly. */
const streamedTiles: readonly Tile[] = [
  [16, 2],
  [16, 3],
  [8, 4],
  [8, 6],
];

const wasmVariants: readonly MatmulVariant[] = [
  ...styles.flatMap((replicated) =>
    [1, 2, 4, 8].map((streams) => variant({ rows: 16, tokens: 1, replicated, streams })),
  ),
  ...styles.flatMap((replicated) =>
    ([4, 8, 16] as const).flatMap((rows) =>
      [2, 3, 4, 6, 8].map((tokens) =>
        variant({ rows, tokens, replicated, streams: DEFAULT_STREAMS }),
      ),
    ),
  ),
  ...styles.flatMap((replicated) =>
    streamedTiles.map(([rows, tokens]) =>
      variant({ rows, tokens, replicated, streams: DEFAULT_STREAMS, streamed: true }),
    ),
  ),
  variant({ rows: 16, tokens: 1, replicated: false, streams: DEFAULT_STREAMS, shared: false }),
];

/** What machine code can be, by the bytes of a vector. Activations are compact: instructions spread them as they load. */
interface NativeSpace {
  readonly streams: readonly number[];
  readonly tiles: readonly Tile[];
  /** Tiles of tokens that stream, and in how many streams. */
  readonly streamed: readonly (readonly [...Tile, streams: number])[];
  /** Where nothing was measured: the tile of quantized types and that of floats, and the streams of one token. */
  readonly usual: { readonly blocks: Tile; readonly floats: Tile; readonly streams: number };
}

const nativeSpaces: Readonly<Record<KernelTarget["width"], NativeSpace>> = {
  16: {
    streams: [1, 2, 4],
    tiles: [...tilesOf(8, [2, 3, 4, 5, 6, 8]), ...tilesOf(16, [2, 3, 4])],
    streamed: [[8, 2, 2]],
    usual: { blocks: [8, 6], floats: [8, 8], streams: DEFAULT_STREAMS },
  },
  32: {
    streams: [1, 2, 4],
    tiles: [...tilesOf(8, [2, 3, 4, 5, 6, 8]), ...tilesOf(16, [2, 3, 4, 5, 6])],
    streamed: [[8, 2, 2]],
    usual: { blocks: [8, 6], floats: [16, 6], streams: DEFAULT_STREAMS },
  },
  64: {
    streams: [1, 2, 4, 8],
    tiles: tilesOf(16, [2, 3, 4, 5, 6, 8, 10, 12]),
    streamed: [
      [16, 2, 4],
      [16, 3, 4],
      [16, 4, 4],
    ],
    // Q4_0, IQ4_NL 1.07 and F16 1.1 times as fast as four, Q8_0 1.04; Q5_K alike, Q2_K 0.96 (ops/matmul/prefetch.ts has how).
    usual: { blocks: [16, 12], floats: [16, 12], streams: 8 },
  },
};

function tilesOf(rows: Tile[0], tokens: readonly number[]): Tile[] {
  return tokens.map((count) => [rows, count]);
}

function nativeVariants({ streams, tiles, streamed, usual }: NativeSpace): MatmulVariant[] {
  const one = { rows: 16, tokens: 1, replicated: false } as const;
  return [
    ...streams.map((count) => variant({ ...one, streams: count })),
    ...tiles.map(([rows, tokens]) =>
      variant({ rows, tokens, replicated: false, streams: usual.streams }),
    ),
    ...streamed.map(([rows, tokens, count]) =>
      variant({ rows, tokens, replicated: false, streams: count, streamed: true }),
    ),
    variant({ ...one, streams: usual.streams, shared: false }),
  ];
}

const nativeLists: Readonly<Record<KernelTarget["width"], readonly MatmulVariant[]>> = {
  16: nativeVariants(nativeSpaces[16]),
  32: nativeVariants(nativeSpaces[32]),
  64: nativeVariants(nativeSpaces[64]),
};

/** The most tokens of a tile that is computed in vectors, where there are AMX tiles: up to there these are slower. */
export const WIDEST_IN_VECTORS = 12;

/** As many tokens as an AMX tile has rows. */
const inAmxTiles: MatmulVariant = variant({
  ...{ rows: 16, tokens: 16, replicated: false, streams: nativeSpaces[64].usual.streams },
  amx: true,
});

const amxList: readonly MatmulVariant[] = [...nativeLists[64], inAmxTiles];

/** Sums of more tokens would not fit the registers (ops/matmul/i8mm.ts). */
const inPairs: MatmulVariant = variant({
  ...{ rows: 16, tokens: 4, replicated: false, streams: DEFAULT_STREAMS },
  i8mm: true,
});

const i8mmList: readonly MatmulVariant[] = [...nativeLists[16], inPairs];

/** Tokens from which unpacking a tile for pairs of rows takes fewer instructions than it saves (docs/native.md). */
const FEWEST_IN_PAIRS = 8;

const webAssembly: MatmulTarget = { vectorRegisters: 16 };

/** The space of machine code for a target; undefined: it is WebAssembly. */
function nativeSpace({ name = "wasm", width = 16 }: MatmulTarget): NativeSpace | undefined {
  return name === "wasm" ? undefined : nativeSpaces[width];
}

export function matmulVariants(target: MatmulTarget = webAssembly): readonly MatmulVariant[] {
  if (target.amx) return amxList;
  if (target.i8mm) return i8mmList;
  return nativeSpace(target) ? nativeLists[target.width ?? 16] : wasmVariants;
}

/** "4s.compact.ahead512.unroll2" is "4s.compact" with knobs. */
export function variantById(id: string, target?: MatmulTarget): MatmulVariant | undefined {
  const { rest, knobs } = splitKnobs(id);
  const found = matmulVariants(target).find((candidate) => candidate.id === rest);
  if (rest === id || !found) return found;
  return target && hasKnobs(found, target) ? withKnobs(found, knobs) : undefined;
}

/** WebAssembly's compilers schedule by themselves; AMX tiles and pairs of rows have kernels without knobs. */
export function hasKnobs({ amx, i8mm }: MatmulVariant, target: MatmulTarget): boolean {
  return nativeSpace(target) !== undefined && !amx && !i8mm;
}

export function withKnobs(variant: MatmulVariant, knobs: Knobs): MatmulVariant {
  const whole = { ...variant, knobs };
  return { ...whole, id: idOf(whole) };
}

/**
 * Where nothing was measured here. On Sapphire Rapids (16 registers, splat loads free) 8x4 was the fastest, and 8x6 for
 * floats, whose sums are all that a tile keeps; on a Neoverse-N1 (32 registers, splat loads cost a slot) 16x4 with
 * replicated activations. Floats there: 16x4 has the fewest splat loads for a sum; not measured.
 */
function defaultTile(dtype: string, tokens: number, target: MatmulTarget): MatmulVariant {
  const packing = packingOf(dtype);
  if (target.amx && packing && tokens > WIDEST_IN_VECTORS) {
    // Mins in nibbles are so much work beside the matmuls that these are no faster (measured with Q2_K).
    if (packing.layout("unsigned").scales !== "nibbles") return inAmxTiles;
  }
  if (target.i8mm && packing && tokens >= FEWEST_IN_PAIRS) return inPairs;
  const native = nativeSpace(target);
  if (native) return nativeTile(dtype, packing ? native.usual.blocks : native.usual.floats, target);
  const isWide = target.vectorRegisters >= 32;
  if (packing) return variantById(isWide ? "16x4.replicated" : "8x4.compact")!;
  return variantById(isWide ? "16x4.compact" : "8x6.compact")!;
}

/** That tile, or one of fewer tokens whose sums fit the registers beside this type. */
function nativeTile(dtype: string, [rows, most]: Tile, target: MatmulTarget): MatmulVariant {
  const some = { dtype, n: 16, k: 256 };
  const fitting = matmulVariants(target).filter(
    (one) =>
      one.rows === rows &&
      one.tokens > 1 &&
      one.tokens <= most &&
      !one.streamed &&
      !one.amx &&
      !one.i8mm &&
      acceptsProblem(one, some, target) === true,
  );
  return fitting.at(-1) ?? variantById(`${DEFAULT_STREAMS}s.compact`, target)!;
}

/** Of so many tokens. Two to four stream: 1.5 to 1.9 times as fast as a row panel at a time (one thread). */
export function defaultVariant(dtype: string, tokens: number, target: MatmulTarget): MatmulVariant {
  const tile = defaultTile(dtype, tokens, target);
  const streamed = matmulVariants(target).find(
    (one) =>
      one.streamed &&
      one.tokens === tokens &&
      tokens <= 4 &&
      one.replicated === tile.replicated &&
      acceptsProblem(one, { dtype, n: 16, k: 256 }, target) === true,
  );
  return streamed && packingOf(dtype) ? streamed : tile;
}

export function defaultChoice(target: MatmulTarget): ChooseMatmul {
  return (problems, maxTokens) => {
    const variants = [defaultTile(problems[0]!.dtype, maxTokens, target)];
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
export function effectiveVariant(
  variant: MatmulVariant,
  tokens: number,
  target?: MatmulTarget,
): MatmulVariant {
  if (variant.tokens <= tokens || !variant.shared) return variant;
  const rows = tokens === 1 ? 16 : variant.rows;
  // Only full tiles of tokens stream, and only wide ones are in AMX tiles.
  const amx = variant.amx && tokens > WIDEST_IN_VECTORS;
  return variantById(idOf({ ...variant, rows, tokens, streamed: false, amx }), target) ?? variant;
}

/** True where the variant can compute the problem on this processor, otherwise the reason. */
export function acceptsProblem(
  variant: MatmulVariant,
  { dtype, n }: MatmulProblem,
  target: MatmulTarget,
): true | string {
  const { replicated, streamed, shared, amx, i8mm } = variant;
  const { vectorRegisters } = target;
  const packing = packingOf(dtype);
  if (!packing && replicated)
    return `activations for ${dtype} weights are floats, which are not replicated`;
  if (!packing && streamed) return `${dtype} weights are read as one stream`;
  if (!packing && amx) return `weights of ${dtype} are floats, and AMX tiles multiply bytes`;
  if (amx && !target.amx) return "this processor has no AMX tiles";
  if (!packing && i8mm) return `weights of ${dtype} are floats, and i8mm multiplies bytes`;
  if (i8mm && !target.i8mm) return "this processor has no i8mm";
  const isNative = nativeSpace(target) !== undefined;
  const live = isNative ? nativeVectors(variant, dtype, target) : liveVectors(variant);
  // On WebAssembly, sums are needed once per block only: twice the registers still pays, more does not.
  if (live > (isNative ? 1 : 2) * vectorRegisters) {
    return `keeps ${live} vectors alive, this processor has ${vectorRegisters} registers`;
  }
  if (!shared && n > SERIAL_ROWS) return `${n} rows are enough to split among threads`;
  return true;
}

/** Rows up to which it may be faster not to wake anybody. */
const SERIAL_ROWS = 1024;

/**
 * Integer and float sums of the tile, the quants of its rows and one token's activations. The float sums of several
 * streams are more than any processor's registers hold: they are left to the cache.
 */
function liveVectors({ rows, tokens, streamed }: MatmulVariant): number {
  const groups = rows / 4;
  return (streamed ? 1 : 2) * groups * tokens + 2 * groups + 1;
}

/**
 * Groups of a tile that a matmul with one token computes at once, as machine code. Levels and matmuls of any signed
 * bytes take registers of their own, of which there are few beside vectors of 32 bytes.
 */
export function groupsAtOnce(
  { lookup, widened }: Pick<QuantLayout, "lookup" | "widened">,
  width: number,
): number {
  return width === 32 && (lookup || widened) ? 1 : 64 / width;
}

/**
 * The same for machine code, which cannot spill: the most of all kernels of the variant. The lowerings have the last word;
 * test/kernels/native-variants.test.ts holds this against them.
 */
function nativeVectors(
  { rows, tokens: inTile, streams, streamed, amx, i8mm }: MatmulVariant,
  dtype: string,
  { width = 16, dot4 = "signed" }: MatmulTarget,
): number {
  const codes = packingOf(dtype)?.layout(dot4);
  // AMX tiles leave vectors free: narrower tiles need the most.
  const tokens = amx ? WIDEST_IN_VECTORS : inTile;
  const perTile = 64 / width;
  const groups = (4 * rows) / width;
  if (!codes) return Math.max((streams + 1) * perTile, groups * (tokens + 1)) + 1;
  // Beside the sums: what was loaded last and the codes taken out of it, of each group; activations, codebook, scratch.
  const forDot = dot4 === "i7" ? (codes.widened ? 2 : 1) : 0;
  const inGroup = codes.bits === 8 ? 1 : 2;
  const others = (atOnce: number) => inGroup * atOnce + 1 + (codes.lookup ? 1 : 0) + forDot;
  // Where a span ends, its sums meet their mins, four vectors of them, for two tokens at a time.
  const hasMins = codes.hasMin && codes.spanBlocks === 8 && width < 64;
  const [fixed, perToken] = codes.scales === "nibbles" ? [3, 4] : [5, 2];
  const most = (sums: number, ofTokens: number, at: number) => {
    const atEnd = hasMins ? fixed + perToken * Math.min(2, ofTokens) + forDot : 0;
    return sums + Math.max(at * ofTokens + others(at), atEnd);
  };
  const vector = most(streams * perTile, 1, groupsAtOnce(codes, width));
  // Kernels for pairs of rows fit as they are (test/kernels/arm64-pairs.test.ts).
  if (tokens === 1 || i8mm) return vector;
  const matrix = most(groups * tokens, tokens, groups);
  const inStreams = streamed ? most(streams * perTile * tokens, tokens, groups) : 0;
  return Math.max(vector, matrix, inStreams);
}

function variant(
  parts: Omit<MatmulVariant, "id" | "shared" | "streamed" | "amx" | "i8mm"> & {
    shared?: boolean;
    streamed?: boolean;
    amx?: boolean;
    i8mm?: boolean;
  },
): MatmulVariant {
  const whole = { shared: true, streamed: false, amx: false, i8mm: false, ...parts };
  return { ...whole, id: idOf(whole) };
}

function idOf(parts: Omit<MatmulVariant, "id">): string {
  const { rows, tokens, replicated, streams, streamed, amx, i8mm, shared, knobs = {} } = parts;
  const shape = [
    ...(tokens > 1 ? [`${rows}x${tokens}`] : []),
    ...(tokens === 1 || streamed ? [`${streams}s`] : []),
    ...(amx ? ["amx"] : []),
    ...(i8mm ? ["i8mm"] : []),
  ];
  const style = replicated ? "replicated" : "compact";
  return [...shape, style, ...(shared ? [] : ["serial"]), ...knobWords(knobs)].join(".");
}
