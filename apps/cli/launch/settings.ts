// A setting for a configuration file, and what its three formats (merge-json.ts, merge-toml.ts, merge-yaml.ts) share.

export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [key: string]: Json };

/** A key; or the element of an array in which a key has a value, which is appended if there is none. */
export type Step = string | { readonly key: string; readonly is: string };

export interface Setting {
  readonly at: readonly Step[];
  readonly value: Json;
}

/** The end of lines of a text. */
export function lineEnd(text: string): string {
  return text.includes("\r\n") ? "\r\n" : "\n";
}

export function isSame(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length &&
    keys.every(
      (key) =>
        Object.hasOwn(b, key) &&
        isSame((a as Record<string, unknown>)[key], (b as Record<string, unknown>)[key]),
    )
  );
}
