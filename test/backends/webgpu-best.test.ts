// The best logits that the GPU finds, against the engine's own selection: rows made to be awkward (equal logits, NaN, infinities,
// zeros of both signs, all the best in few lanes), of many lengths, whole rows beside them, and texts with and without.

import { expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { BEST } from "../../src/backends/webgpu/wgsl/best-logits.ts";
import { selectBest } from "../../src/base/select-best.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { ADJUSTED_ROOM, AdjustedList, MOST_ADJUSTED } from "../../src/graph/adjusted-list.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { someOnSecond } from "../support/exhaustive.ts";
import { describeGpu, gpuBackend } from "../support/gpu.ts";
import { kvOf } from "../support/kv.ts";
import { Random } from "../support/random.ts";
import { tinyEngine } from "../support/tiny-engine.ts";

const random = new Random(7);
const normal = (): number => random.normal() * 3;

/** Whether a lane of so many items is in the first of the groups that neighbouring lanes take turns in. */
const isLaneInFirstGroup = (id: number, items: number): boolean => {
  const lane = Math.floor(id / items) % 256;
  return (lane + Math.floor(lane / 8)) % 8 === 0;
};

/** Whether a part, one of 33 to 64, has a lane of the second kernel in the first group. */
const isPartInFirstGroup = (id: number, vocab: number): boolean => {
  const part = id >> (vocab > 131_072 ? 12 : vocab > 65_536 ? 11 : 10);
  const lane = (8 - ((part >> 1) % 8)) % 8; // of the eight that two parts have
  return part % 2 === (lane < 4 ? 0 : 1);
};

const rows: Readonly<Record<string, (id: number, vocab: number) => number>> = {
  "normal ones": normal,
  "all equal": () => 1.5,
  "few values": () => Math.round(normal()),
  "the best in every 256th place": (id) => (id % 256 === 3 ? 50 + normal() : normal()),
  ascending: (id) => id / 1000,
  descending: (id) => -id / 1000,
  "-Infinity but for three": (id) => (id % 3000 === 17 ? id : Number.NEGATIVE_INFINITY),
  "-Infinity alone": () => Number.NEGATIVE_INFINITY,
  "zeros of both signs": (id) => (id % 2 === 0 ? -0 : 0),
  "negative ones": () => -Math.abs(normal()) - 1,
  "one infinity": (id, vocab) => (id === vocab - 9 ? Number.POSITIVE_INFINITY : normal()),
  "all the best in one part": (id) => (id < 900 ? 100 + normal() : normal()),
  // More is listed than fits, in the first kernel or in the second.
  "one group of lanes far below the others, 4 items": (id) =>
    isLaneInFirstGroup(id, 4) ? normal() - 1000 : normal(),
  "one group of lanes far below the others, 16 items": (id) =>
    isLaneInFirstGroup(id, 16) ? normal() - 1000 : normal(),
  "parts far below the others, with all lanes of a group": (id, vocab) =>
    isPartInFirstGroup(id, vocab) ? normal() - 1000 : normal(),
};

/** Tokens of each row that are adjusted, as a function of all ids from the best to the worst. */
const lists: Readonly<Record<string, (order: readonly number[], vocab: number) => number[]>> = {
  none: () => [],
  "the best one": (order) => order.slice(0, 1),
  "the first and the last id": (_, vocab) => [vocab - 1, 0],
  "the best 100": (order) => order.slice(0, 100),
  "every third of the best": (order) => order.filter((_, i) => i % 3 === 0).slice(0, 60),
  "the worst": (order) => order.slice(-40),
  "as many as there can be, over the whole vocabulary": (_, vocab) => {
    const count = Math.min(MOST_ADJUSTED, vocab);
    return Array.from({ length: count }, (_, i) => Math.floor((i * vocab) / count));
  },
  "neighbours, over the border of two parts": (_, vocab) =>
    Array.from({ length: 40 }, (_, i) => 1004 + i).filter((id) => id < vocab),
};

/** A backend whose logits of token t are row t of a table. */
async function backendOf(table: Float32Array, tokens: number) {
  const g = new GraphBuilder();
  const vocab = table.length / tokens;
  const weight = { name: "table", shape: [tokens, vocab], dtype: dtypeByName("f32")! };
  const logits = g.select(g.embed(weight, "embed"), "logits");
  const plan = makePlan(g.finish({ logits }), { maxTokens: tokens, maxOutputs: tokens });
  const backend = await gpuBackend();
  await backend.prepare(plan, evenCapacity(1, kvOf("f32")));
  const bytes = new Uint8Array(table.buffer);
  await backend.upload(weight, async (target, offset) => {
    target.set(bytes.subarray(offset, offset + target.length));
  });
  return { backend, batch: new Batch(plan.limits) };
}

function bestOf(row: Float32Array, count: number): { ids: number[]; logits: number[] } {
  const ids = new Int32Array(count);
  selectBest(row, Int32Array.from(row.keys()), row.length, count, ids);
  return { ids: [...ids], logits: Array.from(ids, (id) => row[id]! + 0) };
}

describeGpu("the best logits", () => {
  // Parts with 4, 8 and 16 items for each lane, some of them short, with and without whole vectors, and rows shorter than BEST.
  const vocabs = [8492, 8491, 1, 3, 50, 257, 32_000, 65_536, 100_002, 262_144];
  test.each(someOnSecond("lengths", vocabs, [8491, 50, 100_002]))(
    "of %i are those that the engine would select, in its order",
    async (vocab) => {
      const makers = Object.values(rows);
      const table = Float32Array.from({ length: makers.length * vocab }, (_, i) =>
        makers[Math.floor(i / vocab)]!(i % vocab, vocab),
      );
      const { backend, batch } = await backendOf(table, makers.length);
      try {
        for (const most of vocab > 100_000 ? [BEST, 1] : [BEST, 40, 9, 2, 1]) {
          const count = Math.min(most, vocab);
          batch.clear();
          makers.forEach((_, token) => {
            const row = batch.add(token, 0, { blocks: new Int32Array(1) }, true, true, token === 2);
            // Of every third row all are found.
            if (token % 3 !== 0 && most < BEST) batch.wantBest(row, most);
          });
          await backend.run(batch);
          for (const [row, name] of Object.keys(rows).entries()) {
            const own = table.subarray(row * vocab, (row + 1) * vocab);
            const limit = row % 3 === 0 ? Math.min(BEST, vocab) : count;
            const best = { ids: new Int32Array(limit), logits: new Float32Array(limit) };
            expect(backend.readBest(row, best)).toBe(true);
            const logits = Array.from(best.logits, (logit) => logit + 0);
            expect({ ids: [...best.ids], logits }, `${name}, ${limit}`).toEqual(bestOf(own, limit));
          }
          // More than were looked for are not there.
          const more = { ids: new Int32Array(most + 1), logits: new Float32Array(most + 1) };
          expect(backend.readBest(1, more)).toBe(false);
        }
        // One of every row has a kernel of its own. Twice, since it leaves its memory as it was.
        for (const time of ["first", "second"]) {
          batch.clear();
          for (let token = 0; token < makers.length; token++) {
            const row = batch.add(token, 0, { blocks: new Int32Array(1) }, true, true, false);
            batch.wantBest(row, 1);
          }
          await backend.run(batch);
          for (const [row, name] of Object.keys(rows).entries()) {
            const own = table.subarray(row * vocab, (row + 1) * vocab);
            const best = { ids: new Int32Array(1), logits: new Float32Array(1) };
            expect(backend.readBest(row, best)).toBe(true);
            const logits = Array.from(best.logits, (logit) => logit + 0);
            expect({ ids: [...best.ids], logits }, `${name}, ${time}`).toEqual(bestOf(own, 1));
          }
        }
      } finally {
        backend.dispose();
      }
    },
  );

  const adjustedVocabs = [8492, 8491, 1, 50, 257, 32_000, 151_936];
  test.each(someOnSecond("lengths beside adjusted tokens", adjustedVocabs, [8491]))(
    "of %i beside adjusted tokens, which are given as they are",
    async (vocab) => {
      const makers = [rows["normal ones"]!, rows["few values"]!, rows["all equal"]!];
      const makersOf = (row: number) => makers[row % makers.length]!;
      const titles = Object.keys(lists);
      const count = titles.length * makers.length;
      const table = Float32Array.from({ length: count * vocab }, (_, i) =>
        makersOf(Math.floor(i / vocab))(i % vocab, vocab),
      );
      const { backend, batch } = await backendOf(table, count);
      const adjusted = Array.from({ length: count }, (_, row) => {
        const list = new AdjustedList();
        const order = bestOf(table.subarray(row * vocab, (row + 1) * vocab), vocab).ids;
        const title = titles[Math.floor(row / makers.length)]!;
        for (const id of lists[title]!(order, vocab)) list.add(id, 1, 0);
        return list;
      });
      try {
        for (const most of [BEST, 40, 1]) {
          batch.clear();
          for (const [row, list] of adjusted.entries()) {
            // A whole row in between: it has no adjusted tokens.
            const isWhole = row === 4;
            batch.add(row, 0, { blocks: new Int32Array(1) }, true, true, isWhole);
            if (!isWhole) batch.wantBest(row, most, list.count > 0 ? list : undefined);
          }
          await backend.run(batch);
          for (let row = 0; row < count; row++) {
            if (row === 4) continue;
            const own = table.subarray(row * vocab, (row + 1) * vocab);
            const best = {
              ids: new Int32Array(most),
              logits: new Float32Array(most),
              adjusted: {
                ids: new Int32Array(ADJUSTED_ROOM),
                logits: new Float32Array(ADJUSTED_ROOM),
                count: -1,
              },
            };
            const title = `${titles[Math.floor(row / makers.length)]}, row ${row}, ${most}`;
            const list = adjusted[row]!;
            expect(backend.readBest(row, best), title).toBe(true);
            const listed = [...list.ids.subarray(0, list.count)];
            expect([...best.adjusted.ids.subarray(0, best.adjusted.count)], title).toEqual(listed);
            expect([...best.adjusted.logits.subarray(0, list.count)], title).toEqual(
              listed.map((id) => own[id]!),
            );
            const ids = new Int32Array(most).fill(-1);
            const others = Int32Array.from(own.keys()).filter((id) => !list.has(id));
            selectBest(own, others, others.length, most, ids);
            expect([...best.ids], title).toEqual([...ids]);
            const found = Math.min(most, others.length);
            const logits = Array.from(ids.subarray(0, found), (id) => own[id]! + 0);
            expect(
              Array.from(best.logits.subarray(0, found), (logit) => logit + 0),
              title,
            ).toEqual(logits);
          }
          const whole = new Float32Array(vocab);
          await backend.read("logits", 4, whole);
          expect(whole).toEqual(table.subarray(4 * vocab, 5 * vocab));
        }
      } finally {
        backend.dispose();
      }
    },
  );

  test("some rows are read whole beside them", async () => {
    const [vocab, tokens] = [8492, 4];
    const table = Float32Array.from({ length: tokens * vocab }, normal);
    const { backend, batch } = await backendOf(table, tokens);
    try {
      for (let token = 0; token < tokens; token++) {
        batch.add(token, 0, { blocks: new Int32Array(1) }, true, true, token === 2);
      }
      await backend.run(batch);
      for (let row = 0; row < tokens; row++) {
        // Row 2 came with the batch; another can still be read.
        const whole = new Float32Array(vocab);
        await backend.read("logits", row, whole);
        expect(whole).toEqual(table.subarray(row * vocab, (row + 1) * vocab));
      }
      // A batch of whole rows has no best ones.
      const best = { ids: new Int32Array(BEST), logits: new Float32Array(BEST) };
      batch.clear();
      batch.add(0, 0, { blocks: new Int32Array(1) }, true);
      await backend.run(batch);
      expect(backend.readBest(0, best)).toBe(false);
    } finally {
      backend.dispose();
    }
  });

  test.each([1, 3])("NaNs come first, of %i", async (most) => {
    const table = Float32Array.from({ length: 8492 }, normal);
    table[6001] = Number.NaN;
    table[7000] = Number.POSITIVE_INFINITY;
    new Uint32Array(table.buffer)[6002] = 0xffc00001; // with a sign
    const { backend, batch } = await backendOf(table, 1);
    try {
      const row = batch.add(0, 0, { blocks: new Int32Array(1) }, true, true, false);
      batch.wantBest(row, most);
      await backend.run(batch);
      const best = { ids: new Int32Array(most), logits: new Float32Array(most) };
      expect(backend.readBest(0, best)).toBe(true);
      expect([...best.ids]).toEqual([6001, 6002, 7000].slice(0, most));
      const logits = [Number.NaN, Number.NaN, Number.POSITIVE_INFINITY];
      expect([...best.logits]).toEqual(logits.slice(0, most));
    } finally {
      backend.dispose();
    }
  });

  test("more NaNs than are looked for: the first of them", async () => {
    const table = new Float32Array(5000).fill(Number.NaN);
    const { backend, batch } = await backendOf(table, 1);
    try {
      batch.add(0, 0, { blocks: new Int32Array(1) }, true, true, false);
      await backend.run(batch);
      const best = { ids: new Int32Array(BEST), logits: new Float32Array(BEST) };
      expect(backend.readBest(0, best)).toBe(true);
      expect([...best.ids]).toEqual(Array.from({ length: BEST }, (_, i) => i));
      expect(best.logits.every(Number.isNaN)).toBe(true);
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
        { temperature: 0, repeatPenalty: 1.4 },
        { temperature: 0.9, seed: 6, topK: 40, presencePenalty: 1.5, logitBias: { 7: 6 } },
        { temperature: 0.9, seed: 7, topK: 40, dryMultiplier: 3, dryAllowedLength: 1 },
      ];
      const run = (more: object) =>
        Promise.all(
          settings.map(async (some) => {
            const options = { maxTokens: 12, ...some, ...more };
            const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
            const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
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
