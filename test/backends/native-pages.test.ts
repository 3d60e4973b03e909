// Large pages for the engine's memory: the system knows afterwards that they were asked for, and the memory is as it was.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { askForLargePages, largePages } from "../../src/backends/cpu/native/pages.ts";
import { nodeNative } from "../../src/platform/node-native.ts";

const host = nodeNative();
const settings = "/sys/kernel/mm/transparent_hugepage/enabled";

/** Why it cannot be tried here; undefined: it can. */
function lacking(): string | undefined {
  if (typeof host === "string") return host;
  try {
    readFileSync(settings);
    return undefined;
  } catch {
    return "this system has no transparent large pages";
  }
}

/** Of the mapping that has this address, what the kernel notes about it. */
function flagsAt(address: number): string[] {
  let isThere = false;
  for (const line of readFileSync("/proc/self/smaps", "latin1").split("\n")) {
    const range = /^([0-9a-f]+)-([0-9a-f]+) /.exec(line);
    if (range) {
      const [from, to] = [range[1]!, range[2]!].map((text) => Number.parseInt(text, 16));
      isThere = from! <= address && address < to!;
    } else if (isThere && line.startsWith("VmFlags:")) return line.split(/\s+/).slice(1);
  }
  return [];
}

const why = lacking();
const name = why === undefined ? "" : ` [skipped: ${why}]`;

test.skipIf(why !== undefined)(`the system is asked for large pages${name}`, () => {
  if (typeof host === "string") return;
  const pages = 4 * 32; // 8 MiB
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const address = host.address(memory.buffer);
  expect(flagsAt(address)).not.toContain("hg");
  expect(askForLargePages(host, memory.buffer)).toBeUndefined();
  expect(flagsAt(address)).toContain("hg");
  expect(flagsAt(address + memory.buffer.byteLength - 1)).toContain("hg");
  expect(new Uint8Array(memory.buffer).every((byte) => byte === 0)).toBe(true);
});

test("nobody is asked where there is no machine code", () => {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1 });
  expect(largePages("machine code is switched off", [memory])).toBeUndefined();
});
