// A short name for the weights of a model: two files with the same fingerprint compute the same. Hashing all bytes would take as
// long as reading them, so that tensors are sampled: their names, types, shapes and some bytes from the middle of each.

import { hex, sha256 } from "../base/sha256.ts";
import type { ModelFile, TensorInfo } from "./model-file.ts";

const SAMPLE_BYTES = 64;

/** Tensors of a local model that are looked into. */
export const LOCAL_SAMPLES = 400;

/** `most`: tensors that are looked into; all are named. */
export async function weightsFingerprint(file: ModelFile, most: number): Promise<string> {
  const tensors = [...file.tensors.values()];
  const names = tensors.map(({ name, dtype, shape }) => `${name} ${dtype.name} ${shape.join("x")}`);
  const parts = [new TextEncoder().encode(names.join("\n"))];
  const every = Math.max(1, Math.ceil(tensors.length / most));
  for (let i = 0; i < tensors.length; i += every) {
    const tensor = tensors[i]!;
    const { start, length } = sampleOf(tensor);
    const sample = new Uint8Array(length);
    await file.readTensor(tensor, sample, start);
    parts.push(sample);
  }
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return hex(sha256(all));
}

/** Which bytes of a tensor are its sample. */
function sampleOf({ byteLength }: TensorInfo): { start: number; length: number } {
  const length = Math.min(SAMPLE_BYTES, byteLength);
  return { start: Math.floor((byteLength - length) / 2), length };
}

/**
 * The same file, which remembers samples of the bytes that are read: when the weights are loaded, their fingerprint costs no reads of
 * its own. Over HTTP each read is a request.
 */
export function withSamples(file: ModelFile): ModelFile {
  const seen = new Map<string, { bytes: Uint8Array; has: boolean[] }>();
  return {
    format: file.format,
    name: file.name,
    metadata: file.metadata,
    tensors: file.tensors,
    tokenizer: file.tokenizer,
    totalBytes: file.totalBytes,
    async readTensor(tensor, target, byteOffset = 0) {
      const { start, length } = sampleOf(tensor);
      const known = seen.get(tensor.name) ?? {
        bytes: new Uint8Array(length),
        has: new Array<boolean>(length).fill(false),
      };
      const isSample = byteOffset === start && target.length === length;
      if (isSample && known.has.every(Boolean)) return target.set(known.bytes);
      await file.readTensor(tensor, target, byteOffset);
      // A sample may come in two pieces.
      const from = Math.max(start, byteOffset);
      const end = Math.min(start + length, byteOffset + target.length);
      if (from >= end) return;
      known.bytes.set(target.subarray(from - byteOffset, end - byteOffset), from - start);
      known.has.fill(true, from - start, end - start);
      seen.set(tensor.name, known);
    },
    filePartsOf: (tensor) => file.filePartsOf(tensor),
    close: () => file.close(),
  };
}
