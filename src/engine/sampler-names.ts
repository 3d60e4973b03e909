// The steps of the sampler under llama.cpp's names, and their default order. A step can be written as its name
// ("top_k"), with dashes or without separators ("top-k", "topk"), as one of a few aliases, or as one letter in a short
// string ("edskypmxt").

import { byName } from "../base/by-name.ts";
import { OptionError } from "../base/errors.ts";

export type SamplerName =
  | "penalties"
  | "dry"
  | "top_n_sigma"
  | "top_k"
  | "typ_p"
  | "top_p"
  | "min_p"
  | "xtc"
  | "temperature";

/** The letters in the default order. */
const letters: Readonly<Record<SamplerName, string>> = {
  penalties: "e",
  dry: "d",
  top_n_sigma: "s",
  top_k: "k",
  typ_p: "y",
  top_p: "p",
  min_p: "m",
  xtc: "x",
  temperature: "t",
};

const nicknames: Readonly<Record<string, SamplerName>> = byName({
  nucleus: "top_p",
  temp: "temperature",
  typ: "typ_p",
  typicalp: "typ_p",
});

const names = Object.keys(letters) as SamplerName[];

const defaultSamplers: readonly SamplerName[] = names;

const byPlainName = new Map<string, SamplerName>([
  ...names.map((name): [string, SamplerName] => [plain(name), name]),
  ...Object.entries(nicknames),
]);
const byLetter = new Map(names.map((name) => [letters[name], name]));

/**
 * Parses a list of names, or a string of letters. A step that is left out is not run; one that is named twice is run
 * twice.
 */
export function readSamplers(value: unknown): readonly SamplerName[] {
  if (value === undefined) return defaultSamplers;
  if (typeof value === "string") return [...value].map((letter) => known(byLetter, letter, letter));
  if (!Array.isArray(value) || value.length > 64) throw wrong(value);
  return value.map((name: unknown) => {
    if (typeof name !== "string") throw wrong(name);
    return known(byPlainName, plain(name), name);
  });
}

function plain(name: string): string {
  return name.toLowerCase().replaceAll(/[-_]/g, "");
}

function known(table: ReadonlyMap<string, SamplerName>, key: string, got: string): SamplerName {
  const name = table.get(key);
  if (name === undefined) throw wrong(got);
  return name;
}

function wrong(got: unknown): OptionError {
  const short = Object.values(letters).join("");
  const expected = `a list of ${names.join(", ")}, or a string of their letters such as "${short}"`;
  return new OptionError("samplers", got, expected);
}
