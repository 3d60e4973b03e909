// All adapters of this machine with their memory, from the Vulkan loader through node:ffi: WebGPU shows one adapter, and not its
// memory. They are not used for computing here. Offsets are the ones of Vulkan's structures on 64-bit machines, which never change.

import { messageOf } from "../base/errors.ts";
import { whyNoFfi } from "./node-builtin.ts";
import type { Ffi } from "./node-libc.ts";
import { loadFfi } from "./node-native.ts";

export interface GpuAdapter {
  readonly name: string;
  readonly kind: "integrated" | "discrete" | "virtual" | "cpu" | "other";
  /** The size of its largest heap of its own; an integrated GPU's is the machine's. */
  readonly memoryBytes: number;
}

const LIBRARIES: Readonly<Partial<Record<NodeJS.Platform, string>>> = {
  linux: "libvulkan.so.1",
  win32: "vulkan-1.dll",
};
const kinds: readonly GpuAdapter["kind"][] = ["other", "integrated", "discrete", "virtual", "cpu"];
const MOST_ADAPTERS = 64;

const CREATE_INFO = { bytes: 64, type: 1 } as const;
const PROPERTIES = { bytes: 1024, kind: 16, name: 20, nameBytes: 256 } as const;
const MEMORY = { bytes: 1024, heaps: 260, firstHeap: 264, heapBytes: 16, isOwn: 1 } as const;

/** The adapters, or a sentence: why they are not known. */
export function gpuAdapters(ffi: Ffi | undefined = loadFfi()): readonly GpuAdapter[] | string {
  const library = LIBRARIES[process.platform];
  if (library === undefined)
    return `adapters are listed on Linux and Windows, this is ${process.platform}`;
  if (!ffi) return whyNoFfi();
  try {
    return listed(ffi, new ffi.DynamicLibrary(library));
  } catch (error) {
    return `there is no Vulkan loader (${library}): ${messageOf(error)}`;
  }
}

function listed(
  ffi: Ffi,
  vulkan: InstanceType<Ffi["DynamicLibrary"]>,
): readonly GpuAdapter[] | string {
  const call = (name: string, result: "i32" | "void", count: number) =>
    vulkan.getFunction(name, {
      arguments: Array<string>(count).fill("pointer"),
      return: result,
    }) as (...values: bigint[]) => number;
  const create = call("vkCreateInstance", "i32", 3);
  const destroy = call("vkDestroyInstance", "void", 2);
  const enumerate = call("vkEnumeratePhysicalDevices", "i32", 3);
  const propertiesOf = call("vkGetPhysicalDeviceProperties", "void", 2);
  const memoryOf = call("vkGetPhysicalDeviceMemoryProperties", "void", 2);
  const at = (memory: Uint8Array): bigint => ffi.getRawPointer(memory);

  const info = Buffer.alloc(CREATE_INFO.bytes);
  info.writeUInt32LE(CREATE_INFO.type);
  const handle = Buffer.alloc(8);
  const failed = create(at(info), 0n, at(handle));
  if (failed !== 0) return `Vulkan finds no driver (error ${failed})`;
  const instance = handle.readBigUInt64LE();
  try {
    const count = Buffer.alloc(4);
    count.writeUInt32LE(MOST_ADAPTERS);
    const devices = Buffer.alloc(8 * MOST_ADAPTERS);
    const wrong = enumerate(instance, at(count), at(devices));
    if (wrong < 0) return `Vulkan lists no adapters (error ${wrong})`;
    return Array.from({ length: count.readUInt32LE() }, (_, i) => {
      const device = devices.readBigUInt64LE(8 * i);
      const properties = Buffer.alloc(PROPERTIES.bytes);
      propertiesOf(device, at(properties));
      const memory = Buffer.alloc(MEMORY.bytes);
      memoryOf(device, at(memory));
      return adapterOf(properties, memory);
    });
  } finally {
    destroy(instance, 0n);
  }
}

function adapterOf(properties: Buffer, memory: Buffer): GpuAdapter {
  const text = properties.toString("utf8", PROPERTIES.name, PROPERTIES.name + PROPERTIES.nameBytes);
  let memoryBytes = 0;
  for (let heap = 0; heap < memory.readUInt32LE(MEMORY.heaps); heap++) {
    const from = MEMORY.firstHeap + heap * MEMORY.heapBytes;
    const isOwn = (memory.readUInt32LE(from + 8) & MEMORY.isOwn) !== 0;
    if (isOwn) memoryBytes = Math.max(memoryBytes, Number(memory.readBigUInt64LE(from)));
  }
  const name = text.slice(0, text.indexOf("\0"));
  return { name, kind: kinds[properties.readUInt32LE(PROPERTIES.kind)] ?? "other", memoryBytes };
}
