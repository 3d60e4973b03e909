// Which numbers an option takes, and how that is said: one check for flags, requests, files and the API.

export interface NumberRange {
  readonly integer?: boolean;
  readonly min?: number;
  /** Above this number, and not the number itself. */
  readonly above?: number;
  readonly max?: number;
  /** One value outside the range with a special meaning (-1: no limit). */
  readonly also?: number;
}

export function isInRange(value: unknown, range: NumberRange): value is number {
  if (typeof value !== "number") return false;
  if (value === range.also) return true;
  if (range.integer ? !Number.isSafeInteger(value) : !Number.isFinite(value)) return false;
  const { min = -Infinity, above = -Infinity, max = Infinity } = range;
  return value >= min && value > above && value <= max;
}

/** "a whole number from 0 to 2", "a number above 0, or -1": for a sentence that says what was expected. */
export function rangeText({ integer, min, above, max, also }: NumberRange): string {
  const kind = integer ? "a whole number" : "a number";
  let range = "";
  if (above !== undefined) range = ` above ${above}${max === undefined ? "" : ` and up to ${max}`}`;
  else if (min !== undefined && max !== undefined) range = ` from ${min} to ${max}`;
  else if (min !== undefined) range = ` of at least ${min}`;
  else if (max !== undefined) range = ` of at most ${max}`;
  return `${kind}${range}${also === undefined ? "" : `, or ${also}`}`;
}
