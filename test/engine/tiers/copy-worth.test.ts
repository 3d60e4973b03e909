// Whether copies of state pay: by measured speeds of computing and copying, and what the tiers do where they do not.
// Held against: speeds made up here.

import { afterEach, describe, expect, test } from "vitest";
import { CpuBackend } from "../../../src/backends/cpu/cpu.ts";
import { CopyWorth } from "../../../src/engine/tiers/copy-worth.ts";
import { rootKey } from "../../../src/engine/tiers/keys.ts";
import { RamTier } from "../../../src/engine/tiers/ram-tier.ts";
import { StateTiers } from "../../../src/engine/tiers/state-tiers.ts";
import { mixedRoom } from "../state/mixed-capacity.ts";

const MB = 2 ** 20;
/** A 7B model's keys and values of a token, in half floats. */
const TOKEN_BYTES = MB / 2;

describe("the rule", () => {
  test("copies pay until both speeds are known", () => {
    const worth = new CopyWorth(TOKEN_BYTES);
    expect(worth.dear).toBeUndefined();
    worth.computed(512, 45);
    expect(worth.dear).toBeUndefined();
    expect(worth.takesText()).toBe(true);
  });

  test("they do not where copying takes more than half as long as computing", () => {
    for (const [copyMs, isDear] of [
      [0.25, false], // 8 MB in 0.25 ms: 16 ms for 1,000 tokens
      [0.6, false],
      [0.8, true],
      [12, true],
    ] as const) {
      const worth = new CopyWorth(TOKEN_BYTES);
      worth.computed(512, 45); // 88 ms for 1,000 tokens
      worth.copied(8 * MB, copyMs);
      expect(worth.dear !== undefined, `${copyMs} ms`).toBe(isDear);
    }
  });

  test("says both times, of 1,000 tokens", () => {
    const worth = new CopyWorth(TOKEN_BYTES);
    worth.computed(500, 50);
    worth.copied(8 * MB, 16);
    expect(worth.dear).toEqual({ computeMs: 100, copyMs: 1000 });
  });

  test("a copy that waited, a small one, and a short batch say nothing", () => {
    const worth = new CopyWorth(TOKEN_BYTES);
    worth.computed(512, 45);
    worth.computed(8, 8);
    worth.copied(8 * MB, 0.5);
    worth.copied(8 * MB, 50);
    worth.copied(1024, 50);
    expect(worth.dear).toBeUndefined();
  });

  test("a machine that became slower is believed after a while", () => {
    const worth = new CopyWorth(TOKEN_BYTES);
    worth.computed(512, 45);
    worth.copied(8 * MB, 0.5);
    for (let i = 0; i < 200; i++) worth.copied(8 * MB, 50);
    expect(worth.dear).toBeDefined();
  });

  test("one text in 32 is copied all the same", () => {
    const worth = new CopyWorth(TOKEN_BYTES);
    worth.computed(512, 45);
    worth.copied(8 * MB, 50);
    const taken = Array.from({ length: 64 }, () => worth.takesText());
    expect(taken.filter(Boolean)).toHaveLength(2);
  });
});

describe("a text that ends beside others", () => {
  const dear = (othersRun: () => boolean): CopyWorth => {
    const worth = new CopyWorth(TOKEN_BYTES, othersRun);
    worth.computed(512, 45);
    worth.copied(8 * MB, 50);
    return worth;
  };

  test("is not copied: the next one that ends alone is", () => {
    let othersRun = true;
    const worth = dear(() => othersRun);
    for (let i = 0; i < 100; i++) expect(worth.takesText()).toBe(false);
    othersRun = false;
    expect(worth.takesText()).toBe(true);
    expect(worth.takesText()).toBe(false);
  });

  test("is copied where none ever ends alone, one in 1,024", () => {
    const worth = dear(() => true);
    const taken = Array.from({ length: 2048 }, () => worth.takesText());
    expect(taken.filter(Boolean)).toHaveLength(2);
  });
});

describe("the tiers", () => {
  const open: StateTiers[] = [];
  afterEach(async () => {
    for (const tiers of open.splice(0)) await tiers.close();
  });

  test("copy nothing where it does not pay, say so, and what is there already is still used", async () => {
    const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
    const mixed = await mixedRoom(backend);
    let now = 0;
    const worth = new CopyWorth(TOKEN_BYTES);
    const tiers = new StateTiers({
      root: rootKey(["a model"]),
      kinds: mixed.room.tierKinds,
      transfer: backend.transfer!,
      now: () => now,
      say: () => undefined,
      ram: new RamTier(64 * MB),
      disk: Promise.resolve(undefined),
      worth,
    });
    open.push(tiers);
    const compute = async (first: number): Promise<number[]> => {
      const tokens = Array.from({ length: 144 }, (_, i) => (first + i) % 60);
      const sequence = mixed.room.newSequence();
      for (let at = 0; at < tokens.length; at += 24) {
        const since = now;
        await mixed.append(sequence, tokens.slice(at, at + 24));
        now += 1;
        tiers.computed(24, since);
        tiers.note(sequence);
      }
      tiers.mark(sequence);
      await tiers.settled();
      sequence.release();
      return tokens;
    };
    const before = await compute(1);
    const heldBytes = tiers.held.ram.bytes;
    expect(heldBytes).toBeGreaterThan(0);
    expect(tiers.held.dear).toBeUndefined();

    worth.copied(MB, 1000);
    expect(tiers.held.dear).toBeDefined();
    const after = await compute(7);
    expect(tiers.held.ram.bytes).toBe(heldBytes);
    expect(tiers.missing(after, 0, after.length)).toEqual({ reason: "dear", at: 0 });

    const sequence = mixed.room.newSequence();
    const { ram } = await tiers.extend(sequence, before, (length) =>
      mixed.room.makeRoomToExtend(sequence, length),
    );
    expect(ram).toBeGreaterThan(100);
    sequence.release();
    backend.dispose();
  });

  /** Copies that take a while, some at a time, and how many blocks were copied. */
  async function slow(worth: CopyWorth) {
    const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined });
    const mixed = await mixedRoom(backend);
    const kinds = mixed.room.tierKinds;
    let copied = 0;
    const tiers = new StateTiers({
      root: rootKey(["a model"]),
      kinds,
      transfer: {
        ...backend.transfer!,
        readBlock: async () => {
          copied++;
          await new Promise((resolve) => setTimeout(resolve, 20));
        },
        readSlot: async () => {},
      },
      now: () => performance.now(),
      say: () => undefined,
      ram: new RamTier(2 * Math.max(...kinds.map(({ unitBytes }) => unitBytes))),
      disk: Promise.resolve(undefined),
      worth,
    });
    open.push(tiers);
    const sequence = mixed.room.newSequence();
    await mixed.append(
      sequence,
      Array.from({ length: 144 }, (_, i) => i % 60),
    );
    tiers.note(sequence);
    tiers.mark(sequence);
    return { tiers, copied: () => copied, end: () => sequence.release() };
  }

  test("what waits is given up once it is known that copies do not pay", async () => {
    class Told extends CopyWorth {
      isKnown = false;
      override copied(): void {
        this.isKnown = true;
      }
      override get isDear(): boolean {
        return this.isKnown;
      }
    }
    const all = await slow(new CopyWorth(TOKEN_BYTES));
    await all.tiers.settled();
    all.end();
    const few = await slow(new Told(TOKEN_BYTES));
    await few.tiers.settled();
    few.end();
    expect(few.copied()).toBeGreaterThan(0);
    expect(few.copied()).toBeLessThan(all.copied());
  });

  test("settled() with a limit gives up what waits after it", async () => {
    const all = await slow(new CopyWorth(TOKEN_BYTES));
    await all.tiers.settled();
    all.end();
    const some = await slow(new CopyWorth(TOKEN_BYTES));
    await some.tiers.settled(1);
    const copied = some.copied();
    expect(copied).toBeLessThan(all.copied());
    await some.tiers.settled();
    expect(some.copied()).toBe(copied);
    some.end();
  });
});
