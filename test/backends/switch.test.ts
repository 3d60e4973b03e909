// Two backends that take turns, through the engine: the same text as one alone, sequences of both phases in one batch, what is
// copied and what is not, and what is refused.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../src/backends/reference/reference.ts";
import type { SideChoice } from "../../src/backends/switch/divide-batch.ts";
import { SwitchBackend } from "../../src/backends/switch/switch.ts";
import { ModelError } from "../../src/base/errors.ts";
import { greedyTokens, tinyEngine, tinyPrompt } from "../support/tiny-engine.ts";

const promptOnDevice: SideChoice = { prompt: 1, generation: 0 };

/** The reference, which counts its batches and what they were for. */
class CountingBackend extends ReferenceBackend {
  readonly phases: string[] = [];

  override run(...[batch, options]: Parameters<ReferenceBackend["run"]>): void {
    this.phases.push(`${options?.phase} ${batch.tokenCount}`);
    super.run(batch, options);
  }
}

function taking(choice: SideChoice = promptOnDevice) {
  const [host, device] = [new CountingBackend(), new CountingBackend()];
  return { host, device, backend: new SwitchBackend({ host, device, choice }) };
}

describe("two backends that take turns", () => {
  test.each([
    ["prompts on the device", promptOnDevice],
    ["prompts on the host", { prompt: 0, generation: 1 }],
  ] as const)("%s: the text of one alone", async (_, choice) => {
    const prompt = tinyPrompt(1, 70);
    const alone = await tinyEngine();
    const expected = await greedyTokens(alone, prompt, 40);
    alone.dispose();
    const { backend, host, device } = taking(choice);
    const engine = await tinyEngine({ backend });
    expect(engine.info.backend.name).toBe("reference|reference");
    expect(await greedyTokens(engine, prompt, 40)).toEqual(expected);
    const [prompts, tokens] = choice.prompt === 1 ? [device, host] : [host, device];
    expect(new Set(prompts.phases.map((phase) => phase.split(" ")[0]))).toEqual(
      new Set(["prompt"]),
    );
    expect(new Set(tokens.phases)).toEqual(new Set(["generation 1"]));
    // The prompt once, in blocks of 32.
    expect(backend.copiedBlocks).toBe(3);
    // A second turn takes what was generated back, and nothing of the first prompt.
    const more = [...prompt, ...expected, ...tinyPrompt(2, 5)];
    const before = backend.copiedBlocks;
    await greedyTokens(engine, more, 2);
    expect(backend.copiedBlocks - before).toBeLessThanOrEqual(4);
    engine.dispose();
  });

  test("prompts and generated tokens of several in one batch: each gets what it gets alone", async () => {
    const shared = tinyPrompt(9, 40);
    const prompts = [tinyPrompt(1, 3), [...shared, 5], [...shared, 7, 8], tinyPrompt(3, 90)];
    const reference = await tinyEngine();
    const alone: number[][] = [];
    for (const tokens of prompts) alone.push(await greedyTokens(reference, tokens, 12));
    reference.dispose();
    const { backend, host, device } = taking();
    const engine = await tinyEngine({ backend, cacheTokens: 2048, parallel: 4, promptChunk: 8 });
    for (let round = 0; round < 2; round++) {
      const texts = await Promise.all(prompts.map((tokens) => greedyTokens(engine, tokens, 12)));
      expect(texts).toEqual(alone);
    }
    // Some batches were divided: prompts went on while others generated.
    expect(device.phases.every((phase) => phase.startsWith("prompt"))).toBe(true);
    expect(host.phases.every((phase) => phase.startsWith("generation"))).toBe(true);
    expect(host.phases.some((phase) => phase !== "generation 1")).toBe(true);
    engine.dispose();
  });

  test.each([
    ["prompts on the device", promptOnDevice],
    ["prompts on the host", { prompt: 0, generation: 1 }],
  ] as const)(
    "%s: what left the KV cache comes back from memory, with the text of one alone",
    async (_, choice) => {
      const tiers = {
        ...{ ramBytes: 1e7, diskBytes: 0, folders: undefined, now: () => 0 },
        ...{ model: "tiny", weights: "w", exact: false },
      };
      const alone = await tinyEngine();
      const { backend } = taking(choice);
      const engine = await tinyEngine({ backend, cacheTokens: 160, contextSize: 160, tiers });
      const texts = [1, 2, 3].map((seed) => tinyPrompt(seed, 70));
      for (let turn = 0; turn < 2; turn++) {
        for (const [i, text] of texts.entries()) {
          const answer = await greedyTokens(engine, text, 20);
          expect(answer).toEqual(await greedyTokens(alone, text, 20));
          await engine.settled();
          texts[i] = [...text, ...answer, ...tinyPrompt(turn + 7, 4)];
        }
      }
      // All but the last token of each answer, and what is new.
      expect(engine.status().cache.tokens.ram).toBe(3 * 89);
      alone.dispose();
      engine.dispose();
      await engine.ended();
    },
  );

  test("where each phase is computed is in the model's info", async () => {
    const { backend } = taking();
    const engine = await tinyEngine({ backend });
    expect(engine.info.backend.placement).toMatchObject([
      { firstLayer: 0, layers: 2, hasOutput: true, isDevice: false, phase: "generation" },
      { firstLayer: 0, layers: 2, hasOutput: true, isDevice: true, phase: "prompt" },
    ]);
    expect(engine.info.backend.notes[0]).toBe(
      "prompts on reference, generated tokens on reference: each has all layers",
    );
    engine.dispose();
  });

  test("memory is that of both, and one that cannot hold all of it is named", async () => {
    const { backend, host } = taking();
    const both = await tinyEngine({ backend });
    expect(backend.memory().weightBytes).toBe(2 * host.memory().weightBytes);
    both.dispose();
    class Small extends ReferenceBackend {
      override measure(...args: Parameters<ReferenceBackend["measure"]>) {
        return { ...super.measure(...args), limitBytes: 1000 };
      }
    }
    const small = new SwitchBackend({
      host: new ReferenceBackend(),
      device: new Small(),
      choice: promptOnDevice,
    });
    await expect(tinyEngine({ backend: small })).rejects.toThrow(
      /"reference" cannot hold all of the model.*Use gpuLayers/,
    );
  });

  test("a backend that keeps its state to itself is refused", async () => {
    const silent = new ReferenceBackend();
    Object.defineProperty(silent, "transfer", { value: undefined });
    const host: Backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
    const backend = new SwitchBackend({ host, device: silent, choice: promptOnDevice });
    await expect(tinyEngine({ backend })).rejects.toThrow(ModelError);
  });
});
