// Applies a tune file when a model is loaded: checks that it belongs to this machine, then chooses kernels, threads and
// idle behaviour from it; without one, the defaults. Every decision is explained.

import { LanternError } from "../base/errors.ts";
import { plural } from "../base/plural.ts";
import type { ChooseMatmul, MatmulProblem, MatmulTarget } from "../kernels/matmul-variants.ts";
import {
  staleReason,
  type TunedChoiceOptions,
  tunedChoice,
  tunedIdle,
  tunedThreads,
} from "./choose.ts";
import { parseTuneFile, type TuneFile, type TuneIdentity } from "./tune-file.ts";

export interface TunedUse {
  /** undefined: the default. */
  readonly choose?: ChooseMatmul | undefined;
  readonly threads?: number | undefined;
  readonly idle?: "spin" | "sleep" | undefined;
  /** Whether all types of the model that a quick tune would measure have times. */
  readonly isTuned?: boolean;
  /** For --explain. */
  readonly notes: readonly string[];
}

/** The file in this text, or a sentence why it is not used. */
export function usableFile(text: string, name: string, here: TuneIdentity): TuneFile | string {
  try {
    const file = parseTuneFile(text, name);
    const stale = staleReason(file, here);
    return stale === undefined ? file : `${name} is not used: ${stale}. Run "lantern tune"`;
  } catch (error) {
    if (error instanceof LanternError) return `it is not used: ${error.message}`;
    throw error;
  }
}

export function useTuning(
  file: TuneFile | string | undefined,
  problems: readonly MatmulProblem[],
  target: MatmulTarget,
  askedThreads: number | undefined,
  options: TunedChoiceOptions = {},
): TunedUse {
  if (file === undefined) {
    return { notes: ['kernels: defaults, nothing was tuned here ("lantern tune")'] };
  }
  if (typeof file === "string") return { notes: [`kernels: defaults; ${file}`] };
  const types = new Set(file.groups.map(({ dtype }) => dtype));
  const known = problems.filter(({ dtype }) => types.has(dtype));
  const missing = [...new Set(problems.map(({ dtype }) => dtype))].filter((t) => !types.has(t));
  const notes = [`kernels: tuned ${file.date.slice(0, 10)}`];
  for (const refused of file.refused ?? []) notes.push(`  not used: ${refused}`);
  if (missing.length > 0) notes.push(`  not tuned, defaults: ${missing.join(", ")}`);
  const groups = known.map((problem) => [problem]);
  // Times of some matmuls do not tell the best number of threads for all.
  const best = missing.length === 0 ? tunedThreads(file, groups) : undefined;
  if (askedThreads === undefined && best)
    notes.push(`  ${plural(best.threads, "thread")}:`, ...best.notes);
  const threads = askedThreads ?? best?.threads;
  const idle = missing.length === 0 ? tunedIdle(file, groups, threads ?? file.cores) : undefined;
  if (idle === "sleep") notes.push("  idle threads sleep at once: measured to be faster");
  return { choose: tunedChoice(file, target, options), threads, idle, notes };
}
