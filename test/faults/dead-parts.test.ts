// Files that were begun and never got their name: those of a process that was killed go when the next one writes to the same
// place, those of a living one stay.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { inspect, quantize } from "../../src/index.ts";
import { createNodeOutputFile } from "../../src/platform/node-output-file.ts";
import { partOf, removeDeadParts } from "../../src/platform/node-part-names.ts";
import { writePrivateText } from "../../src/platform/node-private.ts";
import { nodeSmallFiles } from "../../src/platform/node-small-files.ts";
import { tinyGguf } from "../support/tiny-file.ts";

const script = fileURLToPath(new URL("./killed-writer.ts", import.meta.url));
let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(tmpdir(), "lantern-parts-"));
});
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }));

const at = (name: string): string => path.join(folder, name);
const parts = (): string[] => fs.readdirSync(folder).filter((name) => name.endsWith(".part"));

function touch(name: string, age: "old" | "new"): void {
  fs.writeFileSync(at(name), "");
  const past = new Date(Date.now() - 25 * 3600 * 1000);
  if (age === "old") fs.utimesSync(at(name), past, past);
}

test("a killed quantize leaves a part, which the next one removes; that of a living one stays", async () => {
  fs.writeFileSync(at("in.gguf"), await tinyGguf());
  const [input, output] = [at("in.gguf"), at("out.gguf")];
  const killed = spawnSync(process.execPath, ["--no-warnings", script, input, output, "killed"]);
  expect(killed.signal).toBe("SIGKILL");
  expect(parts()).toHaveLength(1);

  const waits = spawn(process.execPath, ["--no-warnings", script, input, output, "waits"]);
  await once(waits.stdout, "data");
  expect(parts(), "the killed one's was removed by it").toHaveLength(1);
  await quantize(input, output, "q8_0");
  expect(parts(), "it is still writing").toHaveLength(1);
  waits.kill("SIGKILL");
  await once(waits, "exit");
  await quantize(input, output, "q8_0", { replace: true });
  expect(new Set(fs.readdirSync(folder))).toEqual(new Set(["in.gguf", "out.gguf"]));
  expect((await inspect(output)).tensors.some(({ dtype }) => dtype === "q8_0")).toBe(true);
});

test("parts of other machines, of an older Lantern and of other files stay until they are a day old", async () => {
  const uuid = "0b8f6f3e-3d3c-4f5c-9d0e-0a1b2c3d4e5f";
  touch(".out.01234567-1-89abcdef.part", "new");
  touch(".out.01234567-2-89abcdef.part", "old");
  touch(`.out.${uuid}.part`, "new");
  touch(`.out.${uuid.replace("0b", "1b")}.part`, "old");
  touch(".other.01234567-2-89abcdef.part", "old");
  touch(".out.notes.part", "old");
  const own = path.basename(partOf(at("out")));
  touch(own, "new"); // perhaps another thread's
  touch(path.basename(partOf(at("out"))), "old"); // of an earlier process with this number
  await removeDeadParts(at("out"));
  const left = [
    ".other.01234567-2-89abcdef.part",
    ".out.01234567-1-89abcdef.part",
    `.out.${uuid}.part`,
    ".out.notes.part",
    own,
  ];
  expect(new Set(parts())).toEqual(new Set(left));
});

test("a name of 255 bytes has room for a part", async () => {
  for (const name of ["x".repeat(255), "ü".repeat(127)]) {
    const file = await createNodeOutputFile(at(name), { replace: false, inputs: [] });
    await file.write(Buffer.from("all of it"));
    await file.finish();
    expect(fs.readFileSync(at(name), "utf8")).toBe("all of it");
    await nodeSmallFiles({ LANTERN_CACHE: folder }).write(name, "small");
    expect(fs.readFileSync(at(name), "utf8")).toBe("small");
  }
});

test("a text is written whole or not at all; pipes, links and others' rights stay", async () => {
  fs.writeFileSync(at("text"), "before");
  fs.symlinkSync("text", at("link"));
  await writePrivateText(at("link"), "after");
  expect(fs.readFileSync(at("text"), "utf8")).toBe("after");
  expect(fs.lstatSync(at("link")).isSymbolicLink()).toBe(true);
  expect(fs.statSync(at("text")).mode & 0o777).toBe(0o600);
  fs.symlinkSync("new", at("dangling"));
  await writePrivateText(at("dangling"), "made");
  expect(fs.readFileSync(at("new"), "utf8")).toBe("made");
  await expect(writePrivateText(at("gone/text"), "")).rejects.toThrow("ENOENT");
  await writePrivateText("/dev/null", "nowhere");
  expect(parts()).toEqual([]);
});
