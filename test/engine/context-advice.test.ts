// What is advised where a text does not fit.

import { expect, test } from "vitest";
import { contextAdvice } from "../../src/engine/context-advice.ts";
import { sourceFiles } from "../rules/scan.ts";

test("a larger context is advised only where the model was trained for one", () => {
  const trainedContext = 256;
  expect(contextAdvice({ contextSize: 128, trainedContext })).toContain("larger contextSize");
  expect(contextAdvice({ contextSize: 256, trainedContext })).toBe(
    "Shorten it: this model was trained for 256 tokens",
  );
});

test("nobody else advises it for a text that is too long", () => {
  const advising = sourceFiles("src/engine").filter(({ text }) =>
    /[Ss]horten it, or open the model with a larger contextSize/.test(text),
  );
  expect(advising.map(({ path }) => path)).toEqual(["src/engine/context-advice.ts"]);
});
