// The bundles that a checkout runs instead of its sources: a checkout of a few lines, started by the real launcher.
// Held against: the sources of a checkout that the test wrote.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const windows = process.platform === "win32";
const bundled = windows ? " [skipped: Windows has no modes]" : "";
describe.skipIf(windows)(`the bundles of a checkout${bundled}`, () => {
  const main = (text: string) =>
    `import { text } from "../../src/base/text.ts";\nexport const main = async () => { console.log(text, "${text}", import.meta.url); return 0; };\n`;
  let checkout: string;
  const at = (path: string) => join(checkout, path);
  const cache = "node_modules/.cache/lantern";

  function write(path: string, text: string): void {
    fs.mkdirSync(join(at(path), ".."), { recursive: true });
    fs.writeFileSync(at(path), text);
  }

  /** Files just written are not bundled, as their time may not tell that they change again. */
  function settle(): void {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 150);
  }

  function start(...args: string[]): string {
    settle();
    const own = { LANTERN_CACHE: at("cache"), LANTERN_RUNTIME: "off", NODE_COMPILE_CACHE: "" };
    const env = { ...process.env, ...own };
    const { stdout, stderr } = spawnSync(process.execPath, [at("bin/lantern.js"), ...args], {
      encoding: "utf8",
      env,
    });
    expect(stderr).toBe("");
    return stdout;
  }

  beforeAll(() => {
    checkout = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), "lantern-checkout-")));
    fs.cpSync(join(root, "bin"), at("bin"), { recursive: true });
    for (const name of ["bundle.js", "checkout-bundle.js", "kept-code.js"]) {
      fs.cpSync(join(root, "scripts", name), at(`scripts/${name}`));
    }
    fs.mkdirSync(at("node_modules"));
    for (const name of ["rolldown", "@rolldown", "@oxc-project"]) {
      fs.symlinkSync(join(root, "node_modules", name), at(`node_modules/${name}`));
    }
    write("package.json", '{"type": "module", "version": "1.2.3"}');
    write("tsconfig.json", "{}");
    write("src/base/text.ts", 'export const text: string = "first";\n');
    write("apps/cli/main.ts", main("a"));
    write("apps/cli/fetch-runtime.ts", "export {};\n");
    for (const name of ["compute", "engine", "measure", "quantize", "text"]) {
      write(`src/threads/${name}.ts`, "export {};\n");
    }
  });
  afterAll(() => fs.rmSync(checkout, { recursive: true }));

  test("are made at the first command, not for help, and used from then on", () => {
    expect(start("--help")).toContain("first a file:");
    expect(start("--help")).toContain("/apps/cli/main.ts");
    expect(start("x")).toMatch(/^first a file:.*\.cache\/lantern\/\d\/start\/for-main\.mjs\n$/);
    expect(start("--help")).toContain("/.cache/lantern/");
  });

  test("take Node's modules as they are, without reading all of their exports", () => {
    write(
      "src/base/text.ts",
      `import { basename as last } from "node:path";\nimport * as os from "node:os";\nimport { default as fs } from "node:fs";\n` +
        'export const text: string = [last("/x/named"), typeof os.EOL, typeof fs.statSync].join();\n',
    );
    expect(start("x")).toMatch(/^named,string,function a file:.*\.cache/);
    const slot = at(join(cache, fs.readFileSync(at(join(cache, "current")), "utf8")));
    const bundle = fs.readFileSync(join(slot, "start", "for-main.cjs"), "utf8");
    expect(bundle.match(/const (?:\{.*\}|os) = .*"node:(path|os)"\);$/gm)).toEqual([
      'const { basename } = process.getBuiltinModule("node:path");',
      'const os = process.getBuiltinModule("node:os");',
    ]);
    write("src/base/text.ts", 'export const text: string = "first";\n');
  });

  test("are never of older sources, whatever the time of a file says", () => {
    const file = at("src/base/text.ts");
    const { atime, mtime } = fs.statSync(file);
    fs.writeFileSync(file, 'export const text: string = "newer";\n');
    fs.utimesSync(file, atime, mtime);
    expect(start("--help")).toMatch(/^newer a file:.*\/apps\/cli\/main\.ts\n$/);
    expect(start("x")).toMatch(/^newer a file:.*\/\.cache\//);
    write("apps/cli/main.ts", main("b"));
    expect(start("x")).toMatch(/^newer b file:.*\/\.cache\//);
    fs.rmSync(at("src/base/text.ts"));
    write("apps/cli/main.ts", "export const main = async () => { console.log(3); return 0; };\n");
    expect(start("x")).toBe("3\n");
  });

  test("are not used where others could have put them", () => {
    write(
      "apps/cli/main.ts",
      'export const main = async () => { console.log("own"); return 0; };\n',
    );
    expect(start("x")).toBe("own\n");
    const slot = at(join(cache, fs.readFileSync(at(join(cache, "current")), "utf8")));
    fs.writeFileSync(
      join(slot, "cli/main.js"),
      'export const main = async () => { console.log("planted"); return 0; };\n',
    );
    expect(start("x")).toBe("planted\n"); // the user's own doing
    fs.chmodSync(slot, 0o777);
    expect(start("x")).toBe("own\n");
  });

  test("do not fill the disk", () => {
    fs.rmSync(at(cache), { recursive: true });
    const old = new Date(Date.now() - 3600_000);
    for (let round = 0; round < 4; round++) {
      write("apps/cli/main.ts", `export const main = async () => (console.log(${round}), 0);\n`);
      expect(start("x")).toBe(`${round}\n`);
      for (const name of fs.readdirSync(at(cache))) fs.utimesSync(at(join(cache, name)), old, old);
    }
    expect(fs.readdirSync(at(cache)).sort()).toEqual(["0", "1", "current"]);
  });

  test("bring a command only what it names of the public API", () => {
    write("src/index.ts", 'export { a } from "./a.ts";\nexport { b } from "./b.ts";\n');
    write("src/a.ts", 'export const a = () => "is named";\n');
    write("src/b.ts", 'export const b = () => "is not named";\n');
    const command = (name: string) =>
      `import { ${name} } from "../../../src/index.ts";\nexport const run = () => console.log(${name}());\n`;
    write("apps/cli/commands/run.ts", command("a"));
    write("apps/cli/commands/other.ts", command("b"));
    write(
      "apps/cli/main.ts",
      'export const main = async ([name]: string[]) => ((await (name === "run" ? import("./commands/run.ts") : import("./commands/other.ts"))).run(), 0);\n',
    );
    expect(start("run")).toBe("is named\n");
    expect(start("other")).toBe("is not named\n");
    const slot = at(join(cache, fs.readFileSync(at(join(cache, "current")), "utf8")));
    const code = fs.readFileSync(join(slot, "start/for-run.cjs"), "utf8");
    expect(code).toContain("is named");
    expect(code).not.toContain("is not named");
  });

  test("keep what was compiled for the next runs, unless it is damaged or of other code", () => {
    fs.rmSync(at("apps/cli/commands"), { recursive: true, force: true }); // of the test before
    write(
      "src/base/late.ts",
      'export const late = () => ["late", import.meta.url.slice(-4), new Error("here").stack?.split("\\n")[1]];\n',
    );
    const body = `const sum = (numbers: number[]) => numbers.reduce((a, b) => a + b);\n`;
    write("src/base/text.ts", `export const text: string = ${JSON.stringify("x".repeat(5000))};\n`);
    write(
      "apps/cli/main.ts",
      `import { text } from "../../src/base/text.ts";\n${body}const local = () => new Error("there").stack?.split("\\n")[1];\nexport const main = async () => { const { late } = await import("../../src/base/late.ts"); console.log(sum([1, 2]), text.length, late()[0], import.meta.url, local()); return 0; };\n`,
    );
    const expected =
      /^3 5000 late file:.*\/start\/for-main\.mjs +at local \(.*\/start\/for-main\.cjs:\d+:\d+\)\n$/;
    const kept = () =>
      fs
        .readdirSync(at("cache/compile"), { recursive: true, encoding: "utf8" })
        .filter((name) => /for-main-main-[\d.-]+$/.test(name))
        .map((name) => at(join("cache/compile", name)));
    const runs = (file: string) => fs.readFileSync(file).readUInt32LE(4);

    expect(start("x")).toMatch(expected);
    const [file, ...others] = kept();
    expect(others).toEqual([]);
    expect(runs(file!)).toBe(1);
    const first = fs.readFileSync(file!);
    // A run that could not use it would begin to count again.
    expect(start("x")).toMatch(expected);
    expect(runs(file!)).toBe(2);
    const { mtimeMs } = fs.statSync(file!);
    expect(start("x")).toMatch(expected);
    expect(fs.statSync(file!).mtimeMs).toBe(mtimeMs);

    const damaged = Buffer.from(first);
    damaged[damaged.length - 100]! ^= 1;
    for (const bytes of [damaged, first.subarray(0, 5), first.subarray(0, 200)]) {
      fs.writeFileSync(file!, bytes);
      expect(start("x")).toMatch(expected);
      expect(runs(file!)).toBe(1);
    }

    write("src/base/late.ts", 'export const late = () => ["newer"];\n');
    write(
      "apps/cli/main.ts",
      fs.readFileSync(at("apps/cli/main.ts"), "utf8").replace("1, 2", "2, 2"),
    );
    expect(start("x")).toMatch(/^4 5000 newer /);
    expect(kept()).toHaveLength(2);
  });
});
