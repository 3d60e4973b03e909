// Threads that end while V8 compiles their calls of machine code: a race in Node that killed one run in twenty
// (src/platform/node-native-calls.ts). With direct calls one run in three of the second test dies.
// Held against: the exit code of processes, run many times.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { sharedObject, symbolOf } from "../../src/kernels/asm/elf.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import { handWritten } from "./native-functions.ts";

const ROUNDS = "60";
const here = nodeNative();
const skipped = typeof here === "string" ? ` [skipped: ${here}]` : "";

test.skipIf(skipped)(`machine code is called through WebAssembly${skipped}`, () => {
  if (typeof here === "string") throw new Error(here);
  const library = here.load(sharedObject(handWritten(here.arch), here.arch));
  if (typeof library === "string") throw new Error(library);
  const table = new WebAssembly.Table({ element: "anyfunc", initial: 1 });
  // A table takes functions of WebAssembly, and throws on all others.
  expect(() => table.set(0, library.function(symbolOf("nothing.at-all")))).not.toThrow();
});

test.skipIf(skipped)(
  `threads end in the middle of calls of machine code${skipped}`,
  () => {
    const folder = mkdtempSync(path.join(tmpdir(), "lantern-teardown-"));
    try {
      const script = fileURLToPath(new URL("./native-teardown.ts", import.meta.url));
      const env = { ...process.env, LANTERN_CACHE: folder };
      const child = spawnSync(process.execPath, [script, ROUNDS], { encoding: "utf8", env });
      expect({ signal: child.signal, stderr: child.stderr }).toEqual({ signal: null, stderr: "" });
      expect(child.stdout).toBe("all ended\n");
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
  120_000,
);
