// From measured times to choices: which variant computes which number of tokens, how many threads, and whether idle
// threads spin. Made once, when a model is loaded; nothing is estimated while it runs.
//
// Matmuls that read the same activations get the same choice: they share the preparation (init), so the least sum over
// all of them wins. The default stays unless another is clearly faster, beyond the noise.

import { plural } from "../base/plural.ts";
import {
  acceptsProblem,
  type ChooseMatmul,
  defaultVariant,
  indexIn,
  type MatmulChoice,
  type MatmulProblem,
  type MatmulTarget,
  type MatmulVariant,
  matmulVariants,
  variantById,
} from "../kernels/matmul-variants.ts";
import { basisFor, estimate } from "./estimate.ts";
import type { TuneFile, TuneIdentity } from "./tune-file.ts";

/** A candidate replaces the default if it takes at most this fraction of its time. */
export const CLEARLY_FASTER = 0.96;

/** Why a file must not be used here; undefined if it may. */
export function staleReason(file: TuneIdentity, here: TuneIdentity): string | undefined {
  const facts = ["cpu", "cores", "features", "engine"] as const;
  const other = facts.find((fact) => file[fact] !== here[fact]);
  return other && `it was made with another ${other}: ${file[other]}, here ${here[other]}`;
}

/** One candidate's estimated microseconds for all matmuls of a group; undefined if one of them has no estimate. */
function totalTime(
  file: TuneFile,
  profile: number,
  problems: readonly MatmulProblem[],
  tokens: number,
  threads: number,
): number | undefined {
  let total = 0;
  for (const [index, problem] of problems.entries()) {
    const basis = basisFor(file, problem, threads);
    const times = basis && estimate(basis, profile, tokens);
    if (!times) return undefined;
    // The first matmul pays for the preparation, which the others share.
    total += times.compute + (index === 0 ? times.init : 0);
  }
  return total;
}

/** Profiles with register tiles whose idle threads spin: a matmul can choose between these at any number of tokens. */
function choosable(
  file: TuneFile,
  target: MatmulTarget,
): { index: number; variant: MatmulVariant }[] {
  return file.profiles.flatMap(({ variant: id, level, idle }, index) => {
    const variant = level === 3 && idle === "spin" ? variantById(id, target) : undefined;
    return variant ? [{ index, variant }] : [];
  });
}

export function tunedChoice(file: TuneFile, target: MatmulTarget): ChooseMatmul {
  const candidates = choosable(file, target);
  return (problems, maxTokens, threads): MatmulChoice => {
    const { dtype } = problems[0]!;
    const accepted = candidates.filter(({ variant }) =>
      problems.every((problem) => acceptsProblem(variant, problem, target) === true),
    );
    const variants: MatmulVariant[] = [];
    const byTokens = [indexIn(variants, defaultVariant(dtype, 0, target))];
    for (let tokens = 1; tokens <= maxTokens; tokens++) {
      const standard = defaultVariant(dtype, tokens, target);
      const timed = accepted.flatMap(({ index, variant }) => {
        const us = totalTime(file, index, problems, tokens, threads);
        return us === undefined ? [] : [{ variant, us }];
      });
      const usual = timed.find(({ variant }) => variant.id === standard.id)?.us;
      const best = timed.reduce<(typeof timed)[number] | undefined>(
        (a, b) => (a === undefined || b.us < a.us ? b : a),
        undefined,
      );
      const isFaster = best && (usual === undefined || best.us <= usual * CLEARLY_FASTER);
      byTokens.push(indexIn(variants, isFaster ? best.variant : standard));
    }
    return { variants, byTokens, notes: notesOf(file, problems, { target, maxTokens, threads }) };
  };
}

/** Every candidate with its estimate, or the reason why it is refused, for one token and for a full batch. */
function notesOf(
  file: TuneFile,
  problems: readonly MatmulProblem[],
  { target, maxTokens, threads }: { target: MatmulTarget; maxTokens: number; threads: number },
): string[] {
  const shapes = problems.map(({ dtype, n, k }) => `${dtype} ${n} x ${k}`).join(" + ");
  const basis = basisFor(file, problems[0]!, threads);
  const from = basis?.stretched ? ` (${basis.stretched})` : "";
  const known = choosable(file, target);
  // The variants of the table, then those with knobs that the search found.
  const found = known.filter(({ variant }) => variant.knobs).map(({ variant }) => variant);
  const lines = [...matmulVariants(target), ...found].map((variant) => {
    const refusal = problems
      .map((problem) => acceptsProblem(variant, problem, target))
      .find((answer) => answer !== true);
    if (refusal !== undefined) return `  ${variant.id}: no, ${refusal}`;
    const profile = known.find((one) => one.variant.id === variant.id);
    const us = (tokens: number) =>
      profile && totalTime(file, profile.index, problems, tokens, threads);
    const [one, full] = [us(1), us(maxTokens)];
    if (one === undefined && full === undefined) return `  ${variant.id}: not measured`;
    const text = (time: number | undefined) =>
      time === undefined ? "given up" : microseconds(time);
    return `  ${variant.id}: 1 token ${text(one)}, ${maxTokens} tokens ${text(full)}`;
  });
  return [`${shapes}, ${plural(threads, "thread")}${from}:`, ...lines];
}

function microseconds(us: number): string {
  return us >= 1000 ? `${(us / 1000).toFixed(2)} ms` : `${us.toFixed(1)} us`;
}

/** How often matmuls with this number of tokens are computed, for choices that apply to all of them. */
export interface ExpectedUse {
  readonly tokens: number;
  readonly times: number;
}

/** A chat: half of the tokens are prefill, half decode. */
const chatUse: readonly ExpectedUse[] = [
  { tokens: 1, times: 32 },
  { tokens: 32, times: 1 },
];

/** The least time of all matmuls with a number of threads, over all profiles; undefined: unknown. */
function bestTotal(
  file: TuneFile,
  groups: readonly (readonly MatmulProblem[])[],
  threads: number,
  use: readonly ExpectedUse[],
  accepts: (profile: number) => boolean,
): number | undefined {
  let total = 0;
  for (const problems of groups) {
    for (const { tokens, times } of use) {
      const known = file.profiles.flatMap((_, index) =>
        accepts(index) ? (totalTime(file, index, problems, tokens, threads) ?? []) : [],
      );
      if (known.length === 0) return undefined;
      total += Math.min(...known) * times;
    }
  }
  return total;
}

/** The measured thread count with which a chat is fastest. */
export function tunedThreads(
  file: TuneFile,
  groups: readonly (readonly MatmulProblem[])[],
): { threads: number; notes: string[] } | undefined {
  const counts = [...new Set(file.groups.map(({ threads }) => threads))].sort((a, b) => a - b);
  const timed = counts.flatMap((threads) => {
    const us = bestTotal(file, groups, threads, chatUse, () => true);
    return us === undefined ? [] : [{ threads, us }];
  });
  if (timed.length === 0) return undefined;
  // More threads must be clearly faster, because they take cores from other programs.
  const best = timed.reduce((a, b) => (b.us <= a.us * CLEARLY_FASTER ? b : a));
  const notes = timed.map(
    ({ threads, us }) =>
      `  ${plural(threads, "thread")}: 32 tokens generated and read in ${microseconds(us)}`,
  );
  return { threads: best.threads, notes };
}

/** Whether idle threads should spin or sleep immediately. */
export function tunedIdle(
  file: TuneFile,
  groups: readonly (readonly MatmulProblem[])[],
  threads: number,
): "spin" | "sleep" {
  const of = (idle: "spin" | "sleep") =>
    bestTotal(file, groups, threads, chatUse, (p) => file.profiles[p]!.idle === idle);
  const [spin, sleep] = [of("spin"), of("sleep")];
  const isFaster = spin !== undefined && sleep !== undefined && sleep <= spin * CLEARLY_FASTER;
  return isFaster ? "sleep" : "spin";
}
