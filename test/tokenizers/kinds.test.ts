// Each kind of GGUF tokenizer on a small vocabulary: merging, fallbacks, special tokens, BOS/EOS, errors.

import { describe, expect, it } from "vitest";
import { FormatError, ModelError, UsageError } from "../../src/base/errors.ts";
import { tokenizerFromLlama2c } from "../../src/tokenizers/from-llama2c.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import {
  bpeRecord,
  CONTROL,
  make,
  NORMAL,
  spmRecord,
  texts,
  USER_DEFINED,
  wordPieceRecord,
} from "./small-vocabularies.ts";

const plain = { addSpecial: false, parseSpecial: false };

function pieces(tokenizer: Tokenizer, text: string, options: object = plain): string[] {
  return texts(tokenizer, tokenizer.encode(text, options));
}

describe("spm", () => {
  const tokenizer = make(spmRecord());

  it("merges by score, with a space before the text", () => {
    expect(pieces(tokenizer, "hello world")).toEqual(["▁hello", "▁world"]);
    expect(pieces(tokenizer, "hell")).toEqual(["▁hell"]);
    expect(pieces(tokenizer, "  hello")).toEqual(["▁▁", "▁hello"]);
    expect(pieces(tokenizer, "")).toEqual([]);
  });

  it("writes what is no token as bytes", () => {
    expect(pieces(tokenizer, "é\n")).toEqual(["▁", "<0xC3>", "<0xA9>", "<0x0A>"]);
    expect(pieces(tokenizer, "\ud800")).toEqual(["▁", "<0xEF>", "<0xBF>", "<0xBD>"]);
  });

  it("adds BOS, and EOS where the file says so", () => {
    expect(pieces(tokenizer, "hello", {})).toEqual(["<s>", "▁hello"]);
    expect(pieces(tokenizer, "", {})).toEqual(["<s>"]);
    const both = make(spmRecord({ "tokenizer.ggml.add_eos_token": true }));
    expect(pieces(both, "hello", {})).toEqual(["<s>", "▁hello", "</s>"]);
    const none = make(spmRecord({ "tokenizer.ggml.add_bos_token": false }));
    expect(pieces(none, "hello", {})).toEqual(["▁hello"]);
  });

  it("parses special tokens only when asked, with a space after each", () => {
    expect(pieces(tokenizer, "hello</s>world", { addSpecial: false })).toEqual([
      "▁hello",
      "</s>",
      "▁world",
    ]);
    expect(pieces(tokenizer, "</s>", plain)).not.toContain("</s>");
  });

  it("finds user-defined words in untrusted text, too, but no marks", () => {
    const own = ["<tool>", "[/TOOL]", "]~b]", "dow", "lll", "<table>", "</td>", "<=>", "\n\n"];
    const more = make(
      spmRecord(
        {},
        own.map((text) => [text, USER_DEFINED]),
      ),
    );
    const foundIn = (parseSpecial: boolean): string[] =>
      own.filter((text) => pieces(more, `hello${text}`, { parseSpecial }).includes(text));
    expect(foundIn(true)).toEqual(own);
    expect(foundIn(false)).toEqual(["dow", "lll", "<table>", "</td>", "<=>", "\n\n"]);
    expect(more.decode(more.encode("hello<tool>"))).toBe("hello<tool>");
  });

  it("does not merge the pieces of words to a control, unknown or byte token", () => {
    const more = make(
      spmRecord({}, [
        ["<", 1, -1],
        ["/s", 1, -2],
        ["/", 1, -200],
        ["s", 1, -200],
        [">", 1, -1],
        ["</s", 1, -3],
        ["0x41", 1, -4],
        ["<0x41", 1, -4],
        ..."0x41".split("").map((char): [string, number, number] => [char, 1, -200]),
        ["0x", 1, -5],
        ["41", 1, -5],
      ]),
    );
    expect(pieces(more, "</s>", plain)).toEqual(["▁", "</s", ">"]);
    expect(pieces(more, "<0x41>", plain)).toEqual(["▁", "<0x41", ">"]);
  });

  it("drops the first space when decoding, unless the ids continue a text", () => {
    const ids = tokenizer.encode("hello world");
    expect(tokenizer.decode(ids)).toBe("hello world");
    expect(tokenizer.decode(ids, { continues: true })).toBe(" hello world");
    expect(tokenizer.decode(ids, { special: true })).toBe("<s> hello world");
    expect(tokenizer.decode(tokenizer.encode("  hello"))).toBe("  hello");
    const bare = make(spmRecord({ "tokenizer.ggml.add_space_prefix": false }));
    expect(pieces(bare, "hello")).toEqual(["h", "ell", "o"]);
    expect(bare.decode(bare.encode(" hello"))).toBe(" hello");
  });

  it("handles tokens with the space mark at the end: no cutting at words then", () => {
    const more = make(
      spmRecord({}, [
        ["o▁", NORMAL, 5],
        ["o▁w", NORMAL, 6],
      ]),
    );
    expect(pieces(more, "lo wo")).toEqual(["▁", "l", "o▁w", "o"]);
    expect(more.decode(more.encode("lo wo"))).toBe("lo wo");
  });

  it("has llama.cpp's defaults", () => {
    expect(tokenizer.special).toMatchObject({
      bos: 1,
      eos: 2,
      unk: 0,
      addBos: true,
      addEos: false,
    });
    expect(tokenizer.kind).toBe("spm");
  });
});

describe("bpe", () => {
  const tokenizer = make(bpeRecord());

  it("merges in the order of the list", () => {
    expect(pieces(tokenizer, "hello world")).toEqual(["hello", "Ġworld"]);
    expect(pieces(tokenizer, "hhello")).toEqual(["h", "hello"]);
    expect(pieces(tokenizer, "lll")).toEqual(["ll", "l"]);
    expect(pieces(tokenizer, "é")).toEqual(["Ã", "©"]);
  });

  it("takes a whole word as it is where the pre-tokenizer ignores merges", () => {
    const extra = { "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": false };
    const ignoring = make(bpeRecord(extra, [["xyz", NORMAL]]));
    expect(pieces(ignoring, "xyz")).toEqual(["xyz"]);
    const merging = make(bpeRecord({}, [["xyz", NORMAL]]));
    expect(pieces(merging, "xyz")).toEqual(["x", "y", "z"]);
  });

  it("adds BOS by the pre-tokenizer's rule or the file's", () => {
    expect(pieces(tokenizer, "hello", {})).toEqual(["hello"]);
    const llama3 = make(bpeRecord({ "tokenizer.ggml.pre": "llama-bpe" }));
    expect(pieces(llama3, "hello", {})).toEqual(["<|endoftext|>", "hello"]);
  });

  it("prefers the longest special token, and swallows no space around it", () => {
    const more = make(
      bpeRecord({}, [
        ["<|im", CONTROL],
        ["<|im_end|>x", CONTROL],
      ]),
    );
    const ids = more.encode("<|im_end|>x <|im_end|> <|im", { addSpecial: false });
    expect(texts(more, ids)).toEqual(["<|im_end|>x", "Ġ", "<|im_end|>", "Ġ", "<|im"]);
  });

  it("shows control tokens only on request, user-defined ones always", () => {
    const ids = tokenizer.encode("<think>hello<|im_end|>", { addSpecial: false });
    expect(tokenizer.decode(ids)).toBe("<think>hello");
    expect(tokenizer.decode(ids, { special: true })).toBe("<think>hello<|im_end|>");
    expect(tokenizer.tokenBytes(ids.at(-1)!)).toHaveLength(0);
  });

  it("strips the space after Phi-3's special tokens", () => {
    const phi = make(bpeRecord({ "general.name": "Phi-3 mini" }));
    const ids = phi.encode("<|im_start|> \n hello<|endoftext|> w", { addSpecial: false });
    expect(texts(phi, ids)).toEqual(["<|im_start|>", "hello", "<|endoftext|>", "Ġw"]);
  });

  it("copes with a megabyte without a boundary", () => {
    const ids = tokenizer.encode("l".repeat(1_000_000), plain);
    expect(ids).toHaveLength(500_000);
    expect(tokenizer.encode(" ".repeat(1_000_000), plain)).toHaveLength(1_000_000);
    const spm = make(spmRecord());
    expect(spm.encode("h".repeat(1_000_000), plain)).toHaveLength(1_000_000);
  });

  it("says so where a stretch is too long for the regular expressions", () => {
    expect(() => tokenizer.encode("字".repeat(20_000_000))).toThrow(UsageError);
  });
});

describe("wordpiece", () => {
  const tokenizer = make(wordPieceRecord());

  it("lowercases, strips accents, cuts at punctuation and Chinese characters", () => {
    expect(pieces(tokenizer, "Hello, WORLD!")).toEqual(["▁hello", "▁,", "▁world", "▁!"]);
    expect(pieces(tokenizer, "Cafés 我想")).toEqual(["▁cafe", "s", "▁我", "▁想"]);
    expect(pieces(tokenizer, "unable\tun\u0000able")).toEqual(["▁un", "able", "▁un", "able"]);
  });

  it("gives up on a word as a whole", () => {
    expect(pieces(tokenizer, "hello unxable")).toEqual(["▁hello", "[UNK]"]);
  });

  it("puts [CLS] and [SEP] around the text", () => {
    expect(pieces(tokenizer, "hello", {})).toEqual(["[CLS]", "▁hello", "[SEP]"]);
  });

  it("decodes words with spaces between them", () => {
    expect(tokenizer.decode(tokenizer.encode("Hello, world!"))).toBe("hello, world!");
  });

  it("keeps case and accents where the file says so", () => {
    const cased = make(wordPieceRecord({ "tokenizer.ggml.normalizer.lowercase": false }));
    expect(pieces(cased, "Hello café")).toEqual(["[UNK]", "[UNK]"]);
  });
});

describe("end of generation", () => {
  const isEnd = (tokenizer: Tokenizer, text: string): boolean =>
    tokenizer.isEndOfGeneration(tokenizer.tokenId(text)!);

  it("is eos and the well-known texts", () => {
    const tokenizer = make(bpeRecord({ "tokenizer.ggml.eos_token_id": 266 }));
    expect(isEnd(tokenizer, "<|im_start|>")).toBe(true); // named as eos here
    expect(isEnd(tokenizer, "<|im_end|>")).toBe(true);
    expect(isEnd(tokenizer, "<|endoftext|>")).toBe(true);
    expect(isEnd(tokenizer, "<think>")).toBe(false);
    expect(tokenizer.special.eot).toBe(tokenizer.tokenId("<|im_end|>"));
  });

  it("makes control tokens of them, whatever the file says", () => {
    const tokenizer = make(bpeRecord({}, [["<end_of_turn>", NORMAL]]));
    const ids = tokenizer.encode("hello<end_of_turn>", { addSpecial: false });
    expect(texts(tokenizer, ids)).toEqual(["hello", "<end_of_turn>"]);
    expect(tokenizer.decode(ids)).toBe("hello");
    expect(isEnd(tokenizer, "<end_of_turn>")).toBe(true);
  });

  it("leaves <|end|> out where it ends only a message", () => {
    const harmony = ["<|end|>", "<|return|>", "<|call|>"].map((text): [string, number] => [
      text,
      CONTROL,
    ]);
    expect(isEnd(make(bpeRecord({}, harmony)), "<|end|>")).toBe(false);
    expect(isEnd(make(bpeRecord({}, harmony)), "<|return|>")).toBe(true);
    expect(isEnd(make(bpeRecord({}, harmony.slice(0, 1))), "<|end|>")).toBe(true);
  });
});

describe("what is refused", () => {
  it("unknown models and pre-tokenizers, by name", () => {
    expect(() => make({ ...spmRecord(), "tokenizer.ggml.model": "rwkv" })).toThrow(
      /"rwkv".*llama, gpt2, bert, t5/,
    );
    expect(() => make(bpeRecord({ "tokenizer.ggml.pre": "brandnew" }))).toThrow(
      /"brandnew".*llama-bpe/,
    );
    expect(() => make({})).toThrow(ModelError);
  });

  it("uses the default pre-tokenizer only where the key is absent", () => {
    const { "tokenizer.ggml.pre": _, ...rest } = bpeRecord();
    expect(pieces(make(rest), "hello world")).toEqual(["hello", "Ġworld"]);
  });

  it("ids outside the vocabulary, short arrays, missing merges", () => {
    expect(() => make(spmRecord({ "tokenizer.ggml.bos_token_id": 99_999 }))).toThrow(/bos.*99999/);
    expect(() => make(spmRecord({ "tokenizer.ggml.scores": [1] }))).toThrow(/scores has 1 entries/);
    const { "tokenizer.ggml.merges": _, ...rest } = bpeRecord();
    expect(() => make(rest)).toThrow(/merges/);
    expect(() => make(spmRecord()).decode([999_999])).toThrow(UsageError);
    expect(() => make(spmRecord()).tokenText(-1)).toThrow(UsageError);
  });
});

describe("llama2.c", () => {
  function tokenizerBin(entries: readonly (readonly [string, number])[], longest = 16): Uint8Array {
    const parts: number[] = [...new Uint8Array(new Int32Array([longest]).buffer)];
    for (const [text, score] of entries) {
      const bytes = new TextEncoder().encode(text);
      parts.push(...new Uint8Array(new Float32Array([score]).buffer));
      parts.push(...new Uint8Array(new Int32Array([bytes.length]).buffer), ...bytes);
    }
    return Uint8Array.from(parts);
  }
  const entries = [
    ["<unk>", 0],
    ["\n<s>\n", 0],
    ["\n</s>\n", 0],
    ["<0x0A>", 0],
    [" ", -9],
    ["a", -8],
    ["b", -7],
    [" a", -1],
    ["ab", -2],
    [" ab", -3],
  ] as const;

  it("reads and encodes", () => {
    const tokenizer = tokenizerFromLlama2c(tokenizerBin(entries), entries.length);
    expect(tokenizer.encode("ab a\n")).toEqual([1, 9, 7, 3]);
    expect(tokenizer.decode([1, 9, 7, 3])).toBe("ab a\n");
    expect(tokenizer.encode("a</s>")).toEqual([1, 7, 2]);
    expect(tokenizer.isEndOfGeneration(2)).toBe(true);
  });

  it("refuses every truncation, wrong counts and bad lengths", () => {
    const bytes = tokenizerBin(entries);
    for (let length = 0; length < bytes.length; length++) {
      expect(() => tokenizerFromLlama2c(bytes.subarray(0, length), entries.length)).toThrow(
        FormatError,
      );
    }
    expect(() => tokenizerFromLlama2c(bytes, entries.length - 1)).toThrow(FormatError);
    expect(() => tokenizerFromLlama2c(bytes, 2 ** 40)).toThrow(FormatError);
    expect(() => tokenizerFromLlama2c(tokenizerBin(entries, 2), entries.length)).toThrow(/length/);
    const negative = bytes.slice();
    negative.fill(0xff, 8, 12);
    expect(() => tokenizerFromLlama2c(negative, entries.length)).toThrow(/token 0: length/);
    const notUtf8 = bytes.slice();
    notUtf8[12] = 0xff;
    expect(() => tokenizerFromLlama2c(notUtf8, entries.length)).toThrow(/UTF-8/);
  });
});
