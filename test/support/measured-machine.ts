// A measurement of this machine that a test makes up, remembered in a cache folder of its own: limits are then known
// numbers, on whichever machine the test runs.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { vi } from "vitest";
import type { MachineMeasurement } from "../../src/api/rates.ts";
import { loweringText, machineToText } from "../../src/machine/file.ts";
import { expectedTarget } from "../../src/machine/native.ts";
import { nodePlatform } from "../../src/platform/node.ts";

const rates = (perSecond: number) => [
  { threads: 1, perSecond },
  { threads: 2, perSecond: 1.5 * perSecond },
];

/** Reads 1 GB/s from memory and 4 GB/s from a cache with one thread. */
export async function madeUpMachine(): Promise<MachineMeasurement> {
  return {
    cpu: nodePlatform.cpu(),
    cores: nodePlatform.cores,
    memoryBytes: 64e9,
    lowering: loweringText(await expectedTarget(nodePlatform)),
    readBytes: rates(1e9),
    cachedReads: [{ setBytes: 2 ** 20, readBytes: rates(4e9) }],
    f32Ops: rates(7e10),
    int8Ops: rates(28e10),
    measuredAt: "2026-11-15T05:10:37.842Z",
  };
}

/** For everything in this process, until `forget` is called. */
export async function rememberMadeUpMachine(): Promise<{ folder: string; forget(): void }> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-measured-"));
  writeFileSync(join(folder, "machine.json"), machineToText(await madeUpMachine()));
  vi.stubEnv("LANTERN_CACHE", folder);
  vi.stubEnv("LANTERN_NO_LIMIT", "");
  return {
    folder,
    forget() {
      vi.unstubAllEnvs();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
