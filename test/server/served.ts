// `lantern serve` as a process of its own, which can be killed: with a tiny model, on any free port, with the data folder that a test
// names.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { until } from "./test-server.ts";

const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));

export interface Served extends AsyncDisposable {
  readonly url: string;
  readonly pageUrl: string;
  readonly token: string | null;
  readonly process: number;
  /** What it wrote to stderr so far. */
  said(): string;
  /** As `kill -9` does. */
  kill(): Promise<void>;
  /** As Ctrl-C does. */
  stop(): Promise<void>;
}

/** Those that run: none outlives this process. */
const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** Starts one and waits until it is ready. */
export async function serveProcess(
  model: string,
  data: string,
  flags: readonly string[] = [],
): Promise<Served> {
  const args = ["serve", "-m", model, "-a", "tiny", "--port", "0", "-t", "1", "--json", ...flags];
  const child = spawn(process.execPath, [launcher, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, LANTERN_DATA: data },
  });
  running.add(child);
  const closed = once(child, "close").then(() => running.delete(child));
  let [out, said] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    out += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  await until("the server is ready", () => {
    if (child.exitCode !== null) throw new Error(`lantern serve ended: ${said}`);
    return out.includes("\n");
  });
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    child.kill(signal);
    await closed;
  };
  return {
    ...(JSON.parse(out) as { url: string; pageUrl: string; token: string | null }),
    process: child.pid!,
    said: () => said,
    kill: () => end("SIGKILL"),
    stop: () => end("SIGINT"),
    [Symbol.asyncDispose]: () => end("SIGKILL"),
  };
}
