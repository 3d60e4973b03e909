// Machine code in Node: whether it can run here, which CPU features there are, and calls through node:ffi. Code is
// loaded from sealed memory (node-native-memory.ts), or else from files (node-native-files.ts). Linux only: its
// formats and rules are known and tested; elsewhere Lantern computes in WebAssembly and says so.

import { readFileSync, readlinkSync } from "node:fs";
import { crc32 } from "node:zlib";
import { messageOf } from "../base/errors.ts";
import { quietBuiltin, whyNoFfi } from "./node-builtin.ts";
import { bindThread } from "./node-cpus.ts";
import type { Held } from "./node-descriptors.ts";
import { type Environment, nativeCodeFolder } from "./node-folders.ts";
import { type Ffi, type FfiLibrary, type Libc, libcCalls } from "./node-libc.ts";
import { forwarded } from "./node-native-calls.ts";
import { cleanFolder, holdInFile } from "./node-native-files.ts";
import { keptFiles } from "./node-native-kept.ts";
import { holdInMemory } from "./node-native-memory.ts";
import { homeFolder } from "./node-path-errors.ts";
import type { NativeAccess, NativeHost, NativeLibrary } from "./platform.ts";

/** The facts of this process that decide, injectable so that every outcome can be tested anywhere. */
export interface NativeProcess {
  readonly platform: string;
  readonly arch: string;
  /** undefined: this Node has no node:ffi, or it is disabled. */
  ffi(): Ffi | undefined;
  /** Whether the permission model is off or allows FFI. */
  mayUseFfi(): boolean;
  /** The text of /proc/cpuinfo. */
  cpuInfo(): string;
  readonly env: Environment;
  readonly versions?: NodeJS.ProcessVersions;
  /** Names the sources that run; undefined: they may change at any time. */
  readonly sources?: string | undefined;
}

/** Written into bundles (scripts/bundle.js). */
declare const LANTERN_SOURCES: string;

const thisProcess: NativeProcess = {
  platform: process.platform,
  arch: process.arch,
  ffi: loadFfi,
  mayUseFfi: () => process.permission?.has("ffi") ?? true,
  cpuInfo: () => readFileSync("/proc/cpuinfo", "latin1"),
  env: process.env,
  sources: typeof LANTERN_SOURCES === "string" ? LANTERN_SOURCES : undefined,
};

/** undefined: this runtime has none. */
export function loadFfi(): Ffi | undefined {
  return quietBuiltin("node:ffi", "FFI ") as Ffi | undefined;
}

/** For each architecture, the line of /proc/cpuinfo that lists a core's features. */
const featureLines: Readonly<Record<NativeHost["arch"], string>> = {
  x64: "flags",
  arm64: "Features",
};

/** One result for the whole thread. */
let known: NativeAccess | undefined;

export function nodeNative(): NativeAccess {
  known ??= nativeOf(thisProcess);
  return known;
}

export function nativeOf(host: NativeProcess): NativeAccess {
  const { platform, arch, env, sources } = host;
  if (platform !== "linux") return `machine code is run on Linux only as yet, this is ${platform}`;
  if (!isKnownArch(arch)) return `machine code is made for x64 and arm64, this is ${arch}`;
  if (!host.mayUseFfi()) {
    return "Node's permission model does not allow FFI: --allow-ffi would, with --allow-fs-read and --allow-fs-write for the cache folder";
  }
  let features: ReadonlySet<string>;
  try {
    features = featuresIn(host.cpuInfo(), featureLines[arch]);
  } catch (error) {
    return `what the processor can do is not known: ${messageOf(error)}`;
  }
  if (features.size === 0) {
    return `what the processor can do is not known: /proc/cpuinfo has no "${featureLines[arch]}"`;
  }
  const ffi = host.ffi();
  if (!ffi) return whyNoFfi(host.versions);
  const libc = libcCalls(ffi);
  if (!libc) return "the C library of this system cannot be called (memfd_create, open)";
  const folder = nativeCodeFolder(env, platform, homeFolder());
  const places = placesOf(libc, folder, env);
  return {
    arch,
    features,
    bind: (cpus) => bindThread(ffi, cpus),
    load: (sharedObject) => openFirst(ffi, places, sharedObject),
    address: (memory) => Number(ffi.getRawPointer(memory)), // below 2^53: user space has 47 bits
    kept: sources === undefined ? undefined : keptFiles(folder, sources),
  };
}

/** A location from which the system can load machine code. */
type Place = (content: Uint8Array, name: string) => Held;

/** The possible locations, best first. */
function placesOf(libc: Libc, folder: string, env: Environment): Place[] {
  const inFile: Place = (content, name) => holdInFile(libc, folder, content, name);
  // Profilers and debuggers read the names of functions from a file.
  if (env.LANTERN_NATIVE_FILES) return [inFile];
  let isClean = false;
  const inMemory: Place = (content, name) => {
    if (!isClean) cleanFolder(folder); // removes files of earlier runs, once per thread
    isClean = true;
    return holdInMemory(libc, content, name);
  };
  return [inMemory, inFile];
}

/** Several may have one: each is found by its content. A hash of node:crypto would take longer to load than all else here. */
function nameOfImage(content: Uint8Array): string {
  return `${crc32(content).toString(16).padStart(8, "0")}-${content.length}`;
}

/** Loads the code from the first location that works; a string says why none does. */
function openFirst(
  ffi: Ffi,
  places: readonly Place[],
  content: Uint8Array,
): NativeLibrary | string {
  const name = nameOfImage(content);
  let refused = "";
  for (const place of places) {
    const held = place(content, name);
    const library = "refused" in held ? held.refused : openLibrary(ffi, held.descriptor);
    if (typeof library !== "string") return library;
    refused = library; // the last reason is the one that the user can do something about
  }
  return refused;
}

function isKnownArch(arch: string): arch is NativeHost["arch"] {
  return Object.hasOwn(featureLines, arch);
}

/** The features that every core has: lines differ if cores do. */
export function featuresIn(cpuInfo: string, line: string): Set<string> {
  const ofCores = cpuInfo
    .split("\n")
    .filter((text) => text.startsWith(line) && text.slice(line.length).trimStart().startsWith(":"))
    .map(
      (text) =>
        new Set(
          text
            .slice(text.indexOf(":") + 1)
            .split(/\s+/)
            .filter(Boolean),
        ),
    );
  const [first = new Set<string>(), ...others] = ofCores;
  return new Set([...first].filter((feature) => others.every((core) => core.has(feature))));
}

/** Libraries stay referenced, and so open, as long as this thread lives: compiled code calls into them. */
const opened = new Map<string, FfiLibrary>();

function openLibrary(ffi: Ffi, descriptor: number): NativeLibrary | string {
  const path = `/proc/self/fd/${descriptor}`;
  let library = opened.get(path);
  if (!library) {
    try {
      library = new ffi.DynamicLibrary(path);
    } catch (error) {
      // Or it was a security module or a system call filter; the system does not say.
      const why = messageOf(error).replace("dlopen failed: ", "").replace(`${path}: `, "");
      return `the system does not open ${placeOf(path)} (${why}); is that folder mounted "noexec"?`;
    }
    opened.set(path, library);
  }
  const functions = library;
  return {
    path,
    address: (symbol) => Number(functions.getSymbol(symbol)),
    function: (symbol) =>
      forwarded(functions.getFunction(symbol, { arguments: ["f64"], return: "void" })),
  };
}

/** The file behind a descriptor, for messages. */
function placeOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return path;
  }
}
