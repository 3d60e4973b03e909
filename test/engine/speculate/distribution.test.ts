// Sampling with temperature keeps its distribution with drafts: pairs of tokens over many seeds, against their exact
// probabilities from the logits, by a chi-square test. The seeds are fixed, so the test always has the same numbers.

import { expect, test } from "vitest";
import type { Engine } from "../../../src/engine/engine.ts";
import { DraftModel } from "../../../src/engine/speculate/draft-model.ts";
import type { DrafterKind } from "../../../src/engine/speculate/drafter.ts";
import { tinyEngine, tinyPrompt } from "../../support/tiny-engine.ts";
import { control, run } from "./drafters.ts";

const TOP = 4;
const SEEDS = 500;
const prompt = tinyPrompt(5, 12);
const options = { temperature: 0.9, topK: TOP, topP: 1, minP: 0, maxTokens: 3 };

/** The probabilities of the TOP likeliest next tokens. */
async function exact(engine: Engine, tokens: readonly number[]): Promise<Map<number, number>> {
  const logits = new Float32Array(engine.vocabSize);
  const running = await engine.open({ tokens: [], mayAdd: tokens.length, isAborted: () => false });
  for (let done = 0; done < tokens.length; ) {
    done += await engine.advance(running, tokens, done, {
      wants: (index) => index === tokens.length - 1,
      onOutput: (_, read) => read("logits", logits),
      stop: () => control().aborted,
    });
  }
  engine.close(running);
  const best = [...logits.keys()].sort((a, b) => logits[b]! - logits[a]!).slice(0, TOP);
  const weights = best.map((id) => Math.exp(logits[id]! / options.temperature));
  const sum = weights.reduce((a, b) => a + b);
  return new Map(best.map((id, i) => [id, weights[i]! / sum]));
}

/** Sum of (observed - expected)^2 / expected over all pairs: the second of them was verified, the first never. */
async function chiSquare(engine: Engine, kind: DrafterKind) {
  const counts = new Map<string, number>();
  let accepted = 0;
  let drafted = 0;
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { tokenIds, timings } = await run(engine, prompt, { ...options, seed }, [kind]);
    const pair = tokenIds.slice(0, 2).join(" ");
    counts.set(pair, (counts.get(pair) ?? 0) + 1);
    accepted += timings.speculation?.accepted ?? 0;
    drafted += timings.speculation?.drafted ?? 0;
  }
  let sum = 0;
  let seen = 0;
  for (const [first, p] of await exact(engine, prompt)) {
    for (const [second, q] of await exact(engine, [...prompt, first])) {
      const [expected, observed] = [SEEDS * p * q, counts.get(`${first} ${second}`) ?? 0];
      sum += (observed - expected) ** 2 / expected;
      seen += observed;
    }
  }
  return { sum, seen, accepted, drafted };
}

test("pairs of sampled tokens are as likely with drafts as the logits say", async () => {
  const engine = await tinyEngine({ seed: 3 });
  const draft = await tinyEngine({ seed: 3 });
  const { sum, seen, accepted, drafted } = await chiSquare(
    engine,
    new DraftModel(engine, draft, { endsEarly: false }),
  );
  expect(seen).toBe(SEEDS); // nothing outside of the likeliest
  expect(accepted).toBeGreaterThan(SEEDS / 8);
  expect(drafted - accepted).toBeGreaterThan(SEEDS / 8);
  // 16 cells, 15 degrees of freedom: above 37.7 in one of a thousand draws.
  expect(sum).toBeLessThan(37.7);
  engine.dispose();
  draft.dispose();
});
