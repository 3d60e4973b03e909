// Measures every profile for every shape, thread count and number of tokens, for `lantern tune`. Rounds are
// interleaved (each goes through all profiles), so that a slow moment of the machine affects all of them. Other
// programs can only slow a round down, so the lower quartile of the rounds counts, and a profile is given up when its
// best round is far from the best of all. A profile that seems faster than the default is then measured again, alternating with it
// (confirm.ts), also with sleeping threads. Then the knobs of the best are searched (knobs.ts), if the kernels are
// machine code: for one token and, if there is time, for the most; a model computes little else.

import { refusals } from "../backends/cpu/native/choice.ts";
import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { AbortedError } from "../base/errors.ts";
import { loadWatch, type ReadCpuTimes } from "../base/machine-load.ts";
import { measure as measureInTurns, median, takeRounds } from "../base/measure.ts";
import { plural } from "../base/plural.ts";
import {
  acceptsProblem,
  defaultVariant,
  effectiveVariant,
  type MatmulProblem,
  type MatmulVariant,
  matmulVariants,
  variantById,
} from "../kernels/matmul-variants.ts";
import type { KernelTarget } from "../kernels/target.ts";
import type { EngineThread } from "../platform/platform.ts";
import { challengeDefault } from "./challenge.ts";
import { total, typical } from "./confirm.ts";
import { type KnobSearch, searchKnobs } from "./knobs.ts";
import { MatmulTimes, type MatmulTimesOptions, untilCompiled } from "./measure.ts";
import { tuneExperts } from "./tune-experts.ts";
import {
  problemText,
  type StageTimes,
  type TuneGroup,
  type TuneLine,
  type TuneProblem,
  type TuneProfile,
} from "./tune-file.ts";
import { targetFor } from "./tune-target.ts";

export interface TunePlan {
  readonly problems: readonly TuneProblem[];
  readonly threads: readonly number[];
  /** Numbers of tokens, ascending. */
  readonly tokens: readonly number[];
  readonly rounds: number;
  /** Measure whole weights; otherwise some of their rows stand for all. */
  readonly full: boolean;
  /** Size of weights that stream from memory: more than caches hold. */
  readonly streamBytes: number;
  /**
   * Also search knobs for the most tokens, not only for one: register tiles have many kernels, which take long to
   * generate.
   */
  readonly knobsOfTiles?: boolean;
  /** Also measure the best variants with threads that sleep at once. */
  readonly sleeping?: boolean;
  /** The time of a wake-up: matmuls that are hardly longer are not measured with sleeping threads. */
  readonly notifyUs?: number | undefined;
}

export interface TuneEnvironment {
  startThread(): EngineThread;
  /** Makes the matmul kernels; undefined: they are WebAssembly. */
  readonly native?: NativeKernels | undefined;
  /** Lets other work in: a progress bar, an abort, a request. */
  yieldThread(): Promise<void>;
  /** Tells rounds that others disturbed; absent: all count. */
  readonly cpuTimes?: ReadCpuTimes | undefined;
}

export interface TuneWatch {
  readonly signal?: AbortSignal | undefined;
  /** Called with the fraction that is done, 0 to 1, and the current measurement. */
  readonly onProgress?: ((share: number, now: string) => void) | undefined;
  /** Called when a group is finished: a later abort does not lose it. */
  readonly onGroup?: ((group: TuneGroup) => void | Promise<void>) | undefined;
}

/**
 * After round r, a profile whose best time is more than this times the best of all is given up; one round says little.
 */
const HOPELESS: readonly number[] = [3, 1.6, 1.3, 1.3, 1.3];
const WARM_UPS = 3;
/** The most rounds that are repeated because others disturbed them: users wait for a tune. */
const REPEATS = 3;
/** Rounds of a confirmation, besides those of the plan. */
const MORE_ROUNDS = 4;
/** The fractions of the time for all profiles and for confirmations; the rest is for the default's times. */
const TILES_SHARE = 0.7;
const CONFIRM_SHARE = 0.2;
/** The default's own weights are in the caches, as far as they fit, when it is timed for the last time. */
const REWARM_UPS = 3;
/** The fraction of a matmul's time budget for knobs, if there are any. */
const KNOBS_SHARE = 0.3;

/**
 * All ways to run a matmul: every variant with spinning threads; if full, also row by row. Sleeping threads are tried
 * with the best of them, which adds profiles.
 */
export function tuneProfiles(
  full: boolean,
  target: KernelTarget = targetFor(undefined),
): TuneProfile[] {
  const spinning = matmulVariants(target).map(({ id }) => profile(3, id, "spin"));
  if (!full) return spinning;
  return [...spinning, profile(2, "rows", "spin")];
}

function profile(level: number, variant: string, idle: "spin" | "sleep"): TuneProfile {
  return { backend: "cpu", level, variant, idle };
}

/** `profiles` grows by sleeping threads, and by variants whose knobs turned out to be better. */
export async function runTune(
  plan: TunePlan,
  profiles: TuneProfile[],
  environment: TuneEnvironment,
  watch: TuneWatch = {},
): Promise<TuneGroup[]> {
  const groups: TuneGroup[] = [];
  const total = plan.problems.length * plan.threads.length;
  for (const threads of plan.threads) {
    for (const problem of plan.problems) {
      const done = groups.length;
      const now = `${problemText(problem)}, ${plural(threads, "thread")}`;
      const report = (share: number) => watch.onProgress?.((done + share) / total, now);
      const group = problem.experts
        ? await tuneExperts(
            {
              ...benchOptions(plan, problem, threads, environment),
              tokens: plan.tokens,
              rounds: plan.rounds,
              yieldThread: () => environment.yieldThread(),
            },
            profiles,
            report,
            watch.signal,
          )
        : await new GroupTuner(plan, profiles, problem, threads, environment).run(
            report,
            watch.signal,
          );
      groups.push(group);
      await watch.onGroup?.(group);
    }
  }
  return groups;
}

function benchOptions(
  { full, streamBytes }: TunePlan,
  problem: TuneProblem,
  threads: number,
  environment: TuneEnvironment,
): Omit<MatmulTimesOptions, "variants" | "tokens"> {
  return {
    problem,
    threads,
    whole: full,
    streamBytes,
    startThread: () => environment.startThread(),
    native: environment.native,
  };
}

/** A line to which times of knobs are added. */
interface Line extends TuneLine {
  readonly times: (StageTimes | undefined)[];
}

/** A candidate: its bench, and the variant of it. */
interface Entrant {
  readonly profile: number;
  readonly variant: number;
  readonly level: number;
}

class GroupTuner {
  readonly #plan: TunePlan;
  readonly #profiles: TuneProfile[];
  readonly #problem: MatmulProblem;
  readonly #threads: number;
  readonly #environment: TuneEnvironment;
  readonly #target: KernelTarget;
  readonly #variants: readonly MatmulVariant[];
  readonly #entrants: readonly Entrant[];
  readonly #open: MatmulTimes[] = [];

  constructor(
    plan: TunePlan,
    profiles: TuneProfile[],
    problem: MatmulProblem,
    threads: number,
    environment: TuneEnvironment,
  ) {
    this.#plan = plan;
    this.#profiles = profiles;
    this.#problem = problem;
    this.#threads = threads;
    this.#environment = environment;
    const { native } = environment;
    const target = targetFor(native);
    this.#target = target;
    this.#variants = matmulVariants(target).filter(
      (variant) =>
        acceptsProblem(variant, problem, target) === true &&
        !(native && refusals(native)(problem.dtype, variant)),
    );
    this.#entrants = this.#enter();
  }

  async run(report: (share: number) => void, signal: AbortSignal | undefined): Promise<TuneGroup> {
    const { native } = this.#environment;
    const forTiles = native ? 1 - KNOBS_SHARE : 1;
    const { lines, noise } = await this.#tiles((share) => report(share * forTiles), signal);
    if (native)
      await this.#knobs(lines, native, (share) => report(forTiles + share * KNOBS_SHARE), signal);
    const { dtype, n, k } = this.#problem;
    return { ...{ dtype, n, k }, threads: this.#threads, ...(noise > 0 && { noise }), lines };
  }

  /** All profiles at all numbers of tokens. */
  async #tiles(
    report: (share: number) => void,
    signal: AbortSignal | undefined,
  ): Promise<{ lines: Line[]; noise: number }> {
    const { tokens, rounds } = this.#plan;
    const samples = tokens.map(() => this.#profiles.map((): StageTimes[] => []));
    const alive = tokens.map(
      (m) => new Set(this.#entrants.filter((one) => this.#isItself(one, m))),
    );
    try {
      const tiled = await this.#openBench(3);
      const rows = this.#entrants.some(({ level }) => level === 2)
        ? await this.#openBench(2)
        : tiled;
      const measure = async ({ variant, level }: Entrant, m: number, idle: "spin" | "sleep") => {
        await this.#pause(signal);
        return await (level === 2 ? rows : tiled).measure(variant, m, idle);
      };
      const all = WARM_UPS + rounds;
      await takeRounds({
        rounds,
        warmUps: WARM_UPS,
        watch: loadWatch(this.#environment.cpuTimes),
        mostRepeats: REPEATS,
        measure: async (round) => {
          const taken: { readonly into: StageTimes[]; readonly times: StageTimes }[] = [];
          for (const [line, m] of tokens.entries()) {
            report((TILES_SHARE * (WARM_UPS + round + line / tokens.length)) / all);
            for (const entrant of alive[line]!) {
              const into = samples[line]![entrant.profile]!;
              taken.push({ into, times: await measure(entrant, m, "spin") });
            }
          }
          return taken;
        },
        keep: async (taken, round) => {
          if (round >= 0) for (const { into, times } of taken) into.push(times);
          if (round === -1) await untilCompiled();
          const hopeless = HOPELESS[round];
          if (hopeless !== undefined) this.#giveUp(samples, alive, hopeless);
        },
      });
      const lines: Line[] = [];
      const noises: number[] = [];
      for (const [line, m] of tokens.entries()) {
        report(TILES_SHARE + (CONFIRM_SHARE * line) / tokens.length);
        const found = await this.#confirmed(samples[line]!, [...alive[line]!], m, measure);
        lines.push(found.line);
        if (found.noise !== undefined) noises.push(found.noise);
      }
      const usual = tokens.map((m, line) =>
        [...alive[line]!].find((one) => this.#isDefault(one, m)),
      );
      const timed = await this.#timeDefaults(lines, usual, measure, (share) =>
        report(TILES_SHARE + CONFIRM_SHARE + (1 - TILES_SHARE - CONFIRM_SHARE) * share),
      );
      return { lines: timed, noise: noises.length > 0 ? median(noises) : 0 };
    } finally {
      for (const bench of this.#open) bench.dispose();
    }
  }

  /** The times of a line, without those of profiles that seemed faster than the default and are not. */
  async #confirmed(
    samples: readonly StageTimes[][],
    survivors: readonly Entrant[],
    m: number,
    measure: (entrant: Entrant, m: number, idle: "spin" | "sleep") => Promise<StageTimes>,
  ): Promise<{ line: Line; noise: number | undefined }> {
    const known = new Map(survivors.map((one) => [one, typical(samples[one.profile]!)!]));
    const usual = survivors.find((one) => this.#isDefault(one, m));
    const { rounds, sleeping = false, notifyUs = 0 } = this.#plan;
    const result = usual
      ? await challengeDefault({
          known,
          usual,
          rounds: rounds + MORE_ROUNDS,
          // A single thread never waits for another.
          canSleep: ({ level }) => sleeping && this.#threads > 1 && level === 3,
          notifyUs,
          measure: (one, idle) => measure(one, m, idle),
        })
      : { spinning: known, sleeping: new Map<Entrant, StageTimes>(), noise: undefined };
    const times = this.#profiles.map((profile, index) => {
      if (!this.#entrants.some((one) => one.profile === index)) return undefined;
      const measured = [...result.spinning.keys()].find((one) => this.#isSame(profile, one, m));
      return measured && result.spinning.get(measured);
    });
    for (const [one, time] of result.sleeping) {
      times[this.#profileOf(this.#profiles[one.profile]!.variant, "sleep")] = time;
    }
    return { line: { m, times }, noise: result.noise };
  }

  /**
   * The lines with the default's times as `tune test` and a model see them: in rounds through all numbers of tokens, each after the default
   * itself, not after other profiles. All times of a line are scaled alike, which changes no choice.
   */
  async #timeDefaults(
    lines: readonly Line[],
    usual: readonly (Entrant | undefined)[],
    measure: (entrant: Entrant, m: number, idle: "spin" | "sleep") => Promise<StageTimes>,
    report: (share: number) => void,
  ): Promise<Line[]> {
    const rounds = this.#plan.rounds + MORE_ROUNDS;
    const { samples } = await measureInTurns({
      contestants: lines.map(({ m }, at) => ({ m, one: usual[at] })),
      rounds,
      watch: loadWatch(this.#environment.cpuTimes),
      mostRepeats: REPEATS,
      onRound: (round) => report(round / rounds),
      run: async ({ m, one }) => {
        if (!one) return undefined;
        for (let i = 0; i < REWARM_UPS; i++) await measure(one, m, "spin");
        return await measure(one, m, "spin");
      },
    });
    return lines.map(({ m, times }, at) => {
      const own = samples[at]!.filter((one) => one !== undefined);
      const [now, was] = [typical(own), usual[at] && times[usual[at].profile]];
      const scale = now && was ? total(now) / total(was) : 1;
      const scaled = (one: StageTimes | undefined) =>
        one && { init: one.init * scale, compute: one.compute * scale };
      return { m, times: times.map(scaled) };
    });
  }

  /** A server tunes while it is idle: a new request waits for one measurement, not for a whole line. */
  async #pause(signal: AbortSignal | undefined): Promise<void> {
    await this.#environment.yieldThread();
    if (signal?.aborted) throw new AbortedError("tuning");
  }

  /** Searches knobs of the winners with one token and with the most; adds their times to the lines. */
  async #knobs(
    lines: readonly Line[],
    native: NativeKernels,
    report: (share: number) => void,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const winners = lines.map((line) => this.#winner(line));
    const last = this.#plan.knobsOfTiles ? [lines.length - 1] : [];
    const searched = [...new Set([0, ...last])];
    for (const [nth, at] of searched.entries()) {
      const variant = winners[at];
      if (!variant) continue;
      const same = lines.filter((_, line) => winners[line]?.id === variant.id);
      const found = await searchKnobs(
        variant,
        lines[at]!.m,
        same.map(({ m }) => m),
        this.#knobSearch(native, signal, (share) => report((nth + share) / searched.length)),
      );
      if (!found) continue;
      const [usual, changed] = [variant, found.variant].map(({ id }) =>
        this.#profileOf(id, "spin"),
      );
      for (const [line, { times }] of same.entries()) {
        const { init, compute } = times[usual!]!;
        const ratio = found.ratios[line];
        if (ratio === undefined) continue;
        times[changed!] = { init, compute: Math.max(0, (init + compute) * ratio - init) };
      }
    }
  }

  /** The variant with the least time; on a tie, the default. */
  #winner({ m, times }: TuneLine): MatmulVariant | undefined {
    let best: { profile: number; us: number } | undefined;
    for (const { profile, level } of this.#entrants) {
      const time = times[profile];
      if (!time || level !== 3 || !this.#isMeasured(profile, m)) continue;
      if (best === undefined || total(time) < best.us) best = { profile, us: total(time) };
    }
    return best && variantById(this.#profiles[best.profile]!.variant, this.#target);
  }

  /** Whether the time at this number of tokens is its own, not that of another variant that does the same. */
  #isMeasured(profile: number, m: number): boolean {
    return (
      this.#profiles[profile]!.variant === effectiveId(this.#profiles[profile]!, m, this.#target)
    );
  }

  #knobSearch(
    native: NativeKernels,
    signal: AbortSignal | undefined,
    onValue: (share: number) => void,
  ): KnobSearch {
    return {
      target: this.#target,
      rounds: this.#plan.rounds,
      accepts: (variant) => refusals(native)(this.#problem.dtype, variant) === undefined,
      open: async (variants, tokens) => {
        const bench = await MatmulTimes.open({ ...this.#benchOptions(), variants, tokens });
        return {
          measure: async (index, m) => {
            await this.#pause(signal);
            return await bench.measure(index, m, "spin");
          },
          dispose: () => bench.dispose(),
        };
      },
      onValue,
    };
  }

  /** The number of the profile with this variant, which is added if it is missing. */
  #profileOf(id: string, idle: "spin" | "sleep"): number {
    const known = this.#profiles.findIndex(
      (one) => one.level === 3 && one.variant === id && one.idle === idle,
    );
    return known >= 0 ? known : this.#profiles.push(profile(3, id, idle)) - 1;
  }

  /** Whether a measurement of `one` also applies to `profile` at this number of tokens. */
  #isSame(profile: TuneProfile, one: Entrant, m: number): boolean {
    const { variant, level, idle } = this.#profiles[one.profile]!;
    return (
      variant === effectiveId(profile, m, this.#target) &&
      level === profile.level &&
      idle === profile.idle
    );
  }

  #isItself(one: Entrant, m: number): boolean {
    return this.#isSame(this.#profiles[one.profile]!, one, m);
  }

  #enter(): Entrant[] {
    return this.#profiles.flatMap(({ level, variant: id, idle }, profile): Entrant[] => {
      if (level === 2) return [{ profile, variant: -1, level }];
      if (idle === "sleep") return []; // an earlier group's: only challengers sleep
      const variant = this.#variants.findIndex((candidate) => candidate.id === id);
      return variant < 0 ? [] : [{ profile, variant, level }];
    });
  }

  async #openBench(level: number): Promise<MatmulTimes> {
    const bench = await MatmulTimes.open({
      ...this.#benchOptions(),
      variants: level === 2 ? [] : this.#variants,
      tokens: this.#plan.tokens,
    });
    this.#open.push(bench);
    return bench;
  }

  #benchOptions(): Omit<MatmulTimesOptions, "variants" | "tokens"> {
    return benchOptions(this.#plan, this.#problem, this.#threads, this.#environment);
  }

  /** Drops profiles that are too far from the best, but never the default. */
  #giveUp(
    samples: readonly (readonly StageTimes[][])[],
    alive: readonly Set<Entrant>[],
    hopeless: number,
  ): void {
    for (const [line, entrants] of alive.entries()) {
      const least = ({ profile }: Entrant) => Math.min(...samples[line]![profile]!.map(total));
      const best = Math.min(...[...entrants].map(least));
      for (const entrant of entrants) {
        const isDefault = this.#isDefault(entrant, this.#plan.tokens[line]!);
        if (!isDefault && least(entrant) > best * hopeless) entrants.delete(entrant);
      }
    }
  }

  #isDefault({ profile }: Entrant, m: number): boolean {
    const standard = defaultVariant(this.#problem.dtype, m, this.#target);
    return this.#profiles[profile]!.variant === effectiveVariant(standard, m, this.#target).id;
  }
}

function effectiveId({ variant: id }: TuneProfile, m: number, target: KernelTarget): string {
  const variant = variantById(id, target);
  return variant ? effectiveVariant(variant, m, target).id : id;
}
