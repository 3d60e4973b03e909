// What a file has one of for each layer: numbers and flags as arrays, as one value for all, or as a period; and what is refused,
// with the key, what was found and what was expected. An array is decoded only when its length is right.

import { describe, expect, test } from "vitest";
import { FormatError, ModelError } from "../../src/base/errors.ts";
import { arrayEntry, type MetadataEntry, TypedMetadata } from "../../src/formats/typed-metadata.ts";
import { ConfigReader } from "../../src/models/config-reader.ts";

const reader = (entries: Readonly<Record<string, MetadataEntry>>): ConfigReader => {
  const named = Object.entries(entries).map(([key, entry]) => [`x.${key}`, entry] as const);
  return new ConfigReader(new TypedMetadata("gguf", "test", new Map(named)), "x");
};
const u32 = (value: number): MetadataEntry => ({ type: "u32", value });
const integers = (...values: number[]) => arrayEntry("u32", values);
const bools = (...values: number[]) => arrayEntry("bool", values.map(Boolean));

/** As long as it says, and gone when somebody looks into it. */
const unread = (length: number, elementType: "u32" | "bool" = "u32"): MetadataEntry => ({
  type: "array",
  elementType,
  length,
  decode(limit) {
    if (limit === 0) return [];
    throw new Error("it was decoded");
  },
});

describe("integersPerLayer", () => {
  const heads = (entry: MetadataEntry | undefined, min?: number) =>
    reader(entry ? { heads: entry } : {}).integersPerLayer("heads", 3, 64, min);

  test("an array, or a number for all layers", () => {
    expect(heads(integers(4, 64, 1))).toEqual([4, 64, 1]);
    expect(heads(arrayEntry("i32", [4, 2, 1]))).toEqual([4, 2, 1]);
    expect(heads(u32(8))).toEqual([8, 8, 8]);
    expect(heads(integers(4, 0, 2), 0)).toEqual([4, 0, 2]);
  });

  test.each([
    ["nothing", undefined, "x.heads: got nothing, expected an integer from 1 to 64"],
    ["0", u32(0), "x.heads: got 0, expected an integer from 1 to 64"],
    ["a fraction", { type: "f32", value: 1.5 } as const, "x.heads: got 1.5, expected an integer"],
    ["a 0 in it", integers(4, 0, 2), "x.heads[1]: got 0, expected an integer from 1 to 64"],
    ["one too large", integers(4, 4, 65), "x.heads[2]: got 65, expected an integer from 1 to 64"],
    ["NaN", arrayEntry("f32", [4, Number.NaN, 4]), "x.heads[1]: got NaN, expected an integer"],
    ["too few", integers(4, 4), "x.heads: got 2 values, expected one for each of 3 layers"],
    ["none", integers(), "x.heads: got 0 values, expected one for each of 3 layers"],
    ["very many", unread(2 ** 31), "x.heads: got 2147483648 values, expected one for each of 3"],
  ])("%s is refused", (_, entry, message) => {
    expect(() => heads(entry)).toThrow(ModelError);
    expect(() => heads(entry)).toThrow(message);
  });

  test.each([
    ["a string", { type: "string", value: "4" } as const, "expected a number"],
    ["strings", arrayEntry("string", ["4", "4", "4"]), "array of string"],
    ["bools", bools(1, 1, 1), "array of bool"],
    ["a bigint", arrayEntry("u64", [4, 4, 2n ** 60n]), "integers of at most 2^53 - 1"],
  ])("%s: of the wrong type", (_, entry, message) => {
    expect(() => heads(entry)).toThrow(FormatError);
    expect(() => heads(entry)).toThrow(message);
  });
});

describe("windowsPerLayer", () => {
  const window = { "attention.sliding_window": u32(8) };
  const windows = (pattern?: MetadataEntry, period = 1, of = window) =>
    reader({
      ...of,
      ...(pattern && { "attention.sliding_window_pattern": pattern }),
    }).windowsPerLayer(4, period, 4096);

  test("by an array of bools or of integers", () => {
    const expected = [8, undefined, 8, 8];
    expect(windows(bools(1, 0, 1, 1))).toEqual(expected);
    expect(windows(integers(1, 0, 1, 1))).toEqual(expected);
  });

  test("by a period, of which the last layer has none; 0: all have one", () => {
    expect(windows(u32(2))).toEqual([8, undefined, 8, undefined]);
    expect(windows(u32(3))).toEqual([8, 8, undefined, 8]);
    expect(windows(u32(1))).toEqual([undefined, undefined, undefined, undefined]);
    expect(windows(u32(0))).toEqual([8, 8, 8, 8]);
    expect(windows(undefined, 4)).toEqual([8, 8, 8, undefined]);
  });

  test("none, where the file names no window or one of 0", () => {
    const none = [undefined, undefined, undefined, undefined];
    expect(reader({}).windowsPerLayer(4, 0, 4096)).toEqual(none);
    expect(windows(bools(1, 1, 1, 1), 0, { "attention.sliding_window": u32(0) })).toEqual(none);
  });

  test.each([
    ["a pattern longer than the layers", bools(1, 0, 1, 1, 0), "got 5 values, expected one for"],
    ["very many bools", unread(2 ** 32, "bool"), "got 4294967296 values, expected one for"],
    ["a 2 in it", integers(1, 0, 2, 1), "pattern[2]: got 2, expected an integer from 0 to 1"],
    ["a period below 0", { type: "i32", value: -1 } as const, "got -1, expected an integer"],
  ])("%s is refused", (_, pattern, message) => {
    expect(() => windows(pattern)).toThrow(ModelError);
    expect(() => windows(pattern)).toThrow(message);
  });

  test("a window beyond all contexts is refused", () => {
    const large = { "attention.sliding_window": u32(4097) };
    expect(() => windows(undefined, 0, large)).toThrow(
      "x.attention.sliding_window: got 4097, expected an integer from 0 to 4096",
    );
  });
});
