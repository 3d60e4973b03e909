// The variants of a matmul: the space that tuning searches, made of the parameters of the kernels in ops/matmul/. Each
// variant accepts a problem or says why not.
//
// A variant is plain data: src/backends/cpu makes its kernels, src/tune measures it. All variants of a layout read the same
// row panels. They differ in the register tile (rows x tokens), in the layout of activations, and in the number of streams that a
// matmul with few tokens reads at once. Each target has a list of its own: WebAssembly's compilers spill, machine code
// refuses a register tile that does not fit, and a wider vector has more rows.

import { type Knobs, knobWords, splitKnobs } from "./knobs.ts";
import { HELD_QUANTS, isByToken } from "./ops/matmul/word-dots.ts";
import { productsFor, type QuantLayout } from "./ops/packed/packed.ts";
import type { Packing } from "./ops/packed/packing.ts";
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

/** Properties that the choice depends on; a target without a name and a width is WebAssembly. */
export type MatmulTarget = Pick<KernelTarget, "vectorRegisters"> &
  Partial<Pick<KernelTarget, "name" | "width" | "dot4" | "amx" | "i8mm">>;

export interface MatmulVariant {
  /**
   * "8x4.compact", "16x2.4s.compact", "8x6.unpacked.compact", "16x16.amx.compact", "16x4.i8mm.compact", "4s.replicated.serial":
   * unique.
   */
  readonly id: string;
  /** The register tile: rows and tokens. With one token, there are no token tiles: tokens are computed one by one. */
  readonly rows: 4 | 8 | 16;
  readonly tokens: number;
  /** Activations repeated in every lane of a vector. */
  readonly replicated: boolean;
  /** Activations are also stored as 16-bit integers or as magnitudes and signs, as products of words or signs read them (packed.ts). */
  readonly words: boolean;
  /** Row panels that a matmul with one token walks at once. */
  readonly streams: number;
  /**
   * Full token tiles walk as many row panels at once, one token tile after the other, which is faster where the weights come
   * from memory. Otherwise all tokens use a row panel before the next one.
   */
  readonly streamed: boolean;
  /** Token tiles wider than those of vector kernels are computed in AMX tiles. */
  readonly amx: boolean;
  /** Token tiles are computed by SMMLA, which multiplies pairs of rows. */
  readonly i8mm: boolean;
  /** A row panel is unpacked into memory of the thread before its token tiles are computed (ops/packed/unpack-panel.ts). */
  readonly unpacked: boolean;
  /** Split into chunks for all threads; otherwise one thread computes it. */
  readonly shared: boolean;
  /** Machine code only: the differences from the default schedule. Ids end with it. */
  readonly knobs?: Knobs;
}

/** Which variant computes which number of tokens, for matmuls that read the same activations. */
export interface MatmulChoice {
  readonly variants: readonly MatmulVariant[];
  /** By number of tokens, from 0 to the most of a batch: an index into `variants`. */
  readonly byTokens: readonly number[];
  /** Candidates and reasons, for people; one line each. */
  readonly notes: readonly string[];
}

/** Chooses for matmuls that share their activations, and so how these are stored. */
export type ChooseMatmul = (
  problems: readonly MatmulProblem[],
  maxTokens: number,
  threads: number,
) => MatmulChoice;

/** Row panels that a matmul with one token walks at once, by default: four have 1.7 times the bandwidth of one. */
const DEFAULT_STREAMS = 4;

/** Layouts of activations. */
const styles = [
  { replicated: false },
  { replicated: true },
  { replicated: false, words: true },
] as const;

type Tile = readonly [rows: MatmulVariant["rows"], tokens: number];

/** Token tiles that stream on WebAssembly: rows and tokens whose integer sums (nearly) fit 16 registers. */
const streamedTiles: readonly Tile[] = [
  [16, 2],
  [16, 3],
  [8, 4],
  [8, 6],
];

const wasmVariants: readonly MatmulVariant[] = [
  ...styles.flatMap((style) =>
    [1, 2, 4, 8].map((streams) => variant({ rows: 16, tokens: 1, ...style, streams })),
  ),
  ...styles.flatMap((style) =>
    ([4, 8, 16] as const).flatMap((rows) =>
      [2, 3, 4, 6, 8].map((tokens) =>
        variant({ rows, tokens, ...style, streams: DEFAULT_STREAMS }),
      ),
    ),
  ),
  ...styles.flatMap((style) =>
    streamedTiles.map(([rows, tokens]) =>
      variant({ rows, tokens, ...style, streams: DEFAULT_STREAMS, streamed: true }),
    ),
  ),
  variant({ rows: 16, tokens: 1, replicated: false, streams: DEFAULT_STREAMS, shared: false }),
];

/** The variants of machine code for a vector width. Activations are compact: loads broadcast them. */
interface NativeSpace {
  readonly streams: readonly number[];
  readonly tiles: readonly Tile[];
  /** Token tiles that stream, and their numbers of streams. */
  readonly streamed: readonly (readonly [...Tile, streams: number])[];
  /** The most tokens that stream by default: some full token tiles, one after the other. */
  readonly mostStreamed: number;
  /** Tiles of unpacked row panels. */
  readonly unpacked: readonly Tile[];
  /** The default: register tiles of quantized types and of floats, and streams of one token. */
  readonly usual: { readonly blocks: Tile; readonly floats: Tile; readonly streams: number };
}

const nativeSpaces: Readonly<Record<KernelTarget["width"], NativeSpace>> = {
  16: {
    streams: [1, 2, 4],
    tiles: [...tilesOf(8, [2, 3, 4, 5, 6, 8]), ...tilesOf(16, [2, 3, 4])],
    // Tiles of 3 and 4 tokens walk over whole row panels: tiles of 8 rows go over each panel twice, with gaps.
    streamed: [
      [8, 2, 2],
      [8, 3, 1],
      [8, 4, 1],
    ],
    mostStreamed: 12,
    unpacked: tilesOf(8, [4, 5, 6]),
    // Against four streams (Neoverse-N1, weights in memory): Q4_0 1.04 times as fast, Q8_0 1.08, Q6_K 1.12, Q4_K and MXFP4 the same.
    usual: { blocks: [8, 6], floats: [8, 8], streams: 2 },
  },
  32: {
    streams: [1, 2, 4],
    tiles: [...tilesOf(8, [2, 3, 4, 5, 6, 8]), ...tilesOf(16, [2, 3, 4, 5, 6])],
    streamed: [[8, 2, 2]],
    mostStreamed: 4,
    unpacked: [],
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
    mostStreamed: 4,
    unpacked: [],
    // Against four streams, measured as in ops/matmul/prefetch.ts: Q4_0 and IQ4_NL 1.07 times as fast, F16 1.1, Q8_0 1.04,
    // Q5_K the same, Q2_K 0.96.
    usual: { blocks: [16, 12], floats: [16, 12], streams: 8 },
  },
};

function tilesOf(rows: Tile[0], tokens: readonly number[]): Tile[] {
  return tokens.map((count) => [rows, count]);
}

function nativeVariants(space: NativeSpace): MatmulVariant[] {
  const { streams, tiles, streamed, unpacked, usual } = space;
  const one = { rows: 16, tokens: 1, replicated: false } as const;
  return [
    ...streams.map((count) => variant({ ...one, streams: count })),
    ...tiles.map(([rows, tokens]) =>
      variant({ rows, tokens, replicated: false, streams: usual.streams }),
    ),
    ...streamed.map(([rows, tokens, count]) =>
      variant({ rows, tokens, replicated: false, streams: count, streamed: true }),
    ),
    ...unpacked.map(([rows, tokens]) =>
      variant({ rows, tokens, replicated: false, streams: usual.streams, unpacked: true }),
    ),
    variant({ ...one, streams: usual.streams, shared: false }),
  ];
}

const nativeLists: Readonly<Record<KernelTarget["width"], readonly MatmulVariant[]>> = {
  16: nativeVariants(nativeSpaces[16]),
  32: nativeVariants(nativeSpaces[32]),
  64: nativeVariants(nativeSpaces[64]),
};

/** The most tokens of a register tile where there are AMX tiles: up to here AMX tiles are slower. */
export const WIDEST_IN_VECTORS = 12;

/** As many tokens as an AMX tile has rows. */
const inAmxTiles: MatmulVariant = variant({
  ...{ rows: 16, tokens: 16, replicated: false, streams: nativeSpaces[64].usual.streams },
  amx: true,
});

const amxList: readonly MatmulVariant[] = [...nativeLists[64], inAmxTiles];

/** The sums of more tokens do not fit the registers (ops/matmul/i8mm.ts). */
const inPairs: MatmulVariant = variant({
  ...{ rows: 16, tokens: 4, replicated: false, streams: DEFAULT_STREAMS },
  i8mm: true,
});

const i8mmList: readonly MatmulVariant[] = [...nativeLists[16], inPairs];

/** Tokens from which unpacking a row panel into pairs of rows costs fewer instructions than it saves (docs/inside/processors.md). */
const FEWEST_IN_PAIRS = 8;

/**
 * Tokens from which unpacking a row panel takes less time than it saves (Neoverse-N1, docs/inside/arm64.md). Bytes have nothing
 * to unpack but their scales. Small mins are as much work as before, so there is less to gain.
 */
function fewestUnpacked({ bits, hasMin, spanBlocks }: QuantLayout): number {
  if (bits === 8) return Number.POSITIVE_INFINITY;
  return hasMin && spanBlocks === 8 ? 32 : 12;
}

const webAssembly: MatmulTarget = { vectorRegisters: 16 };
const MOST_STREAMED_IN_WASM = 4;

/** The variants of machine code for a target; undefined: it is WebAssembly. */
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

/** Whether kernels of the target unpack row panels for a batch: as register tiles need them, or as pairs of rows. */
export function unpacksPanels(target: MatmulTarget): boolean {
  return (nativeSpace(target)?.unpacked.length ?? 0) > 0;
}

/** WebAssembly's compilers schedule by themselves; kernels of AMX tiles, SMMLA and unpacked row panels have no knobs. */
export function hasKnobs({ amx, i8mm, unpacked }: MatmulVariant, target: MatmulTarget): boolean {
  return nativeSpace(target) !== undefined && !amx && !i8mm && !unpacked;
}

export function withKnobs(variant: MatmulVariant, knobs: Knobs): MatmulVariant {
  const whole = { ...variant, knobs };
  return { ...whole, id: idOf(whole) };
}

/**
 * The register tile where nothing was measured on this machine. The fastest on Sapphire Rapids (16 registers, splat loads
 * free) is 8x4, and 8x6 for floats, which keep only their sums; on Neoverse-N1 (32 registers, splat loads cost a slot) 16x4
 * with replicated activations. Floats were not measured there: 16x4 has the fewest splat loads per sum.
 */
function defaultTile(dtype: string, tokens: number, target: MatmulTarget): MatmulVariant {
  const packing = packingOf(dtype);
  if (target.amx && packing && tokens > WIDEST_IN_VECTORS) {
    // Mins in nibbles are so much work that AMX tiles make them no faster (measured with Q2_K).
    if (packing.layout("unsigned").scales !== "nibbles") return inAmxTiles;
  }
  if (target.i8mm && packing && tokens >= FEWEST_IN_PAIRS) return inPairs;
  const native = nativeSpace(target);
  if (native) {
    const tile = packing ? native.usual.blocks : native.usual.floats;
    const isUnpacked =
      native.unpacked.length > 0 &&
      packing !== undefined &&
      tokens >= fewestUnpacked(packing.layout(target.dot4 ?? "signed"));
    return nativeTile(dtype, tile, target, isUnpacked);
  }
  if (packing && readsWords(packing, target)) {
    // Bytes need no unpacking that tokens would share, and all rows share a load of activations (Cascade Lake: 1.07 times as fast).
    const isPlain = target.dot4 === "i7" && packing.layout(target.dot4).bits === 8;
    return variantById(isPlain ? "16x2.words" : "8x4.words")!;
  }
  const isWide = target.vectorRegisters >= 32;
  // All tokens share the unpacked quants, and each one's sums are short-lived: Q6_K 1.18 times as fast as with 8x4, Q2_K 1.09.
  if (packing && tilesByToken(packing, target, 2, 8)) return variantById("8x8.compact")!;
  if (packing) return variantById(isWide ? "16x4.replicated" : "8x4.compact")!;
  return variantById(isWide ? "16x4.compact" : "8x6.compact")!;
}

/** That register tile, or one of fewer tokens whose sums fit the registers with this type. */
function nativeTile(
  dtype: string,
  [rows, most]: Tile,
  target: MatmulTarget,
  unpacked: boolean,
): MatmulVariant {
  const some = { dtype, n: 16, k: 256 };
  const fitting = matmulVariants(target).filter(
    (one) =>
      one.rows === rows &&
      one.tokens > 1 &&
      one.tokens <= most &&
      !one.streamed &&
      !one.amx &&
      !one.i8mm &&
      one.unpacked === unpacked &&
      acceptsProblem(one, some, target) === true,
  );
  return fitting.at(-1) ?? variantById(`${DEFAULT_STREAMS}s.compact`, target)!;
}

/**
 * The default for `tokens` tokens. Few tokens stream: two to four are 1.5 to 1.9 times as fast as one row panel at a time (one
 * thread, AVX-512). Neoverse-N1: docs/inside/arm64.md.
 */
export function defaultVariant(dtype: string, tokens: number, target: MatmulTarget): MatmulVariant {
  const tile = defaultTile(dtype, tokens, target);
  const packing = packingOf(dtype);
  const most = nativeSpace(target)?.mostStreamed ?? MOST_STREAMED_IN_WASM;
  if (!packing || tokens > most || tile.amx || tile.i8mm || tile.unpacked) return tile;
  const { spanBlocks } = packing.layout(target.dot4 ?? "signed");
  const streamed = matmulVariants(target).findLast(
    (one) =>
      one.streamed &&
      tokens % one.tokens === 0 &&
      // If several blocks share a header, sums go through memory at its end, and tiles of 8 rows are as fast.
      (spanBlocks === 1 || one.streams > 1) &&
      (one.tokens === tokens || one.streams === 1) &&
      one.replicated === tile.replicated &&
      one.words === tile.words &&
      acceptsProblem(one, { dtype, n: 16, k: 256 }, target) === true,
  );
  return streamed ?? tile;
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

/** The index of a variant in a list; appends it where it is missing. */
export function indexIn(variants: MatmulVariant[], wanted: MatmulVariant): number {
  const known = variants.findIndex(({ id }) => id === wanted.id);
  return known >= 0 ? known : variants.push(wanted) - 1;
}

/**
 * The variant that runs the same kernels for `tokens` tokens: a token tile that they do not fill is computed by the
 * kernels of a narrower one. A measurement of one holds for the other.
 */
export function effectiveVariant(
  variant: MatmulVariant,
  tokens: number,
  target?: MatmulTarget,
): MatmulVariant {
  if (variant.tokens <= tokens || !variant.shared) return variant;
  const rows = tokens === 1 ? 16 : variant.rows;
  // Only full token tiles stream, and only wide ones are computed in AMX tiles.
  const amx = variant.amx && tokens > WIDEST_IN_VECTORS;
  return variantById(idOf({ ...variant, rows, tokens, streamed: false, amx }), target) ?? variant;
}

/** True where the variant can compute the problem on this processor, otherwise the reason. */
export function acceptsProblem(
  variant: MatmulVariant,
  { dtype, n }: MatmulProblem,
  target: MatmulTarget,
): true | string {
  const { replicated, words, streamed, shared, amx, i8mm, unpacked } = variant;
  const { vectorRegisters } = target;
  const packing = packingOf(dtype);
  if (!packing && replicated)
    return `activations for ${dtype} weights are floats, which are not replicated`;
  if (words && (!packing || !readsWords(packing, target)))
    return `${dtype} weights are not multiplied as words`;
  if (!packing && streamed) return `${dtype} weights are read as one stream`;
  if (!packing && amx) return `weights of ${dtype} are floats, and AMX tiles multiply bytes`;
  if (!packing && unpacked) return `weights of ${dtype} are floats, which are not packed`;
  if (amx && !target.amx) return "this processor has no AMX tiles";
  if (!packing && i8mm) return `weights of ${dtype} are floats, and i8mm multiplies bytes`;
  if (i8mm && !target.i8mm) return "this processor has no i8mm";
  const isNative = nativeSpace(target) !== undefined;
  const sharesQuants =
    packing !== undefined && tilesByToken(packing, target, variant.rows / 4, variant.tokens);
  const live = isNative
    ? nativeVectors(variant, dtype, target)
    : liveVectors(variant, sharesQuants && !streamed);
  // On WebAssembly, spilled sums are touched once per block: twice the registers still pays off, more does not.
  if (live > (isNative ? 1 : 2) * vectorRegisters) {
    return `keeps ${live} vectors alive, this processor has ${vectorRegisters} registers`;
  }
  if (!shared && n > SERIAL_ROWS) return `${n} rows are enough to split among threads`;
  return true;
}

/** Rows up to which one thread may be faster than waking the others. */
const SERIAL_ROWS = 1024;

/**
 * Vectors that are live at once on WebAssembly: integer and float sums of the register tile, the quants of its rows and one
 * token's activations. The float sums of several streams do not fit any processor's registers and stay in the cache.
 */
function liveVectors({ rows, tokens, streamed }: MatmulVariant, isByToken: boolean): number {
  const groups = rows / 4;
  if (isByToken) return groups * tokens + HELD_QUANTS + 2 * groups;
  return (streamed ? 1 : 2) * groups * tokens + 2 * groups + 1;
}

/**
 * Groups of a row panel that machine code for one token computes at once. Codebooks and dot products of signed bytes need
 * registers of their own, of which there are few with vectors of 32 bytes.
 */
export function groupsAtOnce(
  { lookup, widened }: Pick<QuantLayout, "lookup" | "widened">,
  width: number,
): number {
  return width === 32 && (lookup || widened) ? 1 : 64 / width;
}

/** Whether WebAssembly's kernels of a register tile compute their sums token by token (word-dots.ts). */
function tilesByToken(
  packing: Packing,
  target: MatmulTarget,
  groups: number,
  tokens: number,
): boolean {
  const { dot4 = "signed" } = target;
  if (nativeSpace(target)) return false;
  const quants = packing.layout(dot4);
  return isByToken({ ...quants, products: productsFor(quants, dot4) }, groups, tokens);
}

/** Whether products are made of activations as words, or as magnitudes and signs. */
function readsWords(packing: Packing, target: MatmulTarget): boolean {
  const { dot4 = "signed" } = target;
  const products = nativeSpace(target) ? "fours" : productsFor(packing.layout(dot4), dot4);
  return products === "words" || products === "signs";
}

/**
 * The same for machine code, which cannot spill: the most of all kernels of the variant. The lowerings decide in the end;
 * test/kernels/native-variants.test.ts checks this estimate against them.
 */
function nativeVectors(
  { rows, tokens: inTile, streams, streamed, amx, i8mm, unpacked }: MatmulVariant,
  dtype: string,
  { width = 16, dot4 = "signed" }: MatmulTarget,
): number {
  const layout = packingOf(dtype)?.layout(dot4);
  // AMX tiles leave vectors free: the narrower token tiles, computed in vectors, need the most.
  const tokens = amx ? WIDEST_IN_VECTORS : inTile;
  const perTile = 64 / width;
  const groups = (4 * rows) / width;
  if (!layout) return Math.max((streams + 1) * perTile, groups * (tokens + 1)) + 1;
  // Beside the sums: for each group the vector loaded last and the quants unpacked from it; activations, codebook, scratch.
  const forDot = dot4 === "i7" ? (layout.widened ? 2 : 1) : 0;
  const inGroup = layout.bits === 8 ? 1 : 2;
  const others = (atOnce: number, isUnpacked = false) =>
    isUnpacked ? atOnce + 1 : inGroup * atOnce + 1 + (layout.lookup ? 1 : 0) + forDot;
  // At the end of a span, mins are added to its sums: four vectors of them, for two tokens at a time.
  const hasMins = layout.hasMin && layout.spanBlocks === 8 && width < 64;
  const [fixed, perToken] = layout.scales === "nibbles" ? [3, 4] : [5, 2];
  const most = (sums: number, ofTokens: number, at: number, isUnpacked = false) => {
    const atEnd = hasMins ? fixed + perToken * Math.min(2, ofTokens) + forDot : 0;
    return sums + Math.max(at * ofTokens + others(at, isUnpacked), atEnd);
  };
  const vector = most(streams * perTile, 1, groupsAtOnce(layout, width));
  // The SMMLA kernels fit as they are (test/kernels/arm64-pairs.test.ts).
  if (tokens === 1 || i8mm) return vector;
  const matrix = most(groups * tokens, tokens, groups, unpacked);
  const inStreams = streamed ? most(streams * perTile * tokens, tokens, groups) : 0;
  // Sums that start as floats (ops/matmul/float-sums.ts) are all there when the scales of all groups are.
  const isFloat = width === 16 && layout.offset === 0 && !unpacked;
  const inFloats = isFloat ? 2 * groups * tokens + groups + 5 : 0;
  return Math.max(vector, matrix, inStreams, inFloats);
}

function variant(
  parts: Omit<
    MatmulVariant,
    "id" | "shared" | "streamed" | "amx" | "i8mm" | "unpacked" | "words"
  > & {
    shared?: boolean;
    words?: boolean;
    unpacked?: boolean;
    streamed?: boolean;
    amx?: boolean;
    i8mm?: boolean;
  },
): MatmulVariant {
  const usual = { shared: true, streamed: false, amx: false, i8mm: false, unpacked: false };
  const whole = { ...usual, words: false, ...parts };
  return { ...whole, id: idOf(whole) };
}

function idOf(parts: Omit<MatmulVariant, "id">): string {
  const { rows, tokens, replicated, words, streams, streamed, amx, i8mm, unpacked, shared } = parts;
  const { knobs = {} } = parts;
  const shape = [
    ...(tokens > 1 ? [`${rows}x${tokens}`] : []),
    ...(tokens === 1 || streamed ? [`${streams}s`] : []),
    ...(amx ? ["amx"] : []),
    ...(i8mm ? ["i8mm"] : []),
    ...(unpacked ? ["unpacked"] : []),
  ];
  const style = replicated ? "replicated" : words ? "words" : "compact";
  return [...shape, style, ...(shared ? [] : ["serial"]), ...knobWords(knobs)].join(".");
}
