// Shared objects as GNU readelf and objdump read them.
// Held against: GNU readelf and objdump.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { elfHash, sharedObject, symbolOf } from "../../src/kernels/asm/elf.ts";
import { handWritten } from "./native-functions.ts";

const folder = mkdtempSync(path.join(tmpdir(), "lantern-elf-"));
afterAll(() => rmSync(folder, { recursive: true }));

const readelf = spawnSync("readelf", ["--version"]).status === 0;
const why = readelf ? "" : " [skipped: there is no readelf on this machine]";

const machineNames = { x64: "Advanced Micro Devices X86-64", arm64: "AArch64" } as const;

describe.skipIf(!readelf)(`readelf${why}`, () => {
  for (const machine of ["x64", "arm64"] as const) {
    const file = path.join(folder, `${machine}.so`);
    const read = (): string => {
      writeFileSync(file, sharedObject(handWritten(machine), machine));
      const { stdout, stderr } = spawnSync("readelf", ["-aW", file], { encoding: "utf8" });
      expect(stderr).toBe("");
      return stdout;
    };

    test(`${machine}: a shared object whose functions are found`, () => {
      const text = read();
      expect(text).toMatch(/Type:\s+DYN/);
      expect(text).toContain(machineNames[machine]);
      expect(text).toContain("There are no relocations in this file");
      for (const { name, bytes } of handWritten(machine)) {
        expect(text).toMatch(
          new RegExp(` ${bytes.length} FUNC +GLOBAL DEFAULT +4 ${symbolOf(name)}`),
        );
      }
      // Every symbol is in a bucket of the hash table.
      expect(text).toMatch(/100\.0%\s*\n\s*\n/);
    });

    test(`${machine}: nothing is writable and executable, and the stack is not executable`, () => {
      const flags = [...read().matchAll(/^ {2}(LOAD|GNU_STACK) .* ([R ][W ][E ]) 0x/gm)];
      expect(flags.map(([, type, bits]) => `${type} ${bits!.trim()}`)).toEqual([
        "LOAD R",
        "LOAD R E",
        "LOAD RW",
        "GNU_STACK RW",
      ]);
    });
  }
});

test("the same functions give the same bytes, others others", () => {
  const made = sharedObject(handWritten("x64"), "x64");
  expect(sharedObject(handWritten("x64"), "x64")).toEqual(made);
  expect(sharedObject(handWritten("x64").slice(1), "x64")).not.toEqual(made);
});

test("functions begin at cache lines and are there byte for byte", () => {
  const functions = handWritten("arm64");
  const file = sharedObject(functions, "arm64");
  const text = 65536;
  expect(file.subarray(text, text + 4)).toEqual(functions[0]!.bytes);
  expect(file.subarray(text + 64, text + 64 + 16)).toEqual(functions[1]!.bytes);
});

test("names become C identifiers; two that become the same are refused", () => {
  expect(symbolOf("matmul.q4_0.8x4.compact")).toBe("lantern_matmul_q4_0_8x4_compact");
  const [one] = handWritten("x64");
  const twice = [one!, { ...one!, name: "nothing.at_all" }];
  expect(() => sharedObject(twice, "x64")).toThrow("two functions are called");
});

test("the hash of the System V ABI", () => {
  // native.test.ts has the proof: the system's own linker finds two hundred functions by it.
  expect(elfHash("")).toBe(0);
  expect(elfHash("printf")).toBe(0x077905a6);
});
