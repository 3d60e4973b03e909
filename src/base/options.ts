// Unknown names given by a caller: options of the API, fields of a request. A misspelt name is refused with the name
// it may have meant and a list of all known ones; it is never ignored. Each call checks the values itself.

import { UsageError } from "./errors.ts";
import { nearest } from "./nearest.ts";
import { show } from "./show.ts";

/** All options of a type. Leaving one out, or adding another, is a type error. */
export type OptionNames<T> = Readonly<Record<keyof T, true>>;

/** Longer names are cut: the name may come from the network, and is compared with every known one and shown. */
const mostLetters = 200;

/** Throws if `options` is not an object or has an option that is not in `known`. Without `known`, the caller checks the names. */
export function checkOptionNames<T extends object>(
  call: string,
  options: T,
  known?: OptionNames<T>,
): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new UsageError(`${call}: options: got ${show(options)}, expected an object`);
  }
  if (known === undefined) return;
  const wrong = Object.keys(options).find((name) => !Object.hasOwn(known, name));
  if (wrong === undefined) return;
  throw new UsageError(`${call}: ${unknownName("option", wrong, Object.keys(known))}`);
}

/** Only the given options: an option that is undefined counts as left out, and replaces no default. */
export function givenOptions<T extends object>(options: T): T {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as T;
}

/** unknown option "tread". Did you mean threads? Known: contextSize, threads */
export function unknownName(kind: string, name: string, known: readonly string[]): string {
  const shown = name.slice(0, mostLetters);
  const near = nearest(shown, known);
  const hint = near.length > 0 ? ` Did you mean ${near.join(" or ")}?` : "";
  const list = known.length > 0 ? ` Known: ${known.join(", ")}` : "";
  return `unknown ${kind} "${shown}".${hint}${list}`.replace(/\.$/, "");
}
