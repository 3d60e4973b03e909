// What hostile grammars cost, in steps: they are refused or read within their budget, and masks come in slices that are short.

import { describe, expect, test } from "vitest";
import type { GrammarSource } from "../../src/api/grammar-source.ts";
import { GrammarError } from "../../src/grammar/errors.ts";
import { GrammarCompiler } from "../../src/grammar/grammar.ts";
import { PausedError } from "../../src/grammar/meter.ts";
import type { GrammarState } from "../../src/grammar/state.ts";
import { hostileGrammars } from "../support/hostile-grammars.ts";
import { compile, compiler } from "./support.ts";
import { END, tokenizer } from "./vocabulary.ts";

/** A small part of what a grammar may take, so that the test is quick. */
const BUDGET = { steps: 20_000, bytes: 64 << 20 };
const SLICE = 2000;
/** The largest piece of work that is not paused: closures, joins of walks. */
const PIECE = 16_000;
const MOST_SLICES = 8;

describe("the cost of hostile grammars", () => {
  test.each(hostileGrammars.map((hostile) => [hostile.name, hostile] as const))(
    "%s",
    (_, hostile) => {
      const compiler = new GrammarCompiler(tokenizer);
      compiler.compile({ choices: ["a"] });
      const before = compiler.steps;
      let state: GrammarState;
      try {
        state = compiler.compile(hostile.source(), BUDGET).start();
      } catch (error) {
        expect(error).toBeInstanceOf(GrammarError);
        expect(compiler.steps - before).toBeLessThanOrEqual(BUDGET.steps);
        return;
      }
      expect(compiler.steps - before).toBeLessThanOrEqual(BUDGET.steps);
      expect(longestSlice(state, compiler)).toBeLessThan(SLICE + PIECE);
    },
  );

  test("a grammar that is too dear is refused with its rule", () => {
    const rules = Array.from({ length: 3000 }, (_, i) => `r${i} ::= r${i + 1}? r${i + 2}? "a"?`);
    const gbnf = ["root ::= r0", ...rules, 'r3000 ::= "b"', 'r3001 ::= "c"'].join("\n");
    const state = compile({ gbnf }).start();
    expect(() => state.accept(0x61 + 2)).toThrow(/its rule r(oot|\d+) /);
    const refused = (source: GrammarSource) => expect(() => compiler.compile(source, BUDGET));
    refused({ gbnf: `root ::= x\nx ::= ${"[a-z]".repeat(30_000)}` }).toThrow("its rule x takes");
    const oneOf = Array.from({ length: 1000 }, (_, i) => ({ pattern: `^a.*${i}$` }));
    const schema = { properties: { name: { oneOf } } };
    refused({ schema }).toThrow("its rule #/properties/name/oneOf/");
  });
});

/** The steps of the longest slice, while a text is written with the first token that is allowed. */
function longestSlice(state: GrammarState, compiler: GrammarCompiler): number {
  const bits = new Uint32Array(Math.ceil(tokenizer.vocabSize / 32));
  let longest = 0;
  let slices = 0;
  /** False: it was refused, or has had enough slices. */
  const finish = (work: () => void): boolean => {
    while (slices++ < MOST_SLICES) {
      const before = compiler.steps;
      try {
        work();
        return true;
      } catch (error) {
        if (error instanceof GrammarError) return false;
        expect(error).toBeInstanceOf(PausedError);
      } finally {
        longest = Math.max(longest, compiler.steps - before);
      }
    }
    return false;
  };
  for (let length = 0; length < 8; length++) {
    if (!finish(() => state.mask(bits, SLICE))) break;
    const token = bits.findIndex((word) => word !== 0) * 32;
    const id = token + Math.log2(bits[token / 32]! & -bits[token / 32]!);
    if (id === END || !finish(() => state.accept(id, SLICE))) break;
  }
  return longest;
}
