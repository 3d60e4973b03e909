// A limit of GPU memory that a driver keeps: a Vulkan layer (memory-limit-layer.c) between Dawn and a software adapter, compiled here.
// To be called before anything asks for a GPU: Vulkan reads the environment then.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { driverManifest } from "./gpu-drivers.ts";

const name = "VK_LAYER_LANTERN_memory_limit";

export interface MemoryLimit {
  /** Where the layer reads it. */
  readonly file: string;
  /** So many MiB from now on; 0: no limit. */
  set(mebibytes: number): void;
  remove(): void;
}

/** A text: why there is none. */
export function memoryLimit(): MemoryLimit | string {
  const driver = driverManifest("swiftshader");
  if (!driver) return "SwiftShader is not installed";
  const folder = mkdtempSync(join(tmpdir(), "lantern-memory-limit-"));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  const library = join(folder, "liblimit.so");
  const source = fileURLToPath(new URL("./memory-limit-layer.c", import.meta.url));
  const made = spawnSync("gcc", ["-O1", "-Wall", "-shared", "-fPIC", "-o", library, source], {
    encoding: "utf8",
  });
  if (made.status !== 0) {
    remove();
    return `gcc cannot compile the layer: ${made.error?.message ?? made.stderr}`;
  }
  const call = "vkNegotiateLoaderLayerInterfaceVersion";
  const layer = {
    ...{ name, type: "GLOBAL", library_path: library, api_version: "1.3.0" },
    ...{
      implementation_version: "1",
      description: "a limit of memory",
      functions: { [call]: call },
    },
  };
  writeFileSync(
    join(folder, "limit.json"),
    JSON.stringify({ file_format_version: "1.1.2", layer }),
  );
  const file = join(folder, "limit");
  const set = (mebibytes: number) => writeFileSync(file, String(mebibytes));
  set(0);
  Object.assign(process.env, {
    ...{ VK_ICD_FILENAMES: driver, VK_LAYER_PATH: folder, VK_INSTANCE_LAYERS: name },
    ...{ LIMIT_FILE: file, LANTERN_GPU: "software" },
  });
  return { file, set, remove };
}
