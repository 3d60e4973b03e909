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
const other = g.activate(x, "relu", "other"); // [tokens, 4]
const down = { name: "down", shape: [8, 4], dtype: f32 };
const plan = makePlan(g.finish({ logits: g.matmul(g.add(inner, other, "both"), down, "logits") }), {
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

type Ms = Partial<Record<"dense" | "rows" | "sparse", number>> & { dense: number; sparse: number };

/** A model whose tokens take so long, by a clock that only its tokens move. */
class Model {
  readonly ms: Ms;
  readonly activations: readonly number[];
  readonly bytes: number;
  /** How much longer each token takes, in turn. */
  readonly noise: readonly number[];
  loads: string[] = [];
  tokens = 0;
  #clock = 0;

  constructor(ms: Ms, activations: readonly number[], bytes = 1e9, noise = [0]) {
    this.ms = ms;
    this.activations = activations;
    this.bytes = bytes;
    this.noise = noise;
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
      const { wanted } = choice;
      const kind = !wanted ? "dense" : wanted.columns ? "sparse" : "rows";
      this.loads.push(wanted && wanted.dense.length > 0 ? `${kind} but ${wanted.dense}` : kind);
      const backend = this.#backend(this.ms[kind] ?? this.ms.dense);
      await choice.measure(
        backend,
        plan,
        (text) => [...text].map(() => 1),
        () => {},
      );
    } while (choice.mustReload);
    return notes;
  }

  #backend(ms: number): Backend {
    const backend: Pick<Backend, "neurons" | "run" | "memory"> = {
      memory: () => ({ weightBytes: 2 * this.bytes, kvBytes: 1000, workBytes: 1000 }),
      neurons: () => {
        const hasBoth = this.ms.rows !== undefined;
        return this.bytes > 0 ? { bytes: this.bytes, values: [inner, other], hasBoth } : undefined;
      },
      run: async (_: Batch, options?: RunOptions) => {
        this.#clock += ms * (1 + this.noise[this.tokens++ % this.noise.length]!);
        options?.tap?.(x, new Float32Array(4));
        options?.tap?.(inner, Float32Array.from(this.activations.slice(0, 4)));
        options?.tap?.(other, Float32Array.from(this.activations.slice(-4)));
      },
    };
    return backend as Backend;
  }
}

const mostZero = [0, 0, 0, 1];
/** Disturbs all tokens, so that no two trials agree. */
const disturbed = [0.9, 0.3, 0.8, 0.1, 0.7, 0, 0.6, 0.4, 0.5, 0.2, 1];

test("where it is faster it stays, and is remembered", async () => {
  const files = storeOf();
  const model = new Model({ dense: 40, sparse: 30 }, mostZero);
  const times = "75 % of neurons are zero, 30.0 ms a token without them, 40.0 ms with all";
  expect(await model.open(files)).toEqual([`sparse: auto, on (measured): ${times}`]);
  expect(model.loads).toEqual(["dense", "sparse"]);
  const again = new Model({ dense: 40, sparse: 30 }, mostZero);
  expect(await again.open(files)).toEqual([`sparse: auto, on (remembered): ${times}`]);
  expect(again.loads).toEqual(["sparse"]);
  expect(again.tokens).toBe(0);
});

test("where it is not faster, all neurons are loaded again", async () => {
  const files = storeOf();
  const model = new Model({ dense: 40, sparse: 39.5 }, mostZero);
  const times = "75 % of neurons are zero, 39.5 ms a token without them, 40.0 ms with all";
  expect(await model.open(files)).toEqual([`sparse: auto, off (measured): ${times}`]);
  expect(model.loads).toEqual(["dense", "sparse", "dense"]);
  const again = new Model({ dense: 40, sparse: 39.5 }, mostZero);
  expect(await again.open(files)).toEqual([`sparse: auto, off (remembered): ${times}`]);
  expect(again.loads).toEqual(["dense"]);
});

test("rows alone are tried where columns do not pay, or may not", async () => {
  const rows = new Model({ dense: 40, sparse: 42, rows: 36 }, mostZero);
  expect(await rows.open(storeOf())).toEqual([
    "sparse: auto, on, rows only (measured): 75 % of neurons are zero, 42.0 ms a token without them, 36.0 ms without their rows only, 40.0 ms with all",
  ]);
  expect(rows.loads).toEqual(["dense", "sparse", "rows"]);
  const both = new Model({ dense: 40, sparse: 30, rows: 36 }, mostZero);
  await both.open(storeOf());
  expect(both.loads).toEqual(["dense", "sparse", "rows", "sparse"]);
  const clear = new Model({ dense: 40, sparse: 30, rows: 36 }, [0, 0, 0, 0]);
  await clear.open(storeOf());
  expect(clear.loads).toEqual(["dense", "sparse"]);
});

test("a network of which few neurons are zero is computed as a whole", async () => {
  const model = new Model({ dense: 40, sparse: 30 }, [0, 0, 0, 1, 0, 1, 2, 3]);
  expect(await model.open(storeOf())).toEqual([
    "sparse: auto, on (measured): 50 % of neurons are zero, 30.0 ms a token without them, 40.0 ms with all, all in 1 of 2 networks",
  ]);
  expect(model.loads).toEqual(["dense", "sparse but other"]);
});

test("few zeros are not tried", async () => {
  const model = new Model({ dense: 40, sparse: 10 }, [0, 1, 2, 3]);
  const note = "sparse: auto, off (measured): 25 % of neurons are zero, too few to leave them out";
  expect(await model.open(storeOf())).toEqual([note]);
  expect(model.loads).toEqual(["dense"]);
});

test("times that were disturbed are measured again, now and at the next loads, and then believed", async () => {
  const files = storeOf();
  const loads: string[][] = [];
  const notes: string[] = [];
  for (let i = 0; i < 4; i++) {
    const model = new Model({ dense: 40, sparse: 36 }, mostZero, 1e9, disturbed);
    const [note] = await model.open(files);
    notes.push(note!);
    loads.push(model.loads);
  }
  expect(loads[0]!.slice(0, 4)).toEqual(["dense", "sparse", "dense", "sparse"]);
  // In the end all have seen a token that nothing disturbed.
  expect(notes.at(-1)).toBe(
    "sparse: auto, on (remembered): 75 % of neurons are zero, 36.0 ms a token without them, 40.0 ms with all",
  );
  expect(loads.at(-1)).toEqual(["sparse"]);
});

test("what stays unsure is said, and measured no more than three times", async () => {
  const files = storeOf();
  /** Of the tokens of a trial, each fourth alike, and of 4 whose zeros are counted; each trial is slower than the last. */
  const runs = 24 + 4;
  const noiseOf = (open: number) =>
    Array.from({ length: 8 * runs }, (_, i) => {
      const run = i % runs;
      const token = run < 9 ? Math.ceil(run / 2) : run - 4;
      return (token % 4) / 5 + Math.floor(i / runs) / 20 + open / 2;
    });
  const opened: Model[] = [];
  const notes: string[] = [];
  for (let i = 0; i < 4; i++) {
    opened.push(new Model({ dense: 40, sparse: 40 }, mostZero, 1e9, noiseOf(i)));
    notes.push((await opened[i]!.open(files))[0]!);
  }
  expect(notes[0]).toMatch(/unsure: times vary by \d+ %, measured again at the next load$/);
  expect(notes[2]).toMatch(/unsure: times vary by \d+ %$/);
  expect(notes[3]).toBe(notes[2]!.replace("measured", "remembered"));
  expect(opened.map(({ tokens }) => tokens > 0)).toEqual([true, true, true, false]);
});

test.each([
  { about: "nothing can be left out", bytes: 0 },
  { about: "what can be left out is small", bytes: 1e6 },
])("$about: nothing is computed or stored", async ({ bytes }) => {
  const files = storeOf();
  const model = new Model({ dense: 40, sparse: 30 }, mostZero, bytes);
  expect(await model.open(files)).toEqual([]);
  expect(model.loads).toEqual(["dense"]);
  expect(model.tokens).toBe(0);
  expect(files.text).toBeUndefined();
});

test.each(["", "[", "null", '{"test, 2 threads, weights":{"mode":"yes"}}'])(
  "a store that says nothing usable is replaced: %s",
  async (text) => {
    const files = storeOf(text);
    const model = new Model({ dense: 40, sparse: 30 }, mostZero);
    expect(await model.open(files)).toHaveLength(1);
    expect(model.loads).toEqual(["dense", "sparse"]);
    expect(JSON.parse(files.text!)).toEqual({
      "test, 2 threads, weights": {
        mode: "on",
        zeros: 0.75,
        dense: [],
        networks: 2,
        times: { off: [40, 40, 40], on: [30, 30, 30] },
        tries: 1,
      },
    });
  },
);

test("it is not tried where memory holds no second load", async () => {
  const files = storeOf();
  const model = new Model({ dense: 40, sparse: 30 }, mostZero, 1e9);
  expect(await model.open(files, 2e9 + 2000)).toEqual([
    "sparse: auto, off: 75 % of neurons are zero, but memory is too short to try (--sparse on)",
  ]);
  expect(model.loads).toEqual(["dense"]);
  expect(files.text).toBeUndefined();
  const later = new Model({ dense: 40, sparse: 30 }, mostZero, 1e9);
  await later.open(files, 2e9 + 2001);
  expect(later.loads).toEqual(["dense", "sparse"]);
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
