// Values put into the text of somebody's configuration: only their lines change, and comments, order and layout stay. Text that
// cannot be changed that way is refused, never rewritten.

import { UsageError } from "../../../src/index.ts";
import { setInJson } from "./merge-json.ts";
import { setInToml } from "./merge-toml.ts";
import { setInYaml } from "./merge-yaml.ts";

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

export type ConfigFormat = "json" | "toml" | "yaml";

const writers = { json: setInJson, toml: setInToml, yaml: setInYaml } satisfies Record<
  ConfigFormat,
  (text: string, setting: Setting) => string
>;

/** The text with all settings; `file` is for the messages. */
export function merged(
  text: string,
  format: ConfigFormat,
  settings: readonly Setting[],
  file: string,
): string {
  let changed = text;
  for (const setting of settings) {
    try {
      changed = writers[format](changed, setting);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      const wanted = `${pathText(setting.at)} = ${JSON.stringify(setting.value)}`;
      throw new UsageError(
        `launch: ${file} is not changed: ${error.message}. Repair it, or add by hand: ${wanted}`,
      );
    }
  }
  return changed;
}

export function pathText(at: readonly Step[]): string {
  return at.map((step) => (typeof step === "string" ? step : `[${step.key}=${step.is}]`)).join(".");
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
