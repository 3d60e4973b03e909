// Whether this machine can have a GPU at all: a look into /dev, before anything is loaded for one.

import { readdirSync } from "node:fs";

/** Why there is none; undefined: there may be one. */
export function nodeNoGpu(
  env: Readonly<Record<string, string | undefined>> = process.env,
  system: string = process.platform,
  list: (folder: string) => string[] = readdirSync,
): string | undefined {
  const { LANTERN_GPU: wanted = "" } = env;
  if (wanted === "off") return "LANTERN_GPU=off says to use none";
  if (wanted !== "" || system !== "linux") return undefined;
  // Computing needs a render node: card0 alone is the display of a server or of a virtual machine.
  const has = (folder: string, prefix: string): boolean => {
    try {
      return list(folder).some((name) => name.startsWith(prefix));
    } catch {
      return false;
    }
  };
  if (has("/dev/dri", "renderD") || has("/dev", "nvidia")) return undefined;
  return "this machine has none (neither /dev/dri/renderD* nor /dev/nvidia*)";
}
