// AMX tiles: their shapes, and how ops name them. AMX tiles are not registers of the IR, so an op on them has their numbers,
// shape or stride in its immediate, which is encoded and decoded here.

/** AMX tiles of a processor that has them, and their largest shape. */
const TILES = 8;
export const MOST_TILE_ROWS = 16;
export const MOST_TILE_BYTES = 64;

/**
 * The kind of a tile op's immediate: a tile; a tile and its shape; a tile and the bytes from one of its rows in memory to
 * the next; three tiles.
 */
export type TileImmediate = "tile" | "tile_shape" | "tile_stride" | "tiles";

/** Rows, and bytes of each. */
export interface TileShape {
  readonly rows: number;
  readonly bytes: number;
}

export function tileShape(tile: number, { rows, bytes }: TileShape): number {
  return tile + TILES * (rows + 256 * bytes);
}

export function shapeOfTile(imm: number): TileShape & { readonly tile: number } {
  const rest = Math.floor(imm / TILES);
  return { tile: imm % TILES, rows: rest % 256, bytes: Math.floor(rest / 256) };
}

export function tileStride(tile: number, stride: number): number {
  return tile + TILES * stride;
}

export function strideOfTile(imm: number): { readonly tile: number; readonly stride: number } {
  return { tile: imm % TILES, stride: Math.floor(imm / TILES) };
}

export function threeTiles(sum: number, a: number, b: number): number {
  return sum + TILES * (a + TILES * b);
}

export function tilesOf(imm: number): { sum: number; a: number; b: number } {
  return { sum: imm % TILES, a: Math.floor(imm / TILES) % TILES, b: Math.floor(imm / TILES ** 2) };
}

/** Why a number is not a valid immediate of this kind; undefined: it is valid. */
export function wrongTiles(kind: TileImmediate, imm: number): string | undefined {
  if (!Number.isInteger(imm) || imm < 0) return "expected a whole number";
  if (kind === "tile") return imm < TILES ? undefined : `tile ${imm}, expected 0 to ${TILES - 1}`;
  if (kind === "tiles") return imm < TILES ** 3 ? undefined : "expected three tiles";
  if (kind === "tile_stride") return undefined;
  const { rows, bytes } = shapeOfTile(imm);
  const isShape =
    rows > 0 && rows <= MOST_TILE_ROWS && bytes > 0 && bytes <= MOST_TILE_BYTES && bytes % 4 === 0;
  return isShape ? undefined : `${rows} rows of ${bytes} bytes, expected at most 16 of 64`;
}
