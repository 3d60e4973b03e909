// Whose state it is: units that a conversation has alone are erased with it, those that others have as well stay, and a process that is
// killed in the middle goes on with that. Records are read from the files, byte by byte.

import { expect, test } from "vitest";
import { DiskTier } from "../../../src/engine/tiers/disk-tier.ts";
import { eraseOwners } from "../../../src/engine/tiers/erase.ts";
import { nextKey, rootKey, unitId } from "../../../src/engine/tiers/keys.ts";
import { isPrivate, NOBODY, ownerOf, ownersOf } from "../../../src/engine/tiers/owners.ts";
import { RamTier } from "../../../src/engine/tiers/ram-tier.ts";
import {
  defaultCrc32,
  RECORD_HEADER_BYTES,
  SEGMENT_HEADER_BYTES,
  segmentHeader,
  type UnitFacts,
} from "../../../src/engine/tiers/segment.ts";
import { MemoryFolders } from "./memory-folders.ts";

const root = rootKey(["a model"]);
const unitBytes = 1000;
const [anna, berta] = [ownerOf("Anna"), ownerOf("Berta")];

/** The n-th block of a text. */
function unitOf(text: number, block: number): UnitFacts {
  const tokens = Int32Array.from({ length: 32 }, (_, i) => text * 1000 + block * 32 + i);
  const key = nextKey(root, tokens);
  return { kind: 0, key, parent: root, tokens: 32, length: (block + 1) * 32 };
}

/** Bytes that stand nowhere else. */
const dataOf = ({ key }: UnitFacts): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(key.repeat(32)).slice(0, unitBytes);

interface Opened {
  readonly tier: DiskTier;
  readonly said: string[];
  readonly lost: string[];
}

async function open(folders: MemoryFolders): Promise<Opened> {
  const said: string[] = [];
  const lost: string[] = [];
  const tier = await DiskTier.open({
    ...{ folders, root, budgetBytes: 1e9, unitBytes: [unitBytes], now: () => 0 },
    onUnit: () => undefined,
    onLost: (id, reason) => lost.push(`${id} ${reason}`),
    say: (sentence) => said.push(sentence),
  });
  return { tier: tier!, said, lost };
}

const hold = (folders: MemoryFolders, unit: UnitFacts): boolean =>
  [...folders.files.values()].some(({ bytes }) =>
    Buffer.from(bytes).includes(dataOf(unit).slice(0, 64)),
  );

const read = (tier: DiskTier, { key, kind }: UnitFacts): Promise<boolean> =>
  tier.read(unitId(key, kind), [new Uint8Array(unitBytes)]);

test("what one conversation has alone is erased, in the files of all processes; what others have stays theirs", async () => {
  const folders = new MemoryFolders();
  const [first, second] = [await open(folders), await open(folders)];
  const [own, shared, other, nobodys] = [unitOf(1, 0), unitOf(1, 1), unitOf(2, 0), unitOf(3, 0)];
  const write = (unit: UnitFacts, ...owners: string[]) => ({ unit, owners, data: dataOf(unit) });
  await first.tier.append([write(own, anna), write(shared, anna), write(nobodys, anna, NOBODY)]);
  await second.tier.refresh();
  await second.tier.append([write(other, berta), { unit: shared, owners: [berta] }]);
  await second.tier.append([write(own, anna)]); // it is there
  expect(second.tier.isOwned(unitId(shared.key, 0), anna)).toBe(true);

  await first.tier.forget([anna]);
  expect([own, shared, other, nobodys].map((unit) => hold(folders, unit))).toEqual([
    ...[false, true, true, true],
  ]);
  for (const { tier } of [first, second]) {
    expect(await read(tier, shared)).toBe(true);
    expect(await read(tier, nobodys)).toBe(true);
    expect(await read(tier, own)).toBe(false);
  }
  expect(first.lost.concat(second.lost)).toEqual([
    ...[`${unitId(own.key, 0)} removed`, `${unitId(own.key, 0)} removed`],
  ]);
  // A process that starts now finds the owners of what is left.
  const third = await open(folders);
  expect(third.tier.isOwned(unitId(shared.key, 0), berta)).toBe(true);
  expect(third.tier.isOwned(unitId(shared.key, 0), anna)).toBe(false);
  await third.tier.forget([berta]);
  expect([shared, other, nobodys].map((unit) => hold(folders, unit))).toEqual([false, false, true]);
  expect([first, second, third].flatMap(({ said }) => said)).toEqual([]);
});

test("after every write of an erasure, the next one finishes it", async () => {
  for (let writes = 0; ; writes++) {
    const folders = new MemoryFolders();
    const { tier } = await open(folders);
    const [own, shared] = [unitOf(1, 0), unitOf(1, 1)];
    const data = dataOf(own);
    await tier.append([
      { unit: own, owners: [anna], data },
      { unit: shared, owners: [anna, berta], data: dataOf(shared) },
    ]);
    await tier.close();
    const folder = await folders.folder(root);
    let left = writes;
    const change: typeof folder.change = async (name) => {
      const writer = await folder.change(name);
      const stop = (): void => {
        if (left-- === 0) throw new Error("killed");
      };
      return (
        writer && {
          ...writer,
          write: async (offset, ...pieces) => {
            stop();
            await writer.write(offset, ...pieces);
          },
        }
      );
    };
    const isKilled = await eraseOwners({ ...folder, change }, root, [anna], defaultCrc32).then(
      () => false,
      () => true,
    );
    await eraseOwners(folder, root, [anna], defaultCrc32);
    expect(hold(folders, own)).toBe(false);
    const again = await open(folders);
    expect(await read(again.tier, shared)).toBe(true);
    expect(again.said).toEqual([]);
    if (!isKilled) {
      expect(writes).toBeGreaterThan(2);
      return;
    }
  }
});

test("half a record, and what lies behind damage, goes as well", async () => {
  const folders = new MemoryFolders();
  const { tier } = await open(folders);
  const units = [0, 1, 2].map((block) => unitOf(1, block));
  await tier.append([{ unit: units[0]!, owners: [berta], data: dataOf(units[0]!) }]);
  await tier.append([{ unit: units[1]!, owners: [anna], data: dataOf(units[1]!) }]);
  await tier.close();
  const [[name, file]] = [...folders.files] as [[string, { bytes: Uint8Array; usedAt: number }]];
  file.bytes = file.bytes.slice(0, -10); // its writer was killed
  await eraseOwners(await folders.folder(root), root, [anna], defaultCrc32);
  const record = RECORD_HEADER_BYTES + unitBytes;
  expect(folders.files.get(name)!.bytes.length).toBe(SEGMENT_HEADER_BYTES + record);
  expect(hold(folders, units[0]!)).toBe(true);

  file.bytes[SEGMENT_HEADER_BYTES + 40]! ^= 1; // of a key: nobody knows any more whose it is
  await eraseOwners(await folders.folder(root), root, [anna], defaultCrc32);
  expect(hold(folders, units[0]!)).toBe(false);
});

test("files of an earlier version, which do not say whose state they hold, are removed", async () => {
  const folders = new MemoryFolders();
  const folder = await folders.folder(root);
  const old = segmentHeader(root);
  new DataView(old.buffer).setUint32(8, 1, true);
  const look = [
    () => open(folders),
    () => eraseOwners(folder, root, [anna], defaultCrc32),
  ] satisfies (() => Promise<unknown>)[];
  for (const remove of look) {
    const writer = await folder.create("old.state");
    await writer.write(0, old);
    await remove();
    expect([...folders.files.keys()]).toEqual([]);
  }
});

test("memory: units with other owners stay, others are overwritten", () => {
  const ram = new RamTier(10_000);
  const bytes = [1, 2, 3].map((value) => new Uint8Array(100).fill(value));
  ram.put("own", bytes[0]!, [anna]);
  ram.put("shared", bytes[1]!, [anna]);
  ram.put("shared", bytes[2]!, [berta]); // it is there, and hers as well
  ram.forget([anna]);
  expect([ram.has("own"), ram.has("shared"), ram.held.bytes]).toEqual([false, true, 100]);
  expect(bytes[0]!.every((value) => value === 0)).toBe(true);
  ram.forget([berta]);
  expect(ram.has("shared")).toBe(false);
});

test("an owner is a hash; private ones are never written", async () => {
  expect(ownerOf("Anna")).toMatch(/^[0-9a-f]{32}$/);
  expect(ownerOf(undefined)).toBe(NOBODY);
  expect(isPrivate(ownerOf("Anna", false)) && isPrivate(ownerOf(undefined, false))).toBe(true);
  expect(ownersOf("Anna")).toContain(ownerOf("Anna", false));
  const folders = new MemoryFolders();
  const { tier } = await open(folders);
  const unit = unitOf(1, 0);
  await tier.append([{ unit, owners: [ownerOf("Anna", false)], data: dataOf(unit) }]);
  expect(folders.files.size).toBe(0);
});
