// One op of the graph at one shape, computed by the CPU backend in guard mode and held against the reference: what the fuzz
// target "shapes" executes, and what its findings become as tests (shapes.test.ts). A case is plain data.

import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { guardMode } from "../../src/backends/cpu/guard/guard.ts";
import { type NativeKernels, nativeKernels } from "../../src/backends/cpu/native/native.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import type { DType } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Batch, KV_BLOCK_TOKENS } from "../../src/graph/batch.ts";
import { type Graph, outputNamed } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import type { Knobs } from "../../src/kernels/knobs.ts";
import { lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { lowerToX64 } from "../../src/kernels/lower/x64.ts";
import {
  acceptsProblem,
  type ChooseMatmul,
  defaultVariant,
  hasKnobs,
  type MatmulTarget,
  matmulVariants,
  withKnobs,
} from "../../src/kernels/matmul-variants.ts";
import { nativeTargets, type TargetName, wasmTarget } from "../../src/kernels/target.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import { interpretedNative } from "../support/interpreted-native.ts";
import { Random } from "../support/random.ts";
import { shapeGraph } from "./shape-graph.ts";

export interface ShapeCase {
  readonly op: string;
  /** What computes it: see `ways`. */
  readonly way: string;
  /** Type of the weights, or of the table that is embedded; type of the cache. */
  readonly type: string;
  readonly kv: string;
  /** Columns of the result of a product, and of its input; columns of everything else. */
  readonly rows: number;
  readonly cols: number;
  /** Tokens of the batch, how many fewer than the largest batch has, and how many the sequence has already. */
  readonly tokens: number;
  readonly room: number;
  readonly before: number;
  /** Attention and rope: heads of so many values, KV heads, how many heads share one; values of a head that are rotated. */
  readonly headDim: number;
  readonly kvHeads: number;
  readonly sharing: number;
  readonly dims: number;
  readonly threads: number;
  /** Threads that are really started; otherwise the leader takes everybody's chunks. */
  readonly started: boolean;
  /** Which of the ways to compute a product, and of the knobs; -1: what is chosen where nothing was measured. */
  readonly variant: number;
  readonly knobs: number;
  /** Of the values. */
  readonly seed: number;
}

const knobSets: readonly Knobs[] = [
  {},
  { unroll: 2 },
  { unroll: 4 },
  { pipelined: true },
  { pipelined: true, unroll: 2 },
  { order: "early" },
  { order: "interleaved", unroll: 2 },
  { ahead: 0 },
  { ahead: 8192 },
];

const targetNames = Object.keys(nativeTargets) as Exclude<TargetName, "wasm">[];

/** Machine code that this machine runs. */
const here = new Map<string, NativeKernels>();
/** Kernels for other processors, interpreted. */
const elsewhere = new Map<string, NativeKernels>();
for (const name of targetNames) {
  const native = nativeKernels(nodeNative(), name);
  if (typeof native === "string") elsewhere.set(`${name} interpreted`, interpretedFor(name));
  else here.set(name, native);
}

/** "rows": WebAssembly row by row; "wasm": in tiles; the names of targets: machine code. All are watched. */
export const ways: readonly string[] = [
  "rows",
  "wasm",
  "wasm interpreted",
  ...here.keys(),
  ...elsewhere.keys(),
];

function interpretedFor(name: Exclude<TargetName, "wasm">): NativeKernels {
  const target = nativeTargets[name];
  const isa = name === "x64-amx" ? "avx512" : (name.replace("x64-", "") as "avx512");
  const lower = (kernel: Kernel) =>
    name.startsWith("arm64")
      ? lowerToArm64(kernel, { name, i8mm: target.i8mm === true })
      : lowerToX64(kernel, { isa });
  const native = interpretedNative(target, lower, () => {});
  const known = new Map<string, ReturnType<typeof native.lower>>();
  return {
    ...native,
    lower: (kernel) => {
      const key = `${kernel.name} ${kernel.width} ${kernel.registers}`;
      const made = known.get(key) ?? native.lower(kernel);
      known.set(key, made);
      return made;
    },
  };
}

export function isInterpreted({ way }: Pick<ShapeCase, "way">): boolean {
  return way.endsWith("interpreted");
}

/** Computes the case by the backend and by the reference. Throws where they differ, or where a kernel leaves its buffers. */
export async function runShapeCase(
  c: ShapeCase,
  onCall?: (kernel: string, args: readonly number[]) => void,
): Promise<void> {
  const graph = shapeGraph(c);
  const backend = backendFor(c, onCall);
  try {
    const expected = await outputs(new ReferenceBackend(), graph, c);
    const got = await outputs(backend, graph, c);
    compare(got, expected, outputNamed(graph, "logits").cols, toleranceOf(c));
  } finally {
    backend.dispose();
  }
}

function backendFor(
  c: ShapeCase,
  onCall: ((kernel: string, args: readonly number[]) => void) | undefined,
): CpuBackend {
  const native = here.get(c.way) ?? elsewhere.get(c.way);
  const target = native?.target ?? wasmTarget(detectWasmFeatures());
  const startThread = c.started ? () => nodePlatform.startThread("compute") : idleThread;
  return new CpuBackend({
    level: c.way === "rows" ? 2 : 3,
    threads: isInterpreted(c) ? 1 : c.threads,
    startThread: c.threads > 1 && !isInterpreted(c) ? startThread : undefined,
    native,
    choose: c.variant < 0 ? undefined : chooseFor(c, target),
    guard: guardMode({ interpret: isInterpreted(c), ...(onCall && { onCall }) }),
  });
}

/** Takes part and never takes a chunk, so that all are the leader's. */
function idleThread(): EngineThread {
  let tell: ((message: unknown) => void) | undefined;
  return {
    post: () => queueMicrotask(() => tell?.("ready")),
    onMessage: (listener) => {
      tell = listener;
    },
    onFailure: () => {},
    ref: () => {},
    unref: () => {},
    terminate: async () => {},
  };
}

/** One variant for every number of tokens, of those that can compute all the problems. */
function chooseFor({ variant, knobs }: ShapeCase, target: MatmulTarget): ChooseMatmul {
  return (problems, maxTokens) => {
    const able = matmulVariants(target).filter((one) =>
      problems.every((problem) => acceptsProblem(one, problem, target) === true),
    );
    const plain = able[variant % able.length] ?? defaultVariant(problems[0]!.dtype, 1, target);
    const set = knobSets[knobs % knobSets.length]!;
    const chosen =
      hasKnobs(plain, target) && Object.keys(set).length > 0 ? withKnobs(plain, set) : plain;
    return { variants: [chosen], byTokens: new Array(maxTokens + 1).fill(0), notes: [] };
  };
}

/** Rows of the output after a last batch of `tokens` tokens, of which the last and some others are wanted. */
async function outputs(backend: Backend, graph: Graph, c: ShapeCase): Promise<Float32Array> {
  const most = c.tokens + c.room;
  const limits = { maxTokens: most, maxOutputs: most };
  const total = c.before + c.tokens;
  const blocks = Math.ceil(total / KV_BLOCK_TOKENS);
  await backend.prepare(makePlan(graph, limits), evenCapacity(blocks, dtypeByName(c.kv)!));
  for (const { name, shape, dtype } of graph.weights) {
    const bytes = bytesOf(name, shape, dtype, c.seed);
    await backend.upload(
      graph.weights.find((weight) => weight.name === name)!,
      async (target, at) => void target.set(bytes.subarray(at, at + target.length)),
    );
  }
  const vocab = graph.weights.find(({ name }) => name === "table")!.shape[0]!;
  const random = new Random(c.seed);
  // Blocks from the last to the first: nothing may rely on their order.
  const table = { blocks: Int32Array.from({ length: blocks }, (_, i) => blocks - 1 - i) };
  const batch = new Batch(limits);
  let wanted = 0;
  for (let position = 0; position < total; ) {
    const count = position < c.before ? Math.min(most, c.before - position) : c.tokens;
    batch.clear();
    for (let i = 0; i < count; i++) {
      const isWanted = i === count - 1 || random.below(3) > 0;
      batch.add(random.below(vocab), position + i, table, isWanted);
    }
    await backend.run(batch);
    position += count;
    wanted = batch.outputCount;
  }
  const { cols } = outputNamed(graph, "logits");
  const all = new Float32Array(wanted * cols);
  for (let row = 0; row < wanted; row++) {
    await backend.read("logits", row, all.subarray(row * cols, (row + 1) * cols));
  }
  return all;
}

const SAMPLE_ELEMENTS: number = 256 * 37;
const samples = new Map<string, Uint8Array>();

/** Vectors are around 1; floats are larger than samples, so that activations have something to do. */
function bytesOf(
  name: string,
  shape: readonly number[],
  dtype: DType,
  seed: number,
): Uint8Array<ArrayBuffer> {
  const count = shape.reduce((a, b) => a * b);
  if (dtype.name === "f32") {
    const random = new Random(seed + name.length);
    const values = Float32Array.from({ length: count }, (_, i) =>
      shape.length === 1 ? 1 + 0.1 * random.normal() : random.normal() * (i % 11 === 0 ? 8 : 1),
    );
    return new Uint8Array(values.buffer);
  }
  const sample = samples.get(dtype.name) ?? sampleBlocks(dtype, SAMPLE_ELEMENTS);
  samples.set(dtype.name, sample);
  const bytes = new Uint8Array((count / dtype.blockElems) * dtype.blockBytes);
  for (let i = 0; i < bytes.length; i++) bytes[i] = sample[i % sample.length]!;
  return bytes;
}

/**
 * How far a value may be from the reference's, relative to the largest of its row. In a whole layer an activation, a key or a
 * value that is rounded may fall to its other neighbour.
 */
function toleranceOf({ op, type, kv }: ShapeCase): number {
  if (op !== "layer") return 5e-5;
  return type === "f32" && kv === "f32" ? 2e-4 : 5e-2;
}

function compare(got: Float32Array, expected: Float32Array, cols: number, tolerance: number): void {
  // Of all rows: one of few columns may be a sum in which everything cancels out but the last bits.
  const size = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-6);
  for (let i = 0; i < expected.length; i++) {
    if (Math.abs(got[i]! - expected[i]!) <= tolerance * size) continue;
    throw new Error(
      `row ${Math.floor(i / cols)}, column ${i % cols} is ${got[i]}, the reference has ${expected[i]} (largest ${size})`,
    );
  }
}
