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
import { loweringText, machineToText } from "../../src/machine/file.ts";
import { gpusFromText, gpusToText } from "../../src/machine/gpu-file.ts";
import { expectedTarget } from "../../src/machine/native.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { describeGpu, openGpu } from "../support/gpu.ts";
import { tinyFile } from "../support/tiny-file.ts";

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
    link: undefined,
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
    expect(err).toContain("LANTERN_GPU=software measures it anyway");
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

  test("run and bench say how far a speed is from the GPU's limit", async () => {
    const gpu = await fastGpu();
    remember(gpu);
    const file = await tinyFile();
    const model = ["-m", file.path, "--backend", "webgpu"];
    const run = lantern(asked(gpu), "run", ...model, "-p", "the cat", "-n", "3");
    const bench = lantern("", "bench", ...model, "-p", "3", "-n", "2", "-r", "1", "--json");
    file.remove();
    const limit = String.raw`[\d.]+% of the (bandwidth|arithmetic) limit \([\d.]+ of \d+ (GB/s|GOPS)\)(, others used [\d.]+ of \d+ cores)?`;
    expect(run.err).toMatch(new RegExp(`^generation .* tokens/s +${limit}$`, "m"));
    const { results } = JSON.parse(bench.out) as { results: { limit: unknown }[] };
    for (const result of results) {
      expect(result.limit).toMatchObject({ tokens_per_second: expect.any(Number) });
    }
  });

  test("with layers in two places, both must be measured", async () => {
    const gpu = await fastGpu();
    remember(gpu);
    const file = await tinyFile();
    const run = () =>
      lantern(asked(gpu), "run", "-m", file.path, "-ngl", "2", "-p", "the cat", "-n", "3");
    const alone = run();
    expect(alone.err).not.toContain("% of the");
    expect(alone.err).toContain(
      '(the GPU\'s limits are not known: "lantern devices --measure" and "lantern machine"',
    );
    const target = await expectedTarget(nodePlatform);
    const rates = (perSecond: number) => [{ threads: 1, perSecond }];
    const machine = {
      cpu: nodePlatform.cpu(),
      cores: nodePlatform.cores,
      memoryBytes: 64e9,
      lowering: loweringText(target),
      readBytes: rates(2e12),
      f32Ops: rates(7e12),
      int8Ops: rates(9e12),
      measuredAt: "2026-11-15T05:10:37.842Z",
    };
    writeFileSync(join(folder, "machine.json"), machineToText(machine));
    const both = run();
    file.remove();
    expect(both.err).toMatch(/^generation .*% of the (bandwidth|arithmetic) limit/m);
  });
});
