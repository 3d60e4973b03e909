// Makes test/dtypes/data/<type>.json from ggml's own library, for every type of the table:
//
//   node scripts/dtype-golden.ts <path of libggml-base.so> "<what library that is>" [type ...]
//
// The library comes with any build of llama.cpp, e.g. in the npm package @node-llama-cpp/linux-x64. It must be one
// without fused multiply-add in its base library (a portable x64 build), since ggml's results depend on it.

import { dlopen, getRawPointer } from "node:ffi";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import type { DType } from "../src/dtypes/dtype.ts";
import { allDTypes } from "../src/dtypes/table.ts";
import {
  floatBytes,
  type Golden,
  hex,
  importanceWeights,
  inputs,
  makeInput,
  randomBytes,
  rowLength,
  rows,
  sha256,
} from "../test/dtypes/golden.ts";

const [libraryPath, source, ...only] = process.argv.slice(2);
if (libraryPath === undefined || source === undefined) {
  console.error("usage: node scripts/dtype-golden.ts <libggml-base.so> <its name> [type ...]");
  process.exit(2);
}

// A type with a quantizer of its own for a KV cache keeps its "quantizeRow" (compared with the library of arm64, whose bytes
// are the same if ggml defines them).

const row = { arguments: ["pointer", "pointer", "i64"], return: "void" } as const;
const matrix = {
  arguments: ["pointer", "pointer", "i64", "i64", "pointer"],
  return: "u64",
} as const;
const ofType = { arguments: ["i32"], return: "i64" } as const;

const pointer = (data: Float32Array | Uint8Array): bigint => getRawPointer(data);

function callRow(
  name: string,
  from: Float32Array | Uint8Array,
  to: Float32Array | Uint8Array,
  elems: number,
): void {
  using library = dlopen(libraryPath!, { [name]: row });
  library.functions[name]!(pointer(from), pointer(to), BigInt(elems));
}

function callMatrix(
  name: string,
  from: Float32Array,
  to: Uint8Array,
  weights?: Float32Array,
): void {
  using library = dlopen(libraryPath!, { [name]: matrix });
  const imatrix = weights === undefined ? 0n : pointer(weights);
  library.functions[name]!(pointer(from), pointer(to), BigInt(rows), BigInt(rowLength), imatrix);
}

function callType(name: string, ggufId: number): number {
  using library = dlopen(libraryPath!, { [name]: ofType });
  return Number(library.functions[name]!(ggufId));
}

/** ggml writes the K of the K types in upper case. */
const ggmlName = (name: string): string => name.replace(/_k$/, "_K");

/** Inputs on which an assertion of ggml's fails for some types: the process would end. */
const overflowing: readonly string[] = ["squaresOverflow", "nearlyInfinite"];

interface Exception {
  read?: string;
  write?: string;
  weighs?: boolean;
  aborts?: readonly string[];
}

/** The functions of a type, if they do not follow from its name. */
const exceptions: Record<string, Exception> = {
  f32: { read: "(a copy)", write: "(a copy)", weighs: false },
  f16: { read: "ggml_fp16_to_fp32_row", write: "ggml_fp32_to_fp16_row", weighs: false },
  bf16: { read: "ggml_bf16_to_fp32_row", write: "ggml_fp32_to_bf16_row_ref", weighs: false },
  q8_0: { weighs: false },
  // ggml has none for this type: its scale and quants are those of a q8_0.
  q8_1: { read: "dequantize_row_q8_0", weighs: false },
  q8_k: { weighs: false },
  mxfp4: { write: "quantize_mxfp4", weighs: false },
  tq1_0: { write: "quantize_tq1_0", weighs: false },
  tq2_0: { write: "quantize_tq2_0", weighs: false },
  // The functions that files are written with; those named "_ref" skip the search, or do not exist.
  iq4_nl: { write: "quantize_iq4_nl" },
  iq2_xxs: { write: "quantize_iq2_xxs" },
  iq2_xs: { write: "quantize_iq2_xs", aborts: overflowing },
  iq2_s: { write: "quantize_iq2_s", aborts: overflowing },
  iq3_xxs: { write: "quantize_iq3_xxs", aborts: overflowing },
  iq3_s: { write: "quantize_iq3_s", aborts: overflowing },
  iq1_s: { write: "quantize_iq1_s" },
  iq1_m: { write: "quantize_iq1_m" },
};

function readWithGgml(dtype: DType, name: string, blocks: Uint8Array, elems: number): Float32Array {
  const values = new Float32Array(elems);
  if (dtype.name === "f32") return new Float32Array(blocks.slice().buffer);
  callRow(name, dtype.name === "q8_1" ? withoutSums(blocks) : blocks, values, elems);
  return values;
}

/** q8_1 blocks (scale, sum, 32 quants) as q8_0 blocks (scale, 32 quants). */
function withoutSums(blocks: Uint8Array): Uint8Array {
  const count = blocks.length / 36;
  const result = new Uint8Array(count * 34);
  for (let i = 0; i < count; i++) {
    result.set(blocks.subarray(36 * i, 36 * i + 2), 34 * i);
    result.set(blocks.subarray(36 * i + 4, 36 * i + 36), 34 * i + 2);
  }
  return result;
}

function writeWithGgml(
  dtype: DType,
  name: string,
  values: Float32Array,
  weights?: Float32Array,
): Uint8Array {
  const blocks = new Uint8Array((values.length / dtype.blockElems) * dtype.blockBytes);
  if (dtype.name === "f32") blocks.set(new Uint8Array(values.buffer));
  else if (weights !== undefined)
    callMatrix(`quantize_${ggmlName(dtype.name)}`, values, blocks, weights);
  else if (!name.endsWith("_ref") && name.startsWith("quantize_")) callMatrix(name, values, blocks);
  else callRow(name, values, blocks, values.length);
  return blocks;
}

function makeGolden(dtype: DType): Golden {
  const { name, ggufId, blockElems, blockBytes } = dtype;
  const special = exceptions[name] ?? {};
  const read = special.read ?? `dequantize_row_${ggmlName(name)}`;
  const write = special.write ?? `quantize_row_${ggmlName(name)}_ref`;
  const seed = 1;
  const blocks = Math.max(64, 4096 / blockElems);
  const bytes = randomBytes(seed, blocks * blockBytes);
  const values = readWithGgml(dtype, read, bytes, blocks * blockElems);
  const golden: Golden = {
    source: source!,
    name,
    ggufId,
    blockElems: callType("ggml_blck_size", ggufId),
    blockBytes: callType("ggml_type_size", ggufId),
    dequantize: {
      function: read,
      seed,
      blocks,
      sha256: sha256(floatBytes(values)),
      sample: {
        block: hex(bytes.subarray(0, blockBytes)),
        values: hex(floatBytes(values.subarray(0, blockElems))),
      },
    },
  };
  if (dtype.quantize === undefined) return golden;

  callType("ggml_quantize_init", ggufId); // some types need tables
  const weights = importanceWeights(2);
  const needed = dtype.needsImportance === "always" ? weights : undefined;
  const hashAll = (imatrix?: Float32Array): Record<string, string | null> =>
    Object.fromEntries(
      Object.keys(inputs).map((input) => [
        input,
        special.aborts?.includes(input)
          ? null
          : sha256(writeWithGgml(dtype, write, makeInput(input), imatrix)),
      ]),
    );
  golden.quantize = {
    function: write,
    ...(needed ? {} : { plain: hashAll() }),
    ...(special.weighs === false ? {} : { weighted: hashAll(weights) }),
    sample: hex(writeWithGgml(dtype, write, makeInput("normal"), needed).subarray(0, blockBytes)),
  };
  return golden;
}

for (const dtype of allDTypes()) {
  if (only.length > 0 && !only.includes(dtype.name)) continue;
  const file = new URL(`../test/dtypes/data/${dtype.name}.json`, import.meta.url);
  const { quantizeRow } = existsSync(file)
    ? (JSON.parse(readFileSync(file, "utf8")) as Golden)
    : { quantizeRow: undefined };
  const golden = { ...makeGolden(dtype), ...(quantizeRow && { quantizeRow }) };
  writeFileSync(file, `${JSON.stringify(golden, null, 2)}\n`);
  console.log(dtype.name);
}
