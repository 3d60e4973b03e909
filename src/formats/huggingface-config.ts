// Values of config.json, checked: a value must have its expected type, and null counts as absent.

import { FormatError } from "../base/errors.ts";
import { describe, field, isObject, type JsonObject } from "./json.ts";

export function configError(
  what: string,
  got: string,
  expected: string,
  file = "config.json",
): FormatError {
  return new FormatError("huggingface", { file, field: what, got, expected });
}

/** The first of these keys that is there. */
export function valueIn(config: JsonObject, keys: readonly string[]): unknown {
  return keys
    .map((key) => field(config, key))
    .find((value) => value !== undefined && value !== null);
}

/** A number that is not negative; without a fallback it must be there. */
export function numberIn(config: JsonObject, keys: readonly string[], fallback?: number): number {
  const value = valueIn(config, keys) ?? fallback;
  if (typeof value === "number" && Number.isFinite(value) && value >= 0) return value;
  throw configError(keys[0]!, describe(value), "a number that is not negative");
}

/** Numbers of a list; undefined: there is none. */
export function numbersIn(config: JsonObject, key: string): readonly number[] | undefined {
  const value = field(config, key);
  if (value === undefined || value === null) return undefined;
  if (Array.isArray(value) && value.every((item) => Number.isFinite(item))) return value;
  throw configError(key, describe(value), "a list of numbers");
}

/** Texts of a list; undefined: there is none. */
export function textsIn(config: JsonObject, key: string): readonly string[] | undefined {
  const value = field(config, key);
  if (value === undefined || value === null) return undefined;
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value;
  throw configError(key, describe(value), "a list of texts");
}

export function flagOf(config: JsonObject, key: string): boolean {
  const value = field(config, key) ?? false;
  if (typeof value === "boolean") return value;
  throw configError(key, describe(value), "true or false");
}

/**
 * The parameters of rope: rope_parameters in newer configurations, in which layers with a window may have their own, and
 * rope_scaling in older ones.
 */
export function ropeOf(config: JsonObject): JsonObject {
  const key = ropeKey(config);
  const rope = field(config, key) ?? {};
  if (!isObject(rope)) throw configError(key, describe(rope), "an object or null");
  const full = field(rope, "full_attention");
  return isObject(full) ? full : rope;
}

/** The same for layers with a window, where it differs. */
export function windowRopeOf(config: JsonObject): JsonObject {
  const rope = field(config, ropeKey(config));
  const own = isObject(rope) ? field(rope, "sliding_attention") : undefined;
  return isObject(own) ? own : {};
}

export function ropeKey(config: JsonObject): string {
  return field(config, "rope_parameters") === undefined ? "rope_scaling" : "rope_parameters";
}
