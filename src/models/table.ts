// The table of architectures: one line for each. Nothing else in the project lists them.

import { ModelError } from "../base/errors.ts";
import type { Arch } from "./arch.ts";
import { llama } from "./llama.ts";
import { qwen2 } from "./qwen2.ts";
import { qwen3 } from "./qwen3.ts";

const builtIn: readonly Arch[] = [llama, qwen2, qwen3];

const byName = new Map<string, Arch>();
for (const arch of builtIn) registerArch(arch);

/** Adds an architecture (used by the table itself and by extensions); a name that is taken is an error. */
export function registerArch(arch: Arch): void {
  for (const name of arch.names) {
    if (byName.has(name)) throw new ModelError(`architecture "${name}" is registered already`);
    byName.set(name, arch);
  }
}

export function archNamed(name: string | undefined): Arch {
  const arch = byName.get(name ?? "");
  if (arch) return arch;
  throw new ModelError(
    `model: general.architecture is ${name === undefined ? "missing" : `"${name}"`}, which Lantern does not support. Supported: ${[...byName.keys()].join(", ")}`,
  );
}

export function allArchs(): readonly Arch[] {
  return [...new Set(byName.values())];
}
