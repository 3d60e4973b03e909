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
import { isQuantizable } from "../src/formats/quantizable.ts";
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
import { f32, type Shape, shapes, text, u32 } from "./synthetic-shapes.ts";
import { syntheticVocabulary } from "./synthetic-vocabulary.ts";

/** The types that llama.cpp's quantizer uses if a row is not a multiple of the block; F16 if that does not fit either. */
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
/** The deviation of tensors that stay F32 from their centers. */
const deviation = 0.02;

export interface SyntheticModel {
  name: string;
  metadata: [key: string, value: GgufValue][];
  tensors: GgufTensor[];
  /** Bytes of all tensors together. */
  weightBytes: number;
  /** Differences from the request: "ffn_down.weight: rows of 2880 are no multiple of 256: q5_0 instead of q4_k". */
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
  const specs = weightSpecs(shape, metadata);
  const largest = Math.max(...specs.map(elementsOf));
  const random = new Random(seed);
  const pool = makePools(Math.min(mostPoolElements, largest));
  const notes = new Map<string, string>();
  if (activationTypes.includes(type.name)) {
    notes.set(type.name, `${type.name} is a type of activations: llama.cpp cannot run this file`);
  }
  const tensors = specs.map((spec): GgufTensor => {
    const quantizable = isQuantizable(spec);
    const dtype = quantizable
      ? fitting(ownType(shape, spec) ?? type, spec, notes)
      : dtypeByName("f32")!;
    const tensorSeed = random.below(2 ** 32);
    const data = () =>
      quantizable
        ? stretches(pool(dtype), dtype, elementsOf(spec), tensorSeed)
        : [keptBytes(spec, tensorSeed, shape)];
    const isColumn = shape.columns?.some((ending) => spec.name.endsWith(ending));
    return { name: spec.name, dtype, shape: isColumn ? [...spec.shape, 1] : spec.shape, data };
  });
  const sizes = tensors.map((tensor) => bytesFor(tensor.dtype, elementsOf(tensor)));
  const weightBytes = sizes.reduce((sum, size) => sum + size, 0);
  return { name, metadata, tensors, weightBytes, notes: [...notes.values()] };
}

function modelMetadata(name: string, shape: Shape): [string, GgufValue][] {
  const { architecture, heads } = shape;
  const headDim = shape.headDim ?? (heads === undefined ? undefined : shape.embed / heads);
  const of = (make: (value: number) => GgufValue, value: number | undefined) =>
    value === undefined ? undefined : make(value);
  const keys: Readonly<Record<string, GgufValue | undefined>> = {
    context_length: u32(shape.context),
    embedding_length: u32(shape.embed),
    block_count: u32(shape.layers),
    feed_forward_length: of(u32, shape.feedForward),
    "attention.head_count": of(u32, heads),
    "attention.head_count_kv": of(u32, shape.kvHeads),
    "attention.key_length": of(u32, shape.headDim),
    "attention.value_length": of(u32, shape.headDim),
    "attention.layer_norm_rms_epsilon": of(f32, shape.normEps),
    "rope.freq_base": of(f32, shape.ropeBase),
    "rope.dimension_count": of(u32, shape.ropeBase === undefined ? undefined : headDim),
    ...shape.keys,
  };
  const ofArchitecture = Object.entries(keys).flatMap(([key, value]): [string, GgufValue][] =>
    value === undefined ? [] : [[`${architecture}.${key}`, value]],
  );
  return [
    ["general.architecture", text(architecture)],
    ["general.name", text(name)],
    ...ofArchitecture,
    ...Object.entries(shape.otherKeys ?? {}),
  ];
}

/** The weights that the architecture requires; of the optional ones those that the shape names, and an output matrix that is not tied. */
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
  const fused = {
    name: "blk.0.attn_qkv.weight",
    shape: [3 * shape.embed, shape.embed],
    dtype: dtypeByName("f32")!,
  };
  const arch = archNamed(shape.architecture);
  const known = shape.fusedQkv ? [table, fused] : [table];
  const tensors = new Map(known.map((tensor) => [tensor.name, tensor]));
  const config = arch.config({ metadata, tensors });
  const kept = (name: string): boolean =>
    name === "output.weight"
      ? !shape.tied
      : (shape.optional ?? []).some((part) => name.includes(part));
  return arch.weights(config).filter(({ name, optional }) => !optional || kept(name));
}

function metadataEntry({ type, value }: GgufValue): MetadataEntry {
  const elementType = /^array<(\w+)>$/.exec(type)?.[1];
  return elementType === undefined
    ? { type: type as ScalarType, value: value as Scalar }
    : arrayEntry(elementType as ScalarType, value as readonly Scalar[]);
}

function ownType(shape: Shape, { name }: WeightSpec): DType | undefined {
  const found = Object.entries(shape.types ?? {}).find(([part]) => name.includes(part));
  return found && dtypeByName(found[1])!;
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

/** The means of tensors that stay F32, by the end of their names; of all others 0. */
const centers: readonly (readonly [ending: string, center: number])[] = [
  ["norm.weight", 1],
  ["ssm_a", -1],
  ["ssm_d", 1],
];

/** Norms, biases, routers and the like. */
function keptBytes(
  spec: WeightSpec,
  seed: number,
  shape: Pick<Shape, "centers" | "steps">,
): Uint8Array {
  const random = new Random(seed);
  const usual = [...Object.entries(shape.centers ?? {}), ...centers];
  const center = usual.find(([ending]) => spec.name.endsWith(ending))?.[1] ?? 0;
  const own = Object.entries(shape.steps ?? {}).find(([ending]) => spec.name.endsWith(ending));
  const steps = own?.[1] ?? [[1, center]];
  const length = elementsOf(spec);
  const ends = steps.map((_, i) =>
    Math.round(length * steps.slice(0, i + 1).reduce((sum, [share]) => sum + share, 0)),
  );
  const values = Float32Array.from({ length }, (_, i) => {
    const at = ends.findIndex((end) => i < end);
    return steps.at(at)![1] + deviation * random.normal();
  });
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
