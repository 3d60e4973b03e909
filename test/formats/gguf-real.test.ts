// Real GGUF files, made by llama.cpp: the reader finds what @huggingface/gguf finds, and the writer writes the same
// bytes back.

import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { gguf } from "@huggingface/gguf";
import { expect, test } from "vitest";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import { valueTypes } from "../../src/formats/gguf/value-types.ts";
import { modelTensors, writeGguf } from "../../src/formats/gguf/writer.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { nodeModelSource } from "../../src/platform/sources/node-file.ts";
import { describeShared, hasShared, sharedPath } from "../support/shared.ts";

function ggufFiles(folder: string): string[] {
  if (!hasShared(folder)) return [];
  return readdirSync(sharedPath(folder), { recursive: true })
    .map((file) => `${folder}/${String(file)}`)
    .filter((file) => file.endsWith(".gguf"));
}

async function open(path: string): Promise<ModelFile> {
  return await openGguf(await nodeModelSource(path), basename(path));
}

const files = [...ggufFiles("vocab"), ...ggufFiles("models")];

describeShared("real gguf files", "vocab", () => {
  test.each(files)("%s: as @huggingface/gguf reads it", async (relative) => {
    const path = sharedPath(relative);
    const oracle = await gguf(path, { allowLocalFile: true, typedMetadata: true });
    const model = await open(path);
    try {
      compareMetadata(model, oracle.typedMetadata);
      const ours = [...model.tensors.values()].map((tensor) => ({
        name: tensor.name,
        shape: tensor.shape.toReversed().map(BigInt),
        dtype: tensor.dtype.ggufId,
        offset: BigInt(tensor.offset) - oracle.tensorDataOffset,
      }));
      const theirs = oracle.tensorInfos.map(({ name, shape, dtype, offset }) => {
        return { name, shape, dtype: Number(dtype), offset };
      });
      expect(ours).toEqual(theirs);
    } finally {
      await model.close();
    }
  });

  test.each(files)("%s: written back byte for byte", async (relative) => {
    const path = sharedPath(relative);
    const hash = createHash("sha256");
    const model = await open(path);
    const sink = { write: async (bytes: Uint8Array) => void hash.update(bytes) };
    await writeGguf(sink, model.metadata, modelTensors(model));
    await model.close();
    const original = createHash("sha256").update(await readFile(path));
    expect(hash.digest("hex")).toBe(original.digest("hex"));
  });
});

/** Same keys in the same order, same types, same values; the oracle adds three fields of the header. */
function compareMetadata(
  model: ModelFile,
  typed: Record<string, { type: number; subType?: number; value: unknown }>,
): void {
  const theirs = Object.entries(typed).filter(
    ([key]) => !["version", "tensor_count", "kv_count"].includes(key),
  );
  expect([...model.metadata.keys()]).toEqual(theirs.map(([key]) => key));
  const nameOf = (id: number | undefined) => valueTypes.find((type) => type.id === id)?.name;
  for (const [key, { type, subType, value }] of theirs) {
    const ours = model.metadata.preview(key, Number.POSITIVE_INFINITY)!;
    expect(ours.type).toBe(Array.isArray(value) ? `array<${nameOf(subType)}>` : nameOf(type));
    if (Array.isArray(value)) expect(sameArrays(ours.value as unknown[], value)).toBe(true);
    else expect(ours.value).toBe(value);
  }
}

/**
 * Vocabularies have hundreds of thousands of elements: expect() on each would take minutes. The oracle's TextDecoder
 * drops a leading U+FEFF, which is a token of Llama 2; the byte-for-byte test shows that it is there.
 */
function sameArrays(a: readonly unknown[], b: readonly unknown[]): boolean {
  const asOracle = (item: unknown) =>
    typeof item === "string" ? item.replace(/^\uFEFF/, "") : item;
  return a.length === b.length && a.every((item, i) => Object.is(asOracle(item), b[i]));
}
