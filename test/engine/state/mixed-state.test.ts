// Sequences that keep full keys and values, windows of them and recurrent state, all at once: whatever is appended, forked,
// restored or lost, the logits are those of a fresh run, and in the end every pool is empty.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../../src/backends/backend.ts";
import { CpuBackend } from "../../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import { SwitchBackend } from "../../../src/backends/switch/switch.ts";
import type { Sequence } from "../../../src/engine/state/sequence.ts";
import { Random } from "../../support/random.ts";
import { type MixedRoom, mixedRoom, vocab } from "./mixed-capacity.ts";

const backends: { name: string; make: () => Backend }[] = [
  { name: "reference", make: () => new ReferenceBackend() },
  { name: "cpu", make: cpu },
  { name: "reference|reference", make: () => takingTurns(() => new ReferenceBackend()) },
  { name: "cpu|cpu", make: () => takingTurns(cpu) },
];

function cpu(): Backend {
  return new CpuBackend({ level: 3, threads: 1, startThread: undefined });
}

/** Two that compute the same bits: what one of them lacks of the other's state shows. */
function takingTurns(make: () => Backend): Backend {
  const choice = { prompt: 1, generation: 0 } as const;
  return new SwitchBackend({ host: make(), device: make(), choice });
}

function tokensOf(random: Random, count: number): number[] {
  return Array.from({ length: count }, () => random.below(vocab));
}

interface Branch {
  readonly sequence: Sequence;
  tokens: number[];
}

async function act(mixed: MixedRoom, random: Random, branches: Branch[]): Promise<Branch> {
  const branch = random.pick(branches);
  const action = random.below(5);
  if (action === 0 && branches.length < 3) {
    branches.push({ sequence: branch.sequence.fork(), tokens: [...branch.tokens] });
  } else if (action === 1) {
    const length = branch.sequence.restorable(random.below(branch.tokens.length + 1));
    branch.sequence.restore(length);
    branch.tokens.length = length;
  } else if (action === 2) {
    const fault = random.pick(["fails", "is given up"] as const);
    await mixed.fail(branch.sequence, tokensOf(random, 20), fault);
  }
  return branch;
}

describe.each(backends)("$name", ({ make }) => {
  test.each([1, 2])("random histories agree with fresh runs (seed %i)", async (seed) => {
    const backend = make();
    const mixed = await mixedRoom(backend);
    const random = new Random(seed);
    const branches: Branch[] = [{ sequence: mixed.room.newSequence(), tokens: [] }];
    for (let round = 0; round < 16; round++) {
      const branch = await act(mixed, random, branches);
      const added = tokensOf(random, random.pick([1, 1, 2, 40, 90]));
      if (branch.tokens.length + added.length > 300) continue;
      branch.tokens.push(...added);
      const logits = await mixed.append(branch.sequence, added);
      expect(logits).toEqual(await mixed.fresh(branch.tokens));
    }
    for (const { sequence } of branches) sequence.release();
    expect(mixed.room.pools.map(({ usedCount }) => usedCount)).toEqual([0, 0, 0, 0]);
    backend.dispose();
  });

  test("beside others in one batch, a sequence gets the bits that it gets alone", async () => {
    const backend = make();
    const mixed = await mixedRoom(backend);
    const random = new Random(5);
    const texts = [50, 3, 120].map((count) => tokensOf(random, count));
    const sequences = texts.map(() => mixed.room.newSequence());
    const before = mixed.scheduler.batches;
    for (const _ of texts) mixed.scheduler.join();
    const together = await Promise.all(
      texts.map((tokens, i) => mixed.append(sequences[i]!, tokens)),
    );
    expect(mixed.scheduler.batchSequences).toBeGreaterThan(mixed.scheduler.batches - before);
    for (const [i, tokens] of texts.entries())
      expect(together[i]).toEqual(await mixed.fresh(tokens));
    backend.dispose();
  });
});

describe("a window", () => {
  test("holds no more blocks than it reads, and some to go back by", async () => {
    const backend = new ReferenceBackend();
    const { room, append } = await mixedRoom(backend);
    const sequence = room.newSequence();
    const random = new Random(3);
    for (let i = 0; i < 300; i += 25) await append(sequence, tokensOf(random, 25));
    // Full; 70 and 9 tokens back, and 32 more, each in blocks that begin and end somewhere.
    expect(room.pools.slice(0, 3).map(({ usedCount }) => usedCount)).toEqual([10, 4, 2]);
    expect(sequence.states[1]!.restorable(299)).toBe(299);
    expect(sequence.states[1]!.restorable(268)).toBe(268);
    expect(sequence.states[1]!.restorable(200)).toBe(0); // what it would read is gone
    backend.dispose();
  });

  test("that is forked keeps what the fork may read", async () => {
    const backend = new ReferenceBackend();
    const { room, append, fresh } = await mixedRoom(backend);
    const random = new Random(4);
    const tokens = tokensOf(random, 96);
    const sequence = room.newSequence();
    await append(sequence, tokens);
    const fork = sequence.fork();
    const used = room.pools.map(({ usedCount }) => usedCount);
    await append(sequence, tokensOf(random, 150));
    expect(fork.restorable(96)).toBe(96);
    expect(await append(fork, [1, 2, 3])).toEqual(await fresh([...tokens, 1, 2, 3]));
    sequence.release();
    fork.release();
    expect(used[1]).toBeGreaterThan(0);
    expect(room.pools.every(({ usedCount }) => usedCount === 0)).toBe(true);
    backend.dispose();
  });
});

describe("checkpoints", () => {
  test("are at the last block boundary before the end of a prompt", async () => {
    const backend = new ReferenceBackend();
    const { room, append } = await mixedRoom(backend);
    const sequence = room.newSequence();
    await append(sequence, tokensOf(new Random(6), 100));
    expect(sequence.restorable(100)).toBe(100);
    expect(sequence.restorable(99)).toBe(96);
    expect(sequence.restorable(95)).toBe(0);
    await append(sequence, [7]);
    expect(sequence.restorable(100)).toBe(96);
    sequence.restore(96);
    expect(sequence.length).toBe(96);
    expect(() => sequence.restore(50)).toThrow("cannot go back to 50");
    backend.dispose();
  });

  test("hold a slot each, the newest two", async () => {
    const backend = new ReferenceBackend();
    const { room, append } = await mixedRoom(backend);
    const sequence = room.newSequence();
    const random = new Random(7);
    for (const count of [40, 40, 40, 40]) await append(sequence, tokensOf(random, count));
    expect([159, 127, 95, 31].map((length) => sequence.states[3]!.restorable(length))).toEqual([
      128, 96, 0, 0,
    ]);
    expect(room.pools[3]!.usedCount).toBe(3);
    sequence.release();
    expect(room.pools[3]!.usedCount).toBe(0);
    backend.dispose();
  });
});
