// quantize() against llama.cpp: whole files with the same bytes for every type, from F32, F16 and BF16, with tied
// embeddings and with rows that are no whole blocks; and the same tensors with an importance matrix. Types that search a
// codebook are in quantize-codebooks.test.ts.

import { describe, expect, test } from "vitest";
import { fileTypes } from "../../src/tools/quantize/file-types.ts";
import { expectSameFile, expectSameTensors, golden, searchesCodebook } from "./quantize-files.ts";
import { samples } from "./quantize-model.ts";

const ofSample = (hashes: Record<string, string>) =>
  Object.keys(hashes).filter((type) => !searchesCodebook(type));

describe.each(Object.keys(samples))("%s", (sample) => {
  test("every type has a hash, with an importance matrix or without", () => {
    const known = { ...golden.files[sample], ...golden.weighted[sample] };
    expect(new Set(Object.keys(known))).toEqual(new Set(fileTypes.map(({ name }) => name)));
  });

  test.each(ofSample(golden.files[sample]!))("%s: the file that llama.cpp writes", async (type) => {
    await expectSameFile(sample, type);
  });

  test.each(ofSample(golden.weighted[sample]!))(
    "%s with an importance matrix: the tensors that llama.cpp writes",
    async (type) => {
      await expectSameTensors(sample, type);
    },
  );
});
