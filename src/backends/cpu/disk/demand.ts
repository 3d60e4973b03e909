// Data that the threads share about experts that are read on demand: plain data, sent to every thread, and words in the shared
// memory.
//
// A token uses a few experts of a layer, and only those are read. A matrix of experts has slots, each for one expert, and
// demand-slots.ts decides which expert is in which slot. When the routes of a batch are known, the instruction disk_experts
// (ops/disk-experts.ts) asks for the missing experts, for all matrices of the layer; readers (reader.ts) read and pack it; the matmuls
// wait for each expert when they come to it. A result has the same bits for any slot of an expert.

/** A matrix of experts, of which some are in slots. */
export interface DemandWeight {
  readonly name: string;
  /** The instruction that packs it; its address is that of slot 0 (repack.ts). */
  readonly packing: number;
  /** The beginnings of its parts, all of the same size: a file, as an index of the leader's open files, and an offset. */
  readonly parts: readonly { readonly file: number; readonly offset: number }[];
  readonly experts: number;
  /** Experts that a token uses. */
  readonly used: number;
  readonly slots: number;
  /** Bytes of an expert in the file. */
  readonly expertBytes: number;
  /** Rows of an expert, row panels that they fill, rows of a piece, and pieces of an expert. */
  readonly rows: number;
  readonly panels: number;
  readonly step: number;
  readonly pieces: number;
  /** Addresses: i32 words (demandWords) and f64 for each slot: when it was last used. */
  readonly words: number;
  readonly uses: number;
}

export interface DemandProgram {
  readonly weights: readonly DemandWeight[];
  /** Address of DEMAND_WORD words. */
  readonly control: number;
  /** A ring of `queueLength` pieces that are to be read, as pairs of i32: the weight, and slot * pieces + piece. */
  readonly queue: number;
  readonly queueLength: number;
  /** Address of DEMAND_NUMBER f64 numbers. */
  readonly numbers: number;
  /** Addresses of the readers' words and message (program.ts). */
  readonly readers: { readonly words: number; readonly message: number };
  /** As DiskProgram.waitMs. */
  readonly waitMs: number;
  /** Pieces of experts that are read ahead, as in `queue`: the first `guesses` (DEMAND_WORD) pairs. */
  readonly guesses: number;
  readonly mostGuesses: number;
  readonly ahead: AheadMode;
}

/** Whether experts are read ahead: as long as it was measured to save time (ahead.ts). */
export type AheadMode = "measured" | "always" | "never";

/** `lock` has a cache line of its own; its holder reads and writes the others, and all words of the weights. */
export const DEMAND_WORD = {
  lock: 0,
  head: 16,
  tail: 17,
  starved: 18,
  /** Pieces in `guesses`. */
  guesses: 19,
  count: 32,
} as const;

/** Uses that found their expert in a slot, experts that were read, bytes that were read, ms that threads waited; and a clock. */
export const DEMAND_NUMBER = {
  hits: 0,
  misses: 1,
  bytes: 2,
  waitMs: 3,
  clock: 4,
  /** Experts that were read ahead, and those of them that the layer used. */
  guessed: 5,
  right: 6,
  /** The state of ahead.ts: whether this batch guesses, whether that was faster, and the trial. */
  isAhead: 7,
  aheadWins: 8,
  token: 9,
  since: 10,
  withMs: 11,
  withoutMs: 12,
  count: 16,
} as const;

/** Offsets of a weight's i32 words, and their number. demand-slots.ts says what they mean. */
interface DemandWords {
  readonly slotOf: number;
  readonly need: number;
  readonly list: number;
  readonly cursor: number;
  readonly held: number;
  readonly left: number;
  readonly users: number;
  readonly guessed: number;
  readonly count: number;
}

export function demandWords({
  experts,
  slots,
}: Pick<DemandWeight, "experts" | "slots">): DemandWords {
  const slotOf = 0;
  const need = slotOf + experts;
  const list = need + experts;
  const cursor = list + experts;
  const held = cursor + 2;
  const left = held + slots;
  const users = left + slots;
  const guessed = users + slots;
  return { slotOf, need, list, cursor, held, left, users, guessed, count: guessed + slots };
}

/** Bytes that a token reads if every expert is used equally often. */
export function demandTokenBytes({ weights }: DemandProgram): number {
  return weights.reduce(
    (sum, { experts, used, slots, expertBytes }) =>
      sum + used * expertBytes * (1 - slots / experts),
    0,
  );
}
