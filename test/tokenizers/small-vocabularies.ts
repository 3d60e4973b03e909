// Small GGUF vocabularies, one of each kind, made in the test: what they must do can be said by hand.

import { byteToChar } from "../../src/tokenizers/byte-level.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import type { Tokenizer } from "../../src/tokenizers/tokenizer.ts";
import { type MetadataRecord, metadataOf } from "./support.ts";

export const NORMAL = 1;
export const UNKNOWN = 2;
export const CONTROL = 3;
export const USER_DEFINED = 4;
export const BYTE = 6;

type Entry = [text: string, type: number, score?: number];

function record(model: string, entries: readonly Entry[], extra: MetadataRecord): MetadataRecord {
  return {
    "tokenizer.ggml.model": model,
    "tokenizer.ggml.tokens": entries.map(([text]) => text),
    "tokenizer.ggml.token_type": entries.map(([, type]) => type),
    "tokenizer.ggml.scores": entries.map(([, , score]) => score ?? 0),
    ...extra,
  };
}

const hex = (byte: number): string => byte.toString(16).toUpperCase().padStart(2, "0");

/** <unk> 0, <s> 1, </s> 2, bytes 3 to 258, then pieces; better scores for longer ones. */
export function spmRecord(extra: MetadataRecord = {}, more: readonly Entry[] = []): MetadataRecord {
  const pieces = [
    "▁",
    "h",
    "e",
    "l",
    "o",
    "w",
    "r",
    "d",
    "▁h",
    "el",
    "ell",
    "lo",
    "▁w",
    "or",
    "ld",
  ];
  const words = ["▁hell", "▁hello", "▁wor", "▁world", "▁▁"];
  return record(
    "llama",
    [
      ["<unk>", UNKNOWN],
      ["<s>", CONTROL],
      ["</s>", CONTROL],
      ...Array.from({ length: 256 }, (_, byte): Entry => [`<0x${hex(byte)}>`, BYTE]),
      ...pieces.map((text, rank): Entry => [text, NORMAL, -100 - rank]),
      ...words.map((text, rank): Entry => [text, NORMAL, -rank]),
      ...more,
    ],
    extra,
  );
}

/** The byte alphabet 0 to 255, merges, then control and user-defined tokens. */
export function bpeRecord(extra: MetadataRecord = {}, more: readonly Entry[] = []): MetadataRecord {
  const merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld"];
  return {
    ...record(
      "gpt2",
      [
        ...byteToChar.map((char): Entry => [char, NORMAL]),
        ...merges.map((merge): Entry => [merge.replace(" ", ""), NORMAL]),
        ["<|endoftext|>", CONTROL],
        ["<|im_start|>", CONTROL],
        ["<|im_end|>", CONTROL],
        ["<think>", USER_DEFINED],
        ...more,
      ],
      {
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.bos_token_id": 265,
        "tokenizer.ggml.eos_token_id": 267,
        ...extra,
      },
    ),
  };
}

/** [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then words and pieces. */
export function wordPieceRecord(extra: MetadataRecord = {}): MetadataRecord {
  const special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
  const words = ["▁hello", "▁world", "▁un", "able", "▁,", "▁!", "▁我", "▁想", "▁cafe", "s"];
  return record(
    "bert",
    [
      ...special.map((text): Entry => [text, CONTROL]),
      ...words.map((text): Entry => [text, NORMAL]),
    ],
    {
      "tokenizer.ggml.unknown_token_id": 1,
      "tokenizer.ggml.cls_token_id": 2,
      "tokenizer.ggml.seperator_token_id": 3,
      "tokenizer.ggml.padding_token_id": 0,
      ...extra,
    },
  );
}

/** <unk> 0, <s> 1, </s> 2, then pieces with the logarithms of their probabilities. */
export function unigramRecord(extra: MetadataRecord = {}): MetadataRecord {
  const pieces: readonly [string, number][] = [
    ...(["h", "e", "l", "o"] as const).map((text): [string, number] => [text, -8]),
    ...(
      [
        ["▁", -3],
        ["▁he", -2],
        ["ll", -2],
        ["llo", -3],
        ["▁hell", -9],
        ["▁hello", -5],
      ] as const
    ).map(([text, score]): [string, number] => [text, score]),
  ];
  return record(
    "t5",
    [
      ["<unk>", UNKNOWN],
      ["<s>", CONTROL],
      ["</s>", CONTROL],
      ...pieces.map(([text, score]): Entry => [text, NORMAL, score]),
    ],
    {
      "tokenizer.ggml.unknown_token_id": 0,
      "tokenizer.ggml.bos_token_id": 1,
      "tokenizer.ggml.eos_token_id": 2,
      "tokenizer.ggml.add_bos_token": true,
      "tokenizer.ggml.add_eos_token": true,
      "tokenizer.ggml.add_space_prefix": true,
      "tokenizer.ggml.remove_extra_whitespaces": true,
      ...extra,
    },
  );
}

export function make(from: MetadataRecord): Tokenizer {
  return tokenizerFromMetadata(metadataOf(from));
}

export function texts(tokenizer: Tokenizer, ids: readonly number[]): string[] {
  return ids.map((id) => tokenizer.tokenText(id));
}
