// The second half of tuning a matmul: the knobs of the winning variant (kernels/knobs.ts). Part of run-tune.ts.
//
// One knob after the other: all its values are measured, the best stays, and the next knob is tried with it
// (coordinate descent). All combinations would be a hundred kernels and minutes. Knobs change times by percents where
// register tiles change them by half, so the result must be confirmed at the end against the original variant
// (confirm.ts); only that comparison is kept.

import { measure, quantile } from "../base/measure.ts";
import { type Knobs, knobNames, otherValues } from "../kernels/knobs.ts";
import {
  hasKnobs,
  type MatmulTarget,
  type MatmulVariant,
  withKnobs,
} from "../kernels/matmul-variants.ts";
import { confirm, total } from "./confirm.ts";
import type { StageTimes } from "./tune-file.ts";

/** Measures variants alternately. */
export interface KnobBench {
  measure(variant: number, m: number): Promise<StageTimes>;
  dispose(): void;
}

export interface KnobSearch {
  readonly target: MatmulTarget;
  readonly rounds: number;
  /** Whether the variant has code for the matmul. */
  accepts(variant: MatmulVariant): boolean;
  open(variants: readonly MatmulVariant[], tokens: readonly number[]): Promise<KnobBench>;
  /** Called before the values of a knob are measured; an error it throws ends the search. */
  onValue(share: number, variant: MatmulVariant): void;
}

export interface KnobResult {
  readonly variant: MatmulVariant;
  /** For each number of tokens: the time relative to the variant with its default knobs; undefined: not confirmed. */
  readonly ratios: readonly (number | undefined)[];
}

/** A value must take at most this fraction of the previous value's time, or the previous one stays. */
const BETTER = 0.985;
const WARM_UPS = 1;
/** Rounds of the last comparison, besides those of the search. */
const FINALS = 4;

/**
 * The best knobs for a variant at m tokens; undefined: the default ones. `all` are the numbers of tokens, including m,
 * at which the winner is compared with the variant in the end.
 */
export async function searchKnobs(
  variant: MatmulVariant,
  m: number,
  all: readonly number[],
  search: KnobSearch,
): Promise<KnobResult | undefined> {
  if (!hasKnobs(variant, search.target)) return undefined;
  let best = variant;
  for (const [step, name] of knobNames.entries()) {
    const tried = [best, ...candidates(best, otherValues(best.knobs ?? {}, name), search)];
    if (tried.length === 1) continue;
    search.onValue(step / (knobNames.length + 1), tried[1]!);
    const [[usual, ...others]] = (await timesOf(tried, [m], search)) as [number[]];
    const least = Math.min(...others);
    if (least <= usual! * BETTER) best = tried[1 + others.indexOf(least)]!;
  }
  if (best === variant) return undefined;
  search.onValue(knobNames.length / (knobNames.length + 1), best);
  const ratios = await confirmedRatios(variant, best, all, search);
  return ratios[all.indexOf(m)] === undefined ? undefined : { variant: best, ratios };
}

/** The time of `changed` relative to `usual` for each number of tokens; undefined if it is not confirmed. */
async function confirmedRatios(
  usual: MatmulVariant,
  changed: MatmulVariant,
  tokens: readonly number[],
  { rounds, open }: KnobSearch,
): Promise<(number | undefined)[]> {
  const bench = await open([usual, changed], tokens);
  try {
    const ratios: (number | undefined)[] = [];
    for (const m of tokens) {
      for (let i = 0; i < 2 * WARM_UPS; i++) await bench.measure(i % 2, m);
      const measure = (candidate: number) => bench.measure(candidate + 1, m);
      const { verdicts } = await confirm({ rounds: FINALS + rounds, candidates: 1, measure });
      ratios.push(verdicts[0]!.isFaster ? verdicts[0]!.ratio : undefined);
    }
    return ratios;
  } finally {
    bench.dispose();
  }
}

/** Variants with these knobs that have code. */
function candidates(
  current: MatmulVariant,
  values: readonly Knobs[],
  { accepts }: KnobSearch,
): MatmulVariant[] {
  return values.map((knobs) => withKnobs(current, knobs)).filter(accepts);
}

/** Microseconds of each variant, for each number of tokens: the lower quartile of rounds through all of them. */
async function timesOf(
  variants: readonly MatmulVariant[],
  tokens: readonly number[],
  { rounds, open }: KnobSearch,
): Promise<number[][]> {
  const bench = await open(variants, tokens);
  try {
    const lines: number[][] = [];
    for (const m of tokens) {
      const { samples } = await measure({
        contestants: [...variants.keys()],
        rounds,
        warmUps: WARM_UPS,
        run: async (index) => total(await bench.measure(index, m)),
      });
      lines.push(samples.map((times) => quantile(times, 0.25)));
    }
    return lines;
  } finally {
    bench.dispose();
  }
}
