// Experts that are read on demand: logits have the same bits as with all of them in memory, with many slots, with few, and where other
// weights take turns, too; a file that ends in the middle fails the batch, and later batches work again. And the slots alone: what
// is used is there, what was not used for longest goes first, and a prompt does not displace everything.

import { truncateSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ReadAhead } from "../../src/backends/cpu/disk/ahead.ts";
import {
  DEMAND_NUMBER,
  DEMAND_WORD,
  type DemandProgram,
  demandWords,
} from "../../src/backends/cpu/disk/demand.ts";
import { DemandSlots } from "../../src/backends/cpu/disk/demand-slots.ts";
import { MESSAGE_BYTES, WORD } from "../../src/backends/cpu/disk/program.ts";
import { ChunkUnavailable } from "../../src/backends/cpu/executor.ts";
import type { ExpertGroups } from "../../src/backends/cpu/ops/expert-groups.ts";
import { SourceError } from "../../src/base/errors.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { tinyShape } from "../support/tiny-engine.ts";
import { loaded } from "./disk-model.ts";
import { runBatches } from "./tiny-backend.ts";

const shape = { layers: 4, architecture: "qwen3moe", feedForward: 512, expertType: "q8_0" };

test.each([
  { name: "3 of 4 experts", ...shape, missing: 1, slots: 3, threads: 2, ahead: "always" },
  // Each expert ends within a row panel.
  {
    name: "floats",
    ...shape,
    feedForward: 500,
    expertType: "f16",
    missing: 2,
    slots: 2,
    threads: 1,
    ahead: "measured",
  },
  // It has shared experts, which take turns.
  {
    name: "others, too",
    ...shape,
    architecture: "hunyuan-moe",
    layers: 12,
    missing: 2.1,
    slots: 2,
    threads: 2,
    ahead: "always",
  },
] as const)(
  "$name: the same bits, also after the file ended in the middle of a batch",
  async (given) => {
    const { name: _, missing, slots, threads, ahead, ...types } = given;
    const { layers } = types;
    const model = { weightType: "q8_0", ...types };
    const inMemory = await loaded(model, 0);
    const expected = await runBatches(inMemory.backend, model);
    await inMemory.close();
    const dtype = dtypeByName(types.expertType)!;
    const expertBytes = layers * 3 * bytesFor(dtype, types.feedForward * tinyShape.embed);
    const inFile = missing * expertBytes;
    const { backend, path, content, close } = await loaded(model, inFile, threads, ahead);
    try {
      const { weights, experts } = backend.onDisk()!;
      expect(experts).toEqual({ all: 4, used: 2, slots });
      expect(weights > 0).toBe(!Number.isInteger(missing));
      expect(await runBatches(backend, model)).toEqual(expected);
      const { hits, misses, guessed, guessedRight, readBytes } = backend.expertReads()!;
      expect(hits).toBeGreaterThan(0);
      expect(readBytes).toBeCloseTo(((misses + guessed) * expertBytes) / layers / 3);
      expect(guessedRight).toBeLessThanOrEqual(guessed);
      // The first batch has one token, and finds all slots empty.
      expect(guessedRight > 0).toBe(ahead === "always");
      truncateSync(path, content.length >> 2);
      const failed = await runBatches(backend, model).catch((error: unknown) => error);
      expect(failed).toBeInstanceOf(SourceError);
      expect((failed as Error).message).toMatch(
        /^a weight could not be read from disk: .*blk\.\d+\.\w+\.weight: the file ends at byte \d+\./,
      );
      writeFileSync(path, content);
      expect(await runBatches(backend, model)).toEqual(expected);
    } finally {
      await close();
    }
  },
);

const experts = 8;
const panels = 3;

/** Slots alone, of one weight; `serve` reads what was asked for, and says what it read. */
function slotsOf(slots: number) {
  const words = demandWords({ experts, slots });
  const messageWords = 1 + MESSAGE_BYTES / 4;
  const counts = [WORD.count, DEMAND_WORD.count, 2 * 64, words.count, messageWords, 2 * 16];
  const sizes = counts.map((count) => 4 * count);
  const starts = sizes.map((_, i) => sizes.slice(0, i).reduce((sum, size) => sum + size, 0));
  const end = Math.ceil((starts.at(-1)! + sizes.at(-1)!) / 8) * 8;
  const buffer = new SharedArrayBuffer(end + 8 * (DEMAND_NUMBER.count + slots + 1));
  const shape = {
    rows: 16 * panels,
    panels,
    step: 16 * panels,
    pieces: 1,
    used: 2,
    experts,
    slots,
  };
  const file = { name: "w", packing: 0, parts: [{ file: 0, offset: 0 }], expertBytes: 100 };
  const uses = end + 8 * DEMAND_NUMBER.count;
  const program: DemandProgram = {
    weights: [{ ...file, ...shape, words: starts[3]!, uses }],
    ...{
      readers: { words: starts[0]!, message: starts[4]! },
      waitMs: 30,
      guesses: starts[5]!,
      mostGuesses: 16,
      ahead: "always",
      control: starts[1]!,
      queue: starts[2]!,
      queueLength: 64,
      numbers: end,
    },
  };
  const i32 = new Int32Array(buffer, 0, end / 4);
  const u8 = new Uint8Array(buffer);
  const made = new DemandSlots(program, { i32, u8, buffer });
  /** Why the batch failed; undefined: it did not. */
  const failure = () => {
    if (i32[starts[0]! / 4 + WORD.failed] === 0) return undefined;
    const from = starts[4]! + 4;
    return new TextDecoder().decode(u8.slice(from, from + i32[starts[4]! / 4]!));
  };
  const serve = () => {
    const read: number[] = [];
    for (let piece = made.take(); piece; piece = made.take()) {
      read.push(piece.expert);
      made.put(piece, 100);
    }
    return read;
  };
  /** A batch that uses these experts, on one thread; returns what was read for it. */
  const batch = (used: readonly number[]) => {
    made.begin(0, groupsOf(used), 1);
    const read = serve();
    const taken = new Map<number, number>();
    for (const expert of used) {
      const slot = made.acquire(0, expert);
      taken.set(slot, expert);
      made.release(0, slot, panels);
      read.push(...serve());
    }
    return read;
  };
  return { made, serve, batch, failure };
}

function groupsOf(used: readonly number[]): ExpertGroups {
  const unused = () => 0;
  const positions = { start: unused, pair: unused, position: unused, groupOf: unused };
  return { count: () => used.length, expert: (group) => used[group]!, ...positions };
}

test("slots: what was not used for longest goes first", () => {
  const { batch, made } = slotsOf(4);
  expect(batch([0, 1])).toEqual([0, 1]);
  expect(batch([2, 3])).toEqual([2, 3]);
  expect(batch([0, 4])).toEqual([4]); // in place of 1
  expect(batch([0, 2, 3, 4])).toEqual([]);
  expect(batch([1, 2])).toEqual([1]); // in place of 0
  expect(batch([0])).toEqual([0]);
  const { hits, misses, readBytes } = made.counts;
  expect({ hits, misses, readBytes }).toEqual({ hits: 6, misses: 7, readBytes: 700 });
});

test("slots: a batch of all experts reads each that is missing once, and keeps most", () => {
  const { batch } = slotsOf(4);
  const all = Array.from({ length: experts }, (_, i) => i);
  expect(batch(all)).toEqual(all);
  for (let round = 0; round < 3; round++) {
    const read = batch(all);
    expect(new Set(read).size).toBe(read.length);
    expect(read.length).toBeLessThanOrEqual(6);
  }
});

test("slots: what is expected is read last, and forgotten where it is not used", () => {
  const { batch, made, serve } = slotsOf(4);
  batch([0, 1, 2, 3]);
  batch([2, 3]);
  made.expect(0, [4, 2]);
  expect(serve()).toEqual([4]); // in place of 0
  expect(batch([2, 4])).toEqual([]);
  made.expect(0, [5, 6]); // in place of 1 and 3
  made.begin(0, groupsOf([6, 7]), 1);
  expect(serve()).toEqual([6, 7]); // nobody had begun to read 5
  for (const expert of [6, 7]) made.release(0, made.acquire(0, expert), panels);
  expect(batch([2, 4])).toEqual([]); // still there
  const { guessed, guessedRight, misses } = made.counts;
  expect({ guessed, guessedRight, misses }).toEqual({ guessed: 2, guessedRight: 2, misses: 5 });
  // All that it holds was used last: no guess takes its place.
  batch([2, 4, 6, 7]);
  made.expect(0, [0, 1]);
  expect(serve()).toEqual([]);
});

test.each([
  { name: "saves time", withMs: 8, without: 10, wins: true },
  { name: "saves nothing", withMs: 9.9, without: 10, wins: false },
])("reading ahead is tried in turns, and kept where it $name", ({ withMs, without, wins }) => {
  let now = 0;
  const ahead = new ReadAhead("measured", new Float64Array(DEMAND_NUMBER.count), () => now);
  const token = () => {
    ahead.begin(1);
    now += ahead.isOn ? withMs : without;
    ahead.end(1);
    return ahead.isOn;
  };
  const tried = Array.from({ length: 48 }, token);
  expect(tried.filter((isOn) => isOn).length).toBe(24);
  expect(tried.slice(0, 8)).not.toContain(true);
  expect(new Set(Array.from({ length: 400 }, token))).toEqual(new Set([wins]));
  ahead.begin(5); // a prompt
  expect(ahead.isOn).toBe(false);
  // The other may have become faster: it is tried again.
  expect(new Set(Array.from({ length: 120 }, token))).toEqual(new Set([true, false]));
});

test("slots: a disk that does not answer fails the batch, and nobody waits for a slot then", () => {
  const { made, failure } = slotsOf(2);
  made.begin(0, groupsOf([0, 1, 2]), 1);
  expect(failure()).toBeUndefined();
  expect(() => made.acquire(0, 1)).toThrow(ChunkUnavailable); // nothing is read
  expect(failure()).toBe("w: the disk has not answered for 0.03 s");
  // Both slots are of experts that will not come.
  expect(() => made.acquire(0, 2)).toThrow(ChunkUnavailable);
  expect(() => made.begin(0, groupsOf([3]), 1)).toThrow(ChunkUnavailable);
});

test("slots: what a thread uses stays until it is released, and a reset forgets what was not read", () => {
  const { made, serve } = slotsOf(2);
  made.begin(0, groupsOf([0, 1, 2]), 1);
  expect(serve()).toEqual([0, 1]);
  const first = made.acquire(0, 0);
  made.begin(0, groupsOf([0, 2, 3]), 1);
  expect(serve()).toEqual([2]);
  expect(made.acquire(0, 0)).toBe(first);
  made.release(0, first, panels);
  made.release(0, first, 0);
  made.reset();
  made.begin(0, groupsOf([0, 2]), 1);
  expect(serve().length).toBeLessThanOrEqual(1);
});
