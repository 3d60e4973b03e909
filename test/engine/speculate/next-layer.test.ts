// Drafts by a layer that predicts further tokens: they never change a text, and a layer that is right by construction is believed.

import { describe, expect, test } from "vitest";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import { backendByName } from "../../../src/backends/table.ts";
import { NextLayer } from "../../../src/engine/speculate/next-layer.ts";
import { open } from "../../../src/index.ts";
import { kvOf } from "../../support/kv.ts";
import { type TinyModel, tinyEngine, tinyPrompt, tinyShape } from "../../support/tiny-engine.ts";
import { tinyFile, tinyFileVocab } from "../../support/tiny-file.ts";
import { nextModel } from "../../support/tiny-next.ts";
import { run, seen } from "./drafters.ts";

const cpu = () => backendByName("cpu")!.create({ level: 3, threads: 1, startThread: undefined });

async function layerOf(model: TinyModel, backend = cpu): Promise<NextLayer> {
  const readTensor = async (name: string, target: Uint8Array, offset: number) => {
    target.set(model.bytes.get(name)!.subarray(offset, offset + target.length));
  };
  const options = { contextSize: 256, kvType: kvOf("f32"), parallel: 2 };
  return (await NextLayer.load({ ...model, readTensor }, backend, options))!;
}

describe("a layer that predicts further tokens", () => {
  test.each(["glm4moe", "deepseek2", "qwen35", "qwen35moe", "qwen3next"])(
    "%s: the text is the same with its drafts",
    async (architecture) => {
      const model = nextModel(architecture, false);
      const engine = await tinyEngine({ model, backend: cpu() });
      const layer = await layerOf(model);
      for (const more of [{ temperature: 0 }, { temperature: 1, seed: 3 }]) {
        const options = { maxTokens: 40, speculate: { maxDepth: 3 }, ...more };
        const alone = await run(engine, tinyPrompt(1, 9), options);
        const drafted = await run(engine, tinyPrompt(1, 9), options, [layer]);
        expect(seen(drafted)).toEqual(seen(alone));
        expect(drafted.timings.speculation?.drafted).toBeGreaterThan(10);
      }
      layer.dispose();
      engine.dispose();
    },
  );

  test.each(["glm4moe", "deepseek2", "qwen35"])(
    "%s: one that is right is believed",
    async (architecture) => {
      const model = nextModel(architecture, true);
      const engine = await tinyEngine({ model, backend: cpu() });
      const layer = await layerOf(model);
      const options = { maxTokens: 42, temperature: 0, speculate: { maxDepth: 3 } };
      const alone = await run(engine, tinyPrompt(1, 9), options);
      const drafted = await run(engine, tinyPrompt(1, 9), options, [layer]);
      expect(drafted.tokenIds).toEqual(alone.tokenIds);
      const { speculation } = drafted.timings;
      expect(speculation!.drafted).toBeGreaterThan(25);
      expect(speculation!.accepted).toBe(speculation!.drafted);
      expect(speculation!.batches).toBeLessThan(15);
      layer.dispose();
      engine.dispose();
    },
  );

  test("drafts for several generations, a grammar's forced tokens in between", async () => {
    const model = nextModel("glm4moe", false);
    const engine = await tinyEngine({ model, backend: cpu(), parallel: 3 });
    const layer = await layerOf(model);
    const options = { maxTokens: 30, temperature: 1, speculate: { maxDepth: 2 } };
    const grammar = { regex: "([a-c]{3}defghij[k-m]no)*" };
    const requests = [
      { ...options, seed: 1 },
      { ...options, seed: 2, ...grammar },
      { ...options, seed: 3 },
    ];
    const alone = [];
    for (const one of requests) alone.push(seen(await run(engine, tinyPrompt(one.seed, 9), one)));
    const together = await Promise.all(
      requests.map((one) => run(engine, tinyPrompt(one.seed, 9), one, [layer])),
    );
    expect(together.map(seen)).toEqual(alone);
    layer.dispose();
    engine.dispose();
  });

  test("proposes the same on the reference", async () => {
    const model = nextModel("deepseek2", false);
    const drafts = [];
    for (const backend of [cpu, () => new ReferenceBackend()]) {
      const layer = await layerOf(model, backend);
      const drafter = layer.start([], 64);
      const out = new Int32Array(4);
      const found = [];
      for (let token = 1; token < 12; token++) {
        drafter.computed!(0, (_, target) => {
          for (let i = 0; i < target.length; i++) target[i] = Math.sin(token * 31 + i);
        });
        drafter.accept(token);
        if (token % 3 === 0) found.push(await drafter.draft(4, out), ...out);
      }
      drafts.push(found);
      drafter.dispose();
      layer.dispose();
    }
    expect(drafts[0]).toEqual(drafts[1]);
    expect(drafts[0]).toHaveLength(15);
  });

  test("is opened with the model, where that is asked for", async () => {
    const file = await tinyFile({
      architecture: "glm4moe",
      model: nextModel("glm4moe", true, tinyFileVocab),
      more: [
        ["glm4moe.block_count", { type: "u32", value: tinyShape.layers + 1 }],
        ["glm4moe.nextn_predict_layers", { type: "u32", value: 1 }],
      ],
    });
    const plain = await tinyFile();
    const options = { temperature: 0, maxTokens: 12 };
    const texts: string[] = [];
    for (const mtp of [false, true]) {
      await using model = await open(file.path, { threads: 1, mtp });
      expect((model.info.warnings ?? []).some((text) => text.includes("nextn"))).toBe(!mtp);
      texts.push((await model.generate("a b", options).result).text);
    }
    expect(texts[1]).toBe(texts[0]);
    await expect(open(plain.path, { threads: 1, mtp: true })).rejects.toThrow(
      /has no layer that predicts further tokens/,
    );
    await expect(open(plain.path, { mtp: 1 as never })).rejects.toThrow(/mtp: got 1/);
    file.remove();
    plain.remove();
  });

  test("is refused where there is no memory for it", async () => {
    const model = nextModel("glm4moe", false);
    const options = { contextSize: 256, kvType: kvOf("f32"), parallel: 2, availableBytes: 1000 };
    const loading = NextLayer.load({ ...model, readTensor: async () => {} }, cpu, options);
    await expect(loading).rejects.toThrow(/mtp: .* needs \d+ MB, of which 0 MB are there/);
  });

  test("is not there where the file has none", async () => {
    const model = nextModel("glm4moe", false);
    for (const name of model.tensors.keys()) {
      if (name.includes("nextn")) (model.tensors as Map<string, unknown>).delete(name);
    }
    expect(await layerOf(model)).toBeUndefined();
  });
});
