// The requests of bench/batch.ts: of mixed lengths, the same in every run.

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
  let state = (seed * 2654435761) >>> 0;
  const random = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const between = ([least = 1, most = least]: readonly number[]): number =>
    Math.round(least * (most / least) ** random());
  const ids = (of: number): number[] =>
    Array.from({ length: of }, () => FIRST_ID + Math.floor(random() * (LAST_ID - FIRST_ID)));
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

export function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1]!;
}
