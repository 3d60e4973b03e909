// Adapters and their memory as the Vulkan loader tells them: a made-up loader with two of them, one without any, and none at all. With
// the real one: `lantern devices` in test/cli/devices.test.ts.

import { expect, test } from "vitest";
import type { Ffi } from "../../src/platform/node-libc.ts";
import { gpuAdapters } from "../../src/platform/node-vulkan.ts";
import { skippedFor } from "../support/skips.ts";

type Work = (...values: bigint[]) => number;

/** What Vulkan writes is written into the memory behind the pointers that it is given. */
function loader(functions: (memory: (pointer: bigint) => Buffer) => Record<string, Work>): Ffi {
  const memories: Buffer[] = [];
  const named = functions((pointer) => memories[Number(pointer)]!);
  return {
    DynamicLibrary: class {
      getSymbol = () => 0n;
      getFunction = (name: string) => named[name] as (...values: (number | bigint)[]) => unknown;
    },
    getRawPointer: (memory) => BigInt(memories.push(memory as Buffer) - 1),
  };
}

const destroyed: bigint[] = [];
const destroy: Work = (instance) => destroyed.push(instance);

test.skipIf(process.platform === "darwin")(
  `two adapters${skippedFor("macOS has no Vulkan", process.platform === "darwin")}`,
  () => {
    const names = ["A GPU of 8 GB", "A processor's"];
    const ffi = loader((memory) => ({
      vkCreateInstance: (info, _, instance) => {
        expect(memory(info).readUInt32LE(0)).toBe(1);
        memory(instance!).writeBigUInt64LE(77n);
        return 0;
      },
      vkDestroyInstance: destroy,
      vkEnumeratePhysicalDevices: (instance, count, devices) => {
        expect(instance).toBe(77n);
        memory(count!).writeUInt32LE(2);
        memory(devices!).writeBigUInt64LE(1000n, 0);
        memory(devices!).writeBigUInt64LE(1001n, 8);
        return 0;
      },
      vkGetPhysicalDeviceProperties: (device, properties) => {
        const nth = Number(device - 1000n);
        memory(properties!).writeUInt32LE([2, 4][nth]!, 16);
        memory(properties!).write(`${names[nth]}\0`, 20);
        return 0;
      },
      vkGetPhysicalDeviceMemoryProperties: (device, found) => {
        const heaps = memory(found!);
        heaps.writeUInt32LE(2, 260); // the machine's memory, then its own
        heaps.writeBigUInt64LE(64_000_000_000n, 264);
        heaps.writeBigUInt64LE(8_000_000_000n, 280);
        heaps.writeUInt32LE(device === 1000n ? 1 : 0, 288);
        return 0;
      },
    }));
    expect(gpuAdapters(ffi)).toEqual([
      { name: names[0], kind: "discrete", memoryBytes: 8e9 },
      { name: names[1], kind: "cpu", memoryBytes: 0 },
    ]);
    expect(destroyed).toEqual([77n]);
  },
);

test.skipIf(process.platform === "darwin")(
  `no driver, and no loader: sentences${skippedFor("macOS has no Vulkan", process.platform === "darwin")}`,
  () => {
    const noDriver = loader(() => ({ vkCreateInstance: () => -9, vkDestroyInstance: destroy }));
    expect(gpuAdapters(noDriver)).toBe("Vulkan finds no driver (error -9)");
    const noLoader: Ffi = {
      DynamicLibrary: class {
        constructor() {
          throw new Error("cannot open it");
        }
      } as never,
      getRawPointer: () => 0n,
    };
    expect(gpuAdapters(noLoader)).toMatch(/^there is no Vulkan loader \(.*\): cannot open it$/);
  },
);
