// The library's messages for readers at the command line: options are named by their flags (src/options/names.ts). What is left here
// are sentences whose advice is another one at the command line.

import { flagOf, withNames } from "../../src/options/names.ts";

type Reword = (...found: string[]) => string;

/** In this order. */
const sentences: readonly (readonly [RegExp, string | Reword])[] = [
  [/\b([a-z][A-Za-z]+)\(\): /g, "$1: "],
  [/\ballow it to be replaced \(replace: true\)/g, "replace it with --force"],
  [/\bLeave out (mask, range.*)/g, (_, names) => `Leave out ${flagged(names)}`],
  [/^(?:binding: )?numa "(\w+)"/, "--numa $1"],
  [/^binding: /, ""],
  [/\bgpuLayers (\d+) or auto\b/g, "-ngl $1 or -ngl auto"],
  [/\bgpuLayers 0\b/g, "-ngl 0"],
  [/\bUse a contextSize of at most/g, "Use -c with at most"],
  [/\bwith the option profile: true/g, "with --profile"],
  [
    /\bUse generate\(\), or choose a template by name with the chatTemplate option/g,
    'Use "lantern run", or choose a template with --template',
  ],
  [/\bopen the model with a larger contextSize/g, "use a larger -c"],
  [/\bOpen the model with a larger parallel, or contextSize/g, "Use a larger --parallel, or -c"],
  [/\bOpen the model with kvType f32/g, "Use --cache-type f32"],
  [/\bor with backend "cpu"/g, "or use --backend cpu"],
  [/\bbackend "cpu"/g, "--backend cpu"],
  [
    /\b([Oo])pen (?:the model|it) without (\w+)\b/g,
    (_, letter, option) => `${letter === "O" ? "Drop" : "drop"} ${flagOf(option!) ?? option}`,
  ],
  [/\bwith mode quick\b/g, "with --quick"],
  [/\bwith this file among its adapters\b/g, "with --lora FILE"],
  [/\bexpertSlots: got 0\./g, "--hot-fraction: got 0."],
  [/\bwithout opOffload\b/g, "with --no-op-offload"],
  [/\bopOffload: got true\b/g, "--op-offload: got it"],
];

const flagged = (names: string | undefined): string =>
  names!.replace(/\b(mask|range|strict|numa)\b/g, (name) => flagOf(name)!);

export function inFlags(message: string): string {
  const reworded = sentences.reduce(
    (text, [found, words]) =>
      typeof words === "string" ? text.replace(found, words) : text.replace(found, words),
    message,
  );
  return withNames(reworded, flagOf);
}
