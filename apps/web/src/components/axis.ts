// Axes of a chart: map values to positions on the screen, and choose round numbers for ticks.

export interface Axis {
  readonly from: number;
  readonly to: number;
  readonly ticks: readonly number[];
  at(value: number): number;
}

/** `start` and `end` are the positions of the smallest and the largest value; `most` is the number of ticks that fit. */
export function logAxis(values: readonly number[], start: number, end: number, most: number): Axis {
  const positive = values.filter((value) => value > 0 && Number.isFinite(value));
  const from = Math.min(...positive);
  const to = Math.max(...positive, from * 1.001);
  const span = Math.log(to / from);
  const first = Math.ceil(Math.log10(from) - 1e-9);
  const last = Math.floor(Math.log10(to) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / most));
  const ticks: number[] = [];
  for (let power = first; power <= last; power += step) ticks.push(10 ** power);
  return {
    from,
    to,
    ticks,
    at: (value) => start + (Math.log(value / from) / span) * (end - start),
  };
}

/**
 * Starts at 0, or at the smallest value if that is below 0. `exact`: ends at the largest value, not at the next round
 * number.
 */
export function linearAxis(
  values: readonly number[],
  start: number,
  end: number,
  most: number,
  exact: boolean = false,
): Axis {
  const finite = values.filter(Number.isFinite);
  const from = Math.min(...finite, 0);
  const top = Math.max(...finite, from < 0 ? 0 : 1e-9);
  const step = niceStep((top - from) / Math.max(2, most));
  const to = exact ? top : Math.ceil(top / step - 1e-9) * step;
  const first = Math.ceil(from / step - 1e-9);
  const ticks = Array.from(
    { length: Math.floor(to / step + 1e-9) - first + 1 },
    (_, at) => (first + at) * step,
  );
  return {
    from,
    to,
    ticks,
    at: (value) => start + ((value - from) / (to - from)) * (end - start),
  };
}

/** 1, 2 or 5 times a power of ten, at least `rough`. */
function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough)!;
}
