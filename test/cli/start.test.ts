// What a start costs, counted in modules: what is not loaded takes no time, on any machine.
// Held against: lists of modules written here.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

const counter = `
import { registerHooks } from "node:module";
import { appendFileSync } from "node:fs";
registerHooks({ load(url, context, next) {
  appendFileSync(process.env.LOADED, url + "\\n");
  return next(url, context);
} });`;

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "lantern-start-"));
  fs.writeFileSync(join(folder, "counter.mjs"), counter);
});
afterAll(() => fs.rmSync(folder, { recursive: true }));

/** The files that a command line loads, below the checkout; of its sources, in any order. */
function loadedBy(...args: string[]): string[] {
  const list = join(folder, "loaded");
  fs.writeFileSync(list, "");
  // A debugged checkout runs its sources: --cpu-prof would write a file, and an inspector on port 0 says where it is.
  const flags = ["--inspect=0", "--import", pathToFileURL(join(folder, "counter.mjs")).href];
  const { status } = spawnSync(
    process.execPath,
    [...flags, join(root, "bin/lantern.js"), ...args],
    {
      env: { ...process.env, LOADED: list, NODE_DISABLE_COMPILE_CACHE: "1" },
    },
  );
  expect(status).toBe(0);
  const base = pathToFileURL(root).href;
  const urls = fs.readFileSync(list, "utf8").split("\n");
  return urls.filter((url) => url.startsWith(base)).map((url) => url.slice(base.length));
}

test("--version is answered by the launcher alone", () => {
  for (const flag of ["--version", "-V"]) {
    expect(loadedBy(flag).filter((path) => !path.startsWith("bin/"))).toEqual([]);
  }
});

test("--help loads the table of commands and none of them", () => {
  const loaded = loadedBy("--help");
  expect(loaded.filter((path) => path.startsWith("apps/cli/commands/"))).toEqual([
    "apps/cli/commands/table.ts",
  ]);
  const packages = loaded.flatMap((path) => /^node_modules\/([^/]+)/.exec(path)?.[1] ?? []);
  expect(new Set(packages)).toEqual(new Set(["commander"]));
  expect(loaded.length).toBeLessThan(60);
});

test("a command's help loads no other command", () => {
  const loaded = loadedBy("rm", "--help").filter((path) => path.startsWith("apps/cli/commands/"));
  expect(new Set(loaded)).toEqual(
    new Set(["apps/cli/commands/rm.ts", "apps/cli/commands/table.ts"]),
  );
});
