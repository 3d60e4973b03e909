// What may be run or loaded from a disk: the check of a path, in the launcher's plain JavaScript and in the library; where the launcher
// looks for a Node; optional packages in folders above; a checkout without its dependencies. Other users' files are made by root only.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { whyUntrusted } from "../../src/platform/node-trusted-path.ts";
import { skippedFor } from "../support/skips.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const windows = process.platform === "win32";
const isRoot = process.getuid?.() === 0;
const rootOnly = isRoot ? "" : " [skipped: only root can make another user's file]";
const stranger = 12345;

type Check = typeof whyUntrusted;
const launcher = (await import(join(root, "bin", "trusted-path.js"))) as { whyUntrusted: Check };

let folder: string;
beforeEach(() => {
  folder = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), "lantern-trusted-")));
});
afterEach(() => fs.rmSync(folder, { recursive: true }));

function make(path: string, content = ""): string {
  const file = join(folder, path);
  fs.mkdirSync(dirname(file), { recursive: true, mode: 0o755 });
  fs.writeFileSync(file, content, { mode: 0o755 });
  return file;
}

const chmod = (path: string, mode: number) => fs.chmodSync(join(folder, path), mode);
const chown = (path: string) => fs.lchownSync(join(folder, path), stranger, stranger);
const link = (to: string, path: string) => fs.symlinkSync(to, join(folder, path));

interface Case {
  readonly title: string;
  /** Changes what is there: "own" is Lantern's folder, "own/modules/it" what is asked for. */
  change(): void;
  /** undefined: it can be trusted. */
  readonly says?: RegExp;
  readonly needsRoot?: true;
}

const cases: readonly Case[] = [
  { title: "this user's alone", change: () => {} },
  {
    title: "a file for everybody",
    change: () => chmod("own/modules/it", 0o777),
    says: /it \(mode/,
  },
  { title: "a folder for everybody", change: () => chmod("own/modules", 0o777), says: /modules / },
  { title: "a folder further up", change: () => chmod("own", 0o757), says: /own \(mode 757\)/ },
  { title: "a sticky folder", change: () => chmod("own", 0o1777) },
  { title: "a group's folder", change: () => chmod("own/modules", 0o775), says: /mode 775/ },
  {
    title: "the folder of a group that may change Lantern (umask 002)",
    change: () => {
      for (const path of ["own", "own/modules", "own/modules/it"]) chmod(path, 0o775);
    },
  },
  {
    title: "a link, followed",
    change: () => {
      fs.renameSync(join(folder, "own/modules/it"), join(folder, "it"));
      link("../../it", "own/modules/it");
    },
  },
  {
    title: "a link to a folder for everybody",
    change: () => {
      fs.mkdirSync(join(folder, "open"));
      fs.renameSync(join(folder, "own/modules/it"), join(folder, "open/it"));
      chmod("open", 0o777);
      link(join(folder, "open/it"), "own/modules/it");
    },
    says: /others may change \S+open /,
  },
  {
    title: "another user's file",
    change: () => chown("own/modules/it"),
    says: /12345/,
    needsRoot: true,
  },
  {
    title: "another user's folder",
    change: () => chown("own/modules"),
    says: /12345/,
    needsRoot: true,
  },
  {
    title: "another user's link",
    change: () => {
      fs.renameSync(join(folder, "own/modules/it"), join(folder, "it"));
      link("../../it", "own/modules/it");
      chown("own/modules/it");
    },
    says: /modules\/it belongs to another user/,
    needsRoot: true,
  },
  {
    title: "what belongs to the owner of Lantern's folder",
    change: () => ["own", "own/modules", "own/modules/it"].forEach(chown),
    needsRoot: true,
  },
];

describe.skipIf(windows)(`the check of a path${windows ? " [skipped: Windows]" : ""}`, () => {
  for (const { title, change, says, needsRoot } of cases) {
    const skip = needsRoot ? rootOnly : "";
    test.skipIf(skip !== "")(title + skip, () => {
      const file = make("own/modules/it");
      change();
      const said = [launcher.whyUntrusted, whyUntrusted].map((check) =>
        check(file, join(folder, "own")),
      );
      expect(said[0]).toBe(said[1]);
      if (says === undefined) expect(said[1]).toBeUndefined();
      else expect(said[1]).toMatch(says);
    });
  }

  test("what is not there, and links in a circle, are errors", () => {
    make("own/x");
    link("round", "own/round");
    for (const check of [launcher.whyUntrusted, whyUntrusted]) {
      expect(() => check(join(folder, "own/none"), join(folder, "own"))).toThrow("ENOENT");
      expect(() => check(join(folder, "own/round"), join(folder, "own"))).toThrow("links");
    }
  });
});

interface Pinned {
  package: string;
  file: string;
}

describe.skipIf(windows)(
  `where the launcher looks for a Node${windows ? " [skipped: Windows]" : ""}`,
  () => {
    const inModules = (pinned: Pinned, modules: string): string => {
      make(join(modules, pinned.package, "package.json"), "{}");
      return make(join(modules, pinned.package, pinned.file), "#!/bin/sh\n");
    };

    /** `place`: where Lantern lies. */
    async function launcherIn(place: string) {
      fs.cpSync(join(root, "bin"), join(folder, place, "bin"), { recursive: true });
      make(join(place, "package.json"), '{"type": "module"}');
      const runtime = (await import(
        pathToFileURL(join(folder, place, "bin", "runtime.js")).href
      )) as { findRuntime(): { path?: string; refused?: string }; pinnedRuntime(): Pinned };
      const none = join(folder, "no-cache");
      const find = () => {
        const { LANTERN_CACHE: before } = process.env;
        process.env.LANTERN_CACHE = none;
        try {
          return runtime.findRuntime();
        } finally {
          if (before === undefined) delete process.env.LANTERN_CACHE;
          else process.env.LANTERN_CACHE = before;
        }
      };
      return { find, pinned: runtime.pinnedRuntime() };
    }

    test("its own node_modules", async () => {
      const { find, pinned } = await launcherIn("scratch/lantern");
      const node = inModules(pinned, "scratch/lantern/node_modules");
      expect(find()).toEqual({ path: node });
      chmod("scratch/lantern/node_modules", 0o777);
      expect(find().path).toBeUndefined();
      expect(find().refused).toMatch(/node_modules \(mode 777\)/);
    });

    test("the node_modules that it lies in", async () => {
      const { find, pinned } = await launcherIn("app/node_modules/lantern");
      const node = inModules(pinned, "app/node_modules");
      expect(find()).toEqual({ path: node });
    });

    test("no folder above: another user may have made it", async () => {
      const { find, pinned } = await launcherIn("scratch/lantern");
      inModules(pinned, "scratch/node_modules");
      inModules(pinned, "node_modules");
      expect(find()).toEqual({});
    });

    test.skipIf(!isRoot)(`nothing of another user's${rootOnly}`, async () => {
      const { find, pinned } = await launcherIn("app/node_modules/lantern");
      inModules(pinned, "app/node_modules");
      chmod("app/node_modules", 0o1777);
      chown(join("app/node_modules", pinned.package));
      expect(find().path).toBeUndefined();
      expect(find().refused).toContain("belongs to another user (12345)");
    });
  },
);

test("a checkout without its dependencies says so, and loads none from a folder above", () => {
  fs.cpSync(join(root, "bin"), join(folder, "lantern/bin"), { recursive: true });
  make("lantern/package.json", '{"type": "module", "dependencies": {"hono": "4"}}');
  make("lantern/apps/cli/main.ts", 'import "hono";\nexport const main = async () => 0;\n');
  make("node_modules/hono/package.json", '{"type": "module", "exports": "./index.js"}');
  make("node_modules/hono/index.js", 'console.log("planted");\n');
  const env = { ...process.env, LANTERN_CACHE: join(folder, "cache") };
  const start = () =>
    spawnSync(process.execPath, [join(folder, "lantern/bin/lantern.js")], {
      encoding: "utf8",
      env,
    });
  expect(start()).toMatchObject({ status: 1, stdout: "" });
  expect(start().stderr).toMatch(
    /^lantern: hono is not in \S+node_modules: npm ci brings what Lantern needs\n$/,
  );
  fs.renameSync(join(folder, "node_modules"), join(folder, "lantern/node_modules"));
  expect(start()).toMatchObject({ status: 0, stdout: "planted\n", stderr: "" });
});

test.skipIf(windows)(
  `what downloads a Node takes its dependencies from no folder above${skippedFor("Windows", windows)}`,
  () => {
    fs.cpSync(join(root, "bin"), join(folder, "lantern/bin"), { recursive: true });
    make("lantern/package.json", '{"type": "module", "dependencies": {"hono": "4"}}');
    make("lantern/dist/cli/fetch-runtime.js", 'import "hono";\nexport const fetchRuntime = 0;\n');
    make("node_modules/hono/package.json", '{"type": "module", "exports": "./index.js"}');
    make("node_modules/hono/index.js", 'console.log("planted");\n');
    make("old.cjs", 'Object.defineProperty(process.versions, "node", { value: "20.0.0" });\n');
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      ["--require", join(folder, "old.cjs"), join(folder, "lantern/bin/lantern.js"), "models"],
      { encoding: "utf8", env: { ...process.env, LANTERN_CACHE: join(folder, "cache") } },
    );
    expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
    expect(stderr).toMatch(
      /^lantern: hono is not in \S+node_modules, nor beside Lantern: npm install/,
    );
  },
);

test.skipIf(!isRoot)(`a dependency of another user's is not loaded${rootOnly}`, () => {
  const lantern = "app/node_modules/lantern";
  fs.cpSync(join(root, "bin"), join(folder, lantern, "bin"), { recursive: true });
  make(`${lantern}/package.json`, '{"type": "module", "dependencies": {"hono": "4"}}');
  make(`${lantern}/dist/cli/main.js`, 'import "hono";\nexport const main = async () => 0;\n');
  make("app/node_modules/hono/package.json", '{"type": "module", "exports": "./index.js"}');
  make("app/node_modules/hono/index.js", 'console.log("loaded");\n');
  const env = { ...process.env, LANTERN_CACHE: join(folder, "cache"), LANTERN_RUNTIME: "off" };
  const start = () =>
    spawnSync(process.execPath, [join(folder, lantern, "bin/lantern.js")], {
      encoding: "utf8",
      env,
    });
  expect(start()).toMatchObject({ status: 0, stdout: "loaded\n" });
  chmod("app/node_modules", 0o1777);
  chown("app/node_modules/hono");
  expect(start()).toMatchObject({ status: 1, stdout: "" });
  expect(start().stderr).toContain("belongs to another user (12345)");
});

test.skipIf(windows)(
  `an optional package in a folder that others may write is not loaded${skippedFor("Windows", windows)}`,
  () => {
    // The library as it lies in a project, below a folder with somebody's node_modules.
    fs.cpSync(join(root, "src/base"), join(folder, "app/lantern/src/base"), { recursive: true });
    fs.cpSync(join(root, "src/platform"), join(folder, "app/lantern/src/platform"), {
      recursive: true,
    });
    make("app/lantern/package.json", '{"type": "module"}');
    make("node_modules/webgpu/package.json", '{"type": "module", "exports": "./index.js"}');
    make(
      "node_modules/webgpu/index.js",
      'console.log("loaded"); export const create = () => ({});\n',
    );
    const script = make(
      "app/lantern/src/try.ts",
      'import { nodeGpu } from "./platform/node-gpu.ts";\nconst got = await nodeGpu();\nif (typeof got === "string") console.log(got);\n',
    );
    const say = () => spawnSync(process.execPath, [script], { encoding: "utf8" }).stdout;
    expect(say()).toBe("loaded\n"); // Node's rule, and nobody else's folder
    chmod("node_modules", 0o777);
    expect(say()).toMatch(
      /^the npm package "webgpu" is not loaded: \S+ is not used: others may change \S+node_modules \(mode 777\)/,
    );
  },
);
