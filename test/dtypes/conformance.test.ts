// What every tensor type must fulfil. Goes through the table: a new type is tested by being there, and needs its golden
// vectors in data/<type>.json (scripts/dtype-golden.ts makes them from ggml's library).

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { bitsPerWeight, type DType } from "../../src/dtypes/dtype.ts";
import { allDTypes, dtypeByGgufId, dtypeByName } from "../../src/dtypes/table.ts";
import {
  floatBytes,
  type Golden,
  hex,
  importanceWeights,
  inputs,
  makeInput,
  randomBytes,
  sha256,
} from "./golden.ts";

const dataFolder = new URL("./data/", import.meta.url);

/** Quantizing what was dequantized gives the same bytes; the searches of the other types need not return to them. */
const idempotent = ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"];

/** Inputs that ggml spoils: behind 32 zeros, its IQ3_S stores the quants of a sub-block at the place of the one before. */
const misplaced: Readonly<Record<string, readonly string[]>> = { iq3_s: ["sparse", "zeroGroups"] };

describe.each(allDTypes().map((dtype) => [dtype.name, dtype] as const))("%s", (name, dtype) => {
  const golden = readGolden(name);

  test("has ggml's name, id and block size", () => {
    expect({ ...dtype }).toMatchObject({
      name: golden.name,
      ggufId: golden.ggufId,
      blockElems: golden.blockElems,
      blockBytes: golden.blockBytes,
    });
    expect(dtypeByName(name.toUpperCase())).toBe(dtype);
    expect(dtypeByGgufId(dtype.ggufId)).toBe(dtype);
  });

  test("names an activation type that can be quantized to", () => {
    expect(dtypeByName(dtype.activation)?.quantize).toBeTypeOf("function");
  });

  test("dequantizes random blocks to ggml's bits", () => {
    const { seed, blocks, sample, sha256: expected } = golden.dequantize;
    const bytes = randomBytes(seed, blocks * dtype.blockBytes);
    const values = dequantize(dtype, bytes);
    expect(hex(bytes.subarray(0, dtype.blockBytes))).toBe(sample.block);
    expect(hex(floatBytes(values.subarray(0, dtype.blockElems)))).toBe(sample.values);
    expect(sha256(floatBytes(values))).toBe(expected);
  });

  test("dequantizes at any offset, and writes nowhere else", () => {
    const bytes = randomBytes(5, 3 * dtype.blockBytes);
    const expected = dequantize(dtype, bytes);
    for (const shift of [1, 2, 3]) {
      const shifted = new Uint8Array(bytes.length + 7);
      shifted.set(bytes, shift);
      const values = new Float32Array(expected.length + 9).fill(-7);
      dtype.dequantize(shifted, shift, values, shift, 3);
      expect(floatBytes(values.subarray(shift, shift + expected.length))).toEqual(
        floatBytes(expected),
      );
      expect(outside(values, shift, expected.length)).toEqual(new Set([-7]));
    }
    const last = new Float32Array(dtype.blockElems);
    dtype.dequantize(bytes, 2 * dtype.blockBytes, last, 0, 1);
    expect(floatBytes(last)).toEqual(floatBytes(expected.subarray(2 * dtype.blockElems)));
  });

  test("does nothing for no blocks", () => {
    const values = new Float32Array(3).fill(-7);
    dtype.dequantize(new Uint8Array(0), 0, values, 1, 0);
    expect([...values]).toEqual([-7, -7, -7]);
  });

  if (dtype.quantize === undefined) return;

  // What types that need an importance matrix are tried with; others are tried without one.
  const needed = dtype.needsImportance === "always" ? importanceWeights(2) : undefined;

  test("has golden vectors for its quantizer", () => {
    const { plain, weighted } = golden.quantize!;
    expect(Object.keys((needed ? weighted : plain)!)).toEqual(Object.keys(inputs));
  });

  const { plain = {}, weighted = {}, sample } = golden.quantize!;
  test("quantizes ordinary values to ggml's first block", () => {
    const blocks = quantize(dtype, makeInput("normal"), needed);
    expect(hex(blocks.subarray(0, dtype.blockBytes))).toBe(sample);
  });

  const sameAs = (input: string, importance: Float32Array | undefined, expected: string | null) => {
    const blocks = quantize(dtype, makeInput(input), importance);
    if (expected !== null) expect(sha256(blocks)).toBe(expected);
    // ggml aborts; here a scale is not finite, by which the caller knows (src/tools/quantize/chunk.ts).
    else expect(dequantize(dtype, blocks).every(Number.isFinite)).toBe(false);
  };
  const inputsOf = (hashes: object) =>
    Object.keys(hashes).filter((input) => !misplaced[name]?.includes(input));

  test.each(inputsOf(plain))("quantizes %s to ggml's bits", (input) => {
    sameAs(input, undefined, plain[input]!);
  });

  test.each(inputsOf(weighted))("quantizes %s with importance to ggml's bits", (input) => {
    sameAs(input, importanceWeights(2), weighted[input]!);
  });

  const rowOf = golden.quantizeRow?.plain ?? {};
  test.each(Object.keys(rowOf))("quantizes %s to ggml's bits while a model runs", (input) => {
    const values = makeInput(input);
    const units = values.length / dtype.blockElems;
    const blocks = new Uint8Array(units * dtype.blockBytes);
    dtype.quantizeRow!(values, 0, blocks, 0, units);
    expect(sha256(blocks)).toBe(rowOf[input]);
  });

  test("has golden vectors for a quantizer of its own for a KV cache", () => {
    expect(Object.keys(rowOf).length > 0).toBe(dtype.quantizeRow !== undefined);
  });

  if (needed) {
    test("quantizes nothing without an importance matrix", () => {
      expect(() => quantize(dtype, makeInput("normal"))).toThrow(/needs an importance matrix/);
    });
  }

  test("loses no more than its bits must", () => {
    const values = makeInput("normal");
    const bound = dtype.blockElems === 1 ? 2 ** -9 : 4 * 2 ** -bitsPerWeight(dtype);
    const back = dequantize(dtype, quantize(dtype, values, needed));
    expect(relativeError(values, back)).toBeLessThan(bound);
  });

  test("is stable when quantized again", () => {
    const values = makeInput("heavyTails");
    const once = quantize(dtype, values, needed);
    const onceValues = dequantize(dtype, once);
    const twice = quantize(dtype, onceValues, needed);
    if (idempotent.includes(name)) expect(hex(twice)).toBe(hex(once));
    const moved = relativeError(onceValues, dequantize(dtype, twice));
    expect(moved).toBeLessThanOrEqual(relativeError(values, onceValues));
  });

  test("quantizes at any offset, and writes nowhere else", () => {
    const count = 2 * dtype.blockElems;
    const values = makeInput("normal").subarray(0, count);
    const expected = quantize(dtype, values, needed);
    const shifted = new Float32Array(count + 8);
    shifted.set(values, 3);
    const blocks = new Uint8Array(expected.length + 9).fill(0xa5);
    dtype.quantize!(shifted, 3, blocks, 5, 2, needed);
    expect(hex(blocks.subarray(5, 5 + expected.length))).toBe(hex(expected));
    expect(outside(blocks, 5, expected.length)).toEqual(new Set([0xa5]));
  });
});

test("every golden file belongs to a type of the table", () => {
  const files = readdirSync(dataFolder).filter((file) => file.endsWith(".json"));
  const names = allDTypes().map((dtype) => `${dtype.name}.json`);
  expect(files.sort()).toEqual(names.sort());
});

test("iq3_s keeps sub-blocks where they are behind one of zeros", () => {
  const type = dtypeByName("iq3_s")!;
  const values = makeInput("normal").subarray(0, 256);
  const errors = [values, values.map((value, i) => (i < 32 ? 0 : value))].map((input) => {
    const back = dequantize(type, quantize(type, input));
    return relativeError(input.subarray(32), back.subarray(32));
  });
  expect(errors[1]).toBeLessThan(1.1 * errors[0]!);
});

test("f32 bytes are used in place where they are aligned", () => {
  const f32 = dtypeByName("f32")!;
  const bytes = new Uint8Array(new ArrayBuffer(32), 8, 16);
  const view = f32.asFloat32!(bytes)!;
  expect(view.buffer).toBe(bytes.buffer);
  expect([view.byteOffset, view.length]).toEqual([8, 4]);
  expect(f32.asFloat32!(new Uint8Array(bytes.buffer, 9, 16))).toBeUndefined();
  expect(f32.asFloat32!(new Uint8Array(bytes.buffer, 8, 15))).toBeUndefined();
});

function readGolden(name: string): Golden {
  const file = new URL(`${name}.json`, dataFolder);
  if (!existsSync(file)) {
    throw new Error(
      `dtype "${name}" has no golden vectors; make ${name}.json (docs/inside/add-a-dtype.md)`,
    );
  }
  return JSON.parse(readFileSync(file, "utf8")) as Golden;
}

function dequantize(dtype: DType, bytes: Uint8Array): Float32Array {
  const blocks = bytes.length / dtype.blockBytes;
  const values = new Float32Array(blocks * dtype.blockElems);
  dtype.dequantize(bytes, 0, values, 0, blocks);
  return values;
}

function quantize(dtype: DType, values: Float32Array, importance?: Float32Array): Uint8Array {
  const blocks = values.length / dtype.blockElems;
  const bytes = new Uint8Array(blocks * dtype.blockBytes).fill(0x5a); // old bytes must not show through
  dtype.quantize!(values, 0, bytes, 0, blocks, importance);
  return bytes;
}

/** Root mean square of the differences over that of the values. */
function relativeError(values: Float32Array, others: Float32Array): number {
  let error = 0;
  let size = 0;
  for (let i = 0; i < values.length; i++) {
    error += (values[i]! - others[i]!) ** 2;
    size += values[i]! ** 2;
  }
  return Math.sqrt(error / size);
}

/** The different values of an array outside [at, at + count). */
function outside(array: Float32Array | Uint8Array, at: number, count: number): Set<number> {
  return new Set([...array].filter((_, i) => i < at || i >= at + count));
}
