// The models of tokenizer.json: how a word becomes ids. One table entry per type.

import { ModelError } from "../../base/errors.ts";
import { BpeWords, mergeKey } from "../bpe.ts";
import type { Vocabulary } from "../vocabulary.ts";
import { WordPieces } from "../wordpiece.ts";
import {
  asArray,
  asString,
  booleanOr,
  failField,
  type JsonRecord,
  type Maker,
  makePiece,
  stringOr,
} from "./fields.ts";

/** Encodes words; `bytes`: as bytes in the byte alphabet. */
export interface WordModel {
  kind: string;
  encode(word: string, ids: number[], check: () => void): void;
}

type MakeModel = (vocabulary: Vocabulary, bytes: boolean) => WordModel;

const ROLE = "model";

const models: Readonly<Record<string, Maker<MakeModel>>> = {
  BPE: (piece) => (vocabulary, bytes) => {
    refuseSet(piece, "continuing_subword_prefix");
    refuseSet(piece, "end_of_word_suffix");
    refuseSet(piece, "dropout");
    const flag = (name: string): boolean => booleanOr(piece[name], false, `${ROLE}.${name}`);
    const words = new BpeWords(vocabulary, {
      merges: readMerges(piece.merges),
      units: bytes ? "bytes" : "characters",
      ignoreMerges: flag("ignore_merges"),
      byteFallback: flag("byte_fallback"),
      unknown: unknownId(piece, vocabulary),
      fuseUnknown: flag("fuse_unk"),
    });
    return { kind: "bpe", encode: (word, ids, check) => words.encode(word, ids, check) };
  },
  WordPiece: (piece) => (vocabulary) => {
    const unknown = unknownId(piece, vocabulary);
    if (unknown === undefined) failField(`${ROLE}.unk_token`, piece.unk_token, "a token");
    const maximum = piece.max_input_chars_per_word ?? 100;
    if (typeof maximum !== "number") {
      failField(`${ROLE}.max_input_chars_per_word`, maximum, "a number");
    }
    const pieces = new WordPieces(vocabulary, {
      firstMark: "",
      innerMark: stringOr(piece.continuing_subword_prefix, "##", `${ROLE}.prefix`),
      unknown: unknown as number,
      maxWordLength: maximum as number,
    });
    return { kind: "wordpiece", encode: (word, ids) => pieces.encode(word, ids) };
  },
};

export function makeModel(piece: JsonRecord, vocabulary: Vocabulary, bytes: boolean): WordModel {
  // Files before 2021 have no type; only BPE has merges.
  const typed = piece.type === undefined && piece.merges ? { ...piece, type: "BPE" } : piece;
  return makePiece(ROLE, models, typed)(vocabulary, bytes);
}

function unknownId(piece: JsonRecord, vocabulary: Vocabulary): number | undefined {
  if (piece.unk_token === undefined || piece.unk_token === null) return undefined;
  const text = asString(piece.unk_token, `${ROLE}.unk_token`);
  return (
    vocabulary.id(text) ??
    failField(`${ROLE}.unk_token`, text, "the text of a token in the vocabulary")
  );
}

/** "a b" or ["a", "b"], in order of rank. */
function readMerges(value: unknown): Map<string, number> {
  const ranks = new Map<string, number>();
  asArray(value, `${ROLE}.merges`).forEach((entry, rank) => {
    const parts = typeof entry === "string" ? entry.split(" ") : asArray(entry, `${ROLE}.merges`);
    const [left, right] = parts;
    if (parts.length !== 2 || typeof left !== "string" || typeof right !== "string") {
      failField(`${ROLE}.merges[${rank}]`, entry, "two texts");
    }
    const key = mergeKey(left as string, right as string);
    if (key.split(" ").length !== 2) {
      throw new ModelError(
        `tokenizer.json: the merge ${JSON.stringify(entry)} contains a space, which is not supported`,
      );
    }
    if (!ranks.has(key)) ranks.set(key, rank);
  });
  return ranks;
}

function refuseSet(piece: JsonRecord, name: string): void {
  const value = piece[name];
  if (value === undefined || value === null || value === "" || value === 0) return;
  throw new ModelError(
    `tokenizer.json: the BPE option ${name} (${JSON.stringify(value)}) is not supported`,
  );
}
