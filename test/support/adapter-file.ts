// LoRA adapters with random factors, as GGUF files: the same bytes for the same seed everywhere, so that what llama.cpp computes with
// them is a fact that tests can hold.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { type GgufTensor, type GgufValue, writeGguf } from "../../src/formats/gguf/writer.ts";
import { Random } from "./random.ts";

export interface AdapterFileOptions {
  seed?: number;
  rank?: number;
  alpha?: number;
  /** The type of all factors. */
  type?: string;
  /** The spread of what it adds, relative to activations. */
  size?: number;
  /** Which tensors of the model get factors, also those of experts. Default: matrices of layers. */
  tensors?: RegExp;
  architecture?: string;
  /** Keys besides the usual ones, or in their place. */
  more?: readonly [string, GgufValue][];
  /** Changes the tensors, for files that are wrong. */
  change?: (tensors: GgufTensor[]) => GgufTensor[];
}

/** The tensors of a model, by name: [outputs, inputs], or [experts, outputs, inputs]. */
export type ModelShapes = Iterable<readonly [name: string, { readonly shape: readonly number[] }]>;

export async function adapterGguf(
  model: ModelShapes,
  options: AdapterFileOptions = {},
): Promise<Uint8Array> {
  const { seed = 1, rank = 4, alpha = 8, type = "f32", size = 0.5, more = [] } = options;
  const { tensors = /^blk\..*(attn_(q|k|v|output|qkv)|ffn_(gate|up|down))\.weight$/ } = options;
  const random = new Random(seed);
  const factors: GgufTensor[] = [];
  for (const [name, { shape }] of model) {
    if (!tensors.test(name)) continue;
    const experts = shape.slice(0, -2);
    const [outputs, inputs] = shape.slice(-2) as [number, number];
    const isEmbedding = name === "token_embd.weight";
    const a = isEmbedding ? [outputs, rank] : [...experts, rank, inputs];
    const b = isEmbedding ? [inputs, rank] : [...experts, outputs, rank];
    factors.push(
      factor(`${name}.lora_a`, a, isEmbedding ? 1 : 1 / Math.sqrt(inputs), type, random),
      factor(`${name}.lora_b`, b, size / Math.sqrt(rank), type, random),
    );
  }
  const entries: [string, GgufValue][] = [
    ["general.architecture", { type: "string", value: options.architecture ?? "llama" }],
    ["general.type", { type: "string", value: "adapter" }],
    ["adapter.type", { type: "string", value: "lora" }],
    ["adapter.lora.alpha", { type: "f32", value: alpha }],
  ];
  const kept = entries.filter(([key]) => !more.some(([other]) => other === key));
  const parts: Uint8Array[] = [];
  await writeGguf(
    { write: async (part) => void parts.push(part.slice()) },
    [...kept, ...more],
    options.change?.(factors) ?? factors,
  );
  return Buffer.concat(parts);
}

function factor(
  name: string,
  shape: readonly number[],
  spread: number,
  type: string,
  random: Random,
): GgufTensor {
  const dtype = dtypeByName(type)!;
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Float32Array.from({ length: count }, () => spread * random.normal());
  const bytes = new Uint8Array(bytesFor(dtype, count));
  dtype.quantize!(values, 0, bytes, 0, count / dtype.blockElems);
  return { name, dtype, shape, data: () => [bytes] };
}

/** Writes it into a folder; returns its path. */
export async function adapterFile(
  folder: string,
  name: string,
  model: ModelShapes,
  options: AdapterFileOptions = {},
): Promise<string> {
  const path = join(folder, `${name}.gguf`);
  writeFileSync(path, await adapterGguf(model, options));
  return path;
}
