// The chart of `lantern bench --plot`: tokens/s by the length of the prompt and by depth, each entrant a line of measured
// medians and a dashed line of limits. Axes are linear.

import { summarize } from "../../../src/base/measure.ts";
import {
  escapeText,
  pictureColors,
  px,
  roundUp,
  svgLine,
  svgPath,
  svgText,
} from "../../../src/base/svg.ts";
import type { BenchResult } from "./rounds.ts";

interface Series {
  name: string;
  /** By tokens of the prompt, or by depth. */
  points: { x: number; measured: number; limit: number | undefined }[];
}

interface Panel {
  title: string;
  axis: string;
  series: Series[];
}

const width = 860;
const panelHeight = 300;
const left = 70;
const right = 220;
const plotHeight = 200;

export function benchSvg(model: string, results: readonly BenchResult[]): string {
  const panels: Panel[] = [
    {
      title: "Prompt: tokens/s by length",
      axis: "tokens of the prompt",
      series: seriesOf(results, "prompt", "tokens"),
    },
    {
      title: "Generation: tokens/s by depth",
      axis: "tokens in the KV cache",
      series: seriesOf(results, "generation", "depth"),
    },
  ].filter(({ series }) => series.length > 0);
  const height = 50 + panels.length * panelHeight;
  const body = panels.map((panel, index) => panelSvg(panel, 50 + index * panelHeight)).join("");
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img"><title>${escapeText(model)}</title><style>${pictureColors}</style><rect width="${width}" height="${height}" class="paper"/>${svgText(left, 28, `${model}: measured, and what this machine allows (dashed)`, "title")}${body}</svg>\n`;
}

/** A line for each opt level and thread count, and for each value of the other number. */
function seriesOf(
  results: readonly BenchResult[],
  kind: BenchResult["kind"],
  x: "tokens" | "depth",
): Series[] {
  const all = new Map<string, Series>();
  for (const result of results) {
    if (result.kind !== kind) continue;
    const other = x === "tokens" ? `depth ${result.depth}` : `${result.tokens} tokens`;
    const name = `level ${result.level}, t=${result.threads}, ${other}`;
    const series = all.get(name) ?? { name, points: [] };
    all.set(name, series);
    const measured = summarize(result.samples).median;
    series.points.push({ x: result[x], measured, limit: result.limit?.tokensPerSecond });
  }
  for (const { points } of all.values()) points.sort((a, b) => a.x - b.x);
  return [...all.values()];
}

function panelSvg({ title, axis, series }: Panel, top: number): string {
  const points = series.flatMap((one) => one.points);
  const mostX = Math.max(1, ...points.map(({ x }) => x));
  const mostY = roundUp(
    Math.max(...points.map(({ measured, limit = 0 }) => Math.max(measured, limit))),
  );
  const bottom = top + 24 + plotHeight;
  const atX = (x: number) => left + (x / mostX) * (width - left - right);
  const atY = (y: number) => bottom - (y / mostY) * plotHeight;
  const grid = [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const y = atY(part * mostY);
    const label = String(Number((part * mostY).toPrecision(3)));
    return (
      svgLine(left, y, width - right, y, "grid") + svgText(left - 8, y + 4, label, "dim", "end")
    );
  });
  const ticks = [...new Set(points.map(({ x }) => x))].map((x) =>
    svgText(atX(x), bottom + 18, String(x), "dim", "middle"),
  );
  const lines = series.map(({ name, points: own }, index) => {
    const color = `stroke: var(--c${index % 6})`;
    const measured = own.map(({ x, measured: y }) => [atX(x), atY(y)] as const);
    const limits = own.flatMap(({ x, limit }) =>
      limit === undefined ? [] : [[atX(x), atY(limit)] as const],
    );
    const dots = measured.map(
      ([x, y]) =>
        `<circle cx="${px(x)}" cy="${px(y)}" r="3.5" style="fill: var(--c${index % 6})"/>`,
    );
    const label = svgText(width - right + 30, top + 40 + index * 18, name, "");
    const key = `<rect x="${width - right + 14}" y="${top + 30 + index * 18}" width="10" height="10" style="fill: var(--c${index % 6})"/>`;
    return [
      svgPath(measured, color),
      ...dots,
      ...(limits.length > 0 ? [svgPath(limits, `${color}; stroke-dasharray: 5 4`)] : []),
      key,
      label,
    ].join("");
  });
  const name = svgText((left + width - right) / 2, bottom + 38, axis, "dim", "middle");
  return [svgText(left, top + 10, title, ""), ...grid, ...ticks, ...lines, name].join("");
}
