// Tests whether machine code can run on this machine, and gives the opt level for it. Used by composition roots that make
// backends. The lowerings are loaded only if the platform can run their output.

import type { Isa, MachineCodeInfo, OptLevel } from "../api/api.ts";
import {
  cpuFeatures,
  isaNames,
  nativeIsa,
  targetOfIsa,
  withoutTiles,
} from "../backends/cpu/native/isa.ts";
import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { OptionError, UsageError } from "../base/errors.ts";
import { currentPlatform } from "../platform/current.ts";
import type { Platform } from "../platform/platform.ts";

export { isaNames };

/** The requested opt level. */
export interface OptLevelRequest {
  /** undefined: the best that this machine can run. */
  readonly level?: OptLevel | undefined;
  /** false: no machine code. */
  readonly native?: boolean | undefined;
  /** An instruction set; undefined: the best. */
  readonly isa?: Isa | undefined;
}

export interface OptLevelChoice {
  readonly level: OptLevel;
  /** Makes the machine code of opt level 4; a sentence says why there is none. */
  readonly native: NativeKernels | string;
}

const levels: readonly OptLevel[] = [1, 2, 3, 4];

export async function chooseOptLevel(
  { level, native = true, isa }: OptLevelRequest,
  platform: Platform,
): Promise<OptLevelChoice> {
  checkIsa(isa, level, native);
  if (level !== undefined && !levels.includes(level)) {
    throw new OptionError("level", level, `one of ${levels.join(", ")}`);
  }
  if (level !== undefined && level < 4)
    return { level, native: `opt level ${level} was asked for` };
  if (isa === "wasm") return { level: 3, native: "isa wasm was asked for" };
  const made = native ? await openNative(platform, isa) : "it was switched off";
  if (level === 4 && typeof made === "string") {
    throw new UsageError(
      `level: got 4, but there is no machine code here: ${made}. Use opt level 3`,
    );
  }
  return { level: typeof made === "string" ? 3 : 4, native: made };
}

function checkIsa(isa: Isa | undefined, level: OptLevel | undefined, native: boolean): void {
  if (isa === undefined) return;
  if (!isaNames.includes(isa)) {
    throw new OptionError("isa", isa, `one of ${isaNames.join(", ")}`);
  }
  const wantsCode = isa !== "wasm";
  const other = wantsCode ? !native || (level !== undefined && level < 4) : level === 4;
  if (!other) return;
  const said = native ? `opt level ${level}` : "no machine code";
  throw new UsageError(`isa: got "${isa}" with ${said}, expected one of the two. Drop either`);
}

async function openNative(
  platform: Platform,
  isa?: Exclude<Isa, "wasm">,
): Promise<NativeKernels | string> {
  const access = await platform.native();
  const wanted = isa && targetOfIsa(access, isa);
  const refused = (why: string) =>
    new UsageError(
      `isa: got "${isa}", but ${why}. Here are: ${cpuFeatures(access).isas.join(", ")}`,
    );
  if (typeof wanted === "object") throw refused(wanted.refused);
  if (typeof access === "string") return access;
  const { nativeKernels } = await import("../backends/cpu/native/native.ts");
  const made = nativeKernels(access, wanted);
  if (wanted !== undefined && typeof made === "string") throw refused(made);
  return made;
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
  const platform = await currentPlatform();
  const native = await openNative(platform);
  const has = cpuFeatures(await platform.native());
  if (typeof native === "string") return { ...has, refused: native };
  const { name, width } = native.target;
  return { ...has, target: name, vectorBytes: width };
}
