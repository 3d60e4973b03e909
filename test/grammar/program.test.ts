// Grammars that one compiler compiles and another one uses have the same masks.

import { describe, expect, test } from "vitest";
import type { GrammarSource } from "../../src/api/grammar-source.ts";
import { type Grammar, GrammarCompiler } from "../../src/grammar/grammar.ts";
import { compileProgram } from "../../src/grammar/program.ts";
import { compile } from "./support.ts";
import { END, tokenizer } from "./vocabulary.ts";

const sources: readonly (readonly [string, GrammarSource])[] = [
  [
    "rules and counts",
    { gbnf: 'root ::= ("a" x?){2,7} | [a-z]{3,} "!"\nx ::= "b" root? "c" | ""' },
  ],
  ["tokens", { gbnf: 'root ::= <control> "a" !<[3]>' }],
  ["a regular expression", { regex: "(?=.*a)[a-c]{2,9}(?!b)\\p{L}*" }],
  [
    "a schema",
    {
      schema: {
        type: "object",
        properties: {
          name: { type: "string", maxLength: 9, pattern: "^[a-z]" },
          n: { type: "integer", minimum: 3, multipleOf: 7 },
          tags: { type: "array", items: { enum: ["a", "ab", null] }, minItems: 2, maxItems: 9 },
        },
        required: ["name"],
        additionalProperties: { not: { type: "string" } },
      },
    },
  ],
  ["tags", { tags: [{ begin: "<tool>", content: { schema: {} }, end: "</tool>" }] }],
];

describe("programs", () => {
  test.each(sources)("%s", (_, source) => {
    const sent = structuredClone(compileProgram(source, tokenizer, {}));
    const other = new GrammarCompiler(tokenizer);
    other.compile({ regex: "[b-x]+|other" }); // its numbers differ from those of the sender
    const loading = other.load(sent);
    let step = loading.next();
    while (!step.done) step = loading.next();
    expect(masks(step.value)).toEqual(masks(compile(source)));
    expect(step.value.notes).toEqual(compile(source).notes);
  });

  test("are taken over in pieces", () => {
    const choices = Array.from({ length: 3000 }, (_, i) => `choice ${i * 7919}`);
    const loading = new GrammarCompiler(tokenizer).load(compileProgram({ choices }, tokenizer, {}));
    let pieces = 0;
    while (!loading.next().done) pieces++;
    expect(pieces).toBeGreaterThan(3);
  });
});

/** The masks along a text. */
function masks(grammar: Grammar): readonly (readonly number[])[] {
  const state = grammar.start();
  const found: number[][] = [];
  let random = 7;
  for (let length = 0; length < 20; length++) {
    const bits = new Uint32Array(grammar.maskWords);
    state.mask(bits);
    found.push([...bits]);
    const allowed = Array.from({ length: tokenizer.vocabSize }, (_, id) => id).filter(
      (id) => id !== END && ((bits[id >> 5]! >>> (id & 31)) & 1) === 1,
    );
    if (allowed.length === 0) break;
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0;
    state.accept(allowed[(random >>> 8) % allowed.length]!);
  }
  return found;
}
