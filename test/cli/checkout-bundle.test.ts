// The bundles that a checkout runs instead of its sources: a checkout of a few lines, started by the real launcher.

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
    `import { text } from "../base/text.ts";\nexport const main = async () => { console.log(text, "${text}", import.meta.url); return 0; };\n`;
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
    const env = { ...process.env, LANTERN_CACHE: at("cache"), LANTERN_RUNTIME: "off" };
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
    for (const name of ["bundle.js", "checkout-bundle.js"]) {
      fs.cpSync(join(root, "scripts", name), at(`scripts/${name}`));
    }
    fs.mkdirSync(at("node_modules"));
    for (const name of ["rolldown", "@rolldown", "@oxc-project"]) {
      fs.symlinkSync(join(root, "node_modules", name), at(`node_modules/${name}`));
    }
    write("package.json", '{"type": "module", "version": "1.2.3"}');
    write("tsconfig.json", "{}");
    write("src/base/text.ts", 'export const text: string = "first";\n');
    write("src/cli/main.ts", main("a"));
    write("src/cli/fetch-runtime.ts", "export {};\n");
    for (const name of ["compute", "engine", "measure", "quantize", "text"]) {
      write(`src/threads/${name}.ts`, "export {};\n");
    }
  });
  afterAll(() => fs.rmSync(checkout, { recursive: true }));

  test("are made at the first command, not for help, and used from then on", () => {
    expect(start("--help")).toContain("first a file:");
    expect(start("--help")).toContain("/src/cli/main.ts");
    expect(start("x")).toMatch(/^first a file:.*\.cache\/lantern\/\d\/cli\/main\.js\n$/);
    expect(start("--help")).toContain("/.cache/lantern/");
  });

  test("are never of older sources, whatever the time of a file says", () => {
    const file = at("src/base/text.ts");
    const { atime, mtime } = fs.statSync(file);
    fs.writeFileSync(file, 'export const text: string = "newer";\n');
    fs.utimesSync(file, atime, mtime);
    expect(start("--help")).toMatch(/^newer a file:.*\/src\/cli\/main\.ts\n$/);
    expect(start("x")).toMatch(/^newer a file:.*\/\.cache\//);
    write("src/cli/main.ts", main("b"));
    expect(start("x")).toMatch(/^newer b file:.*\/\.cache\//);
    fs.rmSync(at("src/base/text.ts"));
    write("src/cli/main.ts", "export const main = async () => { console.log(3); return 0; };\n");
    expect(start("x")).toBe("3\n");
  });

  test("are not used where others could have put them", () => {
    write(
      "src/cli/main.ts",
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
      write("src/cli/main.ts", `export const main = async () => (console.log(${round}), 0);\n`);
      expect(start("x")).toBe(`${round}\n`);
      for (const name of fs.readdirSync(at(cache))) fs.utimesSync(at(join(cache, name)), old, old);
    }
    expect(fs.readdirSync(at(cache)).sort()).toEqual(["0", "1", "current"]);
  });
});
