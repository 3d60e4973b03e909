// Whether neurons that are zero are left out is measured once, kept where it is faster, and remembered; times are made up here.

import { expect, test } from "vitest";
import type { Backend, RunOptions } from "../../src/backends/backend.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Batch } from "../../src/graph/batch.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { makePlan } from "../../src/graph/plan.ts";
import type { SmallFiles } from "../../src/platform/platform.ts";
import { SparseChoice } from "../../src/tune/sparse-choice.ts";

const f32 = dtypeByName("f32")!;
const g = new GraphBuilder();
const x = g.embed({ name: "table", shape: [8, 4], dtype: f32 }, "x"); // [tokens, 4]
const inner = g.activate(x, "relu", "inner"); // [tokens, 4]
const down = { name: "down", shape: [8, 4], dtype: f32 };
const plan = makePlan(g.finish({ logits: g.matmul(inner, down, "logits") }), {
  maxTokens: 1,
  maxOutputs: 1,
});

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

/** A model whose tokens take so long, by a clock that only its tokens move. */
class Model {
  readonly ms: { readonly dense: number; readonly sparse: number };
  readonly activations: readonly number[];
  readonly bytes: number;
  loads: boolean[] = [];
  tokens = 0;
  #clock = 0;

  constructor(ms: Model["ms"], activations: readonly number[], bytes = 1e9) {
    this.ms = ms;
    this.activations = activations;
    this.bytes = bytes;
  }

  /** Loads as serve-engine.ts does; what --explain then says of it. */
  async open(files: SmallFiles, available?: number): Promise<string[]> {
    const choice = new SparseChoice({
      files,
      now: () => this.#clock,
      availableMemory: () => available,
      machine: "test",
    });
    let notes: string[];
    do {
      notes = [];
      await choice.begin("weights", 2, notes);
      this.loads.push(choice.isOn);
      const backend = this.#backend(choice.isOn);
      await choice.measure(
        backend,
        plan,
        (text) => [...text].map(() => 1),
        () => {},
      );
    } while (choice.mustReload);
    return notes;
  }

  #backend(isSparse: boolean): Backend {
    const backend: Pick<Backend, "neurons" | "run" | "memory"> = {
      memory: () => ({ weightBytes: 2 * this.bytes, kvBytes: 1000, workBytes: 1000 }),
      neurons: () => (this.bytes > 0 ? { bytes: this.bytes, values: [inner] } : undefined),
      run: async (_: Batch, options?: RunOptions) => {
        this.tokens++;
        this.#clock += isSparse ? this.ms.sparse : this.ms.dense;
        options?.tap?.(x, new Float32Array(4));
        options?.tap?.(inner, Float32Array.from(this.activations));
      },
    };
    return backend as Backend;
  }
}

const mostZero = [0, 0, 0, 1];

test("where it is faster it stays, and is remembered", async () => {
  const files = storeOf();
  const model = new Model({ dense: 40, sparse: 30 }, mostZero);
  const times = "75 % of neurons are zero, 30.0 ms a token without them, 40.0 ms with all";
  expect(await model.open(files)).toEqual([`sparse: auto, on (measured): ${times}`]);
  expect(model.loads).toEqual([false, true]);
  const again = new Model({ dense: 40, sparse: 30 }, mostZero);
  expect(await again.open(files)).toEqual([`sparse: auto, on (remembered): ${times}`]);
  expect(again.loads).toEqual([true]);
  expect(again.tokens).toBe(0);
});

test("where it is not faster, all neurons are loaded again", async () => {
  const files = storeOf();
  const model = new Model({ dense: 40, sparse: 39.5 }, mostZero);
  const times = "75 % of neurons are zero, 39.5 ms a token without them, 40.0 ms with all";
  expect(await model.open(files)).toEqual([`sparse: auto, off (measured): ${times}`]);
  expect(model.loads).toEqual([false, true, false]);
  const again = new Model({ dense: 40, sparse: 39.5 }, mostZero);
  expect(await again.open(files)).toEqual([`sparse: auto, off (remembered): ${times}`]);
  expect(again.loads).toEqual([false]);
});

test("few zeros are not tried", async () => {
  const model = new Model({ dense: 40, sparse: 10 }, [0, 1, 2, 3]);
  const note = "sparse: auto, off (measured): 25 % of neurons are zero, too few to leave them out";
  expect(await model.open(storeOf())).toEqual([note]);
  expect(model.loads).toEqual([false]);
});

test.each([
  { about: "nothing can be left out", bytes: 0 },
  { about: "what can be left out is small", bytes: 1e6 },
])("$about: nothing is computed or stored", async ({ bytes }) => {
  const files = storeOf();
  const model = new Model({ dense: 40, sparse: 30 }, mostZero, bytes);
  expect(await model.open(files)).toEqual([]);
  expect(model.loads).toEqual([false]);
  expect(model.tokens).toBe(0);
  expect(files.text).toBeUndefined();
});

test.each(["", "[", "null", '{"test, 2 threads, weights":{"isOn":"yes"}}'])(
  "a store that says nothing usable is replaced: %s",
  async (text) => {
    const files = storeOf(text);
    const model = new Model({ dense: 40, sparse: 30 }, mostZero);
    expect(await model.open(files)).toHaveLength(1);
    expect(model.loads).toEqual([false, true]);
    expect(JSON.parse(files.text!)).toEqual({
      "test, 2 threads, weights": { isOn: true, zeros: 0.75, denseMs: 40, sparseMs: 30 },
    });
  },
);

test("it is not tried where memory holds no second load", async () => {
  const files = storeOf();
  const model = new Model({ dense: 40, sparse: 30 }, mostZero, 1e9);
  expect(await model.open(files, 2e9 + 2000)).toEqual([
    "sparse: auto, off: 75 % of neurons are zero, but memory is too short to try (--sparse on)",
  ]);
  expect(model.loads).toEqual([false]);
  expect(files.text).toBeUndefined();
  const later = new Model({ dense: 40, sparse: 30 }, mostZero, 1e9);
  await later.open(files, 2e9 + 2001);
  expect(later.loads).toEqual([false, true]);
});

test("fewer tokens are timed on a slow machine", async () => {
  const [fast, slow] = [40, 5000].map((ms) => new Model({ dense: ms, sparse: ms }, [1, 2, 3, 4]));
  await fast!.open(storeOf());
  await slow!.open(storeOf());
  expect([fast!.tokens, slow!.tokens]).toEqual([24 + 4, 5 + 4]);
});

test("where nothing can be stored, it is measured all the same", async () => {
  const files = { ...storeOf(), write: () => Promise.reject(new Error("full")) };
  const model = new Model({ dense: 40, sparse: 30 }, mostZero);
  expect(await model.open(files)).toHaveLength(1);
});
