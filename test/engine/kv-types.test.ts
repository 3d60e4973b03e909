// The types of the KV cache through the public API: info, inspect() and the memory they name agree, keys and values may have a
// type each, a text does not depend on its neighbours, and what a model's rows do not fit is refused by name.

import { afterAll, beforeAll, expect, test } from "vitest";
import { checkKvType } from "../../src/engine/memory.ts";
import { inspect, type KvType, type KvTypePair, open } from "../../src/index.ts";
import { buildModel } from "../../src/models/build.ts";
import { kvOf } from "../support/kv.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => {
  file.remove();
});

const types: readonly (readonly [kvType: KvType | KvTypePair, name: string, bits: number])[] = [
  ["f16", "f16", 16],
  ["q4_0", "q4_0", 4.5],
  ["iq4_nl", "iq4_nl", 4.5],
  [{ k: "q8_0", v: "q4_0" }, "q8_0/q4_0", 6.5],
  [{ k: "q5_1", v: "q5_1" }, "q5_1", 6],
];

test.each(types)("%j: a text, and the bytes of a token", async (kvType, name, bits) => {
  const options = { kvType, threads: 1, contextSize: 64 };
  await using model = await open(file.path, { ...options, parallel: 2 });
  const generate = (prompt: string) =>
    model.generate(prompt, { maxTokens: 6, temperature: 0 }).result;
  const [alone, ...together] = [
    (await generate("abc")).tokenIds,
    ...(await Promise.all([generate("abc"), generate("cabbage")])).map(({ tokenIds }) => tokenIds),
  ];
  expect(together[0]).toEqual(alone);
  const { memory } = await inspect(file.path, { kvType, contextSize: 64 });
  const f16 = await inspect(file.path, { kvType: "f16", contextSize: 64 });
  expect(model.info.kvType).toBe(name);
  expect(model.info.kvBytesPerToken).toBe((f16.memory!.kvBytesPerToken * bits) / 16);
  expect(memory!.kvBytesPerToken).toBe(model.info.kvBytesPerToken);
});

test("rows that no blocks fill are refused, keys and values by themselves", () => {
  const { graph } = buildModel(tinyModel());
  const states = graph.states.map((state) =>
    state.kind === "kv" ? { ...state, kCols: 32, vCols: 24 } : state,
  );
  const uneven = { ...graph, states };
  checkKvType(kvOf("q4_0/f16"), uneven);
  expect(() => checkKvType(kvOf("q8_0/q4_0"), uneven)).toThrow(
    "kvType: q4_0 needs multiples of 32 values, but this model's values have 24. Use f16 or f32",
  );
});

test("a pair is two types and nothing else", async () => {
  const wrong = [
    { k: "q4_0" },
    { k: "q4_0", v: "q4_k" },
    { k: "f16", v: "f16", z: 1 },
    "q8_0/q4_0",
  ];
  for (const kvType of wrong) {
    await expect(open(file.path, { kvType: kvType as KvTypePair })).rejects.toThrow(
      /kvType: got .*, expected f32, .* or iq4_nl, or \{ k, v \} with one of them each/,
    );
  }
});
