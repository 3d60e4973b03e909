// What users type and paste for a model of the hub, and which file of a repository is taken.
// Held against: names and files written here.

import { describe, expect, test } from "vitest";
import {
  chooseVariant,
  type HubVariant,
  quantizationOf,
  variantsOf,
} from "../../src/catalog/hub-choice.ts";
import { isDirectAddress, readBareName, readHubName } from "../../src/catalog/hub-name.ts";

describe("names", () => {
  const plain = { repo: "o/r", revision: "main", file: undefined, quantization: undefined };
  test.each([
    ["hf:o/r", plain],
    ["hf://o/r", plain],
    ["HF:o/r:Q4_K_M", { ...plain, quantization: "Q4_K_M" }],
    ["hf.co/o/r:latest", plain],
    ["hf:o/r@v1/sub/x.gguf", { ...plain, revision: "v1", file: "sub/x.gguf" }],
    ["https://huggingface.co/o/r", plain],
    ["https://huggingface.co/o/r/tree/main", plain],
    ["https://hf.co/o/r?show=1#files", plain],
    ["https://huggingface.co/o/r/blob/main/x%20y.gguf", { ...plain, file: "x y.gguf" }],
    [
      "https://huggingface.co/o/r/resolve/v2/x.gguf?download=true",
      { ...plain, revision: "v2", file: "x.gguf" },
    ],
    ["http://mirror.test:8/o/r/blob/main/x.gguf", { ...plain, file: "x.gguf" }],
  ])("%s", (text, expected) => {
    expect(readHubName(text, "http://mirror.test:8")).toEqual(expected);
  });

  test("other addresses and names are not the hub's", () => {
    for (const text of ["https://example.org/o/r", "http://mirror.test:8/o/r", "models/x", "x"]) {
      expect(readHubName(text)).toBe(undefined);
    }
    expect(readBareName("o/r:Q8_0")).toEqual({ ...plain, quantization: "Q8_0" });
    for (const text of ["x", "a/b/c", "a/b.gguf", "../b", "./b", "/b", "a b/c", "C:\\x"]) {
      expect(readBareName(text), text).toBe(undefined);
    }
  });

  test("nothing leaves the cache folder", () => {
    for (const text of [
      "hf:../x",
      "hf:o/..",
      "hf:o/r/../x.gguf",
      "hf:o/r@a/../../../x.gguf",
      "hf:o/r@../x.gguf",
      "https://huggingface.co/o/r/blob/a%2f..%2f../x.gguf",
      "https://huggingface.co/o/r/blob/main/..%5c..%5cx.gguf",
      "https://huggingface.co/o/r/blob/main/%2e%2e/%2e%2e/x.gguf",
      "https://huggingface.co/o/..%2fr",
      "https://huggingface.co/datasets",
      "https://huggingface.co/o/r/discussions",
    ]) {
      expect(() => readHubName(text), text).toThrow(
        "does not name a model on the Hugging Face hub",
      );
    }
  });

  test("an address of bytes is told from one of a page", () => {
    expect(isDirectAddress("https://huggingface.co/o/r/resolve/main/x.gguf")).toBe(true);
    expect(isDirectAddress("https://huggingface.co/o/r/blob/main/x.gguf")).toBe(false);
  });
});

describe("files", () => {
  test.each([
    ["Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"],
    ["qwen2.5-0.5b-instruct-q8_0.gguf", "Q8_0"],
    ["tinyllama-1.1b-chat-v1.0.Q4_0.gguf", "Q4_0"],
    ["Q3_K_L/x-Q3_K_L-00002-of-00003.gguf", "Q3_K_L"],
    ["Model-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"],
    ["Model-IQ2_XXS.gguf", "IQ2_XXS"],
    ["Model.BF16.gguf", "BF16"],
    ["ggml-model-f16.gguf", "F16"],
    ["model.gguf", undefined],
  ])("%s is of type %s", (path, type) => {
    expect(quantizationOf(path)).toBe(type);
  });

  const file = (path: string, bytes: number) => ({ path, bytes, sha256: undefined });
  test("parts make one model, incomplete ones none, and images' parts are no models", () => {
    const variants = variantsOf([
      file("big-Q8_0-00002-of-00002.gguf", 6e9),
      file("big-Q8_0-00001-of-00002.gguf", 7e9),
      file("cut-F16-00001-of-00002.gguf", 1),
      file("x-Q4_0.gguf", 5e9),
      file("mmproj-x-F16.gguf", 5e8),
      file("x.imatrix.gguf", 5e6),
    ]);
    expect(variants.map(({ quantization, bytes }) => [quantization, bytes])).toEqual([
      ["Q4_0", 5e9],
      ["Q8_0", 13e9],
    ]);
    expect(variants[1]!.files.map(({ path }) => path)).toEqual([
      "big-Q8_0-00001-of-00002.gguf",
      "big-Q8_0-00002-of-00002.gguf",
    ]);
  });

  const variant = (quantization: string | undefined, bytes: number): HubVariant => ({
    quantization,
    bytes,
    files: [file(`m-${quantization}.gguf`, bytes)],
  });
  const eight = [
    variant("IQ2_XXS", 2.4e9),
    variant("Q3_K_M", 4e9),
    variant("Q4_K_M", 5e9),
    variant("Q8_0", 8.7e9),
    variant("F16", 16e9),
  ];
  const choose = (variants: HubVariant[], memoryBytes: number, quantization?: string) =>
    chooseVariant(variants, { repo: "o/r", quantization, memoryBytes }).quantization;

  test("4 bits where they fit, fewer where they do not, 8 for what is small", () => {
    expect(choose(eight, 64e9)).toBe("Q4_K_M");
    expect(choose(eight, 6e9)).toBe("Q3_K_M");
    expect(choose(eight, 4e9)).toBe("IQ2_XXS");
    const small = [variant("Q4_K_M", 4e8), variant("Q8_0", 6.4e8), variant("F16", 1.2e9)];
    expect(choose(small, 64e9)).toBe("Q8_0");
    expect(choose([variant(undefined, 1e9)], 8e9)).toBe(undefined);
  });

  test("what does not fit, is not there or could be two is said with what there is", () => {
    expect(() => choose(eight, 2e9)).toThrow(
      /no file of o\/r fits: the smallest, IQ2_XXS, has 2.4 GB.*2.0 GB/,
    );
    expect(choose(eight, 2e9, "f16")).toBe("F16");
    expect(() => choose(eight, 8e9, "Q5_K_M")).toThrow(
      "o/r has no Q5_K_M. It has: IQ2_XXS (2.4 GB), Q3_K_M (4.0 GB)",
    );
    expect(() => choose([eight[0]!, eight[0]!], 8e9, "IQ2_XXS")).toThrow("several files of type");
    expect(() => choose([], 8e9)).toThrow(/no GGUF files.*lantern search r/);
  });
});
