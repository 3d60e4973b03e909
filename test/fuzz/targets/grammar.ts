// Grammars: GBNF, regular expressions, JSON Schemas and tags, made from their own syntax and damaged, then generated from.
// Every mask must allow exactly the tokens that are accepted, and no state may be a dead end.

import type { GrammarSource } from "../../../src/api/grammar-source.ts";
import { GrammarError } from "../../../src/grammar/errors.ts";
import { type Random, seededRandom } from "../../formats/mutate.ts";
import { compiler, END, tokens } from "../../grammar/vocabulary.ts";
import { awkwardJson, awkwardStrings } from "../awkward.ts";
import { applyJsonEdits, randomJsonEdit } from "../json-edits.ts";
import { type FuzzTarget, type Json, refusal } from "../target.ts";

interface Input {
  source: { [kind: string]: Json };
  /** Which tokens are chosen. */
  choices: number;
}

type Rule = (random: Random, depth: number) => string;

const counts = ["*", "+", "?", "{2}", "{0,3}", "{2,}", "{,4}", "{0}", "{3,1}", "{999999999}"];
const classes = [
  "[a-z]",
  "[^x]",
  "[\\s\\S]",
  "\\d",
  "\\w",
  ".",
  "[]",
  "[^]",
  "[z-a]",
  "[\\u{1F600}-\\u{1F64F}é]",
];

const regex: Rule = (random, depth) => {
  const again = (): string => regex(random, depth - 1);
  if (depth <= 0) return random.pick(["a", "b", "0", "é", "\\n", random.pick(classes)]);
  switch (random.below(9)) {
    case 0:
      return `(${again()}|${again()})`;
    case 1:
      return `(?:${again()})${random.pick(counts)}`;
    case 2:
      return again() + random.pick(counts);
    case 3:
      return `^${again()}$`;
    case 4:
      return `(?${random.pick(["=", "!", "<=", "<n>", ""])}${again()})${again()}`;
    case 5:
      return (
        again() +
        random.pick(["\\1", "\\b", "\\p{L}", "\\k<n>", "\\u00zz", "\\", "(", ")", "]", "|"])
      );
    default:
      return again() + again();
  }
};

const gbnf: Rule = (random, depth) => {
  const again = (): string => gbnf(random, depth - 1);
  if (depth <= 0) {
    return random.pick([
      '"a"',
      '"é\\n"',
      "[0-9]",
      "[^\\]]",
      ".",
      "x",
      "y",
      "root",
      '""',
      "<[3]>",
      "!<control>",
    ]);
  }
  switch (random.below(7)) {
    case 0:
      return `(${again()} | ${again()})`;
    case 1:
      return `(${again()})${random.pick(counts)}`;
    case 2:
      return `${again()}\nx ::= ${again()}\ny ::= ${again()} | `;
    case 3:
      return again() + random.pick([" # c\n", '"', "::=", "|", "{", "<[", "\n\n", "\\x4"]);
    default:
      return `${again()} ${again()}`;
  }
};

function schema(random: Random, depth: number): Json {
  const again = (): Json => schema(random, depth - 1);
  const some = (): Json[] => Array.from({ length: 1 + random.below(3) }, again);
  if (depth <= 0) {
    return random.pick<Json>([
      true,
      {},
      { type: "string", maxLength: 3 },
      { type: "integer", minimum: -3, maximum: 120 },
      { type: "number", multipleOf: 0.25 },
      { enum: ["a", 1, null] },
      { $ref: "#" },
      { $ref: "#/$defs/a" },
      { const: { a: [1] } },
    ]);
  }
  const key = random.pick(["a", "b", "name", random.pick(awkwardStrings)]);
  const makers: (() => { [key: string]: Json })[] = [
    () => ({ properties: { [key]: again(), b: again() }, required: [key] }),
    () => ({ type: "object", additionalProperties: again(), maxProperties: random.below(3) }),
    () => ({ patternProperties: { [regex(random, 1)]: again() } }),
    () => ({ propertyNames: again(), minProperties: 1 }),
    () => ({ type: "array", items: again(), minItems: random.below(3) }),
    () => ({ prefixItems: some(), items: again() }),
    () => ({ contains: again(), minContains: random.below(3), maxContains: random.below(4) }),
    () => ({ [random.pick(["anyOf", "allOf", "oneOf"])]: some() }),
    () => ({ not: again() }),
    () => Object.fromEntries(["if", "then", "else"].map((word) => [word, again()])),
    () => ({ type: "string", pattern: regex(random, 2), minLength: random.below(4) }),
    () => ({ type: "string", format: random.pick(["date", "email", "uri", "ipv6", "x"]) }),
    () => ({ unevaluatedProperties: again(), unevaluatedItems: again() }),
    () => ({ dependentSchemas: { a: again() }, dependentRequired: { b: ["a"] } }),
    () => ({ uniqueItems: true, type: ["array", "null"], items: again() }),
    () => ({ $defs: { a: again() }, $dynamicRef: "#a" }),
  ];
  const parts = [random.pick(makers)(), ...(random.below(2) === 0 ? [random.pick(makers)()] : [])];
  return Object.assign({}, ...parts) as Json;
}

function sourceOf(random: Random): { [kind: string]: Json } {
  switch (random.below(6)) {
    case 0:
      return { regex: regex(random, 4) };
    case 1:
      return { gbnf: `root ::= ${gbnf(random, 4)}` };
    case 2:
      return { choices: [random.pick(awkwardStrings), regex(random, 1)] };
    case 3:
      return {
        tags: [{ begin: "<tool>", content: { schema: schema(random, 2) }, end: "</tool>" }],
      };
    default:
      return { schema: schema(random, 3) };
  }
}

/** Generates up to so many tokens, and looks at every mask. */
function generate(source: GrammarSource, choices: number): string {
  const grammar = compiler.compile(source);
  const state = grammar.start();
  const random = seededRandom(choices);
  const bits = new Uint32Array(grammar.maskWords);
  for (let length = 0; length < 24; length++) {
    state.mask(bits);
    const allowed: number[] = [];
    for (let token = 0; token < tokens.length; token++) {
      const isAllowed = ((bits[token >> 5]! >>> (token & 31)) & 1) === 1;
      const isTaken = state.accept(token);
      if (isTaken) state.rollback(1);
      if (isAllowed !== isTaken) throw new Error(`mask and accept differ at token ${token}`);
      if (isAllowed) allowed.push(token);
    }
    if (allowed.length === 0) throw new Error("no token is allowed");
    if (allowed.includes(END) !== state.isComplete) throw new Error("the end is not in the mask");
    const token = random.pick(allowed);
    if (token === END) return "whole";
    state.accept(token);
  }
  return "cut";
}

export const target: FuzzTarget = {
  name: "grammar",
  describe: "GBNF, regular expressions, JSON Schemas and tags, and texts generated from them",
  make(seed, from) {
    const random = seededRandom(seed);
    const before = from as unknown as Input | undefined;
    const source = (before?.source ?? sourceOf(random)) as Json;
    const edits = before || random.below(3) === 0 ? [randomJsonEdit(source, random)] : [];
    const damaged = applyJsonEdits(source, edits);
    return { source: random.below(40) === 0 ? awkwardJson(random) : damaged, choices: seed };
  },
  run(_seed, value) {
    const { source, choices } = value as unknown as Input;
    if (typeof source !== "object" || source === null) return undefined;
    try {
      return generate(source as unknown as GrammarSource, choices);
    } catch (error) {
      if (error instanceof GrammarError && error.message === "") throw new Error("no message");
      return refusal(error);
    }
  },
};
