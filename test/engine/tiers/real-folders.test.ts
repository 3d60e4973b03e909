// Stored state in real folders, by real processes: killed writers, a full disk, a folder that cannot be written to, two writers at once,
// clocks that jump, files of a newer version. npm run stress:cache kills 1,000.
// Held against: the bytes that were written.

import { spawn } from "node:child_process";
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";
import { unitId } from "../../../src/engine/tiers/keys.ts";
import { NOBODY } from "../../../src/engine/tiers/owners.ts";
import { SEGMENT_HEADER_BYTES, segmentHeader } from "../../../src/engine/tiers/segment.ts";
import { Random } from "../../support/random.ts";
import { killWriter, survivors } from "./kill-writers.ts";
import { unitData, unitRoot, unitsOf, unitTier } from "./unit-writer.ts";

const made: string[] = [];
const newFolder = (): string => {
  made.push(mkdtempSync(join(tmpdir(), "lantern-units-")));
  return made.at(-1)!;
};
afterEach(() => {
  for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** Writes the first units of a text; returns their names, and what was said. */
async function write(
  folder: string,
  seed: number,
  count: number,
  budgetBytes = 64e6,
): Promise<{ ids: string[]; said: string[] }> {
  const said: string[] = [];
  const tier = await unitTier(folder, { budgetBytes, say: (sentence) => said.push(sentence) });
  const ids: string[] = [];
  for (const unit of unitsOf(seed)) {
    if (ids.length === count) break;
    await tier?.append([{ unit, owners: [NOBODY], data: unitData(unit.key, unit.kind) }]);
    ids.push(unitId(unit.key, unit.kind));
  }
  await tier?.close();
  return { ids, said };
}

function* take<T>(items: Iterable<T>, count: number): Generator<T> {
  let left = count;
  for (const item of items) {
    if (left-- === 0) return;
    yield item;
  }
}

const about = {
  ...{ model: "a model", weights: "1", graph: "2", kvType: "f16" },
  ...{ backend: "cpu", kernels: "wasm", exact: "no", rounding: "3" },
};

/** Files that this process holds open; 0 where the system does not say. */
const openFiles = (): number => {
  try {
    return readdirSync("/proc/self/fd").length;
  } catch {
    return 0;
  }
};

const segments = (folder: string): string[] =>
  readdirSync(join(folder, unitRoot))
    .filter((name) => name.endsWith(".state"))
    .map((name) => join(folder, unitRoot, name));

test("into several pieces of memory, as into one; a damaged unit into none", async () => {
  const folder = newFolder();
  const { ids } = await write(folder, 3, 2);
  const units = [...take(unitsOf(3), 2)];
  const tier = (await unitTier(folder, { budgetBytes: 64e6, say: () => undefined }))!;
  const shared = (bytes: number) => new Uint8Array(new SharedArrayBuffer(bytes));
  for (const [i, { key, kind }] of units.entries()) {
    const data = unitData(key, kind);
    const pieces = [shared(1), shared(1000), shared(data.length - 1001)];
    expect(await tier.read(ids[i]!, pieces)).toBe(true);
    expect(Buffer.concat(pieces).equals(data)).toBe(true);
    expect(await tier.read(ids[i]!, pieces.slice(1)), "fewer bytes than the unit has").toBe(false);
  }
  await tier.close();
  const [segment] = segments(folder);
  const bytes = readFileSync(segment!);
  bytes[bytes.length - 5]! ^= 1;
  writeFileSync(segment!, bytes);
  const again = (await unitTier(folder, { budgetBytes: 64e6, say: () => undefined }))!;
  const { length } = unitData(units[1]!.key, units[1]!.kind);
  expect(await again.read(ids[1]!, [shared(8), shared(length - 8)])).toBe(false);
  await again.close();
});

test("looks at a folder at the same time, and while segments begin: every file is closed, and none is taken for lost", async () => {
  const folder = newFolder();
  await write(folder, 4, 3);
  await write(folder, 5, 3);
  const said: string[] = [];
  const before = openFiles();
  const tier = (await unitTier(folder, {
    budgetBytes: 420_000, // a segment holds an eighth of it: a unit or two
    about,
    say: (sentence) => said.push(sentence),
  }))!;
  for (const unit of take(unitsOf(6), 8)) {
    const data = unitData(unit.key, unit.kind);
    let isWritten = false;
    const written = tier.append([{ unit, owners: [NOBODY], data }]).then(() => {
      isWritten = true;
    });
    while (!isWritten) await tier.refresh(); // also between the making of a file and its first bytes
    await written;
    await write(folder, 20 + unit.length + unit.kind, 1); // another process
    await Promise.all([tier.refresh(), tier.refresh(), tier.refresh()]);
    expect(await tier.read(unitId(unit.key, unit.kind), [data])).toBe(true);
  }
  expect(said).toEqual([]);
  await Promise.all([tier.refresh(), tier.close()]);
  expect(openFiles()).toBe(before);
});

test("killed in the middle of writing, two at a time: what is found is right", async () => {
  const folder = newFolder();
  const random = new Random(1);
  await Promise.all([killWriter(folder, random), killWriter(folder, random)]);
  const { units, wrong, said } = await survivors(folder);
  expect({ wrong, said }).toEqual({ wrong: 0, said: [] });
  expect(units).toBeGreaterThan(0);
});

test("a disk that is full: said, what was written before is right, and half a unit is taken back", async ({
  skip,
}) => {
  if (process.platform === "win32") skip("there is no limit on the size of files");
  const folder = newFolder();
  const program = fileURLToPath(new URL("unit-writer.ts", import.meta.url));
  // Blocks of 512 or 1,024 bytes, by shell.
  const limited = `ulimit -f 300; exec "${process.execPath}" "${program}" "${folder}" 3 64e6 40`;
  const child = spawn("sh", ["-c", limited], { stdio: ["ignore", "pipe", "inherit"] });
  let out = "";
  for await (const piece of child.stdout) out += String(piece);
  expect(out).toContain("done"); // it went on without
  expect(out).toMatch(/state could not be kept on disk: .*Lantern goes on without/);
  const { units, wrong, said } = await survivors(folder);
  expect({ wrong, said }).toEqual({ wrong: 0, said: [] });
  expect(units).toBeGreaterThan(3);
  expect(units).toBeLessThan(40);
});

test("a folder that cannot be written to, or a file in its place: said once, nothing fails", async () => {
  const folder = newFolder();
  const file = join(folder, "file");
  writeFileSync(file, "");
  const { said } = await write(file, 1, 4);
  expect(said).toHaveLength(1);
  expect(said[0]).toContain("state is not kept on disk");
  if (process.getuid?.() === 0) return; // root may write everywhere
  const closed = newFolder();
  chmodSync(closed, 0o500);
  expect((await write(closed, 1, 4)).said).toHaveLength(1);
});

test("a clock that was wrong: no file is the newest for ever, and none is lost because it is old", async () => {
  const folder = newFolder();
  const budget = 600_000; // segments of 75 kB: a unit of each kind
  const first = await write(folder, 1, 2, budget);
  const [wrong] = segments(folder);
  utimesSync(wrong!, new Date("2199-01-01"), new Date("2199-01-01"));
  for (let seed = 2; seed < 30; seed++) await write(folder, seed, 2, budget);
  expect(segments(folder).length).toBeGreaterThan(4);
  expect(segments(folder)).not.toContain(wrong); // others were used later
  for (const name of segments(folder)) {
    expect(statSync(name).mtimeMs).toBeLessThan(Date.now() + 86_400_000);
    utimesSync(name, new Date(0), new Date(0));
  }
  const { units, said } = await survivors(folder, budget);
  expect(units).toBeGreaterThan(6);
  expect(said).toEqual([]);
  expect(first.said).toEqual([]);
});

test("a segment of a newer version: said, neither used nor removed, and others are written beside it", async () => {
  const folder = newFolder();
  await write(folder, 1, 2);
  const newer = segmentHeader(unitRoot);
  new DataView(newer.buffer).setUint32(8, 3, true);
  const [old] = segments(folder);
  writeFileSync(old!, newer);
  expect(statSync(old!).size).toBe(SEGMENT_HEADER_BYTES);
  const { said } = await write(folder, 2, 4);
  expect(said).toEqual([
    expect.stringContaining("it has version 3 of the format, and this Lantern reads version 2"),
  ]);
  expect(segments(folder)).toHaveLength(2);
  expect((await survivors(folder)).units).toBe(4);
});

test("truncated and flipped files: less is found, and what is found is right", async () => {
  const random = new Random(2);
  for (let round = 0; round < 6; round++) {
    const folder = newFolder();
    await write(folder, round, 8);
    const [name] = segments(folder) as [string];
    const bytes = readFileSync(name);
    const at = random.below(bytes.length);
    if (round % 2 === 0) writeFileSync(name, bytes.subarray(0, at));
    else {
      bytes[at]! ^= 1 << random.below(8);
      writeFileSync(name, bytes);
    }
    const { units, wrong, said } = await survivors(folder);
    expect(units).toBeLessThanOrEqual(8);
    // A unit whose bytes are damaged is found by its header, and refused when it is read.
    expect(wrong).toBe(said.filter((sentence) => sentence.includes("is damaged at byte")).length);
  }
});
