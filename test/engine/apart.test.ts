// A backend that computes apart from the engine's thread, as a GPU does, and finds the best logits: texts and events are the same as
// with a backend that does neither, and events of a token come while the next batch is computed.

import { expect, test } from "vitest";
import type { Backend, BestLogits } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { selectBest, selectBestOfAll } from "../../src/base/select-best.ts";
import { generate, type RunControl } from "../../src/engine/generator.ts";
import { serveEngine } from "../../src/engine/host.ts";
import type { FromEngine, ToEngine } from "../../src/engine/protocol.ts";
import { createSampler, resolveSampling } from "../../src/engine/sampler.ts";
import type { StatePlaces } from "../../src/engine/saved/state-places.ts";
import type { Batch } from "../../src/graph/batch.ts";
import type { GenerateOptions, TokenEvent } from "../../src/index.ts";
import { Random } from "../support/random.ts";
import { tinyEngine, tinyPrompt } from "../support/tiny-engine.ts";

const yieldThread = () => new Promise<void>((resolve) => setImmediate(resolve));
const vocab = 48;

/** The reference, as if a device computed it. */
class Apart extends ReferenceBackend {
  readonly computesApart = true;
  readonly mostBest = 16;
  readonly log: string[] = [];
  readonly readsAdjusted: boolean;
  /** Outputs of which all logits were read, and only the best, and the best with those of adjusted tokens. */
  readonly reads = { whole: 0, best: 0, adjusted: 0 };
  #adjusted: Batch["adjusted"] = [];

  constructor(readsAdjusted = false) {
    super();
    this.readsAdjusted = readsAdjusted;
    const compute = super.run.bind(this);
    const run: Backend["run"] = async (batch, options) => {
      this.log.push("batch");
      this.#adjusted = [...batch.adjusted];
      options?.meanwhile?.();
      await yieldThread();
      compute(batch, options);
      this.log.push("computed");
    };
    Object.assign(this, { run }); // it waits, which the reference does not
  }

  override read(...args: Parameters<ReferenceBackend["read"]>): void {
    this.reads.whole++;
    super.read(...args);
  }

  readBest(row: number, { ids, logits, adjusted }: BestLogits): boolean {
    this.reads.best++;
    const all = new Float32Array(vocab);
    super.read("logits", row, all);
    const list = this.#adjusted[row];
    const others = Int32Array.from(all.keys()).filter((id) => !list?.has(id));
    ids.fill(-1);
    selectBest(all, others, others.length, ids.length, ids);
    for (let i = 0; i < ids.length; i++) logits[i] = all[ids[i]!] ?? Number.NaN;
    if (!adjusted) return true;
    this.reads.adjusted++;
    adjusted.ids.set(list!.ids);
    adjusted.count = list!.count;
    for (let i = 0; i < list!.count; i++) adjusted.logits[i] = all[list!.ids[i]!]!;
    return true;
  }
}

const settings: Readonly<Record<string, GenerateOptions>> = {
  greedy: { temperature: 0 },
  sampled: { temperature: 0.9, seed: 3, topK: 12, topP: 0.9, minP: 0.02 },
  "more than the backend finds": { temperature: 0.9, seed: 3, topK: 20 },
  "without top-k": { temperature: 0.9, seed: 4, topK: 0, topP: 0.8 },
  penalties: { temperature: 0, repeatPenalty: 1.8 },
  bias: { temperature: 0, logitBias: { 7: 1.5 } },
  "penalties, drawn": { temperature: 0.9, seed: 5, topK: 12, repeatPenalty: 1.3, repeatLastN: 9 },
  "penalties of all that was written": { temperature: 0, repeatPenalty: 1.2, repeatLastN: -1 },
  "penalties and drafts": { temperature: 0, presencePenalty: -2, speculate: true },
  dry: { temperature: 0.9, seed: 8, topK: 12, dryMultiplier: 2, dryAllowedLength: 1 },
  "dry and drafts": { temperature: 0, dryMultiplier: 2, dryAllowedLength: 2, speculate: true },
  "log-probabilities": { temperature: 0.8, seed: 6, logprobs: 2 },
  "a stop string": { temperature: 0.9, seed: 3, stop: ["b"] },
  "no token at all": { maxTokens: 0 },
};

const asked = (backend: ReferenceBackend) =>
  tinyEngine({ backend, parallel: 16, cacheTokens: 4096 });

async function texts(backend: ReferenceBackend) {
  const engine = await asked(backend);
  const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
  const work = Object.values(settings).map(async (options, i) => {
    const events: TokenEvent[] = [];
    const request = { tokens: tinyPrompt(i + 1, 40), options: { maxTokens: 20, ...options } };
    const result = await generate(engine, request, control, (event) => events.push(event));
    return { ...result, events };
  });
  const results = await Promise.all(work);
  engine.dispose();
  return results;
}

test.each([false, true])(
  "texts and events do not depend on where batches are computed, nor on how many logits are read; adjusted ones beside: %s",
  async (readsAdjusted) => {
    const apart = new Apart(readsAdjusted);
    const [results, expected] = [await texts(apart), await texts(new ReferenceBackend())];
    for (const [i, name] of Object.keys(settings).entries()) {
      expect(results[i]!.tokenIds, name).toEqual(expected[i]!.tokenIds);
      expect(results[i]!.text, name).toBe(expected[i]!.text);
      expect(results[i]!.stopReason, name).toBe(expected[i]!.stopReason);
      expect(results[i]!.events, name).toEqual(expected[i]!.events);
    }
    expect(results[0]!.tokenIds).toHaveLength(20);
    // The first token of each as well. Without adjusted ones: greedy and sampled.
    expect(apart.reads.best - apart.reads.adjusted).toBe(2 * 20);
    if (readsAdjusted) expect(apart.reads.adjusted).toBeGreaterThanOrEqual(5 * 20);
    else expect(apart.reads.adjusted).toBe(0);
    expect(apart.reads.whole).toBeGreaterThan(19);
  },
);

test("all logits are read where a mask forbids tokens, and not before", async () => {
  const run = async (backend: ReferenceBackend, options: GenerateOptions) => {
    const engine = await asked(backend);
    const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
    const request = { tokens: tinyPrompt(1, 8), options: { temperature: 0, ...options } };
    const { text } = await generate(engine, request, control, () => {});
    engine.dispose();
    return text;
  };
  const plain = await run(new ReferenceBackend(), { maxTokens: 12 });
  const letter = plain[5]!;
  const found = plain.indexOf(letter) + 1; // tokens up to the trigger
  const masks: [GenerateOptions, free: number, forced: number][] = [
    [{ regex: "[a-e]{4}", grammarTriggers: [{ text: letter, after: true }] }, found, 4],
    [{ regex: "[a-e]{4}" }, 0, 4],
    [{ maxTokens: 9, reasoningBudget: { tokens: 5, end: "xy", isOpen: true } }, 7, 2],
  ];
  for (const [options, free, forced] of masks) {
    const apart = new Apart();
    const text = await run(apart, options);
    expect(text).toBe(await run(new ReferenceBackend(), options));
    expect(text.slice(0, Math.min(free, 5))).toBe(plain.slice(0, Math.min(free, 5)));
    expect(apart.reads, JSON.stringify(options)).toEqual({
      best: free,
      whole: forced,
      adjusted: 0,
    });
  }
});

test("the next batch begins before the events of its tokens are sent", async () => {
  const backend = new Apart();
  const engine = await asked(backend);
  const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
  const run = (seed: number) => {
    const request = { tokens: tinyPrompt(seed, 8), options: { temperature: 0, maxTokens: 3 } };
    return generate(engine, request, control, () => backend.log.push("token"));
  };
  await Promise.all([run(1), run(2)]);
  engine.dispose();
  const [prompt, step] = [
    ["batch", "computed"],
    ["batch", "token", "token", "computed"],
  ];
  expect(backend.log).toEqual([...prompt, ...step, ...step, "token", "token"]);
});

test.each([
  ["waits for nothing between two batches of a prompt", () => new Apart(), 0],
  ["lets messages in between them where this thread computes", () => new ReferenceBackend(), 3],
] as const)("a generation %s", async (_, backend, expected) => {
  const engine = await asked(backend());
  let turns = 0;
  const counting = () => {
    turns++;
    return yieldThread();
  };
  const control: RunControl = { aborted: false, yieldThread: counting, now: () => 0 };
  // Three batches of 32 tokens.
  const options = { temperature: 0, maxTokens: 0, speculate: false };
  await generate(engine, { tokens: tinyPrompt(1, 90), options }, control, () => {});
  engine.dispose();
  expect(turns).toBe(expected);
});

test("a batch that was computed is seen between requests that come together", async () => {
  const backend = new Apart();
  const engine = await asked(backend);
  const { log } = backend;
  let receive: (message: ToEngine) => void = () => {};
  const results = new Map<number, PromiseWithResolvers<void>>();
  const post = (message: FromEngine) => {
    if (message.kind === "result") results.get(message.id)!.resolve();
    if (message.kind === "error") results.get(message.id)!.reject(message.error);
    if (message.kind !== "events") return;
    // The first event of each says that it has arrived, the last that its prompt is computed.
    for (const { id, event } of message.events) {
      if ((event as TokenEvent).progress) log.push(`request ${id}`);
    }
  };
  const port = {
    post: (message: unknown) => post(message as FromEngine),
    onMessage: (listener: (message: unknown) => void) => {
      receive = listener;
    },
    close: () => {},
  };
  const states = {} as StatePlaces;
  serveEngine(port, { load: async () => engine, yieldThread, now: () => 0, states });
  const send = (id: number, message: Pick<ToEngine, "method"> & { params: unknown }) => {
    const ended = Promise.withResolvers<void>();
    results.set(id, ended);
    receive({ id, aborted: false, ...message } as ToEngine);
    return ended.promise;
  };
  await send(1, { method: "open", params: {} });
  const requests = Array.from({ length: 6 }, (_, i) => {
    const prompt = { kind: "tokens", tokens: tinyPrompt(i + 1, 40) };
    const options = { temperature: 0, maxTokens: 2, progress: true };
    return send(i + 2, { method: "generate", params: { prompt, options } });
  });
  await Promise.all(requests);
  await send(8, { method: "dispose", params: {} });
  const arrivals = [2, 3, 4, 5, 6, 7].map((id) => log.indexOf(`request ${id}`));
  expect(arrivals).toEqual(arrivals.toSorted((a, b) => a - b));
  expect(arrivals[0]).toBeGreaterThanOrEqual(0);
  expect(log.indexOf("computed")).toBeLessThan(arrivals.at(-1)!);
});

test("work that nobody asked for begins when the caller's thread has asked for it, and is answered at its end", async () => {
  const engine = await asked(new Apart());
  let receive: (message: unknown) => void = () => {};
  const posted: FromEngine[] = [];
  const port = {
    post: (message: unknown) => void posted.push(message as FromEngine),
    onMessage: (listener: (message: unknown) => void) => {
      receive = listener;
    },
    close: () => {},
  };
  const states = {} as StatePlaces;
  serveEngine(port, { load: async () => engine, yieldThread, now: () => 0, states });
  receive({ id: 1, aborted: false, method: "open", params: {} });
  await yieldThread();
  const log: string[] = [];
  const { promise, reject } = Promise.withResolvers<void>();
  const done = engine.asAsked(() => {
    log.push("began");
    return promise;
  });
  const failing = expect(done).rejects.toThrow("no memory");
  await yieldThread();
  expect(posted.at(-1)).toEqual({ id: 0, kind: "hasWork" });
  expect(log).toEqual([]);
  receive({ id: 2, aborted: false, method: "ownWork", params: {} });
  await yieldThread();
  expect(log).toEqual(["began"]);
  expect(posted.some(({ id }) => id === 2)).toBe(false);
  reject(new Error("no memory"));
  await failing;
  await yieldThread();
  expect(posted.at(-1)).toEqual({ id: 2, kind: "result", result: undefined });
  engine.dispose();
});

test("an event that cannot be sent ends its own generation, not the others", async () => {
  const engine = await asked(new Apart());
  const control: RunControl = { aborted: false, yieldThread, now: () => 0 };
  const run = (seed: number, emit: () => void) => {
    const request = { tokens: tinyPrompt(seed, 8), options: { temperature: 0, maxTokens: 4 } };
    return generate(engine, request, control, emit);
  };
  let count = 0;
  const [failed, other] = await Promise.allSettled([
    run(1, () => {
      if (++count === 2) throw new Error("nobody listens");
    }),
    run(2, () => {}),
  ]);
  engine.dispose();
  expect(failed).toMatchObject({ reason: { message: "nobody listens" } });
  expect(other).toMatchObject({ value: { stopReason: "length" } });
});

test("a sampler that says how many logits it needs chooses the same from those alone", () => {
  const random = new Random(11);
  const chains: GenerateOptions[] = [
    { temperature: 0 },
    { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05 },
    { temperature: 1.3, topK: 7, typicalP: 0.7, topP: 1, minP: 0 },
    { temperature: 1, topK: 30, xtcProbability: 0.6, xtcThreshold: 0.05 },
    { temperature: 0.7, topK: 25, dynatempRange: 0.5 },
    { temperature: 1, topK: 1 },
    { topK: 16, samplers: ["top_k", "temperature", "min_p"], temperature: 2, minP: 0.1 },
  ];
  const size = 700;
  for (const options of chains) {
    const [all, few] = [0, 1].map(() =>
      createSampler(resolveSampling({ ...options, seed: 9 }), size),
    );
    const count = few!.best;
    expect(count, JSON.stringify(options)).toBe(options.temperature === 0 ? 1 : options.topK);
    for (let turn = 0; turn < 60; turn++) {
      // Many equal ones, so that their order matters.
      const logits = Float32Array.from({ length: size }, () => Math.round(random.normal() * 6) / 2);
      const best = { ids: new Int32Array(count), logits: new Float32Array(count) };
      selectBestOfAll(logits, count, best.ids);
      for (let i = 0; i < count; i++) best.logits[i] = logits[best.ids[i]!]!;
      const garbage = new Float32Array(size).fill(1e9); // nothing else of it is read
      expect(few!.sampleBest(best, garbage).id).toBe(all!.sample(logits).id);
    }
  }
});

test("all logits are needed where a step before top-k looks at them", () => {
  const needs = (options: GenerateOptions, logprobs?: number) =>
    createSampler(resolveSampling(options), 700, { logprobs }).best;
  // These need the logits of some tokens beside: adjusted.test.ts.
  expect(needs({ temperature: 0, repeatPenalty: 1.1 })).toBe(1);
  expect(needs({ temperature: 0, logitBias: { 3: 1 } })).toBe(1);
  expect(needs({ temperature: 1, topK: 0, topP: 0.9, repeatPenalty: 1.1 })).toBe(0);
  expect(needs({ temperature: 1, topK: 40, topNSigma: 1, logitBias: { 3: 1 } })).toBe(0);
  expect(needs({ temperature: 0 }, 0)).toBe(0);
  expect(needs({ temperature: 1, topK: 0, topP: 0.9 })).toBe(0);
  expect(needs({ temperature: 1, topK: 700 })).toBe(0);
  expect(needs({ temperature: 1, topK: 40, topNSigma: 1 })).toBe(0);
  expect(needs({ temperature: 1, topK: 40, mirostat: 2 })).toBe(0);
  expect(
    needs({ temperature: 1, topK: 40, samplers: ["min_p", "top_k", "temperature"], minP: 0.1 }),
  ).toBe(0);
});
