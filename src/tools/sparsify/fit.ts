// Fits the predictor of a layer (docs/use/sparse.md) to samples: the inputs of the network, and the values that open its neurons.
//
//   fc1   pairs of opposite directions a and -a, so that relu(a x) - relu(-a x) = a x: the directions along which the gates W x vary
// most, found
//         by an iteration of random directions
//   fc2   least squares from relu(fc1 x) to the gates, each divided by its deviation
//   bias  the constant of the least squares, moved so that the wanted part of open neurons is found among tokens that were not fitted
//
// Everything is computed once, without steps or rates: the same samples give the same predictor.

import type { DType } from "../../dtypes/dtype.ts";
import { bytesFor } from "../../dtypes/dtype.ts";
import {
  type Matrix,
  orthonormalise,
  rowsOf,
  solveSymmetric,
  timesTransposed,
  transposedTimes,
  zeros,
} from "./matrix.ts";

export interface LayerSamples {
  /** [tokens, inputs] */
  readonly x: Matrix;
  /** Neurons open where these are above zero: [tokens, neurons] */
  readonly gates: Matrix;
  /** The matrix that makes gates of x: [neurons, inputs] */
  readonly weight: Matrix;
}

export interface FitOptions {
  /** Rows of fc1: even. */
  readonly rank: number;
  /** The part of open neurons that should be found. */
  readonly recall: number;
  /** The type of fc1 and fc2. */
  readonly type: DType;
  /** Awaited now and then: lets other work run, and throws where the work should stop. */
  pause(): Promise<void>;
}

export interface FittedLayer {
  readonly fc1: Uint8Array;
  readonly fc2: Uint8Array;
  readonly bias: Float32Array;
  readonly quality: PredictorQuality;
}

/** The quality on tokens that neither fc1, fc2 nor the bias has seen. Parts of 1. */
export interface PredictorQuality {
  /** Neurons that are open. */
  readonly open: number;
  /** Neurons that are computed. */
  readonly computed: number;
  /** The fraction of open neurons that are computed. */
  readonly recall: number;
  /** The fraction of computed neurons that are open. */
  readonly precision: number;
}

/** Tokens that fc1 and fc2 are fitted to, and the bias; the rest measures. */
const [FITTED, CALIBRATED] = [0.8, 0.9];

/** The addition to squares, relative to their mean: samples are few. */
const RIDGE = 1e-4;

/** The fewest tokens of which each part has some. */
export const LEAST_TOKENS = 40;

export async function fitLayer(samples: LayerSamples, options: FitOptions): Promise<FittedLayer> {
  const { x, gates } = samples;
  const [fitted, calibrated] = [FITTED, CALIBRATED].map((part) => Math.floor(x.rows * part));
  const seen = {
    x: rowsOf(x, 0, fitted!),
    gates: rowsOf(gates, 0, fitted!),
    weight: samples.weight,
  };
  const fc1 = stored(await directions(seen, options), options.type);
  const { fc2: wanted, bias } = await leastSquares(seen, fc1.values, options);
  const fc2 = stored(wanted, options.type);
  const scoresFor = async (from: number, to: number) =>
    await scoresOf(rowsOf(x, from, to), fc1.values, fc2.values, bias, options.pause);
  const tried = await scoresFor(fitted!, calibrated!);
  const lowest = threshold(tried, rowsOf(gates, fitted!, calibrated!), options.recall);
  for (let i = 0; i < bias.length; i++) bias[i]! -= lowest;
  const held = await scoresFor(calibrated!, x.rows);
  const quality = qualityOf(held, rowsOf(gates, calibrated!, x.rows));
  return { fc1: fc1.bytes, fc2: fc2.bytes, bias, quality };
}

/** Directions of inputs along which gates vary most, and their opposites: [rank, inputs]. */
async function directions(
  { gates, weight }: LayerSamples,
  { rank, pause }: FitOptions,
): Promise<Matrix> {
  const start = randomRows(rank / 2, gates.cols);
  const along = await timesTransposed(gates, start, pause); // [tokens, rank / 2]
  const outputs = await transposedTimes(along, gates, pause); // [rank / 2, neurons]
  orthonormalise(outputs);
  const out = zeros(rank, weight.cols);
  const transposed = transpose(outputs); // [neurons, rank / 2]
  const half = await transposedTimes(transposed, weight, pause); // [rank / 2, inputs]
  out.data.set(half.data);
  out.data.set(
    half.data.map((value) => -value),
    half.data.length,
  );
  return out;
}

/** fc2 and its constant: least squares from the inner values to the gates. */
async function leastSquares(
  { x, gates }: LayerSamples,
  fc1: Matrix,
  { pause }: FitOptions,
): Promise<{ fc2: Matrix; bias: Float32Array }> {
  const inner = withOnes(await innerOf(x, fc1, pause)); // [tokens, rank + 1]
  const squares = await transposedTimes(inner, inner, pause);
  let trace = 0;
  for (let i = 0; i < inner.cols; i++) trace += squares.data[i * inner.cols + i]!;
  const ridge = (RIDGE * trace) / inner.cols + 1e-9;
  for (let i = 0; i < inner.cols; i++) squares.data[i * inner.cols + i]! += ridge;
  const products = await transposedTimes(inner, gates, pause); // [rank + 1, neurons]
  const solved = solveSymmetric(squares, products);
  const deviations = deviationsOf(gates);
  const fc2 = zeros(gates.cols, fc1.rows);
  const bias = new Float32Array(gates.cols);
  for (let neuron = 0; neuron < gates.cols; neuron++) {
    const factor = deviations[neuron]! > 0 ? 1 / deviations[neuron]! : 1;
    for (let i = 0; i < fc1.rows; i++) {
      fc2.data[neuron * fc1.rows + i] = solved.data[i * gates.cols + neuron]! * factor;
    }
    bias[neuron] = solved.data[fc1.rows * gates.cols + neuron]! * factor;
  }
  return { fc2, bias };
}

/** relu(fc1 x): [tokens, rank] */
async function innerOf(x: Matrix, fc1: Matrix, pause: () => Promise<void>): Promise<Matrix> {
  const inner = await timesTransposed(x, fc1, pause);
  for (let i = 0; i < inner.data.length; i++) inner.data[i] = Math.max(0, inner.data[i]!);
  return inner;
}

async function scoresOf(
  x: Matrix,
  fc1: Matrix,
  fc2: Matrix,
  bias: Float32Array,
  pause: () => Promise<void>,
): Promise<Matrix> {
  const scores = await timesTransposed(await innerOf(x, fc1, pause), fc2, pause);
  for (let i = 0; i < scores.data.length; i++) scores.data[i]! += bias[i % bias.length]!;
  return scores;
}

/** The score that the wanted fraction of open neurons is above. */
function threshold(scores: Matrix, gates: Matrix, recall: number): number {
  const open = scores.data.filter((_, i) => gates.data[i]! > 0).sort();
  if (open.length === 0) return 0;
  const at = open[Math.min(open.length - 1, Math.floor(open.length * (1 - recall)))]!;
  return at - 1e-3 * Math.abs(at);
}

function qualityOf(scores: Matrix, gates: Matrix): PredictorQuality {
  let [open, computed, both] = [0, 0, 0];
  for (let i = 0; i < scores.data.length; i++) {
    const isOpen = gates.data[i]! > 0;
    const isComputed = scores.data[i]! > 0;
    if (isOpen) open++;
    if (isComputed) computed++;
    if (isOpen && isComputed) both++;
  }
  const all = scores.data.length;
  return {
    open: open / all,
    computed: computed / all,
    recall: open > 0 ? both / open : 1,
    precision: computed > 0 ? both / computed : 1,
  };
}

/** A matrix in a type, and its values as that type holds them. */
function stored({ rows, cols, data }: Matrix, type: DType): { bytes: Uint8Array; values: Matrix } {
  const bytes = new Uint8Array(bytesFor(type, data.length));
  const blocks = data.length / type.blockElems;
  type.quantize!(data, 0, bytes, 0, blocks);
  const values = zeros(rows, cols);
  type.dequantize(bytes, 0, values.data, 0, blocks);
  return { bytes, values };
}

/** The deviation of each neuron's gates from zero. */
function deviationsOf({ rows, cols, data }: Matrix): Float32Array {
  const sums = new Float32Array(cols);
  for (let i = 0; i < data.length; i++) sums[i % cols]! += data[i]! * data[i]!;
  return sums.map((sum) => Math.sqrt(sum / rows));
}

function withOnes({ rows, cols, data }: Matrix): Matrix {
  const out = zeros(rows, cols + 1);
  for (let row = 0; row < rows; row++) {
    out.data.set(data.subarray(row * cols, (row + 1) * cols), row * (cols + 1));
    out.data[row * (cols + 1) + cols] = 1;
  }
  return out;
}

function transpose({ rows, cols, data }: Matrix): Matrix {
  const out = zeros(cols, rows);
  for (let row = 0; row < rows; row++) {
    for (let col = 0; col < cols; col++) out.data[col * rows + row] = data[row * cols + col]!;
  }
  return out;
}

/** The same for every call: sums of uniform numbers, which are nearly normal. */
function randomRows(rows: number, cols: number): Matrix {
  let state = 0x9e3779b9;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  const out = zeros(rows, cols);
  for (let i = 0; i < out.data.length; i++) out.data[i] = next() + next() + next();
  return out;
}
