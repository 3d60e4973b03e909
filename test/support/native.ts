// The targets of machine code that this machine can run, for tests that run on each; those that it cannot are named with
// the reason.

import { type NativeKernels, nativeKernels } from "../../src/backends/cpu/native/native.ts";
import { nativeTargets, type TargetName } from "../../src/kernels/target.ts";
import { nodeNative } from "../../src/platform/node-native.ts";

const names = Object.keys(nativeTargets) as TargetName[];
const found = names.map((name) => ({ name, native: nativeKernels(nodeNative(), name) }));

/** Each target that runs here. */
export const nativeHere: readonly { readonly name: TargetName; readonly native: NativeKernels }[] =
  found.flatMap(({ name, native }) => (typeof native === "string" ? [] : [{ name, native }]));

/** "arm64-dotprod: there is no target ...": each that does not. */
export const nativeElsewhere: readonly string[] = found.flatMap(({ name, native }) =>
  typeof native === "string" ? [`${name} [skipped: ${native}]`] : [],
);
