// The options of a generation beside sampling, as far as they are numbers, texts or booleans: a row each.

import type { FieldsOf, OptionRow, OptionsOf } from "./row.ts";

export const generationTable = {
  /** Default: until the model ends or the context is full. */
  maxTokens: {
    type: "number",
    label: "Longest answer",
    flag: "-n, --predict <n>",
    said: "max_tokens",
    ollama: "num_predict", // every protocol has its own name, which its route reads
    help: "generate at most this many tokens",
    note: "-1: until the model stops",
    range: { integer: true, min: 0 },
    requests: { integer: true, min: 1 },
    none: -1,
    slider: {
      why: "In tokens, which are pieces of words. The answer stops there.",
      min: 16,
      max: 4096,
      step: 16,
    },
  },
  /** Generation ends before the first of these strings; none of it is part of the text. */
  stop: {
    type: "texts",
    label: "Stop texts",
    flag: "--stop <text>",
    otherFlag: "-r, --reverse-prompt <text>",
    field: "stop",
    help: "stop before this text",
    note: "repeatable",
    most: 32,
    longest: 1000, // every token is matched against all of them: megabytes would slow everybody's answers
    single: true,
  },
  /** No token that ends the text is ever chosen: it goes on until a limit, or until a grammar allows nothing more (default false). */
  ignoreEos: {
    type: "boolean",
    label: "Ignore the end",
    flag: "--ignore-eos",
    field: "ignore_eos",
    help: "never choose a token that ends the text: write until a limit",
    default: false,
  },
  /** false: compute the whole prompt, whatever is known of it (default true). */
  cachePrompt: {
    type: "boolean",
    label: "Prompt cache",
    flag: "--cache-prompt",
    field: "cache_prompt",
    help: "reuse what is known of the prompt (default)",
    noHelp: "compute the whole prompt, whatever is known of it",
    default: true,
  },
  /** false: what is computed of it stays in memory, and no copy of it is written to disk (default true). */
  cacheDisk: {
    type: "boolean",
    label: "Copies on disk",
    field: "cache_disk",
    help: "copies of what is computed may be written to disk",
    default: true,
  },
  /**
   * When the context is full, drop half of its tokens and go on (default false: it ends with stopReason "context"). What is written
   * after that differs from what the model would write of the tokens that are left: docs/use/cache.md. Refused where the model cannot.
   */
  contextShift: {
    type: "boolean",
    label: "Context shift",
    flag: "--context-shift",
    help: "when the context is full, drop half of it and go on; what follows no longer knows the dropped part exactly (docs/use/cache.md)",
    noHelp: "end the text when the context is full (default)",
    default: false,
  },
  /** With contextShift: tokens at the beginning that are never dropped, BOS not counted; -1: the whole prompt. Default 0. */
  keepTokens: {
    type: "number",
    label: "Kept tokens",
    flag: "--keep <n>",
    field: "n_keep",
    ollama: "num_keep",
    help: "with --context-shift: tokens at the beginning that are never dropped",
    note: "-1: the whole prompt",
    range: { integer: true, min: 0, also: -1 },
    default: 0,
  },
  /** With contextShift: how many tokens are dropped at a time; 0: half of those that may be (default). */
  discardTokens: {
    type: "number",
    label: "Dropped tokens",
    field: "n_discard",
    help: "with --context-shift: tokens that are dropped at a time",
    note: "0: half of those that may be",
    range: { integer: true, min: 0 },
    default: 0,
  },
  /**
   * Pieces of the prompt of at least so many tokens that were computed at another position are moved instead of computed (default 0:
   * none), where the model allows that: docs/use/cache.md.
   */
  cacheReuse: {
    type: "number",
    label: "Cache reuse",
    flag: "--cache-reuse <n>",
    field: "n_cache_reuse",
    help: "move pieces of at least this many tokens that were computed at another position of an earlier text, instead of computing them",
    note: "0: none",
    range: { integer: true, min: 0 },
    default: 0,
  },
} as const;

type Table = typeof generationTable;
export type GenerationName = keyof Table;

/** The rows for code that reads any of them. */
export const generationRows: Readonly<Record<GenerationName, OptionRow>> = generationTable;

export type GenerationRowOptions = OptionsOf<Table>;
export type GenerationRowFields = FieldsOf<Table>;
