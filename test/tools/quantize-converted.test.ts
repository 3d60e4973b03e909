// quantize() of models that are not GGUF files: the same bytes as of the file that convert() makes of them. Nothing is written but
// the result.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { convert, quantize, UsageError } from "../../src/index.ts";
import { type FolderOptions, tinyFolder } from "./tiny-folder.ts";

let folder = "";
const at = (...names: string[]) => join(folder, ...names);

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-quantize-converted-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function written(name: string, options: FolderOptions): string {
  mkdirSync(at(name));
  for (const [file, bytes] of Object.entries(tinyFolder(options)))
    writeFileSync(at(name, file), bytes);
  return at(name);
}

const llama3 = {
  rope_type: "llama3",
  ...{ factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
  original_max_position_embeddings: 64,
};
const cases: [what: string, options: FolderOptions, type: string][] = [
  // Rows of q and k are reordered, also where a chunk ends within a head; biases and vectors are BF16 in the folder.
  ["llama", {}, "Q4_0"],
  ["llama-f16-shards", { type: "F16", shards: 3 }, "Q8_0"],
  ["llama-factors", { config: { rope_scaling: llama3 } }, "Q4_0"],
  ["qwen2-bf16", { modelType: "qwen2", type: "BF16" }, "Q4_K_M"],
  ["mixtral", { modelType: "mixtral", experts: "each" }, "Q4_0"],
];

test.each(cases)("%s: as of its GGUF file", async (name, options, type) => {
  const model = written(name, options);
  await convert(model, at(`${name}.gguf`));
  await quantize(at(`${name}.gguf`), at(`${name}-of-file.gguf`), type, { threads: 1 });
  const before = readdirSync(folder);
  const result = await quantize(model, at(`${name}-direct.gguf`), type, { threads: 1 });
  expect(result.type).toBe(type);
  expect(readdirSync(folder).sort()).toEqual([...before, `${name}-direct.gguf`].sort());
  const [direct, ofFile] = ["direct", "of-file"].map((way) =>
    readFileSync(at(`${name}-${way}.gguf`)),
  );
  expect(direct!.equals(ofFile!)).toBe(true);
});

test("a file of the folder is not replaced", async () => {
  const model = written("kept", {});
  for (const file of ["config.json", "model.safetensors"]) {
    const work = quantize(model, join(model, file), "Q4_0", { threads: 1, replace: true });
    await expect(work).rejects.toThrow(UsageError);
  }
});
