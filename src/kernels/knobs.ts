// The knobs of a kernel's instruction schedule: prefetch distance, unrolling, load order, pipelining. They change no result.
// Data only: lower/schedule.ts applies them (`ahead` is applied by the kernels in ops/matmul/), matmul-variants.ts has them
// as part of a variant, src/tune searches them.
//
// An out-of-order processor does much of this by itself. The further gain of a knob depends on the processor, the type and
// the cache level of the weights, so knobs are measured, not guessed.

import type { LoopSchedule } from "./lower/schedule.ts";

export interface Schedule extends LoopSchedule {
  /** The distance in bytes by which weights are prefetched before their use; 0: no prefetch. */
  readonly ahead: number;
}

/** The knobs that differ from the default. */
export type Knobs = Partial<Schedule>;

export type KnobName = keyof Schedule;

interface Knob<K extends KnobName> {
  readonly values: readonly Schedule[K][];
  /** The word for a value in a variant's id, distinct from all other words. */
  text(value: Schedule[K]): string;
}

/** In the order of ids and of the search. */
const knobs: { readonly [K in KnobName]: Knob<K> } = {
  ahead: { values: [0, 512, 1024, 2048, 4096, 8192], text: (bytes) => `ahead${bytes}` },
  unroll: { values: [1, 2, 4], text: (rounds) => `unroll${rounds}` },
  order: { values: ["written", "early", "interleaved"], text: (order) => order },
  pipelined: { values: [false, true], text: (is) => (is ? "pipelined" : "unpipelined") },
};

export const knobNames: readonly KnobName[] = Object.keys(knobs) as KnobName[];

/** All values of one knob, with the others as they are. */
export function turned(current: Knobs, name: KnobName): Knobs[] {
  return knobs[name].values.map((value) => ({ ...current, [name]: value }));
}

/** A kernel as it is written: the default of quantized types. Floats differ a little, and `ahead` depends on the streams. */
const plain: Knobs = { unroll: 1, order: "written", pipelined: false };

/** All values of a knob but the current one (where none is set: the default). */
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

/** The knob that a word of an id sets; undefined: it is no knob's word. */
function knobsOfWord(word: string): Knobs | undefined {
  return knobNames
    .flatMap((name) => turned({}, name))
    .find((candidate) => knobWords(candidate)[0] === word);
}

/** Splits an id into its knobs and the rest, which keeps all words that are no knob's. */
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
