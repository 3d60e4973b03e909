// Makes an importance matrix: a model reads a text window by window, and the inputs of its matrices are added up. By llama.cpp's
// method: windows of equal length, each from an empty context with BOS replacing its first token (if the model starts texts with
// one), all tokens counted, only the matrices of layers.

import type { Model } from "../../api/api.ts";
import { UsageError } from "../../base/errors.ts";
import { plural } from "../../base/plural.ts";
import type { MatrixSums } from "./importance.ts";

export interface ImatrixInput {
  readonly model: Model;
  readonly text: string;
  readonly window: number;
  /** The most windows to read. */
  readonly chunks: number | undefined;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((window: number, windows: number) => void) | undefined;
}

export interface CollectedSums {
  readonly matrices: MatrixSums[];
  readonly windows: number;
}

/** Prefix of the matrices of layers; others depend little on it, and get many bits anyway. */
const layerPrefix = "blk.";

export async function collectInputs(input: ImatrixInput): Promise<CollectedSums> {
  const { model, window, signal } = input;
  const tokens = await model.tokenize(input.text, { parseSpecial: false });
  const most = Math.floor(tokens.length / window);
  if (most < 1) {
    throw new UsageError(
      `imatrix: the text has ${plural(tokens.length, "token")}, expected at least one window of ${window}. Give a longer text, or shorter windows (contextSize)`,
    );
  }
  const windows = Math.min(most, input.chunks ?? most);
  const collected = new Map<string, MatrixSums>();
  for (let i = 0; i < windows; i++) {
    const piece = tokens.slice(i * window, (i + 1) * window);
    const sums = await model.inputSums(piece, { firstIsBos: true, ...(signal && { signal }) });
    for (const { name, squares, tokens: count, expertTokens } of sums) {
      const counts = expertTokens ?? Float32Array.of(count);
      if (name.startsWith(layerPrefix)) add(collected, name, squares, counts);
    }
    input.onProgress?.(i + 1, windows);
  }
  return { matrices: [...collected.values()], windows };
}

function add(
  collected: Map<string, MatrixSums>,
  name: string,
  squares: Float32Array,
  counts: Float32Array,
): void {
  const known = collected.get(name);
  if (!known) {
    collected.set(name, { name, sums: squares.slice(), counts: counts.slice() });
    return;
  }
  for (let i = 0; i < squares.length; i++) known.sums[i]! += squares[i]!;
  for (let i = 0; i < counts.length; i++) known.counts[i]! += counts[i]!;
}
