import { globSync } from "node:fs";
import { defineConfig, type ViteUserConfig } from "vitest/config";
import { driverManifest, type GpuDriver } from "../support/gpu-drivers.ts";
import { gpu, gpuElsewhere, gpuHalves, gpuSecond, shared } from "./tiers.ts";

// `npm run test:gpu`: kernels, models and pages on software GPUs, minutes of it. Where there are two drivers, SwiftShader has all of it, and
// lavapipe, which has half floats and buffers no larger than 128 MiB in a binding, what a driver can have wrong (gpuSecond).
// `-- --project 'lavapipe*'` runs one of them. Where the environment names a driver (VK_ICD_FILENAMES), everything runs on that one.
//
// A driver's tests share one process, so that a shader that several of them use is compiled once (test/support/shared-device.ts). Those
// that change the process, or have their GPU in another, have their own.

interface Files {
  readonly include: readonly string[];
  readonly exclude?: readonly string[];
}

function projects(name: string, env: Record<string, string>, { include, exclude = [] }: Files) {
  const each = (isolate: boolean, more: Files) => ({
    extends: true as const,
    test: {
      ...shared,
      name: isolate ? `${name}-apart` : name,
      isolate,
      include: [...more.include],
      exclude: [...exclude, ...(more.exclude ?? [])],
      env: { ...shared.env, ...env },
    },
  });
  const others = globSync("test/**/*.test.ts", { exclude: [...gpuElsewhere] });
  return [
    each(false, { include, exclude: gpuElsewhere }),
    each(true, { include, exclude: others }),
  ];
}

function onDriver(driver: GpuDriver, files: Files, env: Record<string, string> = {}) {
  const manifest = driverManifest(driver);
  if (manifest) return projects(driver, { ...env, VK_ICD_FILENAMES: manifest }, files);
  console.warn(
    `no tests on ${driver}: it is not installed (docs/inside/gpu.md, "Tests without a GPU")`,
  );
  return [];
}

const all: Files = { include: gpu };
const both = driverManifest("swiftshader") && driverManifest("lavapipe");
const drivers = both
  ? [
      ...onDriver("swiftshader", { include: gpu, exclude: gpuHalves }),
      ...onDriver("lavapipe", { include: gpuSecond }, { LANTERN_TEST_SECOND: "1" }),
    ]
  : [...onDriver("swiftshader", all), ...onDriver("lavapipe", all)];

const isGiven = process.env.VK_ICD_FILENAMES !== undefined;

const config: ViteUserConfig = defineConfig({
  test: { projects: isGiven || drivers.length === 0 ? projects("gpu", {}, all) : drivers },
});

export default config;
