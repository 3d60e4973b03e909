// What the tests of convert have in common: converting in memory, and computing logits without threads.

import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { computeLogits } from "../../src/engine/compute-logits.ts";
import { Engine } from "../../src/engine/engine.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import {
  type ConvertOptions,
  type ConvertResult,
  convert,
  type LogitsResult,
} from "../../src/index.ts";
import { tokenizerOf } from "../../src/load/compose.ts";
import { filesModelSource } from "../../src/platform/sources/blob.ts";
import { memorySink, memorySource } from "../formats/support.ts";

export interface InMemory extends ConvertResult {
  gguf: Uint8Array<ArrayBuffer>;
  file: ModelFile;
}

export async function convertInMemory(
  model: File[] | string,
  options: ConvertOptions = {},
): Promise<InMemory> {
  const sink = memorySink();
  const result = await convert(model, sink, options);
  const gguf = sink.bytes();
  return { ...result, gguf, file: await openModelFile(memorySource({ "out.gguf": gguf })) };
}

/** By the reference, whose sums of a head do not depend on the order of its values. */
export async function referenceLogits(
  model: ModelFile | File[],
  prompt: string,
  greedy: number,
): Promise<LogitsResult> {
  const file = Array.isArray(model) ? await openModelFile(await filesModelSource(model)) : model;
  const tokenizer = tokenizerOf(file);
  const engine = await Engine.load(
    {
      name: file.name,
      format: file.format,
      metadata: file.metadata,
      tensors: file.tensors,
      readTensor: (name, target, offset) =>
        file.readTensor(file.tensors.get(name)!, target, offset),
      tokenizer,
      template: undefined,
      backend: new ReferenceBackend(),
    },
    { contextSize: 128, kvType: dtypeByName("f32")! },
    { progress: () => {}, check: () => {} },
  );
  try {
    const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
    return await computeLogits(engine, tokenizer.encode(prompt), { top: 20, greedy }, control);
  } finally {
    engine.dispose();
  }
}

export async function floatsOf(file: ModelFile, name: string): Promise<Float32Array> {
  const tensor = file.tensors.get(name)!;
  const bytes = new Uint8Array(tensor.byteLength);
  await file.readTensor(tensor, bytes);
  const values = new Float32Array(tensor.shape.reduce((a, b) => a * b, 1));
  tensor.dtype.dequantize(bytes, 0, values, 0, values.length / tensor.dtype.blockElems);
  return values;
}
