// The software Vulkan drivers that the tests of the GPU run on where there is no GPU, or for comparison: two of them, since each
// forgives what the other does not. SwiftShader comes with Chromium; lavapipe with Mesa 23.1 and newer (scripts/fetch-lavapipe.sh).

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type GpuDriver = "swiftshader" | "lavapipe";

const architecture = process.arch === "arm64" ? "aarch64" : "x86_64";

/** Where each driver's manifest may be, the first that exists is taken. */
const manifests: Readonly<Record<GpuDriver, readonly string[]>> = {
  swiftshader: ["/usr/lib/chromium/vk_swiftshader_icd.json"],
  lavapipe: [
    fileURLToPath(new URL("../../node_modules/.cache/lavapipe/icd.json", import.meta.url)),
    `/usr/share/vulkan/icd.d/lvp_icd.${architecture}.json`,
    "/usr/share/vulkan/icd.d/lvp_icd.json",
  ],
};

/** The manifest for VK_ICD_FILENAMES; undefined: the driver is not installed. */
export function driverManifest(driver: GpuDriver): string | undefined {
  return manifests[driver].find((path) => existsSync(path));
}
