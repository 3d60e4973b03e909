// quantize() against llama.cpp, as quantize.test.ts, for the types that search a codebook: IQ1, IQ2 and IQ3.

import { describe, test } from "vitest";
import { expectSameFile, expectSameTensors, golden, searchesCodebook } from "./quantize-files.ts";
import { samples } from "./quantize-model.ts";

const ofSample = (hashes: Record<string, string>) => Object.keys(hashes).filter(searchesCodebook);

describe.each(Object.keys(samples))("%s", (sample) => {
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
