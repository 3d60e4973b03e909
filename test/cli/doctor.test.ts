// lantern doctor: what it finds is what the public API finds, and what is missing is named with what to type.
// Held against: the public API.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { gpuInfo, machineCodeInfo } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "./fake-terminal.ts";

async function doctor(cache: string, ...flags: string[]): Promise<string> {
  const terminal = new FakeTerminal();
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: cache });
  expect(await main(["doctor", ...flags], terminal, downloads), terminal.stderr).toBe(0);
  return terminal.stdout;
}

test("one page, and the same as JSON", async () => {
  const cache = mkdtempSync(join(tmpdir(), "lantern-doctor-"));
  try {
    const text = await doctor(cache);
    const code = await machineCodeInfo();
    expect(text).toMatch(/^processor +Fake, 2 cores$/m);
    expect(text).toContain(code.isas.join(", "));
    expect(text).toMatch(/^measured +not yet/m);
    expect(text).toContain('"lantern machine" measures this machine');
    expect(text).toContain(cache);
    expect(text).not.toMatch(/undefined|NaN|\[object/);
    const found = JSON.parse(await doctor(cache, "--json")) as Record<string, unknown>;
    expect(found).toMatchObject({
      features: code.features,
      isas: code.isas,
      memory: { bytes: 8e9, free_bytes: 4e9 },
      cache: { path: cache, writable: true },
      measured_at: null,
    });
    const gpu = await gpuInfo();
    expect(found.gpu).toMatchObject(
      typeof gpu === "string" ? { refused: gpu } : { name: gpu.name },
    );
  } finally {
    rmSync(cache, { recursive: true });
  }
});

test("a folder that cannot be written is a line of it", async () => {
  // A file where the folder should be stops root as well.
  const text = await doctor("/dev/null/lantern");
  expect(text).toMatch(/^cache folder +\/dev\/null\/lantern.*cannot be written/m);
  expect(text).toContain("Set LANTERN_CACHE to a folder that you may write");
});
