// A tokenizer from GGUF metadata (tokenizer.ggml.*), with llama.cpp's defaults for missing keys.
//
// `kinds` is the table of tokenizer.ggml.model: one entry each. An unknown model or pre-tokenizer is refused; the
// "default" pre-tokenizer is used only if its key is missing (old files), as in llama.cpp.

import { ModelError } from "../base/errors.ts";
import type { Metadata } from "../base/metadata.ts";
import { BpeWords } from "./bpe.ts";
import { byteToChar, decodeByteLevel } from "./byte-level.ts";
import { Charsmap, checkCharsmapSize } from "./charsmap.ts";
import { pairFrame } from "./pair.ts";
import { findPreTokenizer, splitWords } from "./pretokenize.ts";
import { type AddedToken, type PlainTextModel, SpecialTextModel } from "./split-special.ts";
import { SPACE_MARK, SpmModel } from "./spm.ts";
import { TextTokenizer, type TokenizerParts } from "./text-tokenizer.ts";
import type { SpecialTokens, Tokenizer } from "./tokenizer.ts";
import { UnigramModel } from "./unigram.ts";
import {
  checkIds,
  checkSpecialIds,
  checkVocabularySize,
  findEndOfGeneration,
  findEndOfTurn,
  findFill,
  TOKEN_TYPE,
  Vocabulary,
} from "./vocabulary.ts";
import { cleanSpaces, WordPieceModel, WordPieces } from "./wordpiece.ts";

const KEY = "tokenizer.ggml.";

/** Merges per token: usually one makes it, but some vocabularies list all the ways. */
const MOST_MERGES = 16;

/** Ids and rules for missing keys. */
type Defaults = Partial<SpecialTokens>;

/** The additions of a kind to the vocabulary and the special tokens. */
interface KindParts
  extends Pick<TokenizerParts, "kind" | "bytesOf" | "leadingSpaces" | "keepsAllText"> {
  plain: PlainTextModel;
}

interface Kind {
  /** Its tokenizer.ggml.model. */
  readonly name: string;
  defaults(metadata: Metadata): Defaults;
  parts(metadata: Metadata, vocabulary: Vocabulary, special: SpecialTokens): KindParts;
}

const utf8 = new TextEncoder();

const spm: Kind = {
  name: "llama",
  defaults: () => ({ bos: 1, eos: 2, unk: 0, addBos: true }),
  parts(metadata, vocabulary, special) {
    const addSpacePrefix = metadata.boolean(`${KEY}add_space_prefix`) ?? true;
    return {
      kind: "spm",
      plain: new SpmModel(vocabulary, { addSpacePrefix, unknown: special.unk }),
      bytesOf: (text) => utf8.encode(text.replaceAll(SPACE_MARK, " ")),
      leadingSpaces: addSpacePrefix ? 1 : 0,
      keepsAllText: true,
    };
  },
};

const bpe: Kind = {
  name: "gpt2",
  defaults(metadata) {
    const pre = preTokenizer(metadata);
    const bos = pre.noDefaultBos ? undefined : 11;
    return { bos, eos: 11, addBos: pre.addBos ?? false };
  },
  parts(metadata, vocabulary) {
    const pre = preTokenizer(metadata);
    const words = new BpeWords(vocabulary, {
      merges: readMerges(metadata),
      units: "bytes",
      ignoreMerges: pre.ignoreMerges ?? false,
      byteFallback: false,
      unknown: undefined,
      fuseUnknown: false,
    });
    const plain: PlainTextModel = {
      encode: (text, ids, check) =>
        splitWords(text, pre.patterns, (word) => {
          check();
          words.encode(word, ids, check);
        }),
    };
    // A byte without its own token is dropped.
    const keepsAllText = byteToChar.every((char) => vocabulary.id(char) !== undefined);
    return { kind: "bpe", plain, bytesOf: decodeByteLevel, leadingSpaces: 0, keepsAllText };
  },
};

const wordpiece: Kind = {
  name: "bert",
  defaults: (metadata) => ({
    bos: metadata.number(`${KEY}cls_token_id`) ?? 101,
    unk: 100,
    sep: 102,
    pad: 0,
    addBos: true,
    addEos: true,
  }),
  parts(metadata, vocabulary, special) {
    if (special.unk === undefined) {
      throw new ModelError(`tokenizer: a WordPiece vocabulary needs ${KEY}unknown_token_id`);
    }
    const lowercase = metadata.boolean(`${KEY}normalizer.lowercase`) ?? true;
    const stripAccents = metadata.boolean(`${KEY}normalizer.strip_accents`) ?? lowercase;
    const pieces = new WordPieces(vocabulary, {
      firstMark: SPACE_MARK,
      innerMark: "",
      unknown: special.unk,
      maxWordLength: Number.POSITIVE_INFINITY,
    });
    return {
      kind: "wordpiece",
      plain: new WordPieceModel(pieces, { lowercase, stripAccents }),
      bytesOf: (text) => utf8.encode(cleanSpaces(text.replaceAll(SPACE_MARK, " "))),
      leadingSpaces: 1,
      keepsAllText: false,
    };
  },
};

const unigram: Kind = {
  name: "t5",
  defaults: () => ({ eos: 1, unk: 2, pad: 0, addBos: false, addEos: true }),
  parts(metadata, vocabulary, special) {
    if (special.unk === undefined) {
      throw new ModelError(`tokenizer: a unigram vocabulary needs ${KEY}unknown_token_id`);
    }
    const addSpacePrefix = metadata.boolean(`${KEY}add_space_prefix`) ?? false;
    return {
      kind: "unigram",
      plain: new UnigramModel(vocabulary, {
        addSpacePrefix,
        mergeSpaces: metadata.boolean(`${KEY}remove_extra_whitespaces`) ?? false,
        charsmap: readCharsmap(metadata),
        unknown: special.unk,
      }),
      bytesOf: (text) => utf8.encode(text.replaceAll(SPACE_MARK, " ")),
      leadingSpaces: addSpacePrefix ? 1 : 0,
      keepsAllText: false,
    };
  },
};

const kinds: readonly Kind[] = [spm, bpe, wordpiece, unigram];

/** `rows`: the size of the model's embedding table; undefined if the file has none. */
export function tokenizerFromMetadata(metadata: Metadata, rows?: number): Tokenizer {
  const kind = findKind(metadata);
  checkCounts(metadata, rows);
  const vocabulary = readVocabulary(metadata);
  const special = readSpecial(metadata, vocabulary, kind.defaults(metadata));
  const roles = ["eom", "fim_pad", "fim_rep", "fim_sep"];
  const named = roles.map((name) => metadata.number(`${KEY}${name}_token_id`));
  checkIds(vocabulary, Object.fromEntries(roles.map((name, i) => [name, named[i]])));
  const endOfGeneration = findEndOfGeneration(vocabulary, [special.eos, special.eot, ...named]);
  const { plain, ...parts } = kind.parts(metadata, vocabulary, special);
  const last = special.sep !== undefined && kind === wordpiece ? special.sep : special.eos;
  const added = specialTokens(metadata, vocabulary);
  // A token that strips neighbouring spaces may stand for any number of them.
  const strips = added.some(({ stripLeft, stripRight }) => stripLeft || stripRight);
  return new TextTokenizer({
    ...parts,
    keepsAllText: parts.keepsAllText && !strips,
    vocabulary,
    special,
    fill: findFill(vocabulary, (key) => metadata.number(`${KEY}${key}_token_id`)),
    pair: pairFrame(metadata, special, kind === wordpiece),
    endOfGeneration,
    model: new SpecialTextModel(added, plain),
    prefix: special.addBos ? [special.bos!] : [],
    suffix: special.addEos ? [last!] : [],
  });
}

function findKind(metadata: Metadata): Kind {
  const name = metadata.string(`${KEY}model`);
  const known = kinds.map((kind) => kind.name).join(", ");
  if (name === undefined) {
    throw new ModelError(
      `tokenizer: the file has no ${KEY}model, so it has no vocabulary. Supported tokenizer models: ${known}`,
    );
  }
  const kind = kinds.find((entry) => entry.name === name);
  if (kind) return kind;
  throw new ModelError(
    `tokenizer: ${KEY}model is ${JSON.stringify(name)}, which Lantern does not support. Supported: ${known}`,
  );
}

function readCharsmap(metadata: Metadata): Charsmap | undefined {
  const key = `${KEY}precompiled_charsmap`;
  if (!metadata.has(key)) return undefined;
  checkCharsmapSize(metadata.arrayLength(key), key);
  return new Charsmap(Uint8Array.from(metadata.numbers(key)!), key); // i8 or u8: the same bytes
}

function preTokenizer(metadata: Metadata): ReturnType<typeof findPreTokenizer> {
  return findPreTokenizer(metadata.string(`${KEY}pre`) || "default");
}

/** Runs before anything is decoded: a file may claim millions of tokens. */
function checkCounts(metadata: Metadata, rows: number | undefined): void {
  const tokens = metadata.arrayLength(`${KEY}tokens`);
  if (tokens === undefined) return;
  checkVocabularySize(tokens, rows);
  for (const [name, most] of [
    ["token_type", tokens],
    ["scores", tokens],
    ["merges", MOST_MERGES * tokens],
  ] as const) {
    const count = metadata.arrayLength(`${KEY}${name}`) ?? 0;
    if (count <= most) continue;
    throw new ModelError(
      `tokenizer: ${KEY}${name} has ${count} entries for ${tokens} tokens, expected at most ${most}`,
    );
  }
}

function readVocabulary(metadata: Metadata): Vocabulary {
  const stored = metadata.strings(`${KEY}tokens`);
  if (stored === undefined) throw new ModelError(`tokenizer: the file has no ${KEY}tokens`);
  // llama.cpp's name for a token without text: no text may ever match it.
  const texts = stored.map((text, id) => (text === "" ? `[EMPTY_${id}]` : text));
  const numbers = (name: string): number[] | undefined => {
    const values = metadata.numbers(`${KEY}${name}`);
    if (values === undefined || values.length >= texts.length) return values;
    throw new ModelError(
      `tokenizer: ${KEY}${name} has ${values.length} entries for ${texts.length} tokens, expected one for each`,
    );
  };
  const types = numbers("token_type");
  const scores = numbers("scores");
  return new Vocabulary({
    texts,
    types: types && Uint8Array.from({ length: texts.length }, (_, id) => tokenType(types[id]!)),
    scores: scores && Float32Array.from({ length: texts.length }, (_, id) => scores[id]!),
  });
}

function tokenType(value: number): number {
  return value >= TOKEN_TYPE.normal && value <= TOKEN_TYPE.byte ? value : TOKEN_TYPE.undefined;
}

function readMerges(metadata: Metadata): Map<string, number> {
  const merges = metadata.strings(`${KEY}merges`);
  if (merges === undefined) {
    throw new ModelError(
      `tokenizer: the file has no ${KEY}merges, which byte-pair encoding needs. Convert the model again`,
    );
  }
  const ranks = new Map<string, number>();
  merges.forEach((merge, rank) => {
    if (!ranks.has(merge)) ranks.set(merge, rank);
  });
  return ranks;
}

function readSpecial(
  metadata: Metadata,
  vocabulary: Vocabulary,
  defaults: Defaults,
): SpecialTokens {
  const id = (name: string, fallback: number | undefined): number | undefined => {
    const given = metadata.number(`${KEY}${name}_token_id`);
    if (given !== undefined) return given;
    return fallback !== undefined && vocabulary.has(fallback) ? fallback : undefined;
  };
  const special: SpecialTokens = {
    bos: id("bos", defaults.bos),
    eos: id("eos", defaults.eos),
    eot: id("eot", findEndOfTurn(vocabulary)),
    unk: id("unknown", defaults.unk),
    pad: id("padding", defaults.pad),
    sep: id("seperator", defaults.sep), // GGUF spells it so
    addBos: metadata.boolean(`${KEY}add_bos_token`) ?? defaults.addBos ?? false,
    addEos: metadata.boolean(`${KEY}add_eos_token`) ?? defaults.addEos ?? false,
  };
  checkSpecialIds(vocabulary, special);
  return special;
}

/** All tokens that are matched in the raw text: control, user-defined and unknown ones. */
function specialTokens(metadata: Metadata, vocabulary: Vocabulary): AddedToken[] {
  const { control, userDefined, unknown } = TOKEN_TYPE;
  const strips = stripRules(metadata);
  const tokens: AddedToken[] = [];
  vocabulary.types.forEach((type, id) => {
    if (type !== control && type !== userDefined && type !== unknown) return;
    const text = vocabulary.texts[id]!;
    tokens.push({
      id,
      text,
      singleWord: false,
      isWords: vocabulary.isWords(id),
      ...strips(text),
    });
  });
  return tokens;
}

/** GGUF does not say which tokens strip neighbouring spaces; like llama.cpp, we know these models by name. */
function stripRules(
  metadata: Metadata,
): (text: string) => Pick<AddedToken, "stripLeft" | "stripRight"> {
  const name = (metadata.string("general.name") ?? "").toLowerCase();
  const pre = metadata.string(`${KEY}pre`) ?? "";
  const phi3 = name.includes("phi-3") || name.includes("phi3");
  const architecture = metadata.string("general.architecture") ?? "";
  const mask =
    /jina-v2-(de|es|code)/.test(pre) || ["nomic-bert-moe", "jina-bert-v3"].includes(architecture)
      ? "<mask>"
      : name.includes("modern-bert")
        ? "[MASK]"
        : undefined;
  return (text) => ({
    stripLeft: text === mask,
    stripRight: phi3 && !["<unk>", "<s>", "<|endoftext|>"].includes(text),
  });
}
