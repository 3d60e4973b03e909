// The secret that servers keep across restarts: private, the same for all that start, believed only where nobody else could have put it
// or read it, and never in a message.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { keptSecret } from "../../src/platform/node-kept-secret.ts";
import { skippedFor } from "../support/skips.ts";

let home: string;
let env: Record<string, string>;
beforeEach(() => {
  home = fs.mkdtempSync(join(tmpdir(), "lantern-secret-"));
  env = { LANTERN_DATA: join(home, "data") };
});
afterEach(() => fs.rmSync(home, { recursive: true }));

const at = (name: string): string => join(home, "data", "access", name);
const modeOf = (path: string): string => (fs.lstatSync(path).mode & 0o777).toString(8);

test("is made once, for this user only, whatever the umask", () => {
  const before = process.umask(0);
  try {
    const first = keptSecret({ env });
    expect(first).toEqual({ secret: expect.stringMatching(/^[\da-f]{40}$/), warning: undefined });
    expect(keptSecret({ env })).toEqual(first);
    expect(fs.readdirSync(at(""))).toEqual(["token"]);
    if (process.platform !== "win32")
      expect([modeOf(at("")), modeOf(at("token"))]).toEqual(["700", "600"]);
    process.umask(0o777);
    const made = keptSecret({ env, renew: true });
    expect(keptSecret({ env })).toEqual(made);
  } finally {
    process.umask(before);
  }
});

test("another data folder has another one; a new one is the same from then on", () => {
  const [a, b] = [keptSecret({ env }), keptSecret({ env: { LANTERN_DATA: join(home, "other") } })];
  expect(a.secret).not.toBe(b.secret);
  const renewed = keptSecret({ env, renew: true });
  expect(renewed.warning).toBeUndefined();
  expect(renewed.secret).not.toBe(a.secret);
  expect(keptSecret({ env })).toEqual(renewed);
});

const isRoot = process.getuid?.() === 0;

describe.skipIf(process.platform === "win32")(
  `what others could have read or put there${skippedFor("Windows", process.platform === "win32")}`,
  () => {
    const canary = "c0ffee".repeat(7).slice(0, 40);
    const plant = (mode: number, text: string = `${canary}\n`): void => {
      fs.writeFileSync(at("token"), text);
      fs.chmodSync(at("token"), mode);
    };
    const cases: [string, () => void, RegExp][] = [
      ["a file that others can read", () => plant(0o644), /others can open it \(mode 644\)/],
      ["a file that others can write", () => plant(0o602), /mode 602/],
      ["text that is no token", () => plant(0o600, "secret\n"), /it is damaged/],
      ["a file that was cut off", () => plant(0o600, canary.slice(0, 20)), /it is damaged/],
      ["an empty file", () => plant(0o600, ""), /it is damaged/],
      ["a long file", () => plant(0o600, canary.repeat(1000)), /it is damaged/],
      [
        "a link",
        () => {
          fs.writeFileSync(join(home, "planted"), `${canary}\n`, { mode: 0o600 });
          fs.symlinkSync(join(home, "planted"), at("token"));
        },
        /it is a link/,
      ],
    ];
    test.each(cases)("%s is replaced, and that is said", (_, put, why) => {
      fs.mkdirSync(at(""), { recursive: true, mode: 0o700 });
      put();
      const { secret, warning } = keptSecret({ env });
      expect(secret).not.toBe(canary);
      expect(warning).toMatch(why);
      expect(warning).toMatch(/not used.*There is a new one: open the new link/);
      expect(warning).not.toContain(secret);
      expect(warning).not.toContain(canary);
      expect(fs.lstatSync(at("token")).isFile()).toBe(true);
      expect(modeOf(at("token"))).toBe("600");
      expect(keptSecret({ env })).toEqual({ secret, warning: undefined });
      // What the link led to is not touched.
      if (fs.existsSync(join(home, "planted")))
        expect(fs.readFileSync(join(home, "planted"), "utf8")).toBe(`${canary}\n`);
    });

    test.skipIf(!isRoot)(
      `another user's file is replaced; in another user's folder none is kept${skippedFor("needs root", !isRoot)}`,
      () => {
        fs.mkdirSync(at(""), { recursive: true, mode: 0o700 });
        plant(0o600);
        fs.chownSync(at("token"), 12345, 12345);
        const { secret, warning } = keptSecret({ env });
        expect([secret === canary, warning]).toEqual([
          false,
          expect.stringContaining("another user (12345)"),
        ]);
        fs.chownSync(at(""), 12345, 12345);
        const alone = keptSecret({ env });
        expect(alone.warning).toMatch(/is not kept.*another user/);
        expect(alone.secret).not.toBe(secret);
      },
    );

    const unkept: [string, () => void][] = [
      ["the folder is a link", () => fs.symlinkSync(home, at("").replace(/\/$/, ""))],
      ["the folder is a file", () => fs.writeFileSync(at("").replace(/\/$/, ""), "")],
      ["a folder has its name", () => fs.mkdirSync(join(at("token"), "x"), { recursive: true })],
    ];
    test.each(unkept)("%s: it is not kept, and that is said", (_, put) => {
      fs.mkdirSync(join(home, "data"));
      put();
      const { secret, warning } = keptSecret({ env });
      expect(secret).toMatch(/^[\da-f]{40}$/);
      expect(warning).toMatch(/^The token is not kept/);
      expect(warning).not.toContain(secret);
      expect(keptSecret({ env }).secret).not.toBe(secret);
    });
  },
);

test("servers that start for the first time at the same moment get the same one", async () => {
  const module = new URL("../../src/platform/node-kept-secret.ts", import.meta.url).href;
  const source = `import { keptSecret } from ${JSON.stringify(module)}; console.log(keptSecret().secret);`;
  const started = Array.from({ length: 3 }, async () => {
    const args = ["--input-type=module", "-e", source];
    const child = spawn(process.execPath, args, { env: { ...process.env, ...env } });
    let out = "";
    for await (const piece of child.stdout) out += String(piece);
    return out;
  });
  const [one, ...others] = await Promise.all(started);
  expect(one).toMatch(/^[\da-f]{40}\n$/);
  expect(others).toEqual([one, one]);
});
