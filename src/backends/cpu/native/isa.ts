// Which processor features each target of machine code needs, and which target a machine can run. Separate from the lowerings
// (native.ts), so that asking loads none of them.

import type { TargetName } from "../../../kernels/target.ts";
import type { NativeAccess, NativeHost } from "../../../platform/platform.ts";

export type NativeTargetName = Exclude<TargetName, "wasm">;

export interface NativeIsa {
  readonly name: NativeTargetName;
  readonly arch: NativeHost["arch"];
  /** Features that its code uses, as Linux names them. */
  readonly needs: readonly string[];
}

const avx2 = ["avx2", "fma", "f16c"];
const avx512 = ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"];

/** In order of preference. */
const isas: readonly NativeIsa[] = [
  { name: "x64-amx", arch: "x64", needs: [...avx2, ...avx512, "amx_tile", "amx_int8"] },
  { name: "x64-avx512", arch: "x64", needs: [...avx2, ...avx512] },
  { name: "x64-avx2-vnni", arch: "x64", needs: [...avx2, "avx_vnni"] },
  { name: "x64-avx2", arch: "x64", needs: avx2 },
  { name: "arm64-i8mm", arch: "arm64", needs: ["asimd", "asimddp", "i8mm"] },
  { name: "arm64-dotprod", arch: "arm64", needs: ["asimd", "asimddp"] },
];

/** The same processor without AMX tiles, for systems that refuse them. */
export function withoutTiles(host: NativeHost): NativeHost {
  const features = [...host.features].filter((feature) => !feature.startsWith("amx"));
  return { ...host, features: new Set(features) };
}

/** The best target whose features the processor has; `refused`: why there is none. `wanted` names one, for tests. */
export function nativeIsa(
  access: NativeAccess,
  wanted?: TargetName,
): NativeIsa | { readonly refused: string } {
  if (typeof access === "string") return { refused: access };
  const refusals: string[] = [];
  for (const isa of isas) {
    const { name, arch, needs } = isa;
    if (arch !== access.arch || (wanted !== undefined && name !== wanted)) continue;
    const missing = needs.filter((feature) => !access.features.has(feature));
    if (missing.length === 0) return isa;
    refusals.push(`${name} needs ${missing.join(", ")}`);
  }
  if (refusals.length === 0) return { refused: `there is no target ${wanted} for ${access.arch}` };
  return {
    refused: `this processor lacks instructions that the machine code needs: ${refusals.join("; ")}`,
  };
}
