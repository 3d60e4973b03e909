// Silences native libraries that write to standard error: Dawn prints every adapter that it cannot use, with paths of its build
// machine, which are useless to users. While such a library is called, file descriptor 2 leads to /dev/null; if this process cannot
// arrange that, the output stays visible.
//
// LANTERN_GPU_LOG=1 keeps the output, for debugging a driver.

import { closeSync, openSync } from "node:fs";
import { loadFfi } from "./node-native.ts";

const standardError = 2;

interface Descriptors {
  dup(descriptor: number): number;
  dup2(from: number, to: number): number;
  close(descriptor: number): number;
}

/** Calls `run` and hides the output of native code to standard error meanwhile. */
export function withoutNativeErrors<T>(run: () => T): T {
  const calls = process.env.LANTERN_GPU_LOG ? undefined : descriptorCalls();
  if (!calls) return run();
  const nowhere = openSync("/dev/null", "w");
  const kept = calls.dup(standardError);
  try {
    if (kept >= 0) calls.dup2(nowhere, standardError);
    return run();
  } finally {
    if (kept >= 0) {
      calls.dup2(kept, standardError);
      calls.close(kept); // with libc, which opened it: in a worker, Node warns of descriptors that it does not know
    }
    closeSync(nowhere);
  }
}

function descriptorCalls(): Descriptors | undefined {
  if (process.platform !== "linux" || process.permission?.has("ffi") === false) return undefined;
  const ffi = loadFfi();
  if (!ffi) return undefined;
  try {
    const libc = new ffi.DynamicLibrary("libc.so.6");
    const call = (name: string, count: number): ((...numbers: number[]) => number) =>
      libc.getFunction(name, {
        arguments: Array.from({ length: count }, () => "i32"),
        return: "i32",
      }) as (...numbers: number[]) => number;
    return { dup: call("dup", 1), dup2: call("dup2", 2), close: call("close", 1) };
  } catch {
    return undefined; // a system with another C library
  }
}
