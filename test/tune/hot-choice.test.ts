// Whether hot neurons take the place of layers on a GPU is tried where the bytes promise it, decided by what was measured, and
// remembered; times are made up here.

import { expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import type { HotOffer } from "../../src/backends/split/hot-offer.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { makePlan } from "../../src/graph/plan.ts";
import type { SmallFiles } from "../../src/platform/platform.ts";
import { HotChoice } from "../../src/tune/hot-choice.ts";

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

interface Model {
  readonly plain: Ms;
  /** A sentence: why loading it fails. */
  readonly hot: Ms | string;
  readonly offer?: HotOffer | undefined;
  /** ms of a token of a prompt that the processor computes by itself, below so many. */
  readonly below?: readonly [tokens: number, ms: number];
  readonly weights?: string;
}

/** A 7B on an H200, two thirds of whose bytes the host would read. */
const offer: HotOffer = { share: 0.25, plainBytes: 1.09e9, hotBytes: 0.725e9, layers: 32 };

/** Loads as serve-engine.ts does: what was loaded in turn, and what --explain says of the last. */
async function opened(files: SmallFiles, model: Model) {
  let clock = 0;
  const choice = new HotChoice({ files, now: () => clock, key: "this" });
  const loads: (number | "plain")[] = [];
  let notes: string[] = [];
  do {
    notes = [];
    await choice.begin(model.weights ?? "weights", 1, notes);
    const share = choice.wanted;
    loads.push(share ?? "plain");
    const ms = share === undefined ? model.plain : model.hot;
    if (typeof ms === "string") {
      await choice.refused(ms);
      continue;
    }
    const backend: Pick<Backend, "run"> = {
      run: async ({ tokenCount, tokens }: Batch) => {
        expect([4, 5]).toContain(tokens[0]);
        const [helpedFrom, alone] = model.below ?? [0, 0];
        const isAlone = share === undefined && tokenCount < helpedFrom;
        clock += tokenCount === 1 ? ms[0] : tokenCount * (isAlone ? alone : ms[1]);
      },
    };
    await choice.measure({
      ...{ backend: backend as Backend, plan, tokens: [4, 5], check: () => {} },
      offer: async () => ("offer" in model ? model.offer : offer),
      helpedFrom: model.below?.[0] ?? Number.POSITIVE_INFINITY,
    });
  } while (choice.mustReload);
  return { loads, notes };
}

test("where they are faster they stay, and are remembered", async () => {
  const files = storeOf();
  const model: Model = { plain: [89.3, 2], hot: [74.6, 4] };
  const times =
    "74.6 ms a generated token instead of 89.3, 4.00 a token of a prompt instead of 2.00 (--no-hot-neurons)";
  expect(await opened(files, model)).toEqual({
    loads: ["plain", 0.25],
    notes: [`hot neurons: auto, 0.25 of them (measured): ${times}`],
  });
  expect(await opened(files, model)).toEqual({
    loads: [0.25],
    notes: [`hot neurons: auto, 0.25 of them (remembered): ${times}`],
  });
  expect((await opened(files, { ...model, weights: "others" })).loads).toEqual(["plain", 0.25]);
});

test("what the bytes and the waits do not promise is not tried", async () => {
  const files = storeOf();
  const model: Model = { plain: [30, 2], hot: [1, 1] };
  const why =
    "at least 33.7 ms a generated token instead of 30.0, 2.00 a token of a prompt instead of 2.00 (--hot-neurons 0.25)";
  expect(await opened(files, model)).toEqual({
    loads: ["plain"],
    notes: [`hot neurons: auto, off (measured): ${why}`],
  });
  expect(await opened(files, model)).toEqual({
    loads: ["plain"],
    notes: [`hot neurons: auto, off (remembered): ${why}`],
  });
});

test.each([
  ["generated tokens are not clearly faster", [86, 2]],
  ["prompts are slower by more", [74.6, 20]],
] as const)("where %s, layers stay on the GPU", async (_, hot) => {
  const files = storeOf();
  const first = await opened(files, { plain: [89.3, 2], hot });
  expect(first.loads).toEqual(["plain", 0.25, "plain"]);
  expect(first.notes).toEqual([
    expect.stringMatching(/^hot neurons: auto, off \(measured\): .* \(--hot-neurons 0\.25\)$/),
  ]);
  expect((await opened(files, { plain: [89.3, 2], hot })).loads).toEqual(["plain"]);
});

test("prompts that the GPU computes for the processor, and could not then, count", async () => {
  const model: Model = { plain: [89.3, 0.4], hot: [74.6, 4], below: [8, 30] };
  const { loads, notes } = await opened(storeOf(), model);
  expect(loads).toEqual(["plain"]);
  expect(notes[0]).toContain("73.2 ms a generated token instead of 89.3, 20.0 a token of a prompt");
  const fast = await opened(storeOf(), { ...model, below: [8, 6] });
  expect(fast.loads).toEqual(["plain", 0.25]);
});

test("a GPU that has no memory for them keeps its layers, and that is remembered", async () => {
  const files = storeOf();
  const model: Model = { plain: [89.3, 2], hot: "the GPU has too little memory" };
  const first = await opened(files, model);
  expect(first.loads).toEqual(["plain", 0.25, "plain"]);
  expect(first.notes[0]).toContain("off (measured): the GPU has too little memory");
  expect((await opened(files, model)).loads).toEqual(["plain"]);
});

test("where there are none to be had nothing is said or stored", async () => {
  const files = storeOf();
  const found = await opened(files, { plain: [89.3, 2], hot: [1, 1], offer: undefined });
  expect(found).toEqual({ loads: ["plain"], notes: [] });
  expect(files.text).toBeUndefined();
});

test.each(["", "[", '{"this, 1 threads, weights":{"share":2,"plain":{},"hot":"no"}}'])(
  "what cannot be read is measured again: %s",
  async (text) => {
    const { loads } = await opened(storeOf(text), { plain: [89.3, 2], hot: [74.6, 4] });
    expect(loads).toEqual(["plain", 0.25]);
  },
);
