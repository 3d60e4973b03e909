// Damaged and hostile GGUF files: each is refused with a FormatError that names file, field, got and expected, and with
// no file left open.

import { describe, expect, test } from "vitest";
import { FormatError } from "../../src/base/errors.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import { concat, ggufBytes, memorySource } from "./support.ts";

/** Little-endian fields, one after the other: numbers are u32, bigints u64, strings GGUF strings, arrays raw bytes. */
function fields(...values: (number | bigint | string | readonly number[])[]): Uint8Array {
  return concat(
    ...values.map((value) => {
      if (typeof value === "number") return new Uint8Array(Uint32Array.of(value).buffer);
      if (typeof value === "bigint") return new Uint8Array(BigUint64Array.of(value).buffer);
      if (typeof value !== "string") return Uint8Array.from(value);
      const text = new TextEncoder().encode(value);
      return concat(new Uint8Array(BigUint64Array.of(BigInt(text.byteLength)).buffer), text);
    }),
  );
}

const magic = 0x46554747;
const string = 8;
const array = 9;
const f32 = 0;
const q8_0 = 8;

/** A header with these keys and tensors already encoded, and 256 bytes of data. */
function file(keyCount: bigint, tensorCount: bigint, ...rest: Uint8Array[]): Uint8Array {
  const head = concat(fields(magic, 3, tensorCount, keyCount), ...rest);
  return concat(head, new Uint8Array((32 - (head.byteLength % 32)) % 32), new Uint8Array(256));
}

function tensor(name: string, dims: bigint[], type: number, offset: bigint): Uint8Array {
  return fields(name, dims.length, ...dims, type, offset);
}

async function failure(bytes: Uint8Array): Promise<FormatError> {
  const source = memorySource({ "bad.gguf": bytes });
  const error = await openGguf(source, "bad.gguf").then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(FormatError);
  expect(source.count.open).toBe(0);
  expect(source.count.bytes).toBeLessThanOrEqual(bytes.byteLength);
  return error as FormatError;
}

const big = 2n ** 60n;
const cases: [what: string, bytes: Uint8Array, message: string][] = [
  ["an empty file", new Uint8Array(0), "magic: got"],
  ["another magic", fields(0x04034b50, 3, 0n, 0n), 'magic: got bytes 80 75 3 4, expected "GGUF"'],
  ["version 1", fields(magic, 1, 0n, 0n), "version: got 1, expected 2 or 3"],
  ["version 4", fields(magic, 4, 0n, 0n), "version: got 4, expected 2 or 3"],
  ["a big-endian file", fields(magic, 3 << 24, 0n, 0n), "byte order: got"],
  ["2^60 keys", file(big, 0n), "metadata count: got 1152921504606846976, expected at most"],
  ["2^60 tensors", file(0n, big), "tensor count: got 1152921504606846976, expected at most"],
  ["a key of 2^60 bytes", file(1n, 0n, fields(big)), "metadata key 0 length: got"],
  [
    "an empty key",
    file(1n, 0n, fields("", 4, 1)),
    "metadata key 0 length: got 0, expected 1 to 65535",
  ],
  [
    "a key of 65,536 bytes",
    file(1n, 0n, fields("k".repeat(65536), 4, 1)),
    "metadata key 0 length: got 65536",
  ],
  ["two equal keys", file(2n, 0n, fields("k", 4, 1, "k", 4, 1)), 'metadata key 1: got "k"'],
  [
    "a key that is not UTF-8",
    file(1n, 0n, fields(2n, [0xc3, 0x28], 4, 1)),
    "metadata key 0: got bytes 195 40, expected valid UTF-8",
  ],
  [
    "an unknown value type",
    file(1n, 0n, fields("k", 13)),
    'metadata "k" type: got 13, expected one of u8 (0)',
  ],
  [
    "a value string of 2^60 bytes",
    file(1n, 0n, fields("k", string, big)),
    'metadata "k" length: got',
  ],
  [
    "a value that is not UTF-8",
    file(1n, 0n, fields("k", string, 1n, [0xff])),
    'metadata "k": got bytes 255',
  ],
  [
    "a bool of 2",
    file(1n, 0n, fields("k", 7, [2])),
    'metadata "k": got 2, expected a boolean, 0 or 1',
  ],
  ["an array of 2^60 floats", file(1n, 0n, fields("k", array, 6, big)), 'metadata "k" count: got'],
  [
    "an array of 2^60 strings",
    file(1n, 0n, fields("k", array, string, big)),
    'metadata "k" count: got',
  ],
  [
    "an array string of 2^60 bytes",
    file(1n, 0n, fields("k", array, string, 1n, big)),
    'metadata "k"[0] length: got',
  ],
  [
    "an array of arrays",
    file(1n, 0n, fields("k", array, array, 1n)),
    'metadata "k" element type: got "array',
  ],
  [
    "an array of unknown type",
    file(1n, 0n, fields("k", array, 77, 1n)),
    'metadata "k" element type: got 77',
  ],
  ["alignment 0", file(1n, 0n, fields("general.alignment", 4, 0)), "general.alignment: got 0"],
  ["alignment 33", file(1n, 0n, fields("general.alignment", 4, 33)), "general.alignment: got 33"],
  [
    "alignment 2^31",
    file(1n, 0n, fields("general.alignment", 4, 2 ** 31)),
    "general.alignment: got 2147483648",
  ],
  [
    "alignment NaN",
    file(1n, 0n, fields("general.alignment", 6, 0x7fc00000)),
    "general.alignment: got NaN",
  ],
  [
    "a text as alignment",
    file(1n, 0n, fields("general.alignment", string, "x")),
    "expected a number",
  ],
  [
    "a nameless tensor",
    file(0n, 1n, tensor("", [4n], f32, 0n)),
    "tensor 0 name length: got 0, expected 1 to 65535",
  ],
  [
    "two equal tensors",
    file(0n, 2n, tensor("t", [4n], f32, 0n), tensor("t", [4n], f32, 32n)),
    'tensor 1 name: got "t"',
  ],
  [
    "no dimensions",
    file(0n, 1n, tensor("t", [], f32, 0n)),
    'tensor "t" dimension count: got 0, expected 1 to 4',
  ],
  [
    "5 dimensions",
    file(0n, 1n, tensor("t", [1n, 1n, 1n, 1n, 1n], f32, 0n)),
    "dimension count: got 5",
  ],
  ["2^32-1 dimensions", file(0n, 1n, fields("t", 0xffffffff)), "dimension count: got 4294967295"],
  [
    "a dimension of 0",
    file(0n, 1n, tensor("t", [4n, 0n], f32, 0n)),
    'tensor "t" shape: got [0, 4]',
  ],
  [
    "a dimension of 2^64-1",
    file(0n, 1n, tensor("t", [2n ** 64n - 1n], f32, 0n)),
    'tensor "t" shape',
  ],
  [
    "dimensions whose product overflows 2^64",
    file(0n, 1n, tensor("t", [2n ** 32n, 2n ** 32n], f32, 0n)),
    "fewer than 2^53",
  ],
  [
    "a row of half a block",
    file(0n, 1n, tensor("t", [48n], q8_0, 0n)),
    'tensor "t" row length: got 48, expected a multiple of 32 (q8_0 blocks)',
  ],
  [
    "an offset off the alignment",
    file(0n, 1n, tensor("t", [4n], f32, 8n)),
    'tensor "t" offset: got 8, expected a multiple of the alignment, 32',
  ],
  [
    "an offset of 2^60",
    file(0n, 1n, tensor("t", [4n], f32, big)),
    'tensor "t" offset: got 1152921504606846976',
  ],
  [
    "data beyond the end",
    file(0n, 1n, tensor("t", [65n], f32, 0n)),
    'tensor "t" data: got "bytes 64 to 324", expected an end within 320',
  ],
  [
    "two tensors on the same bytes",
    file(0n, 2n, tensor("a", [16n], f32, 0n), tensor("b", [4n], f32, 32n)),
    'tensor "b" data: got "an overlap with \\"a\\"',
  ],
];

/** Whole, but without end: only its head is there, zeros follow. */
async function sparseFailure(head: Uint8Array): Promise<{ error: FormatError; bytes: number }> {
  const source = memorySource({ "bad.gguf": { head, size: 2 ** 33 } });
  const error = await openGguf(source, "bad.gguf").catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(FormatError);
  return { error: error as FormatError, bytes: source.count.bytes };
}

describe("hostile gguf", () => {
  test.each(cases)("refuses %s", async (_what, bytes, message) => {
    const error = await failure(bytes);
    expect(error.message).toContain(message);
    expect(error.message).toMatch(/^gguf: bad\.gguf: .+: got .+, expected .+/s);
    expect(error.facts.file).toBe("bad.gguf");
  });

  test("an unknown tensor type names the known ones", async () => {
    const bytes = file(0n, 1n, tensor("blk.3.attn_q.weight", [32n], 99, 0n));
    const error = await failure(bytes);
    expect(error.message).toMatch(
      /^gguf: bad\.gguf: tensor "blk\.3\.attn_q\.weight" type: got 99, expected one of f32 \(0\), f16 \(1\), /,
    );
  });

  test("every truncation of a header is refused", async () => {
    const whole = await ggufBytes({
      "general.architecture": { type: "string", value: "llama" },
      "tokenizer.ggml.tokens": { type: "array<string>", value: ["a", "bc", "def"] },
      "tokenizer.ggml.scores": { type: "array<f32>", value: [1, 2, 3] },
    });
    for (let length = 0; length < whole.byteLength; length++) {
      await failure(whole.slice(0, length));
    }
  });

  test("bad UTF-8 inside an array is found when the array is asked for", async () => {
    const keys = fields("k", array, string, 2n, "ok", 1n, [0xfe]);
    const model = await openGguf(memorySource({ "bad.gguf": file(1n, 0n, keys) }), "bad.gguf");
    expect(model.metadata.arrayLength("k")).toBe(2);
    expect(model.metadata.preview("k", 1)?.value).toEqual(["ok"]);
    expect(() => model.metadata.strings("k")).toThrow(
      'gguf: bad.gguf: metadata "k"[1]: got bytes 254, expected valid UTF-8',
    );
  });

  test.each<[string, Uint8Array, string]>([
    [
      "55 million empty tokens",
      file(1n, 0n, fields("tokenizer.ggml.tokens", array, string, 55_000_000n)),
      'metadata "tokenizer.ggml.tokens" count: got 55000000, expected at most 8388608',
    ],
    [
      "a million keys",
      fields(magic, 3, 0n, 1_000_000n),
      "metadata count: got 1000000, expected at most 65536",
    ],
    [
      "a million tensors",
      fields(magic, 3, 1_000_000n, 0n),
      "tensor count: got 1000000, expected at most 262144",
    ],
    [
      "a value of 300 MB",
      file(1n, 0n, fields("k", string, 300_000_000n)),
      "expected at most 268435456",
    ],
  ])("refuses %s before it reads them", async (_what, head, message) => {
    const { error, bytes } = await sparseFailure(head);
    expect(error.message).toContain(message);
    expect(bytes).toBeLessThanOrEqual(1 << 20);
  });
});
