// A process that writes stored state as fast as it can, until it is killed: units whose bytes follow from their key, so that whoever
// reads them knows what they must be. Run by kills.test.ts and by npm run stress:cache.
//
//   node unit-writer.ts FOLDER SEED [BUDGET-BYTES] [UNITS]

import { argv } from "node:process";
import { pathToFileURL } from "node:url";
import { DiskTier, type DiskTierParts } from "../../../src/engine/tiers/disk-tier.ts";
import { nextKey, rootKey, type StateKey } from "../../../src/engine/tiers/keys.ts";
import { NOBODY } from "../../../src/engine/tiers/owners.ts";
import type { UnitFacts } from "../../../src/engine/tiers/segment.ts";
import { nodeBlockFolders } from "../../../src/platform/node-block-files.ts";

export const unitRoot: StateKey = rootKey(["units of a test"]);
/** Of each kind: around a page, and far from it. */
export const unitBytes: readonly number[] = [4096, 50_000];

export function unitTier(
  folder: string,
  more: Partial<DiskTierParts> = {},
): Promise<DiskTier | undefined> {
  return DiskTier.open({
    folders: nodeBlockFolders(folder),
    root: unitRoot,
    budgetBytes: 64e6,
    unitBytes,
    onUnit: () => {},
    say: () => {},
    now: () => performance.now(),
    ...more,
  });
}

/** The bytes of a unit. */
export function unitData(key: StateKey, kind: number): Uint8Array<ArrayBuffer> {
  const words = new Uint32Array(unitBytes[kind]! / 4);
  let state = Number.parseInt(key.slice(0, 8), 16) + kind;
  for (let i = 0; i < words.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    words[i] = state;
  }
  return new Uint8Array(words.buffer);
}

/** The units of a text, one after the other; texts of the same seed are the same. */
export function* unitsOf(seed: number): Generator<UnitFacts> {
  let parent = unitRoot;
  for (let number = 0; ; number++) {
    const tokens = Int32Array.from({ length: 32 }, (_, i) => seed * 1000 + number + i);
    const key = nextKey(parent, tokens);
    for (const kind of unitBytes.keys()) {
      yield { kind, key, parent, tokens: tokens.length, length: (number + 1) * 32 };
    }
    parent = key;
  }
}

async function write(folder: string, seed: number, budgetBytes: number, most: number) {
  const said = (sentence: string) => console.log(sentence);
  const tier = await unitTier(folder, { budgetBytes, say: said });
  let written = 0;
  for (const unit of unitsOf(seed)) {
    await tier?.append([{ unit, owners: [NOBODY], data: unitData(unit.key, unit.kind) }]);
    if (++written === 4) console.log("writing");
    if (written >= most) break;
  }
  await tier?.close();
  console.log("done");
}

if (import.meta.url === pathToFileURL(argv[1] ?? "").href) {
  const [folder, seed, budget = "64e6", most = "1e9"] = argv.slice(2);
  await write(folder!, Number(seed), Number(budget), Number(most));
}
