// Streaming: whatever the tokens, the pieces are whole characters and together equal decode(), which equals what
// TextDecoder makes of all bytes at once.

import { describe, expect, it } from "vitest";
import { tokenizerFromJson } from "../../src/tokenizers/from-json.ts";
import type { DecodeOptions, Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { tokenizerFolder } from "../support/tokenizer-files.ts";
import { bpeRecord, make, spmRecord, wordPieceRecord } from "./small-vocabularies.ts";
import { readJson } from "./support.ts";
import { randomSource, sampleTexts } from "./texts.ts";

function gpt2(): Tokenizer {
  return tokenizerFromJson(readJson(`${tokenizerFolder("gpt2")!}/tokenizer.json`), {});
}

function check(tokenizer: Tokenizer, ids: readonly number[], options: DecodeOptions): void {
  const stream = tokenizer.stream(options);
  const pieces = ids.map((id) => stream.push(id));
  pieces.push(stream.end());
  for (const piece of pieces) expect(piece.isWellFormed()).toBe(true);
  expect(pieces.join("")).toBe(tokenizer.decode(ids, options));
}

function wholeText(tokenizer: Tokenizer, ids: readonly number[]): string {
  const bytes = ids.flatMap((id) => [...tokenizer.tokenBytes(id)]);
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
}

describe.each([
  ["bpe", make(bpeRecord())],
  ["spm", make(spmRecord())],
  ["wordpiece", make(wordPieceRecord())],
  ["gpt2's tokenizer.json", gpt2()],
] as const)("%s", (_name, tokenizer) => {
  it("equals decode() for texts", () => {
    for (const text of sampleTexts(60)) {
      check(tokenizer, tokenizer.encode(text), {});
      check(tokenizer, tokenizer.encode(text), { special: true });
    }
  });

  it("equals decode() and TextDecoder for random ids: bytes of every sort", () => {
    const random = randomSource(7);
    const range = Math.min(tokenizer.vocabSize, 262); // where the single bytes are
    for (let round = 0; round < 400; round++) {
      const ids = Array.from({ length: 12 }, () => Math.floor(random() * range));
      check(tokenizer, ids, {});
      check(tokenizer, ids, { continues: true, special: true });
      expect(tokenizer.decode(ids, { continues: true })).toBe(wholeText(tokenizer, ids));
    }
  });
});

describe("a character over several tokens", () => {
  it("appears with its last byte", () => {
    const tokenizer = make(bpeRecord());
    const ids = tokenizer.encode("a😀b", { addSpecial: false });
    const stream = tokenizer.stream();
    expect(ids.map((id) => stream.push(id))).toEqual(["a", "", "", "", "😀", "b"]);
    expect(stream.end()).toBe("");
  });

  it("becomes U+FFFD where it is not finished", () => {
    const tokenizer = make(spmRecord());
    const stream = tokenizer.stream();
    const ids = tokenizer.encode("é", { addSpecial: false }).slice(0, -1);
    expect(ids.map((id) => stream.push(id)).join("")).toBe("");
    expect(stream.end()).toBe("\ufffd");
  });

  it("keeps a byte-order mark", () => {
    const tokenizer = make(bpeRecord());
    expect(tokenizer.decode(tokenizer.encode("\ufeffx"))).toBe("\ufeffx");
  });
});
