// Parsers of flag values for commander: a number must be in its range, or the command does not start.

import { InvalidArgumentError } from "commander";
import { byteSizeOf, byteSizeText } from "../../src/base/byte-sizes.ts";
import { keepAliveText, keepMsOf } from "../../src/base/durations.ts";
import { isInRange, type NumberRange, rangeText } from "../../src/options/range.ts";

/** A parser for commander: returns the number, or throws an error that says what was expected. */
export function numberFlag(range: NumberRange): (text: string) => number {
  return (text) => {
    const value = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text.trim())
      ? Number(text)
      : Number.NaN;
    if (isInRange(value, range)) return value;
    throw new InvalidArgumentError(`Expected ${rangeText(range)}.`);
  };
}

/** A parser for several numbers separated by commas: "1,2,4"; duplicates count once. */
export function numberListFlag(range: NumberRange): (text: string) => number[] {
  const read = numberFlag(range);
  return (text) => {
    try {
      return [...new Set(text.split(",").map(read))];
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error;
      throw new InvalidArgumentError(
        `Expected numbers separated by commas, as in 1,2; each ${rangeText(range)}.`,
      );
    }
  };
}

/** A parser for a flag that may be given several times. */
export function repeatedFlag(text: string, before: string[] | undefined): string[] {
  if (text === "") throw new InvalidArgumentError("Expected at least one character.");
  return [...(before ?? []), text];
}

/** A parser for a flag that may be given once: commander alone would keep the last value and drop the others. */
export function onceFlag(text: string, before: string | undefined): string {
  if (before === undefined) return text;
  throw new InvalidArgumentError(`It was given twice, first as '${before}'. Expected it once.`);
}

/** A parser for a JSON object. */
export function objectFlag(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return value as Record<string, unknown>;
    }
  } catch {
    // No JSON is no object either.
  }
  throw new InvalidArgumentError('Expected a JSON object, as in \'{"key": "value"}\'.');
}

/** A parser for an effort of reasoning; undefined: the template's own. */
export function effortFlag(text: string): string | undefined {
  if (text === "default") return undefined;
  if (/^[a-z]{1,40}$/.test(text)) return text;
  throw new InvalidArgumentError("Expected a level, such as low, medium or high.");
}

/** A parser for a size in bytes: "4G". */
export function byteSizeFlag(text: string): number {
  const bytes = byteSizeOf(text);
  if (bytes !== undefined) return bytes;
  throw new InvalidArgumentError(`Expected ${byteSizeText}.`);
}

/** A parser for the file of a chart. */
export function svgFlag(text: string): string {
  if (/\.svg$/i.test(text)) return text;
  throw new InvalidArgumentError("Expected a file name that ends in .svg.");
}

/** A parser for a duration, in milliseconds. */
export function keepAliveFlag(text: string): number {
  const ms = keepMsOf(text);
  if (ms !== undefined) return ms;
  throw new InvalidArgumentError(`Expected ${keepAliveText}.`);
}
