// Makes predictors for a model (docs/use/sparse.md): reads a text window by window, keeps the networks' inputs and the neurons that open,
// and fits a predictor for each layer (fit.ts). Samples of some layers at a time are in memory; the text is read again for the next ones.

import type { Backend } from "../../backends/backend.ts";
import { AbortedError } from "../../base/errors.ts";
import type { DType } from "../../dtypes/dtype.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import {
  type ByteSink,
  type GgufTensor,
  type GgufValue,
  writeGguf,
} from "../../formats/gguf/writer.ts";
import { Batch, KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { Value } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import type { Predictable } from "../../graph/predict.ts";
import type { ReadWeight } from "../../graph/weight-source.ts";
import { type FittedLayer, fitLayer, type LayerSamples, type PredictorQuality } from "./fit.ts";
import { type Matrix, zeros } from "./matrix.ts";

/** A model that is loaded, and a text for it. */
export interface NeuronReading {
  readonly backend: Backend;
  readonly plan: Plan;
  /** The values that open the neurons of a network, and the numbers of the layers. */
  readonly places: readonly (Predictable & { readonly layer: number })[];
  /** Windows of tokens, each read from an empty context. */
  readonly windows: readonly (readonly number[])[];
  readWeight(place: Predictable): ReadWeight;
  yieldThread(): Promise<void>;
  readonly signal: AbortSignal | undefined;
  progress(what: "reading" | "fitting" | "writing", done: number, total: number): void;
}

export interface SparsifyInput extends NeuronReading {
  readonly rank: number;
  readonly recall: number;
  readonly type: DType;
  /** Bytes of samples in memory at a time, where one layer's do not take more. */
  readonly sampleBytes: number;
  readonly metadata: readonly (readonly [string, GgufValue])[];
}

export interface SparsifiedLayer extends PredictorQuality {
  readonly layer: number;
}

/** The cost of computing tokens, in units of a layer's fit: for the progress. */
const UNITS = 1000;

export async function sparsifyInto(
  sink: ByteSink,
  input: SparsifyInput,
): Promise<SparsifiedLayer[]> {
  const { places } = input;
  const groups = groupsOf(input);
  const fitted = new Map<number, FittedLayer>();
  const pause = () => pausing(input);
  const total = (groups.length + places.length) * UNITS;
  let done = 0;
  for (const group of groups) {
    const samples = await samplesOf(input, group, (part) =>
      input.progress("reading", done + part * UNITS, total),
    );
    done += UNITS;
    for (const place of group) {
      const weight = await weightOf(input, place);
      const { x, gates } = samples.get(place)!;
      const options = { rank: input.rank, recall: input.recall, type: input.type, pause };
      fitted.set(place.layer, await fitLayer({ x, gates, weight }, options));
      samples.delete(place);
      done += UNITS;
      input.progress("fitting", done, total);
    }
  }
  await writeGguf(
    sink,
    input.metadata,
    places.flatMap((place) => tensorsOf(place, fitted.get(place.layer)!, input)),
  );
  return places.map(({ layer }) => ({ layer, ...fitted.get(layer)!.quality }));
}

type Place = NeuronReading["places"][number];

export async function pausing({ yieldThread, signal }: NeuronReading): Promise<void> {
  await yieldThread();
  if (signal?.aborted) throw new AbortedError("sparsify", { cause: signal.reason });
}

/** The layers with samples in memory together. */
function groupsOf({ places, windows, sampleBytes }: SparsifyInput): Place[][] {
  const tokens = windows.reduce((sum, { length }) => sum + length, 0);
  const groups: Place[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const place of places) {
    const own = 4 * tokens * (place.node.x.cols + place.neurons);
    if (bytes + own > sampleBytes) {
      groups.push([]);
      bytes = 0;
    }
    groups.at(-1)!.push(place);
    bytes += own;
  }
  return groups;
}

async function samplesOf(
  input: SparsifyInput,
  group: readonly Place[],
  progress: (part: number) => void,
): Promise<Map<Place, Omit<LayerSamples, "weight">>> {
  const { windows } = input;
  const tokens = windows.reduce((sum, { length }) => sum + length, 0);
  const samples = new Map<Place, Omit<LayerSamples, "weight">>();
  /** The matrices that the rows of a value go to. */
  const wanted = new Map<number, Matrix[]>();
  for (const place of group) {
    const { x, out } = place.node;
    const own = { x: zeros(tokens, x.cols), gates: zeros(tokens, out.cols) };
    samples.set(place, own);
    wanted.set(x.id, [...(wanted.get(x.id) ?? []), own.x]);
    wanted.set(out.id, [own.gates]);
  }
  await readText(input, ({ id, cols }, data, rows, done) => {
    for (const matrix of wanted.get(id) ?? []) {
      matrix.data.set(data.subarray(0, rows * cols), done * cols);
    }
    progress((done + rows) / tokens);
  });
  return samples;
}

/** Shows the values of every batch of the text, with its number of tokens and the number of tokens before it. */
export async function readText(
  input: NeuronReading,
  see: (value: Value, data: Float32Array, rows: number, done: number) => void,
): Promise<void> {
  const { backend, plan, windows } = input;
  const { maxTokens } = plan.limits;
  const batch = new Batch(plan.limits);
  batch.wantsLogits = false;
  const longest = Math.max(...windows.map(({ length }) => length));
  const sequence = {
    blocks: Int32Array.from({ length: Math.ceil(longest / KV_BLOCK_TOKENS) }, (_, i) => i),
  };
  let done = 0;
  for (const window of windows) {
    for (let from = 0; from < window.length; from += maxTokens) {
      await pausing(input);
      batch.clear();
      const part = window.slice(from, from + maxTokens);
      for (const [i, token] of part.entries()) batch.add(token, from + i, sequence, true);
      await backend.run(batch, { tap: (value, data) => see(value, data, part.length, done) });
      done += part.length;
    }
  }
}

/** The weight of the gates, as floats. */
async function weightOf(input: SparsifyInput, place: Place): Promise<Matrix> {
  const { dtype, shape } = place.node.weight;
  const [rows, cols] = shape as [number, number];
  const out = zeros(rows, cols);
  const rowBytes = (cols / dtype.blockElems) * dtype.blockBytes;
  const bytes = new Uint8Array(rowBytes * rows);
  await input.readWeight(place)(bytes, 0);
  dtype.dequantize(bytes, 0, out.data, 0, (rows * cols) / dtype.blockElems);
  return out;
}

function tensorsOf(
  { layer, neurons, node }: Place,
  { fc1, fc2, bias }: FittedLayer,
  { rank, type }: SparsifyInput,
): GgufTensor[] {
  const tensor = (name: string, dtype: DType, shape: number[], bytes: Uint8Array): GgufTensor => ({
    name: `blk.${layer}.${name}`,
    dtype,
    shape,
    data: () => [bytes],
  });
  const biasBytes = new Uint8Array(bias.buffer, bias.byteOffset, bias.byteLength);
  return [
    tensor("fc1.weight", type, [rank, node.x.cols], fc1),
    tensor("fc2.weight", type, [neurons, rank], fc2),
    tensor("fc2.bias", dtypeByName("f32")!, [neurons], biasBytes),
  ];
}
