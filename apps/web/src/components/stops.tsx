// A slider over a few useful values instead of a continuous range.

import type { JSX } from "preact";

interface Props {
  label: string;
  hint: string;
  stops: readonly number[];
  value: number;
  /** Default: the number. */
  format?(value: number): string;
  onPick(value: number): void;
}

export function Stops({ label, hint, stops, value, format = plain, onPick }: Props): JSX.Element {
  const at = Math.max(0, stops.indexOf(value));
  const text = format(value);
  return (
    <label class="field">
      <span class="row between">
        <span class="field-label">{label}</span>
        <b class="value">{text}</b>
      </span>
      <input
        type="range"
        min={0}
        max={stops.length - 1}
        step={1}
        value={at}
        aria-valuetext={text}
        onInput={(event) => onPick(stops[Number(event.currentTarget.value)]!)}
      />
      <span class="hint">{hint}</span>
    </label>
  );
}

/** The stops, and the value if it is none of them. */
export function withStop(stops: readonly number[], value: number): number[] {
  return [...new Set([...stops, value])].sort((a, b) => a - b);
}

function plain(value: number): string {
  return value.toLocaleString("en");
}
