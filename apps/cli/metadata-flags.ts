// The flags for other values of a model's metadata, with llama.cpp's names: --override-kv, and those of rope and YaRN, which stand for
// keys of the architecture (src/formats/overridden.ts).

import { type Command, Option } from "commander";
import type { OpenOptions } from "../../src/index.ts";
import { numberFlag } from "./flag-values.ts";

export interface MetadataFlags {
  overrideKv?: string[];
  ropeScaling?: string;
  ropeScale?: number;
  ropeFreqBase?: number;
  ropeFreqScale?: number;
  yarnOrigCtx?: number;
  yarnExtFactor?: number;
  yarnAttnFactor?: number;
  yarnBetaSlow?: number;
  yarnBetaFast?: number;
}

/** YaRN's numbers: the flag, its sentence, the key, and the value that asks for nothing. */
const yarn = [
  ["orig-ctx", "the context that the model was trained for", "original_context_length", 0],
  ["ext-factor", "how much of high frequencies is kept", "yarn_ext_factor", -1],
  ["attn-factor", "factor of attention", "attn_factor", -1],
  ["beta-slow", "turns below which a frequency is scaled", "yarn_beta_slow", -1],
  ["beta-fast", "turns above which a frequency is kept", "yarn_beta_fast", -1],
] as const;

export function addMetadataFlags(command: Command): Command {
  const above = numberFlag({ min: 1e-6, max: 1e12 });
  command
    .addOption(
      new Option(
        "--override-kv <key=type:value>",
        "use other values of the file's metadata, as in tokenizer.ggml.add_bos_token=bool:false; several with commas, or by repeating the flag; types: int, float, bool, str",
      ).argParser((text: string, before: string[] | undefined) => [
        ...(before ?? []),
        ...text.split(/,(?=[\w.-]+=(?:int|float|bool|str):)/),
      ]),
    )
    .addOption(
      new Option(
        "--rope-scaling <type>",
        "how positions beyond the trained context are scaled",
      ).choices(["none", "linear", "yarn"]),
    )
    .option("--rope-scale <n>", "make the context n times as long: positions turn slower", above)
    .option("--rope-freq-scale <x>", "the same by its inverse: 0.5 is --rope-scale 2", above)
    .option("--rope-freq-base <n>", "base of the frequencies of positions", above);
  for (const [name, help, , usual] of yarn) {
    const range = { min: 0, max: 1e9, also: usual };
    command.option(
      `--yarn-${name} <n>`,
      `of YaRN: ${help}; ${usual}: the model's`,
      numberFlag(range),
    );
  }
  return command;
}

export function metadataOptions(flags: MetadataFlags): Pick<OpenOptions, "overrideKv"> {
  const { ropeScaling, ropeScale, ropeFreqScale, ropeFreqBase } = flags;
  const factor = ropeScale ?? (ropeFreqScale === undefined ? undefined : 1 / ropeFreqScale);
  const given = flags as Readonly<Record<string, unknown>>;
  const all = [
    ...(flags.overrideKv ?? []),
    ...(ropeScaling === undefined ? [] : [`.rope.scaling.type=str:${ropeScaling}`]),
    ...(factor === undefined ? [] : [`.rope.scaling.factor=float:${factor}`]),
    ...(ropeFreqBase === undefined ? [] : [`.rope.freq_base=float:${ropeFreqBase}`]),
    ...yarn.flatMap(([name, , key, usual]) => {
      const value = given[new Option(`--yarn-${name} <n>`).attributeName()];
      if (value === undefined || value === usual) return [];
      return [`.rope.scaling.${key}=${name === "orig-ctx" ? "int" : "float"}:${String(value)}`];
    }),
  ];
  return all.length > 0 ? { overrideKv: all } : {};
}
