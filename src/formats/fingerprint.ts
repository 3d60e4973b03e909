// A short name for the weights of a model: two files with the same fingerprint compute the same. Hashing all bytes would take as
// long as reading them, so that tensors are sampled: their names, types, shapes and some bytes from the middle of each.

import { hex, sha256 } from "../base/sha256.ts";
import type { ModelFile } from "./model-file.ts";

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
    const sample = new Uint8Array(Math.min(SAMPLE_BYTES, tensor.byteLength));
    const middle = Math.floor((tensor.byteLength - sample.length) / 2);
    await file.readTensor(tensor, sample, middle);
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
