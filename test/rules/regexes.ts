// Every regular expression of the sources, and those that may be super-linear because their input is short: the table that
// regexes.test.ts holds and `npm run fuzz -- regexes` leaves out.

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseSync } from "vite";
import { programFolders } from "./scan.ts";

export interface RegexLiteral {
  readonly path: string;
  readonly line: number;
  readonly regex: RegExp;
}

/** Why the input of a file's patterns is short. What has no bound is written without such a pattern: base/without-end.ts, split(), indexOf(). */
export const boundedInputs: Readonly<Record<string, string>> = {
  "apps/cli/launch/merge-yaml.ts": "a line of at most 10,000 letters, which is checked",
  "src/backends/webgpu/device.ts": "messages of Dawn, about our own shaders",
  "src/backends/webgpu/wgsl/record.ts": "names in our own shaders",
  "src/base/durations.ts": "at most 100 letters, which is checked",
  "src/catalog/hub-api.ts": "one header of an answer: fetch takes 16 KiB of headers",
  "src/catalog/hub-choice.ts": "the last 300 letters of a name",
  "src/catalog/hub-name.ts": "at most 1000 letters, which is checked",
  "apps/cli/main.ts": "a message about the user's own command line",
  "src/grammar/gbnf.ts": "64 letters of a grammar",
  "apps/server/protocols/ollama/models.ts": "the last 100 letters of a name",
  "apps/web/src/state/format.ts": "the digits of a number",
};

const root = fileURLToPath(new URL("../../", import.meta.url));

const folders: readonly [folder: string, endings: RegExp][] = [
  ...programFolders.map((folder): [string, RegExp] => [folder, /\.ts$/]),
  ["apps/web/src", /\.tsx?$/],
  ["bin", /\.js$/],
];

export function regexLiterals(): RegexLiteral[] {
  return folders.flatMap(([folder, endings]) =>
    readdirSync(root + folder, { recursive: true, encoding: "utf8" })
      .filter((name) => endings.test(name))
      .flatMap((name) => literalsOf(`${folder}/${name.replaceAll("\\", "/")}`)),
  );
}

function literalsOf(path: string): RegexLiteral[] {
  const text = readFileSync(root + path, "utf8");
  const { program, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]!.message}`);
  const found: RegexLiteral[] = [];
  const walk = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    const { regex, start = 0 } = node as {
      regex?: { pattern: string; flags: string };
      start?: number;
    };
    if (regex === undefined) {
      for (const part of Object.values(node)) walk(part);
      return;
    }
    const line = text.slice(0, start).split("\n").length;
    found.push({ path, line, regex: new RegExp(regex.pattern, regex.flags) });
  };
  walk(program);
  return found;
}
