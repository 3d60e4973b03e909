// An encoder's vectors against llama.cpp's (archs-golden.ts): pooled in each way, and the states of every token, for texts alone
// and for three in one batch.

import { expect } from "vitest";
import type { Pooling } from "../../src/api/api.ts";
import { computeEmbeddings } from "../../src/engine/embedding.ts";
import type { Engine } from "../../src/engine/engine.ts";

export interface EncoderCase {
  readonly prompt: string;
  readonly tokens: readonly number[];
  readonly mean: readonly number[];
  readonly cls: readonly number[];
  readonly last: readonly number[];
  /** The length of every token's state, and its first four values. */
  readonly norms: readonly number[];
  readonly first4: readonly (readonly number[])[];
}

/** Within this, vectors are llama.cpp's (../shared/archs/README.md). */
const TOLERANCE = 2e-3;

const control = {
  aborted: false,
  yieldThread: () => new Promise<void>((resolve) => setImmediate(resolve)),
  now: () => 0,
};

/** Vectors as the model gives them, not scaled. */
export async function vectorsOf(
  engine: Engine,
  texts: readonly (readonly number[])[],
  pooling: Pooling,
): Promise<Float32Array[]> {
  return await computeEmbeddings(engine, { texts, pooling }, control);
}

export async function expectEncoder(
  engine: Engine,
  cases: readonly EncoderCase[],
  name: string,
): Promise<void> {
  const [short, long] = cases as [EncoderCase, EncoderCase];
  for (const one of cases) {
    expect(engine.tokenizer.encode(one.prompt), `${name}, tokens`).toEqual(one.tokens);
  }
  const { batches } = engine.status();
  await expectStates(engine, [long, short, long], `${name}, three texts`);
  expect(engine.status().batches, `${name}: three texts are one batch`).toBe(batches + 1);
  await expectStates(engine, [short], name);
  for (const pooling of ["mean", "cls", "last"] as const) {
    const vectors = await vectorsOf(
      engine,
      cases.map(({ tokens }) => tokens),
      pooling,
    );
    vectors.forEach((vector, i) => {
      expectNear(vector, cases[i]![pooling], `${name}, ${pooling}`);
    });
  }
}

async function expectStates(
  engine: Engine,
  cases: readonly EncoderCase[],
  what: string,
): Promise<void> {
  const texts = cases.map(({ tokens }) => tokens);
  const found = await vectorsOf(engine, texts, "none");
  found.forEach((rows, text) => {
    const { norms, first4, tokens } = cases[text]!;
    const size = rows.length / tokens.length;
    const states = tokens.map((_, i) => rows.subarray(i * size, (i + 1) * size));
    expectNear(states.map(lengthOf), norms, `${what}, lengths`);
    expectNear(
      states.flatMap((state) => [...state.subarray(0, 4)]),
      first4.flat(),
      `${what}, first values`,
    );
  });
}

function expectNear(found: ArrayLike<number>, golden: readonly number[], what: string): void {
  expect(found.length, what).toBe(golden.length);
  const furthest = golden.reduce((most, value, i) => {
    const apart = Math.abs(found[i]! - value);
    return apart >= most || Number.isNaN(apart) ? apart : most;
  }, 0);
  expect(furthest, what).toBeLessThan(TOLERANCE);
}

function lengthOf(x: Float32Array): number {
  return Math.hypot(...x);
}
