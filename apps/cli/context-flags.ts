// What the flags about a full context and about what is known of a prompt did: notes and warnings. The flags are rows of
// src/options/generation.ts.

import type { ModelInfo, Timings } from "../../src/index.ts";
import { plural } from "./text.ts";

export interface ContextFlags {
  contextShift?: boolean;
  cacheReuse?: number;
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
