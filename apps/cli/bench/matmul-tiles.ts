// `lantern bench matmul --tile`: the flag, and a table of register tiles for each opt level, type and thread count, rows of the
// weights down and tokens across.

import { InvalidArgumentError } from "commander";
import { summarize } from "../../../src/base/measure.ts";
import {
  type MatmulBenchOptions,
  matmulTiles,
  type RegisterTile,
  UsageError,
} from "../../../src/index.ts";
import { plural } from "../text.ts";
import { type Entrant, headText, type MatmulReport } from "./matmul-report.ts";
import { rateText } from "./measure.ts";
import { renderTable } from "./render.ts";
import { seedType } from "./seed-table.ts";

/** "5x4,4x4" or "all". */
export function tilesFlag(text: string): RegisterTile[] | "all" {
  if (text === "all") return text;
  const names = new Set(text.split(","));
  return Array.from(names, (name) => {
    const [, rows, tokens] = /^(\d{1,3})x(\d{1,3})$/.exec(name) ?? [];
    const tile = { rows: Number(rows), tokens: Number(tokens) };
    if (tile.rows > 0 && tile.tokens > 0) return tile;
    throw new InvalidArgumentError(
      'Expected register tiles, rows x tokens, separated by commas, as in 5x4,4x4; or "all".',
    );
  });
}

/** The wanted tiles, after a check that the opt level has them; [undefined]: its own choice. */
export async function checkedTiles(
  wanted: readonly RegisterTile[] | "all" | undefined,
  shape: Pick<MatmulBenchOptions, "type" | "n" | "k" | "m" | "level">,
): Promise<readonly (RegisterTile | undefined)[]> {
  const known = await matmulTiles(shape);
  if (!wanted) return [undefined];
  const { type, level } = shape;
  if (known.length === 0) {
    throw new UsageError(
      `--tile: opt level ${level} has no register tiles. Give --level 2, 3 or 4`,
    );
  }
  if (wanted === "all") {
    const most = level === 2 ? seedType(type).mostTile : Infinity;
    return known.filter(({ rows, tokens }) => rows <= most && tokens <= most);
  }
  for (const { rows, tokens } of wanted) {
    if (known.some((one) => one.rows === rows && one.tokens === tokens)) continue;
    const last = known.at(-1)!;
    const names = known.map((one) => `${one.rows}x${one.tokens}`).join(", ");
    const expected = level === 2 ? `1x1 to ${last.rows}x${last.tokens}` : `one of ${names}`;
    throw new UsageError(
      `--tile: got ${rows}x${tokens}, but for ${type} opt level ${level} has ${expected}`,
    );
  }
  return wanted;
}

export function tilesText(report: MatmulReport): string {
  const { flags, entrants } = report;
  const groups = new Map<string, Entrant[]>();
  for (const one of entrants) {
    const name = `opt level ${one.level}, ${one.type}, ${plural(one.threads, "thread")}`;
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  const tables = Array.from(groups, ([name, ones]) => {
    const best = ones.reduce((a, b) => (speedOf(b) > speedOf(a) ? b : a));
    const fastest = `fastest: ${best.tile!.rows}x${best.tile!.tokens}, ${rateText(speedOf(best))} GFLOPS`;
    return `\n${name}; ${fastest}\n\n${grid(ones, flags.markdown ?? false)}`;
  });
  return headText(report) + tables.join("");
}

function speedOf({ gflops }: Entrant): number {
  return summarize(gflops).median;
}

/** A table with the rows of the tile down, tokens across. */
function grid(entrants: readonly Entrant[], markdown: boolean): string {
  const sides = (side: keyof RegisterTile) =>
    [...new Set(entrants.map(({ tile }) => tile![side]))].toSorted((a, b) => a - b);
  const [rows, tokens] = [sides("rows"), sides("tokens")];
  const cells = rows.map((row) => [
    plural(row, "row"),
    ...tokens.map((count) => {
      const found = entrants.find(({ tile }) => tile!.rows === row && tile!.tokens === count);
      return found ? rateText(speedOf(found)) : "-";
    }),
  ]);
  const header = ["GFLOPS", ...tokens.map((count) => plural(count, "token"))];
  return renderTable({ header, rows: cells, right: tokens.map((_, i) => i + 1) }, markdown);
}
