// How the instructions of a kernel are put in order: knobs that change no result, only how soon things are asked for and how
// much happens in a round of a loop. Data only: lower/schedule.ts carries them out (all but `ahead`, which is the kernels'
// own), matmul-variants.ts has them as part of a variant, src/tune searches them.
//
// An out-of-order processor does much of this by itself, and what the rest is worth depends on the processor, on the type and
// on where the weights come from. So nothing is guessed beyond the usual.

import type { LoopSchedule } from "./lower/schedule.ts";

export interface Schedule extends LoopSchedule {
  /** Weights are asked for so many bytes before they are needed; 0: not at all. */
  readonly ahead: number;
}

/** Those that are to be other than usual. */
export type Knobs = Partial<Schedule>;

export type KnobName = keyof Schedule;

interface Knob<K extends KnobName> {
  readonly values: readonly Schedule[K][];
  /** As part of a variant's id: one word for each value, unlike all other words. */
  text(value: Schedule[K]): string;
}

/** In the order in which ids have them and in which they are searched. */
const knobs: { readonly [K in KnobName]: Knob<K> } = {
  ahead: { values: [0, 512, 1024, 2048, 4096, 8192], text: (bytes) => `ahead${bytes}` },
  unroll: { values: [1, 2, 4], text: (rounds) => `unroll${rounds}` },
  order: { values: ["written", "early", "interleaved"], text: (order) => order },
  pipelined: { values: [false, true], text: (is) => (is ? "pipelined" : "unpipelined") },
};

export const knobNames: readonly KnobName[] = Object.keys(knobs) as KnobName[];

/** All values of one knob beside others that stay. */
export function turned(current: Knobs, name: KnobName): Knobs[] {
  return knobs[name].values.map((value) => ({ ...current, [name]: value }));
}

/** A kernel as it is written. Where nothing is said, blocks are so (floats nearly, and how far ahead depends on the streams). */
const plain: Knobs = { unroll: 1, order: "written", pipelined: false };

/** The values that are worth trying: others than the current one, and than what it is where nothing was said. */
export function otherValues(current: Knobs, name: KnobName): Knobs[] {
  const now = current[name] ?? plain[name];
  return turned(current, name).filter((candidate) => candidate[name] !== now);
}

/** The words of an id: ["ahead512", "unroll2"]. */
export function knobWords(chosen: Knobs): string[] {
  return knobNames.flatMap((name) => wordOf(name, chosen) ?? []);
}

function wordOf<K extends KnobName>(name: K, chosen: Knobs): string | undefined {
  const value = chosen[name] as Schedule[K] | undefined;
  return value === undefined ? undefined : knobs[name].text(value);
}

/** What a word of an id sets; undefined: it is no knob's. */
function knobsOfWord(word: string): Knobs | undefined {
  return knobNames
    .flatMap((name) => turned({}, name))
    .find((candidate) => knobWords(candidate)[0] === word);
}

/** An id in two: what comes before its knobs, and these. Words that no knob has stay where they are. */
export function splitKnobs(id: string): { readonly rest: string; readonly knobs: Knobs } {
  const rest: string[] = [];
  let found: Knobs = {};
  for (const word of id.split(".")) {
    const one = knobsOfWord(word);
    if (one) found = { ...found, ...one };
    else rest.push(word);
  }
  return { rest: rest.join("."), knobs: found };
}
