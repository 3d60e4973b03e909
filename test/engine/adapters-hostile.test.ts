// LoRA files whose fields lie, one by one: ranks, alpha, shapes, types, names, factors that are not finite, two files at once, scales of
// requests. Each is refused with an error that names what is wrong, or computes text, or ends with the error for numbers that are not finite.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { LanternError, open } from "../../src/index.ts";
import { type AdapterFileOptions, adapterGguf } from "../support/adapter-file.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFile, tinyFileVocab } from "../support/tiny-file.ts";

const folder = mkdtempSync(join(tmpdir(), "lantern-adapters-"));
const tiny = tinyModel({ vocab: tinyFileVocab });
let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile({ model: tiny });
});
afterAll(() => {
  file?.remove();
  rmSync(folder, { recursive: true, force: true });
});

type Tensors = Parameters<NonNullable<AdapterFileOptions["change"]>>[0];

/** The first factor, with other values. */
const filled = (value: number, at: (index: number) => boolean = () => true) => ({
  change: (tensors: Tensors): Tensors => {
    const [first, ...rest] = tensors;
    const count = first!.shape.reduce((product, size) => product * size, 1);
    const values = Float32Array.from({ length: count }, (_, i) => (at(i) ? value : 0.1));
    return [{ ...first!, data: () => [new Uint8Array(values.buffer)] }, ...rest];
  },
});

const renamed = (to: (name: string) => string): AdapterFileOptions => ({
  change: (tensors) => tensors.map((tensor) => ({ ...tensor, name: to(tensor.name) })),
});

const reshaped = (to: (shape: readonly number[]) => number[]): AdapterFileOptions => ({
  change: (tensors) =>
    tensors.map((tensor, at) => (at === 0 ? { ...tensor, shape: to(tensor.shape) } : tensor)),
});

const key = (name: string, value: unknown, type = "f32"): AdapterFileOptions => ({
  more: [[name, { type, value } as never]],
});

/** What became of it: what an error says, or "text". */
async function outcome(
  files: readonly AdapterFileOptions[],
  scales: readonly number[] = files.map(() => 1),
): Promise<string> {
  const adapters = [];
  for (const [at, options] of files.entries()) {
    const location = join(folder, `${at}.gguf`);
    writeFileSync(location, await adapterGguf(tiny.tensors, options));
    adapters.push({ location, scale: scales[at]! });
  }
  try {
    await using model = await open(file.path, { threads: 1, tuned: false, adapters });
    const { tokenIds } = await model.generate("the cat sat", {
      ...{ maxTokens: 4, temperature: 0, ignoreEos: true },
    }).result;
    return `text of ${tokenIds.length} tokens`;
  } catch (error) {
    expect(error).toBeInstanceOf(LanternError);
    return (error as Error).message;
  }
}

const text = /^text of 4 tokens$/;
const nonsense = /not finite|finite/;

test.each<[string, AdapterFileOptions, RegExp]>([
  ["alpha is NaN", key("adapter.lora.alpha", Number.NaN), /alpha/],
  ["alpha is infinite", key("adapter.lora.alpha", Infinity), /alpha/],
  ["alpha is huge", key("adapter.lora.alpha", 3e38), nonsense],
  ["alpha is negative", key("adapter.lora.alpha", -8), text],
  ["alpha is a string", key("adapter.lora.alpha", "8", "string"), /alpha/],
  ["the type is none that there is", key("adapter.type", "dora", "string"), /adapter\.type|dora/],
  ["it is a model", key("general.type", "model", "string"), /adapter/],
  ["it is of another architecture", { architecture: "gemma2" }, /gemma2/],
  ["a factor is NaN", filled(Number.NaN), nonsense],
  ["one number of a factor is NaN", filled(Number.NaN, (i) => i === 3), nonsense],
  ["a factor is infinite", filled(Infinity), nonsense],
  ["a factor is huge", filled(3e38), nonsense],
  ["a factor is zero", filled(0), text],
  ["a factor is missing", { change: (all: Tensors) => all.slice(1) }, /lora_a/],
  ["there are none", { change: () => [] }, /no|none|tensor/i],
  ["ranks of a pair differ", reshaped(([, n]) => [2, n! * 2]), /shape|rank/],
  ["a side is turned", reshaped((shape) => shape.toReversed()), /shape|rank/],
  ["a shape has one side", reshaped((shape) => [shape[0]! * shape[1]!]), /shape/],
  ["names are of no tensor", renamed((name) => `x.${name}`), /x\.blk/],
  ["names end otherwise", renamed((name) => name.replace("lora_a", "lora_c")), /lora_c/],
  [
    "names are escape sequences",
    renamed((name) => name.replace("blk.0", "\u001b[2J")),
    /unknown: /,
  ],
  [
    "names are those of objects",
    renamed((name) => name.replace("blk.0.attn_q.weight", "__proto__")),
    /unknown: __proto__/,
  ],
  [
    "the invocation has a token that there is not",
    key("adapter.alora.invocation_tokens", [4e9], "array<u32>"),
    /invocation/,
  ],
  ["the invocation is empty", key("adapter.alora.invocation_tokens", [], "array<u32>"), text],
  ["the rank is larger than the matrix", { rank: 512 }, /have rank 512, expected at most 64/],
])("%s", async (_, options, expected) => {
  expect(await outcome([options])).toMatch(expected);
});

test("two files at once, of which one is wrong: the error names it, and both right ones compute", async () => {
  expect(await outcome([{}, { seed: 2, rank: 3 }])).toMatch(text);
  expect(await outcome([{}, {}])).toMatch(text);
  const message = await outcome([{}, { architecture: "gemma2" }]);
  expect(message).toContain("1.gguf");
});

test.each([Number.NaN, Infinity, 1e39])("a scale of %s is refused", async (scale) => {
  expect(await outcome([{}], [scale])).toMatch(/scale/);
});

test("an adapter that ends in numbers that are not finite costs only who applies it", async () => {
  const location = join(folder, "bad.gguf");
  writeFileSync(location, await adapterGguf(tiny.tensors, filled(Number.NaN)));
  await using model = await open(file.path, {
    ...{ threads: 1, tuned: false, adapters: [{ location, scale: 0 }] },
  });
  const options = { maxTokens: 12, temperature: 0, ignoreEos: true };
  const alone = await model.generate("the cat sat", options).result;
  const all = await Promise.allSettled(
    [0, 1, 0, 1].map(
      async (scale) =>
        await model.generate("the cat sat", { ...options, adapters: [{ id: 0, scale }] }).result,
    ),
  );
  expect(all.map(({ status }) => status)).toEqual([
    "fulfilled",
    "rejected",
    "fulfilled",
    "rejected",
  ]);
  for (const one of all) {
    if (one.status === "fulfilled") expect(one.value.tokenIds).toEqual(alone.tokenIds);
    else expect(one.reason).toBeInstanceOf(LanternError);
  }
});
