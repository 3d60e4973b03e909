import { defineConfig, type ViteUserConfig } from "vitest/config";
import { driverManifest, type GpuDriver } from "../support/gpu-drivers.ts";
import { gpu, shared } from "./tiers.ts";

// `npm run test:gpu`: kernels, models and pages on software GPUs, minutes of it. Twice, where there are two drivers: with SwiftShader
// and with lavapipe, which has half floats, and buffers no larger than 128 MiB in a binding. `-- --project lavapipe` runs one of them.
// Where the environment names a driver (VK_ICD_FILENAMES), that one alone is used.

function project(name: string, env: Record<string, string>, exclude: readonly string[] = []) {
  return {
    extends: true as const,
    test: {
      ...shared,
      name,
      include: [...gpu],
      exclude: [...exclude],
      env: { ...shared.env, ...env },
    },
  };
}

function onDriver(driver: GpuDriver, exclude: readonly string[] = []) {
  const manifest = driverManifest(driver);
  if (manifest) return [project(driver, { VK_ICD_FILENAMES: manifest }, exclude)];
  console.warn(`no tests on ${driver}: it is not installed (docs/gpu.md, "Tests without a GPU")`);
  return [];
}

const given = process.env.VK_ICD_FILENAMES;
const drivers = [
  ...onDriver("swiftshader"),
  // Chromium brings its own driver.
  ...onDriver("lavapipe", ["test/browser/**"]),
];

const config: ViteUserConfig = defineConfig({
  test: { projects: given !== undefined || drivers.length === 0 ? [project("gpu", {})] : drivers },
});

export default config;
