// Running a tiny model on a backend, and what llama.cpp computed for the same file: for the tests beside it.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { LogitsResult } from "../../src/api/api.ts";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { computeLogits } from "../../src/engine/compute-logits.ts";
import { Engine } from "../../src/engine/engine.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import { memorySource } from "../formats/support.ts";
import { tinyPrompt } from "./tiny-models.ts";

export interface TinyGolden {
  /** Of the GGUF file. */
  sha256: string;
  /** Length of the logit vector at every position of the prompt. */
  norms: number[];
  /** The ten largest logits at some positions. */
  top: { position: number; top: [id: number, logit: number][] }[];
  greedy: number[];
}

export function readTinyGolden(name: string): TinyGolden {
  const url = new URL(`./data/tiny-${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(url, "utf8")) as TinyGolden;
}

export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Every logit of every position of the prompt, largest first. */
export async function tinyLogits(
  gguf: Uint8Array,
  greedy: number,
  backend: Backend = new ReferenceBackend(),
): Promise<LogitsResult> {
  const file = await openGguf(memorySource({ "tiny.gguf": gguf }), "tiny.gguf");
  const tokenizer = tokenizerFromMetadata(file.metadata);
  const engine = await Engine.load(
    {
      name: "tiny",
      format: file.format,
      metadata: file.metadata,
      tensors: file.tensors,
      readTensor: (name, target, offset) =>
        file.readTensor(file.tensors.get(name)!, target, offset),
      tokenizer,
      template: undefined,
      backend,
    },
    { contextSize: 64, kvType: dtypeByName("f32")! },
    { progress: () => {}, check: () => {} },
  );
  try {
    const control = { aborted: false, yieldThread: async () => {}, now: () => 0 };
    return await computeLogits(engine, tinyPrompt, { top: engine.vocabSize, greedy }, control);
  } finally {
    engine.dispose();
  }
}
