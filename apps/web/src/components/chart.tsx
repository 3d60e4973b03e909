// A line chart in SVG, drawn at its width on the screen, so that its text has the same size everywhere. Axes are
// linear or logarithmic; lines have their names at their ends, and marks show important positions.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Axis, linearAxis, logAxis } from "./axis.ts";

export interface Line {
  name: string;
  /** A CSS class: which colour. */
  look: "read" | "compute" | "accent" | "third";
  points: readonly (readonly [x: number, y: number])[];
}

export interface ChartMark {
  at: number;
  label: string;
}

interface Props {
  title: string;
  xLabel: string;
  yLabel: string;
  scale: "log" | "linear";
  lines: readonly Line[];
  marks?: readonly ChartMark[];
  /** Values that the axes reach in any case. */
  reach?: { readonly x: number; readonly y: number };
  formatX(value: number): string;
  formatY(value: number): string;
}

const height = 280;
const margin = { left: 58, right: 14, top: 26, bottom: 40 };

export function Chart(props: Props): JSX.Element {
  const { title, lines, marks = [], scale, reach, xLabel, yLabel, formatX, formatY } = props;
  const [width, box] = useWidth();
  const all = lines.flatMap(({ points }) => points);
  const make = scale === "log" ? logAxis : linearAxis;
  const along = [...all.map(([value]) => value), ...(reach ? [reach.x] : [])];
  const up = [...all.map(([, value]) => value), ...(reach ? [reach.y] : [])];
  const x = make(along, margin.left, width - margin.right, width / 90, true);
  const y = make(up, height - margin.bottom, margin.top, 6);
  return (
    <figure class="chart" ref={box}>
      <figcaption>
        {title}
        <span class="legend">
          {lines.map(({ name, look }) => (
            <span key={name} class={look}>
              {name}
            </span>
          ))}
        </span>
      </figcaption>
      {width > 0 && all.length > 0 && (
        <svg width={width} height={height} role="img" aria-label={description(props)}>
          <Grid x={x} y={y} width={width} formatX={formatX} formatY={formatY} />
          <text class="axis-name" x={width - margin.right} y={height - 6} text-anchor="end">
            {xLabel}
          </text>
          <text class="axis-name" x={margin.left} y={12}>
            {yLabel}
          </text>
          {lines.map(({ name, look, points }) => (
            <polyline
              key={name}
              class={`line ${look}`}
              points={points
                .map(([a, b]) => `${x.at(a).toFixed(1)},${y.at(b).toFixed(1)}`)
                .join(" ")}
            />
          ))}
          {marks
            .filter(({ at }) => at >= x.from && at <= x.to)
            .map(({ at, label }, index) => (
              <Mark key={label} at={x.at(at)} label={label} row={index} width={width} />
            ))}
        </svg>
      )}
    </figure>
  );
}

function description({ title, lines, marks = [] }: Props): string {
  const names = lines.map(({ name }) => name).join(", ");
  return [`${title}: ${names}`, ...marks.map(({ label }) => label)].join(". ");
}

interface GridProps {
  x: Axis;
  y: Axis;
  width: number;
  formatX(value: number): string;
  formatY(value: number): string;
}

function Grid({ x, y, width, formatX, formatY }: GridProps): JSX.Element {
  const bottom = height - margin.bottom;
  return (
    <>
      {y.ticks.map((value) => (
        <g key={value}>
          <line
            class="grid"
            x1={margin.left}
            x2={width - margin.right}
            y1={y.at(value)}
            y2={y.at(value)}
          />
          <text class="tick" x={margin.left - 6} y={y.at(value) + 4} text-anchor="end">
            {formatY(value)}
          </text>
        </g>
      ))}
      {x.ticks.map((value) => (
        <g key={value}>
          <line class="grid" x1={x.at(value)} x2={x.at(value)} y1={margin.top} y2={bottom} />
          <text class="tick" x={x.at(value)} y={bottom + 16} text-anchor="middle">
            {formatX(value)}
          </text>
        </g>
      ))}
    </>
  );
}

function Mark(props: { at: number; label: string; row: number; width: number }): JSX.Element {
  const { at, label, row, width } = props;
  const toLeft = at > width / 2;
  const textY = height - margin.bottom - 8 - 16 * row; // lines rise, so there is room below them
  return (
    <g>
      <line class="mark-line" x1={at} x2={at} y1={margin.top} y2={height - margin.bottom} />
      <text
        class="mark-text"
        x={at + (toLeft ? -6 : 6)}
        y={textY}
        text-anchor={toLeft ? "end" : "start"}
      >
        {label}
      </text>
    </g>
  );
}

function useWidth(): [number, { current: HTMLElement | null }] {
  const box = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = (): void => setWidth(Math.floor(element.clientWidth));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  return [width, box];
}
