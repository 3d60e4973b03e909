// Chooses by measured times: the variant for each number of tokens, the number of threads, and whether idle
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
import { targetOfFeatures } from "./tune-target.ts";

/** A candidate replaces the default if it takes at most this fraction of its time. */
export const CLEARLY_FASTER = 0.96;

/** The same, but beyond the noise: the same kernel measured twice differed by so much. */
export function clearlyFaster(noise: number | undefined): number {
  return Math.min(CLEARLY_FASTER, 1 - (noise ?? 0));
}

/** The fact that makes a file unusable here; undefined: none. */
export function staleFact(file: TuneIdentity, here: TuneIdentity): keyof TuneIdentity | undefined {
  const facts = ["cpu", "cores", "features", "engine"] as const;
  return facts.find((fact) => file[fact] !== here[fact]);
}

/** Why a file must not be used here; undefined if it may. */
export function staleReason(file: TuneIdentity, here: TuneIdentity): string | undefined {
  const other = staleFact(file, here);
  return other && `it was made with another ${other}: ${file[other]}, here ${here[other]}`;
}

/** The bases of the estimates of a group's matmuls; undefined if one of them has none. */
function basesFor(
  file: TuneFile,
  problems: readonly MatmulProblem[],
  threads: number,
  deviceAt?: DeviceAt,
): Basis[] | undefined {
  const bases = problems.flatMap((problem) => basisFor(file, problem, threads, deviceAt) ?? []);
  return bases.length === problems.length ? bases : undefined;
}

/** Microseconds of all matmuls of a group, and why they are a guess rather than an interpolation. */
interface GroupTime {
  readonly us: number;
  readonly stretched: string;
}

/** One candidate's estimate for all matmuls of a group; undefined if one of them has no estimate. */
function totalTime(
  bases: readonly Basis[] | undefined,
  profile: number,
  tokens: number,
): GroupTime | undefined {
  if (!bases) return undefined;
  let us = 0;
  let stretched = "";
  for (const [index, basis] of bases.entries()) {
    const times = estimate(basis, profile, tokens);
    if (!times) return undefined;
    // The first matmul pays for the preparation, which the others share.
    us += times.compute + (index === 0 ? times.init : 0);
    stretched ||= times.stretched;
  }
  return { us, stretched };
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

export interface TunedChoiceOptions {
  /** This machine's limits, which bound estimates beyond the measured numbers of tokens. */
  readonly deviceAt?: DeviceAt | undefined;
  /** Numbers of tokens whose estimates the notes have, any; default: 1 and those of a full batch. */
  readonly explained?: readonly number[] | undefined;
}

export function tunedChoice(
  file: TuneFile,
  target: MatmulTarget,
  { deviceAt, explained }: TunedChoiceOptions = {},
): ChooseMatmul {
  const candidates = choosable(file, target);
  return (problems, maxTokens, threads): MatmulChoice => {
    const { dtype } = problems[0]!;
    const accepted = candidates.filter(({ variant }) =>
      problems.every((problem) => acceptsProblem(variant, problem, target) === true),
    );
    const bases = basesFor(file, problems, threads, deviceAt);
    const clearly = clearlyFasterThan(bases);
    const chosenAt = (tokens: number): MatmulVariant => {
      const standard = defaultVariant(dtype, tokens, target);
      const timed = accepted.flatMap(({ index, variant }) => {
        const us = totalTime(bases, index, tokens)?.us;
        return us === undefined ? [] : [{ variant, us }];
      });
      const usual = timed.find(({ variant }) => variant.id === standard.id)?.us;
      const best = timed.reduce<(typeof timed)[number] | undefined>(
        (a, b) => (a === undefined || b.us < a.us ? b : a),
        undefined,
      );
      // Without a time of the default, nothing is known to be faster.
      const isFaster = best && usual !== undefined && best.us <= usual * clearly;
      return isFaster && isConfirmed(tokens) ? best.variant : standard;
    };
    /**
     * If the default changes between two measured numbers of tokens, its estimate comes from times of another choice,
     * with register tiles that are not full: nothing is known to be faster than it.
     */
    const isConfirmed = (tokens: number): boolean => {
      const around = measuredAround(bases, tokens);
      const standard = defaultVariant(dtype, tokens, target).id;
      return (
        around.length > 0 && around.every((m) => defaultVariant(dtype, m, target).id === standard)
      );
    };
    const variants: MatmulVariant[] = [];
    const byTokens = [indexIn(variants, defaultVariant(dtype, 0, target))];
    for (let tokens = 1; tokens <= maxTokens; tokens++) {
      byTokens.push(indexIn(variants, chosenAt(tokens)));
    }
    const notes = notesOf(file, problems, {
      ...{ target, maxTokens, threads, bases, chosenAt },
      explained: explained ?? [...new Set([1, maxTokens])],
    });
    return { variants, byTokens, notes };
  };
}

/** The measured numbers of tokens next to this one, or itself; none before the first: the fastest choice there is unknown. */
function measuredAround(bases: readonly Basis[] | undefined, tokens: number): number[] {
  const counts = bases?.[0]?.group.lines.map(({ m }) => m) ?? [];
  const below = counts.findLast((m) => m <= tokens);
  if (below === undefined || below === tokens) return below === undefined ? [] : [below];
  return [below, ...counts.filter((m) => m > tokens).slice(0, 1)];
}

interface NotesOptions {
  readonly target: MatmulTarget;
  readonly maxTokens: number;
  readonly threads: number;
  readonly bases: readonly Basis[] | undefined;
  readonly explained: readonly number[];
  chosenAt(tokens: number): MatmulVariant;
}

/** Every candidate with its estimates, or the reason why it is refused; then which is chosen. */
function notesOf(
  file: TuneFile,
  problems: readonly MatmulProblem[],
  { target, maxTokens, threads, bases, explained, chosenAt }: NotesOptions,
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
  const guesses = new Map<number, string>();
  const lines = [...matmulVariants(target), ...found].map((variant) => {
    const refusal = problems
      .map((problem) => acceptsProblem(variant, problem, target))
      .find((answer) => answer !== true);
    if (refusal !== undefined) return `  ${variant.id}: no, ${refusal}`;
    const profile = known.find((one) => one.variant.id === variant.id);
    const times = explained.map((tokens) => profile && totalTime(bases, profile.index, tokens));
    if (times.every((time) => time === undefined)) return `  ${variant.id}: not measured`;
    const texts = explained.map((tokens, i) => {
      const time = times[i];
      const guess = guessText(time, basis);
      if (guess !== "") guesses.set(tokens, guess);
      return `${plural(tokens, "token")} ${time ? microseconds(time.us) : "given up"}`;
    });
    return `  ${variant.id}: ${texts.join(", ")}`;
  });
  const chosen = explained.map((tokens) => `${plural(tokens, "token")} ${chosenAt(tokens).id}`);
  const batches = explained.filter((tokens) => tokens > maxTokens);
  return [
    `${shapes}, ${plural(threads, "thread")}${from}:`,
    ...lines,
    `  chosen: ${chosen.join(", ")}`,
    ...[...guesses].map(([tokens, guess]) => `  ${plural(tokens, "token")}: a guess, ${guess}`),
    ...(batches.length === 0
      ? []
      : [`  a batch has at most ${maxTokens} tokens: ${batches.join(", ")} are several`]),
  ];
}

/** The reason why an estimate is a guess, besides the reasons that all estimates of the group share. */
function guessText(time: GroupTime | undefined, basis: Basis | undefined): string {
  if (!time) return "";
  const { stretched } = time;
  const all = basis?.stretched ?? "";
  return stretched.startsWith(all) ? stretched.slice(all.length).replace(/^, /, "") : stretched;
}

function microseconds(us: number): string {
  return us >= 1000 ? `${(us / 1000).toFixed(2)} ms` : `${us.toFixed(1)} us`;
}

/** The number of matmuls with this number of tokens, for choices that apply to all of them. */
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

/** The least time of all matmuls with a number of threads, over these profiles; undefined: unknown. */
function bestTotal(
  file: TuneFile,
  groups: Groups,
  threads: number,
  profiles: readonly number[],
): number | undefined {
  let total = 0;
  for (const problems of groups) {
    const bases = basesFor(file, problems, threads);
    for (const { tokens, times } of chatUse) {
      const known = profiles.flatMap((index) => totalTime(bases, index, tokens)?.us ?? []);
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
  // Only variants that a matmul can choose: a model never runs row by row because of a measurement.
  const chosen = choosable(file, targetOfFeatures(file.features)).map(({ index }) => index);
  const timed = counts.flatMap((threads) => {
    const us = bestTotal(file, groups, threads, chosen);
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
  // A gain applies to that matrix alone (others left it more of the machine), a cost to every barrier.
  const wakeUs = cost > 0 ? cost : (file.notify?.us ?? Number.POSITIVE_INFINITY);
  for (const problems of groups) {
    const bases = basesFor(file, problems, threads);
    noise = Math.max(noise, 1 - clearlyFasterThan(bases));
    for (const { tokens, times } of chatUse) {
      const least = (idle: "spin" | "sleep") =>
        Math.min(
          ...file.profiles.flatMap((profile, index) =>
            profile.idle === idle ? (totalTime(bases, index, tokens)?.us ?? []) : [],
          ),
        );
      const spinning = least("spin");
      const measured = least("sleep");
      // Without a measurement of sleeping, every matmul takes longer by the extra time that was measured elsewhere.
      const estimated = spinning + problems.length * wakeUs;
      spin += spinning * times;
      sleep += (Number.isFinite(measured) ? Math.min(measured, estimated) : estimated) * times;
    }
  }
  return Number.isFinite(sleep) && sleep <= spin * (1 - noise) ? "sleep" : "spin";
}
