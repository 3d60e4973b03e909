// LoRA adapters: against weights into which the same factors were merged, in batches with other adapters or none, and in the prefix
// cache. (adapters-llamacpp.test.ts has llama.cpp's texts.)

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { AdapterScale, OpenOptions } from "../../src/index.ts";
import { type Model, open } from "../../src/index.ts";
import { adapterFile, adapterGguf, type ModelShapes } from "../support/adapter-file.ts";
import { Random } from "../support/random.ts";
import { type TinyModel, tinyModel } from "../support/tiny-engine.ts";
import { tinyFileVocab, tinyGguf } from "../support/tiny-file.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-adapters-"));
const tiny: TinyModel = untied(tinyModel({ vocab: tinyFileVocab }));
const base = join(folder, "tiny.gguf");
const names = { first: "first", second: "second" };
const everything = /(attn_(q|k|v|output)|ffn_(gate|up|down)|token_embd|^output)\.weight$/;
const firstOptions = { seed: 5, rank: 4, alpha: 8, size: 0.4, tensors: everything };
const secondOptions = { seed: 6, rank: 8, alpha: 0, size: 0.3, type: "f16" };
const options: OpenOptions = { threads: 2, parallel: 4, kvType: "f32" };
const prompt = [1, 40, 100, 7, 261, 80, 12, 90, 33];
let paths: string[];
let model: Model;
let plain: Model;

beforeAll(async () => {
  writeFileSync(base, await tinyGguf({ model: tiny }));
  paths = [
    await adapterFile(folder, names.first, tiny.tensors, firstOptions),
    await adapterFile(folder, names.second, tiny.tensors, secondOptions),
  ];
  model = await open(base, { ...options, adapters: paths.map((location) => ({ location })) });
  plain = await open(base, options);
});
afterAll(async () => {
  await model?.dispose();
  await plain?.dispose();
  rmSync(folder, { recursive: true, force: true });
});

/** With an output matrix of its own. */
function untied(model: TinyModel): TinyModel {
  const table = model.tensors.get("token_embd.weight")!;
  const output = { ...table, name: "output.weight" };
  const values = new Float32Array(model.bytes.get(table.name)!.slice().buffer).reverse();
  return {
    ...model,
    tensors: new Map([...model.tensors, [output.name, output]]),
    bytes: new Map([...model.bytes, [output.name, new Uint8Array(values.buffer)]]),
  };
}

interface Said {
  ids: number[];
  logprobs: number[];
}

async function say(by: Model, adapters?: readonly AdapterScale[], tokens = prompt): Promise<Said> {
  const generation = by.generate(tokens, {
    maxTokens: 12,
    temperature: 0,
    logprobs: 1,
    ignoreEos: true,
    ...(adapters && { adapters }),
  });
  const logprobs: number[] = [];
  for await (const event of generation.tokens()) {
    if (event.logprob !== undefined) logprobs.push(event.logprob);
  }
  return { ids: (await generation.result).tokenIds, logprobs };
}

function isNear(got: readonly number[], expected: readonly number[], digits: number): void {
  expect(got.length).toBe(expected.length);
  for (const [i, logprob] of got.entries()) expect(logprob).toBeCloseTo(expected[i]!, digits);
}

/** The model with the product of the factors added to its weights. */
async function merged(scale: number): Promise<string> {
  const random = new Random(firstOptions.seed);
  const bytes = new Map(tiny.bytes);
  const { rank, alpha, size } = firstOptions;
  for (const [name, { shape }] of tiny.tensors) {
    if (!everything.test(name)) continue;
    const [outputs, inputs] = shape as [number, number];
    const isEmbedding = name === "token_embd.weight";
    const normals = (count: number, spread: number) =>
      Float32Array.from({ length: count }, () => spread * random.normal());
    const a = normals(rank * (isEmbedding ? outputs : inputs), isEmbedding ? 1 : inputs ** -0.5);
    const b = normals(rank * (isEmbedding ? inputs : outputs), size / Math.sqrt(rank));
    const weights = new Float32Array(tiny.bytes.get(name)!.slice().buffer);
    for (let o = 0; o < outputs; o++) {
      for (let i = 0; i < inputs; i++) {
        let sum = 0;
        for (let r = 0; r < rank; r++) {
          sum += isEmbedding
            ? a[o * rank + r]! * b[i * rank + r]!
            : a[r * inputs + i]! * b[o * rank + r]!;
        }
        weights[o * inputs + i]! += scale * (alpha / rank) * sum;
      }
    }
    bytes.set(name, new Uint8Array(weights.buffer));
  }
  const path = join(folder, `merged-${scale}.gguf`);
  writeFileSync(path, await tinyGguf({ model: { ...tiny, bytes } }));
  return path;
}

test("an adapter computes what merged weights compute", async () => {
  for (const scale of [1, -0.5]) {
    await using right = await open(await merged(scale), options);
    const expected = await say(right);
    const got = await say(model, [{ id: 0, scale }]);
    expect(got.ids).toEqual(expected.ids);
    isNear(got.logprobs, expected.logprobs, 3);
    expect(got.ids).not.toEqual((await say(plain)).ids);
  }
});

test("a request without adapters has the bits of a model that was opened without any", async () => {
  expect(await say(model, [])).toEqual(await say(plain));
});

test("texts of one batch do not depend on the adapters of others", async () => {
  const choices: AdapterScale[][] = [
    [],
    [{ id: 0, scale: 1 }],
    [{ id: 1, scale: 0.7 }],
    [
      { id: 1, scale: 2 },
      { id: 0, scale: -1 },
    ],
  ];
  const alone: Said[] = [];
  for (const adapters of choices) alone.push(await say(model, adapters));
  await model.clearCache();
  const beside = await Promise.all(choices.map((adapters) => say(model, adapters)));
  expect(beside).toEqual(alone);
  expect(new Set(alone.map(({ ids }) => ids.join())).size).toBe(choices.length);
});

test("one thread, other opt levels and the reference agree", async () => {
  const adapters = [
    { id: 0, scale: 1 },
    { id: 1, scale: 0.5 },
  ];
  const expected = await say(model, adapters);
  for (const [more, digits] of [
    [{ threads: 1 }, 10],
    [{ level: 3 }, 3],
    [{ level: 1 }, 3],
  ] as const) {
    await using other = await open(base, { ...options, ...more, adapters: paths });
    const got = await say(other, adapters);
    expect(got.ids).toEqual(expected.ids);
    isNear(got.logprobs, expected.logprobs, digits);
  }
});

test("cached state is only used with the adapters that it was computed with", async () => {
  const long = Array.from({ length: 80 }, (_, i) => 3 + ((i * 7) % 250));
  const cached = async (adapters: AdapterScale[]) => {
    const run = model.generate(long, { maxTokens: 2, temperature: 0, adapters });
    const { tokenIds, timings } = await run.result;
    return { ids: tokenIds, cached: timings.cachedTokens };
  };
  await model.clearCache();
  const withFirst = await cached([{ id: 0, scale: 1 }]);
  expect(withFirst.cached).toBe(0);
  expect((await cached([])).cached).toBe(0);
  expect((await cached([{ id: 0, scale: 0.5 }])).cached).toBe(0);
  expect(await cached([{ id: 0, scale: 1 }])).toEqual({ ...withFirst, cached: long.length - 1 });
});

test("copies of state outside of the KV cache belong to their adapters", async () => {
  const long = Array.from({ length: 150 }, (_, i) => 3 + ((i * 11) % 250));
  const tiers = { ...options, parallel: 1, contextSize: 192, cacheRamBytes: 1 << 24 };
  await using small = await open(base, { ...tiers, adapters: paths });
  const restored = async (tokens: number[], adapters: AdapterScale[]) => {
    const { timings } = await small.generate(tokens, { maxTokens: 1, adapters }).result;
    return (timings.restored?.ramTokens ?? 0) + timings.cachedTokens;
  };
  const other = long.map((id) => id + 1);
  expect(await restored(long, [{ id: 0, scale: 1 }])).toBe(0);
  await restored(other, []); // takes the room
  expect(await restored(long, [{ id: 1, scale: 1 }])).toBe(0);
  await restored(other, []);
  expect(await restored(long, [{ id: 0, scale: 1 }])).toBeGreaterThan(100);
});

test("the default is what open() was told, until setAdapters()", async () => {
  await using other = await open(base, {
    ...options,
    adapters: [paths[0]!, { location: paths[1]!, scale: 0 }],
  });
  expect(other.adapters()).toMatchObject([
    { id: 0, name: "first.gguf", path: paths[0], scale: 1, rank: 4, alpha: 8 },
    { id: 1, name: "second.gguf", scale: 0, rank: 8, alpha: 0 },
  ]);
  expect((await say(other)).ids).toEqual((await say(model, [{ id: 0, scale: 1 }])).ids);
  await other.setAdapters([{ id: 1, scale: 1.5 }]);
  expect(other.adapters().map(({ scale }) => scale)).toEqual([0, 1.5]);
  expect((await say(other)).ids).toEqual((await say(model, [{ id: 1, scale: 1.5 }])).ids);
});

test("what is wrong with a request is said", async () => {
  await expect(say(model, [{ id: 2, scale: 1 }])).rejects.toThrow(
    "adapters: got the id 2, expected an integer from 0 to 1",
  );
  await expect(say(plain, [{ id: 0, scale: 1 }])).rejects.toThrow(
    "expected none: the model was opened without adapters",
  );
  await expect(say(model, [{ id: 0, scale: Number.NaN }])).rejects.toThrow("a finite number");
});

test("files that do not fit are refused, and what is wrong with them is said", async () => {
  const wrong = async (name: string, shapes: ModelShapes, change: object) => {
    const location = await adapterFile(folder, name, shapes, change);
    return await open(base, { ...options, adapters: [location] }).then(
      (opened) => opened.dispose().then(() => "it was opened"),
      (error: Error) => error.message,
    );
  };
  const string = (value: string) => ({ type: "string", value });
  const { tensors } = tiny;
  const wide = [...tensors].map(
    ([n, { shape }]) => [n, { shape: shape.map((d) => 2 * d) }] as const,
  );
  expect(await wrong("a", tensors, { architecture: "qwen2" })).toMatch(
    /general.architecture: got "qwen2", expected "llama"/,
  );
  expect(await wrong("b", tensors, { more: [["general.type", string("model")]] })).toMatch(
    /general.type: got "model", expected "adapter"/,
  );
  expect(await wrong("c", tensors, { more: [["adapter.type", string("ia3")]] })).toMatch(/"lora"/);
  expect(await wrong("d", wide, {})).toMatch(/shape: blk.0.attn_q.weight is \[64, 32\]/);
  expect(await wrong("e", tensors, { rank: 65 })).toMatch(
    /rank: .* have rank 65, expected at most/,
  );
  expect(await wrong("f", tensors, { change: (all: unknown[]) => all.slice(1) })).toMatch(
    /missing: blk.0.attn_q.weight.lora_a/,
  );
  expect(await wrong("g", tensors, { change: () => [] })).toMatch(/it has no factors/);
  expect(await wrong("h", [["blk.9.attn_q.weight", { shape: [32, 32] }]], {})).toMatch(
    /unknown: blk.9.attn_q.weight/,
  );
  const invocation = ["adapter.alora.invocation_tokens", { type: "array<f32>", value: [0.5] }];
  expect(await wrong("i", tensors, { more: [invocation] })).toMatch(
    /adapter.alora.invocation_tokens: got .*expected a list of token ids/,
  );
  await expect(open(paths[0]!, options)).rejects.toThrow("this file is an adapter");
  const cut = join(folder, "cut.gguf");
  const whole = await adapterGguf(tensors);
  writeFileSync(cut, whole.subarray(0, whole.length - 100));
  await expect(open(base, { ...options, adapters: [cut] })).rejects.toThrow(/cut.gguf/);
});
