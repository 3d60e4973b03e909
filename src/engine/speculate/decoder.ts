// Decodes one generation: computes the tokens of its text that are not computed yet, and after them tokens that a drafter proposes
// (drafter.ts), in one batch. Sampling continues from the logits of each; a drafted token is accepted if it is the one that was
// sampled.
//
//   next [t]  drafted [d1 d2 d3]   -> one batch -> logits after t, d1, d2, d3
//   sample after t: d1, right      -> nothing to compute, sample after d1
//   sample after d1: x, not d2     -> d2 and d3 are undone, next is [x]
//
// The sampler, the grammar, stops and limits see one token after the other, each with the logits, the random number and the past that
// it would have had alone. So the text is the same as without drafts: for greedy sampling, and for any other with the same seed.
//
// State that cannot go back by single tokens (recurrent) goes back to before the batch. The accepted tokens are computed again in
// front of the next batch, which therefore has no drafts: no batch is added, and batches do not grow.

import type { SpeculationReport } from "../../api/api.ts";
import type { BestLogits } from "../../backends/backend.ts";
import { ADJUSTED_ROOM, AdjustedList } from "../../graph/adjusted-list.ts";
import type { NextDraw } from "../../graph/batch.ts";
import type { AdvanceOptions, Engine, ReadBest, ReadOutput, RunningSequence } from "../engine.ts";
import { bestDepth, type DepthFacts } from "./depth.ts";
import type { Drafter } from "./drafter.ts";
import { mostDrafted } from "./options.ts";

export interface DecoderParts {
  readonly engine: Engine;
  readonly drafters: readonly Drafter[];
  /** The most and the fewest tokens of a draft. */
  readonly maxDepth: number;
  readonly minDepth: number;
  /** A draft ends before a token that is right less probably than this. */
  readonly minChance: number;
  /** Whether drafts are made although they may not pay. */
  readonly always: boolean;
  /** The number of first tokens of a draft that may become part of the text, one after the other, of `count`. */
  readonly allowed: (draft: Int32Array, count: number) => number;
  /** See AdvanceOptions. */
  stop(): boolean;
  readonly meanwhile: (() => void) | undefined;
  /** The number of best logits that are enough to sample from; 0: all are needed. */
  readonly best: number;
  /** Whether a mask looks at all logits, of the next token or of one after this many drafted ones. */
  readonly isMasked: (drafted: number) => boolean;
  /** Lists the tokens that the sampler adjusts, as Sampler.listAdjusted(); undefined: it adjusts none. */
  readonly adjusted:
    | ((target: AdjustedList, draft: Int32Array, drafted: number) => boolean)
    | undefined;
  /** The way the next tokens will be chosen; undefined: it has no simple form. */
  readonly draw: NextDraw | undefined;
}

/** The least gain that a draft must promise: acceptance and costs are estimates. */
const LEAST_GAIN = 1.03;

/** Counts of the computed tokens and batches. */
interface DecoderCounts {
  /** All batches, and all tokens in them. */
  batches: number;
  tokens: number;
  drafted: number;
  accepted: number;
  /** Batches with drafted tokens. */
  draftedBatches: number;
  /** The measured time of the batches that ran, and of the same tokens one by one. */
  spentMs: number;
  plainMs: number;
}

export class Decoder {
  readonly counts: DecoderCounts = {
    batches: 0,
    tokens: 0,
    drafted: 0,
    accepted: 0,
    draftedBatches: 0,
    spentMs: 0,
    plainMs: 0,
  };
  readonly #parts: DecoderParts;
  #running: RunningSequence;
  /** Tokens of the text that are not computed yet: the last one, and earlier ones that the grammar forced. */
  readonly #next: number[] = [];
  /** Logits after the last of them, and after each drafted token: made when first read. The best logits need only the first. */
  readonly #rows: Float32Array[]; // [depth + 1][vocab]
  readonly #draft: Int32Array; // [depth]
  /** The best logits of each row, instead of all of them; undefined: all are in #rows. */
  readonly #bests: BestLogits[] = []; // [depth + 1]
  readonly #hasBest: boolean[] = []; // [depth + 1]
  /** So many of them were asked for; 0: whole rows were. */
  #asked = 0;
  /** The tokens that the sampler adjusts next; undefined: none. */
  readonly #adjusted: AdjustedList | undefined;
  /** Drafters that need hidden states. */
  readonly #readers: readonly Drafter[];
  /** Drafted tokens of the last batch, and the number of accepted ones. */
  #drafted = 0;
  #accepted = 0;
  #drafter: Drafter | undefined;
  /** The drafter's time for computing tokens of the text before it drafted, in milliseconds. */
  #catchUpMs = 0;
  /** Whether state could not go back as far as it should: see above. */
  #isBehind = false;
  /** The row of #next with drafts at which logits begin. */
  #firstRow = 0;
  readonly #advance: AdvanceOptions & { drafted: number };
  readonly #afterPrompt: Pick<AdvanceOptions, "onOutput" | "best" | "adjusted">;
  /** See AdvanceOptions.next; undefined: hidden states are read, or the draw is not known. */
  readonly #following: { readonly draw: NextDraw; follows: number } | undefined;
  /** The facts that decide the depth of the next draft, for the current drafter. */
  readonly #facts: { -readonly [name in keyof DepthFacts]-?: DepthFacts[name] };
  #askedDrafter: Drafter | undefined;

  constructor(parts: DecoderParts, running: RunningSequence) {
    this.#parts = parts;
    this.#running = running;
    this.#rows = [new Float32Array(parts.engine.vocabSize)];
    this.#draft = new Int32Array(parts.maxDepth);
    this.#readers = parts.drafters.filter(({ computed }) => computed !== undefined);
    this.#adjusted = parts.adjusted && new AdjustedList();
    this.#advance = {
      wants: (index) => index >= this.#firstRow,
      onOutput: (index, read, best) => this.#read(index - this.#firstRow, read, best),
      adjusted: this.#adjusted,
      stop: parts.stop,
      phase: "generation",
      drafted: 0,
      ...(parts.meanwhile && { meanwhile: parts.meanwhile }),
    };
    this.#afterPrompt = {
      onOutput: (_, read, best) => this.#readLogits(0, read, best),
      adjusted: this.#adjusted,
    };
    if (parts.draw && parts.best > 0 && this.#readers.length === 0) {
      this.#following = { draw: parts.draw, follows: 0 };
      this.#advance.next = this.#following;
    }
    const { engine } = parts;
    this.#facts = {
      batchMs: (tokens) => engine.costs.msOf(this.#neighbours + this.#next.length - 1 + tokens),
      draftMs: (tokens) => this.#askedDrafter!.draftMs(tokens),
      acceptance: (index) => this.#chance(this.#askedDrafter!, index),
      most: 0,
      least: parts.minDepth,
      others: 0,
      goesBack: false,
    };
  }

  /** Reads the logits after a prompt that the sampler knows, to sample the first token from. */
  get afterPrompt(): Pick<AdvanceOptions, "onOutput" | "best" | "adjusted"> {
    this.#ask(this.#afterPrompt, 0);
    return this.#afterPrompt;
  }

  /** The best logits are asked for, unless a mask applies or the sampler adjusts too many tokens this time. */
  #ask(options: Pick<AdvanceOptions, "best">, drafted: number): void {
    const { best, adjusted, isMasked } = this.#parts;
    const isEnough = best > 0 && !isMasked(drafted);
    const isListed = isEnough && (adjusted?.(this.#adjusted!, this.#draft, drafted) ?? true);
    this.#asked = isListed ? best : 0;
    options.best = this.#asked;
  }

  #readLogits(row: number, read: ReadOutput, readBest: ReadBest): Promise<void> | void {
    this.#hasBest[row] = this.#asked > 0 && readBest(this.#bestOf(row));
    return this.#hasBest[row] ? undefined : read("logits", this.#rowOf(row));
  }

  #read(row: number, read: ReadOutput, readBest: ReadBest): Promise<void> | void {
    const logits = this.#readLogits(row, read, readBest);
    const readers = this.#readers;
    if (readers.length === 0) return logits;
    return Promise.all([logits, ...readers.map((drafter) => drafter.computed!(row, read))]).then(
      () => {},
    );
  }

  #rowOf(row: number): Float32Array {
    this.#rows[row] ??= new Float32Array(this.#parts.engine.vocabSize);
    return this.#rows[row];
  }

  #bestOf(row: number): BestLogits {
    const { best } = this.#parts;
    this.#bests[row] ??= {
      ids: new Int32Array(best),
      logits: new Float32Array(best),
      adjusted: this.#adjusted && {
        ids: new Int32Array(ADJUSTED_ROOM),
        logits: new Float32Array(ADJUSTED_ROOM),
        count: 0,
      },
    };
    return this.#bests[row];
  }

  /** The best of the logits to sample from, where the backend found them; undefined: logits() has all. */
  get best(): BestLogits | undefined {
    return this.#hasBest[this.#accepted] ? this.#bests[this.#accepted] : undefined;
  }

  /** The logits to sample from; they may be overwritten. If there are best(), they are only memory for them. */
  get logits(): Float32Array {
    return this.#hasBest[this.#accepted] ? this.#rows[0]! : this.#rows[this.#accepted]!;
  }

  /** Tokens of the text, computed or not. */
  get length(): number {
    const { length } = this.#running.sequence;
    return length - (this.#drafted - this.#accepted) + this.#next.length;
  }

  /** Whether the logits of the next token are there. */
  get isAhead(): boolean {
    return this.#next.length === 0;
  }

  /** The text was computed again, in another sequence; logits() is after its last token. */
  restart(running: RunningSequence): void {
    this.#running = running;
    this.#next.length = 0;
    this.#drafted = 0;
    this.#accepted = 0;
    this.#isBehind = false;
    this.#hasBest.length = 0;
  }

  /** A token was sampled from logits(), and is part of the text. */
  push(id: number): void {
    for (const drafter of this.#parts.drafters) drafter.accept(id);
    if (this.#accepted < this.#drafted) {
      const { costs } = this.#parts.engine;
      if (this.#draft[this.#accepted] === id) {
        this.#accepted++;
        this.counts.accepted++;
        this.counts.plainMs += costs.msOf(this.#neighbours + 1);
        if (this.#accepted === this.#drafted) this.#verified();
        return;
      }
      this.settle();
    }
    this.#next.push(id);
  }

  /** Undoes drafted tokens that are not part of the text. */
  settle(): void {
    if (this.#accepted === this.#drafted) return;
    const { engine } = this.#parts;
    const { sequence } = this.#running;
    const length = sequence.length - (this.#drafted - this.#accepted);
    const back = engine.settle(this.#running, length);
    for (let i = back; i < length; i++) this.#next.push(sequence.token(i));
    this.#isBehind = back < length;
    this.#verified();
    this.#drafted = 0;
    this.#accepted = 0;
  }

  /** Computes all that is not computed yet, and up to `room` drafted tokens behind it. */
  async advance(room: number): Promise<void> {
    const { engine } = this.#parts;
    const next = this.#next;
    const known = next.length;
    const others = this.#neighbours + known;
    const most = Math.min(room, this.#parts.maxDepth, mostDrafted(engine, others));
    const chosen = this.#choose(most);
    const drafted = typeof chosen === "number" ? chosen : await chosen;
    for (let i = 0; i < drafted; i++) next.push(this.#draft[i]!);
    this.#firstRow = known - 1;
    this.#advance.drafted = drafted;
    this.#ask(this.#advance, drafted);
    if (this.#following) this.#following.follows = drafted > 0 ? 0 : room;
    this.#drafted = 0;
    this.#accepted = 0;
    this.#isBehind = false;
    try {
      for (let done = 0; done < known; ) {
        if (drafted > 0) this.#running.sequence.hold();
        done += await engine.advance(this.#running, next, done, this.#advance);
        this.#drafted = Math.max(0, done - known);
        this.counts.batches++;
      }
    } finally {
      next.length = 0;
    }
    this.#count(known);
    // Drafts that found no room in the batch.
    if (drafted > 0 && this.#drafted === 0) this.#running.sequence.letGo();
  }

  get #neighbours(): number {
    return this.#parts.engine.neighbours(this.#running);
  }

  #count(known: number): void {
    const { counts } = this;
    const { costs } = this.#parts.engine;
    const neighbours = this.#neighbours;
    counts.tokens += known + this.#drafted;
    counts.drafted += this.#drafted;
    if (this.#drafted > 0) counts.draftedBatches++;
    counts.spentMs += costs.msOf(neighbours + known + this.#drafted);
    if (this.#drafter) counts.spentMs += this.#catchUpMs + this.#drafter.draftMs(this.#drafted);
    counts.plainMs += costs.msOf(neighbours + 1);
  }

  /** For the timings: empty if nothing was drafted. */
  report(): { speculation?: SpeculationReport } {
    const { drafted, accepted, draftedBatches, batches, spentMs, plainMs } = this.counts;
    if (drafted === 0) return {};
    const gain = spentMs > 0 ? plainMs / spentMs : 1;
    const savedMs = plainMs - spentMs;
    return { speculation: { drafted, accepted, draftedBatches, batches, gain, savedMs } };
  }

  /** The drafter and the depth that give the most tokens per millisecond; writes the draft and returns its length. */
  #choose(most: number): number | Promise<number> {
    this.#drafter = undefined;
    if (most < 1 || this.#isBehind) return 0;
    const { drafters, engine, always } = this.#parts;
    const facts = this.#facts;
    facts.most = most;
    facts.others = this.#neighbours;
    facts.goesBack = this.#running.sequence.goesBackByBatches;
    let depth = 0;
    let best = LEAST_GAIN;
    for (const drafter of drafters) {
      if (drafter.chance(0) === 0) continue;
      if (always) {
        this.#drafter = drafter;
        depth = most;
        break;
      }
      if (!engine.costs.isKnown(this.#neighbours + this.#next.length)) return 0;
      this.#askedDrafter = drafter;
      const found = bestDepth(facts);
      if (found.gain <= best) continue;
      ({ depth, gain: best } = found);
      this.#drafter = drafter;
    }
    if (!this.#drafter) return 0;
    this.#catchUpMs = this.#drafter.draftMs(0);
    const found = this.#drafter.draft(depth, this.#draft);
    return typeof found === "number"
      ? this.#usable(found)
      : found.then((count) => this.#usable(count));
  }

  #chance(drafter: Drafter, index: number): number {
    const chance = drafter.chance(index);
    return chance < this.#parts.minChance && !drafter.endsItself ? 0 : chance;
  }

  /**
   * Tokens beyond the vocabulary (of another tokenizer) end a draft, and so do tokens that cannot become part of the text. The rest of
   * the draft must pay as well; the cost of drafting it is spent.
   */
  #usable(count: number): number {
    const { engine, always, allowed } = this.#parts;
    let usable = 0;
    while (usable < count && isToken(this.#draft[usable]!, engine.vocabSize)) usable++;
    usable = allowed(this.#draft, usable);
    if (usable === count || usable === 0 || always) return usable;
    this.#facts.most = usable;
    this.#askedDrafter = this.#drafter;
    const { depth, gain } = bestDepth(this.#facts);
    return gain > LEAST_GAIN ? depth : 0;
  }

  #verified(): void {
    if (this.#accepted === this.#drafted)
      this.#parts.engine.settle(this.#running, this.#running.sequence.length);
    this.#drafter?.verified(this.#drafted, this.#accepted);
    this.#drafter = undefined;
  }

  dispose(): void {
    for (const drafter of this.#parts.drafters) drafter.dispose();
  }
}

function isToken(id: number, vocabSize: number): boolean {
  return id >= 0 && id < vocabSize;
}
