// Ids of one text in two vocabularies.
// Held against: ids written here.

import { describe, expect, test } from "vitest";
import { ModelError } from "../../../src/base/errors.ts";
import {
  mapVocabulary,
  type VocabMap,
  type Vocabulary,
} from "../../../src/engine/speculate/vocab-map.ts";
import type { Tokenizer } from "../../../src/tokenizers/tokenizer.ts";

/** Words in angle brackets are control tokens; text is spelled letter by letter, in words that exist. */
function vocabulary(name: string, words: readonly string[], special: object = {}): Vocabulary {
  const isControl = (id: number) => words[id]!.startsWith("<");
  const bytes = (text: string) => new TextEncoder().encode(text);
  const tokenizer = {
    vocabSize: words.length,
    fingerprint: words.join(" ").length * 31 + words.length,
    special,
    tokenBytes: (id: number, options?: { special?: boolean }) =>
      isControl(id) && !options?.special ? bytes("") : bytes(words[id]!),
    encode: (text: string) =>
      [...text].map((letter) => words.indexOf(letter)).filter((id) => id >= 0),
  } as unknown as Tokenizer;
  return { name, tokenizer };
}

function translated(map: VocabMap, ids: readonly number[], most = 8): number[] {
  const out = new Int32Array(most);
  const count = map.translate(Int32Array.from(ids), ids.length, out);
  return [...out.subarray(0, count)];
}

const target = vocabulary("large", ["<s>", "</s>", "a", "b", "c", "ab", "abc"], { bos: 0, eos: 1 });

test("the same vocabulary maps to itself, up to the smaller number of tokens", () => {
  const map = mapVocabulary(target, target);
  expect([0, 3, 6, 7].map((id) => map.toDraft(id))).toEqual([0, 3, 6, -1]);
  expect(translated(map, [0, 3, 6])).toEqual([0, 3, 6]);
  expect(translated(map, [0, 3, 6], 2)).toEqual([0, 3]);
});

describe("another vocabulary", () => {
  const draft = vocabulary("small", ["c", "b", "a", "ab", "d", "<end>", "<begin>"], {
    bos: 6,
    eos: 5,
  });
  const map = mapVocabulary(target, draft);

  test("tokens of the same text, and of the same role, stand for each other", () => {
    expect([0, 1, 2, 3, 4, 5].map((id) => map.toDraft(id))).toEqual([6, 5, 2, 1, 0, 3]);
    expect(map.note).toContain("6 of its 7 tokens");
  });

  test("what the draft lacks is spelled", () => {
    expect(map.toDraft(6)).toBe(-1);
    expect(map.spelled(6)).toEqual([2, 1, 0]);
  });

  test("drafts are translated as text, up to the end of the text", () => {
    expect(translated(map, [2, 1, 0])).toEqual([2, 3, 4]); // the tokenizer of this test spells
    expect(translated(map, [3, 0])).toEqual([2, 3, 4]);
    expect(translated(map, [0, 5, 0])).toEqual([4, 1]);
    expect(translated(map, [0, 1, 2], 2)).toEqual([4, 3]);
    expect(translated(map, [4])).toEqual([]); // the target has no such letter
  });
});

test("a control token is not the text that looks like it", () => {
  const plain = vocabulary("plain", ["a", "b", "c", "ab", "abc", "<s>"]);
  const bytes = plain.tokenizer.tokenBytes;
  Object.assign(plain.tokenizer, { tokenBytes: (id: number) => bytes(id, { special: true }) });
  expect(mapVocabulary(target, plain).toDraft(0)).toBe(-1);
});

test("too little in common is refused, with the numbers", () => {
  const other = vocabulary("other", ["a", "x", "y", "z", "w", "v"]);
  expect(() => mapVocabulary(target, other)).toThrow(ModelError);
  expect(() => mapVocabulary(target, other)).toThrow(
    "the draft model other cannot draft for large: of its 6 tokens, 1 are among the 7 of large, expected at least 3. Give a draft model of the same family",
  );
});
