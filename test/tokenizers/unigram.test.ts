// Unigram vocabularies: the best sum of scores, spaces, unknown characters, and the map of characters. The files of
// ../shared/archs that have one are tokenized as llama.cpp does in test/models/archs.test.ts.

import { describe, expect, it } from "vitest";
import { ModelError } from "../../src/base/errors.ts";
import { Charsmap } from "../../src/tokenizers/charsmap.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { make, texts, unigramRecord } from "./small-vocabularies.ts";

const KEY = "tokenizer.ggml.";
const plain = { addSpecial: false, parseSpecial: false };

function pieces(tokenizer: Tokenizer, text: string, options: object = plain): string[] {
  return texts(tokenizer, tokenizer.encode(text, options));
}

describe("unigram", () => {
  const tokenizer = make(unigramRecord());

  it("takes the way with the largest sum, not the longest token first", () => {
    expect(pieces(tokenizer, "hello")).toEqual(["▁hello"]);
    // "▁hell" scores -9, "▁he" and "ll" -2 each.
    expect(pieces(tokenizer, "hell")).toEqual(["▁he", "ll"]);
  });

  it("merges spaces, and puts one before every word", () => {
    expect(pieces(tokenizer, "  hello   hello ")).toEqual(["▁hello", "▁hello"]);
    expect(pieces(tokenizer, "   ")).toEqual([]);
    const kept = make(unigramRecord({ [`${KEY}remove_extra_whitespaces`]: false }));
    expect(pieces(kept, "hello  hello")).toEqual(["▁hello", "▁", "▁hello"]);
    const bare = make(
      unigramRecord({
        [`${KEY}remove_extra_whitespaces`]: false,
        [`${KEY}add_space_prefix`]: false,
      }),
    );
    expect(pieces(bare, "llo")).toEqual(["llo"]);
  });

  it("has one unknown token for neighbouring characters that are none", () => {
    expect(pieces(tokenizer, "€€ hello")).toEqual(["▁", "<unk>", "▁hello"]);
    expect(pieces(tokenizer, "😀")).toEqual(["▁", "<unk>"]);
  });

  it("adds BOS and EOS as the file says, and decodes without the first space", () => {
    expect(pieces(tokenizer, "hello", {})).toEqual(["<s>", "▁hello", "</s>"]);
    expect(tokenizer.decode(tokenizer.encode("hello hello"))).toBe("hello hello");
  });

  it("replaces characters first", () => {
    const mapped = make(unigramRecord({ [`${KEY}precompiled_charsmap`]: [...charsmapBytes()] }));
    expect(pieces(mapped, "HéllO")).toEqual(["▁", "<unk>", "e", "llo"]); // H stays
    expect(pieces(mapped, "hOllO")).not.toContain("<unk>");
  });

  it("refuses a damaged map", () => {
    const map = (bytes: number[]) => () =>
      make(unigramRecord({ [`${KEY}precompiled_charsmap`]: bytes }));
    expect(map([1, 2])).toThrow(/precompiled_charsmap: got 2 bytes, expected an array of 4 to/);
    expect(map([255, 255, 255, 255, 0])).toThrow(/got a trie of 4294967295 bytes/);
    expect(map([4, 0, 0, 0, 0, 0, 0, 0, 65])).toThrow(/a last replacement without an end/);
    expect(map([1, 2])).toThrow(ModelError);
  });
});

describe("the map of characters", () => {
  it("leaves what it does not know, and stops where the trie leads out of it", () => {
    const bytes = charsmapBytes();
    const text = new TextEncoder().encode("aOéz\u0000é");
    const read = (map: Charsmap) => new TextDecoder().decode(map.apply(text, () => {}));
    expect(read(new Charsmap(bytes, "map"))).toBe("aoez\u0000e");
    const view = new DataView(bytes.buffer);
    view.setUint32(4 + 4 * (0x100 ^ 0x4f), (0x4f | 0x100 | (0x1fffff << 10)) >>> 0, true);
    expect(read(new Charsmap(bytes, "map"))).toBe("aOez\u0000e");
  });
});

/** "O" becomes "o", "é" becomes "e". */
function charsmapBytes(): Uint8Array {
  const units = new Uint32Array(0x1000);
  const unit = (label: number, offset: number, isEnd: boolean) =>
    label | (isEnd ? 0x100 : 0) | (offset << 10);
  units[0] = unit(0, 0x100, false);
  units[0x100 ^ 0x4f] = unit(0x4f, 0x200, true);
  units[0x100 ^ 0x4f ^ 0x200] = 0x80000000;
  const second = 0x100 ^ 0xc3 ^ 0x400;
  units[0x100 ^ 0xc3] = unit(0xc3, 0x400, false);
  units[second ^ 0xa9] = unit(0xa9, 0x800, true);
  units[second ^ 0xa9 ^ 0x800] = 0x80000002;
  const replacements = [..."o\u0000e\u0000"].map((char) => char.charCodeAt(0));
  const bytes = new Uint8Array(4 + 4 * units.length + replacements.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 4 * units.length, true);
  units.forEach((value, i) => {
    view.setUint32(4 + 4 * i, value, true);
  });
  bytes.set(replacements, 4 + 4 * units.length);
  return bytes;
}
