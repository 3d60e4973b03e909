// JSON in pieces means what it means in one, wherever it is cut; and what is too much work is refused before it is done.

import { expect, test } from "vitest";
import { JsonReader } from "../../apps/server/json-reader.ts";
import { Random } from "../support/random.ts";

function read(text: string, cuts: readonly number[], budget?: number): unknown {
  const reader = new JsonReader(budget);
  let from = 0;
  for (const cut of [...cuts, text.length]) {
    reader.push(text.slice(from, cut));
    from = cut;
  }
  return reader.end();
}

const escapes = [
  "\\n",
  "\\\\",
  '\\"',
  "\\u00e9",
  "\\ud83d\\ude00",
  "\\/",
  "é",
  "😀",
  "plain ",
  "a",
];

function randomText(random: Random, pieces: number): string {
  return Array.from({ length: pieces }, () => escapes[random.below(escapes.length)]).join("");
}

function randomJson(random: Random, depth: number): string {
  const kind = random.below(depth > 0 ? 7 : 4);
  if (kind === 0) return String(random.below(1000) - 500);
  if (kind === 1) return ["true", "false", "null", "1.5e3"][random.below(4)]!;
  if (kind === 2) return `"${randomText(random, random.below(8))}"`;
  if (kind === 3) return `"${randomText(random, 300 + random.below(3000))}"`;
  const inner = Array.from({ length: random.below(5) }, () => randomJson(random, depth - 1));
  if (kind < 6) return `[${inner.join(" ,\n")}]`;
  return `{${inner.map((value, i) => `"${randomText(random, 2)}${i}": ${value}`).join(",")}}`;
}

test("the same value as JSON.parse(), wherever the text is cut", () => {
  const random = new Random(7);
  for (let round = 0; round < 300; round++) {
    const text = randomJson(random, 4);
    const cuts = Array.from({ length: random.below(6) }, () => random.below(text.length + 1));
    cuts.sort((a, b) => a - b);
    expect(read(text, cuts)).toEqual(JSON.parse(text));
  }
});

test("cut between all characters", () => {
  const text = `{"a":"${'\\"\\\\\\u0041é'.repeat(400)}","b":["x\\\\"]}`;
  const everywhere = Array.from({ length: text.length }, (_, i) => i);
  expect(read(text, everywhere)).toEqual(JSON.parse(text));
});

test("a long text under __proto__ is a field like any other", () => {
  const text = `{"__proto__":"${"x".repeat(5000)}"}`;
  const value = read(text, [10]) as object;
  expect(Object.hasOwn(value, "__proto__")).toBe(true);
  expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
});

test("broken JSON is refused, also inside a long string", () => {
  for (const text of [
    "{",
    '"abc',
    `"${"x".repeat(4000)}`,
    `"${"x".repeat(4000)}\\q"`,
    "[1,]",
    "",
  ]) {
    expect(() => read(text, [1])).toThrow(/the body/);
  }
  expect(() => read(`"${"a\n".repeat(2000)}"`, [])).toThrow(/not JSON/);
  expect(() => read(`{"${"k".repeat(2000)}" : 1}`, [5])).toThrow(/name is too long/);
});

test("too many values are refused when they are seen, not when all of them have come", () => {
  const reader = new JsonReader(1000);
  expect(() => {
    for (;;) reader.push("[1,1,1,1,1,1,1,1],".repeat(20));
  }).toThrow(/too many values/);
  expect(() => read("[".repeat(5000), [])).toThrow(/nested lists/);
  const keys = Array.from({ length: 200 }, (_, i) => `"k${i}":1`).join(",");
  expect(() => read(`{${keys}}`, [], 2000)).toThrow(/too many values/);
  expect(read(`[${keys.replaceAll(/"k(\d+)":1/g, '{"k$1":1}')}]`, [], 4000)).toHaveLength(200);
});
