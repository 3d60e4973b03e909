// What Lantern keeps is the user's alone: conversations, measurements and the state of downloads have mode 0600 in folders
// of mode 0700, whatever the umask, also where an older Lantern made them wider. Folders that the user named stay as they are.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { skippedFor } from "../support/skips.ts";

const script = fileURLToPath(new URL("private-files.ts", import.meta.url));

let home: string;
beforeEach(() => {
  home = fs.mkdtempSync(join(tmpdir(), "lantern-private-"));
  fs.chmodSync(home, 0o755);
});
afterEach(() => fs.rmSync(home, { recursive: true }));

function write(umask: string, environment: Record<string, string> = {}): void {
  const { LANTERN_CACHE: _1, LANTERN_DATA: _2, XDG_CACHE_HOME: _3, ...inherited } = process.env;
  const env = { ...inherited, XDG_DATA_HOME: "", HOME: home, ...environment };
  const args = [script, umask, join(home, "talk.md")];
  const { status, stderr } = spawnSync(process.execPath, args, { env, encoding: "utf8" });
  expect([status, stderr]).toEqual([0, ""]);
}

/** Paths below a folder whose modes let others in, with those modes. */
function openTo(folder: string): string[] {
  const below = fs.readdirSync(folder, { recursive: true, encoding: "utf8" });
  return below
    .map((path) => ({ path, mode: fs.statSync(join(folder, path)).mode & 0o777 }))
    .filter(({ mode }) => (mode & 0o077) !== 0)
    .map(({ path, mode }) => `${path} ${mode.toString(8)}`)
    .toSorted();
}

function mode(...path: string[]): number {
  return fs.statSync(join(home, ...path)).mode & 0o777;
}

describe.skipIf(process.platform === "win32")(
  `private files${skippedFor("Windows", process.platform === "win32")}`,
  () => {
    test.each(["000", "022", "077"])("with umask %s", (umask) => {
      write(umask);
      const cache = join(home, ".cache", "lantern");
      const data = join(home, ".local", "share", "lantern");
      expect(openTo(data)).toEqual([]);
      expect(fs.readdirSync(data)).toEqual(["sessions.db", "sessions.db-wal"]);
      expect([mode(".cache", "lantern"), mode(".local", "share", "lantern")]).toEqual([
        0o700, 0o700,
      ]);
      // Downloads are no secret, and in a folder of mode 0700.
      expect(openTo(cache).filter((path) => !/^models\/hf|\.part \d+$/.test(path))).toEqual([]);
      for (const file of ["tune.json", "models/hf/owner/model.gguf.part.json"]) {
        expect(mode(".cache", "lantern", file), file).toBe(0o600);
      }
      expect(mode("talk.md")).toBe(0o600);
      expect(mode()).toBe(0o755);
    });

    test("what an older Lantern left open is closed", () => {
      const data = join(home, ".local", "share", "lantern");
      const cache = join(home, ".cache", "lantern");
      for (const folder of [data, cache]) fs.mkdirSync(folder, { recursive: true, mode: 0o755 });
      write("022");
      const files = ["sessions.db", "sessions.db-wal"].map((name) => join(data, name));
      files.push(join(cache, "machine.json"), join(home, "talk.md"));
      fs.writeFileSync(join(cache, "machine.json"), "{}");
      for (const file of files) fs.chmodSync(file, 0o666);
      for (const folder of [data, cache]) fs.chmodSync(folder, 0o777);
      write("022");
      for (const file of files) expect(fs.statSync(file).mode & 0o777, file).toBe(0o600);
      for (const folder of [data, cache]) expect(fs.statSync(folder).mode & 0o777).toBe(0o700);
      expect([mode(), mode(".cache"), mode(".local")]).toEqual([0o755, 0o755, 0o755]);
    });

    test("folders that the user named keep their mode; what is private in them is closed", () => {
      const [data, cache] = [join(home, "data"), join(home, "shared")];
      fs.mkdirSync(data, { mode: 0o755 });
      fs.mkdirSync(cache);
      fs.chmodSync(cache, 0o775);
      fs.mkdirSync(join(cache, ".servers"), { mode: 0o755 });
      write("022", { LANTERN_DATA: data, LANTERN_CACHE: cache });
      expect([mode("data"), mode("shared"), mode("shared", ".servers")]).toEqual([
        0o755, 0o775, 0o700,
      ]);
      expect(openTo(data)).toEqual([]);
      expect(openTo(cache)).toEqual(["hf 755", "hf/owner 755", "hf/owner/model.gguf.part 644"]);
    });

    test("a folder behind a link is not Lantern's, and one that it has to make is closed", () => {
      const elsewhere = join(home, "disk");
      fs.mkdirSync(elsewhere, { mode: 0o755 });
      fs.mkdirSync(join(home, ".cache"));
      fs.symlinkSync(elsewhere, join(home, ".cache", "lantern"));
      write("022", { LANTERN_DATA: join(home, "new", "data") });
      expect([mode("disk"), mode("new"), mode("new", "data")]).toEqual([0o755, 0o700, 0o700]);
      expect(mode("disk", "tune.json")).toBe(0o600);
    });
  },
);

describe.skipIf(process.platform !== "linux")(
  `--open${skippedFor("not Linux", process.platform !== "linux")}`,
  () => {
    test("the token is not among what the browser is started with, which every user can see", async () => {
      const seen = join(home, "seen");
      const opener = join(home, "xdg-open");
      fs.writeFileSync(
        opener,
        `#!/bin/sh\nprintf '%s' "$1" > ${seen}.new; mv ${seen}.new ${seen}\n`,
      );
      fs.chmodSync(opener, 0o755);
      const module = new URL("../../src/platform/node-assets.ts", import.meta.url).href;
      const source = `import { openInBrowser } from ${JSON.stringify(module)};
      import { existsSync, readFileSync, statSync } from "node:fs";
      openInBrowser('http://127.0.0.1:1/?token=secret&x="', true);
      const look = setInterval(() => {
        if (!existsSync(${JSON.stringify(seen)})) return;
        clearInterval(look);
        const file = readFileSync(${JSON.stringify(seen)}, "utf8");
        const mode = (statSync(file).mode & 0o777).toString(8);
        console.log(JSON.stringify({ file, mode, page: readFileSync(file, "utf8") }));
      }, 10);`;
      const env = {
        ...process.env,
        HOME: home,
        LANTERN_CACHE: join(home, "cache"),
        PATH: `${home}:${process.env.PATH}`,
      };
      const args = ["--input-type=module", "-e", source];
      const { stdout } = spawnSync(process.execPath, args, {
        env,
        encoding: "utf8",
        timeout: 120_000,
      });
      const { file, mode, page } = JSON.parse(stdout) as Record<string, string>;
      expect([file!.startsWith(join(home, "cache")), mode]).toEqual([true, "600"]);
      expect(page).toContain('content="0; url=http://127.0.0.1:1/?token=secret&amp;x=&quot;"');
      expect(fs.existsSync(file!)).toBe(false); // gone with the process
    });
  },
);
