// Distributions in 16 bits: against what llama.cpp's own functions make of the same logits, and against plain arithmetic.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  compareWithRow,
  logprobRowLength,
  summarizeLogits,
  writeLogprobRow,
} from "../../src/engine/logprob-rows.ts";

const vocab = 45; // odd: rows have a padding step
/** A row whose range is cut at 16, two that are not, and one that is flat. */
const spreads = [30, 6, 12, 0];

const golden = JSON.parse(
  readFileSync(new URL("data/llama-logprob-rows.json", import.meta.url), "utf8"),
) as {
  nll: number[];
  rows: number[][];
  kl: {
    model: number;
    base: number;
    divergence: number;
    baseNll: number;
    sameTop: number;
    change: number;
  }[];
};

const logits = spreads.map((spread, row) =>
  Float32Array.from(
    { length: vocab },
    (_, i) =>
      spread * (((i * 17 + row * 5) % vocab) / vocab - 0.4) + (spread ? ((i * i) % 13) / 7 : 0),
  ),
);
const nextToken = (row: number) => (7 * row + 3) % vocab;

function rowOf(row: number): Uint16Array {
  const target = new Uint16Array(logprobRowLength(vocab));
  writeLogprobRow(logits[row]!, summarizeLogits(logits[row]!), target);
  return target;
}

describe("as llama.cpp", () => {
  test.each(spreads.map((_, row) => row))("row %i: scale, lowest and every step", (row) => {
    expect([...rowOf(row)]).toEqual(golden.rows[row]);
  });

  test.each(spreads.map((_, row) => row))("row %i: the token that came", (row) => {
    const { logSumExp } = summarizeLogits(logits[row]!);
    expect(logSumExp - logits[row]![nextToken(row)]!).toBeCloseTo(golden.nll[row]!, 5);
  });

  test.each(golden.kl)("row $model beside row $base", (expected) => {
    const { model, base } = expected;
    const summary = summarizeLogits(logits[model]!);
    const found = compareWithRow(logits[model]!, summary, rowOf(base), nextToken(model));
    const logprob = logits[model]![nextToken(model)]! - summary.logSumExp;
    expect(found.divergence).toBeCloseTo(expected.divergence, 4);
    expect(found.baseLogprob).toBeCloseTo(-expected.baseNll, 4);
    expect(Number(found.baseTop === summary.top)).toBe(expected.sameTop);
    expect(Math.exp(logprob) - Math.exp(found.baseLogprob)).toBeCloseTo(expected.change, 5);
  });
});

test("the sum of exponentials is that of Math.exp", () => {
  for (const row of [...logits, Float32Array.from({ length: 5000 }, (_, i) => -i / 50)]) {
    const { logSumExp, max } = summarizeLogits(row);
    const sum = row.reduce((total, logit) => total + Math.exp(logit - max), 0);
    expect(logSumExp).toBeCloseTo(max + Math.log(sum), 9);
  }
});

test("the sum of exponentials survives logits that overflow", () => {
  const { logSumExp, top } = summarizeLogits(Float32Array.of(-800, 900, 900));
  expect(logSumExp).toBeCloseTo(900 + Math.log(2), 9);
  expect(top).toBe(1);
});
