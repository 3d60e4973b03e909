// A process of faults.test.ts (node --import faulty-io.ts): runs one command line over and over, each time with another call
// of files, databases or the network failing, and prints how each run ended and what it left behind.

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import path from "node:path";
import { main } from "../../apps/cli/main.ts";
import { nodeTerminal } from "../../src/platform/node-cli.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { forgetCalls } from "./faulty-io.ts";

export interface FaultJob {
  /** Copied for every run; FOLDER in arguments is the copy. */
  template: string;
  args: string[];
  env: Record<string, string>;
  /** What is asked of a server when it is there. */
  requests?: { path: string; method?: string; body?: unknown; as?: string }[];
  /** What is typed. */
  lines?: string[];
  /** At most so many faults, spread evenly; all call sites if there are fewer. */
  most: number;
}

export interface FaultRun {
  fault: string;
  code: number;
  out: string;
  err: string;
  statuses: number[];
  /** Names below the folder, with a hash of the content. */
  files: Record<string, string>;
  stray: string[];
}

const longestMs = 120_000;
const stray: string[] = [];
process.on("unhandledRejection", (error) => stray.push(`unhandled: ${stackOf(error)}`));
process.on("uncaughtException", (error) => stray.push(`uncaught: ${stackOf(error)}`));

const job = JSON.parse(fs.readFileSync(process.argv[2]!, "utf8")) as FaultJob;
const folder = path.join(path.dirname(process.argv[2]!), "run");
const log = path.join(path.dirname(process.argv[2]!), "calls.log");
Object.assign(process.env, forFolder(job.env));
const { readText, writeText } = nodeTerminal();

const good = await show("", log);
const names = good.code === 0 ? chosen(fs.readFileSync(log, "utf8").trim().split("\n")) : [];
for (const name of names) await show(name, undefined);
process.exit(0); // whatever still runs

async function show(fault: string, logTo: string | undefined): Promise<FaultRun> {
  fs.rmSync(folder, { recursive: true, force: true });
  fs.cpSync(job.template, folder, { recursive: true });
  stray.length = 0;
  forgetCalls();
  Object.assign(process.env, { LANTERN_FAULT_FOLDER: folder, LANTERN_FAULT: fault });
  if (logTo) process.env.LANTERN_FAULT_LOG = logTo;
  const ended = await tried();
  for (const name of ["FOLDER", "LOG"]) delete process.env[`LANTERN_FAULT_${name}`];
  const run: FaultRun = { fault, ...ended, files: filesIn(folder), stray: [...stray] };
  console.log(JSON.stringify(run));
  return run;
}

async function tried(): Promise<Pick<FaultRun, "code" | "out" | "err" | "statuses">> {
  const terminal = new FakeTerminal();
  terminal.environment = { ...terminal.environment, LANTERN_NO_TUNE: "1" };
  Object.assign(terminal, { readText, writeText, script: forFolder(job.lines ?? []) });
  const statuses: number[] = [];
  let isAsked = false;
  terminal.onOut = () => {
    const url = /served at (\S+)/.exec(terminal.stdout)?.[1];
    if (!url || !terminal.stdout.includes("Ctrl-C stops it")) return;
    if (isAsked) return;
    isAsked = true;
    void ask(url, statuses).finally(() => terminal.pressCtrlC());
  };
  const late = Promise.withResolvers<number>();
  const timer = setTimeout(() => late.resolve(-1), longestMs);
  const args = forFolder(job.args);
  const ended = main(args, terminal, nodeDownloadPlatform()).catch((error) => {
    stray.push(`rejected: ${stackOf(error)}`);
    return -2;
  });
  const code = await Promise.race([ended, late.promise]);
  clearTimeout(timer);
  return { code, out: terminal.stdout, err: terminal.stderr, statuses };
}

async function ask(url: string, statuses: number[]): Promise<void> {
  const found: Record<string, string> = {};
  for (const { path: at, method = "GET", body, as } of job.requests ?? []) {
    const place = at.replaceAll(/<(\w+)>/g, (_, name) => found[name] ?? "none");
    try {
      const response = await fetch(url + place, {
        method,
        headers: { "content-type": "application/json", "x-test": "1" },
        ...(body !== undefined && {
          body: JSON.stringify(body === "<exported>" ? JSON.parse(found.exported ?? "{}") : body),
        }),
        signal: AbortSignal.timeout(60_000),
      });
      const text = await response.text();
      statuses.push(response.status);
      if (as === "exported") found.exported = text;
      else if (as) found[as] = String((JSON.parse(text) as { id?: string }).id);
    } catch (error) {
      statuses.push(-1);
      stray.push(`no answer to ${method} ${at}: ${(error as Error).message}`);
    }
  }
}

/** Of every call site its first and its last call, and more of them as far as there is room. */
function chosen(calls: readonly string[]): string[] {
  const byKind = new Map<string, string[]>();
  for (const call of new Set(calls)) {
    const kind = call.replace(/ \d+$/, "");
    byKind.set(kind, [...(byKind.get(kind) ?? []), call]);
  }
  const ends = [...byKind.values()].flatMap((all) => [...new Set([all[0]!, all.at(-1)!])]);
  if (ends.length <= job.most) return ends;
  return Array.from(
    { length: job.most },
    (_, i) => ends[Math.floor((i * ends.length) / job.most)]!,
  );
}

function filesIn(root: string): Record<string, string> {
  const found = fs.readdirSync(root, { recursive: true, withFileTypes: true });
  return Object.fromEntries(
    found
      .filter((entry) => entry.isFile())
      .map((entry) => path.join(entry.parentPath, entry.name))
      .map((file) => [
        path.relative(root, file),
        createHash("sha256").update(fs.readFileSync(file)).digest("hex"),
      ]),
  );
}

function forFolder<T>(value: T): T {
  return JSON.parse(JSON.stringify(value).replaceAll("FOLDER", folder)) as T;
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
