// The first part of `npm start`, before the server: builds the web app if its sources are newer, then puts a story on the
// screen. The server, which prints the page's address, is the script's last part (package.json), so that Ctrl-C reaches it
// directly.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));

/** Runs a program of the checkout on this Node, in this terminal; ends with it if it fails. */
function run(args: readonly string[], env: Readonly<Record<string, string>> = {}): void {
  const { status, signal } = spawnSync(process.execPath, args, {
    cwd: root,
    stdio: "inherit",
    env: { ...process.env, ...env },
  });
  if (signal !== null) process.kill(process.pid, signal);
  if (status !== 0) process.exit(status ?? 1);
}

run(["scripts/build-web.ts", "--if-stale"]);
// A user who waits for a page should not wait for a tune first.
run(["bin/lantern.js"], { LANTERN_NO_TUNE: "1" });
console.log();
