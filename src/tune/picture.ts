// A tune file as an SVG chart: a panel for each type and shape with speed over number of tokens, a line for the
// default and for each profile that is the fastest somewhere; dashed for a second thread count.

import { plural } from "../base/plural.ts";
import { escapeText, pictureColors, px, roundUp, svgLine, svgPath, svgText } from "../base/svg.ts";
import { analyzeTuneFile, type GroupAnalysis } from "./analyze.ts";
import { problemText, type TuneFile, type TuneGroup } from "./tune-file.ts";

const panelWidth = 470;
const panelHeight = 300;
const columns = 2;
const header = 64;
const inset = { left: 54, right: 130, top: 40, bottom: 44 };
/** The most lines in one panel that can be told apart. */
const mostLines = 6;

/** Thread counts of one type and shape. */
interface Panel {
  readonly title: string;
  readonly groups: readonly GroupAnalysis[];
  /** The profiles to draw, the default first. */
  readonly profiles: readonly number[];
}

export function tunePicture(file: TuneFile): string {
  const { groups, gain } = analyzeTuneFile(file);
  const panels = panelsOf(groups);
  const rows = Math.ceil(panels.length / columns);
  const [width, height] = [panelWidth * columns, header + rows * panelHeight];
  const title = `matmuls on ${file.cpu}, ${plural(file.cores, "core")}`;
  const facts = `${file.date.slice(0, 10)}; the tuned kernels are ${gain.median.toFixed(2)} times as fast as the defaults (median), at most ${gain.most.toFixed(2)} times. Dashed: other thread counts`;
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeText(title)}">`,
    `<style>${pictureColors}</style>`,
    `<rect class="paper" width="${width}" height="${height}"/>`,
    svgText(20, 28, title, "title"),
    svgText(20, 48, facts, "dim"),
    ...panels.map((panel, i) => {
      const [x, y] = [(i % columns) * panelWidth, header + Math.floor(i / columns) * panelHeight];
      return `<g transform="translate(${px(x)} ${px(y)})">${drawPanel(panel, file)}</g>`;
    }),
    "</svg>",
  ].join("\n")}\n`;
}

function panelsOf(groups: readonly GroupAnalysis[]): Panel[] {
  const byShape = new Map<string, GroupAnalysis[]>();
  for (const one of groups) {
    const key = problemText(one.group);
    byShape.set(key, [...(byShape.get(key) ?? []), one]);
  }
  return Array.from(byShape, ([title, same]) => {
    const points = same.flatMap(({ points }) => points);
    const usual = points.flatMap((point) => point.usual?.profile ?? []);
    const wins = new Map<number, number>();
    for (const { best } of points) wins.set(best.profile, (wins.get(best.profile) ?? 0) + 1);
    const winners = [...wins].sort((a, b) => b[1] - a[1]).map(([profile]) => profile);
    return {
      title,
      groups: same,
      profiles: [...new Set([...usual, ...winners])].slice(0, mostLines),
    };
  });
}

/** Billions of operations per second of a profile, by number of tokens. */
function speeds(
  { n, k, experts, lines }: TuneGroup,
  profile: number,
): { m: number; gops: number }[] {
  const matrices = experts?.used ?? 1;
  return lines.flatMap(({ m, times }) => {
    const time = times[profile];
    if (!time) return [];
    return [{ m, gops: (2 * n * k * m * matrices) / ((time.init + time.compute) * 1000) }];
  });
}

function drawPanel({ title, groups, profiles }: Panel, file: TuneFile): string {
  const all = groups.flatMap(({ group }) => profiles.flatMap((p) => speeds(group, p)));
  const most = roundUp(Math.max(...all.map(({ gops }) => gops)));
  const longest = Math.max(2, ...all.map(({ m }) => m));
  const [x0, x1] = [inset.left, panelWidth - inset.right];
  const [y0, y1] = [panelHeight - inset.bottom, inset.top];
  const x = (m: number) => x0 + (Math.log(m) / Math.log(longest)) * (x1 - x0);
  const y = (gops: number) => y0 + (gops / most) * (y1 - y0);
  const levels = [0, 0.25, 0.5, 0.75, 1].map((share) => share * most);
  const counts = [1, 2, 4, 8, 16, 32, 64, 128, 256].filter((m) => m <= longest);
  return [
    svgText(x0, 20, title, ""),
    ...levels.map((gops) => svgLine(x0, y(gops), x1, y(gops), "grid")),
    ...levels.map((gops) => svgText(x0 - 6, y(gops) + 4, shortNumber(gops), "dim", "end")),
    ...counts.map((m) => svgText(x(m), y0 + 18, String(m), "dim", "middle")),
    svgText((x0 + x1) / 2, y0 + 36, "tokens", "dim", "middle"),
    svgText(x0 - 40, 34, "GOPS", "dim"),
    ...groups.flatMap(({ group }, g) =>
      profiles.map((profile, c) => {
        const points = speeds(group, profile).map(({ m, gops }) => [x(m), y(gops)] as const);
        const dash = g === 0 ? "" : `;stroke-dasharray:${3 + 3 * g} 4`;
        return points.length < 2 ? "" : svgPath(points, `stroke:var(--c${c})${dash}`);
      }),
    ),
    ...profiles.map((profile, c) => legend(file, profile, c, x1 + 10)),
  ].join("\n");
}

function legend(file: TuneFile, profile: number, color: number, x: number): string {
  const { variant, idle, level } = file.profiles[profile]!;
  const name = `${variant}${idle === "sleep" ? ", sleep" : ""}${level === 2 ? " (opt level 2)" : ""}`;
  const y = inset.top + 6 + color * 18;
  const mark = svgPath(
    [
      [x, y],
      [x + 14, y],
    ],
    `stroke:var(--c${color})`,
  );
  return `${mark}${svgText(x + 18, y + 4, color === 0 ? `${name} (default)` : name, "dim")}`;
}

function shortNumber(value: number): string {
  return value >= 10 || value === 0 ? String(Math.round(value)) : value.toFixed(1);
}
