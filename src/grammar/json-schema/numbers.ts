// Numbers as expressions over their digits: bounds, integers, multiples.
//
// Bounds compare digits from the left, so a bounded number is written without an exponent. Each bound is an expression
// of its own; intersection joins them.

import { GrammarError } from "../errors.ts";
import { EMPTY, EPSILON, type Expressions, INFINITE } from "../regex/expressions.ts";
import type { NumberShape } from "./shapes.ts";

/** As many as tell two float64 apart. */
const MOST_DIGITS = 17;

export class NumberLanguages {
  readonly #of: Expressions;
  readonly #digit: number;
  readonly #integer: number; // without a sign
  readonly #fraction: number; // with its point

  constructor(of: Expressions) {
    this.#of = of;
    this.#digit = of.range(0x30, 0x39);
    this.#integer = of.or(this.#ascii("0"), of.concat(of.range(0x31, 0x39), of.star(this.#digit)));
    this.#fraction = of.concat(this.#ascii("."), of.repeat(this.#digit, 1, INFINITE));
  }

  #ascii(text: string): number {
    return this.#of.literal(new TextEncoder().encode(text));
  }

  #signed(language: number): number {
    return this.#of.concat(this.#of.optional(this.#ascii("-")), language);
  }

  language(shape: NumberShape, path: string): number {
    const of = this.#of;
    const { low, high, multiples, nonMultiples, integer, fraction } = shape;
    const divisors = multiples.length + nonMultiples.length;
    const isFree = low === -INFINITE && high === INFINITE && divisors === 0;
    if (isFree && !fraction) return integer ? this.#signed(this.#integer) : this.#any();
    const parts: number[] = [this.#syntax(integer, fraction)];
    if (low !== -INFINITE) parts.push(this.#atLeast(low, shape.lowExclusive));
    if (high !== INFINITE) parts.push(this.#atMost(high, shape.highExclusive));
    for (const divisor of multiples) parts.push(this.#multipleOf(divisor, path));
    for (const divisor of nonMultiples) parts.push(of.not(this.#multipleOf(divisor, path)));
    return of.every(parts);
  }

  /** The numbers without more digits than a float64 holds, if there are any. */
  concise(language: number): number {
    const of = this.#of;
    const digits = (most: number): number => of.repeat(this.#digit, 1, most);
    const sign = of.optional(of.or(this.#ascii("+"), this.#ascii("-")));
    const fraction = of.concat(this.#ascii("."), digits(MOST_DIGITS));
    const exponent = of.sequence(of.or(this.#ascii("e"), this.#ascii("E")), sign, digits(3));
    const short = this.#signed(
      of.sequence(digits(MOST_DIGITS), of.optional(fraction), of.optional(exponent)),
    );
    const both = of.and(language, short);
    return of.alive(both) ? both : language;
  }

  /** Whether a number has the shape. */
  matches(shape: NumberShape, value: number): boolean {
    const { low, high, lowExclusive, highExclusive } = shape;
    if (shape.integer && !Number.isInteger(value)) return false;
    if (shape.fraction && Number.isInteger(value)) return false;
    if (lowExclusive ? value <= low : value < low) return false;
    if (highExclusive ? value >= high : value > high) return false;
    return (
      shape.multiples.every((divisor) => isMultiple(value, divisor)) &&
      !shape.nonMultiples.some((divisor) => isMultiple(value, divisor))
    );
  }

  #any(): number {
    const of = this.#of;
    const sign = of.optional(of.or(this.#ascii("+"), this.#ascii("-")));
    const exponent = of.sequence(
      of.or(this.#ascii("e"), this.#ascii("E")),
      sign,
      of.repeat(this.#digit, 1, INFINITE),
    );
    return this.#signed(
      of.sequence(this.#integer, of.optional(this.#fraction), of.optional(exponent)),
    );
  }

  #syntax(integer: boolean, fraction: boolean): number {
    const of = this.#of;
    if (integer) return this.#signed(this.#integer);
    if (!fraction) return this.#signed(of.concat(this.#integer, of.optional(this.#fraction)));
    const digits = of.star(this.#digit);
    return this.#signed(
      of.sequence(this.#integer, this.#ascii("."), digits, of.range(0x31, 0x39), digits),
    );
  }

  #atLeast(bound: number, exclusive: boolean): number {
    const of = this.#of;
    if (bound < 0) {
      const below = this.#unsigned(-bound, false, exclusive);
      return of.or(this.#positive(), of.concat(this.#ascii("-"), below));
    }
    const above = this.#unsigned(bound, true, exclusive);
    if (bound > 0 || exclusive) return above;
    return of.or(above, this.#ascii("-0"));
  }

  #atMost(bound: number, exclusive: boolean): number {
    const of = this.#of;
    if (bound < 0) return of.concat(this.#ascii("-"), this.#unsigned(-bound, true, exclusive));
    const negative = of.concat(this.#ascii("-"), this.#positive());
    const below = bound === 0 && exclusive ? EMPTY : this.#unsigned(bound, false, exclusive);
    return of.or(negative, below);
  }

  #positive(): number {
    return this.#of.concat(this.#integer, this.#of.optional(this.#fraction));
  }

  /** Numbers without a sign on one side of a bound that is not negative. */
  #unsigned(bound: number, above: boolean, exclusive: boolean): number {
    const of = this.#of;
    const [whole = "0", part = ""] = decimal(bound).split(".");
    const beyond = above ? this.#largerIntegers(whole) : this.#smallerIntegers(whole);
    const same = this.#ascii(whole);
    const fractions = above
      ? this.#fractionAbove(part, 0, exclusive)
      : this.#fractionBelow(part, 0, exclusive);
    const withPoint = of.sequence(
      same,
      this.#ascii("."),
      of.and(fractions, of.repeat(this.#digit, 1, INFINITE)),
    );
    const isZero = /^0*$/.test(part);
    const alone = isZero ? !exclusive : !above;
    return of.or(of.concat(beyond, of.optional(this.#fraction)), alone ? same : EMPTY, withPoint);
  }

  #largerIntegers(than: string): number {
    const of = this.#of;
    const parts = [
      of.sequence(of.range(0x31, 0x39), of.repeat(this.#digit, than.length, INFINITE)),
    ];
    this.#eachDigit(than, (prefix, digit, left, isFirst) => {
      const from = Math.max(digit + 1, isFirst && left > 0 ? 1 : 0);
      if (from <= 9) parts.push(this.#withDigit(prefix, from, 9, left));
    });
    return of.any(parts);
  }

  #smallerIntegers(than: string): number {
    const of = this.#of;
    const parts: number[] = [];
    if (than.length > 1) {
      parts.push(this.#ascii("0"));
      parts.push(of.concat(of.range(0x31, 0x39), of.repeat(this.#digit, 0, than.length - 2)));
    }
    this.#eachDigit(than, (prefix, digit, left, isFirst) => {
      const from = isFirst && left > 0 ? 1 : 0;
      if (from <= digit - 1) parts.push(this.#withDigit(prefix, from, digit - 1, left));
    });
    return of.any(parts);
  }

  #eachDigit(
    digits: string,
    visit: (prefix: string, digit: number, left: number, isFirst: boolean) => void,
  ): void {
    for (let i = 0; i < digits.length; i++) {
      visit(digits.slice(0, i), Number(digits[i]), digits.length - i - 1, i === 0);
    }
  }

  #withDigit(prefix: string, from: number, to: number, left: number): number {
    return this.#of.sequence(
      this.#ascii(prefix),
      this.#of.range(0x30 + from, 0x30 + to),
      this.#of.repeat(this.#digit, left, left),
    );
  }

  #fractionAbove(digits: string, at: number, exclusive: boolean): number {
    const of = this.#of;
    const rest = of.star(this.#digit);
    if (at === digits.length) {
      return exclusive ? of.sequence(rest, of.range(0x31, 0x39), rest) : rest;
    }
    const digit = Number(digits[at]);
    const same = of.concat(
      this.#ascii(String(digit)),
      this.#fractionAbove(digits, at + 1, exclusive),
    );
    if (digit === 9) return same;
    return of.or(same, of.concat(of.range(0x31 + digit, 0x39), rest));
  }

  #fractionBelow(digits: string, at: number, exclusive: boolean): number {
    const of = this.#of;
    if (at === digits.length) return exclusive ? EMPTY : of.star(this.#ascii("0"));
    const digit = Number(digits[at]);
    const parts = [
      of.concat(this.#ascii(String(digit)), this.#fractionBelow(digits, at + 1, exclusive)),
    ];
    if (digit > 0) {
      parts.push(of.concat(of.range(0x30, 0x2f + digit), of.star(this.#digit)));
    }
    // Ending here means zeros from here on, which are less unless the bound ends in zeros as well.
    if (!exclusive || !/^0*$/.test(digits.slice(at))) parts.push(EPSILON);
    return of.any(parts);
  }

  #multipleOf(divisor: number, path: string): number {
    const of = this.#of;
    const [whole = "0", part = ""] = decimal(divisor).split(".");
    const scaled = Number(whole + part);
    if (!Number.isSafeInteger(scaled) || scaled > 1_000_000 || part.length > 9 || scaled === 0) {
      throw new GrammarError(
        `json schema: ${path}/multipleOf: ${divisor} is not supported, expected at most 9 decimals and 6 digits`,
      );
    }
    const parts: number[] = [];
    for (let decimals = 0; decimals <= part.length; decimals++) {
      const point =
        decimals === 0
          ? EPSILON
          : of.concat(this.#ascii("."), of.repeat(this.#digit, decimals, decimals));
      const form = of.concat(this.#integer, point);
      parts.push(of.and(form, of.multiple(scaled, 10 ** (part.length - decimals))));
    }
    return this.#signed(of.any(parts));
  }
}

function isMultiple(value: number, divisor: number): boolean {
  const times = value / divisor;
  return Math.abs(times - Math.round(times)) < 1e-9 * Math.max(1, Math.abs(times));
}

/** A number without an exponent: 1e-7 -> 0.0000001. */
function decimal(value: number): string {
  const text = String(value);
  const match = /^(\d+)(?:\.(\d+))?e([+-]\d+)$/.exec(text);
  if (!match) return text;
  const [, whole = "0", part = "", exponent = "0"] = match;
  const shift = Number(exponent);
  const digits = whole + part;
  const point = whole.length + shift;
  if (point <= 0) return `0.${"0".repeat(-point)}${digits}`;
  if (point >= digits.length) return digits + "0".repeat(point - digits.length);
  return `${digits.slice(0, point)}.${digits.slice(point)}`;
}
