// The perplexities that were measured since this page was opened, as points of a picture: several types of one model,
// on one text.

import type { QualityPoint } from "../../../../src/tools/perplexity/picture.ts";
import type { QuantizeReport } from "../api-types.ts";

const known = new Map<string, QualityPoint[]>();

/** Adds a report's two points, and returns all of its model and text; none without a text. */
export function qualityPoints(model: string, report: QuantizeReport): readonly QualityPoint[] {
  const { bytesBefore, bytesAfter, parameters, type, perplexity } = report;
  const { before, after } = perplexity;
  if (!before || !after) return [];
  // The same model has another perplexity on another text.
  const key = `${model} ${before.value}`;
  const points = known.get(key) ?? [];
  known.set(key, points);
  const add = (label: string, bytes: number, { value, error }: typeof before): void => {
    if (points.some((point) => point.label === label)) return;
    points.push({ model, label, bytesPerWeight: bytes / parameters, perplexity: value, error });
  };
  add("before", bytesBefore, before);
  add(type, bytesAfter, after);
  return points;
}
