// The processor features that each target of machine code needs, and the targets that a machine can run. Separate from the lowerings
// (native.ts), so that asking loads none of them.

import type { CpuFeatures, Isa } from "../../../api/machine.ts";
import type { TargetName } from "../../../kernels/target.ts";
import type { NativeAccess, NativeHost } from "../../../platform/platform.ts";

export type NativeTargetName = Exclude<TargetName, "wasm">;

export interface NativeIsa {
  readonly name: NativeTargetName;
  /** The name that users type. */
  readonly isa: Isa;
  readonly arch: NativeHost["arch"];
  /** Features that its code uses, as Linux names them. */
  readonly needs: readonly string[];
}

const avx2 = ["avx2", "fma", "f16c"];
const avx512 = ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"];

/** In order of preference. */
const isas: readonly NativeIsa[] = [
  { name: "x64-amx", isa: "amx", arch: "x64", needs: [...avx2, ...avx512, "amx_tile", "amx_int8"] },
  { name: "x64-avx512", isa: "avx512-vnni", arch: "x64", needs: [...avx2, ...avx512] },
  { name: "x64-avx2-vnni", isa: "avx2-vnni", arch: "x64", needs: [...avx2, "avx_vnni"] },
  { name: "x64-avx2", isa: "avx2", arch: "x64", needs: avx2 },
  { name: "arm64-i8mm", isa: "i8mm", arch: "arm64", needs: ["asimd", "asimddp", "i8mm"] },
  { name: "arm64-dotprod", isa: "dotprod", arch: "arm64", needs: ["asimd", "asimddp"] },
];

/** All that can be asked for. */
export const isaNames: readonly Isa[] = [...isas.map(({ isa }) => isa), "wasm"];

/** The processor's features that kernels can use. */
export function cpuFeatures(access: NativeAccess): CpuFeatures {
  if (typeof access === "string") return { features: [], isas: ["wasm"] };
  const own = isas.filter(({ arch }) => arch === access.arch);
  const has = (feature: string): boolean => access.features.has(feature);
  return {
    features: [...new Set(own.flatMap(({ needs }) => needs))].filter(has),
    isas: [...own.filter(({ needs }) => needs.every(has)).map(({ isa }) => isa), "wasm"],
  };
}

/** The target of an instruction set; a sentence: why this processor cannot run it. */
export function targetOfIsa(
  access: NativeAccess,
  wanted: Exclude<Isa, "wasm">,
): NativeTargetName | { readonly refused: string } {
  const { name, arch, needs } = isas.find(({ isa }) => isa === wanted)!;
  if (typeof access === "string") return { refused: `there is no machine code here: ${access}` };
  if (arch !== access.arch)
    return { refused: `it is of ${arch}, and this processor is ${access.arch}` };
  const missing = needs.filter((feature) => !access.features.has(feature));
  if (missing.length === 0) return name;
  return { refused: `this processor lacks ${missing.join(", ")}` };
}

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
