// GGUF files made by the writer and read by the reader: every value type, tensors, alignment, splits.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gguf } from "@huggingface/gguf";
import { describe, expect, test } from "vitest";
import { DisposedError, FormatError, UsageError } from "../../src/base/errors.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import { modelTensors, writeGguf } from "../../src/formats/gguf/writer.ts";
import { countingTensor, type Entries, ggufBytes, memorySink, memorySource } from "./support.ts";

const everyType: Entries = {
  "a.u8": { type: "u8", value: 255 },
  "a.i8": { type: "i8", value: -128 },
  "a.u16": { type: "u16", value: 65535 },
  "a.i16": { type: "i16", value: -32768 },
  "a.u32": { type: "u32", value: 4294967295 },
  "a.i32": { type: "i32", value: -2147483648 },
  "a.f32": { type: "f32", value: Math.fround(1e-5) },
  "a.bool": { type: "bool", value: true },
  "a.string": { type: "string", value: "π ≠ 3\0\uFEFF" },
  "a.empty": { type: "string", value: "" },
  "a.u64": { type: "u64", value: 2n ** 64n - 1n },
  "a.u64small": { type: "u64", value: 7 },
  "a.i64": { type: "i64", value: -(2n ** 63n) },
  "a.f64": { type: "f64", value: Math.PI },
  "b.strings": { type: "array<string>", value: ["", "\uFEFFa", "▁the", "🙂", "<0x0A>"] },
  "b.f32": { type: "array<f32>", value: [0, -1.5, Number.POSITIVE_INFINITY] },
  "b.bool": { type: "array<bool>", value: [true, false] },
  "b.u64": { type: "array<u64>", value: [1, 2n ** 60n] },
  "b.i16": { type: "array<i16>", value: [-1, 2, -3] },
  "b.none": { type: "array<string>", value: [] },
};

const twoTensors = [
  countingTensor("token_embd.weight", "f32", [3, 5], 1),
  countingTensor("blk.0.attn_q.weight", "q8_0", [2, 64], 100),
];

async function open(bytes: Uint8Array) {
  return await openGguf(memorySource({ "m.gguf": bytes }), "m.gguf");
}

describe("gguf metadata", () => {
  test("every value type survives write and read", async () => {
    const { metadata } = await open(await ggufBytes(everyType));
    expect([...metadata.keys()]).toEqual(Object.keys(everyType));
    for (const [key, { type, value }] of Object.entries(everyType)) {
      const preview = metadata.preview(key, Number.POSITIVE_INFINITY)!;
      expect(preview.type).toBe(type);
      expect(preview.value).toEqual(value);
      expect(preview.length).toBe(Array.isArray(value) ? value.length : undefined);
    }
  });

  test("getters answer their own type, undefined for absent keys, and refuse other types", async () => {
    const { metadata } = await open(await ggufBytes(everyType));
    expect(metadata.string("a.string")).toBe("π ≠ 3\0\uFEFF");
    expect(metadata.number("a.i8")).toBe(-128);
    expect(metadata.number("a.u64small")).toBe(7);
    expect(metadata.boolean("a.bool")).toBe(true);
    expect(metadata.strings("b.strings")).toEqual(["", "\uFEFFa", "▁the", "🙂", "<0x0A>"]);
    expect(metadata.numbers("b.i16")).toEqual([-1, 2, -3]);
    expect(metadata.arrayLength("b.strings")).toBe(5);
    expect(metadata.preview("b.strings", 2)).toEqual({
      type: "array<string>",
      value: ["", "\uFEFFa"],
      length: 5,
    });
    for (const getter of ["string", "number", "boolean", "strings", "numbers"] as const) {
      expect(metadata[getter]("absent")).toBeUndefined();
    }
    const wrong: [() => unknown, string][] = [
      [() => metadata.string("a.u8"), 'metadata "a.u8": got "u8", expected a string'],
      [() => metadata.number("a.string"), "expected a number"],
      [
        () => metadata.number("a.u64"),
        "got 18446744073709551615, expected an integer of at most 2^53",
      ],
      [() => metadata.numbers("b.u64"), '"b.u64[1]": got 1152921504606846976'],
      [() => metadata.numbers("b.bool"), "expected an array of numbers"],
      [() => metadata.strings("b.f32"), 'got "array of f32", expected an array of strings'],
      [() => metadata.boolean("b.bool"), "expected a bool"],
      [() => metadata.arrayLength("a.u8"), "expected an array"],
    ];
    for (const [call, message] of wrong) {
      expect(call).toThrow(FormatError);
      expect(call).toThrow(message);
    }
  });
});

describe("gguf tensors", () => {
  test.each([2, 3] as const)("version %i: table, offsets and bytes", async (version) => {
    const bytes = await ggufBytes(
      { "general.architecture": { type: "string", value: "x" } },
      twoTensors,
      version,
    );
    const file = await open(bytes);
    expect(file.totalBytes).toBe(bytes.byteLength);
    expect(file.tokenizer).toEqual({ kind: "gguf" });
    const embedding = file.tensors.get("token_embd.weight")!;
    expect(embedding).toMatchObject({ shape: [3, 5], byteLength: 60, file: "m.gguf" });
    expect(embedding.dtype.name).toBe("f32");
    const query = file.tensors.get("blk.0.attn_q.weight")!;
    expect(query).toMatchObject({ shape: [2, 64], byteLength: 2 * 2 * 34 });
    expect(query.offset).toBe(embedding.offset + 64); // 60 bytes, padded to 32
    const whole = new Uint8Array(60);
    await file.readTensor(embedding, whole);
    expect([...whole]).toEqual(Array.from({ length: 60 }, (_, i) => 1 + i));
    const part = new Uint8Array(3);
    await file.readTensor(query, part, 133);
    expect([...part]).toEqual([233, 234, 235]);
  });

  test("reads outside of a tensor and after close are refused", async () => {
    const source = memorySource({ "m.gguf": await ggufBytes({}, twoTensors) });
    const file = await openGguf(source, "m.gguf");
    const tensor = file.tensors.get("token_embd.weight")!;
    await expect(file.readTensor(tensor, new Uint8Array(61))).rejects.toThrow(UsageError);
    await expect(file.readTensor(tensor, new Uint8Array(1), 60)).rejects.toThrow(UsageError);
    await expect(file.readTensor(tensor, new Uint8Array(1), -1)).rejects.toThrow(UsageError);
    await file.close();
    expect(source.count.open).toBe(0);
    await expect(file.readTensor(tensor, new Uint8Array(1))).rejects.toThrow(DisposedError);
  });

  test("general.alignment moves the data", async () => {
    const bytes = await ggufBytes({ "general.alignment": { type: "u32", value: 256 } }, twoTensors);
    const file = await open(bytes);
    const offsets = [...file.tensors.values()].map((tensor) => tensor.offset);
    expect(offsets[0]! % 256).toBe(0);
    expect(offsets[1]).toBe(offsets[0]! + 256);
  });
});

describe("gguf writer", () => {
  test("what was read is written back byte for byte", async () => {
    const bytes = await ggufBytes(everyType, twoTensors);
    const file = await open(bytes);
    const sink = memorySink();
    await writeGguf(sink, file.metadata, modelTensors(file));
    expect(sink.bytes()).toEqual(bytes);
  });

  test.each([2, 3] as const)("@huggingface/gguf reads version %i", async (version) => {
    const folder = await mkdtemp(join(tmpdir(), "lantern-gguf-"));
    try {
      const path = join(folder, "m.gguf");
      await writeFile(path, await ggufBytes(everyType, twoTensors, version));
      const read = await gguf(path, { allowLocalFile: true });
      const metadata = read.metadata as Record<string, unknown>;
      expect(read.metadata.version).toBe(version);
      for (const [key, { value }] of Object.entries(everyType)) {
        // It has bigints for 64-bit integers of any size, and drops a leading U+FEFF.
        const wide = /[ui]64/.test(everyType[key]!.type);
        const expected = [value].flat().map((item) => {
          if (wide) return BigInt(item as number);
          return typeof item === "string" ? item.replace(/^\uFEFF/, "") : item;
        });
        expect([metadata[key]].flat()).toEqual(expected);
      }
      expect(read.tensorInfos).toEqual([
        { name: "token_embd.weight", n_dims: 2, shape: [5n, 3n], dtype: 0, offset: 0n },
        { name: "blk.0.attn_q.weight", n_dims: 2, shape: [64n, 2n], dtype: 8, offset: 64n },
      ]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  const refused: [string, Entries, string][] = [
    ["a value out of range", { k: { type: "u8", value: 256 } }, "256 does not fit the type u8"],
    ["a fraction as an integer", { k: { type: "i32", value: 1.5 } }, "does not fit"],
    ["an unsafe number as u64", { k: { type: "u64", value: 2 ** 60 } }, "does not fit"],
    ["a negative u64", { k: { type: "u64", value: -1n } }, "does not fit"],
    ["a string as a number", { k: { type: "f32", value: "1" } }, "does not fit"],
    ["an unknown type", { k: { type: "u128", value: 1 } }, 'type "u128"'],
    ["a scalar as an array", { k: { type: "array<u8>", value: 1 } }, 'type "array<u8>"'],
    ["half a surrogate pair", { k: { type: "string", value: "\ud800" } }, "not valid Unicode"],
    ["an empty key", { "": { type: "u8", value: 1 } }, "empty"],
    ["a strange alignment", { "general.alignment": { type: "u32", value: 48 } }, "power of two"],
  ];
  test.each(refused)("refuses %s", async (_what, entries, message) => {
    const writing = ggufBytes(entries);
    await expect(writing).rejects.toThrow(UsageError);
    await expect(writing).rejects.toThrow(message);
  });

  test("refuses a tensor with too few or too many bytes, and two of one name", async () => {
    const [tensor] = twoTensors as [(typeof twoTensors)[0]];
    const short = { ...tensor, data: () => [new Uint8Array(59)] };
    const long = { ...tensor, data: () => [new Uint8Array(40), new Uint8Array(40)] };
    await expect(ggufBytes({}, [short])).rejects.toThrow("got 59 bytes or more, expected 60");
    await expect(ggufBytes({}, [long])).rejects.toThrow("got 80 bytes or more, expected 60");
    await expect(ggufBytes({}, [tensor, tensor])).rejects.toThrow("occurs twice");
  });
});

describe("gguf splits", () => {
  type Files = Record<string, Uint8Array>;
  const partName = (i: number) => `m-0000${i}-of-00003.gguf`;

  async function split(change: (part: number) => Entries = () => ({})): Promise<Files> {
    const files: Files = {};
    for (let i = 0; i < 3; i++) {
      const entries: Entries = {
        ...(i === 0 ? { "general.name": { type: "string", value: "whole" } } : {}),
        "split.no": { type: "u16", value: i },
        "split.count": { type: "u16", value: 3 },
        "split.tensors.count": { type: "i32", value: 3 },
        ...change(i),
      };
      files[partName(i + 1)] = await ggufBytes(entries, [countingTensor(`t${i}`, "f32", [4], i)]);
    }
    return files;
  }

  test("opens all parts, named by any of them", async () => {
    const files = await split();
    for (const name of Object.keys(files)) {
      const source = memorySource(files, name);
      const file = await openGguf(source, name);
      expect(file.name).toBe(partName(1));
      expect(file.metadata.string("general.name")).toBe("whole");
      expect([...file.tensors.values()].map((t) => `${t.name} in ${t.file}`)).toEqual([
        `t0 in ${partName(1)}`,
        `t1 in ${partName(2)}`,
        `t2 in ${partName(3)}`,
      ]);
      const bytes = new Uint8Array(2);
      await file.readTensor(file.tensors.get("t2")!, bytes, 1);
      expect([...bytes]).toEqual([3, 4]);
      const sizes = Object.values(files).map((part) => part.byteLength);
      expect(file.totalBytes).toBe(sizes.reduce((a, b) => a + b));
      await file.close();
      expect(source.count.open).toBe(0);
    }
  });

  const u16 = (value: number) => ({ type: "u16", value });
  const broken: [string, () => Promise<Files>, string][] = [
    [
      "a missing part",
      async () => {
        const files = await split();
        delete files[partName(2)];
        return files;
      },
      `part 2 of 3: got "no such file", expected ${partName(2)} beside it`,
    ],
    [
      "parts that name each other's place",
      () => split((i) => ({ "split.no": u16([0, 2, 1][i]!) })),
      `${partName(2)}: split.no: got 2, expected 1`,
    ],
    [
      "a part that repeats the first",
      () => split(() => ({ "split.no": u16(0) })),
      `${partName(2)}: split.no: got 0, expected 1`,
    ],
    [
      "a count that differs from the name",
      () => split(() => ({ "split.count": u16(4) })),
      "split.count: got 4, expected 3, as in the file's name",
    ],
    [
      "a part with another count",
      () => split((i) => ({ "split.count": u16(i === 2 ? 5 : 3) })),
      `${partName(3)}: split.count: got 5, expected 3`,
    ],
    [
      "fewer tensors than promised",
      () => split(() => ({ "split.tensors.count": { type: "i32", value: 4 } })),
      "split.tensors.count: got 4, expected 3",
    ],
    [
      "the same tensor twice",
      async () => {
        const files = await split();
        const entries = { "split.no": u16(1), "split.count": u16(3) };
        files[partName(2)] = await ggufBytes(entries, [countingTensor("t0", "f32", [4])]);
        return files;
      },
      `tensor "t0": got "also in ${partName(1)}"`,
    ],
  ];
  test.each(broken)("refuses %s", async (_what, make, message) => {
    const source = memorySource(await make(), partName(1));
    const opening = openGguf(source, partName(1));
    await expect(opening).rejects.toThrow(FormatError);
    await expect(opening).rejects.toThrow(message);
    expect(source.count.open).toBe(0);
  });

  test("refuses a part under another name", async () => {
    const files = await split();
    const source = memorySource({ "renamed.gguf": files[partName(1)]! });
    await expect(openGguf(source, "renamed.gguf")).rejects.toThrow("NAME-00001-of-00003.gguf");
  });
});
