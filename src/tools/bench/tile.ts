// Register tiles that a matmul can be measured with: which each opt level has, and how a backend is asked for one.

import type { OptLevel, RegisterTile } from "../../api/api.ts";
import type { BackendRequest } from "../../backends/table.ts";
import { UsageError } from "../../base/errors.ts";
import { detectWasmFeatures } from "../../kernels/features.ts";
import {
  acceptsProblem,
  defaultVariant,
  type MatmulProblem,
  type MatmulVariant,
  matmulVariants,
} from "../../kernels/matmul-variants.ts";
import { MOST_ROW_TILE } from "../../kernels/ops/matmul/row-tiles.ts";
import { type KernelTarget, wasmTarget } from "../../kernels/target.ts";
import type { OptLevelChoice } from "../../machine/native.ts";

export interface TiledProblem extends MatmulProblem {
  /** Tokens. */
  readonly m: number;
  readonly level: OptLevel;
  readonly native: OptLevelChoice["native"];
}

/** All register tiles for a problem. Opt level 2 allows any tile; the seed of its experiment tried up to 5x5. */
export function registerTiles(problem: TiledProblem): RegisterTile[] {
  if (problem.level === 1) return [];
  if (problem.level === 2) return square(MOST_ROW_TILE);
  return panelTiles(problem).map(({ rows, tokens }) => ({ rows, tokens }));
}

/** The part of a backend's request that gives its matmuls this tile. */
export function tileRequest(
  tile: RegisterTile | undefined,
  problem: TiledProblem,
): Pick<BackendRequest, "rowTile" | "choose"> {
  if (!tile) return {};
  const isIt = ({ rows, tokens }: RegisterTile) => rows === tile.rows && tokens === tile.tokens;
  if (!registerTiles(problem).some(isIt)) throw new UsageError(refusal(tile, problem));
  if (problem.level === 2) return { rowTile: tile };
  const variant = panelTiles(problem).find(isIt)!;
  const byTokens = Array.from({ length: problem.m + 1 }, () => 0);
  return { choose: () => ({ variants: [variant], byTokens, notes: [] }) };
}

function refusal({ rows, tokens }: RegisterTile, problem: TiledProblem): string {
  const { level, dtype } = problem;
  const known = registerTiles(problem).map((one) => `${one.rows}x${one.tokens}`);
  const expected =
    level === 1
      ? "opt level 1 has no register tiles. Use --level 2, 3 or 4"
      : level === 2
        ? `expected rows and tokens from 1 to ${MOST_ROW_TILE}`
        : `opt level ${level} has these for ${dtype}: ${known.join(", ")}. --level 2 has any up to ${MOST_ROW_TILE}x${MOST_ROW_TILE}`;
  return `tile: got ${rows}x${tokens}, but ${expected}`;
}

function square(most: number): RegisterTile[] {
  const sides = Array.from({ length: most }, (_, index) => index + 1);
  return sides.flatMap((rows) => sides.map((tokens) => ({ rows, tokens })));
}

/** Variants over row panels that differ only in their register tile. */
function panelTiles({ native, m, ...problem }: TiledProblem): MatmulVariant[] {
  const target = targetOf(native);
  const { replicated, words } = defaultVariant(problem.dtype, m, target);
  return matmulVariants(target).filter(
    (one) =>
      one.tokens > 1 &&
      one.replicated === replicated &&
      one.words === words &&
      one.shared &&
      !one.streamed &&
      !one.amx &&
      !one.i8mm &&
      !one.unpacked &&
      acceptsProblem(one, problem, target) === true,
  );
}

function targetOf(native: OptLevelChoice["native"]): KernelTarget {
  return typeof native === "string" ? wasmTarget(detectWasmFeatures()) : native.target;
}
