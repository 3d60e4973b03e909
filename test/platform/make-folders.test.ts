// Folders and those above them.
// Held against: the modes that the system reports.

import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeFolders } from "../../src/platform/node-make-folders.ts";
import { programFolders, sourceFiles } from "../rules/scan.ts";

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "lantern-folders-"));
});
afterAll(() => fs.rmSync(folder, { recursive: true }));

test("makes all that are missing, with the mode, and nothing where they are", () => {
  const inner = join(folder, "a/b/c");
  makeFolders(inner, 0o700);
  makeFolders(inner, 0o700);
  if (process.platform !== "win32") expect(fs.statSync(join(folder, "a")).mode & 0o777).toBe(0o700);
  expect(fs.statSync(inner).isDirectory()).toBe(true);
});

test("says what is in the way", () => {
  fs.writeFileSync(join(folder, "file"), "");
  expect(() => makeFolders(join(folder, "file"))).toThrow(/EEXIST/);
  expect(() => makeFolders(join(folder, "file/below"))).toThrow();
});

const isLinux = process.platform === "linux";
test.skipIf(!isLinux)(
  `ends where the system makes none${isLinux ? "" : " [skipped: Linux]"}`,
  () => {
    expect(() => makeFolders("/proc/x/y/z")).toThrow(/ENOENT/);
  },
);

test("nobody calls Node's own, which does not end there", () => {
  const calling = sourceFiles(...programFolders).filter(({ text }) =>
    /mkdir(Sync)?\([^;]*recursive/.test(text),
  );
  expect(calling.map(({ path }) => path)).toEqual([]);
});
