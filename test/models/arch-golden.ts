// A tiny file of ../shared/archs on a backend, for architectures that are not in the table: prompts in one batch and token by
// token, and what llama.cpp computed for the same file.

import { readFileSync } from "node:fs";
import { expect } from "vitest";
import { type Backend, evenRoom } from "../../src/backends/backend.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { Batch } from "../../src/graph/batch.ts";
import { type Graph, kvGroups } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { weightReader } from "../../src/graph/weight-source.ts";
import type { Arch } from "../../src/models/arch.ts";
import { buildGraph, checkWeights } from "../../src/models/build.ts";
import { memorySource } from "../formats/support.ts";
import { sharedPath } from "../support/shared.ts";

export interface ArchGolden {
  readonly kind: "decoder" | "diffusion" | "encoder";
  readonly cases: readonly {
    readonly tokens: readonly number[];
    /** Of decoders: the ten largest logits of every position, and what follows. */
    readonly positions: readonly {
      readonly top: readonly (readonly [id: number, logit: number])[];
    }[];
    readonly greedy: readonly number[];
    /** Of encoders: the first four values of every token's hidden state, and their sum over the text. */
    readonly first4: readonly (readonly number[])[];
    readonly mean: readonly number[];
  }[];
}

export function readArchGolden(name: string): ArchGolden {
  return JSON.parse(readFileSync(sharedPath(`archs/${name}.json`), "utf8")) as ArchGolden;
}

const limits = { maxTokens: 40, maxOutputs: 40 };
const blocks = 3;

/** A backend with a file in it. Prompts begin anew each time. */
export interface LoadedArch {
  readonly graph: Graph;
  /** What is read of every token: logits, or the hidden state. One batch, or one for each token. */
  prompt(tokens: readonly number[], perStep?: number): Promise<Float32Array[]>;
  /** The likeliest tokens, after a prompt. */
  greedy(count: number): Promise<number[]>;
  dispose(): void;
}

export async function loadArch(name: string, arch: Arch, backend: Backend): Promise<LoadedArch> {
  const bytes = new Uint8Array(readFileSync(sharedPath(`archs/${name}.gguf`)));
  const file: ModelFile = await openGguf(memorySource({ "tiny.gguf": bytes }), "tiny.gguf");
  const config = arch.config(file);
  checkWeights(arch.weights(config), file.tensors);
  const graph = buildGraph(arch, config, {
    get: (weight) => file.tensors.get(weight)!,
    maybe: (weight) => file.tensors.get(weight),
  });
  const kv = evenRoom(blocks, dtypeByName("f32")!, kvGroups(graph).length);
  await backend.prepare(makePlan(graph, limits), kv);
  for (const weight of graph.weights) {
    const read = weightReader(weight, (tensor, target, at) =>
      file.readTensor(file.tensors.get(tensor)!, target, at),
    );
    await backend.upload(weight, read);
  }
  const output = graph.outputs.logits ? "logits" : "hidden";
  const { cols } = graph.outputs[output]!;
  const table = { blocks: Int32Array.of(2, 0, 1) };
  const step = new Batch(limits);
  let length = 0;
  let last = new Float32Array(cols);
  const run = async (tokens: readonly number[]): Promise<Float32Array[]> => {
    step.clear();
    for (const token of tokens) step.add(token, length++, table, true);
    await backend.run(step);
    const rows: Float32Array[] = [];
    for (let row = 0; row < tokens.length; row++) {
      last = new Float32Array(cols);
      await backend.read(output, row, last);
      rows.push(last);
    }
    return rows;
  };
  return {
    graph,
    async prompt(tokens, perStep = tokens.length) {
      length = 0;
      const rows: Float32Array[] = [];
      for (let at = 0; at < tokens.length; at += perStep) {
        rows.push(...(await run(tokens.slice(at, at + perStep))));
      }
      return rows;
    },
    async greedy(count) {
      const found: number[] = [];
      while (found.length < count) {
        const best = last.reduce((most, logit, id) => (logit > last[most]! ? id : most), 0);
        found.push(best);
        await run([best]);
      }
      return found;
    },
    dispose: () => backend.dispose(),
  };
}

/** Within this, results are llama.cpp's (../shared/archs/README.md). */
const TOLERANCE = 2e-3;

/** The backend computes what llama.cpp computed. */
export async function expectGolden(name: string, arch: Arch, backend: Backend): Promise<void> {
  const golden = readArchGolden(name);
  const loaded = await loadArch(name, arch, backend);
  for (const one of golden.cases) {
    // Without a causal mask, the whole text is one batch.
    const sizes = golden.kind === "decoder" ? [1, 7, one.tokens.length] : [one.tokens.length];
    for (const perStep of sizes) {
      const rows = await loaded.prompt(one.tokens, perStep);
      const what = `${name}, ${one.tokens.length} tokens, ${perStep} in a batch`;
      expect(furthest(one, rows), what).toBeLessThan(TOLERANCE);
    }
    if (golden.kind === "decoder") {
      expect(await loaded.greedy(one.greedy.length), name).toEqual(one.greedy);
    }
  }
  loaded.dispose();
}

/** How far the values that llama.cpp gives are away. */
function furthest(
  { positions, first4, mean }: ArchGolden["cases"][number],
  rows: readonly Float32Array[],
): number {
  const off = positions
    ? positions.flatMap(({ top }, row) => top.map(([id, logit]) => rows[row]![id]! - logit))
    : [
        ...first4.flatMap((values, row) => values.map((value, i) => rows[row]![i]! - value)),
        ...mean.map((value, i) => {
          return rows.reduce((sum, row) => sum + row[i]!, 0) / rows.length - value;
        }),
      ];
  return off.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
}
