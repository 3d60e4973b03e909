// LoRA adapters on the GPU: all layers there, some of them, and experts on the processor. Requests of one batch with different adapters,
// several and none get the processor's texts, and a request without adapters has the bits of a model that was opened without any.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { type AdapterScale, inspect, type Model, type OpenOptions, open } from "../../src/index.ts";
import { adapterFile } from "../support/adapter-file.ts";
import { describeGpu } from "../support/gpu.ts";
import { hasShared, sharedPath } from "../support/shared.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFileVocab, tinyGguf } from "../support/tiny-file.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-adapters-gpu-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const choices: AdapterScale[][] = [
  [],
  [{ id: 0, scale: 1 }],
  [{ id: 1, scale: 0.7 }],
  [
    { id: 1, scale: 1 },
    { id: 0, scale: -1 },
  ],
];
const options: OpenOptions = { threads: 1, parallel: 4, kvType: "f32", contextSize: 64 };
const prompt = [1, 40, 100, 7, 261, 80, 12, 90, 33];

async function say(model: Model, adapters?: AdapterScale[]) {
  const asked = { maxTokens: 6, temperature: 0, logprobs: 1, ignoreEos: true };
  const generation = model.generate(prompt, { ...asked, ...(adapters && { adapters }) });
  const logprobs: number[] = [];
  for await (const event of generation.tokens()) logprobs.push(event.logprob!);
  return { ids: (await generation.result).tokenIds, logprobs };
}

async function all(path: string, more: OpenOptions) {
  await using model = await open(path, { ...options, ...more });
  return await Promise.all(choices.map((adapters) => say(model, adapters)));
}

/** The texts are the processor's wherever the layers are. */
async function expectSame(path: string, adapters: string[], places: OpenOptions[]): Promise<void> {
  const expected = await all(path, { adapters, gpuLayers: 0 });
  expect(new Set(expected.map(({ logprobs }) => logprobs.join())).size).toBe(choices.length);
  for (const place of places) {
    const got = await all(path, { adapters, ...place });
    got.forEach(({ ids, logprobs }, i) => {
      expect(ids, JSON.stringify(place)).toEqual(expected[i]!.ids);
      logprobs.forEach((logprob, at) => {
        expect(logprob).toBeCloseTo(expected[i]!.logprobs[at]!, 2);
      });
    });
  }
}

describeGpu("adapters on the GPU", () => {
  test("all layers, and some of them", { timeout: 300_000 }, async () => {
    const tiny = tinyModel({ vocab: tinyFileVocab });
    const path = join(folder, "tiny.gguf");
    writeFileSync(path, await tinyGguf({ model: tiny }));
    const everything = /(attn_(q|k|v|output)|ffn_(gate|up|down)|token_embd)\.weight$/;
    const adapters = [
      await adapterFile(folder, "first", tiny.tensors, { seed: 5, size: 0.4, tensors: everything }),
      await adapterFile(folder, "second", tiny.tensors, {
        seed: 6,
        rank: 8,
        size: 0.3,
        type: "f16",
      }),
    ];
    await expectSame(path, adapters, [
      { gpuLayers: "all" },
      { gpuLayers: 1 },
      { gpuLayers: "all", overrideTensors: ["ffn_up=cpu"] },
    ]);
    await using plain = await open(path, { ...options, gpuLayers: "all" });
    await using model = await open(path, { ...options, gpuLayers: "all", adapters });
    expect(await say(model, [])).toEqual(await say(plain));
  });

  const file = "archs/qwen2moe.gguf";
  const reason = hasShared(file) ? "" : ` [skipped: ../shared/${file} is not on this machine]`;
  test.skipIf(!hasShared(file))(`experts${reason}`, { timeout: 300_000 }, async () => {
    const path = sharedPath(file);
    const { tensors } = await inspect(path);
    const shapes = tensors.map((tensor) => [tensor.name, tensor] as const);
    const own = { architecture: "qwen2moe", size: 0.4, tensors: /(attn_q|_exps)\.weight$/ };
    const adapters = [
      await adapterFile(folder, "experts", shapes, { ...own, seed: 7, rank: 4 }),
      await adapterFile(folder, "others", shapes, { ...own, seed: 8, rank: 32, type: "f16" }),
    ];
    await expectSame(path, adapters, [
      { gpuLayers: "all" },
      { gpuLayers: "all", cpuExperts: "all" },
    ]);
    const slots = { ...options, gpuLayers: "all", expertSlots: 3, adapters } as const;
    await expect(open(path, slots)).rejects.toThrow("expertSlots: an adapter changes the experts");
  });
});
