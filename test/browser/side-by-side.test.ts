// The rules of a comparison (bench/side-by-side.ts), with engines and a machine that are made up: who is measured when,
// what is thrown away, and what is reported of it.

import { expect, test } from "vitest";
import {
  jsonText,
  type Line,
  reportText,
  runRounds,
  type Speed,
} from "../../bench/side-by-side.ts";

/** Two sides that note their turns, and a machine that is disturbed in the rounds of the list. */
function comparison(disturbedRounds: readonly number[]) {
  const turns: string[] = [];
  let round = -1;
  const side = (name: string, speed: Speed) => ({
    name,
    measure: async (input: number) => {
      turns.push(`${name} ${input}`);
      return speed;
    },
  });
  const sides = [
    side("ours", { prompt: 300, generation: 30 }),
    side("theirs", { prompt: 100, generation: 20 }),
  ];
  const watch = {
    begin: () => void round++,
    disturbance: () => (disturbedRounds.includes(round) ? "a neighbour" : undefined),
  };
  let inputs = 0;
  const run = (force: boolean) =>
    runRounds(sides, () => inputs++, watch, { repetitions: 2, force, onRound: () => {} });
  return { turns, run };
}

const options = { prompt: 8, predict: 4, repetitions: 2 };
const lineOf = (measured: Pick<Line, "sides" | "disturbed">): Line => ({
  ...{ model: "m.gguf", threads: 2, ...measured },
});

test("both get the same input, and take turns in going first", async () => {
  const { turns, run } = comparison([]);
  const measured = await run(false);
  expect(measured.disturbed).toBeUndefined();
  expect(turns).toEqual(["ours 0", "theirs 0", "theirs 1", "ours 1"]);
  const flags = { ...options, force: false, markdown: true };
  expect(reportText([lineOf(measured)], "here", flags)).toContain(
    "| m.gguf | 2 | 300 | 100 | 3.00 | 30.0 | 20.0 | 1.50 |",
  );
});

test("a disturbed round is measured again", async () => {
  const { turns, run } = comparison([0]);
  const { disturbed, sides } = await run(false);
  expect(disturbed).toBeUndefined();
  expect(turns).toHaveLength(6);
  expect(sides.map(({ samples }) => samples.length)).toEqual([2, 2]);
});

test("what is never quiet gets no ratio, unless it is forced", async () => {
  const always = [0, 1, 2, 3, 4];
  const { turns, run } = comparison(always);
  const measured = await run(false);
  expect(measured.disturbed).toBe("a neighbour");
  expect(turns).toHaveLength(8); // two rounds thrown away, two kept
  const lines = [lineOf(measured)];
  expect(reportText(lines, "here", { ...options, force: false, markdown: false })).toContain(
    "not reported: a neighbour",
  );
  expect(JSON.parse(jsonText(lines, "here", false)).results[0].ratio).toBeNull();

  const forced = comparison(always);
  expect((await forced.run(true)).disturbed).toBe("a neighbour");
  expect(forced.turns).toHaveLength(4);
  const text = reportText(lines, "here", { ...options, force: true, markdown: false });
  expect(text).toContain("3.00*");
  expect(text).toContain("* The machine was busy: a neighbour.");
});
