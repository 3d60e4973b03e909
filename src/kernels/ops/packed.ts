// How weights and activations lie in memory for the tiled matmul kernels: the layouts, as data.
//
// Weights. Four rows (as many as a vector has 32-bit lanes) form a group, four groups a tile. The columns of a tile are
// cut into spans (32 columns; 256 for the K types), and a tile is, in this order:
//   span -> group -> { header, block, block, ... }
//   header  K types only: f32 x 4 scales of the scales, f32 x 4 scales of the minimums (where there are any)
//   block   32 columns: scales, minimums, codes
//     scales    f32 x 4, one for each row; K types: one byte for each row and `scaleCols` columns
//     minimums  the same, where the type has them
//     codes     nibbles: 64 bytes; vector v holds columns 4v..4v+3 in the low and 16+4v..16+4v+3 in the high nibbles
//               bytes:  128 bytes; vector v holds columns 4v..4v+3
// A vector's bytes are row 0's four columns, row 1's, row 2's, row 3's: one dot4 serves four rows, and a kernel walks
// one pointer. A code u stands for scale * (u - offset) + minimum (or level[u] for u).
//
// Activations. One token's block of 32 columns:
//   f32 scale, i32 sum of the codes, f32 scale * sum, i32 sum of the first 16, then 32 signed codes
// or, replicated, the same with every field and every 4 codes repeated in a vector's four lanes.
// The blocks of T tokens that a kernel computes together lie behind each other: tile -> block -> token.

/** Rows of a group: the 32-bit lanes of a 16-byte vector. */
export const GROUP_ROWS = 4;
export const GROUPS_PER_TILE = 4;
export const TILE_ROWS: number = GROUP_ROWS * GROUPS_PER_TILE;
/** Columns of a block. */
export const BLOCK_COLS = 32;

export interface BlockLayout {
  readonly codes: "nibbles" | "bytes";
  /** Subtracted from every code; taken out once per scale through the sum of the activations. */
  readonly offset: number;
  readonly hasMin: boolean;
  /** "f32": as they are; "bytes": multiplied by the header's (signed bytes). */
  readonly scales: "f32" | "bytes";
  /** Columns that share a scale: 32, or 16. */
  readonly scaleCols: 32 | 16;
  /** Blocks of a span. */
  readonly spanBlocks: number;
  /** Codes are indices into a table of 16 bytes that is handed to the kernel. */
  readonly lookup: boolean;
  /** The kernel must use dot4_ss: the codes do not fit what this target's dot4 takes. */
  readonly widened: boolean;
}

export function scalesBytes(layout: BlockLayout): number {
  const each = layout.scales === "f32" ? 16 : 4;
  const parts = BLOCK_COLS / layout.scaleCols;
  return each * parts * (layout.hasMin ? 2 : 1);
}

export function blockBytes(layout: BlockLayout): number {
  return scalesBytes(layout) + (layout.codes === "nibbles" ? 64 : 128);
}

export function headerBytes(layout: BlockLayout): number {
  if (layout.scales === "f32") return 0;
  return layout.hasMin ? 32 : 16;
}

/** Bytes of one group's span. */
export function groupSpanBytes(layout: BlockLayout): number {
  return headerBytes(layout) + layout.spanBlocks * blockBytes(layout);
}

/** Bytes of a tile of `cols` columns. */
export function tileBytes(layout: BlockLayout, cols: number): number {
  const spans = cols / (BLOCK_COLS * layout.spanBlocks);
  return spans * GROUPS_PER_TILE * groupSpanBytes(layout);
}

/** The fields in front of the codes of an activation block, in order. */
export const ACTIVATION_FIELDS = { scale: 0, sum: 1, scaledSum: 2, firstSum: 3 } as const;

export function activationBlockBytes(replicated: boolean): number {
  return replicated ? 4 * 16 + 8 * 16 : 4 * 4 + BLOCK_COLS;
}
