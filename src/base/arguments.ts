// A wrong value that a caller has given, as an error; and the tests that tell such values apart.

import { OptionError } from "./errors.ts";

/** An option, or an argument of a call, with another value than it takes. */
export function wrongArgument(what: string, got: unknown, expected: string): OptionError {
  return new OptionError(what, got, expected);
}

export function isIterable(value: unknown): value is Iterable<unknown> {
  const iterator = (Object(value) as { [Symbol.iterator]?: unknown })[Symbol.iterator];
  return typeof iterator === "function";
}
