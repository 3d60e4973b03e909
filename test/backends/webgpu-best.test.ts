// The best logits that the GPU finds, against the engine's own selection: rows made to be awkward (equal logits, NaN, infinities,
// zeros of both signs, all the best in one lane's share), whole rows beside them, and texts with and without.

import { expect, test } from "vitest";
import { evenRoom } from "../../src/backends/backend.ts";
import { BEST } from "../../src/backends/webgpu/wgsl/best-logits.ts";
import { selectBest } from "../../src/base/select-best.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { kvOf } from "../support/kv.ts";
import { Random } from "../support/random.ts";
import { tinyEngine } from "../support/tiny-engine.ts";

const random = new Random(7);
const normal = (): number => random.normal() * 3;

/** Three parts, the last of them short. */
const vocab = 2 * 4096 + 300;
const rows: Readonly<Record<string, (id: number) => number>> = {
  "normal ones": normal,
  "all equal": () => 1.5,
  "few values": () => Math.round(normal()),
  "the best in every 256th place": (id) => (id % 256 === 3 ? 50 + normal() : normal()),
  "the best at the end": (id) => id / 1000,
  "-Infinity but for three": (id) => (id % 3000 === 17 ? id : Number.NEGATIVE_INFINITY),
  "zeros of both signs": (id) => (id % 2 === 0 ? -0 : 0),
  "negative ones": () => -Math.abs(normal()) - 1,
  "one infinity": (id) => (id === 5000 ? Number.POSITIVE_INFINITY : normal()),
};

/** A backend whose logits of token t are row t of a table. */
async function backendOf(table: Float32Array, tokens: number) {
  const g = new GraphBuilder();
  const weight = { name: "table", shape: [tokens, vocab], dtype: dtypeByName("f32")! };
  const logits = g.select(g.embed(weight, "embed"), "logits");
  const plan = makePlan(g.finish({ logits }), { maxTokens: tokens, maxOutputs: tokens });
  const backend = await gpuBackend();
  await backend.prepare(plan, evenRoom(1, kvOf("f32")));
  const bytes = new Uint8Array(table.buffer);
  await backend.upload(weight, async (target, offset) => {
    target.set(bytes.subarray(offset, offset + target.length));
  });
  return { backend, batch: new Batch(plan.limits) };
}

function bestOf(row: Float32Array): { ids: number[]; logits: number[] } {
  const ids = new Int32Array(BEST);
  selectBest(row, Int32Array.from(row.keys()), row.length, BEST, ids);
  return { ids: [...ids], logits: Array.from(ids, (id) => row[id]! + 0) };
}

describeGpu("the best logits", () => {
  test("are those that the engine would select, in its order; some rows are read whole beside them", async () => {
    const makers = Object.values(rows);
    const table = Float32Array.from({ length: makers.length * vocab }, (_, i) =>
      makers[Math.floor(i / vocab)]!(i % vocab),
    );
    const { backend, batch } = await backendOf(table, makers.length);
    try {
      makers.forEach((_, token) => {
        batch.add(token, 0, { blocks: new Int32Array(1) }, true, true, token === 2);
      });
      await backend.run(batch);
      const best = { ids: new Int32Array(BEST), logits: new Float32Array(BEST) };
      for (const [row, name] of Object.keys(rows).entries()) {
        const own = table.subarray(row * vocab, (row + 1) * vocab);
        expect(backend.readBest(row, best)).toBe(true);
        const read = { ids: [...best.ids], logits: Array.from(best.logits, (logit) => logit + 0) };
        expect(read, name).toEqual(bestOf(own));
        // Row 2 came with the batch; another can still be read.
        const whole = new Float32Array(vocab);
        if (row < 3) await backend.read("logits", row, whole);
        if (row < 3) expect(whole).toEqual(own);
      }
      // A batch of whole rows has no best ones.
      batch.clear();
      batch.add(0, 0, { blocks: new Int32Array(1) }, true);
      await backend.run(batch);
      expect(backend.readBest(0, best)).toBe(false);
    } finally {
      backend.dispose();
    }
  });

  test("a NaN comes first", async () => {
    const table = Float32Array.from({ length: vocab }, normal);
    table[6001] = Number.NaN;
    table[7000] = Number.POSITIVE_INFINITY;
    new Uint32Array(table.buffer)[6002] = 0xffc00001; // with a sign
    const { backend, batch } = await backendOf(table, 1);
    try {
      batch.add(0, 0, { blocks: new Int32Array(1) }, true, true, false);
      await backend.run(batch);
      const best = { ids: new Int32Array(3), logits: new Float32Array(3) };
      expect(backend.readBest(0, best)).toBe(true);
      expect([...best.ids]).toEqual([6001, 6002, 7000]);
      expect([...best.logits]).toEqual([Number.NaN, Number.NaN, Number.POSITIVE_INFINITY]);
    } finally {
      backend.dispose();
    }
  });

  test("a text is the same with them and with all logits", async () => {
    const engine = await tinyEngine({ backend: await gpuBackend(), vocab: 5000, parallel: 8 });
    try {
      const prompt = [5, 9, 11];
      const settings = [
        { temperature: 0 },
        { temperature: 0.9, seed: 3, topK: 40, topP: 0.9, minP: 0.02 },
        {
          temperature: 1.2,
          seed: 4,
          topK: 8,
          typicalP: 0.8,
          xtcProbability: 0.5,
          xtcThreshold: 0.1,
        },
        { temperature: 0.8, seed: 5, topK: 0, topP: 0.9 }, // needs all logits anyway
      ];
      const run = (more: object) =>
        Promise.all(
          settings.map(async (some) => {
            const options = { maxTokens: 12, ...some, ...more };
            const breathe = () => new Promise<void>((resolve) => setImmediate(resolve));
            const control: RunControl = { aborted: false, breathe, now: () => 0 };
            return await generate(engine, { tokens: prompt, options }, control, () => {});
          }),
        );
      // With log-probabilities all logits are read.
      const [best, whole] = [await run({}), await run({ logprobs: 0 })];
      expect(best.map(({ tokenIds }) => tokenIds)).toEqual(whole.map(({ tokenIds }) => tokenIds));
      expect(new Set(best.map(({ tokenIds }) => tokenIds.join())).size).toBe(settings.length);
    } finally {
      engine.dispose();
    }
  });
});
