// The synthetic models of scripts/make-model.ts: whole files that open, generate, and are what was asked for.
// Held against: the sizes that were asked for.

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { writeModel } from "../../scripts/make-model.ts";
import { syntheticModel } from "../../scripts/synthetic-model.ts";
import { shapes } from "../../scripts/synthetic-shapes.ts";
import { allDTypes, dtypeByName } from "../../src/dtypes/table.ts";
import { isQuantizable } from "../../src/formats/quantizable.ts";
import { inspect, open } from "../../src/index.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-make-model-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function make(shape: string, type: string, file = `${shape}-${type}.gguf`) {
  const path = join(folder, file);
  const model = syntheticModel(shape, type);
  await writeModel(model, path);
  return { path, model };
}

test("opens, tokenizes and generates", async () => {
  const { path } = await make("tiny", "q4_0");
  await using model = await open(path);
  expect(model.info).toMatchObject({
    name: "tiny-q4_0-synthetic",
    architecture: "llama",
    layers: 2,
    vocabSize: 512,
    trainedContext: 512,
    weightType: "q4_0",
  });
  const ids = await model.tokenize("ba Ω");
  expect(ids[0]).toBe(1);
  expect(await model.detokenize(ids.slice(1))).toBe("ba Ω");
  const { tokenIds, stopReason } = await model.generate(ids, {
    maxTokens: 8,
    ignoreEos: true,
    temperature: 0,
  }).result;
  expect({ count: tokenIds.length, stopReason }).toEqual({ count: 8, stopReason: "length" });
  // Made-up weights, but of a size that keeps the numbers in a trained model's range.
  const { positions } = await model.logits(ids);
  for (const { norm } of positions) {
    expect(norm).toBeGreaterThan(1);
    expect(norm).toBeLessThan(1000);
  }
});

test.each(Object.keys(shapes).filter((shape) => shape.startsWith("tiny-")))(
  "%s generates",
  async (shape) => {
    const { path } = await make(shape, "q8_0");
    await using model = await open(path);
    const options = { maxTokens: 4, ignoreEos: true, temperature: 0 };
    expect((await model.generate([1, 2, 3], options).result).tokenIds).toHaveLength(4);
    const { positions } = await model.logits([1, 2, 3]);
    for (const { norm } of positions) expect(norm).toBeGreaterThan(0);
  },
);

test("the same shape and type: the same bytes", async () => {
  const [a, b] = [await make("tiny", "q4_k", "a.gguf"), await make("tiny", "q4_k", "b.gguf")];
  expect(readFileSync(a.path).equals(readFileSync(b.path))).toBe(true);
});

test.each(allDTypes().map(({ name }) => name))(
  "%s: matrices have it, vectors are f32, all values are small",
  async (type) => {
    const { path, model } = await make("tiny", type);
    const { tensors } = await inspect(path);
    for (const { dtype, shape } of tensors) expect(dtype).toBe(shape.length === 2 ? type : "f32");
    const tensor = model.tensors.find(({ name }) => name.includes("attn_q"))!;
    const dtype = dtypeByName(type)!;
    const [piece] = tensor.data() as Iterable<Uint8Array>;
    const blocks = piece!.length / dtype.blockBytes;
    const values = new Float32Array(blocks * dtype.blockElems);
    dtype.dequantize(piece!, 0, values, 0, blocks);
    const size = Math.sqrt(values.reduce((sum, x) => sum + x * x, 0) / values.length);
    expect(size).toBeGreaterThan(0.01);
    expect(size).toBeLessThan(0.04);
  },
);

describe("shapes", () => {
  test("have the parameters that their names promise", () => {
    const billions = (name: string): number =>
      syntheticModel(name, "f16").tensors.reduce(
        (sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1) / 1e9,
        0,
      );
    expect(billions("llama-1b")).toBeCloseTo(1.1, 1);
    expect(billions("llama2-7b")).toBeCloseTo(6.74, 2);
    expect(billions("llama2-13b")).toBeCloseTo(13.02, 2);
    expect(billions("qwen1.5-0.5b")).toBeCloseTo(0.46, 2); // 0.62 with the embedding counted twice
    expect(billions("qwen1.5-14b")).toBeCloseTo(14.17, 1);
    expect(billions("qwen3-moe-4b-a0.6b")).toBeCloseTo(4.03, 2);
    expect(billions("gemma3-1b")).toBeCloseTo(1.0, 2);
    expect(billions("qwen35-0.8b")).toBeCloseTo(0.75, 2);
    expect(billions("lfm2-1.2b")).toBeCloseTo(1.17, 2);
    expect(billions("mamba2-0.4b")).toBeCloseTo(0.37, 2);
    expect(billions("modernbert-base")).toBeCloseTo(0.149, 3);
    expect(billions("nomic-embed")).toBeCloseTo(0.137, 3);
  });

  test("experts are one tensor for each matrix, of the shape's own type where it has one; routers and biases stay F32", () => {
    const { metadata, tensors } = syntheticModel("gpt-oss-mini", "q8_0");
    const facts = (name: string) => {
      const { dtype, shape } = tensors.find((each) => each.name === `blk.0.${name}`)!;
      return [dtype.name, ...shape];
    };
    expect(facts("ffn_gate_exps.weight")).toEqual(["mxfp4", 32, 2880, 2880]);
    expect(facts("attn_q.weight")).toEqual(["q8_0", 4096, 2880]);
    expect(facts("ffn_gate_inp.weight")).toEqual(["f32", 32, 2880]);
    expect(facts("ffn_gate_exps.bias")).toEqual(["f32", 32, 2880]);
    expect(facts("attn_sinks.weight")).toEqual(["f32", 64]);
    const keys = new Map(metadata);
    expect(keys.get("gpt-oss.expert_used_count")).toEqual({ type: "u32", value: 4 });
    expect(keys.get("gpt-oss.attention.key_length")).toEqual({ type: "u32", value: 64 });
    expect(keys.get("gpt-oss.attention.sliding_window")).toEqual({ type: "u32", value: 128 });
  });

  test("decays are columns, and queries, keys and values one matrix, where llama.cpp has them so", () => {
    const shapeOf = (shape: string, name: string) =>
      syntheticModel(shape, "q8_0").tensors.find((each) => each.name === `blk.0.${name}`)?.shape;
    expect(shapeOf("mamba2-0.4b", "ssm_a")).toEqual([32, 1]);
    expect(shapeOf("qwen35-0.8b", "ssm_a")).toEqual([16]);
    expect(shapeOf("nomic-embed", "attn_qkv.weight")).toEqual([2304, 768]);
    expect(shapeOf("nomic-embed", "attn_q.weight")).toBeUndefined();
  });

  test("all have rows that 256 divides, or fall back as llama.cpp's quantizer does, and say so", () => {
    for (const shape of Object.keys(shapes)) {
      const model = syntheticModel(shape, "q4_k");
      const own = Object.keys(shapes[shape]!.types ?? {});
      const matrices = model.tensors.filter(isQuantizable);
      for (const tensor of matrices.filter(
        ({ name }) => !own.some((part) => name.includes(part)),
      )) {
        const fits = tensor.shape.at(-1)! % 256 === 0;
        expect(tensor.dtype.name).toBe(fits ? "q4_k" : "q5_0");
        if (fits) continue;
        const kind = tensor.name.replace(/^blk\.\d+\./, "");
        expect(model.notes).toContain(
          `${kind}: rows of ${tensor.shape.at(-1)} are no multiple of 256: q5_0 instead of q4_k`,
        );
      }
    }
    expect(syntheticModel("qwen1.5-1.8b", "q4_k").notes).toHaveLength(1); // 5504 = 21.5 x 256
  });
});

describe("the script", () => {
  const script = fileURLToPath(new URL("../../scripts/make-model.ts", import.meta.url));
  const run = (...args: string[]) =>
    spawnSync(process.execPath, [script, ...args], { encoding: "utf8" });

  test("writes the file and says so", () => {
    const path = join(folder, "made.gguf");
    const { status, stderr } = run("tiny", "Q8_0", path);
    expect(stderr).toMatch(/made\.gguf: 1\.\d MB, 21 tensors/);
    expect(status).toBe(0);
    expect(existsSync(path)).toBe(true);
    expect(readdirSync(folder).filter((name) => name.endsWith(".part"))).toEqual([]);
  });

  test.each([
    [[], 2, "usage: node scripts/make-model.ts SHAPE TYPE OUT.gguf"],
    [["huge", "q4_0", "x.gguf"], 2, 'shape "huge" is not known. Known: tiny, '],
    [["tiny", "q9", "x.gguf"], 2, 'type "q9" is not known'],
    [["tiny", "q4_0", join(folder, "no", "x.gguf")], 1, "Make it first"],
  ])("refuses %j", (args, status, message) => {
    const ran = run(...args);
    expect(ran.stderr).toContain(message);
    expect(ran.status).toBe(status);
  });
});
