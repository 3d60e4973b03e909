// Work on grammars that is done in pieces, between the batches of others: what was found before a pause is not looked for again, and no
// piece is long. Counted in steps, tokens and comparisons.
// Held against: the same work without a pause.

import { describe, expect, test, vi } from "vitest";
import type { GrammarSource } from "../../src/api/grammar-source.ts";
import { GrammarTurns } from "../../src/engine/grammar-turns.ts";
import { Automaton } from "../../src/grammar/automaton.ts";
import { GrammarCompiler } from "../../src/grammar/grammar.ts";
import { PausedError } from "../../src/grammar/meter.ts";
import { ExpressionTable, KIND } from "../../src/grammar/regex/expression-table.ts";
import type { GrammarState } from "../../src/grammar/state.ts";
import { buildTrie } from "../../src/grammar/trie-build.ts";
import { tokenizer } from "./vocabulary.ts";

const times = (count: number, of: (i: number) => string): string[] =>
  Array.from({ length: count }, (_, i) => of(i));

const deep: readonly (readonly [string, GrammarSource])[] = [
  [
    "a chain of rules",
    {
      gbnf: ["root ::= r0", ...times(2000, (i) => `r${i} ::= r${i + 1} "b"`), 'r2000 ::= "a"'].join(
        "\n",
      ),
    },
  ],
  [
    "many rules at one place",
    {
      gbnf: [
        `root ::= (${times(100, (i) => `r${i}`).join(" | ")})+`,
        ...times(100, (i) => `r${i} ::= [a-z]+ "${i}" root?`),
      ].join("\n"),
    },
  ],
];

describe("paused work", () => {
  test.each(deep)("goes on where it stopped: %s", (_, source) => {
    const whole = written(source, Number.POSITIVE_INFINITY);
    const sliced = written(source, 300);
    expect(sliced.masks).toEqual(whole.masks);
    expect(sliced.slices).toBeGreaterThan(10);
    // What is interrupted is begun again, but not what it needed.
    expect(sliced.steps).toBeLessThan(1.5 * whole.steps);
  });

  test("is paused while a deep chain of rules ends, too", () => {
    const next = vi.spyOn(Automaton.prototype, "next");
    const asked: number[] = [];
    written(deep[0]![1], 300, () => asked.push(next.mock.calls.length));
    next.mockRestore();
    const longest = Math.max(...asked.map((count, i) => count - (asked[i - 1] ?? 0)));
    expect(longest).toBeLessThan(asked.at(-1)! / 10);
  });

  test("has short slices for as long as it gets further", async () => {
    const turns = new GrammarTurns();
    const control = { aborted: false, yieldThread: () => Promise.resolve() };
    const slicesOf = async (gotFurther: boolean): Promise<number[]> => {
      const slices: number[] = [];
      await turns.finish((slice) => {
        if (slices.push(slice) < 12) throw new PausedError(gotFurther);
      }, control);
      return slices;
    };
    expect(new Set(await slicesOf(true)).size).toBe(1);
    const longer = await slicesOf(false);
    expect(longer.at(-1)).toBeGreaterThan(8 * longer[0]!);
  });
});

test("the trie of a vocabulary is built in pieces", () => {
  let asked = 0;
  const many = {
    vocabSize: 20_000,
    isEndOfGeneration: (id: number) => id === 0,
    tokenBytes: (id: number) => {
      asked++;
      return Uint8Array.from(`${id * 7919}`, (letter) => letter.charCodeAt(0));
    },
  };
  const building = buildTrie(many as never);
  let pieces = 0;
  let step = building.next();
  for (let before = 0; !step.done; step = building.next()) {
    expect(asked - before).toBeLessThanOrEqual(1000);
    before = asked;
    pieces++;
  }
  expect(pieces).toBeGreaterThan(40); // sorted and laid flat in pieces, too
  expect(step.value.tokens.length).toBe(19_999);
});

test("repetitions without an upper bound are found without looking at the others", () => {
  const table = new ExpressionTable();
  let looks = 0;
  const kind = new Proxy(table.kind, {
    get: (target, name) => {
      if (typeof name === "string" && /^\d+$/.test(name)) looks++;
      return Reflect.get(target, name) as unknown;
    },
  });
  Object.defineProperty(table, "kind", { value: kind });
  const add = (low: number): void => {
    const node = [KIND.repeat, 5, low, Number.POSITIVE_INFINITY, undefined] as const;
    if (table.find(...node) < 0) table.add(...node, false, false);
  };
  const count = 1000;
  for (let low = 0; low < count; low++) add(low);
  for (let low = 0; low < count; low++) add(low);
  expect(table.kind.length).toBe(count);
  expect(looks).toBeLessThan(3 * count);
});

/** The masks along a text of first tokens, computed in slices of so many steps. */
function written(
  source: GrammarSource,
  slice: number,
  afterSlice = () => {},
): { masks: number[][]; slices: number; steps: number } {
  const compiler = new GrammarCompiler(tokenizer);
  const state: GrammarState = compiler.compile(source).start();
  const before = compiler.steps;
  const bits = new Uint32Array(Math.ceil(tokenizer.vocabSize / 32));
  const masks: number[][] = [];
  let slices = 0;
  const finish = (work: () => void): void => {
    for (;;) {
      slices++;
      try {
        work();
        return;
      } catch (error) {
        if (!(error instanceof PausedError)) throw error;
      } finally {
        afterSlice();
      }
    }
  };
  for (let length = 0; length < 2; length++) {
    finish(() => state.mask(bits, slice));
    masks.push([...bits]);
    const word = bits.findIndex((one) => one !== 0);
    const id = 32 * word + 31 - Math.clz32(bits[word]! & -bits[word]!);
    finish(() => state.accept(id, slice));
  }
  return { masks, slices, steps: compiler.steps - before };
}
