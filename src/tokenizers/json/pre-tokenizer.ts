// The pre-tokenizers of tokenizer.json: how normalised text is split into the words that the model encodes. One table
// entry per type.
//
// ByteLevel also rewrites its words in the byte alphabet. If it is last, as it nearly always is, that is left to
// bpe.ts, which works on bytes anyway (`bytesLast`); words can then be looked up as they are in the text.

import type { Check } from "../../base/check.ts";
import { ModelError } from "../../base/errors.ts";
import { encodeByteLevel } from "../byte-level.ts";
import { findPreTokenizer, splitWords } from "../pretokenize.ts";
import {
  asArray,
  asString,
  booleanOr,
  type JsonRecord,
  type Maker,
  makePiece,
  stringOr,
} from "./fields.ts";
import { makePattern } from "./normalizer.ts";
import { nativePattern, type Pattern, toRegExp } from "./regex.ts";

/** Splits one piece into smaller ones; `atStart`: it starts the whole text. `check` throws when the work should stop. */
export type Stage = (
  piece: string,
  atStart: boolean,
  emit: (piece: string) => void,
  check?: Check,
) => void;

export interface PreTokenizer {
  stages: readonly Stage[];
  /** The words are to be written in the byte alphabet. */
  bytesLast: boolean;
}

const ROLE = "pre_tokenizer";
const utf8 = new TextEncoder();

// Compiled only if a tokenizer uses them.
const spaces = () => nativePattern(/\p{White_Space}/gu);
const marksAlone = () => nativePattern(/[\p{P}$+<=>^`|~]/gu);
const wordRuns = () => nativePattern(toRegExp("\\w+|[^\\w\\s]+"));

const stages: Readonly<Record<string, Maker<Stage>>> = {
  Split: ({ pattern, behavior, invert }) => {
    const search = makePattern(pattern, `${ROLE}.pattern`);
    const found = typeof search === "string" ? literal(search) : search;
    const inverted = booleanOr(invert, false, `${ROLE}.invert`);
    return splitStage(found, asString(behavior, `${ROLE}.behavior`), inverted);
  },
  Digits: ({ individual_digits }) => {
    const individual = booleanOr(individual_digits, false, `${ROLE}.individual_digits`);
    return splitStage(nativePattern(/\p{N}/gu), individual ? "Isolated" : "Contiguous", false);
  },
  Punctuation: ({ behavior }) =>
    splitStage(marksAlone(), stringOr(behavior, "Isolated", `${ROLE}.behavior`), false),
  Whitespace: () => splitStage(wordRuns(), "Removed", true),
  WhitespaceSplit: () => splitStage(spaces(), "Removed", false),
  BertPreTokenizer: () => {
    const words = splitStage(spaces(), "Removed", false);
    const marks = splitStage(marksAlone(), "Isolated", false);
    return (piece, atStart, emit) =>
      words(piece, atStart, (word) => {
        marks(word, false, emit);
      });
  },
  Metaspace: metaspace,
  ByteLevel: (piece) => {
    const cut = byteLevelCut(piece);
    return (text, atStart, emit) =>
      cut(text, atStart, (word) => {
        emit(encodeByteLevel(utf8.encode(word)));
      });
  },
};

export function makePreTokenizer(value: unknown): PreTokenizer {
  if (value === undefined || value === null) return { stages: [], bytesLast: false };
  const pieces = flatten(value);
  const last = pieces.at(-1);
  if (last?.type !== "ByteLevel") {
    return { stages: pieces.map((piece) => makePiece(ROLE, stages, piece)), bytesLast: false };
  }
  const before = pieces.slice(0, -1).map((piece) => makePiece(ROLE, stages, piece));
  return { stages: [...before, byteLevelCut(last)], bytesLast: true };
}

/** Runs the stages from `index` on. */
export function runStages(
  list: readonly Stage[],
  piece: string,
  atStart: boolean,
  emit: (word: string) => void,
  check?: Check,
  index = 0,
): void {
  const stage = list[index];
  if (stage === undefined) {
    if (piece !== "") emit(piece);
    return;
  }
  let first = atStart;
  const go = (part: string): void => {
    runStages(list, part, first, emit, check, index + 1);
    first = false;
  };
  stage(piece, atStart, go, check);
}

function flatten(value: unknown): JsonRecord[] {
  const piece = makePiece<JsonRecord>(ROLE, flattenable, value);
  if (piece.type !== "Sequence") return [piece];
  return asArray(piece.pretokenizers, `${ROLE}.pretokenizers`).flatMap(flatten);
}

const flattenable: Readonly<Record<string, Maker<JsonRecord>>> = Object.fromEntries(
  ["Sequence", ...Object.keys(stages)].map((type) => [type, (piece: JsonRecord) => piece]),
);

function byteLevelCut(piece: JsonRecord): Stage {
  const addSpace = booleanOr(piece.add_prefix_space, true, `${ROLE}.add_prefix_space`);
  const patterns = booleanOr(piece.use_regex, true, `${ROLE}.use_regex`)
    ? findPreTokenizer("gpt-2").patterns
    : [];
  return (text, _atStart, emit) => {
    const prefixed = addSpace && !/^\p{White_Space}/u.test(text) ? ` ${text}` : text;
    splitWords(prefixed, patterns, emit);
  };
}

function metaspace(piece: JsonRecord): Stage {
  const mark = stringOr(piece.replacement, "▁", `${ROLE}.replacement`);
  const legacy = booleanOr(piece.add_prefix_space, true, `${ROLE}.add_prefix_space`);
  const scheme = stringOr(
    piece.prepend_scheme,
    legacy ? "always" : "never",
    `${ROLE}.prepend_scheme`,
  );
  if (!["always", "first", "never"].includes(scheme)) {
    throw new ModelError(`tokenizer.json: the Metaspace prepend_scheme "${scheme}" is not known`);
  }
  const cut = booleanOr(piece.split, true, `${ROLE}.split`)
    ? splitStage(literal(mark), "MergedWithNext", false)
    : undefined;
  return (text, atStart, emit) => {
    let marked = text.replaceAll(" ", mark);
    const prepend = scheme === "always" || (scheme === "first" && atStart);
    if (prepend && !marked.startsWith(mark)) marked = mark + marked;
    if (cut) cut(marked, atStart, emit);
    else emit(marked);
  };
}

interface Part {
  text: string;
  isMatch: boolean;
}

/** The treatment of matches and the text between them, by tokenizer.json's names. */
const behaviors: Readonly<Record<string, (parts: Part[]) => string[]>> = {
  Isolated: (parts) => parts.map((part) => part.text),
  Removed: (parts) => parts.filter((part) => !part.isMatch).map((part) => part.text),
  Contiguous: (parts) => joinParts(parts, (part, before) => part.isMatch === before.isMatch),
  MergedWithPrevious: (parts) =>
    joinParts(parts, (part, before) => part.isMatch && !before.isMatch),
  MergedWithNext: (parts) => joinParts(parts, (part, before) => !part.isMatch && before.isMatch),
};

function splitStage(pattern: Pattern, behavior: string, invert: boolean): Stage {
  const combine = Object.hasOwn(behaviors, behavior) ? behaviors[behavior] : undefined;
  if (combine === undefined) {
    throw new ModelError(
      `tokenizer.json: the Split behavior "${behavior}" is not supported. Supported: ${Object.keys(behaviors).join(", ")}`,
    );
  }
  return (piece, _atStart, emit, check) => {
    for (const text of combine(findParts(piece, pattern.matches(piece, check), invert))) emit(text);
  };
}

/** `found`: the start and end of each match. */
function findParts(text: string, found: readonly number[], invert: boolean): Part[] {
  const parts: Part[] = [];
  let end = 0;
  for (let i = 0; i < found.length; i += 2) {
    const start = found[i]!;
    if (start > end) parts.push({ text: text.slice(end, start), isMatch: invert });
    end = found[i + 1]!;
    if (end > start) parts.push({ text: text.slice(start, end), isMatch: !invert });
  }
  if (end < text.length) parts.push({ text: text.slice(end), isMatch: invert });
  return parts;
}

function joinParts(parts: Part[], joins: (part: Part, before: Part) => boolean): string[] {
  const joined: string[] = [];
  parts.forEach((part, index) => {
    const before = parts[index - 1];
    if (before && joins(part, before)) joined[joined.length - 1] += part.text;
    else joined.push(part.text);
  });
  return joined;
}

function literal(text: string): Pattern {
  return nativePattern(new RegExp(text.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&"), "gu"));
}
