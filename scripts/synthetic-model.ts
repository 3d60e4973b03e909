// Models of real shapes with random weights, for benchmarks: a model's speed depends on its shape and types, not on
// its weights. make-model.ts writes them to disk; nothing here touches a file.
//
// Weights are random normal values (standard deviation 0.02, so that activations and logits stay as small as in a
// trained model). A few megabytes of each type are made once, and tensors are filled with pieces of them from random
// positions: quantizing gigabytes would take minutes and measure the same. The same shape, type and seed give the same
// bytes.

import { UsageError } from "../src/base/errors.ts";
import { bytesFor, type DType } from "../src/dtypes/dtype.ts";
import { sampleBlocks } from "../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import type { GgufTensor, GgufValue } from "../src/formats/gguf/writer.ts";
import {
  arrayEntry,
  type MetadataEntry,
  type Scalar,
  type ScalarType,
  TypedMetadata,
} from "../src/formats/typed-metadata.ts";
import type { WeightSpec } from "../src/models/arch.ts";
import { archNamed } from "../src/models/table.ts";
import { Random } from "../test/support/random.ts";
import { syntheticVocabulary } from "./synthetic-vocabulary.ts";

export interface Shape {
  architecture: string;
  layers: number;
  embed: number;
  feedForward: number;
  heads: number;
  kvHeads: number;
  vocab: number;
  context: number;
  normEps: number;
  ropeBase: number;
  /** The output matrix is the embedding table. */
  tied?: boolean;
}

const llama = { architecture: "llama", vocab: 32000, normEps: 1e-5, ropeBase: 1e4 };
const qwen = {
  architecture: "qwen2",
  vocab: 151936,
  context: 32768,
  normEps: 1e-6,
  ropeBase: 1e6,
};

/** The shapes, from the models' own configurations. */
export const shapes: Readonly<Record<string, Shape>> = {
  tiny: {
    ...llama,
    layers: 2,
    embed: 256,
    feedForward: 512,
    heads: 4,
    kvHeads: 2,
    vocab: 512,
    context: 512,
  },
  // TinyLlama's.
  "llama-1b": {
    ...llama,
    layers: 22,
    embed: 2048,
    feedForward: 5632,
    heads: 32,
    kvHeads: 4,
    context: 2048,
  },
  "llama2-7b": {
    ...llama,
    layers: 32,
    embed: 4096,
    feedForward: 11008,
    heads: 32,
    kvHeads: 32,
    context: 4096,
  },
  "llama2-13b": {
    ...llama,
    layers: 40,
    embed: 5120,
    feedForward: 13824,
    heads: 40,
    kvHeads: 40,
    context: 4096,
  },
  "qwen1.5-0.5b": {
    ...qwen,
    layers: 24,
    embed: 1024,
    feedForward: 2816,
    heads: 16,
    kvHeads: 16,
    tied: true,
  },
  "qwen1.5-1.8b": {
    ...qwen,
    layers: 24,
    embed: 2048,
    feedForward: 5504,
    heads: 16,
    kvHeads: 16,
  },
  "qwen1.5-4b": {
    ...qwen,
    layers: 40,
    embed: 2560,
    feedForward: 6912,
    heads: 20,
    kvHeads: 20,
  },
  "qwen1.5-7b": {
    ...qwen,
    layers: 32,
    embed: 4096,
    feedForward: 11008,
    heads: 32,
    kvHeads: 32,
  },
  "qwen1.5-14b": {
    ...qwen,
    layers: 40,
    embed: 5120,
    feedForward: 13696,
    heads: 40,
    kvHeads: 40,
    vocab: 152064,
  },
};

/** What llama.cpp's quantizer uses if a row is not a multiple of the block; F16 if that does not fit either. */
const fallbacks: Readonly<Record<string, string>> = {
  iq1_s: "iq4_nl",
  iq1_m: "iq4_nl",
  iq2_xxs: "iq4_nl",
  iq2_xs: "iq4_nl",
  iq2_s: "iq4_nl",
  iq3_xxs: "iq4_nl",
  iq3_s: "iq4_nl",
  iq4_xs: "iq4_nl",
  q2_k: "q4_0",
  q3_k: "q4_0",
  tq1_0: "q4_0",
  tq2_0: "q4_0",
  q4_k: "q5_0",
  q5_k: "q5_1",
  q6_k: "q8_0",
};

/** Types for activations only; llama.cpp aborts if weights have them. */
const activationTypes: readonly string[] = ["q8_1", "q8_k"];

/** The most values made of each type; tensors repeat them. */
const mostPoolElements = 1 << 20;
/** How far norms and biases are from 1 and 0. */
const deviation = 0.02;

export interface SyntheticModel {
  name: string;
  metadata: [key: string, value: GgufValue][];
  tensors: GgufTensor[];
  /** Of all tensors together. */
  weightBytes: number;
  /** What differs from the request: "ffn_down.weight: rows of 2880 are no multiple of 256: q5_0 instead of q4_k". */
  notes: string[];
}

export function syntheticModel(shapeName: string, typeName: string, seed = 1): SyntheticModel {
  const shape = shapes[shapeName];
  if (!shape) {
    throw new UsageError(
      `shape "${shapeName}" is not known. Known: ${Object.keys(shapes).join(", ")}`,
    );
  }
  const type = dtypeByName(typeName);
  if (!type) {
    throw new UsageError(
      `type "${typeName}" is not known; expected a tensor type such as q4_0, q4_k or f16`,
    );
  }
  const name = `${shapeName}-${type.name}-synthetic`;
  const metadata = [...modelMetadata(name, shape), ...syntheticVocabulary(shape.vocab)];
  const random = new Random(seed);
  const pool = makePools(Math.min(mostPoolElements, shape.feedForward * shape.embed));
  const notes = new Map<string, string>();
  if (activationTypes.includes(type.name)) {
    notes.set(type.name, `${type.name} is a type of activations: llama.cpp cannot run this file`);
  }
  const tensors = weightSpecs(shape, metadata).map((spec): GgufTensor => {
    const dtype = spec.shape.length === 1 ? dtypeByName("f32")! : fitting(type, spec, notes);
    const tensorSeed = random.below(2 ** 32);
    const data = () =>
      spec.shape.length === 1
        ? [vectorBytes(spec, tensorSeed)]
        : stretches(pool(dtype), dtype, elementsOf(spec), tensorSeed);
    return { name: spec.name, dtype, shape: spec.shape, data };
  });
  const sizes = tensors.map((tensor) => bytesFor(tensor.dtype, elementsOf(tensor)));
  const weightBytes = sizes.reduce((sum, size) => sum + size, 0);
  return { name, metadata, tensors, weightBytes, notes: [...notes.values()] };
}

function modelMetadata(name: string, shape: Shape): [string, GgufValue][] {
  const { architecture } = shape;
  const u32 = (value: number): GgufValue => ({ type: "u32", value });
  const f32 = (value: number): GgufValue => ({ type: "f32", value: Math.fround(value) });
  const text = (value: string): GgufValue => ({ type: "string", value });
  return [
    ["general.architecture", text(architecture)],
    ["general.name", text(name)],
    [`${architecture}.context_length`, u32(shape.context)],
    [`${architecture}.embedding_length`, u32(shape.embed)],
    [`${architecture}.block_count`, u32(shape.layers)],
    [`${architecture}.feed_forward_length`, u32(shape.feedForward)],
    [`${architecture}.attention.head_count`, u32(shape.heads)],
    [`${architecture}.attention.head_count_kv`, u32(shape.kvHeads)],
    [`${architecture}.attention.layer_norm_rms_epsilon`, f32(shape.normEps)],
    [`${architecture}.rope.freq_base`, f32(shape.ropeBase)],
    [`${architecture}.rope.dimension_count`, u32(shape.embed / shape.heads)],
  ];
}

/** The weights that the architecture requires; of the optional ones only an output matrix that is not tied. */
function weightSpecs(shape: Shape, entries: readonly [string, GgufValue][]): WeightSpec[] {
  const metadata = new TypedMetadata(
    "gguf",
    "(synthetic)",
    new Map(entries.map(([key, value]) => [key, metadataEntry(value)])),
  );
  const table = {
    name: "token_embd.weight",
    shape: [shape.vocab, shape.embed],
    dtype: dtypeByName("f32")!,
  };
  const arch = archNamed(shape.architecture);
  const config = arch.config({ metadata, tensors: new Map([[table.name, table]]) });
  return arch
    .weights(config)
    .filter(({ name, optional }) => !optional || (name === "output.weight" && !shape.tied));
}

function metadataEntry({ type, value }: GgufValue): MetadataEntry {
  const elementType = /^array<(\w+)>$/.exec(type)?.[1];
  return elementType === undefined
    ? { type: type as ScalarType, value: value as Scalar }
    : arrayEntry(elementType as ScalarType, value as readonly Scalar[]);
}

function fitting(type: DType, spec: WeightSpec, notes: Map<string, string>): DType {
  const cols = spec.shape.at(-1)!;
  if (cols % type.blockElems === 0) return type;
  const candidate = dtypeByName(fallbacks[type.name] ?? "f16")!;
  const fallback = cols % candidate.blockElems === 0 ? candidate : dtypeByName("f16")!;
  const kind = spec.name.replace(/^blk\.\d+\./, "");
  notes.set(
    kind,
    `${kind}: rows of ${cols} are no multiple of ${type.blockElems}: ${fallback.name} instead of ${type.name}`,
  );
  return fallback;
}

function elementsOf({ shape }: { shape: readonly number[] }): number {
  return shape.reduce((product, dim) => product * dim, 1);
}

/** Norms are about 1, biases about 0. */
function vectorBytes(spec: WeightSpec, seed: number): Uint8Array {
  const random = new Random(seed);
  const center = spec.name.endsWith("norm.weight") ? 1 : 0;
  const values = Float32Array.from(
    { length: elementsOf(spec) },
    () => center + deviation * random.normal(),
  );
  return new Uint8Array(values.buffer);
}

/** Pieces of the pool from random blocks, until the tensor is full. */
function* stretches(
  pool: Uint8Array,
  dtype: DType,
  elements: number,
  seed: number,
): Generator<Uint8Array> {
  const random = new Random(seed);
  const poolBlocks = pool.length / dtype.blockBytes;
  for (let left = elements / dtype.blockElems; left > 0; ) {
    const first = random.below(poolBlocks);
    const count = Math.min(left, poolBlocks - first);
    yield pool.subarray(first * dtype.blockBytes, (first + count) * dtype.blockBytes);
    left -= count;
  }
}

/** Blocks of any type, made at first use. */
function makePools(elements: number): (dtype: DType) => Uint8Array {
  const pools = new Map<DType, Uint8Array>();
  return (dtype) => {
    const pool = pools.get(dtype) ?? sampleBlocks(dtype, elements);
    pools.set(dtype, pool);
    return pool;
  };
}
