// Files of generated machine code that are kept from run to run: only what this user wrote, whole, in a folder that nobody else can
// change, is read. Nothing that goes wrong is an error.

import * as fs from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { keptFiles } from "../../src/platform/node-native-kept.ts";

const name = "kernels-test.bin";
const content = Uint8Array.from({ length: 1000 }, (_, i) => i);
let folder: string;
let native: string;
let file: string;
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(tmpdir(), "lantern-kept-"));
  native = path.join(folder, "native");
  file = path.join(native, name);
});
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }));

const isLinux = process.platform === "linux";
describe.skipIf(!isLinux)(`kept files${isLinux ? "" : " [skipped: not Linux]"}`, () => {
  function written() {
    const files = keptFiles(native, "sources");
    files.write(name, content);
    expect(files.read(name)).toEqual(content);
    return files;
  }

  test("are this user's alone, and no program", () => {
    expect(keptFiles(native, "sources").read(name)).toBeUndefined();
    written();
    expect(fs.statSync(native).mode & 0o7777).toBe(0o700);
    expect(fs.statSync(file).mode & 0o7777).toBe(0o600);
    expect(fs.readdirSync(native)).toEqual([name]);
  });

  const damage: Record<string, () => void> = {
    "a bit is wrong": () => {
      const bytes = fs.readFileSync(file);
      bytes[500]! ^= 1;
      fs.writeFileSync(file, bytes);
    },
    "the end is missing": () => fs.truncateSync(file, 700),
    "it is empty": () => fs.truncateSync(file, 0),
    "it is far too large": () => fs.truncateSync(file, 100 << 20),
    "others may write it": () => fs.chmodSync(file, 0o666),
    "it is a link": () => {
      fs.renameSync(file, path.join(folder, "elsewhere"));
      fs.symlinkSync(path.join(folder, "elsewhere"), file);
    },
    "it has a second name": () => fs.linkSync(file, path.join(folder, "second")),
  };
  test.each(Object.keys(damage))("not used where %s, and replaced", (how) => {
    const files = written();
    damage[how]!();
    expect(files.read(name)).toBeUndefined();
    files.write(name, content);
    expect(files.read(name)).toEqual(content);
  });

  test("neither read nor written where others may change the folder", () => {
    const files = written();
    fs.chmodSync(native, 0o770);
    expect(files.read(name)).toBeUndefined();
    files.write("kernels-other.bin", content);
    expect(fs.readdirSync(native)).toEqual([name]);
    fs.chmodSync(native, 0o700);
    fs.chmodSync(folder, 0o777);
    expect(files.read(name)).toBeUndefined();
  });

  test.skipIf(process.geteuid?.() !== 0)(
    `of another user are not read${process.geteuid?.() === 0 ? "" : " [skipped: only root gives files away]"}`,
    () => {
      const files = written();
      fs.chownSync(file, 12345, 12345);
      expect(files.read(name)).toBeUndefined();
    },
  );

  test("where nothing can be written, nothing is, and that is no error", () => {
    fs.writeFileSync(native, "a file in the folder's place");
    const files = keptFiles(native, "sources");
    files.write(name, content);
    expect(files.read(name)).toBeUndefined();
    expect(fs.readFileSync(native, "utf8")).toBe("a file in the folder's place");
  });
});
