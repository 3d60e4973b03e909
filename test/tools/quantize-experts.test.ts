// Weights of experts in the tools that look at every matrix: rows of each expert are quantized by themselves, with the
// importance of what came to that expert; and what came to each is counted.

import { expect, test } from "vitest";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { sumInputs } from "../../src/engine/input-sums.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { quantize } from "../../src/index.ts";
import { readImportance, writeImportance } from "../../src/tools/quantize/importance.ts";
import { countedProblems } from "../../src/tune/space.ts";
import { memorySink, memorySource } from "../formats/support.ts";
import { loadArch } from "../models/archs-golden.ts";
import { describeShared } from "../support/shared.ts";
import { convertInMemory } from "./conversion.ts";
import { asFiles, mixture, tinyFolder } from "./tiny-folder.ts";

const [hidden, { experts, feedForward }] = [64, mixture];
const name = "blk.1.ffn_gate_exps.weight";

async function tensorOf(gguf: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const file = await openModelFile(memorySource({ "model.gguf": gguf }));
  const tensor = file.tensors.get(name)!;
  expect(tensor.shape).toEqual([experts, feedForward, hidden]);
  const bytes = new Uint8Array(tensor.byteLength);
  await file.readTensor(tensor, bytes);
  return bytes;
}

test("quantize: every expert's rows, as the type quantizes them", async () => {
  const { gguf } = await convertInMemory(asFiles(tinyFolder({ modelType: "qwen3_moe" })));
  const sink = memorySink();
  await quantize(new File([gguf], "model.gguf"), sink, "q8_0");
  const source = new Float32Array((await tensorOf(gguf)).slice().buffer);
  const q8 = dtypeByName("q8_0")!;
  const wanted = new Uint8Array(bytesFor(q8, source.length));
  q8.quantize!(source, 0, wanted, 0, source.length / q8.blockElems);
  expect(await tensorOf(sink.bytes())).toEqual(wanted);
});

test("importance is read for each expert; one that no token came to has none", async () => {
  const sink = memorySink();
  const sums = Float32Array.from({ length: 3 * 2 }, (_, i) => i);
  const counts = Float32Array.of(2, 0, 4);
  const facts = { datasets: [], chunks: 1, chunkTokens: 8 };
  await writeImportance(sink, [{ name, sums, counts }], facts);
  const file = await openGguf(memorySource({ "i.gguf": sink.bytes() }), "i.gguf");
  const importance = await readImportance(file, "i.gguf");
  const tensor = { name, dtype: dtypeByName("f32")!, shape: [3, 5, 2] };
  const of = (expert: number) => [
    ...importance.of({ ...tensor, byteLength: 0, file: "", offset: 0 }, expert)!,
  ];
  expect(of(0)).toEqual([0, 0.5]);
  expect(of(1)).toEqual([1, 1]);
  expect(of(2)).toEqual([1, 1.25]);
});

test("a matmul of experts is tuned as one of their matrices", () => {
  const dtype = dtypeByName("q4_0")!;
  const tensors = [{ name, shape: [8, 96, 64], dtype }];
  expect(countedProblems(tensors)).toMatchObject([{ dtype: "q4_0", n: 96, k: 64 }]);
});

describeShared("what comes into the matrices of experts", "archs/qwen3moe.gguf", () => {
  test("is what came to the router, once for each expert of a token", async () => {
    const engine = await loadArch("qwen3moe", new ReferenceBackend());
    const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
    const tokens = Array.from({ length: 40 }, (_, i) => 3 + ((i * 37) % 500));
    const sums = await sumInputs(engine, { tokens, firstIsBos: false }, control);
    const of = (matrix: string) => sums.find((each) => each.name === `blk.0.${matrix}.weight`)!;
    const router = of("ffn_gate_inp");
    for (const matrix of ["ffn_gate_exps", "ffn_up_exps"]) {
      const { squares, expertTokens } = of(matrix);
      expect(expertTokens!.reduce((a, b) => a + b)).toBe(2 * tokens.length);
      for (let col = 0; col < 64; col++) {
        const all = Array.from(expertTokens!, (_, expert) => squares[expert * 64 + col]!);
        const sum = all.reduce((a, b) => a + b);
        expect(sum / (2 * router.squares[col]!)).toBeCloseTo(1, 4);
      }
    }
    expect(of("ffn_down_exps").squares.length).toBe(8 * 16);
    expect([...of("ffn_down_exps").expertTokens!]).toEqual([...of("ffn_up_exps").expertTokens!]);
    engine.dispose();
  });
});

describeShared("what comes into a fused tensor", "archs/phi3.gguf", () => {
  test("has the tensor's name, once", async () => {
    const engine = await loadArch("phi3", new ReferenceBackend());
    const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
    const sums = await sumInputs(engine, { tokens: [3, 40, 77], firstIsBos: false }, control);
    const names = sums.map(({ name }) => name);
    expect(names.filter((name) => name.startsWith("blk.0.attn_q"))).toEqual([
      "blk.0.attn_qkv.weight",
    ]);
    expect(names.filter((name) => name.startsWith("blk.0.ffn_up"))).toEqual([
      "blk.0.ffn_up.weight",
    ]);
    engine.dispose();
  });
});
