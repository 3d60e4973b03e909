// How texts are cut: the GGUF pre-tokenizers by hand on telling cases, the pieces of tokenizer.json, and the translation of
// its regular expressions.

import { describe, expect, it } from "vitest";
import { FormatError, ModelError } from "../../src/base/errors.ts";
import { tokenizerFromJson } from "../../src/tokenizers/from-json.ts";
import { makeDecoder } from "../../src/tokenizers/json/decoder.ts";
import { makeNormalizer } from "../../src/tokenizers/json/normalizer.ts";
import { makePostProcessor } from "../../src/tokenizers/json/post-processor.ts";
import { makePreTokenizer, runStages } from "../../src/tokenizers/json/pre-tokenizer.ts";
import { translateRegex } from "../../src/tokenizers/json/regex.ts";
import { findPreTokenizer, preTokenizers, splitWords } from "../../src/tokenizers/pretokenize.ts";
import { sampleTexts } from "./texts.ts";

function cut(name: string, text: string): string[] {
  const words: string[] = [];
  splitWords(text, findPreTokenizer(name).patterns, (word) => words.push(word));
  return words;
}

describe("pre-tokenizers of GGUF files", () => {
  it.each([
    [
      "gpt-2",
      "I'll pay  $1234, OK?\n\n x",
      ["I", "'ll", " pay", " ", " $", "1234", ",", " OK", "?", "\n\n", " x"],
    ],
    [
      "llama-bpe",
      "I'LL pay 12345\r\n\n  x",
      ["I", "'LL", " pay", " ", "123", "45", "\r\n\n", " ", " x"],
    ],
    ["qwen2", "v12 (ok)\n", ["v", "1", "2", " (", "ok", ")\n"]],
    ["falcon", "a+b 1234 `x`", ["a", "+", "b", " ", "123", "4", " ", "`", "x", "`"]],
    ["starcoder", "x12 = 3", ["x", "1", "2", " =", " ", "3"]],
    ["refact", "ab 12", ["ab", " ", "1", "2"]],
    ["command-r", "ab 12", ["ab", " ", "1", "2"]],
    ["smollm", "ab 12", ["ab", " ", "1", "2"]],
    ["mpt", "ab 12", ["ab", " 12"]],
    ["deepseek-llm", "Hi, 世界 123\n", ["Hi", ",", " ", "世界", " ", "123", "\n"]],
    ["deepseek-coder", "f(x) 12\n", ["f", "(", "x", ")", " ", "1", "2", "\n"]],
    ["tekken", "CamelCase ÉTÉs/1", ["Camel", "Case", " ÉTÉs", "/", "1"]],
    ["default", "a+b 1234", ["a", "+", "b", " ", "123", "4"]],
  ])("%s", (name, text, words) => {
    expect(cut(name, text)).toEqual(words);
  });

  it("go by Unicode's white space, not JavaScript's", () => {
    expect(cut("llama-bpe", "a\u0085\u0085b")).toEqual(["a", "\u0085", "\u0085b"]);
    expect(cut("gpt-2", "a \ufeff\ufeff")).toEqual(["a", " \ufeff\ufeff"]);
  });

  it("lose nothing", () => {
    for (const { names } of preTokenizers) {
      for (const text of sampleTexts(50)) expect(cut(names[0]!, text).join("")).toBe(text);
    }
  });

  it("have one entry a name", () => {
    const names = preTokenizers.flatMap((entry) => entry.names);
    expect(new Set(names).size).toBe(names.length);
  });
});

function stages(value: unknown, text: string, atStart = true): string[] {
  const words: string[] = [];
  runStages(makePreTokenizer(value).stages, text, atStart, (word) => words.push(word));
  return words;
}

describe("pre-tokenizers of tokenizer.json", () => {
  const dash = (behavior: string, invert = false): object => ({
    type: "Split",
    pattern: { String: "-" },
    behavior,
    invert,
  });

  it.each([
    ["Isolated", ["the", "-", "final", "-", "-", "cut"]],
    ["Removed", ["the", "final", "cut"]],
    ["MergedWithPrevious", ["the-", "final-", "-", "cut"]],
    ["MergedWithNext", ["the", "-final", "-", "-cut"]],
    ["Contiguous", ["the", "-", "final", "--", "cut"]],
  ])("Split %s", (behavior, words) => {
    expect(stages(dash(behavior), "the-final--cut")).toEqual(words);
  });

  it("Split inverted", () => {
    expect(stages(dash("Removed", true), "a-b--c")).toEqual(["-", "-", "-"]);
  });

  it("Split at empty matches", () => {
    const thousands = {
      type: "Split",
      pattern: { Regex: "(?=(\\d{3})+(?!\\d))" },
      behavior: "Isolated",
    };
    expect(stages(thousands, "1234567")).toEqual(["1", "234", "567"]);
  });

  it("Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer", () => {
    expect(stages({ type: "Digits", individual_digits: true }, "a12²")).toEqual([
      "a",
      "1",
      "2",
      "²",
    ]);
    expect(stages({ type: "Digits", individual_digits: false }, "a12b")).toEqual(["a", "12", "b"]);
    expect(stages({ type: "Punctuation" }, "a,,$b")).toEqual(["a", ",", ",", "$", "b"]);
    expect(stages({ type: "Whitespace" }, "a_b, c")).toEqual(["a_b", ",", "c"]);
    expect(stages({ type: "WhitespaceSplit" }, " a, b ")).toEqual(["a,", "b"]);
    expect(stages({ type: "BertPreTokenizer" }, " a, b ")).toEqual(["a", ",", "b"]);
  });

  it("Metaspace", () => {
    const first = { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: true };
    expect(stages(first, "a b  c")).toEqual(["▁a", "▁b", "▁", "▁c"]);
    expect(stages(first, "a b", false)).toEqual(["a", "▁b"]);
    expect(stages({ ...first, prepend_scheme: "always" }, " a", false)).toEqual(["▁a"]);
    expect(stages({ ...first, split: false }, "a b")).toEqual(["▁a▁b"]);
  });

  it("ByteLevel before other pieces rewrites the text for them", () => {
    const sequence = {
      type: "Sequence",
      pretokenizers: [
        { type: "ByteLevel", add_prefix_space: true, use_regex: true },
        { type: "Digits", individual_digits: true },
      ],
    };
    expect(stages(sequence, "é 12")).toEqual(["ĠÃ©", "Ġ", "1", "2"]);
  });
});

describe("regular expressions", () => {
  const find = (regex: string, text: string): string[] => {
    const found = translateRegex(regex).matches(text);
    return found.flatMap((start, i) => (i % 2 === 0 ? [text.slice(start, found[i + 1])] : []));
  };

  it.each([
    ["(?i:'s|'ll)", "'S 'lL 'x", ["'S", "'lL"]],
    ["\\s+", "a\u0085b\ufeffc", ["\u0085"]],
    ["[^\\s]+", "a\u0085\ufeff", ["a", "\ufeff"]],
    ["\\d+", "٣4", ["٣4"]],
    ["\\p{Han}+", "漢字kana", ["漢字"]],
    ["\\w+", "naïve_x!", ["naïve_x"]],
    ["a.c", "a\rc a\nc", ["a\rc"]],
    ["x$", "x\nx", ["x", "x"]],
    ["\\bcat\\b", "cat écat catch", ["cat"]],
    ["[^(\\s|[.,])]+", "a(b.c", ["a", "b", "c"]],
    ["a++b?", "aab", ["aab"]],
    ["[ab]?+b", "b", []], // possessive: the b is not given back
    ["(?>a|ab)c", "abc ac", ["ac"]],
    ["[[:digit:]]{2}", "123", ["12"]],
    ["\\x41|\\u0042|\\x{43}", "ABC", ["A", "B", "C"]],
    ['[!"#\\-./\\[\\]]+', "-/]x", ["-/]"]],
    ["(?i:[a-c]x)", "BX", ["BX"]],
    ["\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567", ["1", "234", "567"]],
  ])("%s", (regex, text, matches) => {
    expect(find(regex, text)).toEqual(matches);
  });

  it.each(["(a)\\1", "[a&&b]", "\\p{Nonsense}", "(?m:a)", "[a", "a)", "\\G", "(?P<x>a)"])(
    "%s is refused by name",
    (regex) => {
      expect(() => translateRegex(regex)).toThrow(ModelError);
    },
  );
});

describe("normalizers, decoders, post-processors", () => {
  it("normalise", () => {
    const sequence = {
      type: "Sequence",
      normalizers: [
        { type: "NFD" },
        { type: "StripAccents" },
        { type: "Lowercase" },
        { type: "Strip", strip_left: true, strip_right: false },
        { type: "Replace", pattern: { Regex: "\\s+" }, content: "$&" },
      ],
    };
    expect(makeNormalizer(sequence)("  É  x ")).toBe("e$&x$&");
    expect(makeNormalizer({ type: "NFKC" })("ﬁ")).toBe("fi");
  });

  it("frame a text", () => {
    const bert = { type: "BertProcessing", sep: ["[SEP]", 3], cls: ["[CLS]", 2] };
    expect(
      makePostProcessor({ type: "Sequence", processors: [{ type: "ByteLevel" }, bert] }),
    ).toEqual({
      prefix: [2],
      suffix: [3],
    });
  });

  it.each([
    ["normalizer", () => makeNormalizer({ type: "Precompiled" }), /"Precompiled"/],
    ["pre_tokenizer", () => makePreTokenizer({ type: "UnicodeScripts" }), /"UnicodeScripts"/],
    ["decoder", () => makeDecoder({ type: "CTC" }), /"CTC"/],
    [
      "decoder order",
      () => makeDecoder({ type: "Strip", content: " ", start: 1, stop: 0 }),
      /Strip/,
    ],
    ["post_processor", () => makePostProcessor({ type: "Magic" }), /"Magic"/],
    [
      "model",
      () => tokenizerFromJson({ model: { type: "Unigram", vocab: { a: 0 } } }, {}),
      /"Unigram"/,
    ],
    [
      "BPE option",
      () =>
        tokenizerFromJson(
          { model: { type: "BPE", vocab: { a: 0 }, merges: [], end_of_word_suffix: "</w>" } },
          {},
        ),
      /end_of_word_suffix/,
    ],
  ])("an unsupported %s is an error that names it", (_what, makeIt, message) => {
    expect(makeIt).toThrow(ModelError);
    expect(makeIt).toThrow(message);
  });

  it.each([
    ["a missing model", {}],
    ["an id that is none", { model: { type: "BPE", vocab: { a: -1 }, merges: [] } }],
    ["an id beyond reason", { model: { type: "BPE", vocab: { a: 1e15 }, merges: [] } }],
    ["a merge of one", { model: { type: "BPE", vocab: { a: 0 }, merges: ["a"] } }],
    ["added tokens that are no list", { model: { type: "BPE", vocab: { a: 0 } }, added_tokens: 3 }],
  ])("%s is a format error", (_what, json) => {
    expect(() => tokenizerFromJson(json, {})).toThrow(FormatError);
  });
});

describe("special tokens of tokenizer.json", () => {
  const json = (added: object[]): object => ({
    added_tokens: added,
    model: {
      type: "BPE",
      unk_token: "?",
      vocab: { a: 0, b: 1, " ": 2, "?": 3, "<s>": 4, "</s>": 5, "[M]": 6, word: 7 },
      merges: [],
    },
    decoder: { type: "Fuse" },
  });
  const control = (id: number, content: string): object => ({ id, content, special: true });

  it("follow the config's add_bos_token and add_eos_token", () => {
    const added = [control(4, "<s>"), control(5, "</s>")];
    const config = { bos_token: "<s>", eos_token: { content: "</s>" }, add_bos_token: true };
    const tokenizer = tokenizerFromJson(json(added), config);
    expect(tokenizer.encode("a")).toEqual([4, 0]);
    expect(tokenizer.special).toMatchObject({ bos: 4, eos: 5, addBos: true, addEos: false });
    const both = tokenizerFromJson(json(added), { ...config, add_eos_token: true });
    expect(both.encode("a")).toEqual([4, 0, 5]);
    expect(both.encode("a", { addSpecial: false })).toEqual([0]);
    expect(both.decode([4, 0, 5])).toBe("a");
  });

  it("strip spaces and stand alone as they say", () => {
    const added = [
      { id: 6, content: "[M]", special: false, lstrip: true, rstrip: true },
      { id: 7, content: "word", special: false, single_word: true },
    ];
    const tokenizer = tokenizerFromJson(json(added), {});
    expect(tokenizer.encode("a  [M]  b")).toEqual([0, 6, 1]);
    expect(tokenizer.encode("a word b")).toEqual([0, 2, 7, 2, 1]);
    expect(tokenizer.encode("aword")).not.toContain(7);
  });
});
