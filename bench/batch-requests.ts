// The requests of bench/batch.ts: of mixed lengths, the same in every run.

import { Random } from "../test/support/random.ts";

export interface BatchRequest {
  readonly prompt: readonly number[];
  /** Tokens of the answer. */
  readonly tokens: number;
}

/** Ids below this are in every vocabulary, and no control tokens. */
const [FIRST_ID, LAST_ID] = [300, 1500];

interface RequestLengths {
  /** Tokens that all prompts begin with. */
  readonly shared?: number;
  /** From and to. */
  readonly prompts?: readonly number[];
  readonly answers?: readonly number[];
}

/** Short prompts and answers come more often than long ones. */
export function mixedRequests(
  count: number,
  seed: number,
  { shared = 0, prompts = [16, 256], answers = [8, 128] }: RequestLengths = {},
): BatchRequest[] {
  const random = new Random(seed);
  const between = ([least = 1, most = least]: readonly number[]): number =>
    Math.round(least * (most / least) ** random.unit());
  const ids = (of: number): number[] =>
    Array.from({ length: of }, () => FIRST_ID + random.below(LAST_ID - FIRST_ID));
  const beginning = ids(shared);
  return Array.from({ length: count }, () => ({
    prompt: [...beginning, ...ids(between(prompts))],
    tokens: between(answers),
  }));
}

/** Works on the list, so many at a time, until all are done or one returns false. */
export async function inLanes<T>(
  list: readonly T[],
  lanes: number,
  work: (item: T) => Promise<boolean>,
): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < list.length && (await work(list[next++]!)));
  };
  await Promise.all(Array.from({ length: Math.min(lanes, list.length) }, lane));
}
