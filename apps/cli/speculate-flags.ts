// The flags of speculation, under llama.cpp's names, and its results, for people. flags.ts adds the flags to every command that
// generates.

import { type Command, InvalidArgumentError } from "commander";
import { byName } from "../../src/base/by-name.ts";
import type { ModelInfo, SpeculateOptions, Timings } from "../../src/index.ts";
import { numberFlag } from "./flag-values.ts";

export interface SpeculateFlags {
  /** false: --no-speculate. */
  speculate?: boolean;
  specType?: readonly string[];
  specDraftNMax?: number;
  specDraftNMin?: number;
  specDraftPMin?: number;
}

/** Our drafter of each of llama.cpp's types; its lookups of n-grams differ in their tables, ours has one. */
const drafterOf: Readonly<Record<string, string>> = byName({
  ngram: "ngram",
  "ngram-simple": "ngram",
  "ngram-map-k": "ngram",
  "ngram-map-k4v": "ngram",
  "ngram-mod": "ngram",
  "ngram-cache": "ngram",
  "draft-simple": "draft-model",
  "draft-mtp": "mtp",
});

function typesFlag(text: string): string[] {
  const names = text.split(",").map((name) => name.trim());
  if (names.length === 1 && names[0] === "none") return [];
  return names.map((name) => {
    const drafter = drafterOf[name];
    if (drafter !== undefined) return drafter;
    throw new InvalidArgumentError(
      `Expected none, or some of ${Object.keys(drafterOf).join(", ")}, separated by commas.`,
    );
  });
}

/** --no-speculate, and the flags of drafts */
export function addSpeculateFlags(command: Command): Command {
  command.option(
    "--no-speculate",
    "compute one token at a time; the text is the same (docs/use/speculation.md)",
  );
  return addDraftTypeFlags(command);
}

/** --spec-type, --spec-draft-n-max, --spec-draft-n-min, --spec-draft-p-min */
export function addDraftTypeFlags(command: Command): Command {
  const depth = numberFlag({ integer: true, min: 0, max: 31 });
  return command
    .option(
      "--spec-type <types>",
      "who drafts tokens that are verified several at a time: ngram-simple, draft-simple, draft-mtp, separated by commas, or none (default: all that there are)",
      typesFlag,
    )
    .option(
      "--spec-draft-n-max <n>",
      "draft at most this many tokens at a time; fewer are drafted where more do not pay (default: 16)",
      depth,
    )
    .option(
      "--spec-draft-n-min <n>",
      "draft at least this many tokens, or none (default: 1)",
      depth,
    )
    .option(
      "--spec-draft-p-min <p>",
      "end a draft before a token that is right less probably than this (default: 0)",
      numberFlag({ min: 0, max: 1 }),
    );
}

/** For open(); undefined: the default. */
export function speculateOption(flags: SpeculateFlags): boolean | SpeculateOptions | undefined {
  const { specType, specDraftNMax, specDraftNMin, specDraftPMin } = flags;
  if (flags.speculate === false || specType?.length === 0) return false;
  const options: SpeculateOptions = {
    ...(specType && { drafters: [...specType] }),
    ...(specDraftNMax !== undefined && { maxDepth: specDraftNMax }),
    ...(specDraftNMin !== undefined && { minDepth: specDraftNMin }),
    ...(specDraftPMin !== undefined && { minChance: specDraftPMin }),
  };
  return Object.keys(options).length > 0 ? options : undefined;
}

/** For --explain. */
export function speculationLine({ speculation }: ModelInfo): string[] {
  return speculation === undefined ? [] : [`speculation (--spec-type): ${speculation.text}`];
}

/** The result of speculation in a generation; undefined: none. */
export function speculationNote({ speculation, generatedTokens }: Timings): string | undefined {
  if (!speculation) return undefined;
  const { drafted, accepted, batches, gain } = speculation;
  const each = (generatedTokens / Math.max(1, batches)).toFixed(2);
  return `(speculation: ${accepted} of ${drafted} drafted tokens were right, ${each} tokens for each read of the weights, about ${gain.toFixed(2)} times as fast)`;
}
