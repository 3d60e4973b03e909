// Whether a GPU with some of the layers computes exactly is measured once, decided by what it costs, and remembered; times are made up here.
// With a GPU: test/backends/exact-matrix.test.ts.

import { expect, test } from "vitest";
import type { Backend, LayerPlace } from "../../src/backends/backend.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { makePlan } from "../../src/graph/plan.ts";
import type { SmallFiles } from "../../src/platform/platform.ts";
import { ExactChoice } from "../../src/tune/exact-choice.ts";

const f32 = dtypeByName("f32")!;
const g = new GraphBuilder();
const x = g.embed({ name: "table", shape: [8, 4], dtype: f32 }, "x"); // [tokens, 4]
const down = { name: "down", shape: [8, 4], dtype: f32 };
const graph = g.finish({ logits: g.matmul(x, down, "logits") });
const plan = makePlan(graph, { maxTokens: 32, maxOutputs: 1 });

function storeOf(text?: string): SmallFiles & { text: string | undefined } {
  return {
    text,
    place: (name) => name,
    async read() {
      return this.text;
    },
    async write(_, written) {
      this.text = written;
    },
  };
}

/** ms of a batch of one token, and of each token of a larger one. */
type Ms = readonly [token: number, prompt: number];

const place = { firstLayer: 0, layers: 1, hasOutput: false, weightBytes: 1 };
const split: readonly LayerPlace[] = [
  { ...place, backend: "cpu", isDevice: false },
  { ...place, backend: "webgpu", isDevice: true },
];

interface Model {
  readonly fast: Ms;
  /** A sentence: why loading it fails. */
  readonly exact: Ms | string;
  readonly loadMs?: number;
  readonly places?: readonly LayerPlace[];
  readonly key?: string;
  /** Tokens of a batch of the exact kernels. */
  readonly exactBatch?: number;
}

/** Loads as serve-engine.ts does: what was loaded in turn, and what --explain says of the last. */
async function opened(files: SmallFiles, model: Model) {
  const { fast, exact, loadMs = 100, places = split, key = "this", exactBatch = 32 } = model;
  const exactPlan = makePlan(graph, { maxTokens: exactBatch, maxOutputs: 1 });
  let clock = 0;
  const choice = new ExactChoice({ files, now: () => clock, key });
  const loads: string[] = [];
  let notes: string[] = [];
  do {
    notes = [];
    await choice.begin(notes);
    loads.push(choice.wanted ? "exact" : "fast");
    clock += loadMs;
    const ms = choice.wanted ? exact : fast;
    if (typeof ms === "string") {
      await choice.refused(ms);
      continue;
    }
    const backend: Pick<Backend, "placement" | "run"> = {
      placement: () => places,
      run: async ({ tokenCount }: Batch) => {
        clock += tokenCount === 1 ? ms[0] : tokenCount * ms[1];
      },
    };
    await choice.measure(backend as Backend, choice.wanted ? exactPlan : plan, () => {});
  } while (choice.mustReload);
  return { loads, notes };
}

test("where it costs less than 10 % it stays, and is remembered", async () => {
  const files = storeOf();
  const model: Model = { fast: [10, 2], exact: [10.9, 1.5] };
  const times =
    "10.9 ms a generated token instead of 10.0, 1.50 a token of a prompt instead of 2.00 (--no-exact)";
  expect(await opened(files, model)).toEqual({
    loads: ["fast", "exact"],
    notes: [`exact: auto, on (measured): ${times}`],
  });
  expect(await opened(files, model)).toEqual({
    loads: ["exact"],
    notes: [`exact: auto, on (remembered): ${times}`],
  });
  expect((await opened(files, { ...model, key: "other" })).loads).toEqual(["fast", "exact"]);
});

test.each([
  ["generated tokens", [11.1, 2]],
  ["prompts", [10, 2.3]],
] as const)("where it costs more for %s the fast kernels stay", async (_, exact) => {
  const files = storeOf();
  const first = await opened(files, { fast: [10, 2], exact });
  expect(first.loads).toEqual(["fast", "exact", "fast"]);
  expect(first.notes).toEqual([
    expect.stringMatching(/^exact: auto, off \(measured\): .* \(--exact\)$/),
  ]);
  expect((await opened(files, { fast: [10, 2], exact })).loads).toEqual(["fast"]);
});

test("a model without exact kernels is loaded without, and that is remembered", async () => {
  const files = storeOf();
  const model: Model = { fast: [10, 2], exact: 'exact kernels lack the op "route"' };
  const first = await opened(files, model);
  expect(first.loads).toEqual(["fast", "exact", "fast"]);
  expect(first.notes).toEqual(['exact: auto, off (measured): exact kernels lack the op "route"']);
  expect((await opened(files, model)).loads).toEqual(["fast"]);
});

test("nothing is measured where all layers are on one side, and where loading takes long", async () => {
  const model: Model = { fast: [10, 2], exact: [10, 2] };
  const files = storeOf();
  const whole = await opened(files, { ...model, places: split.slice(1) });
  expect(whole).toEqual({ loads: ["fast"], notes: [] });
  expect(await opened(files, { ...model, loadMs: 20_000 })).toEqual({
    loads: ["fast"],
    notes: [
      "exact: auto, off: the model took 20 s to load, and measuring loads it again (--exact)",
    ],
  });
  expect(files.text).toBeUndefined();
});

test.each(["", "[", '{"this":{"fast":{"token":-1,"prompt":1},"exact":"no"}}'])(
  "what cannot be read is measured again: %s",
  async (text) => {
    const { loads } = await opened(storeOf(text), { fast: [10, 2], exact: [10, 2] });
    expect(loads).toEqual(["fast", "exact"]);
  },
);

test("exact kernels with smaller batches compute the same prompt in several", async () => {
  const { loads, notes } = await opened(storeOf(), {
    fast: [10, 2],
    exact: [10, 2],
    exactBatch: 8,
  });
  expect(loads).toEqual(["fast", "exact"]);
  expect(notes).toEqual([
    expect.stringMatching(/^exact: auto, on \(measured\): 10\.0 ms .* 2\.00 a token/),
  ]);
});
