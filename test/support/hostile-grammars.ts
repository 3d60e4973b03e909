// Grammars, schemas and regular expressions that are small to send and dear to read: one table for the quick test
// (test/grammar/cost.test.ts), the bench of stalls (bench/stalls.ts) and the fuzzer that looks for more of them
// (test/fuzz/targets/grammar-cost.ts).

import type { GrammarSource } from "../../src/api/grammar-source.ts";

export interface HostileGrammar {
  readonly name: string;
  source(): GrammarSource;
}

const times = (count: number, of: (i: number) => string): string[] =>
  Array.from({ length: count }, (_, i) => of(i));
const gbnf = (...lines: readonly string[]): GrammarSource => ({ gbnf: lines.join("\n") });
const keyed = (count: number, of: (i: number) => unknown): Record<string, unknown> =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`key${i}`, of(i)]));
const list = <T>(count: number, of: (i: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => of(i));

function wrapped(levels: number, wrap: (inner: unknown) => unknown, first: unknown = {}): unknown {
  let schema = first;
  for (let i = 0; i < levels; i++) schema = wrap(schema);
  return schema;
}

export const hostileGrammars: readonly HostileGrammar[] = [
  // ---- GBNF: rules
  {
    name: "3,000 rules that may all be skipped",
    source: () =>
      gbnf(
        "root ::= r0",
        ...times(3000, (i) => `r${i} ::= r${i + 1}? r${i + 2}? "a"?`),
        'r3000 ::= "b"',
        'r3001 ::= "c"',
      ),
  },
  {
    name: "a chain of 20,000 rules",
    source: () =>
      gbnf("root ::= r0", ...times(20_000, (i) => `r${i} ::= r${i + 1} "b"`), 'r20000 ::= "a"'),
  },
  {
    name: "a chain of 20,000 rules that end with a call",
    source: () =>
      gbnf("root ::= r0", ...times(20_000, (i) => `r${i} ::= r${i + 1}`), 'r20000 ::= "a"'),
  },
  {
    name: "a chain of 300,000 rules",
    source: () => ({
      gbnf: `root ::= r0\n${times(300_000, (i) => `r${i} ::= r${i + 1}`).join("\n")}\nr300000 ::= "a"`,
    }),
  },
  {
    name: "rules that each call all rules after them",
    source: () =>
      gbnf(
        "root ::= r0",
        ...times(
          400,
          (i) => `r${i} ::= "x" | ${times(400 - i, (j) => `r${i + j + 1}`).join(" | ")}`,
        ),
        'r400 ::= "a"',
      ),
  },
  {
    name: "rules that each may skip all rules after them",
    source: () =>
      gbnf(
        "root ::= r0",
        ...times(300, (i) => `r${i} ::= ${times(300 - i, (j) => `r${i + j + 1}?`).join(" ")} "a"?`),
        'r300 ::= "b"',
      ),
  },
  {
    name: "rules that double",
    source: () =>
      gbnf("root ::= r0", ...times(60, (i) => `r${i} ::= r${i + 1} r${i + 1}`), 'r60 ::= "a"?'),
  },
  {
    name: "rules that double with a letter",
    source: () =>
      gbnf(
        "root ::= r0",
        ...times(200, (i) => `r${i} ::= "a" r${i + 1} | "a" r${i + 1} "b"`),
        'r200 ::= "c"',
      ),
  },
  {
    name: "700,000 alternatives",
    source: () => gbnf(`root ::= ${times(700_000, (i) => `"${i.toString(36)}"`).join("|")}`),
  },
  {
    name: "100,000 empty alternatives",
    source: () => gbnf(`root ::= "a" ${"| ".repeat(100_000)}`),
  },
  {
    name: "alternatives of 3,000 rules",
    source: () =>
      gbnf(
        `root ::= (${times(3000, (i) => `r${i}`).join(" | ")})+`,
        ...times(3000, (i) => `r${i} ::= [a-z]+ "${i}" root?`),
      ),
  },
  {
    name: "an ambiguous grammar",
    source: () => gbnf("root ::= s", 's ::= "a" s s s? | "a" | "a" s?'),
  },
  {
    name: "left recursion behind 20,000 rules",
    source: () =>
      gbnf(
        "root ::= r0",
        ...times(20_000, (i) => `r${i} ::= "x"? r${i + 1}`),
        'r20000 ::= r0 | "y"',
      ),
  },
  {
    name: "many rules that call themselves in the middle",
    source: () =>
      gbnf(
        `root ::= ${times(500, (i) => `r${i}`).join(" | ")}`,
        ...times(
          500,
          (i) =>
            `r${i} ::= "a" (${times(20, (j) => `r${(i * 7 + j * 13) % 500}`).join(" | ")}) "b"? | "c"`,
        ),
      ),
  },
  // ---- GBNF: groups and repetitions
  {
    name: "counts of counts of counts",
    source: () => gbnf("root ::= ((([a-z]{0,10000}){0,10000}){0,10000})"),
  },
  { name: "a count of a count", source: () => gbnf("root ::= (([a-z]{1,3000}){1,3000})") },
  {
    name: "counts of a group",
    source: () =>
      gbnf("root ::= ((([a-z] [0-9]){1,9999} | root2){1,9999}){1,9999}", 'root2 ::= "b"'),
  },
  {
    name: "counts of a rule",
    source: () => gbnf("root ::= (r{0,10000} r{0,10000}){0,10000}", 'r ::= "a"? "b"?'),
  },
  {
    name: "stacked counts",
    source: () => gbnf('root ::= "a"{0,9999}{0,9999}{0,9999}{0,9999}{0,9999}{0,9999}'),
  },
  {
    name: "counts in 2,000 rules",
    source: () =>
      gbnf(
        `root ::= ${times(2000, (i) => `r${i}`).join(" | ")}`,
        ...times(2000, (i) => `r${i} ::= (x | "${i}"){0,10000}`),
        'x ::= "x" x?',
      ),
  },
  {
    name: "20,000 open groups",
    source: () => gbnf(`root ::= ${"(".repeat(20_000)}"a"${")".repeat(20_000)}`),
  },
  {
    name: "groups of optional groups",
    source: () => gbnf(`root ::= ${"(".repeat(190)}"a"${"?)*".repeat(190)}`),
  },
  { name: "a text of 1,000,000 letters", source: () => gbnf(`root ::= "${"ab".repeat(500_000)}"`) },
  {
    name: "a sequence of 300,000 classes",
    source: () => gbnf(`root ::= ${"[a-z]".repeat(300_000)}`),
  },
  {
    name: "a class of 300,000 letters",
    source: () =>
      gbnf(
        `root ::= [${times(300_000, (i) => `\\U000${(0x10000 + 2 * (i % 400_000)).toString(16).padStart(5, "0")}`).join("")}]`,
      ),
  },
  {
    name: "10,000 large classes",
    source: () =>
      gbnf(
        `root ::= ${times(10_000, (i) => `[^${String.fromCodePoint(0x4e00 + i)}${String.fromCodePoint(0x100 + i)}]*`).join(" ")}`,
      ),
  },
  {
    name: "a comment of 4,000,000 letters",
    source: () => gbnf(`# ${"x".repeat(4_000_000)}`, 'root ::= "a"'),
  },
  {
    name: "50,000 names that are not defined",
    source: () => gbnf(`root ::= ${times(50_000, (i) => `r${i}`).join(" ")}`),
  },
  {
    name: "20,000 tokens that are not meant",
    source: () => gbnf(`root ::= (${times(20_000, (i) => `!<[${i % 256}]>`).join(" | ")})*`),
  },
  // ---- regular expressions
  { name: "regex: counts of counts", source: () => ({ regex: "((a{1,9999}){1,9999}){1,9999}" }) },
  { name: "regex: optional counts", source: () => ({ regex: "((a?){5000}){5000}b" }) },
  { name: "regex: an automaton that explodes", source: () => ({ regex: "(.*a.{18}){3}b" }) },
  {
    name: "regex: overlapping counts",
    source: () => ({ regex: `(${times(60, (i) => `[a-z]{${i},}x`).join("|")})*` }),
  },
  {
    name: "regex: lookaheads that exclude",
    source: () => ({ regex: `${times(30, (i) => `(?!.*a.{${i}}b)`).join("")}.*` }),
  },
  {
    name: "regex: lookaheads that ask",
    source: () => ({ regex: `${times(30, (i) => `(?=.*a.{${i}}b)`).join("")}.{0,400}` }),
  },
  {
    name: "regex: 20,000 open groups",
    source: () => ({ regex: `${"(".repeat(20_000)}${")".repeat(20_000)}` }),
  },
  { name: "regex: 100,000 anchors", source: () => ({ regex: `a${"$".repeat(100_000)}` }) },
  {
    name: "regex: 100,000 alternatives with anchors",
    source: () => ({ regex: times(100_000, (i) => `^${i}$`).join("|") }),
  },
  {
    name: "regex: 100,000 properties",
    source: () => ({ regex: "\\p{L}[^\\p{Lu}]".repeat(50_000) }),
  },
  {
    name: "regex: a sequence of optional letters",
    source: () => ({ regex: "[ab]?".repeat(50_000) }),
  },
  {
    name: "regex: nested stars",
    source: () => ({ regex: `${"(".repeat(190)}a${"b?)*".repeat(190)}` }),
  },
  // ---- lists
  { name: "200,000 choices", source: () => ({ choices: times(200_000, (i) => `choice ${i}`) }) },
  {
    name: "choices that begin alike",
    source: () => ({ choices: times(2000, (i) => "a".repeat(i)) }),
  },
  {
    name: "20,000 tags",
    source: () => ({
      tags: list(20_000, (i) => ({
        begin: `<t${i}>`,
        content: { choices: ["a"] },
        end: `</t${i}>`,
      })),
    }),
  },
  {
    name: "a repetition of a repetition",
    source: () => ({
      repeat: { repeat: { choices: ["a", "b"] }, low: 0, high: 1e9 },
      low: 0,
      high: 1e9,
    }),
  },
  // ---- schemas
  {
    name: "schema: oneOf of 1,000",
    source: () => ({
      schema: {
        oneOf: list(1000, (i) => ({
          properties: { [`k${i}`]: { type: "integer" } },
          required: [`k${i}`],
        })),
      },
    }),
  },
  {
    name: "schema: oneOf of 1,000 patterns",
    source: () => ({
      schema: { oneOf: list(1000, (i) => ({ type: "string", pattern: `^a.*${i}$` })) },
    }),
  },
  {
    name: "schema: an enum of 1 MB",
    source: () => ({ schema: { enum: times(100_000, (i) => `value${i}`) } }),
  },
  {
    name: "schema: not an enum of 1 MB",
    source: () => ({ schema: { not: { enum: times(100_000, (i) => `value${i}`) } } }),
  },
  {
    name: "schema: an enum and its opposite",
    source: () => ({
      schema: { enum: list(40_000, (i) => i), not: { enum: list(40_000, (i) => 2 * i) } },
    }),
  },
  {
    name: "schema: 20,000 properties",
    source: () => ({
      schema: {
        type: "object",
        properties: keyed(20_000, () => ({ type: "string" })),
        additionalProperties: false,
      },
    }),
  },
  {
    name: "schema: 3,000 properties that may be missing, and others",
    source: () => ({
      schema: {
        type: "object",
        properties: keyed(3000, () => ({})),
        additionalProperties: { type: "integer" },
      },
    }),
  },
  {
    name: "schema: counted properties",
    source: () => ({
      schema: {
        type: "object",
        properties: keyed(150, () => ({})),
        minProperties: 100,
        maxProperties: 120,
      },
    }),
  },
  {
    name: "schema: 20,000 levels of arrays",
    source: () => ({ schema: wrapped(20_000, (inner) => ({ type: "array", items: inner })) }),
  },
  {
    name: "schema: 20,000 levels of a constant",
    source: () => ({ schema: { const: wrapped(20_000, (inner) => [inner]) } }),
  },
  {
    name: "schema: 20,000 levels of not",
    source: () => ({ schema: wrapped(20_000, (inner) => ({ not: inner }), { type: "string" }) }),
  },
  {
    name: "schema: branches of branches",
    source: () => ({
      schema: wrapped(14, (inner) => ({ oneOf: [inner, { anyOf: [inner, { not: inner }] }] }), {
        type: "object",
        properties: { a: { type: "integer" } },
      }),
    }),
  },
  {
    name: "schema: products of branches",
    source: () => ({
      schema: {
        allOf: list(30, (i) => ({ anyOf: list(3, (j) => ({ required: [`${i},${j}`] })) })),
      },
    }),
  },
  {
    name: "schema: a string of 1e9 characters",
    source: () => ({ schema: { type: "string", minLength: 1e9 } }),
  },
  {
    name: "schema: an array of 30,000 arrays",
    source: () => ({
      schema: { type: "array", minItems: 30_000, items: { type: "array", maxItems: 30_000 } },
    }),
  },
  {
    name: "schema: patterns that overlap",
    source: () => ({
      schema: {
        type: "object",
        patternProperties: Object.fromEntries(list(16, (i) => [`a.{${i}}b`, { const: i }])),
      },
    }),
  },
  {
    name: "schema: a hostile pattern with a length",
    source: () => ({
      schema: { type: "string", pattern: "^(.*a.{16}){2}b$", minLength: 20, maxLength: 20_000 },
    }),
  },
  {
    name: "schema: multiples at once",
    source: () => ({
      schema: {
        type: "integer",
        allOf: [99_991, 99_989, 99_971].map((multipleOf) => ({ multipleOf })),
      },
    }),
  },
  {
    name: "schema: a chain of 50,000 $refs",
    source: () => ({
      schema: {
        $ref: "#/$defs/d0",
        $defs: Object.fromEntries(
          list(50_000, (i) => [
            `d${i}`,
            i < 49_999 ? { $ref: `#/$defs/d${i + 1}` } : { type: "string" },
          ]),
        ),
      },
    }),
  },
  {
    name: "schema: contains of contains",
    source: () => ({
      schema: { allOf: list(12, (i) => ({ contains: { const: i }, maxContains: 9 })) },
    }),
  },
  {
    name: "schema: dependencies of all keys",
    source: () => ({ schema: { dependentRequired: keyed(40, (i) => [`key${(i + 1) % 40}`]) } }),
  },
];
