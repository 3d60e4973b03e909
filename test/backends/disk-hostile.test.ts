// A disk that fails while weights are read from it: an input/output error in the middle of a run, a read that does not end, and a file
// that another takes the place of. Each says what happened, later batches work again, and results have the same bits.

import { closeSync, constants, openSync, renameSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { DiskWeights } from "../../src/backends/cpu/disk/disk.ts";
import type { DiskLayout } from "../../src/backends/cpu/disk/layout.ts";
import { MESSAGE_BYTES, WORD } from "../../src/backends/cpu/disk/program.ts";
import { ChunkUnavailable, type ExecutorContext } from "../../src/backends/cpu/executor.ts";
import type { ArenaViews } from "../../src/backends/cpu/memory/arena.ts";
import { diskWait } from "../../src/backends/cpu/ops/disk-wait.ts";
import { Helpers } from "../../src/backends/cpu/threads/helpers.ts";
import { SourceError } from "../../src/base/errors.ts";
import { skippedFor } from "../support/skips.ts";
import { loaded } from "./disk-model.ts";
import { runBatches } from "./tiny-backend.ts";

const dense = { weightType: "q8_0", layers: 12, feedForward: 2048 };

/** Puts another file behind an open descriptor: the system gives the lowest number that is free. */
function replaceDescriptor(descriptor: number, path: string, flags: number): void {
  closeSync(descriptor);
  const others: number[] = [];
  for (;;) {
    const made = openSync(path, flags);
    if (made === descriptor) break;
    others.push(made);
    if (made > descriptor + 100) throw new Error(`descriptor ${descriptor} was not free`);
  }
  for (const other of others) closeSync(other);
}

// Reads of addresses at which this process has no memory are input/output errors there.
test.skipIf(process.platform !== "linux")(
  `an input/output error in the middle of a run, and a disk that works again${skippedFor("needs Linux's /proc", process.platform !== "linux")}`,
  async () => {
    const inMemory = await loaded(dense, 0);
    const expected = await runBatches(inMemory.backend, dense);
    await inMemory.close();
    const { backend, path, opened, close } = await loaded(dense, inMemory.content.length / 2);
    try {
      expect(await runBatches(backend, dense)).toEqual(expected);
      const [direct] = opened;
      replaceDescriptor(direct!.descriptor, "/proc/self/mem", constants.O_RDONLY);
      for (let time = 0; time < 2; time++) {
        const failed = await runBatches(backend, dense).catch((error: unknown) => error);
        expect(failed).toBeInstanceOf(SourceError);
        expect((failed as Error).message).toMatch(
          /^a weight could not be read from disk: blk\.\d+\.\w+\.weight: EIO: i\/o error, read\. The batch is lost/,
        );
      }
      replaceDescriptor(direct!.descriptor, path, constants.O_RDONLY);
      expect(await runBatches(backend, dense)).toEqual(expected);
    } finally {
      await close();
    }
  },
);

test("a file that another takes the place of is read as it was", async () => {
  const { backend, path, content, close } = await loaded(dense, 4e6);
  try {
    const expected = await runBatches(backend, dense);
    writeFileSync(`${path}.new`, new Uint8Array(content.length));
    renameSync(`${path}.new`, path);
    expect(await runBatches(backend, dense)).toEqual(expected);
  } finally {
    await close();
  }
});

const message = WORD.count * 4;
const done = message + 4 + MESSAGE_BYTES;

/** Memory of readers, of whom none is there: a cycle of two weights, a piece each. */
function memory(): Pick<ArenaViews, "i32" | "u8"> {
  const buffer = new SharedArrayBuffer(done + 8);
  return { i32: new Int32Array(buffer), u8: new Uint8Array(buffer) };
}

test("a read that does not end: the wait fails and says for what; the next batch does not wait forever", () => {
  const views = memory();
  const place = { words: 0, done, message, waitMs: 30 };
  const wait = { op: "disk_wait", ...place, weights: 2, first: 0, pieces: [1], name: "w" } as const;
  const { run } = diskWait.execute(wait, { views } as ExecutorContext);
  expect(() => run(0)).toThrow(ChunkUnavailable);
  const program = { ...place, weights: [{}, {}], pieces: 2, readers: 0, times: 0 };
  const layout = { program, descriptors: [], plan: {} } as unknown as DiskLayout;
  const onDisk = new DiskWeights(
    layout,
    views as ArenaViews,
    undefined!,
    new Helpers(0, undefined),
    30,
  );
  expect(onDisk.failure()).toBeInstanceOf(SourceError);
  expect(onDisk.failure()!.message).toContain("disk: w: the disk has not answered for 0.03 s.");
  Atomics.store(views.i32, WORD.busy, 1);
  expect(() => onDisk.begin()).toThrow(/^the disk still does not answer/);
  expect(() => onDisk.begin()).toThrow(/^the disk still does not answer/);
  Atomics.store(views.i32, WORD.busy, 0);
  onDisk.begin();
  expect(onDisk.failure()).toBeUndefined();
  expect(views.i32[WORD.paused]).toBe(0);
});
