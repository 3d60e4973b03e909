// llama2.c checkpoints: layout, tied and untied, the tokenizer beside or behind the weights, hostile headers.
// Held against: files that the test makes.

import { describe, expect, test } from "vitest";
import { FormatError } from "../../src/base/errors.ts";
import { openLlama2c } from "../../src/formats/llama2c.ts";
import type { ModelFile, TensorInfo } from "../../src/formats/model-file.ts";
import { concat, llama2cBytes, memorySource, smallLlama2c, tokenizerBytes } from "./support.ts";

const tokenizer = tokenizerBytes(["<unk>", "<s>", "</s>", "a", "bc"]);

async function firstFloat(model: ModelFile, tensor: TensorInfo): Promise<number> {
  const bytes = new Uint8Array(4);
  await model.readTensor(tensor, bytes);
  return new DataView(bytes.buffer).getFloat32(0, true);
}

describe("llama2.c", () => {
  test("every tensor points at its place", async () => {
    const files = { "m.bin": llama2cBytes(smallLlama2c), "tokenizer.bin": tokenizer };
    const model = await openLlama2c(memorySource(files), "m.bin");
    // The n-th float of the file is n; the order is embedding, then each kind for both layers.
    const expected: [string, number[], number][] = [
      ["token_embd.weight", [5, 8], 0],
      ["blk.0.attn_norm.weight", [8], 40],
      ["blk.1.attn_norm.weight", [8], 48],
      ["blk.0.attn_q.weight", [8, 8], 56],
      ["blk.1.attn_q.weight", [8, 8], 120],
      ["blk.0.attn_k.weight", [4, 8], 184],
      ["blk.1.attn_k.weight", [4, 8], 216],
      ["blk.0.attn_v.weight", [4, 8], 248],
      ["blk.1.attn_v.weight", [4, 8], 280],
      ["blk.0.attn_output.weight", [8, 8], 312],
      ["blk.1.attn_output.weight", [8, 8], 376],
      ["blk.0.ffn_norm.weight", [8], 440],
      ["blk.1.ffn_norm.weight", [8], 448],
      ["blk.0.ffn_gate.weight", [12, 8], 456],
      ["blk.1.ffn_gate.weight", [12, 8], 552],
      ["blk.0.ffn_down.weight", [8, 12], 648],
      ["blk.1.ffn_down.weight", [8, 12], 744],
      ["blk.0.ffn_up.weight", [12, 8], 840],
      ["blk.1.ffn_up.weight", [12, 8], 936],
      ["output_norm.weight", [8], 1032],
    ];
    const found: typeof expected = [];
    for (const tensor of model.tensors.values()) {
      found.push([tensor.name, [...tensor.shape], await firstFloat(model, tensor)]);
    }
    expect(found).toEqual(expected);
    expect(model.metadata.number("llama.attention.head_count_kv")).toBe(1);
    expect(model.metadata.number("llama.context_length")).toBe(4);
    expect(model.metadata.number("llama.rope.freq_base")).toBe(10000);
    expect(model.metadata.string("lantern.rope.layout")).toBe("interleaved");
    expect(model.tokenizer).toEqual({ kind: "llama2c", bytes: tokenizer });
  });

  test("a negative vocabulary: the output matrix follows the tables", async () => {
    const files = { "m.bin": llama2cBytes({ ...smallLlama2c, vocab: -5 }), "tok5.bin": tokenizer };
    const model = await openLlama2c(memorySource(files), "m.bin");
    const output = model.tensors.get("output.weight")!;
    expect(output.shape).toEqual([5, 8]);
    expect(await firstFloat(model, output)).toBe(1040 + 4 * 4);
    expect(output.offset + output.byteLength).toBe(files["m.bin"].byteLength);
  });

  test("a tokenizer behind the weights", async () => {
    const source = memorySource({ "m.data": concat(llama2cBytes(smallLlama2c), tokenizer) });
    const model = await openLlama2c(source, "m.data");
    expect(model.tokenizer).toEqual({ kind: "llama2c", bytes: tokenizer });
    await model.close();
    expect(source.count.open).toBe(0);
  });

  test("of several tokenizers, the one with the right number of tokens", async () => {
    const files = {
      "m.bin": llama2cBytes(smallLlama2c),
      "tokenizer.bin": tokenizerBytes(["a", "b"]),
      "tok-mine.bin": tokenizer,
    };
    const model = await openLlama2c(memorySource(files), "m.bin");
    expect(model.tokenizer).toEqual({ kind: "llama2c", bytes: tokenizer });
  });

  const good = llama2cBytes(smallLlama2c);
  const changed = (change: Partial<typeof smallLlama2c>) =>
    llama2cBytes({ ...smallLlama2c, ...change }, 1000);
  const brokenTokenizer = tokenizer.slice();
  brokenTokenizer[8] = 99; // the first token's length
  const later = good.slice();
  later.set(new TextEncoder().encode("24ka"));
  const cases: [what: string, files: Record<string, Uint8Array>, message: string][] = [
    ["an empty file", { "m.bin": new Uint8Array(0) }, "file size: got 0"],
    ["a negative dim", { "m.bin": changed({ dim: -8 }) }, "dim: got -8, expected 1 to"],
    ["no layers", { "m.bin": changed({ layers: 0 }) }, "layers: got 0"],
    ["2^31-1 layers", { "m.bin": changed({ layers: 2 ** 31 - 1 }) }, "layers: got 2147483647"],
    [
      "a vocabulary of -2^31",
      { "m.bin": changed({ vocab: -(2 ** 31) }) },
      "vocabSize: got 2147483648",
    ],
    [
      "heads that do not divide dim",
      { "m.bin": changed({ heads: 3 }) },
      "dim: got 8, expected a multiple of 2 x 3",
    ],
    ["an odd head size", { "m.bin": changed({ heads: 8 }) }, "dim: got 8"],
    [
      "kv heads that do not divide heads",
      { "m.bin": changed({ heads: 2, kvHeads: 3 }) },
      "kvHeads: got 3",
    ],
    [
      "numbers that need more than the file",
      { "m.bin": changed({ hidden: 1 << 22, layers: 4096 }) },
      "as the header's numbers need",
    ],
    [
      "a truncated file",
      { "m.bin": good.slice(0, -4), "tokenizer.bin": tokenizer },
      `file size: got ${good.byteLength - 4}`,
    ],
    ["a later export", { "m.bin": later }, "expected a version 0 export"],
    [
      "no tokenizer",
      { "m.bin": good },
      'tokenizer: got "no such file", expected tokenizer.bin or tok5.bin',
    ],
    [
      "a tokenizer of another size",
      { "m.bin": good, "tokenizer.bin": tokenizerBytes(["a"]) },
      "with another number of tokens",
    ],
    [
      "a tokenizer whose lengths lie",
      { "m.bin": good, "tokenizer.bin": brokenTokenizer },
      "with another number of tokens",
    ],
    [
      "something else behind the weights",
      { "m.bin": concat(good, brokenTokenizer) },
      "bytes after the weights: got",
    ],
  ];
  test.each(cases)("refuses %s", async (_what, files, message) => {
    const source = memorySource(files);
    const opening = openLlama2c(source, "m.bin");
    await expect(opening).rejects.toThrow(FormatError);
    await expect(opening).rejects.toThrow(message);
    await expect(opening).rejects.toThrow(/^llama2c: m\.bin: .+: got .+, expected .+/s);
    expect(source.count.open).toBe(0);
  });
});
