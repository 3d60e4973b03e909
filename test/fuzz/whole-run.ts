// A (damaged) model through everything: header, metadata, tensors, tokenizer, chat template, weights, a few tokens. In this
// thread on the reference backend, which is quick, or through open(), with its threads and generated kernels.

import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Engine } from "../../src/engine/engine.ts";
import type { AdapterPart } from "../../src/engine/engine-parts.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { weightsFingerprint } from "../../src/formats/fingerprint.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { open } from "../../src/index.ts";
import { templateOf, tokenizerOf } from "../../src/load/compose.ts";
import { withAdapters } from "../../src/threads/open-adapters.ts";
import { memorySource } from "../formats/support.ts";
import { refusal, shapeOf } from "./target.ts";

export type Files = Readonly<Record<string, Uint8Array<ArrayBuffer>>>;

const text = "the cat sat, e\u0301 🙂 <s>\n";
const messages = [{ role: "user", content: text }];

/**
 * How far it came, in words. Throws what is no LanternError, reads beyond the file, and files that stay open. `adapter`: one of the
 * files, which the model is opened with.
 */
export async function runHere(files: Files, main?: string, adapter?: string): Promise<string> {
  const source = memorySource(files, main);
  const own = adapter === undefined ? undefined : memorySource(files, adapter);
  let stage = "open";
  const reach = (name: string): void => {
    stage = name;
  };
  let outcome: string;
  try {
    const file = await openModelFile(source);
    try {
      outcome = own ? await useAdapter(file, own, reach) : await useModel(file, reach);
    } finally {
      await file.close();
    }
  } catch (error) {
    outcome = `${stage}: ${refusal(error)}`;
  }
  const size = Object.values(files).reduce((sum, file) => sum + file.length, 0);
  for (const { count } of own ? [source, own] : [source]) {
    if (count.bytes > 8 * size + 64) throw new Error(`read ${count.bytes} bytes of ${size}`);
    if (count.open !== 0) throw new Error(`${count.open} files left open`);
  }
  return outcome;
}

/** The model with an adapter. */
async function useAdapter(
  model: ModelFile,
  source: ReturnType<typeof memorySource>,
  reach: (stage: string) => void,
): Promise<string> {
  reach("adapter");
  const file = await openModelFile(source);
  try {
    const fingerprint = await weightsFingerprint(file, 8);
    const { name, metadata, tensors } = file;
    const part = { name, path: name, metadata, tensors, scale: 1, fingerprint };
    return await useModel(withAdapters(model, [{ file, part }]), reach, [part]);
  } finally {
    await file.close();
  }
}

async function useModel(
  file: ModelFile,
  reach: (stage: string) => void,
  adapters: readonly AdapterPart[] = [],
): Promise<string> {
  reach("metadata");
  for (const key of file.metadata.keys()) {
    file.metadata.preview(key, Number.POSITIVE_INFINITY);
  }
  const target = new Uint8Array(1);
  for (const tensor of file.tensors.values()) {
    if (tensor.byteLength > 0) await file.readTensor(tensor, target, tensor.byteLength - 1);
  }
  reach("tokenizer");
  const tokenizer = tokenizerOf(file);
  const prompt = tokenizer.encode(text);
  tokenizer.decode(prompt);
  reach("template");
  const template = templateOf(undefined, file.metadata, tokenizer);
  template?.render(messages, { addGenerationPrompt: true });
  reach("load");
  const backend = new ReferenceBackend();
  const engine = await Engine.load(
    {
      name: file.name,
      format: file.format,
      metadata: file.metadata,
      tensors: file.tensors,
      readTensor: (name, into, offset) => file.readTensor(file.tensors.get(name)!, into, offset),
      tokenizer,
      template,
      backend,
      adapters,
    },
    { contextSize: 64, kvType: dtypeByName("f32")!, availableBytes: 500e6 },
    { progress: () => {}, check: () => {} },
  );
  try {
    reach("generate");
    const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
    const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
    const tokens = prompt.slice(0, 5);
    const options = { temperature: 0, maxTokens: 2 };
    const result = await generate(engine, { tokens, options }, control, () => {});
    return `generate: ${result.stopReason}`;
  } finally {
    engine.dispose();
  }
}

/** The same through the public API. */
export async function runOpened(files: Files): Promise<string> {
  const list = Object.entries(files).map(([name, bytes]) => new File([bytes], name));
  try {
    const model = await open(list.length === 1 ? list[0]! : list, { threads: 1, contextSize: 64 });
    try {
      const { stopReason } = await model.generate(text, { temperature: 0, maxTokens: 3 }).result;
      return `opened: ${stopReason}`;
    } finally {
      await model.dispose();
    }
  } catch (error) {
    return shapeOf(`opened: ${refusal(error)}`);
  }
}
