// Values at which readers trip, for all targets: ends of ranges, signs, names that every object has, text that is no text.

import type { Random } from "../formats/mutate.ts";
import type { Json } from "./target.ts";

export const awkwardNumbers: readonly number[] = [
  0, 1, 2, 3, -1, 0.5, 7, 31, 32, 33, 255, 256, 4096, 65535, 65536, 1e6, 2147483647, 2147483648,
  -2147483648, 4294967295, 4294967296, 9007199254740991, 1e15, 1e19, 1e300, -1e300, 5e-324,
];

export const awkwardStrings: readonly string[] = [
  "",
  " ",
  "\n",
  "a",
  "0",
  "-1",
  "constructor",
  "__proto__",
  "toString",
  "hasOwnProperty",
  "../../etc/passwd",
  "\u0000",
  "\u001b[2J\u001b]0;x\u0007",
  "\u202e",
  "\ud800",
  "\udc00x",
  "\ufffd",
  "🙂",
  "e\u0301\u0301\u0301",
  "(a+)+$",
  "[",
  "\\",
  "%s%n",
  "<s>",
  "</s>",
  "<0x00>",
  "▁",
  "{{",
  "{% for i in range(9) %}",
  "a".repeat(300),
  "null",
  "undefined",
  "NaN",
];

/** A small value of any kind. */
export function awkwardJson(random: Random, depth: number = 2): Json {
  const kind = random.below(depth > 0 ? 9 : 6);
  if (kind <= 1) return random.pick(awkwardNumbers);
  if (kind <= 3) return random.pick(awkwardStrings);
  if (kind === 4) return random.pick([null, true, false]);
  if (kind === 5) return random.below(2) === 0 ? [] : {};
  const items = Array.from({ length: 1 + random.below(3) }, () => awkwardJson(random, depth - 1));
  if (kind === 6) return items;
  return Object.fromEntries(items.map((item) => [random.pick(awkwardStrings), item]));
}
