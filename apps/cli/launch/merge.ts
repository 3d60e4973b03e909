// Values put into the text of somebody's configuration: only their lines change, and comments, order and layout stay. Text that
// cannot be changed that way is refused, never rewritten.

import { UsageError } from "../../../src/index.ts";
import { setInJson } from "./merge-json.ts";
import { setInToml } from "./merge-toml.ts";
import { setInYaml } from "./merge-yaml.ts";
import type { Setting, Step } from "./settings.ts";

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
