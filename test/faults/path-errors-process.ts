// A process of path-errors.test.ts: runs command lines as an ordinary user (root may read everything, so root becomes another
// user first) and prints how each ended. Started with the folder that holds the files and the list of runs.

import { readFileSync } from "node:fs";
import path from "node:path";
import { main } from "../../apps/cli/main.ts";
import { nodeTerminal } from "../../src/platform/node-cli.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";

export interface PathRun {
  args: string[];
  env?: Record<string, string>;
}

export interface PathRunResult extends PathRun {
  code: number;
  err: string;
}

/** Not in the list of users, so without a home folder. */
const NOBODY = 54321;
const most = 120_000;

const [runsFile] = process.argv.slice(2);
const runs = JSON.parse(readFileSync(runsFile!, "utf8")) as PathRun[];
process.chdir(path.dirname(runsFile!));
if (process.getuid!() === 0) {
  process.setegid!(NOBODY);
  process.seteuid!(NOBODY);
}
const own = { ...process.env };
const { readText, writeText, lines, readInput } = nodeTerminal();
for (const run of runs) {
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, own, run.env);
  console.log(JSON.stringify({ ...run, ...(await tried(run)) }));
}
process.exit(0); // whatever still runs

/** Files are real, the terminal is not. */
async function tried({ args }: PathRun): Promise<{ code: number; err: string }> {
  const terminal = new FakeTerminal();
  Object.assign(terminal, { readText, writeText, lines, readInput });
  terminal.environment = { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" };
  const { promise, resolve } = Promise.withResolvers<number>();
  const late = setTimeout(() => resolve(-1), most);
  // A server that starts is as good as done.
  terminal.onOut = () => terminal.stdout.includes("Ctrl-C stops it") && terminal.pressCtrlC();
  try {
    const ended = main(args, terminal, nodeDownloadPlatform());
    return { code: await Promise.race([ended, promise]), err: terminal.stderr };
  } catch (error) {
    return { code: -2, err: (error as Error).stack ?? String(error) };
  } finally {
    clearTimeout(late);
  }
}
