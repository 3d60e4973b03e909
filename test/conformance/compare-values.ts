// One backend beside another on the same tiny model: steps of any size, two sequences in one step, and every value after
// every op. What the conformance suite holds each backend against; without its test runner, so that a child process can.

import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { Step } from "../../src/graph/step.ts";
import { buildModel } from "../../src/models/build.ts";
import { type TinyModel, type TinyOptions, tinyModel, tinyShape } from "../support/tiny-engine.ts";

const limits = { maxTokens: 12, maxOutputs: 12 };

/** Step by step: tokens of two sequences, in runs of these lengths. */
export type Steps = readonly (readonly [first: number, second: number])[];

export const manySteps: Steps = [
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

async function run(
  backend: Backend,
  model: TinyModel,
  kvType: string,
  steps: Steps,
): Promise<Seen[]> {
  const { graph } = buildModel(model);
  await backend.prepare(makePlan(graph, limits), { blocks: 4, dtype: dtypeByName(kvType)! });
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

/** The first value that is not what the reference computes, as a sentence; undefined: all are. */
export async function firstDifference(
  backend: Backend,
  options: TinyOptions,
  tolerance: number,
  steps: Steps = manySteps,
): Promise<string | undefined> {
  const model = tinyModel(options);
  const kvType = options.kvType ?? "f32";
  const expected = await run(new ReferenceBackend(), model, kvType, steps);
  const got = await run(backend, model, kvType, steps);
  const names = (list: Seen[]) => list.map(({ step, name }) => `${step} ${name}`).join();
  if (names(got) !== names(expected)) return `values ${names(got)}, expected ${names(expected)}`;
  for (const [i, { step, name, values }] of got.entries()) {
    const apart = distance(expected[i]!.values, values);
    if (!(apart < tolerance)) return `step ${step}, ${name}: ${apart} apart, expected ${tolerance}`;
  }
  return undefined;
}
