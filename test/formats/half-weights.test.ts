// open() with weights "f16": the same bits as the file that quantize() writes as F16, in half of F32's memory. A matrix
// that F16 cannot hold keeps its type, and it is said which and why; quantize() keeps the same ones.

import { expect, test } from "vitest";
import { f32ToF16 } from "../../src/base/half.ts";
import { HalfRange } from "../../src/dtypes/half-range.ts";
import { asHalves } from "../../src/formats/half-weights.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import {
  AbortedError,
  inspect,
  type LogitsResult,
  ModelError,
  type ModelInfo,
  type OpenOptions,
  open,
  quantize,
  UsageError,
  verify,
} from "../../src/index.ts";
import { Random } from "../support/random.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { memorySink, memorySource } from "./support.ts";

const text = "the cat sat";
const down = "blk.1.ffn_down.weight"; // [32, 64]

type Change = (values: Float32Array) => void;

/** The tiny model in F32, with some values of one matrix changed. */
async function tiny(weightType = "f32", change?: Change): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = Uint8Array.from(await tinyGguf({ weightType }));
  if (!change) return bytes;
  const file = await openModelFile(memorySource({ "tiny.gguf": bytes }));
  const { offset, byteLength } = file.tensors.get(down)!;
  const values = new Float32Array(bytes.slice(offset, offset + byteLength).buffer);
  change(values);
  bytes.set(new Uint8Array(values.buffer), offset);
  return bytes;
}

const asFile = (bytes: Uint8Array<ArrayBuffer>): File => new File([bytes], "tiny.gguf");

async function quantized(bytes: Uint8Array<ArrayBuffer>) {
  const sink = memorySink();
  const result = await quantize(asFile(bytes), sink, "F16", { threads: 1 });
  return { file: new File([sink.bytes()], "tiny.gguf"), tensors: result.tensors };
}

async function logits(
  file: File,
  options: OpenOptions,
): Promise<{ result: LogitsResult; info: ModelInfo }> {
  await using model = await open(file, { threads: 1, level: 1, ...options });
  return { result: await model.logits(text, { top: 20, greedy: 6 }), info: model.info };
}

const large: Change = (values) => values.set([-70000, 65504, 1e5], 7);
const largeText = "2 of 2048 values are beyond F16's largest, 65504; the largest is 1.000e+5";

test.each([
  ["bf16", 1],
  ["f32", 3],
  ["f32", 4],
] as const)("a model in %s at level %i has the bits of its F16 file", async (weightType, level) => {
  const bytes = await tiny(weightType);
  const { file } = await quantized(bytes);
  const wanted = await logits(file, { level });
  const held = await logits(asFile(bytes), { level, weights: "f16" });
  expect(held.result).toEqual(wanted.result);
  expect(held.info.weightBytes).toBe(wanted.info.weightBytes);
  expect(held.info.weightType).toBe("f16");
  expect(held.info.heldAs).toEqual({ type: "f16", matrices: 15, kept: [] });
  expect(held.info.warnings).toEqual([]);
});

test("a matrix beyond 65504 keeps F32, and it is said; quantize() keeps the same", async () => {
  const bytes = await tiny("f32", large);
  const { file, tensors } = await quantized(bytes);
  expect(tensors.find(({ name }) => name === down)).toMatchObject({
    to: "f32",
    bytesAfter: 4 * 2048,
    note: `it keeps f32: ${largeText}`,
  });
  expect(tensors.filter(({ to }) => to === "f16")).toHaveLength(14);
  const wanted = await logits(file, { kvType: "f32" });
  const held = await logits(asFile(bytes), { weights: "f16", kvType: "f32" });
  expect(held.result).toEqual(wanted.result);
  expect(held.info.heldAs).toEqual({
    type: "f16",
    matrices: 14,
    kept: [{ name: down, dtype: "f32", problem: largeText }],
  });
  expect(held.info.warnings).toEqual([
    `weights f16: 1 of 15 matrices keep their type, because F16 cannot hold their values: ${down} (f32: ${largeText})`,
  ]);
  expect(held.info.weightBytes).toBe(wanted.info.weightBytes);
});

test("so does one whose values would become 0, and one that would change too much", async () => {
  const zeroed = await tiny("f32", (values) => {
    for (let i = 0; i < 100; i++) values[i]! *= 1e-8;
  });
  const coarse = await tiny("f32", (values) => {
    for (let i = 0; i < values.length; i++) values[i]! *= 3e-5;
  });
  for (const [bytes, problem] of [
    [zeroed, /would become 0/],
    [coarse, /would change by/],
  ] as const) {
    const { kept } = await asHalves(await openModelFile(memorySource({ "tiny.gguf": bytes })), {
      progress: () => {},
      check: () => {},
    });
    expect(kept).toHaveLength(1);
    expect(kept[0]).toMatchObject({ name: down, dtype: "f32" });
    expect(kept[0]!.problem).toMatch(problem);
  }
});

test("a value that is not a number keeps F32 here, and is an error of quantize()", async () => {
  const bytes = await tiny("f32", (values) => values.fill(Number.NaN, 3, 4));
  await using model = await open(asFile(bytes), { weights: "f16", threads: 1, level: 1 });
  expect(model.info.heldAs!.kept[0]!.problem).toMatch(/1 of 2048 .* the largest is not finite/);
  await expect(quantized(bytes)).rejects.toThrow(ModelError);
});

test("a quantized model stays as it is, and it is said", async () => {
  await using model = await open(asFile(await tiny("q8_0")), {
    weights: "f16",
    threads: 1,
    level: 1,
  });
  expect(model.info.weightType).toBe("q8_0");
  expect(model.info.warnings![0]).toMatch(/no matrix of this model is F32 or BF16/);
});

test("many tensors: the warning names some and counts the others", async () => {
  const bytes = await tiny("f32");
  const file = await openModelFile(memorySource({ "tiny.gguf": bytes }));
  for (const { name, offset } of file.tensors.values()) {
    if (name.includes("ffn_") && !name.includes("norm")) {
      bytes.set(new Uint8Array(Float32Array.of(1e6).buffer), offset);
    }
  }
  await using model = await open(asFile(bytes), { weights: "f16", threads: 1, level: 1 });
  expect(model.info.warnings![0]).toMatch(/6 of 15 matrices keep .*, and 3 more$/);
  expect(model.info.heldAs!.kept).toHaveLength(6);
});

test("verify() compares the F16 weights", async () => {
  const options = { backends: ["cpu"], threads: 1, tokens: 4, weights: "f16" } as const;
  const result = await verify(asFile(await tiny()), options);
  expect(result).toMatchObject({ passed: true });
  expect(result.warnings).toBeUndefined();
  const kept = await verify(asFile(await tiny("f32", large)), { ...options, tokens: 1 });
  expect(kept.warnings![0]).toContain(`${down} (f32: ${largeText})`);
});

test("inspect() has the memory of F16, before anything is read", async () => {
  const file = asFile(await tiny());
  const [held, stored] = [await inspect(file, { weights: "f16" }), await inspect(file)];
  const { info } = await logits(file, { weights: "f16" });
  expect(held.memory!.weightBytes).toBe(info.weightBytes);
  expect(held.memory!.weightBytes).toBeLessThan(0.52 * stored.memory!.weightBytes);
});

test("progress covers both reads, and an abort is noticed in the first", async () => {
  const file = asFile(await tiny());
  const shares: number[] = [];
  const onProgress = ({ loadedBytes, totalBytes }: { loadedBytes: number; totalBytes: number }) => {
    shares.push(loadedBytes / totalBytes);
  };
  await using _ = await open(file, { weights: "f16", threads: 1, level: 1, onProgress });
  expect(shares).toEqual(shares.toSorted((a, b) => a - b));
  expect(shares.at(-1)).toBe(1);
  const opened = await openModelFile(memorySource({ "tiny.gguf": await tiny() }));
  const check = () => {
    throw new AbortedError("the test");
  };
  await expect(asHalves(opened, { progress: () => {}, check })).rejects.toThrow(AbortedError);
});

test("another type is refused", async () => {
  const file = asFile(await tiny());
  const wrong = { weights: "q8_0" } as unknown as OpenOptions;
  await expect(open(file, wrong)).rejects.toThrow(UsageError);
  await expect(open(file, wrong)).rejects.toThrow(/weights: got "q8_0", expected "f16"/);
});

test("a part of a tensor is converted like all of it, wherever it begins", async () => {
  const file = await openModelFile(memorySource({ "tiny.gguf": await tiny() }));
  const halves = await asHalves(file, { progress: () => {}, check: () => {} });
  const tensor = halves.file.tensors.get(down)!;
  expect(tensor.byteLength).toBe(2 * 2048);
  const all = new Uint8Array(tensor.byteLength);
  await halves.file.readTensor(tensor, all);
  const part = new Uint8Array(101).subarray(1); // an odd address
  await halves.file.readTensor(tensor, part, 500);
  expect([...part]).toEqual([...all.subarray(500, 600)]);
  const read = (bytes: number, at: number) =>
    halves.file.readTensor(tensor, new Uint8Array(bytes), at);
  await expect(read(4, tensor.byteLength - 2)).rejects.toThrow(UsageError);
  await expect(read(3, 0)).rejects.toThrow(/whole half floats/);
});

test("threads read only what stays as it is in the file", async () => {
  const opened = await openModelFile(memorySource({ "tiny.gguf": await tiny("f32", large) }));
  const filePartsOf = () => [{ descriptor: 3, offset: 0 }];
  const silent = { progress: () => {}, check: () => {} };
  const { file } = await asHalves({ ...opened, filePartsOf }, silent);
  const own = [...file.tensors.values()].filter((tensor) => file.filePartsOf(tensor));
  expect(own.map(({ name }) => name)).toContain(down);
  expect(own.every(({ dtype }) => dtype.name === "f32")).toBe(true);
});

test("values are rounded as by half.ts, those at the ends of the range, too", async () => {
  const random = new Random(5);
  const ends = [0, -0, 65504, -65504, 2 ** -24, 2 ** -25, 1.5 * 2 ** -25, 0.1];
  const values = Float32Array.from({ length: 2048 }, (_, i) => ends[i] ?? random.normal() * 8);
  const bytes = await tiny("f32", (all) => all.set(values));
  const file = await openModelFile(memorySource({ "tiny.gguf": bytes }));
  const halves = await asHalves(file, { progress: () => {}, check: () => {} });
  const read = new Uint16Array(values.length);
  await halves.file.readTensor(halves.file.tensors.get(down)!, new Uint8Array(read.buffer));
  expect([...read]).toEqual(Array.from(values, f32ToF16));
});

test("HalfRange counts zeros apart: a matrix that is mostly zeros may become F16", () => {
  const range = new HalfRange();
  const values = new Float32Array(1000);
  values.fill(0.5, 0, 10);
  range.add(values);
  expect(range.problem()).toBeUndefined();
  values.fill(1e-9, 0, 10);
  range.add(values);
  expect(range.problem()).toMatch(/10 of 2000 values are below .* and 10 would become 0/);
});
