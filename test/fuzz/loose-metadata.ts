// Metadata from any JSON object, as a format's reader would give it: a value of another type than asked for is a LanternError.

import { FormatError } from "../../src/base/errors.ts";
import type { Metadata } from "../../src/base/metadata.ts";
import type { Json } from "./target.ts";

export function looseMetadata(document: Json): Metadata {
  const values = new Map<string, Json>(
    typeof document === "object" && document !== null ? Object.entries(document) : [],
  );
  const get = <T>(key: string, expected: string, is: (value: Json) => boolean): T | undefined => {
    const value = values.get(key);
    if (value === undefined) return undefined;
    if (is(value)) return value as T;
    throw new FormatError("json", { file: "memory", field: key, got: typeof value, expected });
  };
  const listOf = (type: string) => (value: Json) =>
    Array.isArray(value) && value.every((item) => typeof item === type);
  return {
    keys: () => values.keys(),
    has: (key) => values.has(key),
    string: (key) => get(key, "a string", (value) => typeof value === "string"),
    number: (key) => get(key, "a number", (value) => typeof value === "number"),
    boolean: (key) => get(key, "a boolean", (value) => typeof value === "boolean"),
    arrayLength: (key) => get<Json[]>(key, "a list", Array.isArray)?.length,
    strings: (key) => get<string[]>(key, "strings", listOf("string"))?.slice(),
    numbers: (key) => get<number[]>(key, "numbers", listOf("number"))?.slice(),
    booleans: (key) => get<boolean[]>(key, "booleans", listOf("boolean"))?.slice(),
    preview: () => undefined,
  };
}
