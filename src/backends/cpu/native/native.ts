// Machine code for the CPU backend: the best of the targets (kernels/target.ts) for this machine, and the functions that
// lower kernels to it. Only composition roots load this file, where the platform runs machine code: a browser never loads
// the lowerings.
//
// A target is taken when the processor has the features that its code uses (isa.ts), and a small test kernel computes the
// right result.

import { sharedObject, symbolOf } from "../../../kernels/asm/elf.ts";
import type { NativeFunction } from "../../../kernels/asm/native-function.ts";
import { KernelBuilder } from "../../../kernels/ir/builder.ts";
import type { Kernel } from "../../../kernels/ir/kernel.ts";
import { lazyKernel } from "../../../kernels/ir/lazy-kernel.ts";
import {
  MOST_TILE_BYTES,
  MOST_TILE_ROWS,
  threeTiles,
  tileShape,
  tileStride,
} from "../../../kernels/ir/tiles.ts";
import { lowerToArm64 } from "../../../kernels/lower/arm64.ts";
import { blockSlots, KernelRefused } from "../../../kernels/lower/machine.ts";
import { lowerToX64 } from "../../../kernels/lower/x64.ts";
import { type KernelTarget, nativeTargets, type TargetName } from "../../../kernels/target.ts";
import type { NativeAccess, NativeHost } from "../../../platform/platform.ts";
import { askForTiles } from "./amx.ts";
import { BLOCK_SLOTS, entryCode, MOST_PARAMS, type NativeImage, nativeCalls } from "./entry.ts";
import { type NativeTargetName, nativeIsa, withoutTiles } from "./isa.ts";
import { KeptCode } from "./kept-code.ts";

/** Makes kernels for this machine's processor. */
export interface NativeKernels {
  readonly target: KernelTarget;
  readonly host: NativeHost;
  /** The kernel's machine code, or a sentence: why it has none on this target. Cached. */
  lower(kernel: Kernel): NativeFunction | string;
  link(functions: readonly NativeFunction[]): NativeImage;
  /** Why the processor's AMX tiles are not used. */
  readonly withoutTiles?: string;
}

type Lower = (kernel: Kernel) => NativeFunction;

/** The lowering of each target; they run on any machine. */
export const lowerings: Readonly<Record<NativeTargetName, Lower>> = {
  "x64-amx": (kernel) => lowerToX64(kernel, { isa: "avx512" }),
  "x64-avx512": (kernel) => lowerToX64(kernel, { isa: "avx512" }),
  "x64-avx2-vnni": (kernel) => lowerToX64(kernel, { isa: "avx2-vnni" }),
  "x64-avx2": (kernel) => lowerToX64(kernel, { isa: "avx2" }),
  "arm64-i8mm": (kernel) => lowerToArm64(kernel, { name: "arm64 i8mm", i8mm: true }),
  "arm64-dotprod": (kernel) => lowerToArm64(kernel, { name: "arm64 dotprod" }),
};

/** The best target that this machine can run; otherwise why there is none. `wanted` names one, for tests. */
export function nativeKernels(access: NativeAccess, wanted?: TargetName): NativeKernels | string {
  const isa = nativeIsa(access, wanted);
  if ("refused" in isa) return isa.refused;
  const host = access as NativeHost;
  const kernels = kernelsOf(isa.name, host);
  const wrong = (kernels.target.amx && tryTiles(kernels)) ?? tryOut(kernels);
  if (wrong === undefined) return kernels;
  if (!kernels.target.amx || wanted !== undefined) return wrong;
  const others = nativeKernels(withoutTiles(host));
  return typeof others === "string" ? others : { ...others, host, withoutTiles: wrong };
}

function kernelsOf(name: NativeTargetName, host: NativeHost): NativeKernels {
  const known = new Map<string, NativeFunction | string>();
  const kept = host.kept && new KeptCode(host.kept, name);
  return {
    target: nativeTargets[name],
    host,
    lower: (kernel) => {
      // A kernel's name says what it computes, but not always its width.
      const key = kernel.key ?? `${kernel.name} ${kernel.width} ${kernel.registers}`;
      const make = () => lowered(kernel, lowerings[name]);
      const made = known.get(key) ?? (kept && kernel.key ? kept.of(kernel.key, make) : make());
      known.set(key, made);
      return made;
    },
    link: (functions) => {
      kept?.save();
      return linked(functions, host.arch);
    },
  };
}

function lowered(kernel: Kernel, lower: Lower): NativeFunction | string {
  const params = kernel.params.length;
  if (params > MOST_PARAMS || blockSlots(params) >= BLOCK_SLOTS) {
    return `${kernel.name} has ${params} parameters, at most ${MOST_PARAMS} are passed`;
  }
  try {
    return lower(kernel);
  } catch (error) {
    if (error instanceof KernelRefused) return error.message;
    throw error;
  }
}

function linked(functions: readonly NativeFunction[], arch: NativeHost["arch"]): NativeImage {
  const entry = { name: "entry", bytes: new Uint8Array(entryCode[arch]) };
  return {
    bytes: sharedObject([entry, ...functions], arch),
    entry: symbolOf(entry.name),
    kernels: Object.fromEntries(functions.map(({ name }) => [name, symbolOf(name)])),
  };
}

/** Tests whether machine code can be loaded and called here: the error, or undefined. */
function tryOut(native: NativeKernels): string | undefined {
  const { target, host } = native;
  const { width } = target;
  const code = native.lower(lazyKernel("addition", width, () => additionKernel(width)));
  if (typeof code === "string") return code;
  const image = native.link([code]);
  const library = host.load(image.bytes);
  if (typeof library === "string") return library;
  const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1 });
  const numbers = new Int32Array(buffer);
  numbers.set([1, 2, 3, 4].map((value) => value * 1_000_003));
  const [x, out, block] = [0, target.width, 1024];
  const { addition } = nativeCalls(image, library, host.address(buffer), buffer, block);
  addition!(x, out, 7);
  const isRight = numbers.subarray(0, 4).every((value, i) => numbers[out / 4 + i] === value + 7);
  return isRight ? undefined : `a test kernel for ${target.name} computed a wrong result`;
}

/** Tests whether AMX tiles can be used and multiply correctly: the error, or undefined. */
function tryTiles(native: NativeKernels): string | undefined {
  const { host, target } = native;
  const refused = askForTiles(host);
  if (refused !== undefined) return refused;
  const code = native.lower(lazyKernel("tiles", MOST_TILE_BYTES, tilesKernel));
  if (typeof code === "string") return code;
  const image = native.link([code]);
  const library = host.load(image.bytes);
  if (typeof library === "string") return library;
  const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1 });
  const bytes = new Int8Array(buffer).fill(3, 0, 1024).fill(-100, 1024, 2048);
  const [a, b, out, block] = [0, 1024, 2048, 4096];
  const { tiles } = nativeCalls(image, library, host.address(buffer), buffer, block);
  tiles!(a, b, out);
  const sums = new Int32Array(bytes.buffer, out, 256);
  const isRight = sums.every((sum) => sum === 64 * 3 * -100);
  return isRight
    ? undefined
    : `a test matmul in AMX tiles for ${target.name} computed a wrong result`;
}

/** out = a . b, with AMX tiles of the largest shape. */
function tilesKernel(): Kernel {
  const k = new KernelBuilder("tiles", 64);
  const [a, b, out] = [k.param("ptr", "a"), k.param("ptr", "b"), k.param("ptr", "out")];
  const whole = { rows: MOST_TILE_ROWS, bytes: MOST_TILE_BYTES };
  for (const tile of [0, 1, 2]) k.op("amx.shape", [], tileShape(tile, whole));
  k.op("amx.zero", [], 0);
  k.op("amx.load", [a], tileStride(1, 64));
  k.op("amx.load", [b], tileStride(2, 64));
  k.op("amx.dot4_ss", [], threeTiles(0, 1, 2));
  k.op("amx.store", [out], tileStride(0, 64));
  return k.finish();
}

/** out = x + n, a vector of integers. */
function additionKernel(width: number): Kernel {
  const k = new KernelBuilder("addition", width);
  const [x, out] = [k.param("ptr", "x"), k.param("ptr", "out")];
  const n = k.op("i32v.splat", [k.param("i32", "n")]);
  k.op("i32v.store", [out, k.op("i32v.add", [k.op("i32v.load", [x]), n])]);
  return k.finish();
}
