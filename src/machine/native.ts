// Whether machine code can run on this machine, and which opt level that gives. Used by composition roots that make
// backends. The lowerings are loaded only if the platform can run their output.

import type { MachineCodeInfo, OptLevel } from "../api/api.ts";
import { nativeIsa, withoutTiles } from "../backends/cpu/native/isa.ts";
import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";

/** The requested opt level. */
export interface OptLevelRequest {
  /** undefined: the best that this machine can run. */
  readonly level: OptLevel | undefined;
  /** false: no machine code. */
  readonly native?: boolean | undefined;
}

export interface OptLevelChoice {
  readonly level: OptLevel;
  /** Makes the machine code of opt level 4; a sentence says why there is none. */
  readonly native: NativeKernels | string;
}

const levels: readonly OptLevel[] = [1, 2, 3, 4];

export async function chooseOptLevel(
  { level, native = true }: OptLevelRequest,
  platform: Platform,
): Promise<OptLevelChoice> {
  if (level !== undefined && !levels.includes(level)) {
    throw new UsageError(`level: got ${show(level)}, expected one of ${levels.join(", ")}`);
  }
  if (level !== undefined && level < 4)
    return { level, native: `opt level ${level} was asked for` };
  const made = native ? await openNative(platform) : "it was switched off";
  if (level === 4 && typeof made === "string") {
    throw new UsageError(
      `level: got 4, but there is no machine code here: ${made}. Use opt level 3`,
    );
  }
  return { level: typeof made === "string" ? 3 : 4, native: made };
}

async function openNative(platform: Platform): Promise<NativeKernels | string> {
  const access = await platform.native();
  if (typeof access === "string") return access;
  const { nativeKernels } = await import("../backends/cpu/native/native.ts");
  return nativeKernels(access);
}

/** Makes machine code here; undefined: kernels are WebAssembly. */
export async function nativeHere(
  platform: Platform,
  native = true,
): Promise<NativeKernels | undefined> {
  const made = native ? await openNative(platform) : undefined;
  return typeof made === "string" ? undefined : made;
}

/**
 * The target of machine code here; undefined: none. Loads no lowering and opens nothing, so it cannot know whether the
 * system lets this process use AMX tiles. `tiles: false`: the target if it does not.
 */
export async function expectedTarget(
  platform: Pick<Platform, "native">,
  { tiles = true }: { readonly tiles?: boolean } = {},
): Promise<string | undefined> {
  const access = await platform.native();
  const isWhole = tiles || typeof access === "string";
  const isa = nativeIsa(isWhole ? access : withoutTiles(access));
  return "refused" in isa ? undefined : isa.name;
}

/** The target of machine code on this machine, or why there is none. */
export async function machineCodeInfo(): Promise<MachineCodeInfo> {
  const native = await openNative(await currentPlatform());
  if (typeof native === "string") return { refused: native };
  const { name, width } = native.target;
  return { target: name, vectorBytes: width };
}
