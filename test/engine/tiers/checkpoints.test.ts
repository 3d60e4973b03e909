// How far apart the checkpoints of layers with a window and of recurrent state are: by what computing again takes, against bytes, budget
// and the time of copying. A text that branches off anywhere computes at most the tokens since the last one again.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { CpuBackend } from "../../../src/backends/cpu/cpu.ts";
import { Engine } from "../../../src/engine/engine.ts";
import { generate, type RunControl } from "../../../src/engine/generator.ts";
import { CHECKPOINT_TOKENS, Checkpoints } from "../../../src/engine/tiers/checkpoints.ts";
import { openGguf } from "../../../src/formats/gguf/open-gguf.ts";
import { tokenizerFromMetadata } from "../../../src/tokenizers/from-metadata.ts";
import { memorySource } from "../../formats/support.ts";
import { kvOf } from "../../support/kv.ts";
import { Random } from "../../support/random.ts";
import { hasShared, sharedPath } from "../../support/shared.ts";

const MB = 2 ** 20;
const attention = { group: 0, unitBytes: MB, needsAll: true, checkpointUnits: () => 0 };
/** A window of `window` tokens; recurrent state of some MB. */
const windowed = (window: number) => ({
  group: 1,
  unitBytes: 32 * 1024,
  needsAll: false,
  checkpointUnits: (tokens: number) => Math.min(tokens, window + 32) / 32,
});
const recurrent = (bytes: number) => ({
  group: undefined,
  unitBytes: bytes,
  needsAll: false,
  checkpointUnits: () => 1,
});

function ruleOf(kinds: ConstructorParameters<typeof Checkpoints>[0]["kinds"], budgetBytes = 1e10) {
  return new Checkpoints({ kinds, contextSize: 4096, batchTokens: 128, budgetBytes });
}

describe("the distance", () => {
  test("is fixed until something was measured, and where nothing is copied", () => {
    expect(ruleOf([recurrent(MB)]).tokens).toBe(CHECKPOINT_TOKENS);
    const unused = ruleOf([recurrent(MB)], 0);
    unused.computed(128, 1e6);
    expect(unused.tokens).toBe(CHECKPOINT_TOKENS);
    const all = ruleOf([attention]);
    all.computed(128, 1e6);
    expect(all.status).toBeUndefined();
  });

  test("grows with the speed: closer ones would save nothing", () => {
    for (const [ms, tokens] of [
      [10_000, 128], // a batch: 13 tokens/s
      [100, 128],
      [30, 512], // 4,267 tokens/s
      [10, 2048],
    ] as const) {
      const rule = ruleOf([recurrent(MB)]);
      rule.computed(128, ms);
      expect(rule.tokens, `${ms} ms`).toBe(tokens);
      expect(rule.status).toMatchObject({ tokens, bytes: MB, computeMs: (tokens * ms) / 128 });
    }
  });

  test("of windows goes down to a block: what two have in common is stored once", () => {
    const rule = ruleOf([windowed(512), attention]);
    rule.computed(128, 1000);
    expect(rule.tokens).toBe(32);
    expect(rule.bytes(32)).toBe(32 * 1024);
    expect(rule.bytes(4096)).toBe(17 * 32 * 1024);
  });

  test("grows where the bytes of a context would fill the budget, or copying take too long", () => {
    const small = ruleOf([recurrent(64 * MB)], 4096 * MB);
    small.computed(128, 5000);
    expect(small.tokens).toBe(256); // 16 of 64 MB are a quarter of 4 GB
    expect(small.status!.why).toContain("a quarter of the budget");
    const slow = ruleOf([recurrent(64 * MB)], 1e12);
    slow.copied(64 * MB, 500);
    slow.computed(128, 5000);
    expect(slow.tokens).toBe(256); // 0.5 s of 10 s
    expect(slow.status).toMatchObject({ copyMs: 500, computeMs: 10_000 });
    expect(slow.status!.why).toContain("5% of the time");
  });
});

const freeRunning: RunControl = { aborted: false, yieldThread: async () => {}, now: () => 0 };

async function archEngine(name: string, tiers: boolean): Promise<Engine> {
  const bytes = new Uint8Array(readFileSync(sharedPath(`archs/${name}.gguf`)));
  const file = await openGguf(memorySource({ "tiny.gguf": bytes }), "tiny.gguf");
  let ms = 0;
  return await Engine.load(
    {
      name,
      format: "gguf",
      metadata: file.metadata,
      tensors: file.tensors,
      readTensor: (tensor, target, offset) =>
        file.readTensor(file.tensors.get(tensor)!, target, offset),
      tokenizer: tokenizerFromMetadata(file.metadata),
      template: undefined,
      backend: new CpuBackend({ level: 3, threads: 1, startThread: undefined }),
    },
    {
      contextSize: 256,
      kvType: kvOf("f16"),
      parallel: 1,
      ...(tiers && {
        tiers: {
          ...{ ramBytes: 1e8, diskBytes: 0, folders: undefined },
          ...{ model: name, weights: "w", exact: false },
          now: () => (ms += 200), // a batch takes longer than anybody wants to wait
        },
      }),
    },
    { progress: () => {}, check: () => {} },
  );
}

async function turn(on: Engine, tokens: readonly number[]) {
  const request = { tokens, options: { maxTokens: 4, temperature: 0, ignoreEos: true } };
  const { timings, tokenIds } = await generate(on, request, freeRunning, () => {});
  await on.settled();
  return { cached: timings.cachedTokens, tokenIds };
}

describe.each(["qwen35", "mamba2", "gemma3"])("%s", (name) => {
  const title = "a branch at any token computes at most what is behind the checkpoint before it";
  if (!hasShared(`archs/${name}.gguf`)) {
    test.skip(`${title} [skipped: ../shared/archs/${name}.gguf is not on this machine]`, () => {});
    return;
  }
  test(title, async () => {
    const random = new Random(1);
    const some = (count: number) => Array.from({ length: count }, () => 3 + random.below(400));
    const [on, fresh] = [await archEngine(name, true), await archEngine(name, false)];
    const text = some(200);
    await turn(on, text);
    const { checkpoints } = on.status().cache;
    const apart = checkpoints!.tokens;
    expect(apart).toBeLessThanOrEqual(128);
    expect(checkpoints!.bytes).toBeGreaterThan(0);
    for (const at of [199, 150, 131, 101, 65]) {
      const branch = [...text.slice(0, at), ...some(40)];
      const { cached, tokenIds } = await turn(on, branch);
      expect(at - cached, `at ${at}`).toBeLessThanOrEqual(apart);
      expect(cached, `at ${at}`).toBeLessThanOrEqual(at);
      expect(tokenIds).toEqual((await turn(fresh, branch)).tokenIds);
    }
    for (const engine of [on, fresh]) {
      engine.dispose();
      await engine.ended();
    }
  });
});
