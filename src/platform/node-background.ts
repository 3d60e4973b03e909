// This program once more, for work that begins when a command has ended: in a session of its own, with no terminal, pipe or folder
// of its parent's, at the lowest priority, and only for so long.

import { spawn } from "node:child_process";
import { constants, setPriority } from "node:os";
import { parse } from "node:path";
import { Worker } from "node:worker_threads";
import { embeddedFiles } from "./node-embedded.ts";

/**
 * Starts a process in the background, and returns at once. A failure to start is ignored: nothing waits for it. `env`: the
 * differences from this process's.
 */
export function startInBackground(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): void {
  const program = process.execPath;
  const script = embeddedFiles() ? [] : process.argv.slice(1, 2);
  const child = spawn(program, [...script, ...args], {
    cwd: parse(program).root, // relative paths in `args` would mean something else
    detached: true,
    stdio: "ignore",
    windowsHide: true,
    env: { ...process.env, ...env },
  });
  child.on("error", () => {});
  child.unref();
}

/** Call in that process, before its first thread starts. It is killed after `mostMs` ms, also if its main thread hangs. */
export function beInBackground(mostMs: number): void {
  try {
    setPriority(constants.priority.PRIORITY_LOW);
  } catch {
    // a sandbox that does not allow it
  }
  const code = `setTimeout(() => process.kill(process.pid, "SIGKILL"), ${mostMs})`;
  new Worker(code, { eval: true, execArgv: [], stdin: false }).unref();
}
