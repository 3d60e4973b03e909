// The conformance table: what every backend must compute as the reference does, and where it need not. Cases are small
// graphs: one for each op (op-cases.ts), one for each tensor type, and tiny models. Targets (targets.ts) run all of them;
// what one leaves out is in `skips` with its reason, which the test's title repeats. README.md says how to add to it.

import type { DType } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { weightBytes } from "../../src/graph/cost.ts";
import type { OpKind, Weight } from "../../src/graph/graph.ts";
import { buildModel } from "../../src/models/build.ts";
import { allArchs } from "../../src/models/table.ts";
import { matmulBenchShape } from "../../src/tools/bench/api.ts";
import { leftOut } from "../support/exhaustive.ts";
import { Random } from "../support/random.ts";
import { bytesOfWeight, type TinyOptions, tinyModel, tinyShape } from "../support/tiny-engine.ts";
import { benchColumns, caseVocab, type OpCase, opCases, opColumns } from "./op-cases.ts";
import type { Batches, Case, CaseModel } from "./run-case.ts";
import type { TargetName } from "./targets.ts";

/** One token, several of two sequences, a batch that is full, long sequences beside short ones: each beginning has all kinds. */
export const modelBatches: Batches = [
  [1, 0],
  [3, 2],
  [12, 0],
  [9, 3],
  [0, 5],
  [8, 4],
  [1, 1],
  [12, 0],
];
const opBatches: Batches = modelBatches.slice(0, 4);
/** Tokens one by one, and in tiles of which the last is nearly empty. */
const dtypeBatches: Batches = [
  [3, 0],
  [20, 13],
];

const f32 = dtypeByName("f32")!;

/** Rows of a matrix that fill no tile. */
const matrixRows = 35;
/** Experts of a few rows each, no more than a table has. */
const [experts, expertRows] = [3, 12];

export type TableCase = Case &
  ({ readonly op: OpKind } | { readonly dtype: DType } | { readonly options: TinyOptions });

/** One case for each op: all of its graphs, at all of their sizes. */
const ops: readonly TableCase[] = (Object.keys(opCases) as OpKind[]).map((op) => ({
  name: `op ${op}`,
  op,
  make: once(() => opModel(op, opCases[op])),
  batches: opBatches,
  tolerance: 2e-6,
}));

/** An op's cases in one graph. */
export function opModel(op: OpKind, cases: readonly OpCase[]): CaseModel {
  const g = new GraphBuilder();
  for (const { name, build, columns = opColumns } of cases) {
    for (const cols of columns) {
      const named = (node: string) => `${op} ${name} @${cols}: ${node}`;
      const weight = (node: string, shape: readonly number[], dtype = f32): Weight => ({
        name: named(node),
        shape,
        dtype,
      });
      const input = (node: string, width: number) =>
        g.embed(weight(`${node} table`, [caseVocab, width]), named(node));
      build({ g, cols, name: named, weight, input });
    }
  }
  const end = g.embed({ name: "end", shape: [caseVocab, 4], dtype: f32 }, "end");
  const graph = g.finish({ logits: g.select(end, "logits") });
  return { graph, bytesOf: randomWeight, vocab: caseVocab };
}

export interface BenchCase {
  readonly name: string;
  make(): CaseModel;
  /** The batches to measure, by their tokens. */
  readonly tokens: readonly number[];
}

/**
 * The same cases at the size of a real model, one graph each, for bench/ops.ts: every op for one token, and a matmul of every
 * tensor type for one token (bound by bandwidth), 8 and 64 (bound by arithmetic).
 */
export function benchCases(): readonly BenchCase[] {
  const ofOps = (Object.keys(opCases) as OpKind[]).flatMap((op) =>
    opCases[op].map((each) => ({
      name: `${op} ${each.name}`,
      make: () => opModel(op, [{ ...each, columns: [benchColumns] }]),
      tokens: [1],
    })),
  );
  const ofTypes = allDTypes().map((dtype) => ({
    name: `dtype ${dtype.name} matmul`,
    make: () => benchMatmul(dtype),
    tokens: [1, 8, 64],
  }));
  return [...ofOps, ...ofTypes];
}

/** [tokens, cols] x [rows, cols]^T with weights of the type. */
function benchMatmul(dtype: DType): CaseModel {
  const { n: rows, k: cols } = matmulBenchShape;
  const g = new GraphBuilder();
  const x = g.embed({ name: "inputs", shape: [caseVocab, cols], dtype: f32 }, "x");
  const matrix: Weight = { name: "matrix", shape: [rows, cols], dtype };
  const graph = g.finish({ logits: g.matmul(x, matrix, "matmul") });
  const bytesOf = (each: Weight) => (each === matrix ? repeatedSample(each) : randomWeight(each));
  return { graph, bytesOf, vocab: caseVocab };
}

/** Few distinct values, which repeat: quantizing all of them takes longer than measuring. */
function repeatedSample(weight: Weight): Uint8Array {
  const sample = sampleBlocks(weight.dtype, 1 << 16);
  const bytes = new Uint8Array(weightBytes(weight));
  for (let at = 0; at < bytes.length; at += sample.length) {
    bytes.set(sample.subarray(0, bytes.length - at), at);
  }
  return bytes;
}

/** Rows of a table of the type, of one that is the output matrix as well, and the matmuls with a matrix and with experts. */
export function dtypeCase(dtype: DType): TableCase {
  const isQuantized = dtype.blockElems > 1;
  return {
    name: `dtype ${dtype.name}`,
    dtype,
    make: once(() => dtypeModel(dtype)),
    batches: dtypeBatches,
    tolerance: isQuantized || dtype.activation !== "f32" ? roundedActivations : 2e-6,
    exact: ["rows", "tied rows"],
  };
}

/** Where a device divides less exactly, an activation may fall to its other neighbour. */
const roundedActivations = { usual: 2e-6, share: 0.8, worst: 5e-3 };

function dtypeModel(dtype: DType): CaseModel {
  const cols = dtype.blockElems === 1 ? 45 : 2 * Math.max(48, dtype.blockElems);
  const g = new GraphBuilder();
  const weight = (name: string, rows: number, type = dtype): Weight => ({
    name,
    shape: [rows, cols],
    dtype: type,
  });
  g.embed(weight("table", caseVocab), "rows");
  const tied = weight("tied table", caseVocab);
  g.embed(tied, "tied rows");
  const x = g.embed(weight("inputs", caseVocab, f32), "x");
  const bias: Weight = { name: "bias", shape: [matrixRows], dtype: f32 };
  g.matmul(x, weight("matrix", matrixRows), "matmul", bias);
  const choices: Weight = { name: "choices", shape: [caseVocab, experts], dtype: f32 };
  const routing = { used: 2, gating: "softmax", normalise: true, scale: 1 } as const;
  const routes = g.route(g.embed(choices, "logits of experts"), routing, "routes");
  const matrices: Weight = { name: "experts", shape: [experts, expertRows, cols], dtype };
  g.matmulId(x, routes, matrices, "matmul_id");
  const graph = g.finish({ logits: g.logits(g.select(x, "selected"), tied, "logits") });
  const packed = once(() => sampleBlocks(dtype, caseVocab * cols));
  const bytesOf = (each: Weight) =>
    each.dtype === dtype && dtype !== f32 ? packed() : randomWeight(each);
  return { graph, bytesOf, vocab: caseVocab };
}

const dtypes: readonly TableCase[] = allDTypes().map(dtypeCase);

/** A whole model of two layers. */
export function modelCase(name: string, options: TinyOptions, tolerance: number): TableCase {
  return {
    name: `model ${name}`,
    options,
    make: once(() => modelOf(options)),
    batches: modelBatches,
    tolerance,
  };
}

export function modelOf(options: TinyOptions): CaseModel {
  const model = tinyModel(options);
  const { graph } = buildModel(model);
  const { vocab = tinyShape.vocab, kvType = "f32" } = options;
  return { graph, bytesOf: (weight) => bytesOfWeight(weight, model.bytes), vocab, kvType };
}

const weightTypes = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"];

/** A row of one column, as the score of a classifier, is compared relative to that one value. */
const archTolerances: Readonly<Record<string, number>> = {
  ...{ gemma3n: 1e-3, llama4: 1e-3 },
  // Scores of an indexer are sums that cancel, and are compared relative to themselves.
  ...{ deepseek32: 1e-4, "glm-dsa": 1e-4, dots3note: 1e-4, "kimi-k3": 1e-4 },
  // 1.04e-5 apart in WebAssembly without fused multiply-adds.
  plamo2: 2e-5,
  ...{ bert: 1e-3, "nomic-bert": 1e-3, "nomic-bert-moe": 1e-3, "neo-bert": 1e-3 },
  ...{ "jina-bert-v2": 1e-3, "jina-bert-v3": 1e-3, "modern-bert": 1e-3 },
};

/** Of every value of a tiny model in floats. */
export function archTolerance(architecture: string): number {
  return archTolerances[architecture] ?? 1e-5;
}

const models: readonly TableCase[] = [
  // Floats: every value agrees to rounding.
  ...allArchs()
    .flatMap((arch) => arch.names)
    .map((architecture) => modelCase(architecture, { architecture }, archTolerance(architecture))),
  // A key that lies between two values of its type may fall either way.
  modelCase("f16 cache", { kvType: "f16" }, 2e-3),
  modelCase("q8_0 cache", { kvType: "q8_0" }, 2e-2),
  modelCase("q4_0 cache", { kvType: "q4_0" }, 2e-1),
  modelCase("q5_1 and iq4_nl cache", { kvType: "q5_1/iq4_nl" }, 2e-1),
  modelCase("rows and columns that fill no tile", { feedForward: 36, vocab: 51 }, 1e-5),
  modelCase("columns that fill no vector", { feedForward: 45, vocab: 51 }, 1e-5),
  // Quantized: the first batches agree to rounding; an activation that falls to its other neighbour moves later ones.
  ...weightTypes.map((weightType) => modelCase(`${weightType} weights`, { weightType }, 3e-2)),
];

export const cases: readonly TableCase[] = [...ops, ...dtypes, ...models];

/** What targets leave out. */
interface Skip {
  readonly targets: (name: TargetName) => boolean;
  readonly cases: (each: TableCase) => boolean;
  /** undefined: it is not left out after all. */
  readonly reason: string | undefined;
}

const isGpu = (name: TargetName): boolean => name.startsWith("webgpu");
const isWide = (name: TargetName): boolean => name.includes("64-bit");
const isInterpreted = (name: TargetName): boolean => name.includes("interpreted");
const isGuarded = (name: TargetName): boolean => name.includes("guarded");

/** One of each kind: floats, blocks of 32 and of 256, with mins, codebooks, ternary. */
const someTypes = "f32 bf16 q4_0 q5_1 q4_k q6_k iq2_xxs iq4_xs tq1_0 mxfp4".split(" ");
const isRareType = (each: TableCase): boolean =>
  "dtype" in each && !someTypes.includes(each.dtype.name);
const isRareModel = (each: TableCase): boolean =>
  "options" in each &&
  (!["f16", "q4_1", undefined].includes(each.options.weightType) ||
    !["f32", "f16", "q8_0", undefined].includes(each.options.kvType));

/** Architectures whose cases run everywhere, with the example of docs/inside/add-a-model.md; others are held by test/models/archs-golden.ts. */
const usualArchs = ["llama", "qwen2", "qwen3", "gptj"];
const isRareArch = (each: TableCase): boolean =>
  "options" in each && !usualArchs.includes(each.options.architecture ?? "llama");

/** All ops; what differs in layouts and in how a matmul ends. */
const isInterpretedCase = (each: TableCase): boolean =>
  "op" in each ||
  ["dtype q4_0", "dtype q5_1", "dtype q6_k"].includes(each.name) ||
  ["model llama", "model q8_0 cache", "model q4_1 weights"].includes(each.name);

/** On a GPU that the processor plays, a case takes seconds. */
const guardedOnGpu = [
  "op rms_norm",
  "op attention",
  "dtype q4_0",
  "model columns that fill no vector",
];
const isRareOnGpu = (each: TableCase): boolean => !guardedOnGpu.includes(each.name);

export const skips: readonly Skip[] = [
  { targets: (name) => isGpu(name) && isGuarded(name), cases: isRareOnGpu, reason: leftOut },
  { targets: isGpu, cases: isRareType, reason: leftOut },
  { targets: isGpu, cases: isRareModel, reason: leftOut },
  { targets: isGpu, cases: isRareArch, reason: leftOut },
  // What differs there is addressing.
  { targets: isWide, cases: isRareType, reason: leftOut },
  { targets: isWide, cases: isRareModel, reason: leftOut },
  { targets: isWide, cases: isRareArch, reason: leftOut },
  // The interpreter takes a second for what machine code does in milliseconds.
  { targets: isInterpreted, cases: (each) => !isInterpretedCase(each), reason: leftOut },
  { targets: isGuarded, cases: isRareType, reason: leftOut },
  { targets: isGuarded, cases: isRareArch, reason: leftOut },
];

/** Why a target leaves a case out; undefined: it does not. */
export function skipReason(target: TargetName, each: TableCase): string | undefined {
  const skip = skips.find(
    ({ targets, cases: left, reason }) => reason !== undefined && targets(target) && left(each),
  );
  return skip?.reason;
}

/** Vectors: around 1; tables: a few large values. Constants have values of their own. */
function randomWeight({ name, shape, source }: Weight): Uint8Array {
  if (source && "values" in source) return new Uint8Array(source.values.buffer);
  const count = shape.reduce((a, b) => a * b);
  const random = new Random(name.length * 100 + count);
  const values = Float32Array.from({ length: count }, (_, i) =>
    shape.length === 1 ? 1 + 0.1 * random.normal() : random.normal() * (i % 11 === 0 ? 20 : 2),
  );
  return new Uint8Array(values.buffer);
}

/** Made by the first call, the same ever after. */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}
