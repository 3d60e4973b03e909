// The public API of sparsify(): opens a model's file, loads it into a backend on the processor, tokenizes the text, and calls the tool,
// which is loaded when it is called. The output is atomic.

import type { ModelLocation, OptLevel } from "../../api/api.ts";
import { evenCapacity } from "../../backends/backend.ts";
import { AbortedError, ModelError, UsageError } from "../../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import { plural } from "../../base/plural.ts";
import { kvDTypeOf } from "../../dtypes/kv-types.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import { checkMemory } from "../../engine/memory.ts";
import { LOCAL_SAMPLES, weightsFingerprint } from "../../formats/fingerprint.ts";
import type { ByteSink, GgufValue } from "../../formats/gguf/writer.ts";
import type { ModelFile } from "../../formats/model-file.ts";
import { openModelFile } from "../../formats/open-model-file.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { kvTokenBytes } from "../../graph/cost.ts";
import { kvGroups } from "../../graph/graph.ts";
import { makePlan } from "../../graph/plan.ts";
import { predictables } from "../../graph/predict.ts";
import { weightReader } from "../../graph/weight-source.ts";
import { chooseBackend } from "../../load/choose-backend.ts";
import { tokenizerOf } from "../../load/compose.ts";
import { locate } from "../../load/locate.ts";
import { chooseOptLevel } from "../../machine/native.ts";
import { buildModel } from "../../models/build.ts";
import { PREDICTOR_TYPE } from "../../models/predictor.ts";
import { currentPlatform } from "../../platform/current.ts";
import { writeOutput } from "../../platform/output-file.ts";
import type { Platform } from "../../platform/platform.ts";
import type { OrderedLayer } from "./order.ts";
import type { NeuronReading, SparsifiedLayer, SparsifyInput } from "./sparsify.ts";

export type { OrderedLayer } from "./order.ts";
export type { SparsifiedLayer } from "./sparsify.ts";

/** The types that predictors can have. */
const types: readonly string[] = ["q8_0", "q4_0", "f16"];

export interface SparsifyOptions {
  /** Rows of fc1: a multiple of 32 (default 256). */
  rank?: number | undefined;
  /** The most tokens of the text that are read (default 2048). */
  tokens?: number | undefined;
  /** The part of the open neurons that should be computed, from 0.5 to 1 (default 0.98). */
  recall?: number | undefined;
  /** The type of the predictors' matrices: q8_0 (default), q4_0 or f16. */
  type?: string | undefined;
  /** Default: the machine's cores. */
  threads?: number | undefined;
  level?: OptLevel | undefined;
  /** Replace an existing output. */
  replace?: boolean | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: SparsifyProgress) => void) | undefined;
}

export interface SparsifyProgress {
  what: "loading" | "reading" | "fitting" | "writing";
  /** From 0 to 1, of this and all that is left. */
  done: number;
}

export interface SparsifyResult {
  layers: SparsifiedLayer[];
  rank: number;
  tokens: number;
  /** Size of the predictors. */
  bytes: number;
  ms: number;
}

export type OrderOptions = Pick<
  SparsifyOptions,
  "tokens" | "threads" | "level" | "replace" | "signal" | "onProgress"
>;

export interface OrderResult {
  layers: OrderedLayer[];
  tokens: number;
  /** Size of the model that was written. */
  bytes: number;
  ms: number;
}

const knownOptions: OptionNames<SparsifyOptions> = {
  rank: true,
  tokens: true,
  recall: true,
  type: true,
  threads: true,
  level: true,
  replace: true,
  signal: true,
  onProgress: true,
};

/** Tokens of a window. */
const WINDOW = 256;
/** Tokens of a batch. */
const BATCH = 32;
const SAMPLE_BYTES = 512e6;
/** The part of all work that loading is, for the progress. */
const LOADING = 0.05;

/** Fits predictors of a model's neurons to a text, and writes them as GGUF, for `predictors` of open(). */
export async function sparsify(
  model: ModelLocation,
  text: string,
  output: string | ByteSink,
  options: SparsifyOptions = {},
): Promise<SparsifyResult> {
  checkOptions(options);
  return await writing(model, output, options, async (file, sink, platform) => {
    const { rank = 256 } = options;
    return await reading(file, text, options, platform, async (read) => {
      const { sparsifyInto } = await import("./sparsify.ts");
      const { tokens } = read;
      const input: SparsifyInput = {
        ...read,
        rank,
        recall: options.recall ?? 0.98,
        type: dtypeByName(options.type ?? "q8_0")!,
        sampleBytes: SAMPLE_BYTES,
        metadata: await metadataOf(file, rank, tokens),
      };
      return { layers: await sparsifyInto(sink, input), rank, tokens };
    });
  });
}

/** Writes a model with the neurons first that a text opens most often, for `hotNeurons` of open(). */
export async function orderNeurons(
  model: ModelLocation,
  text: string,
  output: string | ByteSink,
  options: OrderOptions = {},
): Promise<OrderResult> {
  checkOptions(options);
  return await writing(model, output, options, async (file, sink, platform) => {
    if (file.format !== "gguf") {
      throw new ModelError(
        `sparsify: ${file.name} is ${file.format}, expected a GGUF file. Convert it first ("lantern convert")`,
      );
    }
    return await reading(file, text, options, platform, async (read) => {
      const { orderInto } = await import("./order.ts");
      return { layers: await orderInto(sink, { ...read, file }), tokens: read.tokens };
    });
  });
}

/** Opens the model, and writes the output; with its size and the time that took. */
async function writing<T extends object>(
  model: ModelLocation,
  output: string | ByteSink,
  { replace = false }: Pick<SparsifyOptions, "replace">,
  work: (file: ModelFile, sink: ByteSink, platform: Platform) => Promise<T>,
): Promise<T & { bytes: number; ms: number }> {
  const platform = await currentPlatform();
  const started = platform.now();
  const spec = platform.describeSource(await locate(model, platform));
  const file = await openModelFile(await platform.openModelSource(spec));
  try {
    const inputs = spec.kind === "path" ? [{ path: spec.path, files: [] }] : [];
    let written = 0;
    const result = await writeOutput(
      output,
      platform.createOutputFile,
      { replace, inputs },
      async (sink) => {
        const counting: ByteSink = {
          write: async (bytes) => {
            written += bytes.length;
            await sink.write(bytes);
          },
        };
        return await work(file, counting, platform);
      },
    );
    return { ...result, bytes: written, ms: platform.now() - started };
  } finally {
    await file.close();
  }
}

/** Loads the model, for a text that is read window by window. */
async function reading<T>(
  file: ModelFile,
  text: string,
  options: SparsifyOptions,
  platform: Platform,
  work: (read: NeuronReading & { readonly tokens: number }) => Promise<T>,
): Promise<T> {
  const { signal, onProgress } = options;
  const { config, graph } = buildModel(file);
  const places = predictables(graph).flatMap((place) => {
    const layer = /^blk\.(\d+)\./.exec(place.tensor)?.[1];
    return layer === undefined ? [] : [{ ...place, layer: Number(layer) }];
  });
  if (places.length === 0) {
    throw new ModelError(
      `sparsify: no feed-forward network of ${file.name} has a ReLU, so that no neuron is zero: this is of use for models with ReLU only (docs/use/sparse.md)`,
    );
  }
  if (graph.states.some(({ kind }) => kind !== "kv")) {
    throw new ModelError(`sparsify: ${file.name} has recurrent state, which is not supported`);
  }
  const windows = await windowsOf(file, text, Math.min(WINDOW, config.trainedContext), options);
  const tokens = windows.reduce((sum, { length }) => sum + length, 0);
  const plan = makePlan(graph, { maxTokens: BATCH, maxOutputs: BATCH });
  const kvType = kvDTypeOf("f16");
  const blocks = Math.ceil(Math.max(...windows.map(({ length }) => length)) / KV_BLOCK_TOKENS);
  const kv = evenCapacity(blocks, kvType, kvGroups(graph).length);
  const request = {
    ...(await chooseOptLevel({ level: options.level }, platform)),
    threads: options.threads ?? platform.cores,
    startThread: () => platform.startThread("compute"),
    sparse: false,
  };
  const choice = { backend: "cpu", gpuLayers: 0 };
  const { backend } = await chooseBackend(choice, request, platform);
  try {
    checkMemory(backend.measure(plan, kv), {
      model: file.name,
      backend: backend.name,
      contextSize: windows[0]!.length,
      kvType,
      state: {
        kv: [{ bytesPerToken: kvTokenBytes(graph, kvType), blockTokens: KV_BLOCK_TOKENS }],
        recurrentBytes: 0,
      },
      availableBytes: platform.availableMemory(),
    });
    const readTensor = (name: string, target: Uint8Array, at: number) =>
      file.readTensor(file.tensors.get(name)!, target, at);
    await backend.prepare(plan, kv);
    for (const [i, weight] of graph.weights.entries()) {
      if (signal?.aborted) throw new AbortedError("sparsify", { cause: signal.reason });
      await backend.upload(weight, weightReader(weight, readTensor));
      onProgress?.({ what: "loading", done: (LOADING * i) / graph.weights.length });
    }
    return await work({
      backend,
      plan,
      places,
      windows,
      tokens,
      readWeight: ({ node }) => weightReader(node.weight, readTensor),
      yieldThread: () => platform.yieldThread(),
      signal,
      progress: (what, done, total) =>
        onProgress?.({ what, done: LOADING + ((1 - LOADING) * done) / total }),
    });
  } finally {
    backend.dispose();
    await backend.ended?.();
  }
}

async function metadataOf(
  file: ModelFile,
  rank: number,
  tokens: number,
): Promise<[string, GgufValue][]> {
  const string = (value: string): GgufValue => ({ type: "string", value });
  return [
    ["general.type", string(PREDICTOR_TYPE)],
    ["general.architecture", string(file.metadata.string("general.architecture") ?? "")],
    ["predictor.rank", { type: "u32", value: rank }],
    ["predictor.tokens", { type: "u32", value: tokens }],
    ["predictor.weights", string(await weightsFingerprint(file, LOCAL_SAMPLES))],
  ];
}

/** The tokens of the text in windows, each with BOS replacing its first token if the model begins texts with one. */
async function windowsOf(
  file: ModelFile,
  text: string,
  window: number,
  { tokens: most = 2048 }: SparsifyOptions,
): Promise<number[][]> {
  const { LEAST_TOKENS } = await import("./fit.ts");
  const tokenizer = tokenizerOf(file);
  const tokens = tokenizer.encode(text).slice(0, most);
  if (tokens.length < LEAST_TOKENS) {
    throw new UsageError(
      `sparsify: got ${plural(tokens.length, "token")} of text, expected at least ${LEAST_TOKENS}. Give a longer text (--corpus)`,
    );
  }
  const { bos, addBos } = tokenizer.special;
  const windows: number[][] = [];
  for (let at = 0; at < tokens.length; at += window) {
    const part = tokens.slice(at, at + window);
    if (addBos && bos !== undefined) part[0] = bos;
    windows.push(part);
  }
  return windows;
}

function checkOptions(options: SparsifyOptions): void {
  checkOptionNames("sparsify()", options, knownOptions);
  const { rank = 256, tokens = 2048, recall = 0.98, type = "q8_0", signal } = options;
  const fail = (name: string, got: unknown, expected: string): never => {
    throw new UsageError(`sparsify: ${name}: got ${String(got)}, expected ${expected}`);
  };
  if (!(Number.isSafeInteger(rank) && rank >= 32 && rank <= 4096 && rank % 32 === 0)) {
    fail("rank", rank, "a multiple of 32 from 32 to 4096");
  }
  if (!(Number.isSafeInteger(tokens) && tokens >= 1)) fail("tokens", tokens, "an integer above 0");
  if (!(recall >= 0.5 && recall <= 1)) fail("recall", recall, "a number from 0.5 to 1");
  if (!types.includes(type)) fail("type", type, `one of ${types.join(", ")}`);
  if (signal?.aborted) throw new AbortedError("sparsify", { cause: signal.reason });
}
