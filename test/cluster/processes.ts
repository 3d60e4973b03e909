// Servers, workers and gateways as processes of their own, as users start them: for scripts/stress-*.ts and benchmarks.

import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const bin = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
const preload = new URL("./poison-preload.js", import.meta.url).href;

export interface Started {
  /** What it printed when it was ready. */
  readonly ready: Readonly<Record<string, unknown>>;
  readonly child: ChildProcess;
  /** Resolves when it has ended, for whatever reason. */
  readonly ended: Promise<void>;
  /** The last lines of stderr. */
  readonly said: string[];
}

export interface StartHow {
  /** A worker that dies of requests with the word POISON. */
  readonly isMortal?: boolean;
  /** A command to run it with: ["ip", "netns", "exec", "name"]. */
  readonly within?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** `lantern ARGS --json`: resolves when it is ready. */
export function startLantern(args: readonly string[], how: StartHow = {}): Promise<Started> {
  return startScript([...(how.isMortal ? ["--import", preload] : []), bin, ...args, "--json"], how);
}

/** `node ARGS`: resolves when it has printed a line, which is JSON. */
export async function startScript(args: readonly string[], how: StartHow = {}): Promise<Started> {
  const command = [...(how.within ?? []), process.execPath, ...args];
  const quiet = { LANTERN_NO_TUNE: "1", LANTERN_NO_LIMIT: "1", LANTERN_NO_CACHE_DISK: "1" };
  const child = spawn(command[0]!, command.slice(1), {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...quiet, ...how.env },
  });
  const said: string[] = [];
  createInterface({ input: child.stderr }).on("line", (line) => {
    said.push(line);
    if (said.length > 40) said.shift();
  });
  let ending = "";
  const ended = new Promise<void>((resolve) => {
    child.once("exit", (code, signal) => {
      ending = signal ?? `exit code ${code}`;
      resolve();
    });
  });
  const first = new Promise<string>((resolve) => {
    createInterface({ input: child.stdout }).once("line", resolve);
  });
  const line = await Promise.race([first, ended]);
  if (line === undefined)
    throw new Error(`lantern ${args[0]} ended (${ending}):\n${said.join("\n")}`);
  return { ready: JSON.parse(line) as Record<string, unknown>, child, ended, said };
}

/** Resolves with its exit code when it has ended; null: a signal ended it. */
export async function stop(
  { child, ended }: Pick<Started, "child" | "ended">,
  signal: NodeJS.Signals = "SIGTERM",
): Promise<number | null> {
  child.kill(signal);
  await ended;
  return child.exitCode;
}

/** MiB that a process has now, or had at most; undefined where the system does not say, or it has ended. */
export function memoryMib(
  { child }: Pick<Started, "child">,
  which: "now" | "most" = "now",
): number | undefined {
  try {
    const status = readFileSync(`/proc/${child.pid}/status`, "latin1");
    const found = (which === "now" ? /VmRSS:\s+(\d+) kB/ : /VmHWM:\s+(\d+) kB/).exec(status);
    return found ? Number(found[1]) / 1024 : undefined;
  } catch {
    return undefined;
  }
}
