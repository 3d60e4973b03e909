// The flags about a full context and about what is known of a prompt, under llama.cpp's names. flags.ts adds them to every command
// that generates.

import type { Command } from "commander";
import type { GenerateOptions, ModelInfo, Timings } from "../index.ts";
import { numberFlag } from "./flag-values.ts";
import { plural } from "./text.ts";

export interface ContextFlags {
  contextShift?: boolean;
  keep?: number;
  cacheReuse?: number;
}

/** --context-shift, --keep, --cache-reuse */
export function addContextFlags(command: Command): Command {
  return command
    .option(
      "--context-shift",
      "when the context is full, drop half of it and go on; what follows no longer knows the dropped part exactly (docs/cache.md)",
    )
    .option("--no-context-shift", "end the text when the context is full (default)")
    .option(
      "--keep <n>",
      "with --context-shift: tokens at the beginning that are never dropped; -1: the whole prompt (default: 0)",
      numberFlag({ integer: true, min: 0, also: -1 }),
    )
    .option(
      "--cache-reuse <n>",
      "move pieces of at least this many tokens that were computed at another position of an earlier text, instead of computing them; 0: none (default: 0)",
      numberFlag({ integer: true, min: 0 }),
    );
}

export function contextOptions({ contextShift, keep, cacheReuse }: ContextFlags): GenerateOptions {
  return {
    ...(contextShift && { contextShift }),
    ...(keep !== undefined && { keepTokens: keep }),
    ...(cacheReuse && { cacheReuse }),
  };
}

/** What was dropped while a text was written; undefined: nothing. */
export function shiftNote({ contextShifts }: Timings, info: ModelInfo): string | undefined {
  if (!contextShifts) return undefined;
  const dropped = contextShifts.reduce((sum, { discarded }) => sum + discarded, 0);
  const times = plural(contextShifts.length, "time");
  return `(the context of ${info.contextSize} tokens was full ${times}: ${plural(dropped, "token")} after the first ${contextShifts[0]!.kept} were dropped)`;
}

/** Why these flags do nothing for a model: a sentence; undefined: they work. */
export function shiftWarning(
  flags: ContextFlags,
  name: string,
  info: ModelInfo,
): string | undefined {
  const asked = flags.contextShift ? "--context-shift" : flags.cacheReuse ? "--cache-reuse" : "";
  if (asked === "" || info.noContextShift === undefined) return undefined;
  return `${asked} does nothing for ${name}: ${info.noContextShift}`;
}

/** For --explain. */
export function shiftText({ noContextShift }: ModelInfo): string {
  return noContextShift === undefined
    ? "context shift (--context-shift, --cache-reuse): possible, keys are rotated to their new positions"
    : `context shift (--context-shift, --cache-reuse): not possible: ${noContextShift}`;
}
