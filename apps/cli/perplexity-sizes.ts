// Several models on one text, as `lantern perplexity` prints them: a table by size, JSON, and the points of a picture.
// Pure functions.

import type { ModelInfo, PerplexityResult, QualityPoint } from "../../src/index.ts";
import { bytesText, tableText } from "./text.ts";

/** A model's file, its info, and its measurement. */
export interface MeasuredModel {
  readonly path: string;
  readonly info: Pick<ModelInfo, "name" | "weightType" | "weightBytes" | "parameters">;
  readonly result: PerplexityResult;
}

const typeInName = /(?:^|[-._])((?:I?Q\d|TQ\d|MXFP4|B?F16|F32)[\w]*)$/i;

/** "Q4_K_M": the end of the file's name, since a mix of types has no other name; otherwise the most common type. */
export function typeLabel({ path, info }: Pick<MeasuredModel, "path" | "info">): string {
  const file = path
    .split(/[\\/]/)
    .at(-1)!
    .replace(/\.gguf$/i, "");
  return (typeInName.exec(file)?.[1] ?? info.weightType).toUpperCase();
}

export function qualityPoint(measured: MeasuredModel): QualityPoint {
  const { info, result } = measured;
  return {
    model: info.name,
    label: typeLabel(measured),
    bytesPerWeight: info.weightBytes / info.parameters,
    perplexity: result.perplexity.value,
    error: result.perplexity.error,
  };
}

/** The smallest first. */
export function sizesText(models: readonly MeasuredModel[]): string {
  const header = ["model", "type", "size", "bytes per weight", "perplexity", ""];
  const rows = models
    .toSorted((a, b) => a.info.weightBytes - b.info.weightBytes)
    .map((one) => [
      one.info.name,
      typeLabel(one),
      bytesText(one.info.weightBytes),
      (one.info.weightBytes / one.info.parameters).toFixed(3),
      one.result.perplexity.value.toFixed(4),
      `± ${one.result.perplexity.error.toFixed(4)}`,
    ]);
  return tableText([header, ...rows], [2, 3, 4]);
}

export function sizeJson(measured: MeasuredModel): object {
  const { path, info } = measured;
  return {
    file: path,
    model: info.name,
    type: typeLabel(measured),
    bytes: info.weightBytes,
    bytes_per_weight: info.weightBytes / info.parameters,
  };
}
