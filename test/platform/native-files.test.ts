// Machine code that is opened from a file: where the system gives no memory with a descriptor, and where LANTERN_NATIVE_FILES
// asks for it. Whatever lies in the file's place or above it, no other code than ours is opened.

import { execFileSync, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { crc32 } from "node:zlib";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { sharedObject, symbolOf } from "../../src/kernels/asm/elf.ts";
import type { Ffi, FfiLibrary } from "../../src/platform/node-libc.ts";
import { type NativeProcess, nativeOf } from "../../src/platform/node-native.ts";
import type { NativeHost } from "../../src/platform/platform.ts";
import { handWritten } from "./native-functions.ts";

let folder: string;
let native: string;
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(tmpdir(), "lantern-native-"));
  native = path.join(folder, "native");
});
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }));

function processWith(changes: Partial<NativeProcess> = {}): NativeProcess {
  return {
    platform: process.platform,
    arch: process.arch,
    ffi: () => process.getBuiltinModule?.("node:ffi" as "node:fs") as never,
    mayUseFfi: () => true,
    cpuInfo: () => fs.readFileSync("/proc/cpuinfo", "latin1"),
    env: { LANTERN_CACHE: folder, LANTERN_NATIVE_FILES: "1" },
    ...changes,
  };
}

const here = nativeOf(processWith({ env: { LANTERN_CACHE: "/nowhere" } }));
const skipped = typeof here === "string" ? ` [skipped: ${here}]` : "";

function hostHere(changes: Partial<NativeProcess> = {}): NativeHost {
  const host = nativeOf(processWith(changes));
  if (typeof host === "string") throw new Error(host);
  return host;
}

/** The image's file, opened. */
function loaded(host: NativeHost, image: Uint8Array): string {
  const library = host.load(image);
  if (typeof library === "string") throw new Error(library);
  const file = fileOf(image);
  expect(fs.readlinkSync(library.path)).toBe(file);
  return file;
}

function fileOf(image: Uint8Array): string {
  return path.join(native, `${crc32(image).toString(16).padStart(8, "0")}-${image.length}.so`);
}

function imageHere(): Uint8Array {
  return sharedObject(handWritten(hostHere().arch), hostHere().arch);
}

/** node:ffi of a system whose C library does this for memfd_create and for other calls. */
function ffiWith(calls: Record<string, () => number>): Ffi {
  const real = process.getBuiltinModule("node:ffi" as "node:fs") as unknown as Ffi;
  const opened = (library: FfiLibrary): FfiLibrary => ({
    getSymbol: (name) => library.getSymbol(name),
    getFunction: (name, signature) => calls[name] ?? library.getFunction(name, signature),
  });
  return {
    DynamicLibrary: new Proxy(real.DynamicLibrary, {
      construct: (Real, [file]: [string | null]) => opened(new Real(file)),
    }),
    getRawPointer: (memory) => real.getRawPointer(memory),
  };
}

describe.skipIf(skipped)(`machine code in files${skipped}`, () => {
  test("is what is left where memory is not given, or not sealed; a folder that is open to others is then refused", () => {
    const env = { LANTERN_CACHE: folder };
    for (const call of ["memfd_create", "fcntl"]) {
      const host = hostHere({ env, ffi: () => ffiWith({ [call]: () => -1 }) });
      expect(fs.existsSync(loaded(host, imageHere()))).toBe(true);
      fs.chmodSync(native, 0o755);
      expect(host.load(imageHere())).toContain("is open to others (mode 755, expected 700)");
      fs.chmodSync(native, 0o700);
    }
  });

  test("a file that is there is used again; one that was changed is replaced", () => {
    const host = hostHere();
    const image = sharedObject(handWritten(host.arch), host.arch);
    const file = loaded(host, image);
    expect(fs.statSync(file).mode & 0o777).toBe(0o500);
    expect(fs.statSync(path.dirname(file)).mode & 0o777).toBe(0o700);
    const { ino } = fs.statSync(file);
    loaded(host, image);
    expect(fs.statSync(file).ino).toBe(ino);
    fs.chmodSync(file, 0o700);
    loaded(host, image);
    expect(fs.statSync(file).mode & 0o777).toBe(0o500);
    fs.rmSync(file);
    fs.writeFileSync(file, image.slice().fill(0), { mode: 0o500 });
    loaded(host, image);
    expect(fs.readFileSync(file).equals(image)).toBe(true);
    expect(fs.readdirSync(path.dirname(file))).toEqual([path.basename(file)]);
    fs.linkSync(file, path.join(folder, "another-name.so"));
    loaded(host, image);
    expect(fs.statSync(file).nlink).toBe(1);
  });

  test("a pipe in place of the file is not waited for", () => {
    const file = loaded(hostHere(), imageHere());
    fs.rmSync(file);
    const copy = path.join(folder, "image");
    fs.writeFileSync(copy, imageHere());
    execFileSync("mkfifo", ["-m", "500", file]);
    // In a process of its own: one that waits could not be ended from inside.
    const url = new URL("../../src/platform/node-native.ts", import.meta.url).href;
    const script = `import fs from "node:fs"; import { nodeNative } from ${JSON.stringify(url)};
      const image = new Uint8Array(fs.readFileSync(process.argv[1]));
      console.log(typeof nodeNative().load(image));`;
    const { stdout, signal } = spawnSync(
      process.execPath,
      ["--input-type=module", "--eval", script, copy],
      {
        encoding: "utf8",
        timeout: 120_000,
        env: { ...process.env, LANTERN_CACHE: folder, LANTERN_NATIVE_FILES: "1" },
      },
    );
    expect({ stdout, signal }).toEqual({ stdout: "object\n", signal: null });
    expect(fs.lstatSync(file).isFile()).toBe(true);
  });

  test("what is opened is the descriptor that was checked, whatever takes the file's place then", () => {
    const [, copy] = handWritten(hostHere().arch);
    const evil = sharedObject([{ ...copy!, name: "evil" }], hostHere().arch);
    const real = process.getBuiltinModule("node:ffi" as "node:fs") as unknown as Ffi;
    const DynamicLibrary = new Proxy(real.DynamicLibrary, {
      construct: (Real, [opened]: [string | null]) => {
        if (opened !== null) {
          // The last moment: all checks are done.
          fs.rmSync(otherFile);
          fs.writeFileSync(otherFile, evil, { mode: 0o500 });
        }
        return new Real(opened);
      },
    });
    const getRawPointer: Ffi["getRawPointer"] = (memory) => real.getRawPointer(memory);
    const functions = [...handWritten(hostHere().arch), { ...copy!, name: "other" }];
    const other = sharedObject(functions, hostHere().arch);
    const otherFile = fileOf(other);
    const library = hostHere({ ffi: () => ({ DynamicLibrary, getRawPointer }) }).load(other);
    if (typeof library === "string") throw new Error(library);
    expect(library.address(symbolOf("other"))).toBeGreaterThan(0);
    expect(() => library.address(symbolOf("evil"))).toThrow();
  });

  test("a symbolic link in place of the file is not followed", () => {
    const host = hostHere();
    const image = sharedObject(handWritten(host.arch), host.arch);
    const file = loaded(host, image);
    const elsewhere = path.join(folder, "elsewhere.so");
    fs.renameSync(file, elsewhere);
    fs.symlinkSync(elsewhere, file);
    loaded(host, image);
    expect(fs.lstatSync(file).isFile()).toBe(true);
  });

  test("files that nobody used for a month go when one is made; others' files stay", () => {
    const host = hostHere();
    fs.mkdirSync(native, { mode: 0o700 });
    const names = ["a", "b", "c"].map((letter) => `${letter.repeat(64)}.so`);
    const [old, fresh, begun] = [names[0]!, names[1]!, `${names[2]!}.0f`];
    const past = (days: number) => new Date(Date.now() - days * 24 * 3600 * 1000);
    for (const [name, days] of [
      [old, 31],
      [fresh, 29],
      [begun, 2],
      ["notes.txt", 90],
    ] as const) {
      fs.writeFileSync(path.join(native, name), "");
      fs.utimesSync(path.join(native, name), past(days), past(days));
    }
    const made = loaded(host, sharedObject(handWritten(host.arch), host.arch));
    const expected = [path.basename(made), fresh, "notes.txt"].sort();
    expect(fs.readdirSync(native).sort()).toEqual(expected);
  });

  test.each([
    [0o755, "is open to others (mode 755, expected 700)"],
    [0o720, "is open to others (mode 720, expected 700)"],
  ])("a folder of mode %o is refused", (mode, why) => {
    fs.mkdirSync(native);
    fs.chmodSync(native, mode);
    expect(hostHere().load(new Uint8Array(8))).toContain(why);
    expect(fs.readdirSync(native)).toEqual([]);
  });

  const isRoot = process.getuid?.() === 0;
  const other = isRoot ? "" : " [skipped: only root can give a folder away]";
  test.skipIf(!isRoot)(`a folder of another user is refused${other}`, () => {
    fs.mkdirSync(native, { mode: 0o700 });
    fs.chownSync(native, 12345, 12345);
    expect(hostHere().load(new Uint8Array(8))).toContain("belongs to another user (12345, not 0)");
    fs.chownSync(native, 0, 0);
    fs.chownSync(folder, 12345, 12345);
    expect(hostHere().load(new Uint8Array(8))).toContain(
      `${folder} belongs to another user (12345)`,
    );
    fs.chownSync(folder, 0, 0);
  });

  test("a folder inside one that everybody may change is refused", () => {
    fs.chmodSync(folder, 0o777);
    const image = sharedObject(handWritten(hostHere().arch), hostHere().arch);
    expect(hostHere().load(image)).toContain(`others may replace what is in ${folder} (mode 777)`);
    fs.chmodSync(folder, 0o770);
    expect(hostHere().load(image)).toContain(`others may replace what is in ${folder} (mode 770)`);
    fs.chmodSync(folder, 0o1777);
    expect(hostHere().load(image)).toMatchObject({ path: expect.any(String) });
  });

  test("a symbolic link to a folder, or a file, in place of the folder is refused", () => {
    fs.mkdirSync(path.join(folder, "real"), { mode: 0o700 });
    fs.symlinkSync(path.join(folder, "real"), path.join(folder, "native"));
    expect(hostHere().load(new Uint8Array(8))).toContain("is not a folder");
    fs.rmSync(path.join(folder, "native"));
    fs.writeFileSync(path.join(folder, "native"), "");
    expect(hostHere().load(new Uint8Array(8))).toContain("nothing can be kept in");
  });
});
