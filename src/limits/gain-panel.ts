// The gain of speculative decoding by the number of drafted tokens, as a panel below the chart of plot.ts, whose style
// sheet and width it uses. Both axes are linear; a mark shows the best number.

import { px, roundUp, svgLine, svgText } from "../base/svg.ts";
import type { SpeculationReport } from "./report.ts";

export const gainPanelHeight = 300;

const margin = { top: 56, bottom: 48 };
/** The approximate number of grid lines. */
const gridSteps = 5;

/** `from` and `to` are the left and the right end of the axis, `top` is where the panel begins. */
export function gainPanel(
  speculation: SpeculationReport,
  from: number,
  to: number,
  top: number,
): string[] {
  const { curve, bestDraftTokens, bestSpeedup, acceptance } = speculation;
  const most = curve.length - 1;
  const step = roundUp(Math.max(...curve.map(({ speedup }) => speedup)) / gridSteps);
  const highest = step * Math.ceil(Math.max(1, bestSpeedup) / step);
  const ends = { top: top + margin.top, bottom: top + gainPanelHeight - margin.bottom };
  const x = (count: number): number => from + (count / most) * (to - from);
  const y = (speedup: number): number =>
    ends.bottom - (speedup / highest) * (ends.bottom - ends.top);
  const rows = Array.from({ length: Math.round(highest / step) + 1 }, (_, i) => i * step);
  const columnStep = Math.max(1, roundUp(most / 10));
  const columns = Array.from(
    { length: Math.floor(most / columnStep) + 1 },
    (_, i) => i * columnStep,
  );
  const path = curve.map(
    ({ draftTokens, speedup }, i) =>
      `${i === 0 ? "M" : "L"}${px(x(draftTokens))} ${px(y(speedup))}`,
  );
  const best =
    bestDraftTokens === 0
      ? "no gain: best without drafts"
      : `best: ${bestDraftTokens} drafted, ${bestSpeedup.toFixed(2)} times as fast`;
  const isRight = x(bestDraftTokens) > (from + to) / 2;
  return [
    svgText(from, top + 20, "Speculative decoding: speed compared with none", "title"),
    svgText(from, top + 40, `each draft accepted with probability ${acceptance}`, "dim"),
    ...rows.flatMap((value) => [
      svgLine(from, y(value), to, y(value), "grid"),
      svgText(from - 8, y(value) + 4, `${Number(value.toPrecision(3))}x`, "dim", "end"),
    ]),
    ...columns.map((count) => svgText(x(count), ends.bottom + 18, String(count), "dim", "middle")),
    svgLine(x(bestDraftTokens), ends.top, x(bestDraftTokens), ends.bottom, "mark"),
    svgText(
      x(bestDraftTokens) + (isRight ? -6 : 6),
      ends.bottom - 12,
      best,
      "markText",
      isRight ? "end" : "start",
    ),
    `<path class="line compute gain" d="${path.join("")}"/>`,
    svgText(
      (from + to) / 2,
      top + gainPanelHeight - 8,
      "tokens drafted at a time",
      "dim",
      "middle",
    ),
  ];
}
