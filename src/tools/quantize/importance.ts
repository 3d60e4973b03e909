// An importance matrix: the average squared input of each weight matrix, column by column. With it, a quantizer keeps
// the columns most exact that matter most. The file is llama.cpp's: GGUF with two tensors for each matrix, the sums of
// squares ("NAME.in_sum2", [matrices, cols]) and their counts ("NAME.counts", [matrices, 1]).
//
// This file reads and writes the format and holds the sums; imatrix.ts fills them.

import { FormatError, UsageError } from "../../base/errors.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import {
  type ByteSink,
  type GgufTensor,
  type GgufValue,
  writeGguf,
} from "../../formats/gguf/writer.ts";
import type { ModelFile, TensorInfo } from "../../formats/model-file.ts";

const sumsSuffix = ".in_sum2";
const countsSuffix = ".counts";

export interface Importance {
  /** One weight for each column of a matrix of the tensor; undefined: the weights are not known. */
  of(tensor: TensorInfo, matrix: number): Float32Array | undefined;
  /** Metadata about it for a file that was quantized with it. */
  readonly entries: readonly (readonly [string, GgufValue])[] & [string, GgufValue][];
  /** The matrices in it. */
  readonly names: readonly string[];
}

/** Sums over the inputs of a matrix. */
export interface MatrixSums {
  readonly name: string;
  /** Sums of squares: [matrices, cols]. */
  readonly sums: Float32Array;
  /** [matrices]. */
  readonly counts: Float32Array;
}

/** Reads an importance matrix; `path` is the user's name for it. */
export async function readImportance(file: ModelFile, path: string): Promise<Importance> {
  const wrong = (field: string, got: unknown, expected: string) =>
    new FormatError("imatrix", { file: path, field, got, expected });
  const type = file.metadata.string("general.type");
  const names = [...file.tensors.keys()]
    .filter((name) => name.endsWith(sumsSuffix))
    .map((name) => name.slice(0, -sumsSuffix.length));
  if (type !== "imatrix" || names.length === 0) {
    throw wrong(
      "general.type",
      type ?? "none",
      'an importance matrix, as "lantern imatrix" makes it',
    );
  }
  const means = new Map<string, Float32Array>();
  for (const name of names) {
    const sums = await floats(file, `${name}${sumsSuffix}`, wrong);
    const counts = await floats(file, `${name}${countsSuffix}`, wrong);
    if (sums.length % counts.length !== 0) {
      throw wrong(`${name}${countsSuffix}`, counts.length, `a divisor of ${sums.length} sums`);
    }
    // A quantizer would find no result with these: no error is smaller than NaN.
    const odd = sums.find((sum) => !(sum >= 0 && sum < Number.POSITIVE_INFINITY));
    if (odd !== undefined) throw wrong(`${name}${sumsSuffix}`, odd, "numbers from 0 up");
    means.set(name, meansOf(sums, counts));
  }
  const chunks = file.metadata.number("imatrix.chunk_count") ?? 0;
  const dataset = file.metadata.strings("imatrix.datasets")?.[0];
  const cut = (text: string) => text.slice(0, 127); // the length that llama.cpp keeps
  return {
    names,
    of: (tensor, matrix) => columnsOf(tensor, matrix, means.get(tensor.name), path),
    entries: [
      ["quantize.imatrix.file", { type: "string", value: cut(path) }],
      ...(dataset === undefined
        ? []
        : [
            ["quantize.imatrix.dataset", { type: "string", value: cut(dataset) }] as [
              string,
              GgufValue,
            ],
          ]),
      ["quantize.imatrix.entries_count", { type: "u32", value: names.length }],
      ...(chunks > 0
        ? [["quantize.imatrix.chunks_count", { type: "u32", value: chunks }] as [string, GgufValue]]
        : []),
    ],
  };
}

async function floats(
  file: ModelFile,
  name: string,
  wrong: (field: string, got: unknown, expected: string) => FormatError,
): Promise<Float32Array> {
  const tensor = file.tensors.get(name);
  const exact = dtypeByName("f32")!;
  if (tensor?.dtype !== exact)
    throw wrong(`tensor "${name}"`, tensor?.dtype.name ?? "none", exact.name);
  const values = new Float32Array(tensor.byteLength / 4);
  await file.readTensor(tensor, new Uint8Array(values.buffer));
  if (values.every((value) => Number.isFinite(value))) return values;
  throw wrong(`tensor "${name}"`, "a value that is not finite", "finite sums");
}

/** For a matrix that no token reached (an expert), all columns weigh the same. */
function meansOf(sums: Float32Array, counts: Float32Array): Float32Array {
  const cols = sums.length / counts.length;
  return sums.map((sum, i) => {
    const count = Math.round(counts[Math.floor(i / cols)]!);
    return count > 0 ? sum / count : 1;
  });
}

function columnsOf(
  { name, shape }: TensorInfo,
  matrix: number,
  means: Float32Array | undefined,
  path: string,
): Float32Array | undefined {
  if (!means) return undefined;
  const cols = shape.at(-1)!;
  const matrices = shape.slice(0, -2).reduce((a, b) => a * b, 1);
  if (means.length !== cols * matrices) {
    if (name.includes("token_embd")) return undefined; // if it is also the output matrix, its weights may be known; otherwise they are not
    throw new UsageError(
      `quantize: ${path} has ${means.length} columns for "${name}", which has ${cols * matrices}. The importance matrix was made with another model`,
    );
  }
  return means.slice(matrix * cols, (matrix + 1) * cols);
}

export interface ImportanceFacts {
  /** Text files that it was made from. */
  readonly datasets: readonly string[];
  readonly chunks: number;
  readonly chunkTokens: number;
}

export async function writeImportance(
  sink: ByteSink,
  sums: readonly MatrixSums[],
  { datasets, chunks, chunkTokens }: ImportanceFacts,
): Promise<void> {
  const exact = dtypeByName("f32")!;
  const tensor = (name: string, values: Float32Array, shape: number[]): GgufTensor => ({
    name,
    dtype: exact,
    shape,
    data: () => [new Uint8Array(values.buffer, values.byteOffset, values.byteLength)],
  });
  const byName = sums.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const metadata: [string, GgufValue][] = [
    ["general.type", { type: "string", value: "imatrix" }],
    ["imatrix.datasets", { type: "array<string>", value: [...datasets] }],
    ["imatrix.chunk_count", { type: "u32", value: chunks }],
    ["imatrix.chunk_size", { type: "u32", value: chunkTokens }],
  ];
  const tensors = byName.flatMap(({ name, sums: squares, counts }) => [
    tensor(`${name}${sumsSuffix}`, squares, [counts.length, squares.length / counts.length]),
    tensor(`${name}${countsSuffix}`, counts, [counts.length, 1]),
  ]);
  await writeGguf(sink, metadata, tensors);
}
