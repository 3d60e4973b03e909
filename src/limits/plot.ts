// A LimitsReport as an SVG chart: the least time for reading and computing a prompt over its length, where the
// bottleneck changes, and measured times on top. Both axes are logarithmic. With speculation, gain-panel.ts is below. It works on light and dark backgrounds: a
// style sheet in it selects the colours.

import { escapeText, px, svgLine, svgText } from "../base/svg.ts";
import { gainPanel, gainPanelHeight } from "./gain-panel.ts";
import type { MeasuredSpeed } from "./measured.ts";
import { type PrefillCount, prefillCountOf, prefillLimit } from "./prefill.ts";
import type { LimitsReport } from "./report.ts";
import type { Limit } from "./roofline.ts";

/** Milliseconds of a prompt by its length. */
interface Curve {
  readonly name: string;
  /** CSS classes. */
  readonly look: string;
  ms(tokens: number): number;
}

function curvesOf({ cost, device, counting }: LimitsReport): Curve[] {
  const limit = (tokens: number, count: PrefillCount): Limit =>
    prefillLimit(cost, device, tokens, count);
  const count = prefillCountOf[counting];
  const curves: Curve[] = [
    {
      name: "read",
      look: "read",
      ms: (tokens) => limit(tokens, count).bandwidthSeconds * 1000,
    },
    {
      name: "compute",
      look: "compute",
      ms: (tokens) => limit(tokens, count).arithmeticSeconds * 1000,
    },
  ];
  if (counting === "best") return curves;
  return [
    ...curves,
    {
      name: "read, cache shared",
      look: "read rough",
      ms: (tokens) => limit(tokens, "shared").bandwidthSeconds * 1000,
    },
    {
      name: "compute, all logits",
      look: "compute rough",
      ms: (tokens) => limit(tokens, "rough").arithmeticSeconds * 1000,
    },
  ];
}

const width = 860;
const height = 560;
const left = 70;
const right = 170;
const top = 88;
const bottom = 58;
const samples = 160;

const style = `
  svg { --ink: #1b1f24; --dim: #626b76; --grid: #dde2e8; --paper: #ffffff; --read: #0b6bcb; --compute: #c2410c; --mark: #6d28d9; --dot: #15803d; }
  @media (prefers-color-scheme: dark) { svg { --ink: #e8ebef; --dim: #9aa4b0; --grid: #333a43; --paper: #15181c; --read: #5eb0ff; --compute: #ff9a5c; --mark: #b794ff; --dot: #4ade80; } }
  text { font: 12px system-ui, sans-serif; fill: var(--ink); }
  .title { font-size: 16px; font-weight: 600; }
  .dim { fill: var(--dim); }
  .paper { fill: var(--paper); }
  .grid { stroke: var(--grid); stroke-width: 1; }
  .axis { stroke: var(--dim); stroke-width: 1; }
  .line { fill: none; stroke-width: 2; }
  .read { stroke: var(--read); }
  .compute { stroke: var(--compute); }
  .rough { stroke-dasharray: 5 4; stroke-width: 1.5; }
  text.read { fill: var(--read); stroke: none; }
  text.compute { fill: var(--compute); stroke: none; }
  .mark { stroke: var(--mark); stroke-width: 1.5; stroke-dasharray: 2 3; }
  text.markText { fill: var(--mark); }
  .dot { fill: var(--dot); stroke: var(--paper); stroke-width: 1.5; }
  text.dotText { fill: var(--dot); }
`;

/** A logarithmic axis: maps a value to a position between two ends. */
interface Axis {
  readonly from: number;
  readonly to: number;
  at(value: number): number;
}

function logAxis(from: number, to: number, start: number, end: number): Axis {
  const span = Math.log(to / from);
  return { from, to, at: (value) => start + (Math.log(value / from) / span) * (end - start) };
}

interface Dot {
  readonly tokens: number;
  readonly ms: number;
  readonly label: string;
  readonly title: string;
}

export function limitsPlot(report: LimitsReport): string {
  const curves = curvesOf(report);
  const dots = report.measured.map(dotOf);
  const points = report.prefill.turns.points;
  const longest = Math.max(
    16,
    report.context,
    ...points.map(({ tokens }) => 2 * tokens),
    ...dots.map(({ tokens }) => tokens),
  );
  const times = [
    ...curves.flatMap((curve) => [curve.ms(1), curve.ms(longest)]),
    ...dots.map(({ ms }) => ms),
  ];
  const x = logAxis(1, longest, left, width - right);
  const y = logAxis(
    10 ** Math.floor(Math.log10(Math.min(...times))),
    10 ** Math.ceil(Math.log10(Math.max(...times))),
    height - bottom,
    top,
  );
  const { speculation } = report;
  const fullHeight = height + (speculation ? gainPanelHeight : 0);
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${fullHeight}" role="img" aria-label="${escapeText(titleOf(report))}">`,
    `<style>${style}</style>`,
    `<rect class="paper" width="${width}" height="${fullHeight}"/>`,
    svgText(left, 26, titleOf(report), "title"),
    ...subtitlesOf(report).map((line, index) => svgText(left, 46 + 17 * index, line, "dim")),
    ...gridLines(x, y),
    ...marks(points, x),
    ...curveLines(curves, x, y),
    ...dots.map((dot) => dotMark(dot, x, y)),
    svgText((left + width - right) / 2, height - 14, "prompt length (tokens)", "dim", "middle"),
    svgText(left - 8, top - 8, "ms", "dim", "end"),
    ...(speculation ? gainPanel(speculation, left, width - right, height) : []),
    "</svg>",
  ];
  return `${parts.join("\n")}\n`;
}

/** A generated token is drawn as a prompt of one, which takes the same time while the cache is nearly empty. */
function dotOf(speed: MeasuredSpeed): Dot {
  const tokens = speed.kind === "prompt" ? speed.tokens : 1;
  const label = `${Math.round(speed.fraction * 100)}%`;
  return {
    tokens,
    ms: (tokens / speed.tokensPerSecond) * 1000,
    label,
    title: `${speed.kind} of ${speed.tokens}, ${speed.label}: ${speed.tokensPerSecond.toFixed(1)} tokens/s, ${label} of the limit`,
  };
}

function dotMark({ tokens, ms, label, title }: Dot, x: Axis, y: Axis): string {
  const [cx, cy] = [x.at(tokens), y.at(ms)];
  return `<g><title>${escapeText(title)}</title><circle class="dot" cx="${px(cx)}" cy="${px(cy)}" r="5"/>${svgText(cx + 8, cy - 6, label, "dotText")}</g>`;
}

function titleOf({ model, device }: LimitsReport): string {
  return `${model.name} on ${device.name}: shortest time to the first token`;
}

function subtitlesOf({ model, device }: LimitsReport): string[] {
  const gigabytes = (device.bytesPerSecond / 1e9).toFixed(0);
  const { f32, f16, int8 } = device.opsPerSecond;
  const tera = (ops: number): string => (ops / 1e12).toPrecision(3);
  const halves = f16 !== undefined && f16 !== f32 ? `, f16 ${tera(f16)}` : "";
  const ints = int8 !== undefined && int8 !== f32 ? `, int8 ${tera(int8)}` : "";
  return [
    `weights ${model.weightsText}; KV cache ${model.kvText}`,
    `${gigabytes} GB/s, f32 ${tera(f32)}${halves}${ints} T operations/s; ${device.source}`,
  ];
}

function gridLines(x: Axis, y: Axis): string[] {
  const lines: string[] = [];
  for (let ms = y.from; ms <= y.to * 1.0001; ms *= 10) {
    lines.push(
      svgLine(left, y.at(ms), width - right, y.at(ms), "grid"),
      svgText(left - 8, y.at(ms) + 4, numberText(ms), "dim", "end"),
    );
  }
  for (let tokens = 1; tokens <= x.to; tokens *= 4) {
    lines.push(
      svgLine(x.at(tokens), top, x.at(tokens), height - bottom, "grid"),
      svgText(x.at(tokens), height - bottom + 18, numberText(tokens), "dim", "middle"),
    );
  }
  lines.push(`<path class="axis line" d="M${left} ${top}V${height - bottom}H${width - right}"/>`);
  return lines;
}

const afterTexts: Readonly<Record<Limit["resource"], string>> = {
  arithmetic: "limited by arithmetic",
  bandwidth: "limited by the KV cache",
};

function marks(points: LimitsReport["prefill"]["turns"]["points"], x: Axis): string[] {
  return points.map(({ tokens, after }, index) => {
    const at = x.at(tokens);
    const label = `${Math.floor(tokens)} → ${afterTexts[after]}`;
    // Near the right end the text is left of its line.
    const [shift, anchor] = at > width - right - 150 ? [-6, "end"] : [6, "start"];
    const y = height - bottom - 12 - 18 * index;
    return `${svgLine(at, top, at, height - bottom, "mark")}${svgText(at + shift, y, label, "markText", anchor)}`;
  });
}

function curveLines(curves: readonly Curve[], x: Axis, y: Axis): string[] {
  // Names are at the ends of the lines, moved apart where they are close.
  const ends = curves
    .map((curve) => ({ curve, at: y.at(curve.ms(x.to)) }))
    .sort((a, b) => a.at - b.at);
  let lowest = 0;
  const names = ends.map(({ curve, at }) => {
    lowest = Math.max(at, lowest + 16);
    return svgText(width - right + 8, lowest + 4, curve.name, curve.look);
  });
  const lines = curves.map((curve) => {
    const path = Array.from({ length: samples + 1 }, (_, i) => {
      const tokens = x.to ** (i / samples);
      return `${i === 0 ? "M" : "L"}${px(x.at(tokens))} ${px(y.at(curve.ms(tokens)))}`;
    });
    return `<path class="line ${curve.look}" d="${path.join("")}"/>`;
  });
  return [...lines, ...names];
}

function numberText(value: number): string {
  return value >= 1 ? String(Math.round(value)) : String(Number(value.toPrecision(1)));
}
