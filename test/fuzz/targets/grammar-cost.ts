// Grammars by what they cost: the hostile ones, cut, doubled and mixed, in search of work that is not counted or not paused.
//
// A step is meant to be about a microsecond. A finding is an error that is not ours, a slice that goes on far beyond its end, or
// more seconds than steps explain (`limitMs`). The outcome is the size of the cost, so that dearer inputs of a kind join the corpus.

import type { GrammarSource } from "../../../src/api/grammar-source.ts";
import { GrammarError } from "../../../src/grammar/errors.ts";
import { GrammarCompiler } from "../../../src/grammar/grammar.ts";
import { PausedError } from "../../../src/grammar/meter.ts";
import { seededRandom } from "../../formats/mutate.ts";
import { tokenizer } from "../../grammar/vocabulary.ts";
import { hostileGrammars } from "../../support/hostile-grammars.ts";
import { applyJsonEdits, randomJsonEdit } from "../json-edits.ts";
import type { FuzzTarget, Json } from "../target.ts";

const BUDGET = { steps: 100_000, bytes: 64 << 20 };
const SLICE = 2000;
/** As in test/grammar/cost.test.ts. */
const PIECE = 16_000;
const MOST_SLICES = 20;
/** Characters of a grammar that is kept as an input. */
const MOST_KEPT = 4000;

/** Shorter pieces of a hostile source, in an order of their own, so that an input stays readable. */
function pieceOf(seed: number): Json {
  const random = seededRandom(seed);
  const source = random.pick([...hostileGrammars]).source();
  if ("schema" in source) {
    const text = JSON.stringify(source.schema);
    return text.length > MOST_KEPT ? { schema: {} } : (source as unknown as Json);
  }
  const [kind, text] = "gbnf" in source ? ["gbnf", source.gbnf] : ["regex", "a{1,9}"];
  const lines = ("regex" in source ? source.regex : text).slice(0, MOST_KEPT).split("\n");
  for (let edits = random.below(4); edits > 0; edits--) {
    const at = random.below(lines.length);
    const repeats = ["*", "+", "?", "{0,9999}", "{3,}"];
    const changes = [
      (line: string) => `${line} | ${random.pick(lines)}`.slice(0, MOST_KEPT),
      (line: string) => line.replace(/::= (.*)/, `::= ($1)${random.pick(repeats)}`),
      (line: string) => line.replace(/r(\d+)$/, `r${random.below(50)}?`),
      (line: string) => line.slice(0, random.below(line.length + 1)),
    ];
    lines[at] = random.pick(changes)(lines[at]!);
  }
  return { ["regex" in source ? "regex" : kind!]: lines.join("\n") };
}

/** False: it was paused. */
function inSlice(work: () => unknown): boolean {
  try {
    work();
    return true;
  } catch (error) {
    if (error instanceof PausedError) return false;
    throw error;
  }
}

export const target: FuzzTarget = {
  name: "grammar-cost",
  describe: "grammars whose work is not counted: hostile ones, cut and mixed, by steps",
  make(seed, from) {
    if (from === undefined) return pieceOf(seed);
    return applyJsonEdits(from, [randomJsonEdit(from, seededRandom(seed))]);
  },
  run(_seed, value) {
    const compiler = new GrammarCompiler(tokenizer);
    const cost = (): string => `10^${Math.round(2 * Math.log10(1 + compiler.steps)) / 2} steps`;
    try {
      const state = compiler.compile(value as unknown as GrammarSource, BUDGET).start();
      const bits = new Uint32Array(Math.ceil(tokenizer.vocabSize / 32));
      let slices = 0;
      const finish = (work: () => unknown): void => {
        for (; slices < MOST_SLICES; slices++) {
          const before = compiler.steps;
          const isDone = inSlice(work);
          const over = compiler.steps - before - SLICE;
          if (over > PIECE) throw new Error(`a slice took ${over} steps too many`);
          if (isDone) return;
        }
      };
      while (slices++ < MOST_SLICES) {
        finish(() => state.mask(bits, SLICE));
        const word = bits.findIndex((one) => one !== 0);
        if (word < 0) break;
        const id = 32 * word + 31 - Math.clz32(bits[word]!);
        let isTaken = false;
        finish(() => {
          isTaken = state.accept(id, SLICE);
        });
        if (!isTaken) break;
      }
      return cost();
    } catch (error) {
      if (!(error instanceof GrammarError)) throw error;
      return `${error.constructor.name} after ${cost()}`;
    }
  },
};
