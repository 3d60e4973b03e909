// The best logits as the CPU backend finds them, by the maxima of blocks, against the selection over all: rows made to be awkward
// (equal logits, zeros of both signs, all the best in one block, a short last block), one and several of them, and rows that are
// not finite, of which all logits must be read.

import { describe, expect, test } from "vitest";
import { evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { NativeKernels } from "../../src/backends/cpu/native/native.ts";
import { selectBest } from "../../src/base/select-best.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { kvOf } from "../support/kv.ts";
import { nativeElsewhere, nativeHere } from "../support/native.ts";
import { Random } from "../support/random.ts";

const random = new Random(7);
const normal = (): number => random.normal() * 3;
const finite: Readonly<Record<string, (id: number) => number>> = {
  "normal ones": normal,
  "all equal": () => 1.5,
  "few values": () => Math.round(normal()),
  "the best in one block": (id) => (id >= 640 && id < 700 ? 50 + normal() : normal()),
  "the best at the end": (id) => id / 1000,
  "the best at the beginning": (id) => -id / 1000,
  "zeros of both signs": (id) => (id % 2 === 0 ? -0 : 0),
  "negative ones": () => -Math.abs(normal()) - 1,
};
const strange: readonly ((id: number) => number)[] = [
  (id) => (id === 100 ? Number.NaN : normal()),
  (id) => (id === 2 ? Number.POSITIVE_INFINITY : normal()),
  (id) => (id === 500 ? Number.NEGATIVE_INFINITY : normal()),
];

/** A backend whose logits of token t are row t of a table. */
async function backendOf(table: Float32Array, vocab: number, native: NativeKernels | string) {
  const tokens = table.length / vocab;
  const g = new GraphBuilder();
  const weight = { name: "table", shape: [tokens, vocab], dtype: dtypeByName("f32")! };
  const logits = g.select(g.embed(weight, "embed"), "logits");
  const plan = makePlan(g.finish({ logits }), { maxTokens: tokens, maxOutputs: tokens });
  const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });
  backend.prepare(plan, evenCapacity(1, kvOf("f32")));
  const bytes = new Uint8Array(table.buffer);
  await backend.upload(weight, async (target, offset) => {
    target.set(bytes.subarray(offset, offset + target.length));
  });
  return { backend, batch: new Batch(plan.limits) };
}

for (const { name, native } of [{ name: "wasm", native: "a test" }, ...nativeHere]) {
  describe(name, () => {
    test.each([64, 1000, 4096 + 300])("of %i logits", async (vocab) => {
      const makers = [...Object.values(finite), ...strange];
      const table = Float32Array.from({ length: makers.length * vocab }, (_, i) =>
        makers[Math.floor(i / vocab)]!(i % vocab),
      );
      const { backend, batch } = await backendOf(table, vocab, native);
      try {
        makers.forEach((_, token) => {
          batch.add(token, 0, { blocks: new Int32Array(1) }, true, true, false);
        });
        await backend.run(batch);
        for (const k of [1, 2, 40, Math.min(vocab - 1, backend.mostBest)]) {
          const best = { ids: new Int32Array(k), logits: new Float32Array(k) };
          for (const [row, name] of Object.keys(finite).entries()) {
            const own = table.subarray(row * vocab, (row + 1) * vocab);
            expect(backend.readBest(row, best), name).toBe(true);
            const ids = new Int32Array(k);
            selectBest(own, Int32Array.from(own.keys()), vocab, k, ids);
            expect([...best.ids], `${k} of ${name}`).toEqual([...ids]);
            expect(best.logits).toEqual(Float32Array.from(ids, (id) => own[id]!));
          }
        }
        const one = { ids: new Int32Array(1), logits: new Float32Array(1) };
        const few = { ids: new Int32Array(5), logits: new Float32Array(5) };
        strange.forEach((_, at) => {
          const row = Object.keys(finite).length + at;
          const isThere = table.subarray(row * vocab, (row + 1) * vocab).every(Number.isFinite);
          expect(backend.readBest(row, one), `row ${row}`).toBe(isThere);
          expect(backend.readBest(row, few), `row ${row}`).toBe(isThere);
        });
      } finally {
        backend.dispose();
      }
    });
  });
}

test.skip.each(nativeElsewhere)("%s", () => {});
