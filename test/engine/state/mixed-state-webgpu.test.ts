// Every kind of state on the GPU: a history of appends, forks, ways back and lost batches gives the logits of the reference.

import { expect, test } from "vitest";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import { describeGpu, gpuBackend } from "../../support/gpu.ts";
import { Random } from "../../support/random.ts";
import { mixedRoom, vocab } from "./mixed-capacity.ts";

describeGpu("every kind of state", () => {
  test("as the reference keeps it", async () => {
    const gpu = await gpuBackend();
    const [mixed, reference] = [
      await mixedRoom(gpu, true),
      await mixedRoom(new ReferenceBackend()),
    ];
    const random = new Random(9);
    const tokensOf = (count: number) => Array.from({ length: count }, () => random.below(vocab));
    const agree = async (logits: number[], tokens: number[]): Promise<void> => {
      const expected = await reference.fresh(tokens);
      logits.forEach((logit, i) => {
        expect(logit).toBeCloseTo(expected[i]!, 3);
      });
    };
    const sequence = mixed.room.newSequence();
    let tokens = tokensOf(100);
    await agree(await mixed.append(sequence, tokens), tokens);
    // Memory grows under it, for others that run as well.
    const before = gpu.memory().kvBytes;
    for (let i = 0; i < 2; i++) await mixed.room.enter(mixed.room.demand(320), () => false);
    expect(gpu.memory().kvBytes).toBeGreaterThan(before);
    // A fork goes its own way from a partly filled block.
    const fork = sequence.fork();
    const other = [...tokens, ...tokensOf(2)];
    await agree(await mixed.append(fork, other.slice(100)), other);
    // A batch that was computed, and then lost.
    await mixed.fail(sequence, tokensOf(9), "fails");
    tokens = [...tokens, ...tokensOf(40)];
    await agree(await mixed.append(sequence, tokens.slice(100)), tokens);
    // Back to a checkpoint.
    const length = fork.restorable(101);
    expect(length).toBe(96);
    fork.restore(length);
    const again = [...tokens.slice(0, 96), ...tokensOf(3)];
    await agree(await mixed.append(fork, again.slice(96)), again);
    for (const one of [sequence, fork]) one.release();
    expect(mixed.room.pools.every(({ usedCount }) => usedCount === 0)).toBe(true);
    gpu.dispose();
  });
});
