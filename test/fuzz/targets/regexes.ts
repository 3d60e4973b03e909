// The regular expressions of the sources, on strings that repeat whatever their letters can be: a finding is one that takes much more than
// four times the steps for four times the length. By cost, counted and not measured. An input is a pattern's place and three pieces of text.

import { boundedInputs, regexLiterals } from "../../rules/regexes.ts";
import { growthOf } from "../../support/regex-cost.ts";
import type { FuzzTarget, Json } from "../target.ts";

const literals = regexLiterals().filter(({ path }) => boundedInputs[path] === undefined);
const letters = [..." \n\t\r\"'\\/.,:;-_=<>()[]{}|#%@$*+?!~`0189azAZé中\u0000"];

interface Input {
  /** "src/base/x.ts /a+/g": a line number would change with every edit. */
  readonly regex: string;
  readonly before: string;
  readonly pump: string;
  readonly after: string;
}

const nameOf = ({ path, regex }: (typeof literals)[number]): string => `${path} ${regex}`;

/** xorshift: the same seed, the same input. */
function random(seed: number): (below: number) => number {
  let state = seed | 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

export const target: FuzzTarget = {
  name: "regexes",
  describe: "regular expressions of the sources, on strings that repeat: by steps, not by time",
  make(seed): Json {
    const next = random(seed);
    const literal = literals[next(literals.length)]!;
    // Letters of the pattern itself, and others.
    const own = [...literal.regex.source];
    const text = (most: number): string =>
      Array.from({ length: next(most + 1) }, () =>
        next(2) === 0 ? own[next(own.length)]! : letters[next(letters.length)]!,
      ).join("");
    return { regex: nameOf(literal), before: text(6), pump: text(5), after: text(3) };
  },
  run(_, input) {
    const { regex, before, pump, after } = input as unknown as Input;
    const literal = literals.find((one) => nameOf(one) === regex);
    if (!literal || typeof pump !== "string" || pump === "") return "nothing to do";
    const growth = growthOf(literal.regex, { before: String(before), pump, after: String(after) });
    if (growth === undefined) return `linear: ${literal.path}`;
    throw new Error(`${regex} is super-linear: ${growth.toFixed(1)} times the steps`);
  },
};
