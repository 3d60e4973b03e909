// Machine code that is opened and called for real, where this machine can; and every reason for which it is not.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Worker } from "node:worker_threads";
import { crc32 } from "node:zlib";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { sharedObject, symbolOf } from "../../src/kernels/asm/elf.ts";
import { descriptorsTo } from "../../src/platform/node-descriptors.ts";
import { type Ffi, libcCalls } from "../../src/platform/node-libc.ts";
import { featuresIn, type NativeProcess, nativeOf } from "../../src/platform/node-native.ts";
import type { NativeHost, NativeLibrary } from "../../src/platform/platform.ts";
import { handWritten } from "./native-functions.ts";

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(tmpdir(), "lantern-native-"));
});
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }));

/** This process, or what is said about another. */
function processWith(changes: Partial<NativeProcess> = {}): NativeProcess {
  return {
    platform: process.platform,
    arch: process.arch,
    ffi: () => process.getBuiltinModule?.("node:ffi") as never,
    mayUseFfi: () => true,
    cpuInfo: () => fs.readFileSync("/proc/cpuinfo", "latin1"),
    env: { LANTERN_CACHE: folder },
    ...changes,
  };
}

const here = nativeOf(processWith({ env: { LANTERN_CACHE: "/nowhere" } }));
const skipped = typeof here === "string" ? ` [skipped: ${here}]` : "";

function hostHere(): NativeHost {
  const host = nativeOf(processWith());
  if (typeof host === "string") throw new Error(host);
  return host;
}

function loaded(host: NativeHost, image: Uint8Array): NativeLibrary {
  const library = host.load(image);
  if (typeof library === "string") throw new Error(library);
  return library;
}

/** Slots of a block, of which a call is to copy number 1 to number 2. */
function callOn(host: NativeHost, call: (block: number) => void): Float64Array {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  const slots = new Float64Array(memory.buffer, 512, 4);
  slots.set([0, 42.5, 0, 7]);
  call(host.address(memory.buffer) + 512);
  return slots;
}

describe.skipIf(skipped)(`machine code${skipped}`, () => {
  test("is opened, found by name, called with one number, and writes to shared memory", () => {
    const host = hostHere();
    const library = loaded(host, sharedObject(handWritten(host.arch), host.arch));
    expect(library.function(symbolOf("nothing.at-all"))(1)).toBeUndefined();
    const slots = callOn(host, library.function(symbolOf("copy.slot")));
    expect([...slots]).toEqual([0, 42.5, 42.5, 7]);
  });

  test("two hundred functions are all found by the system's linker", () => {
    const host = hostHere();
    const [, copy] = handWritten(host.arch);
    const functions = Array.from({ length: 200 }, (_, i) => ({ ...copy!, name: `kernel.${i}x4` }));
    const library = loaded(host, sharedObject(functions, host.arch));
    for (const { name } of functions) {
      expect(callOn(host, library.function(symbolOf(name)))[2]).toBe(42.5);
    }
    const [first, next] = functions.map(({ name }) => library.address(symbolOf(name)));
    expect(next! - first!).toBe(64);
    expect(() => library.address("lantern_none")).toThrow();
    expect(() => library.function("lantern_none")).toThrow();
  });

  test("works in a worker, on the same memory at the same address", async () => {
    const host = hostHere();
    const image = sharedObject(handWritten(host.arch), host.arch);
    loaded(host, image);
    const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
    new Float64Array(buffer)[1] = 99;
    const worker = new Worker(new URL("native-worker.ts", import.meta.url), {
      env: { ...process.env, LANTERN_CACHE: folder },
      workerData: { image, buffer, symbol: symbolOf("copy.slot") },
    });
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    worker.once("message", resolve).once("error", reject);
    expect(await promise).toBe(host.address(buffer));
    expect(new Float64Array(buffer)[2]).toBe(99);
    await worker.terminate();
  });

  test("lies in sealed memory, not in a file, and is one for all threads", async () => {
    const host = hostHere();
    const image = sharedObject(handWritten(host.arch), host.arch);
    const { path: descriptor } = loaded(host, image);
    expect(fs.readlinkSync(descriptor)).toMatch(/^\/memfd:lantern-[0-9a-f]{8}-\d+ \(deleted\)$/);
    expect(fs.readFileSync(descriptor).equals(image)).toBe(true);
    expect(() => fs.writeFileSync(descriptor, "x", { flag: "r+" })).toThrow("EPERM");
    expect(() => fs.truncateSync(descriptor, 1)).toThrow("EPERM");
    expect(loaded(host, image).path).toBe(descriptor);
    expect(fs.readdirSync(folder)).toEqual([]);
    const worker = new Worker(new URL("native-worker.ts", import.meta.url), {
      env: { ...process.env, LANTERN_CACHE: folder },
      workerData: { image, buffer: new SharedArrayBuffer(64), symbol: symbolOf("copy.slot") },
    });
    await new Promise((resolve, reject) => worker.once("exit", resolve).once("error", reject));
    const target = fs.readlinkSync(descriptor);
    expect(descriptorsTo(target).map((each) => `/proc/self/fd/${each}`)).toEqual([descriptor]);
  });

  test("memory that looks like it but is not sealed, or has other content, is not opened", () => {
    const host = hostHere();
    const functions = handWritten(host.arch).map((each) => ({ ...each, name: `${each.name}.2` }));
    const image = sharedObject(functions, host.arch);
    const ffi = process.getBuiltinModule("node:ffi" as "node:fs") as unknown as Ffi;
    const libc = libcCalls(ffi)!;
    const name = `lantern-${crc32(image).toString(16).padStart(8, "0")}-${image.length}`;
    const [open, other] = [libc.memoryFile(name), libc.memoryFile(name)];
    fs.writeSync(open, image);
    fs.writeSync(other, image.slice().fill(1, 64));
    expect([libc.isSealed(open), libc.seal(other), libc.isSealed(other)]).toEqual([
      false,
      true,
      true,
    ]);
    const { path: descriptor } = loaded(host, image);
    expect([open, other].map(String)).not.toContain(path.basename(descriptor));
    for (const each of [open, other]) libc.close(each);
  });

  test("files from when it was files go after a month", () => {
    const native = path.join(folder, "native");
    fs.mkdirSync(native, { mode: 0o700 });
    const [old, fresh] = ["a", "b"].map((letter) => path.join(native, `${letter.repeat(64)}.so`));
    for (const [file, days] of [
      [old!, 31],
      [fresh!, 29],
    ] as const) {
      const past = new Date(Date.now() - days * 24 * 3600 * 1000);
      fs.writeFileSync(file, "");
      fs.utimesSync(file, past, past);
    }
    loaded(hostHere(), sharedObject(handWritten(hostHere().arch), hostHere().arch));
    expect(fs.readdirSync(native)).toEqual([path.basename(fresh!)]);
  });

  test("what is no shared object is refused with what the system says, and the file is named", () => {
    expect(hostHere().load(new Uint8Array(64))).toMatch(
      /does not open .*\/native\/[0-9a-f]{8}-\d+\.so \((file too short|invalid ELF header)\)/,
    );
  });

  test("Node's warning about FFI is not shown, others are", () => {
    const script = `
      import { nodeNative } from ${JSON.stringify(new URL("../../src/platform/node-native.ts", import.meta.url).href)};
      console.log(typeof nodeNative());
      process.emitWarning("still here", "ExperimentalWarning");`;
    const { stdout, stderr } = spawnSync(
      process.execPath,
      ["--input-type=module", "--eval", script],
      { encoding: "utf8" },
    );
    expect(stdout.trim()).toBe("object");
    expect(stderr).toContain("still here");
    expect(stderr).not.toContain("FFI");
  });

  test.each([
    [["--no-experimental-ffi"], "this Node has no node:ffi"],
    [["--permission", "--allow-fs-read=*"], "permission model does not allow FFI"],
  ])("node %s is refused", (flags, why) => {
    const url = new URL("../../src/platform/node-native.ts", import.meta.url).href;
    const script = `import { nodeNative } from ${JSON.stringify(url)}; console.log(nodeNative());`;
    const args = [...flags, "--input-type=module", "--eval", script];
    const { stdout } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect(stdout).toContain(why);
  });
});

describe("where there is no machine code", () => {
  const cpuInfo = () => "flags\t\t: fpu avx2\n";
  const refusals: [Partial<NativeProcess>, string][] = [
    [{ platform: "darwin" }, "machine code is run on Linux only as yet, this is darwin"],
    [{ platform: "win32" }, "machine code is run on Linux only as yet, this is win32"],
    [{ arch: "riscv64" }, "machine code is made for x64 and arm64, this is riscv64"],
    [{ ffi: () => undefined }, "this Node has no node:ffi"],
    [
      { ffi: () => undefined, versions: { node: "22.23.3" } as never },
      "Node.js 22.23.3 has no node:ffi; Node.js 26 would run machine code made for this processor",
    ],
    [
      { ffi: () => undefined, versions: { node: "26.3.0", bun: "1.4.4" } as never },
      "Bun 1.4.4 has no node:ffi; Node.js 26 would run",
    ],
    [{ mayUseFfi: () => false }, "Node's permission model does not allow FFI"],
    [{ cpuInfo: () => "Features : asimd\n" }, '/proc/cpuinfo has no "flags"'],
    [
      {
        cpuInfo: (): string => {
          throw new Error("ENOENT: no such file");
        },
      },
      "what the processor can do is not known: ENOENT",
    ],
  ];
  test.each(refusals)("%o is refused", (changes, why) => {
    const known = processWith({
      platform: "linux",
      arch: "x64",
      cpuInfo,
      ffi: () => ({}) as never,
    });
    expect(nativeOf({ ...known, ...changes })).toContain(why);
  });

  test("features are those of all cores", () => {
    const text =
      "processor\t: 0\nflags\t\t: fpu avx2 avx512f\nvmx flags\t: ept\nprocessor\t: 1\nflags\t\t: fpu avx2\n";
    expect(featuresIn(text, "flags")).toEqual(new Set(["fpu", "avx2"]));
    expect(featuresIn("Features\t: asimd asimddp\n", "Features")).toEqual(
      new Set(["asimd", "asimddp"]),
    );
    expect(featuresIn("flags\t\t:\n", "flags").size).toBe(0);
  });
});
