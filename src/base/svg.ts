// The few SVG shapes that Lantern's charts are made of, as text. Colours are CSS variables that follow the page's
// light or dark theme. The charts themselves are made next to their numbers (limits/plot.ts, tune/picture.ts).

import { byName } from "./by-name.ts";

/** Foreground, background, and six series colours that can be told apart on white and on black. */
export const pictureColors = `
  svg { --ink: #1b1f24; --dim: #626b76; --grid: #dde2e8; --paper: #ffffff; --c0: #0b6bcb; --c1: #c2410c; --c2: #15803d; --c3: #6d28d9; --c4: #b45309; --c5: #be185d; }
  @media (prefers-color-scheme: dark) { svg { --ink: #e8ebef; --dim: #9aa4b0; --grid: #333a43; --paper: #15181c; --c0: #5eb0ff; --c1: #ff9a5c; --c2: #4ade80; --c3: #b794ff; --c4: #fbbf24; --c5: #f472b6; } }
  text { font: 12px system-ui, sans-serif; fill: var(--ink); }
  .title { font-size: 16px; font-weight: 600; }
  .dim { fill: var(--dim); }
  .paper { fill: var(--paper); }
  .grid { stroke: var(--grid); stroke-width: 1; }
  .line { fill: none; stroke-width: 2; }
`;

const entities: Readonly<Record<string, string>> = byName({
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
});

export function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (character) => entities[character]!);
}

/** A coordinate with few digits. */
export function px(value: number): string {
  return String(Math.round(value * 10) / 10);
}

export function svgText(
  x: number,
  y: number,
  text: string,
  look: string,
  anchor = "start",
): string {
  return `<text x="${px(x)}" y="${px(y)}" class="${look}" text-anchor="${anchor}">${escapeText(text)}</text>`;
}

export function svgLine(x1: number, y1: number, x2: number, y2: number, look: string): string {
  return `<line x1="${px(x1)}" y1="${px(y1)}" x2="${px(x2)}" y2="${px(y2)}" class="${look}"/>`;
}

/** A line through points; `style` gives its colour, which no class sets. */
export function svgPath(points: readonly (readonly [number, number])[], style: string): string {
  const d = points.map(([x, y], i) => `${i === 0 ? "M" : "L"}${px(x)} ${px(y)}`).join("");
  return `<path d="${d}" class="line" style="${style}"/>`;
}

/** The smallest number not below `value` that is 1, 2 or 5 times a power of ten. */
export function roundUp(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= value)!;
  return step * power;
}
