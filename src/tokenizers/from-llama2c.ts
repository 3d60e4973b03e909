// A tokenizer from llama2.c's tokenizer.bin: a SentencePiece vocabulary as a plain list.
//
//   int32 longest token in bytes; then per token: float32 score, int32 byte length, the bytes (little endian)
//
// The list has neither the number of tokens (the checkpoint has it) nor their types: 0 is unknown, 1 and 2 are BOS and
// EOS, "<0x..>" are bytes. Spaces are stored as spaces; SentencePiece's "▁" is restored here. Files by early versions
// of llama2.c have the character with the byte's number instead of "<0x..>" (the default model's is one).

import { FormatError } from "../base/errors.ts";
import { type AddedToken, SpecialTextModel } from "./split-special.ts";
import { SPACE_MARK, SpmModel } from "./spm.ts";
import { TextTokenizer } from "./text-tokenizer.ts";
import type { SpecialTokens, Tokenizer } from "./tokenizer.ts";
import {
  byteTokenText,
  checkSpecialIds,
  parseByteToken,
  TOKEN_TYPE,
  Vocabulary,
} from "./vocabulary.ts";

const FILE = "tokenizer.bin";
const HEADER_BYTES = 4;
const TOKEN_HEADER_BYTES = 8;
const SPECIAL_TEXTS = ["<unk>", "<s>", "</s>"];
const FIRST_BYTE = SPECIAL_TEXTS.length;

/** Stands for a token's score and length, followed by zeros: U+FFFF in UTF-8, which is in no text, and a zero. */
const NO_CHARACTER = 0xefbfbf00;
const SEPARATOR = `\uffff${"\0".repeat(TOKEN_HEADER_BYTES - 3)}`;

const utf8 = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function tokenizerFromLlama2c(bytes: Uint8Array, vocabSize: number): Tokenizer {
  const vocabulary = llama2cVocabulary(bytes, vocabSize);
  const special: SpecialTokens = {
    bos: 1,
    eos: 2,
    eot: undefined,
    unk: 0,
    pad: undefined,
    sep: undefined,
    addBos: true,
    addEos: false,
  };
  checkSpecialIds(vocabulary, special);
  const controls = [1, 2].map(
    (id): AddedToken => ({
      id,
      text: vocabulary.texts[id]!,
      stripLeft: false,
      stripRight: false,
      singleWord: false,
      isWords: false,
    }),
  );
  const plain = new SpmModel(vocabulary, { addSpacePrefix: true, unknown: 0 });
  return new TextTokenizer({
    kind: "spm",
    vocabulary,
    special,
    fill: undefined,
    endOfGeneration: new Set([1, 2]), // BOS separates the stories that these models were trained on
    model: new SpecialTextModel(controls, plain),
    prefix: [1],
    suffix: [],
    bytesOf: (text) => utf8.encode(text.replaceAll(SPACE_MARK, " ")),
    leadingSpaces: 1,
    keepsAllText: true,
  });
}

/** The tokens in SentencePiece's form, for code that writes them to another format. */
export function llama2cVocabulary(bytes: Uint8Array, vocabSize: number): Vocabulary {
  const fail = (field: string, got: unknown, expected: string): never => {
    throw new FormatError("llama2c", { file: FILE, field, got, expected });
  };
  const leastBytes = HEADER_BYTES + vocabSize * TOKEN_HEADER_BYTES;
  if (!Number.isInteger(vocabSize) || vocabSize < 3 || bytes.length < leastBytes) {
    fail("size", bytes.length, `at least ${leastBytes} bytes for ${vocabSize} tokens`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const longest = view.getInt32(0, true);
  const separated = bytes.slice();
  const marks = new DataView(separated.buffer);
  const ends = new Int32Array(vocabSize);
  const types = new Uint8Array(vocabSize).fill(TOKEN_TYPE.normal);
  const scores = new Float32Array(vocabSize);
  let at = HEADER_BYTES;
  for (let id = 0; id < vocabSize; id++) {
    const left = bytes.length - at - TOKEN_HEADER_BYTES;
    if (left < 0) fail(`token ${id}`, `${bytes.length - at} bytes`, "8 bytes of score and length");
    scores[id] = view.getFloat32(at, true);
    const length = view.getInt32(at + 4, true);
    if (length < 0 || length > left || length > longest) {
      fail(`token ${id}: length`, length, `0 to ${Math.min(left, longest)}`);
    }
    marks.setUint32(at, NO_CHARACTER);
    marks.setUint32(at + 4, 0);
    at += TOKEN_HEADER_BYTES + length;
    ends[id] = at;
  }
  if (at !== bytes.length) {
    fail("size", bytes.length, `${at} bytes, the end of token ${vocabSize - 1}, the last one`);
  }
  if (scores.includes(Number.NaN)) {
    fail(`token ${scores.findIndex(Number.isNaN)}: score`, Number.NaN, "a number");
  }
  const joined = separated.subarray(HEADER_BYTES);
  const texts = textsAtOnce(joined, vocabSize) ?? textsOneByOne(separated, ends);
  nameBytes(texts);
  texts.forEach((text, id) => {
    if (parseByteToken(text) !== undefined) types[id] = TOKEN_TYPE.byte;
  });
  SPECIAL_TEXTS.forEach((text, id) => {
    texts[id] = text; // stored as "\n<s>\n" and the like
    types[id] = id === 0 ? TOKEN_TYPE.unknown : TOKEN_TYPE.control;
  });
  return new Vocabulary({ texts, types, scores });
}

/** Renames the 256 byte tokens of the early form, which follow the three special ones. */
function nameBytes(texts: string[]): void {
  const early = Array.from({ length: 256 }, (_, byte) =>
    byte === 0x20 ? SPACE_MARK : String.fromCharCode(byte),
  );
  if (!early.every((text, byte) => texts[FIRST_BYTE + byte] === text)) return;
  for (let byte = 0; byte < 256; byte++) texts[FIRST_BYTE + byte] = byteTokenText(byte);
}

/** Decoding all of them as one text takes a fifth of the time. Undefined: one is not valid, or looks like the separator. */
function textsAtOnce(joined: Uint8Array, count: number): string[] | undefined {
  try {
    const texts = marked(joined).split(SEPARATOR);
    texts.shift(); // the text before the first one
    return texts.length === count ? texts : undefined;
  } catch {
    return undefined;
  }
}

function textsOneByOne(separated: Uint8Array, ends: Int32Array): string[] {
  return Array.from(ends, (end, id) => {
    const start = (id === 0 ? HEADER_BYTES : ends[id - 1]!) + TOKEN_HEADER_BYTES;
    const bytes = separated.subarray(start, end);
    try {
      return marked(bytes);
    } catch (cause) {
      const facts = { file: FILE, field: `token ${id}: text`, got: bytes, expected: "valid UTF-8" };
      throw new FormatError("llama2c", facts, { cause });
    }
  });
}

function marked(bytes: Uint8Array): string {
  return decoder.decode(bytes).replaceAll(" ", SPACE_MARK);
}
