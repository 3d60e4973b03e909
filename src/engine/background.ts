// Background work: generations without a waiting user (the lines of batch files). They share the engine with foreground generations and get
// the capacity that those leave:
//   - no batch holds tokens of both while a foreground prompt is computed: its first token must not wait for them;
//   - beside foreground tokens that are decoded, background tokens join up to a small slowdown of those batches (BackgroundShare);
//   - a batch of background tokens alone starts only while there is no foreground work, and is cancelled when some arrives
//     (Scheduler); its tokens are computed again later;
//   - a foreground generation that finds no room in the KV cache gets the room of background ones (state/admission.ts), which continue
//     when there is room again.
// A text does not depend on any of this: every token is computed with the bits that it would have alone.

import type { Priority } from "../api/api.ts";
import { OptionError } from "../base/errors.ts";
import type { BatchLine } from "./batch-line.ts";

/** A running background generation. */
export interface BackgroundPlace {
  /** Whether it can give its room to others in the meantime, and continue later. */
  readonly mayYield: boolean;
  /** Others need its room: its next batch is refused with a YieldError. */
  mustYield: boolean;
}

/** The generation must give back its room; it can be computed again. */
export class YieldError extends Error {
  override readonly name = "YieldError";

  constructor() {
    super("a background generation gives its room to others");
  }
}

/** The average slowdown of foreground batches that background tokens in them may cause: a tenth. */
const SLOWDOWN = 0.1;
/** The most slowdown of a single batch: if even one more token takes long, it joins only some of the batches. */
const MOST_SLOWDOWN = 1;

/** The time of batches with foreground tokens, by their total number of tokens. */
export type SharedCosts = Pick<BatchLine, "msOf" | "note">;

/** Decides how many background tokens may join a batch of foreground tokens. */
export class BackgroundShare {
  readonly #costs: SharedCosts | undefined;
  /** Milliseconds that foreground batches may lose, saved from batches that lost less. */
  #saved = 0;
  /** The last batch of foreground tokens: how many it had with others, and when it began. */
  #last: { tokens: number; at: number; isFirst: boolean } = { tokens: 0, at: 0, isFirst: true };

  /** `costs`: the times of batches; undefined: more tokens take no longer. */
  constructor(costs: SharedCosts | undefined) {
    this.#costs = costs;
  }

  /** Tokens that may join a batch of `tokens` until it has `most`. Called once for each such batch. */
  room(tokens: number, most: number): number {
    if (!this.#costs) return most - tokens;
    const alone = this.#costs.msOf(tokens);
    this.#saved = Math.min(this.#saved + SLOWDOWN * alone, MOST_SLOWDOWN * alone);
    let all = tokens;
    while (all < most && this.#costs.msOf(all + 1) - alone <= this.#saved) all++;
    return all - tokens;
  }

  /**
   * A batch of this many tokens begins, some of them decoded in the foreground; 0: any other batch. The time of a batch lasts until the
   * next one begins, so it includes the sampling of all its sequences. The first batch after a prompt does more than that, and does not
   * count.
   */
  begins(tokens: number, at: number): void {
    const last = this.#last;
    const follows = tokens > 0 && last.tokens > 0;
    if (follows && !last.isFirst) this.#costs?.note(last.tokens, at - last.at);
    last.isFirst = !follows;
    last.tokens = tokens;
    last.at = at;
  }

  /**
   * A foreground prompt is computed: its answer does not begin with time that others have saved, since its first tokens are waited for
   * most.
   */
  promptComes(): void {
    this.#saved = 0;
  }

  /** `count` tokens joined a batch of `tokens`. */
  joined(tokens: number, count: number): void {
    if (this.#costs) this.#saved -= this.#costs.msOf(tokens + count) - this.#costs.msOf(tokens);
  }
}

/** Whether an option asks for background work. */
export function isBackground(priority: Priority | undefined): boolean {
  if (priority === undefined || priority === "foreground") return false;
  if (priority === "background") return true;
  throw new OptionError("priority", priority, '"foreground" or "background"');
}
