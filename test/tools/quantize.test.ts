// quantize() against llama.cpp: whole files with the same bytes for every type, from F32, F16 and BF16, with tied
// embeddings and with rows that are no whole blocks; and the same tensors with an importance matrix.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { filesModelSource } from "../../src/platform/sources/blob.ts";
import { quantizeChunk } from "../../src/tools/quantize/chunk.ts";
import { fastQuantizer } from "../../src/tools/quantize/fast.ts";
import { fileTypeNamed, fileTypes } from "../../src/tools/quantize/file-types.ts";
import { type Importance, readImportance } from "../../src/tools/quantize/importance.ts";
import { type PlanOptions, planTensors } from "../../src/tools/quantize/plan.ts";
import { quantizeInto } from "../../src/tools/quantize/quantize.ts";
import type { QuantizePool } from "../../src/tools/quantize/thread.ts";
import {
  collected,
  deep,
  type SampleShape,
  sampleImportance,
  sampleModel,
  samples,
} from "./quantize-model.ts";

interface Golden {
  files: Record<string, Record<string, string>>;
  weighted: Record<string, Record<string, string>>;
  types: Record<string, Record<string, string>>;
}

const golden = JSON.parse(
  readFileSync(new URL("data/quantize-llama-cpp.json", import.meta.url), "utf8"),
) as Golden;

async function opened(bytes: Uint8Array<ArrayBuffer>) {
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

async function quantized(
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

function hash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
}

/** Names, types and bytes of all tensors: what an importance matrix adds to the metadata is left out. */
async function tensorHash(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
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

const names = fileTypes.map(({ name }) => name);

describe.each(Object.keys(samples))("%s", (sample) => {
  test.each(names)("%s: the file that llama.cpp writes", async (type) => {
    const model = await modelOf(samples[sample]!);
    expect(hash(await quantized(model, type))).toBe(golden.files[sample]![type]);
  });

  test.each(Object.keys(golden.weighted[sample]!))(
    "%s with an importance matrix: the tensors that llama.cpp writes",
    async (type) => {
      const shape = samples[sample]!;
      const matrix = await opened(await sampleImportance(shape));
      const importance = await readImportance(matrix, "sample.imatrix.gguf");
      const bytes = await quantized(await modelOf(shape), type, importance);
      expect(await tensorHash(bytes)).toBe(golden.weighted[sample]![type]);
    },
  );
});

describe("mixes of 20 layers", () => {
  /** "5 q6_k, q4_k, ...": how many layers in a row have a type. */
  const runs = (types: readonly string[]): string => {
    const result: { type: string; count: number }[] = [];
    for (const type of types) {
      if (result.at(-1)?.type === type) result.at(-1)!.count++;
      else result.push({ type, count: 1 });
    }
    return result.map(({ type, count }) => (count > 1 ? `${count} ${type}` : type)).join(", ");
  };

  test.each(names)("%s has llama.cpp's types", async (name) => {
    const file = await opened(await modelOf(deep));
    const plan = planTensors(file, { ...plainOptions, type: fileTypeNamed(name) });
    const found: Record<string, string[]> = {};
    for (const { tensor, target } of plan) {
      const [, role] = /^(?:blk\.\d+\.)?(.*)\.weight$/.exec(tensor.name)!;
      if (role!.includes("norm")) continue;
      found[role!] ??= [];
      found[role!]!.push(target.name);
    }
    const compact = Object.entries(found).map(([role, types]) => [role, runs(types)]);
    expect(Object.fromEntries(compact)).toEqual(golden.types[name]);
  });
});

/** Each is made once. */
const models = new Map<SampleShape, Promise<Uint8Array<ArrayBuffer>>>();
function modelOf(shape: SampleShape): Promise<Uint8Array<ArrayBuffer>> {
  const made = models.get(shape) ?? sampleModel(shape);
  models.set(shape, made);
  return made;
}
