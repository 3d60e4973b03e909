// Which emulator makes calls of machine code for processors that this machine is not.

import type { nativeTargets } from "../../src/kernels/target.ts";
import {
  type Arm64Machine,
  arm64Target,
  lacksFor,
  pairsTarget,
  runArm64,
} from "../kernels/arm64-runner.ts";
import type { KernelCall } from "../kernels/executable.ts";
import { emulateX64, emulatorLacks } from "../kernels/x64-process.ts";

/** The memories after the calls. */
export type Emulate = (calls: readonly KernelCall[]) => Uint8Array<ArrayBuffer>[];

const x64 = (isa: "avx512" | "avx2-vnni" | "avx2"): Emulate | string =>
  emulatorLacks({ isa }) ?? ((calls) => emulateX64(calls, { isa }));

const arm64 = (machine: Arm64Machine): Emulate | string =>
  lacksFor(machine) ?? ((calls) => runArm64(calls, machine));

/** For each target; a sentence: why there is none here. */
const emulators: Readonly<Record<keyof typeof nativeTargets, () => Emulate | string>> = {
  "x64-amx": () => "qemu has no AMX tiles",
  "x64-avx512": () => x64("avx512"),
  "x64-avx2-vnni": () => x64("avx2-vnni"),
  "x64-avx2": () => x64("avx2"),
  "arm64-i8mm": () => arm64(pairsTarget),
  "arm64-dotprod": () => arm64(arm64Target),
};

export function emulatorOf(name: keyof typeof nativeTargets): Emulate | string {
  return emulators[name]();
}
