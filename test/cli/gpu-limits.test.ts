// The GPU's own limits on the command line: measured when asked for, remembered by adapter, shown where they are known; and
// plain sentences where there is no GPU, or only one that is none.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { gpuIdentity } from "../../src/backends/webgpu/device.ts";
import type { GpuMeasurement } from "../../src/limits/gpu-device.ts";
import { gpusFromText, gpusToText } from "../../src/tune/gpu-file.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-gpu-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** In a process of its own: which GPU is taken is decided once in each. */
function lantern(gpu: string, ...args: string[]) {
  const bin = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
  const settings = { LANTERN_CACHE: folder, LANTERN_NO_LIMIT: "", LANTERN_GPU: gpu };
  const env = { ...process.env, ...settings };
  const ended = spawnSync(process.execPath, [bin, ...args], { encoding: "utf8", env });
  return { code: ended.status, out: ended.stdout, err: ended.stderr };
}

/** What LANTERN_GPU must be for this GPU to be measured. */
const asked = (gpu: GpuMeasurement): string => (gpu.isSoftware ? "software" : "");

/** A GPU so fast that nothing here reaches its limits. */
async function fastGpu(): Promise<GpuMeasurement> {
  const gpu = await openGpu();
  const { facts } = gpu;
  gpu.dispose();
  return {
    adapter: gpuIdentity(facts),
    name: facts.name,
    isSoftware: facts.isSoftware,
    readBytesPerSecond: 3e12,
    cachedReads: [],
    f32OpsPerSecond: 5e13,
    f16OpsPerSecond: undefined,
    int8OpsPerSecond: 2e14,
    matrixOpsPerSecond: undefined,
    measuredAt: "2026-11-15T05:10:37.842Z",
  };
}

const remember = (...gpus: GpuMeasurement[]): void =>
  writeFileSync(join(folder, "gpu.json"), gpusToText(gpus));

test("limits --device this-gpu without a GPU: one sentence", () => {
  const { code, err } = lantern("off", "limits", "qwen1.5-7b", "--device", "this-gpu");
  expect(err).toContain("this-gpu: there is no GPU to measure: LANTERN_GPU=off says to use none");
  expect(code).toBe(2);
});

describeGpu("a measured GPU", () => {
  test("limits --device this-gpu uses what is remembered of this adapter", async () => {
    const gpu = await fastGpu();
    remember({ ...gpu, adapter: "another", readBytesPerSecond: 1 }, gpu);
    const { code, out } = lantern(asked(gpu), "limits", "qwen1.5-7b", "--device", "this-gpu");
    expect(code).toBe(0);
    expect(out).toContain(`${gpu.name} (measured 2026-11-15`);
    expect(out).toContain("3000.0 GB/s, f32 50.0 T/s, int8 200 T/s");
  });

  test("devices shows it", async () => {
    const gpu = await fastGpu();
    remember(gpu);
    const { out } = lantern(asked(gpu), "devices");
    expect(out).toMatch(/^reading from memory +3000.0 +GB\/s$/m);
    expect(out).not.toContain("F16 multiply-add");
    const json = JSON.parse(lantern(asked(gpu), "devices", "--json").out) as {
      devices: { measured: object }[];
    };
    expect(json.devices[0]!.measured).toMatchObject({ f32_ops_per_second: 5e13 });
  });

  test("a software adapter is measured only when it was asked for", async () => {
    const gpu = await fastGpu();
    if (!gpu.isSoftware) return;
    const { code, err } = lantern("", "devices", "--measure");
    expect(err).toContain("LANTERN_GPU=software measures it all the same");
    expect(code).toBe(2);
  });

  test("devices --measure measures and remembers", { timeout: 120_000 }, async () => {
    const gpu = await fastGpu();
    expect(lantern(asked(gpu), "devices", "--measure").code).toBe(0);
    const kept = gpusFromText(readFileSync(join(folder, "gpu.json"), "utf8"));
    expect(kept).toMatchObject([{ adapter: gpu.adapter, name: gpu.name }]);
    const [measured] = kept as GpuMeasurement[];
    expect(measured!.readBytesPerSecond).toBeGreaterThan(1e6);
    expect(measured!.f32OpsPerSecond).toBeGreaterThan(1e6);
  });
});
