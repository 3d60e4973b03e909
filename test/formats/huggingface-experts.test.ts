// Hugging Face folders with experts: a tensor for each of them, or fused ones, are read as one weight with a matrix for each
// expert, wherever its parts lie; what does not fit together is refused with the tensor's name.

import { describe, expect, test } from "vitest";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { filesModelSource } from "../../src/platform/sources/blob.ts";
import { convertInMemory, referenceLogits } from "../tools/conversion.ts";
import {
  asFiles,
  type Files,
  type FolderOptions,
  mixture,
  tinyFolder,
  tinyPrompt,
} from "../tools/tiny-folder.ts";

const [hidden, { experts, feedForward }] = [64, mixture];

async function openFolder(files: Files): Promise<ModelFile> {
  return await openModelFile(await filesModelSource(asFiles(files)));
}

async function bytesOf(file: ModelFile, name: string, from = 0, to?: number): Promise<Uint8Array> {
  const tensor = file.tensors.get(name)!;
  const bytes = new Uint8Array((to ?? tensor.byteLength) - from);
  await file.readTensor(tensor, bytes, from);
  return bytes;
}

/** What each tensor of the folder was made of, by its name there. */
function folderWithValues(options: FolderOptions): [Files, Map<string, Float32Array>] {
  const values = new Map<string, Float32Array>();
  const change = (name: string, own: Float32Array) => void values.set(name, own);
  return [tinyFolder({ ...options, change }), values];
}

describe("a tensor for each expert", () => {
  test.each([
    ["qwen3_moe", "mlp.experts", "down_proj"],
    ["mixtral", "block_sparse_moe.experts", "w2"],
  ] as const)("%s: in order, also across files", async (modelType, stem, name) => {
    const [files, values] = folderWithValues({ modelType, shards: 5 });
    const file = await openFolder(files);
    const joined = "blk.1.ffn_down_exps.weight";
    expect(file.tensors.get(joined)!.shape).toEqual([experts, hidden, feedForward]);
    const parts = Array.from({ length: experts }, (_, expert) =>
      values.get(`model.layers.1.${stem}.${expert}.${name}.weight`),
    );
    const whole = new Uint8Array(Float32Array.from(parts.flatMap((part) => [...part!])).buffer);
    expect(await bytesOf(file, joined)).toEqual(whole);
    const partBytes = whole.length / experts;
    const [from, to] = [partBytes - 8, 2 * partBytes + 4];
    expect(await bytesOf(file, joined, from, to)).toEqual(whole.slice(from, to));
    await expect(bytesOf(file, joined, 4, whole.length + 4)).rejects.toThrow(/which has/);
    await file.close();
  });

  test("the numbers of config.json", async () => {
    const file = await openFolder(tinyFolder({ modelType: "qwen2_moe" }));
    const number = (key: string) => file.metadata.number(`qwen2moe.${key}`);
    expect(number("expert_count")).toBe(experts);
    expect(number("expert_used_count")).toBe(mixture.used);
    expect(number("expert_feed_forward_length")).toBe(feedForward);
    expect(number("expert_shared_feed_forward_length")).toBe(mixture.shared);
    await file.close();
  });
});

test("fused tensors: gate and up are halves of each expert's rows", async () => {
  const [files, values] = folderWithValues({ modelType: "qwen3_moe", experts: "fused" });
  const file = await openFolder(files);
  const fused = values.get("model.layers.0.mlp.experts.gate_up_proj")!;
  const half = feedForward * hidden;
  for (const [i, name] of ["gate", "up"].entries()) {
    const joined = `blk.0.ffn_${name}_exps.weight`;
    expect(file.tensors.get(joined)!.shape).toEqual([experts, feedForward, hidden]);
    const got = new Float32Array((await bytesOf(file, joined)).buffer);
    for (let expert = 0; expert < experts; expert++) {
      const at = (2 * expert + i) * half;
      expect(got.slice(expert * half, (expert + 1) * half)).toEqual(fused.slice(at, at + half));
    }
  }
  await file.close();
});

describe("converted, a mixture computes what the folder computes", () => {
  test.each([
    ["qwen2_moe, BF16", { modelType: "qwen2_moe", type: "BF16", shards: 3 }],
    ["qwen3_moe, fused", { modelType: "qwen3_moe", experts: "fused" }],
  ] as [string, FolderOptions][])("%s", async (_, options) => {
    const files = tinyFolder(options);
    const { file } = await convertInMemory(asFiles(files));
    const wanted = await referenceLogits(asFiles(files), tinyPrompt, 12);
    expect(new Set(wanted.greedy).size).toBeGreaterThan(1);
    const got = await referenceLogits(file, tinyPrompt, 12);
    expect(got.greedy).toEqual(wanted.greedy);
    // Routers are written as F32: beside them activations are not rounded.
    const router = file.tensors.get("blk.0.ffn_gate_inp.weight")!;
    expect(router.dtype.name).toBe("f32");
    const exps = file.tensors.get("blk.0.ffn_up_exps.weight")!;
    expect(exps.dtype.name).toBe((options.type ?? "F32").toLowerCase());
    expect(exps.byteLength).toBe(bytesFor(exps.dtype, experts * feedForward * hidden));
  });
});

describe("experts that do not fit together", () => {
  /** The header of the folder's file, changed. */
  async function changed(change: (header: Record<string, Entry>) => void, options = {}) {
    const files = tinyFolder({ modelType: "qwen3_moe", ...options });
    const bytes = files["model.safetensors"]!;
    const size = Number(new DataView(bytes.buffer).getBigUint64(0, true));
    const text = new TextDecoder().decode(bytes.subarray(8, 8 + size));
    const header = JSON.parse(text) as Record<string, Entry>;
    change(header);
    const json = new TextEncoder().encode(JSON.stringify(header).padEnd(size));
    const file = new Uint8Array(8 + json.length + bytes.length - 8 - size);
    new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
    file.set(json, 8);
    file.set(bytes.subarray(8 + size), 8 + json.length);
    return await openFolder({ ...files, "model.safetensors": file });
  }
  interface Entry {
    dtype: string;
    shape: number[];
    data_offsets: [number, number];
  }
  const name = (expert: number) => `model.layers.0.mlp.experts.${expert}.up_proj.weight`;

  test("one is missing", async () => {
    const opening = changed((header) => {
      header.another = header[name(1)]!;
      delete header[name(1)];
    });
    await expect(opening).rejects.toThrow(
      /3 experts for blk.0.ffn_up_exps.weight, and none with number 1", expected experts 0, 1, 2/,
    );
  });

  test("one has another shape", async () => {
    const opening = changed((header) => {
      header[name(2)]!.shape = [hidden, feedForward];
    });
    await expect(opening).rejects.toThrow(
      /experts.2.up_proj.weight".*f32 \[64,32\]", expected f32 \[32,64\]/,
    );
  });

  test("a number that is far beyond the others", async () => {
    const opening = changed((header) => {
      header[name(999999)] = header[name(3)]!;
      delete header[name(3)];
    });
    await expect(opening).rejects.toThrow(/4 experts for .*, and none with number 3/);
  });

  test("fused rows that are no halves", async () => {
    const opening = changed(
      (header) => {
        const entry = header["model.layers.0.mlp.experts.gate_up_proj"]!;
        entry.shape = [2 * feedForward * experts * hidden];
      },
      { experts: "fused" },
    );
    await expect(opening).rejects.toThrow(/expected \[experts, 2 times as many rows, columns\]/);
  });
});
