// Tiny mixtures of experts that llama.cpp made and computed (../shared/archs): loading one on a backend, and holding its
// logits and its greedy text against llama.cpp's.

import { readFileSync } from "node:fs";
import { expect } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Engine } from "../../src/engine/engine.ts";
import { computeLogits } from "../../src/engine/generator.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import { memorySource } from "../formats/support.ts";
import { sharedPath } from "../support/shared.ts";
import { moeArchs, registerMoeArchs, renamed } from "./moe-archs.ts";

interface GoldenCase {
  tokens: number[];
  positions: { norm: number; top: [id: number, logit: number][] }[];
  greedy: number[];
}

registerMoeArchs();

export const moeNames: readonly string[] = moeArchs.flatMap(({ names }) => names);

export async function loadMoe(name: string, backend: Backend): Promise<Engine> {
  const gguf = new Uint8Array(readFileSync(sharedPath(`archs/${name}.gguf`)));
  const file = await openGguf(memorySource({ "moe.gguf": gguf }), "moe.gguf");
  return await Engine.load(
    {
      name,
      format: file.format,
      metadata: renamed(file.metadata, name),
      tensors: file.tensors,
      readTensor: (tensor, target, offset) =>
        file.readTensor(file.tensors.get(tensor)!, target, offset),
      tokenizer: tokenizerFromMetadata(file.metadata),
      template: undefined,
      backend,
    },
    { contextSize: 128, kvType: dtypeByName("f32")! },
    { progress: () => {}, check: () => {} },
  );
}

/** Top-10 logits of every position within 2e-3, and the same greedy tokens, for both prompts. */
export async function expectGolden(name: string, backend: Backend): Promise<void> {
  const text = readFileSync(sharedPath(`archs/${name}.json`), "utf8");
  const { cases } = JSON.parse(text) as { cases: GoldenCase[] };
  const engine = await loadMoe(name, backend);
  try {
    const control = { aborted: false, breathe: async () => {}, now: () => 0 };
    for (const { tokens, positions, greedy } of cases) {
      const options = { top: engine.vocabSize, greedy: greedy.length };
      const got = await computeLogits(engine, tokens, options, control);
      positions.forEach(({ top }, i) => {
        const logits = new Map(got.positions[i]!.top);
        const apart = top.map(([id, logit]) => Math.abs(logits.get(id)! - logit));
        expect(Math.max(...apart), `position ${i} of ${tokens.length}`).toBeLessThan(2e-3);
      });
      expect(got.greedy).toEqual(greedy);
    }
  } finally {
    engine.dispose();
  }
}
