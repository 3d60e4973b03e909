// A model's keys as llama.cpp's converter writes them: general.*, then the architecture's. The tokenizer's are made in
// tokenizer.ts.
//
// Readers present every format under GGUF's keys already. Left to do: take out what is only Lantern's (lantern.*), and
// rope scalings that GGUF has no keys for; those become a tensor of factors (rope_freqs.weight).

import type { ModelFile } from "../../formats/model-file.ts";
import type { ScalarEntry } from "../../formats/typed-metadata.ts";
import type { ModelConfig } from "../../models/arch.ts";
import { archNamed } from "../../models/table.ts";
import { asMetadata, type Entries, text, u32 } from "./entries.ts";

/** The ways of rope scaling that have keys in GGUF. */
const ropeScalings: readonly string[] = ["none", "linear", "yarn", "longrope"];

/** The version of the quantized types' layouts, of which there has been one for years. */
const quantizationVersion = 2;

export interface ModelEntries {
  entries: Entries;
  /** What the model is as stored, and what it will be when the entries are read. */
  from: ModelConfig;
  to: ModelConfig;
  /** rope_freqs.weight: by how much each pair turns slower, where no key says it. */
  ropeFactors: Float32Array | undefined;
}

export function modelEntries(file: ModelFile, fileType: number): ModelEntries {
  const { metadata, tensors } = file;
  const name = metadata.string("general.architecture")!;
  const arch = archNamed(name);
  const from = arch.config(file);
  const prefix = `${name}.`;
  const scaling = `${prefix}rope.scaling.`;
  const known = ropeScalings.includes(metadata.string(`${scaling}type`) ?? "none");
  const own: Entries = new Map();
  for (const key of metadata.keys()) {
    if (!key.startsWith(prefix) || (!known && key.startsWith(scaling))) continue;
    const { type, value } = metadata.preview(key)!;
    own.set(key, { type, value } as ScalarEntry); // none of a configuration's keys is an array
  }
  own.set(`${prefix}vocab_size`, u32(from.vocabSize));
  own.set(`${prefix}rope.dimension_count`, u32(from.rope.dims));

  const entries: Entries = new Map([
    ["general.architecture", text(name)],
    ["general.type", text("model")],
    ["general.name", text(metadata.string("general.name") ?? file.name)],
    ["general.size_label", text(sizeLabel(parameters(file)))],
    ...own,
    ["general.file_type", u32(fileType)],
    ["general.quantization_version", u32(quantizationVersion)],
  ]);
  const to = arch.config({ metadata: asMetadata(entries), tensors });
  return { entries, from, to, ropeFactors: ropeFactors(from, to) };
}

export function parameters(file: ModelFile): number {
  let sum = 0;
  for (const { shape } of file.tensors.values()) sum += shape.reduce((a, b) => a * b, 1);
  return sum;
}

/** By how much the pairs turn slower in the model than the keys say; undefined when they say it all. */
function ropeFactors(from: ModelConfig, to: ModelConfig): Float32Array | undefined {
  const factors = to.rope.frequencies.map((plain, pair) => plain / from.rope.frequencies[pair]!);
  return factors.some((factor) => factor !== 1) ? factors : undefined;
}

/** "26M", "1.1B": two digits at least, as llama.cpp labels models. */
export function sizeLabel(count: number): string {
  const units: readonly [size: number, suffix: string][] = [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "K"],
  ];
  const [size, suffix] = units.find(([least]) => count > least) ?? units.at(-1)!;
  const scaled = count / size;
  const digits = Math.round(scaled) === 0 ? 0 : String(Math.round(scaled)).length;
  return `${scaled.toFixed(Math.max(0, 2 - digits))}${suffix}`;
}
