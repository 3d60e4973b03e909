// From measured times to choices: which variant computes which number of tokens, how many threads, and whether idle
// threads spin. Made once, when a model is loaded; nothing is estimated while it runs.
//
// Matmuls that read the same activations get the same choice: they share the preparation (init), so the least sum over
// all of them wins. The default stays unless another is clearly faster, beyond the noise of its measurement.

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
import { type Basis, basisFor, type DeviceAt, estimate } from "./estimate.ts";
import { sleepCosts } from "./sleep-cost.ts";
import type { TuneFile, TuneIdentity } from "./tune-file.ts";

/** A candidate replaces the default if it takes at most this fraction of its time. */
export const CLEARLY_FASTER = 0.96;

/** The same, but beyond the noise: the same kernel measured twice differed by so much. */
export function clearlyFaster(noise: number | undefined): number {
  return Math.min(CLEARLY_FASTER, 1 - (noise ?? 0));
}

/** What makes a file unusable here; undefined: nothing. */
export function staleFact(file: TuneIdentity, here: TuneIdentity): keyof TuneIdentity | undefined {
  const facts = ["cpu", "cores", "features", "engine"] as const;
  return facts.find((fact) => file[fact] !== here[fact]);
}

/** Why a file must not be used here; undefined if it may. */
export function staleReason(file: TuneIdentity, here: TuneIdentity): string | undefined {
  const other = staleFact(file, here);
  return other && `it was made with another ${other}: ${file[other]}, here ${here[other]}`;
}

/** What each matmul of a group is estimated from; undefined if one of them has nothing. */
function basesFor(
  file: TuneFile,
  problems: readonly MatmulProblem[],
  threads: number,
  deviceAt?: DeviceAt,
): Basis[] | undefined {
  const bases = problems.flatMap((problem) => basisFor(file, problem, threads, deviceAt) ?? []);
  return bases.length === problems.length ? bases : undefined;
}

/** One candidate's estimated microseconds for all matmuls of a group; undefined if one of them has no estimate. */
function totalTime(
  bases: readonly Basis[] | undefined,
  profile: number,
  tokens: number,
): number | undefined {
  if (!bases) return undefined;
  let total = 0;
  for (const [index, basis] of bases.entries()) {
    const times = estimate(basis, profile, tokens);
    if (!times) return undefined;
    // The first matmul pays for the preparation, which the others share.
    total += times.compute + (index === 0 ? times.init : 0);
  }
  return total;
}

/** The least gain that is more than the noise of all these measurements. */
function clearlyFasterThan(bases: readonly Basis[] | undefined): number {
  return clearlyFaster(Math.max(0, ...(bases ?? []).map(({ group }) => group.noise ?? 0)));
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

/** `deviceAt`: this machine's limits, which bound estimates beyond the measured numbers of tokens. */
export function tunedChoice(
  file: TuneFile,
  target: MatmulTarget,
  deviceAt?: DeviceAt,
): ChooseMatmul {
  const candidates = choosable(file, target);
  return (problems, maxTokens, threads): MatmulChoice => {
    const { dtype } = problems[0]!;
    const accepted = candidates.filter(({ variant }) =>
      problems.every((problem) => acceptsProblem(variant, problem, target) === true),
    );
    const bases = basesFor(file, problems, threads, deviceAt);
    const clearly = clearlyFasterThan(bases);
    const variants: MatmulVariant[] = [];
    const byTokens = [indexIn(variants, defaultVariant(dtype, 0, target))];
    for (let tokens = 1; tokens <= maxTokens; tokens++) {
      const standard = defaultVariant(dtype, tokens, target);
      const timed = accepted.flatMap(({ index, variant }) => {
        const us = totalTime(bases, index, tokens);
        return us === undefined ? [] : [{ variant, us }];
      });
      const usual = timed.find(({ variant }) => variant.id === standard.id)?.us;
      const best = timed.reduce<(typeof timed)[number] | undefined>(
        (a, b) => (a === undefined || b.us < a.us ? b : a),
        undefined,
      );
      // Without a time of the default, nothing is known to be faster.
      const isFaster = best && usual !== undefined && best.us <= usual * clearly;
      byTokens.push(indexIn(variants, isFaster ? best.variant : standard));
    }
    const notes = notesOf(file, problems, { target, maxTokens, threads, bases });
    return { variants, byTokens, notes };
  };
}

interface NotesOptions {
  readonly target: MatmulTarget;
  readonly maxTokens: number;
  readonly threads: number;
  readonly bases: readonly Basis[] | undefined;
}

/** Every candidate with its estimate, or the reason why it is refused, for one token and for a full batch. */
function notesOf(
  file: TuneFile,
  problems: readonly MatmulProblem[],
  { target, maxTokens, threads, bases }: NotesOptions,
): string[] {
  const shapes = problems.map(({ dtype, n, k }) => `${dtype} ${n} x ${k}`).join(" + ");
  const basis = bases?.[0];
  const noise = basis?.group.noise;
  const facts = [
    ...(basis?.stretched ? [basis.stretched] : []),
    ...(noise === undefined ? [] : [`noise ${(100 * noise).toFixed(1)} %`]),
  ];
  const from = facts.length > 0 ? ` (${facts.join(", ")})` : "";
  const known = choosable(file, target);
  // The variants of the table, then those with knobs that the search found.
  const found = known.filter(({ variant }) => variant.knobs).map(({ variant }) => variant);
  const lines = [...matmulVariants(target), ...found].map((variant) => {
    const refusal = problems
      .map((problem) => acceptsProblem(variant, problem, target))
      .find((answer) => answer !== true);
    if (refusal !== undefined) return `  ${variant.id}: no, ${refusal}`;
    const profile = known.find((one) => one.variant.id === variant.id);
    const us = (tokens: number) => profile && totalTime(bases, profile.index, tokens);
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

/** Groups of matmuls that share activations. */
type Groups = readonly (readonly MatmulProblem[])[];

/** The least time of all matmuls with a number of threads, over all profiles; undefined: unknown. */
function bestTotal(
  file: TuneFile,
  groups: Groups,
  threads: number,
  accepts: (profile: number) => boolean,
): number | undefined {
  let total = 0;
  for (const problems of groups) {
    const bases = basesFor(file, problems, threads);
    for (const { tokens, times } of chatUse) {
      const known = file.profiles.flatMap((_, index) =>
        accepts(index) ? (totalTime(bases, index, tokens) ?? []) : [],
      );
      if (known.length === 0) return undefined;
      total += Math.min(...known) * times;
    }
  }
  return total;
}

/**
 * The measured thread count with which a chat is fastest. undefined: one thread and all cores were not both measured on
 * the same matrices, for every type: a tune that was interrupted, or of one count only, tells nothing about the others.
 */
export function tunedThreads(
  file: TuneFile,
  groups: Groups,
): { threads: number; notes: string[] } | undefined {
  const problems = groups.flat();
  const measured = [...new Set(file.groups.map(({ threads }) => threads))];
  const counts = measured
    .filter((threads) => problems.every((problem) => isMeasuredAt(file, problem, threads)))
    .sort((a, b) => a - b);
  if (problems.length === 0 || ![1, file.cores].every((count) => counts.includes(count))) {
    return undefined;
  }
  const timed = counts.flatMap((threads) => {
    const us = bestTotal(file, groups, threads, () => true);
    return us === undefined ? [] : [{ threads, us }];
  });
  if (timed.length !== counts.length) return undefined;
  // More threads must be clearly faster, because they take cores from other programs.
  const best = timed.reduce((a, b) => (b.us <= a.us * CLEARLY_FASTER ? b : a));
  const notes = timed.map(
    ({ threads, us }) =>
      `  ${plural(threads, "thread")}: 32 tokens generated and read in ${microseconds(us)}`,
  );
  return { threads: best.threads, notes };
}

/** Whether a problem's times with this thread count are measured ones, on the same matrix as with all cores. */
function isMeasuredAt(file: TuneFile, problem: MatmulProblem, threads: number): boolean {
  const [here, all] = [threads, file.cores].map((count) => basisFor(file, problem, count)?.group);
  return here?.threads === threads && here.n === all?.n && here.k === all.k;
}

/** Whether idle threads should spin or sleep immediately. */
export function tunedIdle(file: TuneFile, groups: Groups, threads: number): "spin" | "sleep" {
  let [spin, sleep, noise] = [0, 0, 0];
  const cost = sleepCosts(file).find((one) => one.threads === threads)?.us ?? 0;
  // A gain is of that matrix alone (others left it more of the machine), a cost is that of every barrier.
  const wakeUs = cost > 0 ? cost : (file.notify?.us ?? Number.POSITIVE_INFINITY);
  for (const problems of groups) {
    const bases = basesFor(file, problems, threads);
    noise = Math.max(noise, 1 - clearlyFasterThan(bases));
    for (const { tokens, times } of chatUse) {
      const least = (idle: "spin" | "sleep") =>
        Math.min(
          ...file.profiles.flatMap((profile, index) =>
            profile.idle === idle ? (totalTime(bases, index, tokens) ?? []) : [],
          ),
        );
      const spinning = least("spin");
      const measured = least("sleep");
      // Where sleeping was not measured, every matmul takes longer by what it took where it was.
      const estimated = spinning + problems.length * wakeUs;
      spin += spinning * times;
      sleep += (Number.isFinite(measured) ? Math.min(measured, estimated) : estimated) * times;
    }
  }
  return Number.isFinite(sleep) && sleep <= spin * (1 - noise) ? "sleep" : "spin";
}
