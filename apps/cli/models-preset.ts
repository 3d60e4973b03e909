// The reader of --models-preset: a file of settings for each model, in TOML or JSON. Keys are the names of the flags without dashes,
// as in llama.cpp's presets. Every key and value is checked: an error names the file, the path of the key, its value and the expected
// value.

import { Option } from "commander";
import { byName } from "../../src/base/by-name.ts";
import { keepAliveText, keepMsOf } from "../../src/base/durations.ts";
import { unknownName } from "../../src/base/options.ts";
import { show } from "../../src/base/show.ts";
import { parseToml } from "../../src/base/toml.ts";
import { kvTypes, LanternError, UsageError } from "../../src/index.ts";
import { generationRows } from "../../src/options/generation.ts";
import { openRows } from "../../src/options/open.ts";
import { expectedOf, flagRange, type OptionRow, takes } from "../../src/options/row.ts";
import { samplingRows } from "../../src/options/sampling.ts";
import type { ModelPreset } from "../server/serve.ts";
import type { CliContext } from "./command.ts";
import { generateOptions, type ModelFlags } from "./flags.ts";

/** The settings of one model in the file. */
export interface ModelSettings {
  /** A path, relative to the file's folder, or a name of the catalog. */
  readonly model?: string | undefined;
  readonly aliases: readonly string[];
  readonly isLoadedAtStart: boolean;
  /** The flags that it is opened with. */
  readonly flags: Partial<ModelFlags>;
  readonly preset: ModelPreset;
}

export interface PresetFile {
  /** For every model; a model's own section comes first. */
  readonly defaults: ModelSettings;
  readonly models: ReadonlyMap<string, ModelSettings>;
}

/** Reads a value, or returns undefined if it does not match `expected`. */
interface Key {
  readonly expected: string;
  /** The flag that it stands for, and the value of that. */
  readonly flag: string | undefined;
  readonly isSampling?: true;
  fits(value: unknown): boolean;
}

const isText = (value: unknown): boolean => typeof value === "string" && value !== "";
const text = (expected: string, flag: Key["flag"]): Key => ({ expected, flag, fits: isText });
const yesOrNo: Key = {
  expected: "true or false",
  flag: undefined,
  fits: (value) => typeof value === "boolean",
};
const oneOf = (values: readonly string[], flag: Key["flag"]): Key => ({
  expected: `one of ${values.join(", ")}`,
  flag,
  fits: (value) => typeof value === "string" && values.includes(value),
});
const texts: Key = {
  expected: "a text, or a list of texts",
  flag: undefined,
  fits: (value) => (Array.isArray(value) ? value.every(isText) : isText(value)),
};

/** Keys of the rows: their flags, without dashes. */
function keysOf(
  rows: Readonly<Record<string, OptionRow>>,
  more: Pick<Key, "isSampling"> = {},
): Readonly<Record<string, Key>> {
  const known = Object.values(rows).flatMap((row): [string, Key][] => {
    if (row.flag === undefined) return [];
    const option = new Option(row.flag);
    if (option.negate) return [];
    return [[option.name(), { ...keyOf(row), flag: option.attributeName(), ...more }]];
  });
  return Object.fromEntries(known);
}

/** A choice is written as its flag is. */
function keyOf(row: OptionRow): Pick<Key, "expected" | "fits"> {
  if (row.type === "texts") return texts;
  if (row.type === "text") return text("a text", undefined);
  if (row.type === "choice") {
    const words = Object.keys(row.flagWords ?? {});
    const values = [...words, ...row.values.filter((value) => typeof value !== "boolean")];
    return {
      expected: `one of ${values.join(", ")}`,
      fits: (value) => (values as unknown[]).includes(value),
    };
  }
  const inFile = row.type === "number" ? { ...row, range: flagRange(row) } : row;
  const { note: _, ...plain } = inFile;
  return { expected: expectedOf(plain), fits: (value) => takes(plain, value) };
}

const keys: Readonly<Record<string, Key>> = byName({
  model: text("a path or a name of the catalog", undefined),
  alias: texts,
  pinned: yesOrNo,
  "load-on-startup": yesOrNo,
  "keep-alive": {
    expected: keepAliveText,
    flag: undefined,
    fits: (value) => keepMsOf(value) !== undefined,
  },
  system: text("a text", undefined),
  ...keysOf(openRows),
  "cache-type": oneOf(kvTypes, "cacheType"),
  "chat-template": text("the name of a template, or a Jinja template", "template"),
  ...keysOf(generationRows, { isSampling: true }),
  ...keysOf(samplingRows, { isSampling: true }),
});

/** What belongs to one model only. */
const ofOneModel: readonly string[] = ["model", "alias"];

export async function readPresets(path: string, { terminal }: CliContext): Promise<PresetFile> {
  return parsePresets(await terminal.readText(path), path);
}

export function parsePresets(source: string, path: string): PresetFile {
  const file = path.split(/[\\/]/).at(-1)!;
  const root = record(parsed(source, file), file, "the file");
  check(file, "", Object.keys(root), ["defaults", "models"]);
  const defaults = settings(file, "defaults", root.defaults ?? {}, ofOneModel);
  const models = Object.entries(record(root.models ?? {}, file, "models")).map(
    ([name, value]): [string, ModelSettings] => [name, settings(file, pathOf(name), value, [])],
  );
  const seen = new Map(models.map(([name]) => [name, name]));
  for (const [name, { aliases }] of models) {
    for (const alias of aliases) {
      const other = seen.get(alias);
      if (other !== undefined) {
        throw new UsageError(
          `${file}: ${pathOf(name)}.alias: got ${show(alias)}, which is also a name of ${other}, expected a name of its own`,
        );
      }
      seen.set(alias, name);
    }
  }
  return { defaults, models: new Map(models) };
}

/** A name with dots or spaces is quoted, as in the file. */
function pathOf(name: string): string {
  return `models.${/^[\w-]+$/.test(name) ? name : JSON.stringify(name)}`;
}

function parsed(source: string, file: string): unknown {
  try {
    return /\.json$/i.test(file) ? (JSON.parse(source) as unknown) : parseToml(source);
  } catch (error) {
    const isOurs = error instanceof LanternError || error instanceof SyntaxError;
    if (!isOurs) throw error;
    throw new UsageError(`${file}: ${error.message}`, { cause: error });
  }
}

function record(value: unknown, file: string, where: string): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Record<string, unknown>;
  }
  throw new UsageError(`${file}: ${where}: got ${show(value)}, expected a table of settings`);
}

function check(file: string, where: string, names: string[], known: readonly string[]): void {
  const wrong = names.find((name) => !known.includes(name));
  if (wrong === undefined) return;
  throw new UsageError(`${file}: ${where}${unknownName("key", wrong, known)}`);
}

function settings(
  file: string,
  where: string,
  value: unknown,
  refused: readonly string[],
): ModelSettings {
  const given = record(value, file, where);
  const known = Object.keys(keys).filter((name) => !refused.includes(name));
  check(file, `${where}: `, Object.keys(given), known);
  const flags: Record<string, unknown> = {};
  const sampling: Record<string, unknown> = {};
  for (const [name, one] of Object.entries(given)) {
    const { fits, expected, flag, isSampling } = keys[name]!;
    if (!fits(one)) {
      throw new UsageError(`${file}: ${where}.${name}: got ${show(one)}, expected ${expected}`);
    }
    const value = keys[name]!.expected === texts.expected ? list(one) : one;
    if (flag !== undefined) (isSampling ? sampling : flags)[flag] = value;
  }
  const keepMs = keepMsOf(given["keep-alive"]);
  return {
    model: given.model as string | undefined,
    aliases: given.alias === undefined ? [] : list(given.alias),
    isLoadedAtStart: given["load-on-startup"] === true,
    flags,
    preset: {
      sampling: generateOptions(sampling),
      ...(given.system !== undefined && { system: given.system as string }),
      ...(given.pinned !== undefined && { isPinned: given.pinned as boolean }),
      ...(keepMs !== undefined && { keepMs }),
    },
  };
}

function list(value: unknown): string[] {
  return (Array.isArray(value) ? value : [value]) as string[];
}
