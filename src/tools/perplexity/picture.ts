// Quality by size as an SVG chart: bytes per weight against perplexity, one point for each file, a line for each model,
// and labels that overlap neither each other nor a point. A pure function of its points; the web app draws with it, too.

import { UsageError } from "../../base/errors.ts";
import {
  escapeText,
  pictureColors,
  px,
  roundUp,
  svgLine,
  svgPath,
  svgText,
} from "../../base/svg.ts";

export interface QualityPoint {
  /** Points of one model are joined by a line. */
  readonly model: string;
  /** The label: "Q4_K_M". */
  readonly label: string;
  readonly bytesPerWeight: number;
  readonly perplexity: number;
  /** Standard error of the perplexity. */
  readonly error?: number | undefined;
}

const [width, height] = [860, 520];
const frame = { left: 70, right: width - 30, top: 78, bottom: height - 58 };
const colors = 6;
const [radius, letter, line] = [4.5, 7, 14];
/** Perplexities that differ by more are shown on a logarithmic axis. */
const logRatio = 4;

interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** The position of a point's label: the start of its text, and its baseline. */
export interface PlacedLabel extends Box {
  readonly x: number;
  readonly y: number;
}

export function qualityPicture(points: readonly QualityPoint[]): string {
  checkPoints(points);
  const models = [...new Set(points.map(({ model }) => model))];
  const x = xAxis(points.map(({ bytesPerWeight }) => bytesPerWeight));
  const y = yAxis(points.map(({ perplexity }) => perplexity));
  const at = points.map((point) => [x.at(point.bytesPerWeight), y.at(point.perplexity)] as const);
  const labels = placeLabels(
    at,
    points.map(({ label }) => label),
  );
  const color = (model: string): string => `var(--c${models.indexOf(model) % colors})`;
  const title = models.length === 1 ? `${models[0]}: perplexity by size` : "Perplexity by size";
  const lines = models.map((model) => {
    const own = points.flatMap((point, i) => (point.model === model ? [at[i]!] : []));
    return svgPath(
      own.toSorted(([a], [b]) => a - b),
      `stroke: ${color(model)}; opacity: 0.45`,
    );
  });
  const dots = points.map((point, i) => {
    const [cx, cy] = at[i]!;
    const { perplexity, error, bytesPerWeight } = point;
    // No error bars: files on one text share most of their error, so bars would hide the difference.
    const spread = error === undefined ? "" : ` ± ${error.toFixed(3)}`;
    const tip = `${point.model} ${point.label}: ${bytesPerWeight.toFixed(3)} bytes per weight, perplexity ${perplexity.toFixed(3)}${spread}`;
    return `<g><title>${escapeText(tip)}</title><circle cx="${px(cx)}" cy="${px(cy)}" r="${radius}" style="fill: ${color(point.model)}"/></g>`;
  });
  const texts = points.map(
    ({ label }, i) =>
      leader(at[i]!, labels[i]!) + svgText(labels[i]!.x, labels[i]!.y, label, "label"),
  );
  const legend = models.length === 1 ? [] : legendOf(models, color);
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeText(title)}">`,
    `<style>${pictureColors}</style>`,
    `<rect class="paper" width="${width}" height="${height}"/>`,
    svgText(frame.left, 28, title, "title"),
    ...legend,
    ...gridOf(x, y),
    ...lines,
    ...dots,
    ...texts,
    svgText((frame.left + frame.right) / 2, height - 14, "bytes per weight", "dim", "middle"),
    svgText(frame.left - 8, frame.top - 12, `perplexity${y.isLog ? " (logarithmic)" : ""}`, "dim"),
    "</svg>",
  ];
  return `${parts.join("\n")}\n`;
}

function checkPoints(points: readonly QualityPoint[]): void {
  if (points.length === 0) throw new UsageError("picture: got no points, expected at least one");
  for (const { label, bytesPerWeight, perplexity } of points) {
    const isNumber = (value: number): boolean => Number.isFinite(value) && value > 0;
    if (isNumber(bytesPerWeight) && isNumber(perplexity)) continue;
    throw new UsageError(
      `picture: ${label}: got ${bytesPerWeight} bytes per weight and a perplexity of ${perplexity}, expected numbers above 0`,
    );
  }
}

interface Axis {
  readonly ticks: readonly number[];
  readonly isLog: boolean;
  at(value: number): number;
}

/** From 0, so that half the size is half the way. */
function xAxis(values: readonly number[]): Axis {
  const step = roundUp(Math.max(...values) / 8);
  const end = step * Math.ceil((Math.max(...values) * 1.06) / step);
  return {
    ticks: Array.from({ length: Math.round(end / step) + 1 }, (_, i) => i * step),
    isLog: false,
    at: (value) => frame.left + (value / end) * (frame.right - frame.left),
  };
}

/** Around the values: differences matter, and perplexity never comes near 0. */
function yAxis(values: readonly number[]): Axis {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const isLog = high / low > logRatio;
  const room = high - low || high * 0.1;
  const from = isLog ? low / 1.2 : Math.max(0, low - 0.15 * room);
  const to = isLog ? high * 1.2 : high + 0.15 * room;
  const share = (value: number): number =>
    isLog ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
  const step = roundUp((to - from) / 6);
  const linear = Array.from({ length: 12 }, (_, i) => (Math.ceil(from / step) + i) * step);
  const powers = Array.from({ length: 40 }, (_, i) => [1, 2, 5][i % 3]! * 10 ** Math.floor(i / 3));
  return {
    ticks: (isLog ? powers : linear).filter((value) => value >= from && value <= to),
    isLog,
    at: (value) => frame.bottom - share(value) * (frame.bottom - frame.top),
  };
}

function gridOf(x: Axis, y: Axis): string[] {
  const number = (value: number): string => String(Number(value.toPrecision(6)));
  return [
    ...x.ticks.flatMap((value) => [
      svgLine(x.at(value), frame.top, x.at(value), frame.bottom, "grid"),
      svgText(x.at(value), frame.bottom + 18, number(value), "dim", "middle"),
    ]),
    ...y.ticks.flatMap((value) => [
      svgLine(frame.left, y.at(value), frame.right, y.at(value), "grid"),
      svgText(frame.left - 8, y.at(value) + 4, number(value), "dim", "end"),
    ]),
  ];
}

function legendOf(models: readonly string[], color: (model: string) => string): string[] {
  let left = frame.left;
  return models.map((model) => {
    const text = `<text x="${px(left)}" y="48" style="fill: ${color(model)}">${escapeText(model)}</text>`;
    left += textWidth(model) + 18;
    return text;
  });
}

/** A thin line from a point to a label that is not beside it. */
function leader(
  [cx, cy]: readonly [number, number],
  { left, right, top, bottom }: PlacedLabel,
): string {
  const near = [Math.min(Math.max(cx, left), right), Math.min(Math.max(cy, top), bottom)] as const;
  if (Math.hypot(near[0] - cx, near[1] - cy) < 2.5 * radius) return "";
  return svgLine(cx, cy, near[0], near[1], "grid");
}

function textWidth(text: string): number {
  return text.length * letter;
}

/** Directions from the point, best first: right, left, above, below, then between them. */
const directions: readonly (readonly [number, number])[] = [
  [1, 0],
  [-1, 0],
  [0, -1],
  [0, 1],
  [1, -1],
  [-1, -1],
  [1, 1],
  [-1, 1],
];
/** The farthest that labels are moved away from their points, in lines of text. */
const mostDistance = 24;

/** A position for each label: the nearest that is free of labels, points and the frame's edges. */
export function placeLabels(
  points: readonly (readonly [number, number])[],
  labels: readonly string[],
): PlacedLabel[] {
  const taken: Box[] = points.map(([x, y]) => around(x, y, radius));
  return points.map(([x, y], i) => {
    const size = textWidth(labels[i]!);
    const candidates = Array.from({ length: mostDistance }, (_, far) =>
      directions.map(([dx, dy]) => labelAt(x, y, dx, dy, size, radius + 3 + (far * line) / 2)),
    ).flat();
    const free = candidates.find(
      (box) => isInside(box) && !taken.some((other) => overlaps(box, other)),
    );
    // With hundreds of points there may be no free position left.
    const placed = free ?? candidates[0]!;
    taken.push(placed);
    return placed;
  });
}

function labelAt(
  x: number,
  y: number,
  dx: number,
  dy: number,
  size: number,
  distance: number,
): PlacedLabel {
  const left = x + dx * distance + (dx === 0 ? -size / 2 : dx < 0 ? -size : 0);
  const middle = y + dy * (distance + line / 2);
  const box = { left, right: left + size, top: middle - line / 2, bottom: middle + line / 2 };
  return { ...box, x: left, y: middle + 4 };
}

function around(x: number, y: number, by: number): Box {
  return { left: x - by, right: x + by, top: y - by, bottom: y + by };
}

function isInside({ left, right, top, bottom }: Box): boolean {
  return left >= frame.left && right <= width && top >= frame.top - line && bottom <= frame.bottom;
}

function overlaps(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}
