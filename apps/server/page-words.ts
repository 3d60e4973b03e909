// The library's messages for readers in the app or over HTTP: options are named by fields and labels (src/options/names.ts). What is
// left here are sentences whose advice is another one there.

import { labelOf, withNames } from "../../src/options/names.ts";

const sentences: readonly (readonly [RegExp, string])[] = [
  [/\b([a-z][A-Za-z]+)\(\): /g, "$1: "],
  [/\ballow it to be replaced \(replace: true\)/g, "delete that file first"],
  [/\bUse a contextSize of at most (\d+)/g, "Use a context of at most $1 tokens"],
  [/, or open the model with a larger contextSize/g, ", or load the model with a larger context"],
  [
    /\bOpen the model with a larger parallel, or contextSize/g,
    "Load the model with a larger context",
  ],
  [/\bgpuLayers (\d+) or auto\b/g, "$1 GPU layers"],
  [
    /\bUse generate\(\), or choose a template by name with the chatTemplate option/g,
    "Load it with a chat template, or let it continue a text",
  ],
  [/ \(kvType\)/g, ""],
];

export function inPageWords(message: string): string {
  const reworded = sentences.reduce((text, [found, word]) => text.replace(found, word), message);
  return withNames(reworded, labelOf);
}
