// Drafted tokens never change a text: whoever drafts, right or wrong, with every option of a generation, on every kind of state.

import { afterAll, describe, expect, test, vi } from "vitest";
import type { GenerateOptions } from "../../../src/api/api.ts";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import { backendByName } from "../../../src/backends/table.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import type { DrafterKind } from "../../../src/engine/speculate/drafter.ts";
import { NgramKind } from "../../../src/engine/speculate/ngram.ts";
import { convolutionsName, mixedName, windowsName } from "../../support/mixed-arch.ts";
import { tinyEngine, tinyPrompt, tinyShape } from "../../support/tiny-engine.ts";
import { alwaysWrong, anything, control, oracle, run, seen, slow } from "./drafters.ts";

const { vocab } = tinyShape;

/** Everybody who may draft for a text. */
function everybody(text: readonly number[]): DrafterKind[] {
  return [
    oracle(text, vocab),
    oracle(text, vocab, 0.3),
    alwaysWrong(text, vocab),
    anything(vocab),
    new NgramKind(),
    slow(oracle(text, vocab, 0.2)),
  ];
}

async function compare(
  engine: Engine,
  tokens: readonly number[],
  options: GenerateOptions,
): Promise<{ accepted: number; batches: number }> {
  const alone = await run(engine, tokens, options);
  let accepted = 0;
  let batches = 0;
  for (const drafter of everybody(alone.tokenIds)) {
    const drafted = await run(engine, tokens, options, [drafter]);
    expect(seen(drafted), drafter.name).toEqual(seen(alone));
    // Going back never takes a batch of its own.
    const ran = drafted.timings.speculation?.batches ?? 0;
    expect(ran, drafter.name).toBeLessThanOrEqual(alone.tokenIds.length);
    accepted += drafted.timings.speculation?.accepted ?? 0;
    batches += drafted.timings.speculation?.batches ?? 0;
  }
  return { accepted, batches };
}

const options: readonly [string, GenerateOptions][] = [
  ["greedy", { temperature: 0 }],
  ["a seed", { temperature: 1, seed: 11 }],
  ["a hot one", { temperature: 3, topK: 0, topP: 1, minP: 0, seed: 12 }],
  ["penalties", { temperature: 0.7, repeatPenalty: 1.3, frequencyPenalty: 0.4, seed: 3 }],
  ["dry", { temperature: 0, dryMultiplier: 1, dryAllowedLength: 1 }],
  ["mirostat", { mirostat: 2, seed: 5 }],
  ["xtc", { xtcProbability: 0.5, xtcThreshold: 0.05, seed: 9 }],
  ["log-probabilities", { temperature: 0.9, seed: 2, logprobs: 3 }],
  ["of the draw", { temperature: 0.9, seed: 2, logprobs: 3, logprobsOf: "sampler" }],
  ["a stop string", { temperature: 0.9, seed: 4, stop: ["e", "zz"] }],
  ["a grammar", { temperature: 1, seed: 6, regex: "([a-c]{3}defghij[k-m]no)*" }],
  ["a grammar, nothing forced", { seed: 6, regex: "([a-c]{3}defg)*", forceTokens: false }],
  ["choices", { seed: 6, choices: ["abcdefgh", "abdefgh", "zyx"] }],
  ["a bias", { temperature: 0, logitBias: { 3: 4 } }],
  ["maxTokens", { temperature: 0, maxTokens: 7 }],
  ["one token", { temperature: 0, maxTokens: 1 }],
];

const cpu = () => backendByName("cpu")!.create({ level: 3, threads: 1, startThread: undefined });

describe("the text is the same", async () => {
  const engine = await tinyEngine({ backend: cpu() });
  afterAll(() => engine.dispose());

  test.each(options)("%s", async (_, more) => {
    const { accepted, batches } = await compare(engine, tinyPrompt(1, 12), {
      maxTokens: 40,
      ...more,
    });
    if ((more.maxTokens ?? 40) > 7 && !more.stop && !more.choices) {
      expect(accepted).toBeGreaterThan(20);
      expect(batches).toBeGreaterThan(5);
    }
  });

  test("at the end of the context", async () => {
    for (const contextSize of [33, 40]) {
      const engine = await tinyEngine({ contextSize });
      const alone = await run(engine, tinyPrompt(2, 10), { temperature: 0 });
      expect(alone.stopReason).toBe("context");
      await compare(engine, tinyPrompt(2, 10), { temperature: 0 });
      engine.dispose();
    }
  });

  test("a context that shifts is not drafted for", async () => {
    const engine = await tinyEngine({ contextSize: 40 });
    const more = { temperature: 0, contextShift: true, maxTokens: 60 };
    const alone = await run(engine, tinyPrompt(2, 10), more);
    const drafted = await run(engine, tinyPrompt(2, 10), more, [oracle(alone.tokenIds, vocab)]);
    expect(drafted.tokenIds).toEqual(alone.tokenIds);
    expect(drafted.timings.speculation).toBeUndefined();
    engine.dispose();
  });
});

const kinds: readonly (readonly [string, object])[] = [
  ["mamba", {}],
  ["rwkv7", {}],
  ["qwen3next", {}],
  ["lfm2", {}],
  ["deepseek2", {}],
  ["gemma3", {}],
  ["gpt-oss", {}],
  [mixedName, {}],
  [windowsName, {}],
  [convolutionsName, {}],
];

describe.each(kinds)("state that goes back: %s", (architecture) => {
  test("the text is the same", async () => {
    const engine = await tinyEngine({ architecture, contextSize: 256 });
    const { accepted } = await compare(engine, tinyPrompt(3, 30), {
      temperature: 0,
      maxTokens: 50,
    });
    expect(accepted).toBeGreaterThan(30);
    engine.dispose();
  });

  test("what is kept is what was computed: another turn continues it", async () => {
    const prompt = tinyPrompt(4, 40);
    const engine = await tinyEngine({ architecture, contextSize: 256 });
    const plain = await tinyEngine({ architecture, contextSize: 256 });
    const first = await run(plain, prompt, { temperature: 0, maxTokens: 41 });
    for (const maxTokens of [17, 30, 41]) {
      await run(engine, prompt, { temperature: 0, maxTokens }, [
        oracle(first.tokenIds, vocab, 0.4),
      ]);
    }
    const turn = [...prompt, ...first.tokenIds, ...tinyPrompt(5, 9)];
    const next = { temperature: 0, maxTokens: 20 };
    const again = await run(engine, turn, next);
    expect(again.tokenIds).toEqual(
      (await run(plain, turn, { ...next, cachePrompt: false })).tokenIds,
    );
    expect(again.timings.cachedTokens).toBeGreaterThan(0);
    engine.dispose();
    plain.dispose();
  });
});

describe.each([
  ["reference", () => new ReferenceBackend()],
  ["cpu", cpu],
])("many at once, %s", (_, backend) => {
  test.each(["llama", mixedName])("%s: each gets what it gets alone", async (architecture) => {
    const engine = await tinyEngine({
      architecture,
      backend: backend(),
      cacheTokens: 4096,
      parallel: 12,
    });
    const prompts = Array.from({ length: 10 }, (_, i) => tinyPrompt(i + 1, 4 + 3 * i));
    const each = (i: number) => ({ temperature: i % 2, seed: i, maxTokens: 30 });
    const alone: number[][] = [];
    for (const [i, prompt] of prompts.entries())
      alone.push((await run(engine, prompt, each(i))).tokenIds);
    const together = await Promise.all(
      prompts.map((prompt, i) => {
        const drafter = i % 3 === 0 ? [] : [oracle(alone[i]!, vocab, 0.2, i)];
        return run(engine, prompt, each(i), drafter);
      }),
    );
    expect(together.map(({ tokenIds }) => tokenIds)).toEqual(alone);
    const accepted = together.map(({ timings }) => timings.speculation?.accepted ?? 0);
    expect(accepted.filter((count) => count > 3).length).toBeGreaterThan(5);
    expect(accepted[0]).toBe(0);
    engine.dispose();
  });
});

describe("drafts that cannot become part of the text are not computed", () => {
  const free = { temperature: 1, seed: 6, maxTokens: 40, forceTokens: false };

  test.each([
    ["abc", { ...free, regex: "([a-c]{3}defg)*" }],
    ["after a trigger", { ...free, regex: "[a-m]*", grammarTriggers: [{ text: "c" }] }],
  ])("a grammar: %s", async (_, options) => {
    const engine = await tinyEngine();
    const prompt = tinyPrompt(1, 12);
    const alone = await run(engine, prompt, options);
    // Of the alphabet's end, which the grammar never allows.
    const refused = alone.tokenIds.map(() => vocab - 1);
    const started = alone.text.indexOf("c") + 1;
    const never = await run(engine, prompt, options, [oracle(refused, vocab)]);
    expect(never.tokenIds).toEqual(alone.tokenIds);
    if (!("grammarTriggers" in options)) expect(never.timings.speculation).toBeUndefined();
    else expect(never.timings.speculation?.draftedBatches ?? 0).toBeLessThanOrEqual(started);
    // Right, then refused: each draft ends before that.
    const partly = alone.tokenIds.map((token, i) => (i % 5 === 4 ? vocab - 1 : token));
    const some = await run(engine, prompt, options, [oracle(partly, vocab)]);
    expect(some.tokenIds).toEqual(alone.tokenIds);
    if (!("grammarTriggers" in options)) {
      const { drafted, accepted } = some.timings.speculation!;
      expect({ drafted }).toEqual({ drafted: accepted });
      expect(accepted).toBeGreaterThan(10);
    }
    engine.dispose();
  });

  test("tokens that end the text, and those behind them", async () => {
    const engine = await tinyEngine();
    const prompt = tinyPrompt(1, 12);
    const greedy = { temperature: 0, maxTokens: 12 };
    const alone = await run(engine, prompt, greedy);
    const end = Array.from({ length: vocab }, (_, id) => id).find(
      (id) => !alone.tokenIds.includes(id),
    )!;
    using _ = vi.spyOn(engine.tokenizer, "endTokens", "get").mockReturnValue(new Set([end]));
    const ended = [...alone.tokenIds.slice(0, 4), end, ...alone.tokenIds.slice(5)];
    const drafted = await run(engine, prompt, greedy, [oracle(ended, vocab)]);
    expect(drafted.tokenIds).toEqual(alone.tokenIds);
    const { speculation } = drafted.timings;
    expect(speculation!.drafted).toBe(speculation!.accepted);
    const ignored = { ...greedy, ignoreEos: true };
    const whole = await run(engine, prompt, ignored, [oracle(ended, vocab)]);
    expect(whole.tokenIds).toEqual(alone.tokenIds);
    expect(whole.timings.speculation!.drafted).toBe(whole.timings.speculation!.accepted);
    engine.dispose();
  });
});

describe("ends", () => {
  test("an abort in the middle of a draft: what is kept has no drafted tokens", async () => {
    const engine = await tinyEngine();
    const prompt = tinyPrompt(6, 40);
    const alone = await run(engine, prompt, { temperature: 0, maxTokens: 50 });
    const drafts = alone.tokenIds.map((token, i) => (i < 12 ? token : (token + 1) % vocab));
    const fresh = await tinyEngine();
    const watch = control();
    let tokens = 0;
    const yieldThread = async (): Promise<void> => {
      if (++tokens === 9) watch.aborted = true;
    };
    const aborted = await run(
      fresh,
      prompt,
      { temperature: 0, maxTokens: 50 },
      [oracle(drafts, vocab)],
      {
        yieldThread,
        now: () => 0,
        get aborted() {
          return watch.aborted;
        },
      },
    );
    expect(aborted.stopReason).toBe("aborted");
    expect(aborted.tokenIds).toEqual(alone.tokenIds.slice(0, aborted.tokenIds.length));
    expect(aborted.timings.speculation!.drafted).toBeGreaterThan(9);
    // Of a prompt that goes on as the draft did, only the text is known.
    const same = await run(fresh, [...prompt, ...drafts], { temperature: 0, maxTokens: 1 });
    expect(same.timings.cachedTokens).toBeLessThanOrEqual(prompt.length + aborted.tokenIds.length);
    const again = await run(fresh, prompt, { temperature: 0, maxTokens: 50 });
    expect(again.tokenIds).toEqual(alone.tokenIds);
    engine.dispose();
    fresh.dispose();
  });

  test("fewer batches where drafts are right, and never more tokens than were asked for", async () => {
    const engine = await tinyEngine();
    const prompt = tinyPrompt(7, 5);
    const alone = await run(engine, prompt, { temperature: 0, maxTokens: 60 });
    const sure = await run(engine, prompt, { temperature: 0, maxTokens: 60 }, [
      oracle(alone.tokenIds, vocab),
    ]);
    // 59 tokens are computed after the prompt, 17 of them in a batch.
    expect(sure.timings.speculation).toMatchObject({ batches: 4, accepted: 55, drafted: 55 });
    const four = { temperature: 0, maxTokens: 60, speculate: { maxDepth: 4 } };
    const shallow = await run(engine, prompt, four, [oracle(alone.tokenIds, vocab)]);
    expect(shallow.timings.speculation).toMatchObject({ batches: 12 });
    const off = { temperature: 0, maxTokens: 60, speculate: false };
    const none = await run(engine, prompt, off, [oracle(alone.tokenIds, vocab)]);
    expect(none.timings.speculation).toBeUndefined();
    engine.dispose();
  });

  test.each([
    [{ maxDepth: -1 }, /speculate.maxDepth: got -1, expected a whole number from 0 to 31/],
    [{ maxDepth: 32 }, /got 32, expected/],
    [{ minChance: 2 }, /speculate.minChance: got 2/],
    [{ depth: 2 }, /speculate: unknown option "depth"/],
    [{ drafters: ["me"] }, /speculate.drafters: got .*expected a list of some of ngram/],
  ])("%o is refused", async (speculate, message) => {
    const engine = await tinyEngine();
    await expect(run(engine, [1], { speculate: speculate as object })).rejects.toThrow(message);
    engine.dispose();
  });
});
