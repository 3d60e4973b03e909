// Pre-tokenizers: how a text is split into words before byte-pair encoding. One table entry per tokenizer.ggml.pre;
// `names` lists the names in files, several if they behave the same here.
//
// The patterns are the models' own, for JavaScript's RegExp in Unicode mode, with these differences:
// - JavaScript's `\s` includes U+FEFF and lacks U+0085; the trainers' regex engines use White_Space.
//   It is written out here.
// - The apostrophe rules ignore case for ASCII only ([sS]), as in llama.cpp; an `i` flag would accept "ſ" for "s".
// - Categories (\p{L}, ...) follow the JavaScript engine's Unicode version (17 in Node 26); llama.cpp's table is
//   older. They differ in newly assigned characters, which no vocabulary has as a token.
// - A rule's lookahead sees only the piece from earlier rules, never the text after it.

import { ModelError } from "../base/errors.ts";

export interface PreTokenizer {
  readonly names: readonly string[];
  /** Applied in order: each splits the pieces of the one before at its matches; gaps are pieces, too. */
  readonly patterns: readonly RegExp[];
  readonly ignoreMerges?: boolean;
  /** Whether BOS is added if the file does not say. */
  readonly addBos?: boolean;
  /** These models have no BOS unless the file names one. */
  readonly noDefaultBos?: boolean;
}

/** An entry of the table: the sources of `patterns`, which are compiled at their first use, as that takes milliseconds. */
type Entry = Omit<PreTokenizer, "patterns"> & { readonly patterns: readonly string[] };

const SPACE = "\\p{White_Space}";
const CONTRACTION = "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])";
/** Whitespace: a run up to its last line break; a run except its last character if a word follows; any run. */
const SPACES = `${SPACE}*[\\r\\n]+|${SPACE}+(?!\\P{White_Space})|${SPACE}+`;

function llamaLike(numbers: string): string {
  return `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${numbers}| ?[^${SPACE}\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`;
}

const GPT2 = `'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|${SPACE}+(?!\\P{White_Space})`;
const LLAMA3 = llamaLike("\\p{N}{1,3}");
const QWEN2 = llamaLike("\\p{N}");

// Letters of cased scripts, as DeepSeek's tokenizer lists them.
const DEEPSEEK_LETTERS =
  "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ" +
  "\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ" +
  "Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃";
const DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+";

// Letters by case. llama.cpp approximates these two classes for non-ASCII letters because its regex engine has no
// \p{Lu}; the pattern here is the one the models were trained with.
const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";

const table: readonly Entry[] = [
  {
    names: [
      ...["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
      "jina-v5-nano",
    ],
    patterns: [LLAMA3],
    ignoreMerges: true,
    addBos: true,
  },
  { names: ["smaug-bpe", "dbrx"], patterns: [LLAMA3] },
  { names: ["chatglm-bpe", "glm4"], patterns: [LLAMA3], noDefaultBos: true },
  {
    names: [
      ...["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan"],
      ...["solar-open", "grok-2"],
    ],
    patterns: [QWEN2],
  },
  {
    names: [
      ...[
        "gpt-2",
        "phi-2",
        "jina-es",
        "jina-de",
        "jina-v2-es",
        "jina-v2-de",
        "jina-v1-en",
        "jina-v2-code",
        "roberta-bpe",
        "gigachat",
        "a.x-4.0",
      ],
      ...["mellum", "modern-bert", "exaone4", "olmo", "jais", "trillion", "granite-docling"],
    ],
    patterns: [GPT2],
  },
  { names: ["mpt"], patterns: [GPT2] },
  { names: ["falcon"], patterns: ["[\\p{P}$+<=>\\^~\\|`]+", GPT2, "[0-9]{3}"] },
  {
    names: ["starcoder", "codeshell", "exaone", "minerva-7b", "mellum2"],
    patterns: ["\\p{N}", GPT2],
  },
  { names: ["refact"], patterns: ["\\p{N}", GPT2] },
  { names: ["command-r"], patterns: ["\\p{N}", GPT2] },
  { names: ["smollm"], patterns: ["\\p{N}", GPT2] },
  {
    names: ["deepseek-llm"],
    patterns: [
      "[\\r\\n]",
      `${SPACE}?[${DEEPSEEK_LETTERS}]+`,
      `${SPACE}?[!-\\/:-~！-／：-～‘-‟\u3000-。]+`,
      `(?<!${SPACE})${SPACE}+$`, // only from the start of a run: from each of a million it would take hours
      DEEPSEEK_CJK,
      "\\p{N}+",
    ],
  },
  {
    names: ["deepseek-coder"],
    patterns: ["[\\r\\n]", `${SPACE}?\\p{L}+`, `${SPACE}?\\p{P}+`, DEEPSEEK_CJK, "\\p{N}"],
  },
  {
    names: ["tekken"],
    patterns: [
      `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*|\\p{N}|` +
        ` ?[^${SPACE}\\p{L}\\p{N}]+[\\r\\n\\/]*|${SPACES}`,
    ],
    ignoreMerges: true,
    addBos: true,
  },
  {
    // For files without the key (made before it existed).
    names: ["default"],
    patterns: ["[\\p{P}$+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9]{3}"],
  },
];

export const preTokenizers: readonly PreTokenizer[] = table.map(({ patterns, ...entry }) => {
  let compiled: readonly RegExp[] | undefined;
  return {
    ...entry,
    get patterns() {
      compiled ??= patterns.map((source) => new RegExp(source, "gu"));
      return compiled;
    },
  };
});

/** The pre-tokenizer of that name; unknown names are refused, because a wrong one silently degrades a model. */
export function findPreTokenizer(name: string): PreTokenizer {
  const found = preTokenizers.find((entry) => entry.names.includes(name));
  if (found) return found;
  const known = preTokenizers.flatMap((entry) => entry.names).join(", ");
  throw new ModelError(
    `tokenizer: tokenizer.ggml.pre is ${JSON.stringify(name)}, a pre-tokenizer that Lantern does not support. Supported: ${known}`,
  );
}

/** Calls `word` with every piece of `text`, in order. */
export function splitWords(
  text: string,
  patterns: readonly RegExp[],
  word: (piece: string) => void,
  stage = 0,
): void {
  const regex = patterns[stage];
  if (regex === undefined) {
    word(text);
    return;
  }
  const last = stage + 1 === patterns.length;
  const emit = (piece: string): void => {
    if (last) word(piece);
    else splitWords(piece, patterns, word, stage + 1);
  };
  let end = 0;
  // The nested call for the same pattern would disturb exec() on the shared RegExp: keep the position here.
  for (;;) {
    regex.lastIndex = end;
    const match = regex.exec(text);
    if (match === null || match[0] === "") break;
    if (match.index > end) emit(text.slice(end, match.index));
    end = match.index + match[0].length;
    emit(match[0]);
  }
  if (end < text.length) emit(end === 0 ? text : text.slice(end));
}
