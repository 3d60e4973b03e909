// Runs one fuzz target for a while. Executions happen in a child process (execute.ts) that is watched: one that does not come
// back, that takes too much memory or that ends the process is a finding like one that throws, and the run goes on after it.
//
// Guidance is a poor man's: no coverage, but an input with an outcome nobody has seen (another refusal, another shape of
// result) joins the corpus, and half of the inputs are made from the corpus.

import { type ChildProcess, fork } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Order, Report } from "./execute.ts";
import type { Finding, FindingKind, Json } from "./target.ts";

export interface FuzzOrder {
  name: string;
  /** Path of the target's module. */
  module: string;
  seed: number;
  /** The end of the run, whichever comes first. */
  seconds: number;
  runs?: number;
  corpus?: readonly Json[];
  /** Processor time of one execution that is a finding (default 20 s). */
  limitMs?: number;
  /** Resident memory of the child that is a finding (default 3 GB). */
  memoryBytes?: number;
  /** V8's heap in the child (default 1 GB). */
  heapMegabytes?: number;
  /** Different findings after which a run ends (default 20). */
  maxFindings?: number;
}

export interface FuzzResult {
  name: string;
  seed: number;
  executions: number;
  seconds: number;
  outcomes: string[];
  kept: Json[];
  findings: Finding[];
}

const childModule = fileURLToPath(new URL("execute.ts", import.meta.url));
const lookEveryMs = 200;
/** A target may start servers and open models first. */
const prepareLimitMs = 120_000;

export async function fuzz(order: FuzzOrder): Promise<FuzzResult> {
  const started = performance.now();
  const until = Date.now() + order.seconds * 1000;
  const end = order.runs ?? Number.MAX_SAFE_INTEGER;
  const result: FuzzResult = {
    name: order.name,
    seed: order.seed,
    executions: 0,
    seconds: 0,
    outcomes: [],
    kept: [],
    findings: [],
  };
  const add = (finding: Finding): void => {
    if (!result.findings.some(({ shape }) => shape === finding.shape))
      result.findings.push(finding);
  };
  let first = 0;
  while (first < end && Date.now() < until) {
    const round = await runChild(order, {
      module: order.module,
      seed: order.seed,
      first,
      end,
      until,
      corpus: [...(order.corpus ?? []), ...result.kept],
      outcomes: result.outcomes,
    });
    for (const { input, outcome } of round.kept) {
      result.kept.push(input);
      result.outcomes.push(outcome);
    }
    for (const finding of round.findings) add(finding);
    if (round.next <= first && round.findings.length === 0) break;
    first = Math.max(round.next, first);
    if (result.findings.length >= (order.maxFindings ?? 20)) break;
  }
  result.executions = first;
  result.seconds = (performance.now() - started) / 1000;
  return result;
}

/** The finding that this one input makes; undefined: none. */
export async function tryInput(
  order: Pick<FuzzOrder, "name" | "module" | "limitMs" | "memoryBytes" | "heapMegabytes">,
  seed: number,
  input: Json,
): Promise<Finding | undefined> {
  const round = await runChild(
    { ...order, seed, seconds: 600 },
    {
      module: order.module,
      seed,
      first: 0,
      end: 1,
      until: Number.MAX_SAFE_INTEGER,
      corpus: [],
      outcomes: [],
      only: input,
    },
  );
  return round.findings[0];
}

interface Round {
  kept: { input: Json; outcome: string }[];
  findings: Finding[];
  /** Number of the execution to go on with. */
  next: number;
}

/** One life of a child: to the end of the order, or to its own. */
async function runChild(order: FuzzOrder, work: Omit<Order, "stateFile">): Promise<Round> {
  const folder = mkdtempSync(join(tmpdir(), "lantern-fuzz-"));
  const stateFile = join(folder, "state");
  const child = fork(childModule, {
    execArgv: [`--max-old-space-size=${order.heapMegabytes ?? 1024}`, "--no-warnings"],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
    serialization: "json",
    env: { ...process.env, LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1", TMPDIR: folder },
  });
  let said = "";
  child.stderr!.on("data", (data: Buffer) => {
    said = (said + String(data)).slice(-8000);
  });
  const round: Round = { kept: [], findings: [], next: work.first };
  const seen = { ready: false, done: false };
  child.on("message", (message: Report) => {
    if (message.kind === "ready") seen.ready = true;
    else if (message.kind === "kept") round.kept.push(message);
    else if (message.kind === "done") {
      seen.done = true;
      round.next = message.next;
    } else {
      const { seed, input, message: text, shape, n } = message;
      round.findings.push({
        target: order.name,
        kind: "throw",
        message: text,
        shape: `throw ${shape}`,
        seed,
        input,
      });
      round.next = n + 1;
    }
  });
  const exited = new Promise<string>((resolve) =>
    child.once("close", (code, signal) => resolve(signal ?? `exit code ${code}`)),
  );
  child.send({ ...work, stateFile } satisfies Order);
  const killedFor = await watch(child, order, stateFile, exited, seen);
  const how = await exited;
  try {
    if (seen.done) return round;
    if (!seen.ready) throw new Error(`fuzz: ${order.name} could not start: ${how}\n${said}`);
    const at = readState(stateFile);
    if (!at) throw new Error(`fuzz: ${order.name} ended at once: ${how}\n${said}`);
    const kind: Exclude<FindingKind, "throw"> =
      killedFor ?? (/out of memory/i.test(said) ? "memory" : "death");
    const message = { hang: "does not come back", memory: "takes too much memory" };
    round.findings.push({
      target: order.name,
      kind,
      message: kind === "death" ? `${how}\n${said.slice(-2000)}` : message[kind],
      shape: kind === "death" ? `death ${how}` : kind,
      seed: at.seed,
      input: at.input,
    });
    round.next = at.n + 1;
    return round;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Kills a child that hangs or eats all memory, and says which; undefined: it ended by itself. */
async function watch(
  child: ChildProcess,
  order: FuzzOrder,
  stateFile: string,
  exited: Promise<string>,
  seen: { ready: boolean },
): Promise<"hang" | "memory" | undefined> {
  let ended = false;
  void exited.then(() => {
    ended = true;
  });
  let last = -1;
  let since = Date.now();
  let spent = cpuMs(child.pid!);
  while (!ended) {
    await Promise.race([exited, new Promise((resolve) => setTimeout(resolve, lookEveryMs))]);
    if (ended) return undefined;
    const n = readState(stateFile)?.n ?? -1;
    if (n !== last) {
      last = n;
      since = Date.now();
      spent = cpuMs(child.pid!);
    }
    const limit = seen.ready ? (order.limitMs ?? 20_000) : prepareLimitMs;
    const waited = Date.now() - since;
    // Processor time, since machines are busy; whoever waits for nothing spends none, and is given a few times as long.
    const computed = cpuMs(child.pid!);
    const tooLong =
      computed === undefined || spent === undefined
        ? waited > limit
        : computed - spent > limit || waited > 5 * limit;
    const tooLarge = residentBytes(child.pid!) > (order.memoryBytes ?? 3e9);
    if (!tooLong && !tooLarge) continue;
    child.kill("SIGKILL");
    return tooLarge ? "memory" : "hang";
  }
  return undefined;
}

function readState(file: string): { n: number; seed: number; input: Json } | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return undefined; // not there yet, or being written
  }
}

/** Processor time of a process; undefined where the system does not say. */
function cpuMs(pid: number): number | undefined {
  try {
    // The name in front may have spaces; times are counted in hundredths of a second on every Linux.
    const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]!.split(" ");
    return 10 * (Number(fields[11]) + Number(fields[12]));
  } catch {
    return undefined;
  }
}

/** 0 where the system does not say. */
function residentBytes(pid: number): number {
  try {
    const found = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "latin1"));
    return Number(found?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
