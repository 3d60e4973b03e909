// The conformance suite: a backend computes what the reference computes, value by value, for every architecture, weight
// type and cache type, with steps of any size and several sequences in one step. (test/models/tiny-golden.test.ts holds
// the same backends against llama.cpp.)

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { Step } from "../../src/graph/step.ts";
import { buildModel } from "../../src/models/build.ts";
import { allArchs } from "../../src/models/table.ts";
import { type TinyOptions, tinyModel, tinyShape } from "../support/tiny-engine.ts";

const limits = { maxTokens: 12, maxOutputs: 12 };

/** Step by step: tokens of two sequences, in runs of these lengths. */
const steps: [first: number, second: number][] = [
  [1, 0],
  [3, 2],
  [0, 5],
  [8, 4],
  [12, 0],
  [1, 1],
  [9, 3],
  [12, 0],
];

interface Seen {
  step: number;
  name: string;
  values: Float32Array;
}

async function run(backend: Backend, options: TinyOptions): Promise<Seen[]> {
  const model = tinyModel(options);
  const { graph } = buildModel(model);
  await backend.prepare(makePlan(graph, limits), {
    blocks: 4,
    dtype: dtypeByName(options.kvType ?? "f32")!,
  });
  for (const weight of graph.weights) {
    await backend.upload(weight, async (target, at) => {
      target.set(model.bytes.get(weight.name)!.subarray(at, at + target.length));
    });
  }
  const tables = [{ blocks: Int32Array.of(3, 1) }, { blocks: Int32Array.of(0, 2) }];
  const lengths = [0, 0];
  const seen: Seen[] = [];
  const step = new Step(limits);
  for (const [number, counts] of steps.entries()) {
    step.clear();
    counts.forEach((count, sequence) => {
      for (let i = 0; i < count; i++) {
        const position = lengths[sequence]!++;
        const token = (position * 7 + sequence * 5 + number) % tinyShape.vocab;
        step.add(token, position, tables[sequence]!, position % 3 !== 1);
      }
    });
    await backend.run(step, {
      tap: (value, data) => {
        seen.push({ step: number, name: value.name, values: data.slice() });
      },
    });
  }
  backend.dispose();
  return seen;
}

/** Largest difference, relative to the largest value. */
function distance(a: Float32Array, b: Float32Array): number {
  let most = 0;
  let size = 1e-6;
  for (let i = 0; i < a.length; i++) {
    most = Math.max(most, Math.abs(a[i]! - b[i]!));
    size = Math.max(size, Math.abs(a[i]!));
  }
  return most / size;
}

const architectures = allArchs().flatMap((arch) => arch.names);

describe.each([2, 3] as const)("cpu, level %i", (level) => {
  const cpu = () => new CpuBackend({ level, threads: 1, startThread: undefined });

  // Floats: every value agrees to rounding.
  test.each(architectures)("%s, every value", async (architecture) => {
    await expectSame({ architecture }, 1e-5);
  });
  test.each(["f16", "q8_0"])("%s cache", async (kvType) => {
    // A key that lies between two steps of its type may fall either way.
    await expectSame({ kvType }, kvType === "f16" ? 2e-3 : 2e-2);
  });
  test("rows and columns that fill no tile", async () => {
    await expectSame({ feedForward: 36, vocab: 51 }, 1e-5);
    await expectSame({ feedForward: 45 }, 1e-5);
  });
  // Quantized: the first steps agree to rounding; an activation that falls to its other neighbour moves later ones.
  test.each(["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"])(
    "%s weights",
    async (weightType) => {
      await expectSame({ weightType }, 3e-2);
    },
  );

  async function expectSame(options: TinyOptions, tolerance: number): Promise<void> {
    const expected = await run(new ReferenceBackend(), options);
    const got = await run(cpu(), options);
    expect(got.map(({ step, name }) => `${step} ${name}`)).toEqual(
      expected.map(({ step, name }) => `${step} ${name}`),
    );
    got.forEach(({ step, name, values }, i) => {
      expect(distance(expected[i]!.values, values), `step ${step}, ${name}`).toBeLessThan(
        tolerance,
      );
    });
  }
});
