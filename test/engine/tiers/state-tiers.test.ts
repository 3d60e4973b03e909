// State outside of the backend: a text that goes on from stored state gets the bits of a fresh run, for every kind of state at
// once, after restarts, with damaged, lost and full files; and pools are empty in the end.

import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import type { Backend } from "../../../src/backends/backend.ts";
import { CpuBackend } from "../../../src/backends/cpu/cpu.ts";
import { ReferenceBackend } from "../../../src/backends/reference/reference.ts";
import type { Sequence } from "../../../src/engine/state/sequence.ts";
import { DiskTier } from "../../../src/engine/tiers/disk-tier.ts";
import { rootKey } from "../../../src/engine/tiers/keys.ts";
import { RamTier } from "../../../src/engine/tiers/ram-tier.ts";
import { StateTiers } from "../../../src/engine/tiers/state-tiers.ts";
import type { BlockFolders } from "../../../src/platform/block-files.ts";
import { nodeBlockFolders } from "../../../src/platform/node-block-files.ts";
import { Random } from "../../support/random.ts";
import { type MixedRoom, mixedRoom, vocab } from "../state/mixed-capacity.ts";
import { MemoryFolders } from "./memory-folders.ts";

interface Stage {
  readonly mixed: MixedRoom;
  readonly backend: Backend;
  readonly said: string[];
  /** Another process, or the next one: new tiers over the same folders. */
  start(options?: {
    folders?: BlockFolders;
    ram?: number;
    disk?: number;
    root?: string;
  }): StateTiers;
}

async function stage(
  folders: BlockFolders,
  backend: Backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined }),
): Promise<Stage> {
  const mixed = await mixedRoom(backend);
  const said: string[] = [];
  const kinds = mixed.room.tierKinds;
  return {
    mixed,
    backend,
    said,
    start({ folders: others = folders, ram = 0, disk = 1e9, root = "a model" } = {}) {
      const key = rootKey([root]);
      const unitBytes = kinds.map((kind) => kind.unitBytes);
      const onUnit: StateTiers["onUnit"] = (unit) => tiers.onUnit(unit);
      const say = (sentence: string) => said.push(sentence);
      const parts = {
        folders: others,
        root: key,
        budgetBytes: disk,
        unitBytes,
        onUnit,
        say,
        now: () => 0,
      };
      const tiers: StateTiers = new StateTiers({
        root: key,
        kinds,
        transfer: backend.transfer!,
        now: () => 0,
        say,
        ram: new RamTier(ram),
        disk:
          disk > 0
            ? Promise.resolve().then(() => DiskTier.open(parts))
            : Promise.resolve(undefined),
      });
      started.push(tiers);
      return tiers;
    },
  };
}

const started: StateTiers[] = [];

function tokensOf(random: Random, count: number): number[] {
  return Array.from({ length: count }, () => random.below(vocab));
}

/** Computes a text and stores it; a turn of the conversation ends every 72 tokens. */
async function write(
  { mixed }: Stage,
  tiers: StateTiers,
  tokens: readonly number[],
): Promise<void> {
  const sequence = mixed.room.newSequence();
  for (let at = 0; at < tokens.length; at += 24) {
    await mixed.append(sequence, tokens.slice(at, at + 24));
    tiers.note(sequence);
    if ((at + 24) % 72 === 0) tiers.mark(sequence);
  }
  tiers.mark(sequence);
  await tiers.settled();
  sequence.release();
}

/** A sequence that begins with what is stored of the text; the rest is computed, and must give the bits of a fresh run. */
async function goOn(
  { mixed }: Stage,
  tiers: StateTiers,
  tokens: readonly number[],
): Promise<{ found: number; sequence: Sequence }> {
  const sequence = mixed.room.newSequence();
  const { ram, disk } = await tiers.extend(sequence, tokens, (length) =>
    mixed.room.makeRoomToExtend(sequence, length),
  );
  const found = sequence.length;
  expect(ram + disk).toBe(found);
  const logits = await mixed.append(sequence, tokens.slice(found));
  expect(logits).toEqual(await mixed.fresh(tokens));
  return { found, sequence };
}

function expectEmpty({ mixed, backend }: Stage): void {
  expect(mixed.room.pools.map(({ usedCount }) => usedCount)).toEqual([0, 0, 0, 0]);
  backend.dispose();
}

const made: string[] = [];
afterEach(async () => {
  for (const tiers of started.splice(0)) await tiers.close();
  for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
});

describe.each([
  { name: "reference", make: () => new ReferenceBackend() },
  { name: "cpu", make: () => new CpuBackend({ level: 3, threads: 1, startThread: undefined }) },
])("$name", ({ make }) => {
  test("after a restart, only what is new is computed: every kind of state, at any length", async () => {
    const folder = mkdtempSync(join(tmpdir(), "lantern-state-"));
    made.push(folder);
    const on = await stage(nodeBlockFolders(folder), make());
    const random = new Random(1);
    for (const length of [64, 96, 100, 200, 255]) {
      const text = tokensOf(random, length);
      await write(on, on.start(), text);
      const { found, sequence } = await goOn(on, on.start(), [...text, ...tokensOf(random, 9)]);
      expect(found).toBe(length);
      sequence.release();
    }
    expect(on.said).toEqual([]);
    const [root] = await readdir(folder);
    for (const file of await readdir(join(folder, root!))) {
      expect(statSync(join(folder, root!, file)).mode & 0o777).toBe(0o600);
    }
    expect(statSync(join(folder, root!)).mode & 0o777).toBe(0o700);
    expectEmpty(on);
  });

  test("branches share what they have in common, in memory and on disk", async () => {
    for (const options of [{ ram: 1e9, disk: 0 }, { ram: 0 }, { ram: 20_000 }]) {
      const on = await stage(new MemoryFolders(), make());
      const random = new Random(2);
      const tiers = on.start(options);
      const trunk = tokensOf(random, 128);
      const texts = [1, 2, 3].map(() => [...trunk, ...tokensOf(random, 70)]);
      for (const text of texts) await write(on, tiers, text);
      for (const text of texts) {
        const { found, sequence } = await goOn(on, tiers, [...text, 1, 2, 3]);
        expect(found).toBe(text.length);
        sequence.release();
      }
      await tiers.settled(); // what came from disk goes to memory
      expectEmpty(on);
    }
  });
});

test("a turn of the event loop after each batch of a prompt: its blocks are written while it is computed", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lantern-state-"));
  made.push(folder);
  const on = await stage(nodeBlockFolders(folder));
  const tiers = on.start();
  await goOn(on, tiers, tokensOf(new Random(7), 3)).then(({ sequence }) => sequence.release()); // opens the folder
  const sequence = on.mixed.room.newSequence();
  const text = tokensOf(new Random(8), 240);
  /** Without a turn of its own. */
  const written = (): number => {
    const files = readdirSync(folder, { recursive: true }) as string[];
    return files.reduce((sum, file) => sum + statSync(join(folder, file)).size, 0);
  };
  const before = written();
  for (let at = 0; at < text.length; at += 24) {
    await on.mixed.append(sequence, text.slice(at, at + 24));
    tiers.note(sequence);
    await tiers.turn();
  }
  // Turns are all that it takes, as many as the disk needs; nobody waits for what is written.
  while (written() === before) await tiers.turn();
  await tiers.settled();
  sequence.release();
  expectEmpty(on);
});

test("another model, or another way to compute it, finds nothing", async () => {
  const on = await stage(new MemoryFolders());
  const text = tokensOf(new Random(3), 150);
  await write(on, on.start(), text);
  const { found, sequence } = await goOn(on, on.start({ root: "another" }), [...text, 1]);
  expect(found).toBe(0);
  sequence.release();
  expectEmpty(on);
});

test("two at a time on one folder find each other's", async () => {
  const on = await stage(new MemoryFolders());
  const random = new Random(4);
  const [one, other] = [on.start(), on.start()];
  for (let round = 0; round < 4; round++) {
    const [first, second] = [tokensOf(random, 90), tokensOf(random, 70)];
    await Promise.all([write(on, one, first), write(on, other, second)]);
    for (const [tiers, text] of [
      [one, second],
      [other, first],
    ] as const) {
      const { found, sequence } = await goOn(on, tiers, [...text, 5]);
      expect(found).toBe(text.length);
      sequence.release();
    }
  }
  expect(on.said).toEqual([]);
  expectEmpty(on);
});

test("cut off or damaged anywhere: less is found, never anything wrong", async () => {
  const folders = new MemoryFolders();
  const on = await stage(folders);
  const random = new Random(5);
  const text = tokensOf(random, 200);
  await write(on, on.start(), text);
  const [name, whole] = [...folders.files][0]!;
  const original = whole.bytes;
  const lengths = new Set<number>();
  for (let round = 0; round < 24; round++) {
    const bytes = original.slice(
      0,
      random.below(2) ? original.length : random.below(original.length),
    );
    if (bytes.length === original.length)
      bytes[random.below(bytes.length)]! ^= 1 << random.below(8);
    folders.files.clear();
    folders.files.set(name, { bytes, usedAt: 1 });
    const { found, sequence } = await goOn(on, on.start(), [...text, 7, 8]);
    lengths.add(found);
    sequence.release();
  }
  expect(lengths.size).toBeGreaterThan(2);
  expect(on.said.some((sentence) => sentence.includes("damaged"))).toBe(true);
  expectEmpty(on);
});

test("a full disk is said, and what was stored before stays readable", async () => {
  const folders = new MemoryFolders();
  const on = await stage(folders);
  const random = new Random(6);
  const [first, second] = [tokensOf(random, 100), tokensOf(random, 150)];
  const tiers = on.start();
  await write(on, tiers, first);
  folders.room = 5000;
  await write(on, tiers, second);
  expect(on.said.join()).toContain("no space left on the disk");
  for (const text of [first, second]) {
    const { found, sequence } = await goOn(on, on.start(), [...text, 1]);
    if (text === first) expect(found).toBe(100);
    else expect(found).toBeLessThan(150);
    sequence.release();
  }
  expectEmpty(on);
});

test("within its budget: the least recently used goes first", async () => {
  const folders = new MemoryFolders();
  const on = await stage(folders);
  const random = new Random(7);
  const texts = Array.from({ length: 12 }, () => tokensOf(random, 100));
  await write(on, on.start(), texts[0]!);
  const one = [...folders.files.values()][0]!.bytes.length;
  const disk = one * 6;
  const used = () => [...folders.files.values()].reduce((sum, { bytes }) => sum + bytes.length, 0);
  for (const text of texts.slice(1)) {
    await write(on, on.start({ disk }), text);
    expect(used()).toBeLessThanOrEqual(disk);
    // The first is used all the time.
    const { found, sequence } = await goOn(on, on.start({ disk }), [...texts[0]!, 1]);
    expect(found).toBe(100);
    sequence.release();
  }
  const last = await goOn(on, on.start({ disk }), [...texts.at(-1)!, 1]);
  expect(last.found).toBe(100);
  last.sequence.release();
  const second = await goOn(on, on.start({ disk }), [...texts[1]!, 1]);
  expect(second.found).toBe(0);
  second.sequence.release();
  expectEmpty(on);
});

test("a folder that cannot be written to is said once", async () => {
  const on = await stage(new MemoryFolders());
  const closed = new MemoryFolders();
  closed.folder = async () => {
    throw new Error("read-only");
  };
  const tiers = on.start({ folders: closed });
  const text = tokensOf(new Random(8), 100);
  await write(on, tiers, text);
  const { found, sequence } = await goOn(on, tiers, [...text, 1]);
  expect(found).toBe(0);
  sequence.release();
  expect(on.said).toEqual(["state is not kept on disk: read-only"]);
  expectEmpty(on);
});

test("random texts with common beginnings, restarts between them", async () => {
  const on = await stage(new MemoryFolders());
  const random = new Random(9);
  const texts: number[][] = [];
  let gained = 0;
  for (let round = 0; round < 25; round++) {
    const old = texts.length > 0 && random.below(3) > 0 ? random.pick(texts) : [];
    const text = [
      ...old.slice(0, random.below(2) ? old.length : random.below(old.length + 1)),
      ...tokensOf(random, 1 + random.below(90)),
    ];
    if (text.length > 290) continue;
    const tiers = on.start({ ram: random.pick([0, 1e5]) });
    const { found, sequence } = await goOn(on, tiers, text);
    gained += found;
    tiers.mark(sequence);
    await tiers.settled();
    sequence.release();
    texts.push(text);
  }
  expect(gained).toBeGreaterThan(200);
  expectEmpty(on);
});

test("what may be wrong is given up: its files are removed, those of others stay, and nothing is copied any more", async () => {
  const folders = new MemoryFolders();
  const on = await stage(folders);
  const random = new Random(10);
  const [good, bad, later] = [100, 90, 80].map((length) => tokensOf(random, length)) as number[][];
  await write(on, on.start(), good!);
  const tiers = on.start({ ram: 1e9 });
  await write(on, tiers, bad!);
  expect(folders.files.size).toBe(2);
  await tiers.discard();
  await write(on, tiers, later!);
  expect(folders.files.size).toBe(1);
  expect(on.said.join()).toContain("not finite");
  for (const [text, found] of [
    [good!, 100],
    [bad!, 0],
    [later!, 0],
  ] as const) {
    const next = await goOn(on, on.start(), [...text, 1]);
    expect(next.found).toBe(found);
    next.sequence.release();
    const same = await goOn(on, tiers, [...text, 1]);
    expect(same.found).toBe(0);
    same.sequence.release();
  }
  expectEmpty(on);
});

test("a copy that fails is said, and the rest goes on", async () => {
  const on = await stage(new MemoryFolders());
  const { transfer } = on.backend;
  Object.defineProperty(on.backend, "transfer", {
    value: { ...transfer, readBlock: () => Promise.reject(new Error("the device is lost")) },
  });
  const tiers = on.start({ ram: 1e9 });
  const text = tokensOf(new Random(11), 100);
  await write(on, tiers, text);
  expect(on.said.join()).toContain("the device is lost");
  const { found, sequence } = await goOn(on, tiers, [...text, 1]);
  expect(found).toBe(0);
  sequence.release();
  expectEmpty(on);
});

test("units that wait to be copied leave their room to tokens that need it, and are copied all the same", async () => {
  const on = await stage(new MemoryFolders());
  const { room } = on.mixed;
  const tiers = on.start();
  room.tiers = tiers;
  const text = tokensOf(new Random(12), 200);
  const sequence = room.newSequence();
  await on.mixed.append(sequence, text);
  tiers.mark(sequence);
  sequence.release();
  const [pool] = room.pools as [(typeof room.pools)[number]];
  expect(pool.usedCount).toBeGreaterThan(0); // what waits is held
  const others = Array.from({ length: pool.freeCount }, () => pool.take());
  const next = room.newSequence();
  room.makeRoom(next, 64);
  expect(pool.freeCount).toBeGreaterThan(1);
  // Other tokens are written over what waited.
  await on.mixed.append(next, tokensOf(new Random(13), 64));
  for (const block of others) pool.release(block);
  next.release();
  await tiers.settled();
  const { found, sequence: again } = await goOn(on, tiers, [...text, 1, 2]);
  expect(found).toBe(200);
  again.release();
  expectEmpty(on);
});
