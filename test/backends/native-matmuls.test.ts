// Matmuls as machine code for every weight type: every variant with code gives the same bits for any number of tokens,
// and the reference's results up to the rounding of activations.

import { describe, expect, test } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { refusals } from "../../src/backends/cpu/native/choice.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import {
  acceptsProblem,
  type MatmulProblem,
  type MatmulVariant,
  matmulVariants,
} from "../../src/kernels/matmul-variants.ts";
import { packedTypes } from "../../src/kernels/ops/packed/packings.ts";
import { floats, matmulBatch, matmulGraph } from "../../src/tune/matmul-graph.ts";
import { nativeElsewhere, nativeHere } from "../support/native.ts";

// A tile of tokens in AMX tiles, where there are any, and one that is not full.
const maxTokens = 29;
const limits = { maxTokens, maxOutputs: maxTokens };

/** Of weights, before they repeat: in other columns each time. */
const SAMPLE_ELEMENTS: number = 256 * 37;

const allTypes = [...packedTypes(), "f32", "f16", "bf16"];
/** One of each kind, by every variant; on targets besides the best of this machine only these, and not by all. */
const someTypes = ["q4_0", "q5_1", "q8_0", "iq4_nl", "q2_k", "q4_k", "q6_k", "f16"];

/** Rows for streams, and a tile that is not full; columns of a few blocks. */
function problemOf(dtype: string): MatmulProblem {
  const isLong = dtypeByName(dtype)!.blockElems === 256;
  return { dtype, n: 344, k: isLong ? 512 : 96 };
}

/** The bytes of a weight: made once, a row of blocks that all rows share in turns. */
const samples = new Map<string, Uint8Array>();

function sampleOf(weight: Weight): Uint8Array {
  const { dtype } = weight;
  const known = samples.get(dtype.name) ?? sampleBlocks(dtype, SAMPLE_ELEMENTS);
  samples.set(dtype.name, known);
  return known;
}

async function prepared(backend: Backend, { dtype, n, k }: MatmulProblem): Promise<Backend> {
  const graph = matmulGraph(dtypeByName(dtype)!, n, k);
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, floats));
  for (const weight of graph.weights) {
    const bytes = sampleOf(weight);
    await backend.upload(weight, async (target, from) => {
      for (let i = 0; i < target.length; i++) target[i] = bytes[(from + i) % bytes.length]!;
    });
  }
  return backend;
}

async function results(backend: Backend, tokens: number, n: number): Promise<Float32Array> {
  await backend.run(matmulBatch(tokens, limits));
  const all = new Float32Array(tokens * n);
  for (let row = 0; row < tokens; row++) {
    await backend.read("logits", row, all.subarray(row * n, (row + 1) * n));
  }
  return all;
}

/** Largest difference, relative to the largest value. */
function distance(a: Float32Array, b: Float32Array): number {
  const size = a.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0) / size;
}

describe.each(nativeHere)("$name", ({ name, native }) => {
  const refusal = refusals(native);

  const isBest = name === nativeHere[0]!.name;
  test.each(isBest ? allTypes : someTypes)("%s", async (dtype) => {
    const problem = problemOf(dtype);
    const accepted = matmulVariants(native.target).filter(
      (variant) => acceptsProblem(variant, problem, native.target) === true,
    );
    const tried = isBest && someTypes.includes(dtype) ? accepted : usual(accepted);
    const variants = tried.filter((variant) => refusal(dtype, variant) === undefined);
    expect(variants.length).toBeGreaterThan(0);
    const backend = new CpuBackend({
      level: 3,
      threads: 1,
      startThread: undefined,
      native,
      choose: () => ({ variants, byTokens: new Array<number>(maxTokens + 1).fill(0), notes: [] }),
    });
    await prepared(backend, problem);
    expect(backend.kernels).toBe(name);
    const reference = await prepared(new ReferenceBackend(), problem);
    for (const tokens of [1, 3, maxTokens]) {
      const expected = await results(reference, tokens, problem.n);
      const got = await byVariant(backend, variants, tokens, problem.n);
      const [first] = got.values();
      expect(distance(expected, first!), `${tokens} tokens`).toBeLessThan(1e-5);
      for (const [id, values] of got) expect(values, `${id}, ${tokens} tokens`).toEqual(first);
    }
    backend.dispose();
  });

  test("a variant without code is replaced, and that is said", async () => {
    const problem = { dtype: "q4_0", n: 64, k: 64 };
    const wide: MatmulVariant = {
      ...matmulVariants(native.target)[0]!,
      id: "16x40",
      rows: 16,
      tokens: 40,
      shared: true,
    };
    const backend = new CpuBackend({
      level: 3,
      threads: 1,
      startThread: undefined,
      native,
      choose: () => ({
        variants: [wide],
        byTokens: new Array<number>(maxTokens + 1).fill(0),
        notes: [],
      }),
    });
    await prepared(backend, problem);
    expect(backend.kernels).toBe(name);
    expect(backend.explain().join("\n")).toMatch(/q4_0: 16x40 is refused \(matmul.* vectors alive/);
    const reference = await prepared(new ReferenceBackend(), problem);
    expect(
      distance(await results(reference, 5, problem.n), await results(backend, 5, problem.n)),
    ).toBeLessThan(1e-5);
    backend.dispose();
  });
});

/** One with streams, a tile of tokens, and one that does both, as far as there are any. */
function usual(variants: readonly MatmulVariant[]): MatmulVariant[] {
  const one = variants.find(({ tokens, streams }) => tokens === 1 && streams > 1);
  const tile = variants.findLast(({ tokens, streamed }) => tokens > 1 && !streamed);
  const both = variants.find(({ streamed }) => streamed);
  return [one, tile, both].filter((variant) => variant !== undefined);
}

async function byVariant(
  backend: CpuBackend,
  variants: readonly MatmulVariant[],
  tokens: number,
  n: number,
): Promise<Map<string, Float32Array>> {
  const got = new Map<string, Float32Array>();
  for (const [index, { id }] of variants.entries()) {
    backend.tuning.setVariant(index);
    got.set(id, await results(backend, tokens, n));
  }
  return got;
}

test.skip.each(nativeElsewhere)("%s", () => {});
