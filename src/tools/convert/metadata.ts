// A model's keys as llama.cpp's converter writes them: general.*, then the architecture's. tokenizer.ts makes the
// tokenizer's.
//
// Lantern's readers already present every format under GGUF's keys. This file removes Lantern's own keys (lantern.*)
// and rope scalings without GGUF keys, which become a tensor of factors (rope_freqs.weight).

import type { Metadata } from "../../base/metadata.ts";
import type { ModelFile } from "../../formats/model-file.ts";
import {
  arrayEntry,
  type MetadataEntry,
  type ScalarEntry,
  type ScalarType,
} from "../../formats/typed-metadata.ts";
import type { ModelConfig } from "../../models/arch.ts";
import { archNamed } from "../../models/table.ts";
import { asMetadata, type Entries, text, u32 } from "./entries.ts";

/** The rope scaling types that have GGUF keys. */
const ropeScalings: readonly string[] = ["none", "linear", "yarn", "longrope"];

/** The version of the block layouts of quantized types. */
const quantizationVersion = 2;

export interface ModelEntries {
  entries: Entries;
  /** The model's configuration as stored, and as read back from the new entries. */
  from: ModelConfig;
  to: ModelConfig;
  /** rope_freqs.weight: the factor by which each pair turns slower, if no key expresses it. */
  ropeFactors: Float32Array | undefined;
}

/** Keys that do not describe the computation. */
const others = /^(?:general|tokenizer|lantern|split)\./;

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
    // Some keys of a model have no prefix: xielu.beta.
    if (others.test(key) || (!known && key.startsWith(scaling))) continue;
    own.set(key, copied(metadata, key));
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

/** A key's value, whole if it is a list. */
function copied(metadata: Metadata, key: string): MetadataEntry {
  const { type, value } = metadata.preview(key, Number.POSITIVE_INFINITY)!;
  if (!Array.isArray(value)) return { type, value } as ScalarEntry;
  const element = /^array<(.+)>$/.exec(type)![1] as ScalarType;
  return arrayEntry(element, value);
}

export function parameters(file: ModelFile): number {
  let sum = 0;
  for (const { shape } of file.tensors.values()) sum += shape.reduce((a, b) => a * b, 1);
  return sum;
}

/** The factors by which pairs turn slower in the model than the keys say; undefined if the keys say it all. */
function ropeFactors(from: ModelConfig, to: ModelConfig): Float32Array | undefined {
  const factors = to.rope.frequencies.map((plain, pair) => plain / from.rope.frequencies[pair]!);
  return factors.some((factor) => factor !== 1) ? factors : undefined;
}

/** "26M", "1.1B": at least two digits, as llama.cpp labels models. */
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
