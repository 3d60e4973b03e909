// Weights that are no numbers, or hardly any, in every tensor type, on every opt level: NaN and infinite scales are an error that names
// the tensor, in place of a text; a scale of minus zero, the smallest and the largest are numbers like others, and every level computes
// what the reference does.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { bytesFor, type DType } from "../../src/dtypes/dtype.ts";
import { allDTypes } from "../../src/dtypes/table.ts";
import { ModelError, open } from "../../src/index.ts";
import { Random } from "../support/random.ts";
import { greedyTokens, type TinyModel, tinyEngine, tinyModel } from "../support/tiny-engine.ts";
import { tinyFileVocab, tinyGguf } from "../support/tiny-file.ts";

const tensor = "blk.0.ffn_down.weight";
const cols = 256;

/** The tiny model with that matrix in this type, whose first scale is strange; undefined: the type has no such scale. */
function modelWith(dtype: DType, what: What): TinyModel | undefined {
  const model = tinyModel({ vocab: tinyFileVocab, feedForward: cols });
  const { shape } = model.tensors.get(tensor)!;
  const bytes = weightBytes(dtype, shape[0]! * shape[1]!);
  if (!makeStrange(dtype, bytes, what)) return undefined;
  return {
    ...model,
    tensors: new Map(model.tensors).set(tensor, { name: tensor, shape, dtype }),
    bytes: new Map(model.bytes).set(tensor, bytes),
  };
}

function weightBytes(dtype: DType, count: number): Uint8Array {
  const random = new Random(1);
  const values = Float32Array.from({ length: count }, () => 0.1 * random.normal());
  const bytes = new Uint8Array(bytesFor(dtype, count));
  const importance = new Float32Array(cols).fill(1);
  dtype.quantize?.(values, 0, bytes, 0, count / dtype.blockElems, importance);
  return bytes;
}

/** As the bits of a half float. */
const strange = {
  NaN: 0x7e00,
  infinity: 0x7c00,
  "minus zero": 0x8000,
  "the smallest": 0x0001,
  "the largest": 0x7bff,
} as const;

type What = keyof typeof strange;

/** The scale of a block, or its first value, where its type has one; false: the type has no such number. */
function makeStrange({ block }: DType, bytes: Uint8Array, what: What): boolean {
  const number = strange[what];
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  if (block.kind === "floats") {
    if (block.format === "f16") view.setUint16(0, number, true);
    // Of the same kind: with 16 more bits.
    else if (block.format === "bf16") view.setUint16(0, wide(what) >>> 16, true);
    else view.setUint32(0, wide(what), true);
    return true;
  }
  const { format, pieces } = block.scale;
  if (format === "e8m0_half") {
    if (what !== "the smallest" && what !== "the largest") return false;
    bytes[pieces[0]!.at / 8] = what === "the smallest" ? 0 : 255;
    return true;
  }
  for (const { bits, at, to = 0 } of pieces) {
    for (let bit = 0; bit < bits; bit++) {
      const place = at + bit;
      const mask = 1 << (place & 7);
      const isSet = ((number >> (to + bit)) & 1) === 1;
      bytes[place >> 3] = isSet ? bytes[place >> 3]! | mask : bytes[place >> 3]! & ~mask;
    }
  }
  return true;
}

/** The same number as a float32. The smallest and the largest of bf16 are not those of f32, but nearly. */
function wide(what: What): number {
  const bits = { NaN: 0x7fc00000, infinity: 0x7f800000, "minus zero": 0x80000000 };
  return { ...bits, "the smallest": 0x00010000, "the largest": 0x7f7f0000 }[what];
}

const written = allDTypes().filter(
  // The others are types of activations.
  ({ quantize, name }) => quantize && name !== "q8_1" && name !== "q8_k",
);

const backends: readonly (() => Backend)[] = [
  () => new ReferenceBackend(),
  () => new CpuBackend({ level: 2, threads: 1, startThread: undefined, native: "a test" }),
  () => new CpuBackend({ level: 3, threads: 1, startThread: undefined, native: "a test" }),
];

/** What comes of a model: tokens, or an error of the model. */
async function outcome(work: Promise<readonly number[]>): Promise<string> {
  return await work.then(
    (ids) => `tokens ${ids.join(" ")}`,
    (error: unknown) => {
      expect(error).toBeInstanceOf(ModelError);
      return (error as Error).message;
    },
  );
}

describe.each(written.map((dtype) => [dtype.name, dtype] as const))("%s", (_, dtype) => {
  test.each(Object.keys(strange) as What[])("%s", async (what) => {
    const model = modelWith(dtype, what);
    if (!model) return;
    for (const backend of backends) {
      const engine = await tinyEngine({ model, vocab: tinyFileVocab, backend: backend() });
      const found = await outcome(greedyTokens(engine, [1, 5, 9], 3));
      engine.dispose();
      if (what === "NaN" || what === "infinity") expect(found).toContain(tensor);
      // The largest may be beyond a float as soon as it is multiplied: then that is said.
      else if (what === "the largest") expect(found).toMatch(/^tokens|ffn_down|l_out|norm/);
      else expect(found).toMatch(/^tokens/);
    }
  });

  test("NaN, as machine code", async () => {
    const model = modelWith(dtype, "NaN");
    if (!model) return;
    const file = new File(
      [Uint8Array.from(await tinyGguf({ model, feedForward: cols }))],
      "t.gguf",
    );
    await using opened = await open(file, { threads: 1, kvType: "f32" });
    const work = opened.generate([1, 5, 9], { maxTokens: 3 }).result;
    expect(await outcome(work.then(({ tokenIds }) => tokenIds))).toContain(tensor);
  });
});
