// Tiny models with rows of at least 256 values and more layers, which mixes of tensor types depend on. llama-quantize and quantize()
// look at names, shapes and a few keys only, so the other keys need not fit the shapes: nobody runs these files.

import { type GgufTensor, type GgufValue, writeGguf } from "../../src/formats/gguf/writer.ts";
import type { ModelFile, TensorInfo } from "../../src/formats/model-file.ts";
import { memorySink } from "../formats/support.ts";

const times = 4;
const mostLayers = 12;

/** Every row four times as long; layers again and again up to twelve, where no key has a value for each. */
export async function widened(file: ModelFile): Promise<Uint8Array<ArrayBuffer>> {
  const { metadata } = file;
  const architecture = metadata.string("general.architecture")!;
  const countKey = `${architecture}.block_count`;
  const own = Number(metadata.preview(countKey, 1)!.value);
  const entries = [...metadata.keys()].map((key): [string, GgufValue] => [
    key,
    metadata.preview(key, Number.POSITIVE_INFINITY)!,
  ]);
  const isPerLayer = ([key, { type }]: [string, GgufValue]): boolean =>
    !key.startsWith("tokenizer.") && type.startsWith("array");
  const copies = entries.some(isPerLayer) ? 1 : Math.max(1, Math.floor(mostLayers / own));
  const tensors: GgufTensor[] = [];
  for (const tensor of file.tensors.values()) {
    const values = new Float32Array(tensor.byteLength / 4);
    await file.readTensor(tensor, new Uint8Array(values.buffer));
    for (const { name, copy } of copiesOf(tensor, own, copies)) {
      tensors.push(wide(tensor, name, values, copy));
    }
  }
  const replaced = entries.map(([key, value]): [string, GgufValue] =>
    key === countKey && copies > 1 ? [key, { type: "u32", value: own * copies }] : [key, value],
  );
  const sink = memorySink();
  await writeGguf(sink, replaced, tensors);
  return sink.bytes();
}

function copiesOf(
  { name }: TensorInfo,
  layers: number,
  copies: number,
): { name: string; copy: number }[] {
  const match = /^blk\.(\d+)\.(.*)$/.exec(name);
  if (!match) return [{ name, copy: 0 }];
  return Array.from({ length: copies }, (_, copy) => ({
    name: `blk.${Number(match[1]) + copy * layers}.${match[2]}`,
    copy,
  }));
}

function wide(tensor: TensorInfo, name: string, values: Float32Array, copy: number): GgufTensor {
  const { shape, dtype } = tensor;
  const isMatrix = shape.filter((dim) => dim > 1).length >= 2 && dtype.name === "f32";
  if (!isMatrix) {
    return { name, dtype, shape, data: () => [new Uint8Array(values.buffer)] };
  }
  const cols = shape.at(-1)!;
  const result = new Float32Array(values.length * times); // [rows, times * cols]
  for (let i = 0; i < result.length; i++) {
    const row = Math.floor(i / (cols * times));
    const part = Math.floor(i / cols) % times;
    const value = values[row * cols + (i % cols)]!;
    result[i] = value * (1 + 0.37 * part + 0.11 * copy);
  }
  const data = () => [new Uint8Array(result.buffer)];
  return { name, dtype, shape: [...shape.slice(0, -1), cols * times], data };
}
