// The other names of flags. Translated before anything is parsed, so that every command knows them; flags.ts has the flags.

import { byName } from "../../src/base/by-name.ts";

/** llama.cpp's other names of a flag. Otherwise -ngl would be parsed as -n with the value "gl". */
const otherNames: Readonly<Record<string, string>> = byName({
  "-ngl": "--gpu-layers",
  "--n-gpu-layers": "--gpu-layers",
  "-np": "--parallel",
  "-ot": "--override-tensor",
  "-cmoe": "--cpu-moe",
  "-ncmoe": "--n-cpu-moe",
  ...{ "-md": "--model-draft", "--spec-draft-model": "--model-draft" },
  ...{ "-td": "--threads-draft", "--spec-draft-threads": "--threads-draft" },
  ...{ "-ngld": "--gpu-layers-draft", "--spec-draft-ngl": "--gpu-layers-draft" },
  "--n-gpu-layers-draft": "--gpu-layers-draft",
  "-Cr": "--cpu-range",
  "-ctk": "--cache-type-k",
  "-ctv": "--cache-type-v",
  "-jf": "--json-schema-file",
  "--draft-max": "--spec-draft-n-max",
  "--draft-min": "--spec-draft-n-min",
  "--draft-p-min": "--spec-draft-p-min",
  "--embedding": "--embeddings",
  "--rerank": "--reranking",
  "--sleep-idle-seconds": "--keep-alive",
});

/** The arguments with one name per flag; those after "--" are no flags of ours. */
export function withOneName(args: readonly string[]): string[] {
  const end = args.indexOf("--");
  return args.map((arg, at) => {
    if (end >= 0 && at > end) return arg;
    const [, name, rest] = /^(-[^=]*)(=.*)?$/s.exec(arg) ?? [];
    const other = name === undefined ? undefined : otherNames[name];
    return other === undefined ? arg : other + (rest ?? "");
  });
}
