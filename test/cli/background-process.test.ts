// The process that `run` leaves behind, as the system sees it: its parent ends at once, with closed pipes; it has a session and a
// folder of its own and the lowest priority; it ends on SIGTERM, and is killed where it hangs.

import { execFile, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join, parse } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isRunning } from "../../src/platform/node-process.ts";
import { tinyFile } from "../support/tiny-file.ts";

const source = new URL("../../src/platform/node-background.ts", import.meta.url).href;
const lantern = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
const waits = { timeout: 60_000, interval: 20 };

/** "parent OUT": starts itself as "child OUT". A child says what it is in OUT, and stays until OUT.end is there. */
const script = `
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { getPriority } from "node:os";
import { beInBackground, startInBackground } from ${JSON.stringify(source)};
const [mode, out] = process.argv.slice(2);
if (mode === "parent") startInBackground(["child", out], { MARK: "yes" });
else beInBackground(mode === "hang" ? 200 : 60_000);
while (mode === "hang");
if (mode === "child") {
  const stat = process.platform === "linux" ? readFileSync("/proc/self/stat", "latin1") : "";
  const session = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[3]);
  const facts = { id: process.pid, cwd: process.cwd(), priority: getPriority(), mark: process.env.MARK, session };
  writeFileSync(out + ".part", JSON.stringify(facts));
  renameSync(out + ".part", out);
  setInterval(() => existsSync(out + ".end") && process.exit(), 20);
}
`;

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-background-"));
  file = join(folder, "program.mjs");
  writeFileSync(file, script);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("its parent ends while it works, and nothing of the parent's is held", async () => {
  const out = join(folder, "facts.json");
  // Resolves when the parent has ended and both pipes are closed: a child with one of them would hold it open.
  await promisify(execFile)(process.execPath, [file, "parent", out], { cwd: folder });
  await expect.poll(() => existsSync(out), waits).toBe(true);
  const facts = JSON.parse(readFileSync(out, "utf8"));
  expect(isRunning(facts.id)).toBe(true);
  expect(facts).toMatchObject({
    ...{
      cwd: parse(process.execPath).root,
      mark: "yes",
      priority: constants.priority.PRIORITY_LOW,
    },
    ...(process.platform === "linux" && { session: facts.id }),
  });
  writeFileSync(`${out}.end`, "");
  await expect.poll(() => isRunning(facts.id), waits).toBe(false);
});

test("one whose main thread hangs is killed", () => {
  expect(spawnSync(process.execPath, [file, "hang"]).signal).toBe("SIGKILL");
});

test("lantern tune background ends on SIGTERM, says so, and leaves no lock", async () => {
  const model = await tinyFile();
  try {
    const env = { ...process.env, LANTERN_CACHE: folder };
    const args = [lantern, "tune", "background", "-m", model.path];
    const child = spawn(process.execPath, args, { env, stdio: "ignore" });
    const ended = new Promise((resolve) => child.on("exit", resolve));
    const state = join(folder, "tune-background.json");
    const lock = join(folder, "tune-background.lock");
    // It looks at the load for a second, at least.
    await expect.poll(() => existsSync(state), waits).toBe(true);
    expect(JSON.parse(readFileSync(lock, "utf8"))).toMatchObject({ pid: child.pid });
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
    expect(existsSync(lock)).toBe(false);
    expect(JSON.parse(readFileSync(state, "utf8"))).toMatchObject({
      ...{ state: "stopped", why: "it was asked to end", processId: child.pid, measured: [] },
    });
  } finally {
    await model.remove();
  }
});
