// A Hugging Face folder of Qwen3-Reranker: a language model whose rows for "yes" and "no" are a classifier. Its scores are held
// against the logits of the same folder without that name, which are transformers' (huggingface-archs.test.ts).

import { expect, test } from "vitest";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { computeLogits } from "../../src/engine/compute-logits.ts";
import { computeEmbeddings } from "../../src/engine/embedding.ts";
import { Engine } from "../../src/engine/engine.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { tokenizerOf } from "../../src/load/compose.ts";
import { convertInMemory } from "../tools/conversion.ts";
import { jsonFile } from "../tools/safetensors-files.ts";
import { asFiles, type Files } from "../tools/tiny-folder.ts";
import { folders, goldenFolder, prompt } from "./huggingface-archs.ts";
import { memorySource } from "./support.ts";

const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
const [yes, no] = [260, 261];

/** The golden folder of Qwen 3, in whose vocabulary two tokens are the labels. */
function rerankerFiles(name: string, labels = ["yes", "no"]): Files {
  const golden = folders.qwen3!;
  const files = goldenFolder(golden);
  const tokenizer = JSON.parse(new TextDecoder().decode(files["tokenizer.json"]));
  const vocab = tokenizer.model.vocab as Record<string, number>;
  for (const [text, id] of Object.entries(vocab)) if (id === yes || id === no) delete vocab[text];
  tokenizer.model.merges = [];
  vocab[labels[0]!] = yes;
  vocab[labels[1]!] = no;
  return {
    ...files,
    "tokenizer.json": jsonFile(tokenizer),
    "config.json": jsonFile({ ...golden.config, _name_or_path: name }),
  };
}

async function engineOf(files: Files): Promise<Engine> {
  const file = await openModelFile(memorySource(files));
  return await Engine.load(
    {
      ...file,
      readTensor: (name, target, offset) =>
        file.readTensor(file.tensors.get(name)!, target, offset),
      tokenizer: tokenizerOf(file),
      template: undefined,
      backend: new ReferenceBackend(),
    },
    { contextSize: 128, kvType: dtypeByName("f32")! },
    { progress: () => {}, check: () => {} },
  );
}

test("scores are the probabilities of yes and no after the text", async () => {
  const plain = await engineOf(rerankerFiles("Qwen/Qwen3-tiny"));
  const { positions } = await computeLogits(plain, [...prompt], { top: 267, greedy: 0 }, control);
  const logits = new Map(positions.at(-1)!.top);
  plain.dispose();
  const reranker = await engineOf(rerankerFiles("Qwen/Qwen3-Reranker-tiny"));
  const request = { texts: [[...prompt]], pooling: "rank" } as const;
  const [scores] = await computeEmbeddings(reranker, request, control);
  expect(reranker.tokenizer.pair?.template).toContain("{document}");
  reranker.dispose();
  const odds = Math.exp(logits.get(yes)! - logits.get(no)!);
  expect(scores![0]).toBeCloseTo(odds / (1 + odds), 5);
  expect(scores![1]).toBeCloseTo(1 / (1 + odds), 5);
});

test("the file after a conversion has llama.cpp's keys and the classifier", async () => {
  const { file } = await convertInMemory(asFiles(rerankerFiles("Qwen3-Reranker-0.6B")));
  expect(file.tensors.get("cls.output.weight")!.shape).toEqual([2, 64]);
  expect(file.tensors.has("output.weight")).toBe(false);
  expect(file.metadata.number("qwen3.pooling_type")).toBe(4);
  expect(file.metadata.strings("qwen3.classifier.output_labels")).toEqual(["yes", "no"]);
  expect(file.metadata.string("tokenizer.chat_template.rerank")).toContain("<Query>: {query}");
});

test("a vocabulary without the labels is refused", async () => {
  const files = rerankerFiles("Qwen3-Reranker-0.6B", ["ja", "nein"]);
  await expect(openModelFile(memorySource(files))).rejects.toThrow(/model.vocab: "yes".*the id of/);
});
