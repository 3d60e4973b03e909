// The paged cache: any sequence of append, fork and restore gives the logits of a fresh run, and no block is leaked or
// shared by mistake.
// Held against: the logits of a fresh run.

import { describe, expect, test } from "vitest";
import type { Engine, RunningSequence } from "../../../src/engine/engine.ts";
import { BlockPool } from "../../../src/engine/state/block-pool.ts";
import { KvBlocks } from "../../../src/engine/state/kv-blocks.ts";
import { Sequence } from "../../../src/engine/state/sequence.ts";
import { Random } from "../../support/random.ts";
import { tinyEngine, tinyShape } from "../../support/tiny-engine.ts";

/** Appends tokens and returns the logits of the last one. */
async function append(engine: Engine, sequence: Sequence, tokens: number[]): Promise<number[]> {
  const logits = new Float32Array(engine.vocabSize);
  for (let done = 0; done < tokens.length; ) {
    done += await engine.advance({ sequence, promised: [0] }, tokens, done, {
      wants: () => true,
      onOutput: (_, read) => read("logits", logits),
      stop: () => false,
    });
  }
  return [...logits];
}

/** A place that remembers nothing. */
function openEmpty(engine: Engine): Promise<RunningSequence> {
  return engine.open({ tokens: [], mayAdd: 1, isAborted: () => false });
}

function randomTokens(random: Random, most: number): number[] {
  return Array.from({ length: 1 + random.below(most) }, () => random.below(tinyShape.vocab));
}

interface Branch {
  sequence: Sequence;
  tokens: number[];
}

describe.each(["f32", "f16", "q8_0"])("random histories, %s cache", (kvType) => {
  test.each([1, 2, 3])(
    "fork, restore and append agree with a fresh run (seed %i)",
    async (seed) => {
      const engine = await tinyEngine({ kvType, contextSize: 512 });
      const random = new Random(seed);
      const branches: Branch[] = [{ sequence: (await openEmpty(engine)).sequence, tokens: [] }];
      for (let round = 0; round < 14; round++) {
        const branch = random.pick(branches);
        const action = random.below(3);
        if (action === 0 && branches.length < 4) {
          branches.push({ sequence: branch.sequence.fork(), tokens: [...branch.tokens] });
        } else if (action === 1) {
          const length = random.below(branch.tokens.length + 1);
          branch.sequence.restore(length);
          branch.tokens.length = length;
        }
        // Long enough to cross block borders, and to leave blocks partly filled.
        const added = randomTokens(random, 40);
        const room = 120 - branch.tokens.length;
        if (added.length > room) continue;
        branch.tokens.push(...added);
        const logits = await append(engine, branch.sequence, added);

        const fresh = await openEmpty(engine);
        expect(logits).toEqual(await append(engine, fresh.sequence, branch.tokens));
        engine.close(fresh);
      }
      engine.dispose();
    },
  );
});

describe("blocks", () => {
  /** A sequence with full attention; its copies of blocks are noted. */
  const sequenceOf = (pool: BlockPool, maxTokens: number) => {
    const copies: [number, number][] = [];
    const copy = (from: number, to: number) => void copies.push([from, to]);
    const state = new KvBlocks({ pool, maxTokens, window: Infinity, copy });
    return { copies, sequence: new Sequence([state], maxTokens) };
  };
  const appendAll = (sequence: Sequence, count: number) => {
    sequence.append(Array.from({ length: count }, (_, i) => i));
    sequence.commit();
  };

  test("every block comes back", () => {
    const pool = new BlockPool(8);
    const { sequence } = sequenceOf(pool, 256);
    appendAll(sequence, 100);
    expect(pool.freeCount).toBe(4);
    const fork = sequence.fork();
    expect(pool.freeCount).toBe(4);
    sequence.release();
    expect(pool.freeCount).toBe(4);
    fork.release();
    expect(pool.freeCount).toBe(8);
    fork.release();
    expect(pool.freeCount).toBe(8);
  });

  test("only a partly filled shared block is copied, once", () => {
    const pool = new BlockPool(8);
    const { sequence, copies } = sequenceOf(pool, 256);
    appendAll(sequence, 40);
    const fork = sequence.fork();
    expect(fork.states[0]!.needed(1)).toBe(1);
    fork.append([7]);
    fork.append([8]);
    expect(copies).toEqual([[sequence.blocks[1], fork.blocks[1]]]);
    expect(fork.blocks[0]).toBe(sequence.blocks[0]);
    sequence.append([9]); // it is the only owner again
    expect(copies).toHaveLength(1);
  });

  test("a fork at a block border copies nothing", () => {
    const pool = new BlockPool(8);
    const { sequence, copies } = sequenceOf(pool, 256);
    appendAll(sequence, 64);
    const fork = sequence.fork();
    fork.append([1]);
    sequence.append([2]);
    expect(copies).toEqual([]);
    expect(pool.freeCount).toBe(8 - 4);
  });

  test("going back into a shared block and writing does not disturb the other owner", () => {
    const pool = new BlockPool(8);
    const { sequence, copies } = sequenceOf(pool, 256);
    appendAll(sequence, 64);
    const fork = sequence.fork();
    fork.restore(10);
    fork.append([99]);
    expect(copies).toHaveLength(1);
    expect(fork.blocks[0]).not.toBe(sequence.blocks[0]);
    expect(sequence.token(10)).toBe(10);
    expect(fork.token(10)).toBe(99);
  });

  test("common prefix", () => {
    const { sequence } = sequenceOf(new BlockPool(2), 64);
    sequence.append([5, 6, 7]);
    expect(sequence.commonPrefix([5, 6, 8])).toBe(2);
    expect(sequence.commonPrefix([5])).toBe(1);
    expect(sequence.commonPrefix([])).toBe(0);
  });

  test("a full sequence says how much it holds", () => {
    const { sequence } = sequenceOf(new BlockPool(1), 32);
    appendAll(sequence, 32);
    expect(() => sequence.append([0])).toThrow("it holds 32 tokens");
  });
});
