// Models with squared ReLU, with neurons that are zero left out, on two threads: the tokens that llama.cpp writes.
// Held against: llama.cpp's tokens.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { open } from "../../src/index.ts";
import { describeShared, sharedPath } from "../support/shared.ts";

interface Facts {
  readonly cases: readonly { readonly tokens: number[]; readonly greedy: number[] }[];
}

for (const name of ["nemotron"]) {
  describeShared(`llama.cpp's tokens, with neurons left out: ${name}`, `archs/${name}.gguf`, () => {
    test("are the same", async () => {
      const facts = JSON.parse(readFileSync(sharedPath(`archs/${name}.json`), "utf8")) as Facts;
      const path = sharedPath(`archs/${name}.gguf`);
      await using model = await open(path, { sparse: true, threads: 2, kvType: "f32" });
      expect(model.info.backend.notes.join("\n")).toContain("columns whose activation is not zero");
      for (const { tokens, greedy } of facts.cases) {
        const options = { maxTokens: greedy.length, temperature: 0, ignoreEos: true };
        expect((await model.generate(tokens, options).result).tokenIds).toEqual(greedy);
      }
    });
  });
}
