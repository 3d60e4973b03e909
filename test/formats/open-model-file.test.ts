// openModelFile: the right format for a file or a folder, and an error that says what was looked for.

import { describe, expect, test } from "vitest";
import { FormatError } from "../../src/base/errors.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import type { ModelSource } from "../../src/platform/platform.ts";
import {
  concat,
  ggufBytes,
  jsonBytes,
  llama2cBytes,
  memorySource,
  safetensorsOf,
  smallLlama2c,
  tokenizerBytes,
} from "./support.ts";

const gguf = await ggufBytes({ "general.architecture": { type: "string", value: "llama" } });
const checkpoint = llama2cBytes(smallLlama2c);
const tokenizer = tokenizerBytes(["<unk>", "<s>", "</s>", "a", "bc"]);
const huggingFace = {
  "config.json": jsonBytes({
    model_type: "llama",
    num_hidden_layers: 1,
    hidden_size: 8,
    intermediate_size: 16,
    num_attention_heads: 2,
  }),
  "tokenizer.json": jsonBytes({}),
  "model.safetensors": safetensorsOf({ "model.norm.weight": [8] }),
};
const pair = { "m.bin": checkpoint, "tokenizer.bin": tokenizer };

describe("openModelFile", () => {
  const found: [what: string, source: ModelSource, format: string][] = [
    ["a GGUF file", memorySource({ "m.gguf": gguf }), "gguf"],
    ["a GGUF file under another name", memorySource({ blob: gguf }), "gguf"],
    [
      "a folder with a GGUF",
      memorySource({ "m.gguf": gguf, "config.json": jsonBytes({}) }),
      "gguf",
    ],
    ["a Hugging Face folder", memorySource(huggingFace), "safetensors"],
    ["its weights", memorySource(huggingFace, "model.safetensors"), "safetensors"],
    ["its config.json", memorySource(huggingFace, "config.json"), "safetensors"],
    [
      "a Hugging Face folder with GGUFs",
      memorySource({ ...huggingFace, "a.gguf": gguf, "b.gguf": gguf }),
      "safetensors",
    ],
    ["a llama2.c checkpoint", memorySource(pair, "m.bin"), "llama2c"],
    ["a folder with a llama2.c checkpoint", memorySource(pair), "llama2c"],
    [
      "a checkpoint with its tokenizer behind it",
      memorySource({ "m.data": concat(checkpoint, tokenizer) }),
      "llama2c",
    ],
  ];
  test.each(found)("opens %s", async (_what, source, format) => {
    const model = await openModelFile(source);
    expect(model.format).toBe(format);
    await model.close();
    expect((source as ReturnType<typeof memorySource>).count.open).toBe(0);
  });

  test("a folder that cannot be listed (HTTP)", async () => {
    const source: ModelSource = { ...memorySource(huggingFace), list: async () => undefined };
    expect((await openModelFile(source)).format).toBe("safetensors");
  });

  test("all parts of a split GGUF count as one model", async () => {
    const files: Record<string, Uint8Array> = {};
    for (let i = 0; i < 2; i++) {
      files[`m-0000${i + 1}-of-00002.gguf`] = await ggufBytes({
        "split.no": { type: "u16", value: i },
        "split.count": { type: "u16", value: 2 },
      });
    }
    expect((await openModelFile(memorySource(files))).name).toBe("m-00001-of-00002.gguf");
  });

  const text = new TextEncoder().encode("once upon a time there was a text");
  const refused: [what: string, source: ModelSource, message: string][] = [
    ["a text", memorySource({ "m.txt": text }), "model: m.txt: format: got bytes 111 110"],
    [
      "an empty file",
      memorySource({ "m.txt": new Uint8Array(0) }),
      "expected one of: a Hugging Face folder",
    ],
    ["an empty folder", memorySource({}, undefined), 'files: got "no files", expected one of'],
    [
      "a folder of other things",
      memorySource({ "a.txt": text, "b.txt": text }),
      'got "a.txt, b.txt"',
    ],
    [
      "two GGUFs",
      memorySource({ "a.gguf": gguf, "b.gguf": gguf }),
      'got "a.gguf, b.gguf", expected one model',
    ],
    ["a .gguf that is none", memorySource({ "m.gguf": text }), "gguf: m.gguf: magic"],
    ["a .bin that is none", memorySource({ "m.bin": text }), "llama2c: m.bin: "],
    [
      "a PyTorch .bin",
      memorySource({ "m.bin": Uint8Array.of(0x50, 0x4b, 3, 4, 0, 0, 0, 0) }),
      "model: m.bin: format",
    ],
  ];
  test.each(refused)("refuses %s", async (_what, source, message) => {
    const opening = openModelFile(source);
    await expect(opening).rejects.toThrow(FormatError);
    await expect(opening).rejects.toThrow(message);
    expect((source as ReturnType<typeof memorySource>).count.open).toBe(0);
  });
});
