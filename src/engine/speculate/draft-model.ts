// A draft model: a second, small model in the engine's thread, with weights and KV cache of its own, that drafts for the target.
// They alternate: while one computes, the other's threads sleep. model-drafter.ts is one generation's part of it.

import { plural } from "../../base/plural.ts";
import type { Engine } from "../engine.ts";
import { checkLogits } from "../prompt-checks.ts";
import { BatchCosts } from "./costs.ts";
import type { DraftedFor, Drafter, DrafterKind } from "./drafter.ts";
import { type DraftSide, ModelDrafter } from "./model-drafter.ts";
import { mapVocabulary, type VocabMap } from "./vocab-map.ts";

export interface DraftModelOptions {
  /** Whether a draft ends where the draft model's own probabilities say that more do not pay. Default: true. */
  readonly endsEarly?: boolean;
}

/** The acceptance assumed before any verification, and its weight in verified tokens. */
const PRIOR = 0.7;
const PRIOR_WEIGHT = 1;
/** The factor on earlier counts with every verified draft, and with every new generation. */
const DECAY = 0.95;

export class DraftModel implements DrafterKind, DraftSide {
  readonly name = "draft-model";
  readonly target: Engine;
  readonly engine: Engine;
  readonly map: VocabMap;
  /** The times of the draft model's batches. */
  readonly costs: BatchCosts = new BatchCosts();
  readonly endsEarly: boolean;
  /** Whether threads other than the leader, which computes for both models, take part. */
  readonly #sharesCores: boolean;
  #drafters = 0;
  #tried = 0;
  #right = 0;

  /** Throws where the two vocabularies do not fit each other. */
  constructor(target: Engine, engine: Engine, { endsEarly = true }: DraftModelOptions = {}) {
    checkLogits(engine, "a draft model");
    this.target = target;
    this.engine = engine;
    this.map = mapVocabulary(vocabularyOf(target), vocabularyOf(engine));
    this.endsEarly = endsEarly;
    this.#sharesCores = engine.info.backend.threads > 1;
  }

  /** For reports. */
  get note(): string {
    const { name, weightBytes, backend } = this.engine.info;
    const threads = plural(backend.threads, "thread");
    return `draft model: ${name}, ${(weightBytes / 1e6).toFixed(1)} MB, ${threads}; ${this.map.note}`;
  }

  start(prompt: readonly number[], mostTokens: number, generation: DraftedFor = {}): Drafter {
    this.#forget();
    const drafter = new ModelDrafter(this, mostTokens, generation);
    for (const token of prompt) drafter.accept(token);
    return drafter;
  }

  /** The probability that a drafted token is right if all before it are. */
  get chance(): number {
    return (this.#right + PRIOR * PRIOR_WEIGHT) / (this.#tried + PRIOR_WEIGHT);
  }

  /** The acceptance of all generations together: the next one begins with the acceptance of this one, and slowly tries again. */
  verified(drafted: number, accepted: number): void {
    this.#forget();
    this.#right += accepted;
    this.#tried += Math.min(drafted, accepted + 1);
  }

  #forget(): void {
    this.#right *= DECAY;
    this.#tried *= DECAY;
  }

  /** A drafter begins (1) or ends (-1): while there are some, the threads of both models leave the cores to each other. */
  count(change: 1 | -1): void {
    const before = this.#drafters;
    this.#drafters += change;
    if (this.#sharesCores && (before === 0 || this.#drafters === 0)) {
      this.target.rest(this.#drafters > 0);
    }
  }

  /** Before a batch of the draft model: whether another follows at once. */
  turn(isMore: boolean): void {
    if (this.#sharesCores) this.engine.rest(!isMore);
  }

  async forgetConversation(id: string): Promise<void> {
    await this.engine.forgetConversation(id);
  }

  async clearCache(): Promise<void> {
    await this.engine.clearCache();
  }

  dispose(): void {
    this.engine.dispose();
  }

  async ended(): Promise<void> {
    await this.engine.ended();
  }
}

function vocabularyOf({ info, tokenizer }: Engine) {
  return { name: info.name, tokenizer };
}
