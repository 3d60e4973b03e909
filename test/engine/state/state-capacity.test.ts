// Room for the state of sequences: it grows as needed, and a device without more memory affects no running generation.
// Held against: the sizes of pools, and texts with enough room.

import { describe, expect, test } from "vitest";
import { MemoryError } from "../../../src/base/errors.ts";
import { dtypeByName } from "../../../src/dtypes/table.ts";
import type { Amounts } from "../../../src/engine/state/admission.ts";
import { BlockPool } from "../../../src/engine/state/block-pool.ts";
import { StateCapacity } from "../../../src/engine/state/state-capacity.ts";
import { stateKinds } from "../../../src/engine/state/state-kinds.ts";
import { GraphBuilder } from "../../../src/graph/builder.ts";

const never = (): boolean => false;

/** No generation has run for so many ms: memory for what is kept grows. */
const REST = 100;

/** Time that passes when a test says so. */
class Clock {
  #waiting: { left: number; resolve: () => void }[] = [];

  readonly wait = (ms: number): Promise<void> =>
    new Promise((resolve) => this.#waiting.push({ left: ms, resolve }));

  /** So many ms pass, one by one: whoever waits may wait again. */
  async pass(ms: number): Promise<void> {
    for (let i = 0; i < ms; i++) {
      const due = this.#waiting.filter((one) => --one.left <= 0);
      this.#waiting = this.#waiting.filter(({ left }) => left > 0);
      for (const { resolve } of due) resolve();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

interface Device {
  room: StateCapacity;
  /** Blocks that it has given, in order. */
  grown: number[];
  /** Pieces of memory that were made on the way. */
  pieces: () => number;
  clock: Clock;
}

/** Room for 4 contexts of 3 blocks, of which one is held; the device has memory for `most` blocks, and takes until `ready` to give it. */
function roomOn(
  most: number,
  ready?: Promise<void>,
  onPiece?: () => void,
  asAsked: (work: () => Promise<void>) => Promise<void> = (work) => work(),
): Device {
  const grown: number[] = [];
  const clock = new Clock();
  let pieces = 0;
  const growKv = async (
    [blocks = 0]: readonly number[],
    pause?: () => Promise<void>,
  ): Promise<void> => {
    if (blocks > most) throw new MemoryError(`no room for ${blocks} blocks`);
    for (let piece = 0; piece < 2; piece++) {
      await pause?.();
      pieces++;
      onPiece?.();
    }
    await ready;
    grown.push(blocks);
  };
  const backend = { copyKvBlock: () => {}, growKv };
  const g = new GraphBuilder();
  g.state({ kind: "kv", layer: 0, kCols: 8, vCols: 8 });
  const kinds = stateKinds(g.finish({}), { maxTokens: 32, maxOutputs: 32 });
  const groups = [{ blocks: 12, held: 3 }];
  const kv = { tableLength: 12, groups, dtype: dtypeByName("f32")! };
  const { wait } = clock;
  const room = new StateCapacity({ backend, contextSize: 96, kinds, kv, wait, asAsked });
  return { room, grown, pieces: () => pieces, clock };
}

/** A generation of 90 tokens, which is kept when it has ended. */
async function runOnce(room: StateCapacity, firstToken: number): Promise<void> {
  const promised = await room.enter([3], never);
  const sequence = room.newSequence();
  room.makeRoom(sequence, 90);
  sequence.append(Array.from({ length: 90 }, (_, i) => firstToken + i));
  sequence.commit();
  room.prefixes.keep(sequence);
  room.leave(promised);
}

/** A generation that ends before it has computed anything. */
async function enterAndLeave(room: StateCapacity): Promise<void> {
  room.leave(await room.enter([3], never));
}

async function isWaiting(promise: Promise<unknown>): Promise<boolean> {
  const answer = await Promise.race([
    promise,
    new Promise((resolve) => setTimeout(() => resolve("waiting"), 5)),
  ]);
  return answer === "waiting";
}

describe("memory", () => {
  test("of one context is enough for one user", async () => {
    const { room, grown } = roomOn(12);
    for (let i = 0; i < 3; i++) room.leave(await room.enter([3], never));
    expect(grown).toEqual([]);
    expect(room.pools[0]!.size).toBe(3);
  });

  test("grows with generations that run at the same time, a context at a time", async () => {
    const { room, grown } = roomOn(12);
    for (let i = 0; i < 3; i++) await room.enter([2], never);
    expect(grown).toEqual([6]);
    expect(room.pools[0]!.size).toBe(6);
  });

  test("grows with sequences that are kept, so that none of them is lost", async () => {
    const { room, clock } = roomOn(12);
    for (let i = 0; i < 3; i++) {
      await enterAndLeave(room);
      await clock.pass(REST);
      await runOnce(room, 100 * i);
    }
    expect(room.prefixes.sequences).toBe(3);
    expect(room.pools[0]!.size).toBe(12);
  });

  test("doubles, so that it is not copied for every user; where there is no room for that, by a context", async () => {
    const { room, grown, clock } = roomOn(9);
    for (let i = 0; i < 3; i++) {
      await enterAndLeave(room);
      await clock.pass(REST);
      await runOnce(room, 100 * i);
    }
    expect(grown).toEqual([6, 9]);
    expect(room.prefixes.sequences).toBe(3);
  });
});

describe("memory for what is only kept", () => {
  test("keeps nobody waiting: the oldest is given up, and the memory is there for the next", async () => {
    const { room, grown, clock } = roomOn(12);
    await runOnce(room, 0);
    await runOnce(room, 100); // evicts the first
    expect(room.prefixes.sequences).toBe(1);
    expect(grown).toEqual([]);
    await clock.pass(REST);
    expect(grown).toEqual([6]);
    await runOnce(room, 200);
    expect(room.prefixes.sequences).toBe(2);
  });

  test("does not grow while somebody runs, nor right after that", async () => {
    const { room, grown, clock } = roomOn(12);
    await runOnce(room, 0);
    const promised = await room.enter([3], never);
    await clock.pass(20 * REST);
    expect(grown).toEqual([]);
    room.leave(promised);
    await clock.pass(REST / 2);
    await enterAndLeave(room);
    await clock.pass(REST / 2);
    expect(grown).toEqual([]);
    await clock.pass(2 * REST);
    expect(grown).toEqual([6]);
  });

  test("pauses when somebody comes, and goes on when they have ended", async () => {
    let entering: Promise<Amounts> | undefined;
    const { room, grown, pieces, clock } = roomOn(12, undefined, () => {
      entering ??= room.enter([1], never);
    });
    await runOnce(room, 0);
    await enterAndLeave(room);
    await clock.pass(REST);
    const promised = await entering!;
    await clock.pass(10 * REST);
    expect(pieces()).toBe(1);
    room.leave(promised);
    await clock.pass(REST);
    expect(pieces()).toBe(2);
    expect(grown).toEqual([6]);
  });

  test("pauses for nobody who needs it", async () => {
    const running: Promise<Amounts>[] = [];
    const { room, grown, pieces, clock } = roomOn(12, undefined, () => {
      if (running.length === 0) running.push(room.enter([3], never));
    });
    await runOnce(room, 0);
    await enterAndLeave(room);
    await clock.pass(2 * REST);
    expect(await running[0]).toEqual([3]);
    expect(pieces()).toBe(1);
    // No time passes for this one.
    expect(await room.enter([3], never)).toEqual([3]);
    expect(grown[0]).toBe(6);
  });

  test("grows after a while where somebody always runs", async () => {
    const { room, grown, clock } = roomOn(12);
    await runOnce(room, 0);
    await room.enter([3], never);
    await clock.pass(120 * REST);
    expect(grown).toEqual([6]);
  });

  test("does not grow once it is disposed of", async () => {
    const { room, pieces, clock } = roomOn(12);
    await runOnce(room, 0);
    await enterAndLeave(room);
    room.dispose();
    await clock.pass(120 * REST);
    expect(pieces()).toBe(0);
  });

  test("grows once that is asked for; who needs it does not wait until then", async () => {
    const asked: (() => Promise<void>)[] = [];
    const asAsked = async (work: () => Promise<void>): Promise<void> => void asked.push(work);
    const { room, grown, clock } = roomOn(12, undefined, undefined, asAsked);
    await runOnce(room, 0);
    await enterAndLeave(room);
    await clock.pass(2 * REST);
    expect(grown).toEqual([]);
    for (let i = 0; i < 2; i++) expect(await room.enter([3], never)).toEqual([3]);
    expect(grown).toEqual([9]);
    for (const work of asked) await work();
    expect(grown).toEqual([9]); // that is enough
  });

  test("stops growing when it is disposed of between two pieces", async () => {
    const { room, grown, pieces, clock } = roomOn(12, undefined, () => room.dispose());
    await runOnce(room, 0);
    await enterAndLeave(room);
    await clock.pass(2 * REST);
    expect(pieces()).toBe(1);
    expect(grown).toEqual([]);
  });

  test("that cannot be had is asked for again when somebody comes", async () => {
    const { room, grown, clock } = roomOn(3);
    await runOnce(room, 0);
    for (let i = 0; i < 2; i++) {
      await enterAndLeave(room);
      await clock.pass(2 * REST);
    }
    expect(grown).toEqual([]);
    expect(room.prefixes.sequences).toBe(1);
    expect(await room.enter([3], never)).toEqual([3]);
  });
});

describe("a device that takes long to give memory", () => {
  test("makes who needs it wait", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { room } = roomOn(12, promise);
    await room.enter([3], never);
    const second = room.enter([3], never);
    await new Promise((wait) => setTimeout(wait, 50));
    expect(await isWaiting(second)).toBe(true);
    resolve();
    expect(await second).toEqual([3]);
  });
});

/** Room for 8 contexts of 64 blocks and one to copy, of which one is held. */
function largeRoomOn(most: number, tries: number[] = [], wait?: Clock["wait"]): StateCapacity {
  const growKv = async ([blocks = 0]: readonly number[]): Promise<void> => {
    tries.push(blocks);
    if (blocks > most) throw new MemoryError(`no room for ${blocks} blocks`);
  };
  const g = new GraphBuilder();
  g.state({ kind: "kv", layer: 0, kCols: 8, vCols: 8 });
  const kinds = stateKinds(g.finish({}), { maxTokens: 32, maxOutputs: 32 });
  const groups = [{ blocks: 8 * 65, held: 65 }];
  const kv = { tableLength: 8 * 65, groups, dtype: dtypeByName("f32")! };
  const backend = { copyKvBlock: () => {}, growKv };
  return new StateCapacity({ backend, contextSize: 2048, kinds, kv, wait });
}

describe("memory that a device holds from the start", () => {
  test("is for a short request of everybody who may run at once", async () => {
    const tries: number[] = [];
    const room = largeRoomOn(1000, tries);
    await room.holdFirst();
    // 256 tokens, and a block that may have to be copied.
    expect(tries).toEqual([8 * 9]);
    expect(room.pools[0]!.size).toBe(72);
    for (let i = 0; i < 8; i++) await room.enter(room.demand(256), never);
    expect(tries).toEqual([72]);
  });

  test("is no more than what all contexts need", async () => {
    const { room, grown } = roomOn(12);
    await room.holdFirst();
    expect(grown).toEqual([12]);
  });

  test("is one context where there is no more", async () => {
    const room = largeRoomOn(70);
    await room.holdFirst();
    expect(room.pools[0]!.size).toBe(65);
    expect(await room.enter([9], never)).toEqual([9]);
  });

  test("is not asked for where the system gives memory when it is written to", async () => {
    const g = new GraphBuilder();
    g.state({ kind: "kv", layer: 0, kCols: 8, vCols: 8 });
    const kinds = stateKinds(g.finish({}), { maxTokens: 32, maxOutputs: 32 });
    const kv = {
      tableLength: 12,
      groups: [{ blocks: 12, held: 3 }],
      dtype: dtypeByName("f32")!,
    };
    const backend = { copyKvBlock: () => {} };
    const room = new StateCapacity({ backend, contextSize: 96, kinds, kv });
    await room.holdFirst();
    expect(room.pools[0]!.size).toBe(3);
  });
});

test("what running sequences have of their reserved blocks is not needed twice", async () => {
  const tries: number[] = [];
  const clock = new Clock();
  const room = largeRoomOn(1000, tries, clock.wait);
  await room.holdFirst();
  expect(room.pools[0]!.size).toBe(72);
  const begin = async (first: number) => {
    const promised = await room.enter(room.demand(256), never);
    const sequence = room.newSequence();
    room.began(promised, sequence);
    room.makeRoom(sequence, 250);
    sequence.append(Array.from({ length: 250 }, (_, i) => first + i));
    sequence.commit();
    return { promised, sequence };
  };
  const all = [];
  for (let i = 0; i < 8; i++) all.push(await begin(1000 * i));
  expect(room.pools[0]!.usedCount).toBe(64);
  expect(tries).toEqual([72]);
  // Kept, they have blocks that nobody has reserved.
  for (const { promised, sequence } of all) {
    room.prefixes.keep(sequence);
    room.leave(promised);
  }
  const last = await begin(9000);
  expect(room.prefixes.sequences).toBe(8);
  room.prefixes.keep(last.sequence);
  room.leave(last.promised);
  expect(tries).toEqual([72]);
  await clock.pass(REST);
  expect(tries).toEqual([72, 144]);
});

describe("memory grows once", () => {
  test("for all who may come like the one for whom it is not enough", async () => {
    const tries: number[] = [];
    const room = largeRoomOn(1000, tries);
    // 20 blocks each, of which one may have to be copied.
    for (let i = 0; i < 8; i++) await room.enter(room.demand(600), never, undefined, 600);
    expect(tries).toEqual([8 * 20]);
  });

  test("but to no more than four times what it was", async () => {
    const tries: number[] = [];
    const room = largeRoomOn(1000, tries);
    for (let i = 0; i < 4; i++) await room.enter(room.demand(2000), never, undefined, 2000);
    expect(tries).toEqual([4 * 65]);
  });

  test("or to twice the size, or to what is needed, where there is no more", async () => {
    const tries: number[] = [];
    const room = largeRoomOn(140, tries);
    for (let i = 0; i < 2; i++) await room.enter(room.demand(2000), never, undefined, 2000);
    expect(tries).toEqual([260, 130]);
    const exact: number[] = [];
    const small = largeRoomOn(129, exact);
    for (let i = 0; i < 2; i++) await small.enter(small.demand(2000), never, undefined, 2000);
    expect(exact).toEqual([260, 130, 129]);
  });
});

describe("a device without more memory", () => {
  test("makes the next one wait until somebody has ended", async () => {
    const { room } = roomOn(5);
    const first = await room.enter([3], never);
    const second = room.enter([3], never);
    expect(await isWaiting(second)).toBe(true);
    expect(room.admission).toMatchObject({ running: 1, waiting: 1 });
    room.leave(first);
    expect(await second).toEqual([3]);
  });

  test("gives up what is only kept", async () => {
    const { room } = roomOn(3);
    for (let i = 0; i < 2; i++) await runOnce(room, 100 * i);
    expect(room.prefixes.sequences).toBe(1);
  });

  test("refuses what waited while there seemed to be more", async () => {
    const { room } = roomOn(5);
    const first = await room.enter([3], never);
    const second = room.enter([3], never);
    const third = room.enter([9], never);
    const refused = expect(third).rejects.toThrow("no room");
    expect(await isWaiting(second)).toBe(true);
    room.leave(first);
    room.leave(await second);
    await refused;
  });

  test("refuses what can never fit", async () => {
    const { room } = roomOn(5);
    await expect(room.enter([6], never)).rejects.toThrow("no room for 6 blocks");
    expect(room.admission.running).toBe(0);
    expect(await room.enter([3], never)).toEqual([3]);
  });
});

test("blocks that were in use are taken before new ones", () => {
  const pool = new BlockPool(6, 2);
  const [first, second] = [pool.take(), pool.take()];
  expect([first, second]).toEqual([0, 1]);
  expect(() => pool.take()).toThrow("the pool is empty");
  pool.release(first);
  pool.grow(4);
  expect([pool.take(), pool.take(), pool.take(), pool.freeCount]).toEqual([0, 2, 3, 0]);
  pool.grow(99);
  expect(pool.size).toBe(6);
});
