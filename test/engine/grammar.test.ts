// Grammars in the engine: what a mask forbids never comes out, whatever the sampler does; forced tokens change nothing but the
// number of batches; grammars of several generations share batches.

import { describe, expect, test } from "vitest";
import type { GenerateOptions } from "../../src/api/api.ts";
import type { Backend } from "../../src/backends/backend.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import { backendByName } from "../../src/backends/table.ts";
import { Constraint } from "../../src/engine/constraint.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { type Generated, generate, type RunControl } from "../../src/engine/generator.ts";
import { GrammarTurns } from "../../src/engine/grammar-turns.ts";
import { Grammars } from "../../src/engine/grammars.ts";
import { createSampler, resolveSampling } from "../../src/engine/sampler.ts";
import { forbidTokens } from "../../src/engine/sampler-logits.ts";
import { PausedError } from "../../src/grammar/meter.ts";
import { compileProgram } from "../../src/grammar/program.ts";
import { letterTokenizer, tinyEngine, tinyPrompt, tinyShape } from "../support/tiny-engine.ts";

const grammars = new Grammars(letterTokenizer);

function control(aborted = false): RunControl & { aborted: boolean } {
  return {
    aborted,
    yieldThread: () => new Promise((resolve) => setImmediate(resolve)),
    now: () => 0,
  };
}

function run(
  engine: Engine,
  options: GenerateOptions,
  { seed = 1, watch = control(), seen = () => {} } = {},
): Promise<Generated> {
  return generate(engine, { tokens: tinyPrompt(seed, 5), options }, watch, seen);
}

/** The number of tokens in each batch of generated ones. */
function watched(): { backend: Backend; batches: number[] } {
  const backend: Backend = new ReferenceBackend();
  const batches: number[] = [];
  const original = backend.run.bind(backend);
  backend.run = (batch, options) => {
    if (options?.phase === "generation") batches.push(batch.tokenCount);
    return original(batch, options);
  };
  return { backend, batches };
}

const samplings: readonly [string, GenerateOptions][] = [
  ["greedy", { temperature: 0 }],
  ["temperature", { temperature: 1.5, topK: 0, topP: 1, minP: 0 }],
  ["the default chain", {}],
  ["top-k 1", { topK: 1 }],
  ["typical", { typicalP: 0.5 }],
  ["top-n-sigma", { topNSigma: 1 }],
  ["XTC", { xtcProbability: 1, xtcThreshold: 0.01, minP: 0 }],
  ["dynamic temperature", { temperature: 1, dynatempRange: 0.9, topK: 0, topP: 1, minP: 0 }],
  ["mirostat 1", { mirostat: 1 }],
  ["mirostat 2", { mirostat: 2 }],
  ["penalties", { repeatPenalty: 5, frequencyPenalty: 2, presencePenalty: 2, temperature: 0 }],
  ["DRY", { dryMultiplier: 5, dryAllowedLength: 1, drySequenceBreakers: [] }],
  ["a bias for forbidden tokens", { logitBias: { 25: 1e30, 24: 100 }, temperature: 0 }],
];

describe("what the grammar forbids never comes out", () => {
  test.each(samplings)("%s", async (_, sampling) => {
    const engine = await tinyEngine();
    const options = { ...sampling, seed: 3, regex: "[a-e]{6}(xyz[f-h]|[k-m]yy[i-j])[n-p]{3}" };
    const forced = await run(engine, options);
    expect(forced.text).toMatch(/^[a-e]{6}(xyz[f-h]|[k-m]yy[i-j])[n-p]{3}$/);
    expect(forced.stopReason).toBe("end");
    // The same text, seed by seed, where tokens without an alternative are sampled as all others are.
    expect((await run(engine, { ...options, forceTokens: false })).text).toBe(forced.text);
    expect((await run(engine, options)).text).toBe(forced.text);
    engine.dispose();
  });

  test("NaN and infinite logits of forbidden tokens", () => {
    const settings = resolveSampling({ temperature: 0, logitBias: { 7: 1e38 } });
    const sampler = createSampler(settings, 70);
    const logits = new Float32Array(70).fill(1);
    logits.fill(Number.NaN, 0, 30);
    logits[60] = Number.POSITIVE_INFINITY;
    const mask = new Uint32Array(2); // of 64 tokens: the last 6 are padding
    mask[1] = 1 << 9;
    const forbid = (all: Float32Array) => forbidTokens(all, mask);
    expect(sampler.sample(logits, { forbid, isIdle: false }).id).toBe(41);
    expect(logits.filter((logit) => logit !== Number.NEGATIVE_INFINITY)).toHaveLength(1);
  });

  test("a bias that forbids all that the grammar allows is an error", async () => {
    const engine = await tinyEngine();
    const logitBias = { 0: Number.NEGATIVE_INFINITY };
    await expect(run(engine, { regex: "a", logitBias })).rejects.toThrow(/a grammar allows/);
    engine.dispose();
  });

  test("a text that no token can continue is an error", async () => {
    const engine = await tinyEngine();
    await expect(run(engine, { regex: "ab7[0-9]" })).rejects.toThrow(
      /after 2 tokens no token of the 48 in the vocabulary can continue/,
    );
    engine.dispose();
  });

  test("log-probabilities are the model's own, of every token", async () => {
    const engine = await tinyEngine();
    const tokens = tinyPrompt(1, 5);
    const seen: number[] = [];
    const options = { temperature: 0, regex: "abc[a-z]", logprobs: 48 };
    const { tokenIds } = await generate(engine, { tokens, options }, control(), (event) => {
      if (event.logprob !== undefined) seen.push(event.logprob);
      expect(event.top).toHaveLength(48); // forbidden ones too
    });
    const free: number[] = [];
    const bias = tokenIds.map((id) => ({
      ...greedy,
      maxTokens: 1,
      logprobs: 0,
      logitBias: { [id]: 1e9 },
    }));
    for (const [at, one] of bias.entries()) {
      const all = [...tokens, ...tokenIds.slice(0, at)];
      await generate(engine, { tokens: all, options: one }, control(), ({ logprob }) => {
        if (logprob !== undefined) free.push(logprob);
      });
    }
    expect(seen).toHaveLength(4);
    for (const [at, logprob] of seen.entries()) expect(logprob).toBeCloseTo(free[at]!, 4);
    engine.dispose();
  });
});

const greedy = { temperature: 0 };

describe("forced tokens", () => {
  test("share a batch, and are not computed where nothing follows them", async () => {
    const text = /^[a-c]defghij[k-m]no$/;
    const grammar = { regex: "[a-c]defghij[k-m]no" };
    const one = watched();
    const engine = await tinyEngine({ backend: one.backend });
    expect((await run(engine, { ...greedy, ...grammar })).text).toMatch(text);
    // The first token, then those behind it together, then the one before the end.
    expect(one.batches).toEqual([1, 7, 1]);
    one.batches.length = 0;
    expect((await run(engine, { ...greedy, ...grammar, forceTokens: false })).text).toMatch(text);
    expect(one.batches).toEqual(new Array(10).fill(1));
    engine.dispose();
  });

  test("stop at maxTokens, at a stop string, at the end of the context and at an abort", async () => {
    const engine = await tinyEngine({ contextSize: 32 });
    const grammar = { ...greedy, regex: "[a-c]defghijklmnopqrstuvwxyz{20}" };
    for (const more of [{ maxTokens: 5 }, { stop: ["hij"] }, {}]) {
      const forced = await run(engine, { ...grammar, ...more });
      const sampled = await run(engine, { ...grammar, ...more, forceTokens: false });
      expect(forced.text).toBe(sampled.text);
      expect(forced.stopReason).toBe(sampled.stopReason);
      expect(forced.tokenIds).toEqual(sampled.tokenIds);
    }
    expect((await run(engine, grammar)).stopReason).toBe("context");
    const watch = control();
    let tokens = 0;
    const seen = (): void => {
      if (++tokens === 4) watch.aborted = true;
    };
    const aborted = await run(engine, grammar, { watch, seen });
    expect(aborted.stopReason).toBe("aborted");
    expect(aborted.text).toHaveLength(4);
    // What was computed is right for others.
    const again = await run(engine, { ...grammar, maxTokens: 9 });
    expect(again.text).toMatch(/^[a-c]defghijk$/);
    engine.dispose();
  });

  test("a text that is whole ends, also at maxTokens", async () => {
    const engine = await tinyEngine();
    const result = await run(engine, { ...greedy, choices: ["abc"], maxTokens: 3 });
    expect(result).toMatchObject({ text: "abc", stopReason: "end" });
    expect(await run(engine, { ...greedy, regex: "" })).toMatchObject({
      text: "",
      stopReason: "end",
    });
    engine.dispose();
  });
});

test("generations with different grammars, and with none, share batches and get what they get alone", async () => {
  const cases: GenerateOptions[] = [
    { seed: 1, regex: "[a-f]{3}ghijk[l-z]{8}" },
    { seed: 2, choices: ["abcdefgh", "abcxyzuv", "klmnopqr"] },
    { seed: 3, maxTokens: 12 },
    { seed: 4, grammar: 'root ::= ("ab" | "cd" root "e"){1,9}', maxTokens: 20 },
    { temperature: 0, grammar: { regex: "[A-V]{15}" } },
  ];
  const engine = await tinyEngine({ cacheTokens: 2048 });
  const alone: string[] = [];
  for (const options of cases) alone.push((await run(engine, options)).text);
  const { batches } = engine.status();
  const together = await Promise.all(cases.map((options) => run(engine, options)));
  expect(together.map(({ text }) => text)).toEqual(alone);
  expect(engine.status().batches - batches).toBeLessThan(batches / 2);
  engine.dispose();
});

test("a full context shifts under a grammar as without", async () => {
  const engine = await tinyEngine({ contextSize: 32 });
  const options = { ...greedy, regex: "([a-c]def){40}", contextShift: true, maxTokens: 80 };
  const result = await run(engine, options);
  expect(result.text).toMatch(/^([a-c]def){20}$/);
  expect(result.timings.contextShifts!.length).toBeGreaterThan(0);
  engine.dispose();
});

describe("triggers", () => {
  /** What a constraint allows after each token: all, or the letters. */
  function walk(constraint: Constraint, text: string): string[] {
    return [...text, ""].map((letter) => {
      const logits = new Float32Array(tinyShape.vocab);
      constraint.prepare();
      constraint.forbid(logits);
      const ids = [...logits.keys()].filter((id) => logits[id] === 0);
      if (letter !== "") void constraint.accept(letterTokenizer.encode(letter)[0]!);
      return ids.length === tinyShape.vocab ? "*" : letterTokenizer.decode(ids);
    });
  }
  const options = { forces: false, ignoreEos: false };
  const start = async (
    triggers: ConstructorParameters<typeof Constraint>[2]["triggers"],
    regex: string,
  ) => new Constraint(await grammars.compile({ regex }), letterTokenizer, { ...options, triggers });

  test("of a text: the grammar applies from its beginning on", async () => {
    const constraint = await start([{ text: "xyz" }, { text: "yq" }], "xyz[ab]c");
    expect(walk(constraint, "axxyza")).toEqual(["*", "*", "*", "*", "*", "ab", "c"]);
  });

  test("of a text, with after: from its end on", async () => {
    const constraint = await start([{ text: "xyz", after: true }], "[ab]c");
    expect(walk(constraint, "axyzb")).toEqual(["*", "*", "*", "*", "ab", "c"]);
  });

  test("of a token", async () => {
    const constraint = await start([{ token: 3 }], "d[ab]c");
    expect(walk(constraint, "axda")).toEqual(["*", "*", "*", "ab", "c"]);
  });

  test("whose text does not fit the grammar are an error", async () => {
    const constraint = await start([{ text: "xy" }], "[ab]c");
    expect(() => walk(constraint, "axy")).toThrow(/"xy", does not fit the grammar/);
  });

  test("without a grammar, and of a wrong kind, are refused", async () => {
    const engine = await tinyEngine();
    await expect(run(engine, { grammarTriggers: [{ text: "a" }] })).rejects.toThrow(/no grammar/);
    const wrong = [{ words: "a" }] as never;
    await expect(run(engine, { regex: "a", grammarTriggers: wrong })).rejects.toThrow(
      /expected an object with a text, a pattern or a token/,
    );
    engine.dispose();
  });
});

test("a run of tokens without a choice shares one slice of work", async () => {
  const grammar = await grammars.compile({
    regex: `${[..."uvwxyz"].map((letter) => `(?!.*${letter}.*${letter})`).join("")}${"abcdefghijklmnopqrst".repeat(2)}[ab]`,
  });
  const { spent } = grammar.start();
  const slice = 100;
  const taken: number[] = [];
  const turns = new GrammarTurns();
  turns.atOnce = (work) => {
    for (let isPaused = true; isPaused; ) {
      const before = grammar.start().spent;
      try {
        work(slice);
        isPaused = false;
      } catch (error) {
        if (!(error instanceof PausedError)) throw error;
      }
      taken.push(grammar.start().spent - before);
    }
    return true;
  };
  const options = { triggers: [], forces: true, ignoreEos: false, turns };
  const constraint = new Constraint(grammar, letterTokenizer, options);
  constraint.prepare();
  expect(constraint.isNextKnown).toBe(true);
  expect(grammar.start().spent - spent).toBeGreaterThan(4 * slice);
  expect(Math.max(...taken)).toBeLessThan(2 * slice);
});

describe("compiled grammars", () => {
  test("what takes long is left to another thread, and taken over from there", async () => {
    const grammars = new Grammars(letterTokenizer);
    expect(await grammars.compileLittle({ regex: "a+" })).toBeDefined();
    const source = { choices: Array.from({ length: 1500 }, (_, i) => `${i * 7919}`) };
    expect(JSON.stringify(source).length).toBeLessThan(20_000);
    expect(await grammars.compileLittle(source)).toBeUndefined();
    let breaths = 0;
    const program = compileProgram(source, letterTokenizer, {});
    const grammar = await grammars.load(source, program, async () => {
      breaths++;
    });
    expect(breaths).toBeGreaterThan(0);
    expect(await grammars.compile(source)).toBe(grammar);
    expect(await grammars.compileLittle(source)).toBe(grammar);
  });

  test("are kept, the least recently used dropped", async () => {
    const own = new Grammars(letterTokenizer);
    const first = await own.compile({ regex: "a0" });
    for (let i = 1; i < 32; i++) await own.compile({ regex: `a${i}` });
    expect(await own.compile({ regex: "a0" })).toBe(first);
    const second = await own.compile({ regex: "a1" });
    for (let i = 32; i < 62; i++) await own.compile({ regex: `a${i}` });
    expect(own.size).toBe(32);
    expect(await own.compile({ regex: "a1" })).toBe(second);
    for (let i = 100; i < 131; i++) await own.compile({ regex: `a${i}` });
    expect(await own.compile({ regex: "a1" })).toBe(second);
    expect(await own.compile({ regex: "a0" })).not.toBe(first);
  });

  test("take no more memory together than they may", async () => {
    const limit = 1_000_000;
    const own = new Grammars(letterTokenizer, limit);
    const sizes: number[] = [];
    for (let i = 0; i < 40; i++) {
      const grammar = await own.compile({ regex: `[a-c]{${i + 1}}` });
      const state = grammar.start();
      const bits = new Uint32Array(grammar.maskWords);
      const before = grammar.bytes;
      for (let at = 0; at <= i; at++) {
        state.mask(bits);
        state.accept(1 + (at % 3)); // grows: walks are kept
      }
      expect(grammar.bytes).toBeGreaterThan(before);
      sizes.push(own.size);
      await own.compile({ regex: `[a-c]{${i + 1}}` });
      expect(own.size === 1 || own.bytes <= limit).toBe(true);
    }
    expect(Math.max(...sizes)).toBeLessThan(32);
    expect(own.size).toBeGreaterThan(1);
  });

  test("the mask is computed while the backend computes", async () => {
    const order: string[] = [];
    const backend = backendByName("cpu")!.create({ level: 3, threads: 1, startThread: undefined });
    const original = backend.run.bind(backend);
    backend.run = async (batch, options) => {
      order.push("begin");
      await original(batch, options);
      order.push("end");
    };
    const engine = await tinyEngine({ backend });
    const compiled = await engine.grammars.compile({ regex: "[a-c]{4}" });
    const start = compiled.start.bind(compiled);
    compiled.start = () => {
      const state = start();
      const mask = state.mask.bind(state);
      state.mask = (into) => {
        order.push("mask");
        mask(into);
      };
      return state;
    };
    await run(engine, { ...greedy, regex: "[a-c]{4}" });
    expect(order.join(" ")).toBe(new Array(4).fill("begin mask end").join(" "));
    engine.dispose();
  });
});
