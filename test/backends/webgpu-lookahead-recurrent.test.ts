// Batches submitted ahead of models with recurrent state: a batch that was computed in vain has written to a place that no slot has, so texts are those
// without any submitted ahead, whoever comes, leaves or stops.
// Held against: the texts without any batch submitted ahead.

import { expect, test } from "vitest";
import { SlotPlaces, SPARE_PLACES } from "../../src/backends/webgpu/slot-places.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { Batch, NO_SLOT } from "../../src/graph/batch.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { tinyEngine } from "../support/tiny-engine.ts";

const greedy = { temperature: 0, maxTokens: 40 };
const wrong = {
  ...{ temperature: 2, seed: 5, topK: 40, topP: 0.7, minP: 0.4, maxTokens: 40 },
  samplers: ["top_k", "min_p", "top_p", "temperature"] as const,
};

/** What is asked for one after the other, and at the same time. */
const cases = {
  "one user": [{ prompt: [5, 9, 11], options: greedy }],
  "wrong guesses": [{ prompt: [5, 9, 11], options: wrong }],
  "two users, one of whom stops": [
    { prompt: [6, 1], options: { ...greedy, maxTokens: 12 } },
    { prompt: [1, 2, 3, 4, 5, 6, 7], options: wrong },
  ],
  "the first text again, from what is kept of it": [
    { prompt: [5, 9, 11, 4, 4], options: { ...greedy, maxTokens: 20 } },
  ],
};

async function textsWith(ahead: number) {
  const backend = new WebGpuBackend(await openGpu(), { ahead });
  const engine = await tinyEngine({
    architecture: "qwen35",
    backend,
    parallel: 2,
    contextSize: 128,
  });
  try {
    const texts: Record<string, number[][]> = {};
    for (const [title, asked] of Object.entries(cases)) {
      const control: RunControl = {
        aborted: false,
        yieldThread: () => new Promise<void>((resolve) => setImmediate(resolve)),
        now: () => 0,
      };
      texts[title] = await Promise.all(
        asked.map(async ({ prompt, options }) => {
          const request = { tokens: prompt, options: { ignoreEos: true, ...options } };
          return (await generate(engine, request, control, () => {})).tokenIds;
        }),
      );
    }
    return { texts, counts: engine.status().lookahead! };
  } finally {
    engine.dispose();
  }
}

describeGpu("batches submitted ahead, with recurrent state", () => {
  test("do not change a text", async () => {
    const without = await textsWith(0);
    expect(without.counts).toEqual({ submitted: 0, dropped: 0 });
    for (const ahead of [1, 2]) {
      const { texts, counts } = await textsWith(ahead);
      expect(texts, `${ahead} ahead`).toEqual(without.texts);
      expect(counts.submitted).toBeGreaterThan(60);
      expect(counts.dropped).toBeGreaterThan(0);
      expect(counts.dropped).toBeLessThan(counts.submitted);
    }
  });
});

test("what a batch submitted ahead wrote is the slot that the engine names when it asks for the batch", () => {
  const places = new SlotPlaces(3);
  expect(places.fly(0, 1)).toEqual({ from: 1, to: 4 });
  expect(places.fly(0, 1)).toEqual({ from: 4, to: 3 });
  places.land(0, 2);
  expect([0, 1, 2, NO_SLOT].map((slot) => places.placeOf(slot))).toEqual([0, 1, 4, NO_SLOT]);
  // The place that slot 2 had is spare now; what is submitted ahead is read from place 3.
  expect(places.fly(0, 2)).toEqual({ from: 3, to: 2 });
  places.drop();
  expect(places.fly(0, 2).from).toBe(4);
  expect(() => [places.fly(0, 2), places.fly(0, 2)]).toThrow("no spare place");
});

test("no more batches are submitted ahead than there are places", () => {
  const places = new SlotPlaces(8);
  const batch = new Batch({ maxTokens: 4, maxOutputs: 4 });
  const sequence = (to: number) => ({ blocks: new Int32Array(1), slots: { from: NO_SLOT, to } });
  const rooms = [1, 2, 3].map((users) => {
    batch.clear();
    for (let user = 0; user < users; user++) batch.add(1, 0, sequence(user), true);
    return places.capacityBehind(batch);
  });
  expect(rooms).toEqual([SPARE_PLACES, 1, 0]);
  batch.clear();
  batch.add(1, 0, sequence(NO_SLOT), true);
  expect(places.capacityBehind(batch)).toBe(0);
  expect(new SlotPlaces(0).capacityBehind(batch)).toBe(Infinity);
});
