// info.weightType: the file's own type where it names one, else that of most bytes in the layers.
// Held against: types written here.

import { expect, test } from "vitest";
import { fileTypeIds, fileTypeName, mainType } from "../../src/base/file-type-names.ts";
import { open, quantize } from "../../src/index.ts";
import { fileTypes } from "../../src/tools/quantize/file-types.ts";
import { tinyGguf } from "../support/tiny-file.ts";

async function typeOf(bytes: Uint8Array): Promise<string> {
  const file = new File([Uint8Array.from(bytes)], "tiny.gguf");
  await using model = await open(file, { threads: 1, level: 1 });
  return model.info.weightType;
}

test("is general.file_type, if its number is known", async () => {
  const withType = (value: number) =>
    tinyGguf({ more: [["general.file_type", { type: "u32", value }]] });
  expect(await typeOf(await withType(15))).toBe("q4_k_m");
  expect(await typeOf(await withType(9999))).toBe("f32");
});

test("without it, an embedding that is larger than all layers does not count", async () => {
  const moreControls = Array.from({ length: 2000 }, (_, i) => `<c${i}>`);
  const file = new File([Uint8Array.from(await tinyGguf({ moreControls }))], "tiny.gguf");
  const parts: Uint8Array[] = [];
  const sink = { write: async (part: Uint8Array) => void parts.push(part.slice()) };
  await quantize(file, sink, "Q4_0", { threads: 1 });
  const quantized = Buffer.concat(parts);
  expect(await typeOf(quantized)).toBe("q4_0");
  quantized.write("general.file_typo", quantized.indexOf("general.file_type"));
  expect(await typeOf(quantized)).toBe("q4_0");
});

test("every file type that can be written has a number; most weights of it have a tensor type", () => {
  for (const { name, base } of fileTypes) {
    expect(fileTypeName(fileTypeIds[name]!)).toBe(name);
    // IQ2_S, IQ2_M, IQ3_XS and IQ3_M are mixes that no tensor type is named after.
    if (!/^IQ(2_[SM]|3_(XS|M))$/.test(name)) expect(mainType(name), name).toBe(base);
  }
});
