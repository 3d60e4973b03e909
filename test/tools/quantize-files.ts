// Whole files as quantize() makes them of the samples of quantize-model.ts, and llama.cpp's hashes of the same.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect } from "vitest";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { filesModelSource } from "../../src/platform/sources/blob.ts";
import { quantizeChunk } from "../../src/tools/quantize/chunk.ts";
import { fastQuantizer } from "../../src/tools/quantize/fast.ts";
import { fileTypeNamed } from "../../src/tools/quantize/file-types.ts";
import { type Importance, readImportance } from "../../src/tools/quantize/importance.ts";
import { type PlanOptions, planTensors } from "../../src/tools/quantize/plan.ts";
import { quantizeInto } from "../../src/tools/quantize/quantize.ts";
import type { QuantizePool } from "../../src/tools/quantize/thread.ts";
import {
  collected,
  type SampleShape,
  sampleImportance,
  sampleModel,
  samples,
} from "./quantize-model.ts";

interface Golden {
  files: Record<string, Record<string, string>>;
  weighted: Record<string, Record<string, string>>;
}

export const golden = JSON.parse(
  readFileSync(new URL("data/quantize-llama-cpp.json", import.meta.url), "utf8"),
) as Golden;

export async function opened(bytes: Uint8Array<ArrayBuffer>): Promise<ModelFile> {
  return await openModelFile(await filesModelSource([new File([bytes], "model.gguf")]));
}

/** The pool's work on this thread: threads are tried in quantize-api.test.ts. */
const quick = fastQuantizer();
const pool = {
  run: async (chunk) => quantizeChunk(chunk, quick),
} as Pick<QuantizePool, "run"> as QuantizePool;

const plainOptions: Omit<PlanOptions, "type"> = {
  patterns: [],
  pure: false,
  leaveOutput: false,
  allowRequantize: false,
  hasImportance: false,
};

export async function quantized(
  model: Uint8Array<ArrayBuffer>,
  typeName: string,
  importance?: Importance,
): Promise<Uint8Array<ArrayBuffer>> {
  const file = await opened(model);
  const type = fileTypeNamed(typeName);
  const hasImportance = importance !== undefined;
  const plan = planTensors(file, { ...plainOptions, type, hasImportance });
  const task = { file, plan, type, importance, pool, threads: 2, measure: false };
  return await collected((sink) =>
    quantizeInto(sink, { ...task, signal: undefined, onProgress: undefined }),
  );
}

export function hash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
}

/** Names, types and bytes of all tensors: what an importance matrix adds to the metadata is left out. */
export async function tensorHash(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const file = await opened(bytes);
  const digest = createHash("sha256");
  for (const tensor of file.tensors.values()) {
    digest.update(`${tensor.name} ${tensor.dtype.name}\n`);
    const data = new Uint8Array(tensor.byteLength);
    await file.readTensor(tensor, data);
    digest.update(data);
  }
  return digest.digest("hex").slice(0, 16);
}

/** The file of a type is llama.cpp's; where llama.cpp refuses to make one without an importance matrix, there is no hash. */
export async function expectSameFile(sample: string, type: string): Promise<void> {
  const model = await modelOf(samples[sample]!);
  expect(hash(await quantized(model, type))).toBe(golden.files[sample]![type]);
}

/** The same with an importance matrix, of all tensors. */
export async function expectSameTensors(sample: string, type: string): Promise<void> {
  const shape = samples[sample]!;
  const matrix = await opened(await sampleImportance(shape));
  const importance = await readImportance(matrix, "sample.imatrix.gguf");
  const bytes = await quantized(await modelOf(shape), type, importance);
  expect(await tensorHash(bytes)).toBe(golden.weighted[sample]![type]);
}

/** Types whose quantizers search a codebook: seconds for each file. */
export function searchesCodebook(type: string): boolean {
  return /^IQ[123]/.test(type);
}

/** Each is made once. */
const models = new Map<SampleShape, Promise<Uint8Array<ArrayBuffer>>>();
function modelOf(shape: SampleShape): Promise<Uint8Array<ArrayBuffer>> {
  const made = models.get(shape) ?? sampleModel(shape);
  models.set(shape, made);
  return made;
}
