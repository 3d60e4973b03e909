// Real models split between the processor and the GPU: the greedy text is the same at every split, and `info` says where
// the layers are. What can be split and how is in split.test.ts; this is slow on a software adapter, so the texts are short.

import { expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { someOf } from "../support/exhaustive.ts";
import { describeGpu } from "../support/gpu.ts";
import { hasShared, sharedPath } from "../support/shared.ts";

interface Case {
  file: string;
  prompt: string;
  layers: number;
  tokens: number;
}

const all: readonly Case[] = [
  {
    file: "models/stories15M/stories15M-Q8_0.gguf",
    prompt: "Once upon a time",
    layers: 6,
    tokens: 4,
  },
  {
    file: "models/minimind2-small/minimind2-small-Q6_K.gguf",
    prompt: "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    layers: 8,
    tokens: 4,
  },
];
const cases = someOf("models", all, all.slice(0, 1));

interface Answer {
  ids: number[];
  /** Layers of each part, and whose they are. */
  places: string;
}

async function greedy({ file, prompt, tokens }: Case, gpuLayers: number | "all"): Promise<Answer> {
  await using model = await open(sharedPath(file), { gpuLayers, contextSize: 64, threads: 1 });
  const options = { temperature: 0, maxTokens: tokens };
  const { tokenIds } = await model.generate(prompt, options).result;
  const places = model.info.backend.placement.map(
    ({ backend, firstLayer, layers, hasOutput }) =>
      `${backend} ${firstLayer}+${layers}${hasOutput ? " and the output" : ""}`,
  );
  return { ids: tokenIds, places: places.join(", ") };
}

describeGpu("the same text at every split", () => {
  for (const each of cases) {
    const reason = hasShared(each.file)
      ? ""
      : ` [skipped: ../shared/${each.file} is not on this machine]`;
    test.skipIf(!hasShared(each.file))(`${each.file}${reason}`, { timeout: 300_000 }, async () => {
      const { layers } = each;
      const third = Math.round((layers + 1) / 3);
      const none = await greedy(each, 0);
      expect(none.ids).toHaveLength(each.tokens);
      expect(none.places).toBe(`cpu 0+${layers} and the output`);
      for (const onGpu of [third, 2 * third]) {
        const first = layers + 1 - onGpu;
        expect(await greedy(each, onGpu), `-ngl ${onGpu}`).toEqual({
          ids: none.ids,
          places: `cpu 0+${first}, webgpu ${first}+${layers - first} and the output`,
        });
      }
      expect(await greedy(each, "all"), "-ngl all").toEqual({
        ids: none.ids,
        places: `webgpu 0+${layers} and the output`,
      });
    });
  }
});
