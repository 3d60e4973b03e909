// safetensors headers: good ones, an index over several files, and everything that must be refused.

import { describe, expect, test } from "vitest";
import { FormatError } from "../../src/base/errors.ts";
import {
  openSafetensorsFile,
  openSafetensorsIndex,
  safetensorsIndex,
} from "../../src/formats/safetensors.ts";
import type { ByteSource } from "../../src/platform/platform.ts";
import {
  concat,
  jsonBytes,
  memorySource,
  type SafetensorsHeader,
  safetensorsBytes,
  safetensorsOf,
} from "./support.ts";

async function open(bytes: Uint8Array) {
  const opened = new Map<string, ByteSource>();
  return await openSafetensorsFile(
    memorySource({ "m.safetensors": bytes }),
    "m.safetensors",
    opened,
  );
}

describe("safetensors", () => {
  test("types, shapes and offsets, in any order, with metadata and padding", async () => {
    const header: SafetensorsHeader = {
      b: { dtype: "BF16", shape: [2, 3], data_offsets: [8, 20] },
      __metadata__: { format: "pt" },
      a: { dtype: "F32", shape: [2], data_offsets: [0, 8] },
      c: { dtype: "F16", shape: [1, 1, 2], data_offsets: [20, 24] },
    };
    const text = `${JSON.stringify(header)}     `;
    const tensors = await open(safetensorsBytes(text, 24));
    const start = 8 + text.length;
    expect(
      [...tensors.values()].map((t) => [
        t.name,
        t.dtype.name,
        t.shape,
        t.byteLength,
        t.offset - start,
      ]),
    ).toEqual([
      ["b", "bf16", [2, 3], 12, 8],
      ["a", "f32", [2], 8, 0],
      ["c", "f16", [1, 1, 2], 4, 20],
    ]);
  });

  test("no tensors at all", async () => {
    expect((await open(safetensorsBytes({}, 0))).size).toBe(0);
  });

  const one = (change: object): SafetensorsHeader => ({
    t: { dtype: "F32", shape: [2], data_offsets: [0, 8], ...change },
  });
  const two = (second: number[]): SafetensorsHeader => ({
    a: { dtype: "F32", shape: [2], data_offsets: [0, 8] },
    b: { dtype: "F32", shape: [2], data_offsets: second },
  });
  const nested = `{"t":${"[".repeat(5000)}${"]".repeat(5000)}}`;
  const twice = '{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"\\u0074" : 1}';
  const twiceInside = '{"t":{"dtype":"F32","dtype":"F16","shape":[4],"data_offsets":[0,8]}}';
  const cases: [what: string, bytes: Uint8Array, message: string][] = [
    ["an empty file", new Uint8Array(0), "file size: got 0"],
    [
      "a length beyond the file",
      safetensorsBytes(one({}), 8, 10_000n),
      "header length: got 10000, expected 2 to",
    ],
    [
      "a length of 2^60",
      safetensorsBytes(one({}), 8, 2n ** 60n),
      "header length: got 115292150460684",
    ],
    ["a length of 0", safetensorsBytes(one({}), 8, 0n), "header length: got 0"],
    ["a length that cuts the header", safetensorsBytes(one({}), 8, 20n), "expected valid JSON"],
    [
      "a header that is no object",
      safetensorsBytes("[1,2]", 0),
      'expected JSON that begins with "{"',
    ],
    [
      "bad UTF-8",
      concat(safetensorsBytes("{", 0, 4n), Uint8Array.of(0xff, 0xfe, 0x7d)),
      "expected valid UTF-8",
    ],
    ["5,000 brackets", safetensorsBytes(nested, 0), "at most 64 levels of nesting"],
    [
      "one name twice, once escaped",
      safetensorsBytes(twice, 8),
      'header: got "t", expected keys that occur once',
    ],
    [
      "one field twice",
      safetensorsBytes(twiceInside, 8),
      'header: got "dtype", expected keys that occur once',
    ],
    ["NaN", safetensorsBytes('{"t":NaN}', 0), "expected valid JSON"],
    [
      "an entry that is no object",
      safetensorsBytes('{"t":7}', 0),
      'tensor "t" entry: got "7", expected an object',
    ],
    ["a nameless tensor", safetensorsBytes('{"":{}}', 0), "expected a name that is not empty"],
    [
      "a type it cannot read",
      safetensorsBytes(one({ dtype: "I64" }), 8),
      'tensor "t" dtype: got "\\"I64\\"", expected one of F32, F16, BF16',
    ],
    ["a type that is no text", safetensorsBytes(one({ dtype: 4 }), 8), 'tensor "t" dtype: got "4"'],
    [
      "a dimension of 0",
      safetensorsBytes(one({ shape: [0] }), 8),
      "expected dimensions of 1 or more",
    ],
    [
      "a negative dimension",
      safetensorsBytes(one({ shape: [-2] }), 8),
      "expected an array of whole numbers",
    ],
    [
      "a fraction as dimension",
      safetensorsBytes(one({ shape: [0.5] }), 8),
      "expected an array of whole numbers",
    ],
    [
      "dimensions that overflow",
      safetensorsBytes(one({ shape: [2 ** 40, 2 ** 40] }), 8),
      "fewer than 2^53",
    ],
    [
      "5 dimensions",
      safetensorsBytes(one({ shape: [1, 1, 1, 1, 2] }), 8),
      "dimension count: got 5",
    ],
    ["no shape", safetensorsBytes(one({ shape: null }), 8), 'shape: got "nothing"'],
    [
      "three offsets",
      safetensorsBytes(one({ data_offsets: [0, 8, 9] }), 8),
      "expected two whole numbers",
    ],
    [
      "offsets that do not fit the shape",
      safetensorsBytes(one({ data_offsets: [0, 4] }), 8),
      "expected 8 bytes, as F32 and the shape need",
    ],
    [
      "offsets backwards",
      safetensorsBytes(one({ data_offsets: [8, 0] }), 8),
      'data_offsets: got "8 to 0"',
    ],
    ["data beyond the end", safetensorsBytes(one({}), 7), "expected an end within"],
    [
      "offsets near 2^53",
      safetensorsBytes(one({ data_offsets: [2 ** 53 - 9, 2 ** 53 - 1] }), 8),
      "expected an end within",
    ],
    ["an overlap", safetensorsBytes(two([4, 12]), 12), 'tensor "b" data: got "an overlap with'],
    ["a hole", safetensorsBytes(two([12, 20]), 20), 'data: got "4 bytes that belong to no tensor"'],
    [
      "bytes after the last tensor",
      safetensorsBytes(one({}), 9),
      'data: got "1 bytes that belong to no tensor"',
    ],
  ];
  test.each(cases)("refuses %s", async (_what, bytes, message) => {
    const opening = open(bytes);
    await expect(opening).rejects.toThrow(FormatError);
    await expect(opening).rejects.toThrow(message);
    await expect(opening).rejects.toThrow(/^safetensors: m\.safetensors: .+: got .+, expected .+/s);
  });

  test("a string of millions of characters in a header", async () => {
    const text = `{"__metadata__":{"x":"${"\\\\a".repeat(1_000_000)}"}}`;
    expect((await open(safetensorsBytes(text, 0))).size).toBe(0);
  });
});

describe("safetensors index", () => {
  const files = {
    "m-1.safetensors": safetensorsOf({ a: [2, 2], b: [3] }),
    "m-2.safetensors": safetensorsOf({ c: [1] }),
  };
  const openIndex = async (index: unknown) => {
    const source = memorySource({ ...files, [safetensorsIndex]: jsonBytes(index) });
    return await openSafetensorsIndex(source, new Map());
  };

  test("every tensor is in its file", async () => {
    const weight_map = { a: "m-1.safetensors", c: "m-2.safetensors", b: "m-1.safetensors" };
    const tensors = await openIndex({ metadata: { total_size: 32 }, weight_map });
    expect([...tensors.values()].map((t) => [t.name, t.file, t.byteLength])).toEqual([
      ["a", "m-1.safetensors", 16],
      ["c", "m-2.safetensors", 4],
      ["b", "m-1.safetensors", 12],
    ]);
  });

  const cases: [string, unknown, string][] = [
    ["no map", {}, 'weight_map: got "nothing"'],
    ["a path", { weight_map: { a: "../m-1.safetensors" } }, "expected a plain file name"],
    ["a Windows path", { weight_map: { a: "..\\m-1.safetensors" } }, "expected a plain file name"],
    ["a file of another kind", { weight_map: { a: "config.json" } }, "ends in .safetensors"],
    ["a number", { weight_map: { a: 1 } }, "ends in .safetensors"],
    ["a missing file", { weight_map: { a: "m-3.safetensors" } }, 'got "no such file"'],
    [
      "a missing tensor",
      { weight_map: { c: "m-1.safetensors" } },
      'got "no such tensor in m-1.safetensors"',
    ],
  ];
  test.each(cases)("refuses %s", async (_what, index, message) => {
    await expect(openIndex(index)).rejects.toThrow(FormatError);
    await expect(openIndex(index)).rejects.toThrow(message);
  });
});
