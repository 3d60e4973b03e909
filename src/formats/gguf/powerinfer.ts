// Models of PowerInfer: GGUF files with another magic ("PWRI"), for networks with ReLU. The differences are presented as in any other
// file:
//
//   blk.N.ffn_down_t   `down` transposed, [neurons, embed]: becomes ffn_down. Blocks of a quantized one lie across the rows, so that it
//                      is held as Q8_0; floats keep their type and every bit
//   activation         is ReLU without a key for it: hidden_activation is added
//   blk.N.fc1, fc2     predictors (models/predictor.ts): as they are
//
// The layout is that of PowerInfer's convert.py (postprocess_transpose) and llama.cpp (llm_build_ffn_sparse).

import { FormatError } from "../../base/errors.ts";
import type { Metadata } from "../../base/metadata.ts";
import { bytesFor, type DType } from "../../dtypes/dtype.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import type { ModelFile, TensorInfo } from "../model-file.ts";
import { TypedMetadata } from "../typed-metadata.ts";

/** The only architecture of such files whose network is down(relu(gate) * up); bamboo has a ReLU on both, falcon and opt no gate. */
const KNOWN = "llama";

/** The type of quantized matrices once they are transposed. */
const HELD: DType = dtypeByName("q8_0")!;

export function asUsualModel(file: ModelFile): ModelFile {
  const architecture = file.metadata.string("general.architecture");
  if (architecture !== KNOWN) {
    throw new FormatError("gguf", {
      file: file.name,
      field: "general.architecture",
      got: architecture,
      expected: `"${KNOWN}", the only one of PowerInfer's files that is read. Convert the original model instead`,
    });
  }
  const transposed = new Map<string, TensorInfo>();
  const tensors = new Map<string, TensorInfo>();
  for (const tensor of file.tensors.values()) {
    const name = tensor.name.replace(/^(blk\.\d+\.ffn_down)_t\./, "$1.");
    const isTransposed = name !== tensor.name && tensor.shape.length === 2;
    if (isTransposed) transposed.set(name, tensor);
    tensors.set(name, isTransposed ? transposedInfo(name, tensor) : { ...tensor, name });
  }
  let last: { readonly name: string; readonly bytes: Promise<Uint8Array> } | undefined;
  return {
    ...file,
    metadata: withString(file.metadata, file.name, `${KNOWN}.hidden_activation`, "relu"),
    tensors,
    filePartsOf: (tensor) => (transposed.has(tensor.name) ? undefined : file.filePartsOf(tensor)),
    async readTensor(tensor: TensorInfo, target: Uint8Array, byteOffset = 0): Promise<void> {
      const source = transposed.get(tensor.name);
      if (!source) return await file.readTensor(tensor, target, byteOffset);
      // Tensors are read in pieces, one tensor after the other.
      if (last?.name !== tensor.name) {
        last = { name: tensor.name, bytes: readTransposed(file, source, tensor.dtype) };
      }
      const bytes = await last.bytes;
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    },
    close: () => file.close(),
  };
}

function transposedInfo(name: string, { dtype, shape, ...place }: TensorInfo): TensorInfo {
  const [rows, cols] = shape as [number, number];
  const held =
    dtype.block.kind === "floats" || rows % HELD.blockElems !== 0 ? floatOf(dtype) : HELD;
  return {
    ...place,
    name,
    dtype: held,
    shape: [cols, rows],
    byteLength: bytesFor(held, rows * cols),
  };
}

/** A type of single values: rows of no whole blocks are floats. */
function floatOf(dtype: DType): DType {
  return dtype.block.kind === "floats" ? dtype : dtypeByName("f32")!;
}

async function readTransposed(
  file: ModelFile,
  source: TensorInfo,
  held: DType,
): Promise<Uint8Array> {
  const { dtype, shape } = source;
  const [rows, cols] = shape as [number, number];
  const bytes = new Uint8Array(source.byteLength);
  await file.readTensor(source, bytes);
  const out = new Float32Array(rows * cols);
  const row = new Float32Array(cols);
  const rowBytes = bytesFor(dtype, cols);
  for (let r = 0; r < rows; r++) {
    dtype.dequantize(bytes, r * rowBytes, row, 0, cols / dtype.blockElems);
    for (let c = 0; c < cols; c++) out[c * rows + r] = row[c]!;
  }
  const result = new Uint8Array(bytesFor(held, rows * cols));
  held.quantize!(out, 0, result, 0, (rows * cols) / held.blockElems);
  return result;
}

/** The metadata with a string that it lacks. */
function withString(metadata: Metadata, file: string, key: string, value: string): Metadata {
  if (metadata.has(key)) return metadata;
  const own = new TypedMetadata("gguf", file, new Map([[key, { type: "string", value }]]));
  const of = (wanted: string) => (wanted === key ? own : metadata);
  return {
    *keys() {
      yield* metadata.keys();
      yield key;
    },
    has: (wanted) => of(wanted).has(wanted),
    string: (wanted) => of(wanted).string(wanted),
    number: (wanted) => of(wanted).number(wanted),
    boolean: (wanted) => of(wanted).boolean(wanted),
    arrayLength: (wanted) => of(wanted).arrayLength(wanted),
    strings: (wanted) => of(wanted).strings(wanted),
    numbers: (wanted) => of(wanted).numbers(wanted),
    booleans: (wanted) => of(wanted).booleans(wanted),
    preview: (wanted, limit) => of(wanted).preview(wanted, limit),
  };
}
