// safetensors: the tensor tables of one file, or of all files named in model.safetensors.index.json.
//
//   u64 header length | JSON { name: { dtype, shape, data_offsets: [begin, end] }, "__metadata__"?: {...} } | data
//
// The tables here have the file's own tensor names; huggingface.ts translates them into GGUF's.

import { FormatError } from "../base/errors.ts";
import type { DType } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { ByteSource, ModelSource } from "../platform/platform.ts";
import {
  checkUniqueKeys,
  decodeText,
  describe,
  field,
  isObject,
  type JsonFacts,
  type JsonObject,
  parseJsonObject,
  readJsonFile,
} from "./json.ts";
import type { TensorInfo } from "./model-file.ts";
import { packedBytes } from "./packed-bytes.ts";
import { checkTensorRanges, tensorBytes } from "./tensor-table.ts";

export const safetensorsIndex = "model.safetensors.index.json";

/** The format's own limit for a header. */
const longestHeader = 100_000_000;
const longestIndex = 64 << 20;

/** The element types that this build reads, by their safetensors names. */
const dtypes: ReadonlyMap<string, DType> = new Map([
  ["F32", dtypeByName("f32")!],
  ["F16", dtypeByName("f16")!],
  ["BF16", dtypeByName("bf16")!],
  ["U8", packedBytes],
]);

/** Opens one file and adds it to `opened`, where it stays open. */
export async function openSafetensorsFile(
  source: ModelSource,
  file: string,
  opened: Map<string, ByteSource>,
): Promise<Map<string, TensorInfo>> {
  const bytes = await source.open(file);
  opened.set(file, bytes);
  return await readSafetensorsHeader(bytes, file);
}

/** Opens every file of an index; each tensor must be where the index says. */
export async function openSafetensorsIndex(
  source: ModelSource,
  opened: Map<string, ByteSource>,
): Promise<Map<string, TensorInfo>> {
  const weightMap = await readWeightMap(source);
  const tables = new Map<string, Map<string, TensorInfo>>();
  const tensors = new Map<string, TensorInfo>();
  for (const [name, file] of weightMap) {
    let table = tables.get(file);
    if (!table) {
      if (!(await source.has(file)))
        throw indexError(`weight_map: ${file}`, "no such file", `${file} beside the index`);
      table = await openSafetensorsFile(source, file, opened);
      tables.set(file, table);
    }
    const tensor = table.get(name);
    if (!tensor)
      throw indexError(
        `weight_map: ${JSON.stringify(name)}`,
        `no such tensor in ${file}`,
        "a tensor of that file",
      );
    tensors.set(name, tensor);
  }
  return tensors;
}

async function readWeightMap(source: ModelSource): Promise<[name: string, file: string][]> {
  const bytes = await source.open(safetensorsIndex);
  let index: JsonObject;
  try {
    index = await readJsonFile(bytes, longestIndex, "safetensors");
  } finally {
    await bytes.close();
  }
  const map = field(index, "weight_map");
  if (!isObject(map))
    throw indexError("weight_map", describe(map), "an object of tensor names and file names");
  return Object.entries(map).map(([name, file]) => {
    if (typeof file === "string" && /^[^/\\]+\.safetensors$/.test(file)) return [name, file];
    throw indexError(
      `weight_map: ${JSON.stringify(name)}`,
      describe(file),
      "a plain file name that ends in .safetensors",
    );
  });
}

async function readSafetensorsHeader(
  source: ByteSource,
  file: string,
): Promise<Map<string, TensorInfo>> {
  const error = (what: string, got: unknown, expected: string): FormatError =>
    new FormatError("safetensors", { file, field: what, got, expected });
  if (source.size < 8)
    throw error("file size", source.size, "at least the 8 bytes of a header length");
  const lengthBytes = await source.read(0, 8);
  const headerBytes = Number(new DataView(lengthBytes.buffer).getBigUint64(0, true));
  const most = Math.min(longestHeader, source.size - 8);
  if (headerBytes < 2 || headerBytes > most) {
    throw error("header length", headerBytes, `2 to ${most} (the file has ${source.size} bytes)`);
  }
  const bytes = await source.read(8, headerBytes);
  const facts: JsonFacts = { format: "safetensors", file, field: "header" };
  if (bytes[0] !== 0x7b) throw error("header", bytes, 'JSON that begins with "{"');
  const header = parseJsonObject(bytes, facts);
  checkUniqueKeys(decodeText(bytes, facts), facts);

  const dataOffset = 8 + headerBytes;
  const tensors = new Map<string, TensorInfo>();
  for (const [name, value] of Object.entries(header)) {
    if (name !== "__metadata__") tensors.set(name, toTensorInfo(file, name, value, dataOffset));
  }
  checkTensorRanges("safetensors", file, [...tensors.values()], source.size);
  checkNoHoles(file, tensors, dataOffset, source.size);
  return tensors;
}

function toTensorInfo(file: string, name: string, value: unknown, dataOffset: number): TensorInfo {
  const error = (what: string, got: unknown, expected: string): FormatError =>
    new FormatError("safetensors", {
      file,
      field: `tensor ${JSON.stringify(name)} ${what}`,
      got,
      expected,
    });
  if (name === "") throw error("name", name, "a name that is not empty");
  if (!isObject(value)) throw error("entry", describe(value), "an object");
  const type = field(value, "dtype");
  const dtype = typeof type === "string" ? dtypes.get(type) : undefined;
  if (!dtype) throw error("dtype", describe(type), `one of ${[...dtypes.keys()].join(", ")}`);
  const dims = wholeNumbers(field(value, "shape"));
  if (!dims) throw error("shape", describe(field(value, "shape")), "an array of whole numbers");
  // A single value may have no dimension.
  const shape = dims.length === 0 ? [1] : dims;
  const byteLength = tensorBytes({ format: "safetensors", file, name, dtype, shape });
  const offsets = wholeNumbers(field(value, "data_offsets"));
  if (offsets?.length !== 2) {
    throw error("data_offsets", describe(field(value, "data_offsets")), "two whole numbers");
  }
  const [begin, end] = offsets as [number, number];
  if (end - begin !== byteLength) {
    throw error(
      "data_offsets",
      `${begin} to ${end}`,
      `${byteLength} bytes, as ${String(type)} and the shape need`,
    );
  }
  return { name, dtype, shape, byteLength, file, offset: dataOffset + begin };
}

/** The format requires that tensors cover the data section completely: a hole could hide anything. */
function checkNoHoles(
  file: string,
  tensors: ReadonlyMap<string, TensorInfo>,
  dataOffset: number,
  fileSize: number,
): void {
  let covered = dataOffset;
  for (const tensor of tensors.values()) covered += tensor.byteLength;
  if (covered === fileSize) return; // ranges are inside the file and do not overlap, so equal sums mean no hole
  const got = `${fileSize - covered} bytes that belong to no tensor`;
  const expected = "tensors that cover the file without a hole";
  throw new FormatError("safetensors", { file, field: "data", got, expected });
}

function wholeNumbers(value: unknown): number[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const whole = value.every((item) => Number.isSafeInteger(item) && item >= 0);
  return whole ? value : undefined;
}

function indexError(what: string, got: unknown, expected: string): FormatError {
  return new FormatError("safetensors", { file: safetensorsIndex, field: what, got, expected });
}
