// `npm start` and `npm test` on a bare checkout: scripts/set-up.js runs `npm ci` when packages are missing or others than the lock
// file's, and only then. Held against a folder with a lock file of its own and a program that plays npm.

import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";

const folder = mkdtempSync(join(tmpdir(), "lantern-set-up-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const modules = join(folder, "node_modules");

const lock = {
  packages: {
    "": { name: "checkout" },
    "node_modules/needed": { version: "1.0.0" },
    "node_modules/for-another-machine": { version: "2.0.0", optional: true },
  },
};
mkdirSync(join(folder, "scripts"));
cpSync("scripts/set-up.js", join(folder, "scripts/set-up.js"));
writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
writeFileSync(join(folder, "package-lock.json"), JSON.stringify(lock));
const npm = join(folder, "npm.mjs");

async function setUp(): Promise<{ code: number; said: string }> {
  const env = { ...process.env, npm_execpath: npm };
  const script = join(folder, "scripts/set-up.js");
  try {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [script], { env });
    return { code: 0, said: stdout + stderr };
  } catch (error) {
    const failed = error as { code: number; stderr: string };
    return { code: failed.code, said: failed.stderr };
  }
}

/** npm as seen by the script: writes down its arguments, then installs `version` of what is needed, or fails. */
function npmThat(does: string): void {
  writeFileSync(
    npm,
    `import { mkdirSync, writeFileSync } from "node:fs";
writeFileSync(${JSON.stringify(join(folder, "asked"))}, process.argv.slice(2).join(" "));
mkdirSync(${JSON.stringify(modules)}, { recursive: true });
${does}`,
  );
  rmSync(join(folder, "asked"), { force: true });
}

const installed = (version: string): string =>
  `writeFileSync(${JSON.stringify(join(modules, ".package-lock.json"))}, ${JSON.stringify(
    JSON.stringify({ packages: { "node_modules/needed": { version } } }),
  )});`;

test("a failed installation says what npm said, and fails", async () => {
  npmThat(`console.error("no way to the registry"); process.exit(7);`);
  const { code, said } = await setUp();
  expect(code).toBe(7);
  expect(said).toContain("no way to the registry");
  expect(said).toContain("npm ci failed (exit code 7)");
});

test("missing packages are installed, and a second start installs nothing", async () => {
  npmThat(installed("1.0.0"));
  expect(await setUp()).toMatchObject({ code: 0 });
  expect(existsSync(join(folder, "asked"))).toBe(true);
  npmThat(installed("1.0.0"));
  expect(await setUp()).toEqual({ code: 0, said: "" });
  expect(existsSync(join(folder, "asked"))).toBe(false);
});

test("a package of another version is replaced", async () => {
  mkdirSync(modules, { recursive: true });
  writeFileSync(
    join(modules, ".package-lock.json"),
    JSON.stringify({ packages: { "node_modules/needed": { version: "0.9.0" } } }),
  );
  npmThat(installed("1.0.0"));
  expect(await setUp()).toMatchObject({ code: 0 });
  expect(existsSync(join(folder, "asked"))).toBe(true);
});
