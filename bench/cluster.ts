// How a cluster scales, and what its gateway can carry:
//
//   npm run bench:cluster -- MODEL.gguf [--workers 1,2,4] [--users 4] [--rounds 3] [--seconds 8] [--tokens 64] [--direct] [--cpus 0,2,4,6]
//   npm run bench:cluster -- --fake [--users 16,64,256] [--tokens 64] [--rate 50]
//
// For each number of workers: as many processes of one thread, each on a core of its own where `taskset` is there (on no two
// hardware threads of one core while there are others, and only on those that this process may use), one NATS server and one gateway, on
// the cores that are left, with the clients. All of them are started before anything is measured, and take turns: only one is under load at a time, and the
// first turn of each does not count. `users` clients for each worker ask for streamed answers, one after the other, with different prompts.
// Printed are the tokens per second of all, that divided by what one worker gave in the same round (N workers: N is ideal),
// and what each process took of a core. With as many workers as cores, the gateway, NATS and the clients take from them. What a
// core of its own would carry follows from what the gateway took.
//
// --direct: also without a cluster: each worker is a server of its own, with clients of its own. What N of these give is what the machine
// allows: N processes share its memory, its caches and its heat.
//
// --fake: one process of workers whose tokens cost nothing and come at --rate per second and answer, so that the gateway is what is
// measured: it has the first core for itself, everything else shares the others.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { UsageError } from "../src/base/errors.ts";
import { measure, median, quantile, summarize } from "../src/base/measure.ts";
import { type Started, startLantern, startScript } from "../test/cluster/processes.ts";
import { startNats } from "../test/support/nats-servers.ts";
import { type Loaded, underLoad } from "./cluster-load.ts";
import {
  bench,
  count,
  counts,
  isOn,
  load,
  printTable,
  sum,
  type Values,
  wholes,
} from "./harness.ts";

const flags = {
  workers: counts([1, 2]),
  /** For each worker; with --fake: of all. */
  users: counts([4]),
  rounds: count(3),
  seconds: count(8),
  tokens: count(64),
  direct: isOn,
  cpus: wholes([]),
  fake: isOn,
  rate: count(50),
};
type Given = Values<typeof flags>;

/** Whose part of a core is printed. */
const roles = ["gateway", "NATS", "workers", "clients"] as const;

function hasTaskset(): boolean {
  return spawnSync("taskset", ["-V"]).status === 0;
}

await bench("npm run bench:cluster --", "[MODEL.gguf]", flags, async (given, [model]) => {
  console.log(`${availableParallelism()} cores, load ${load().toFixed(1)} before\n`);
  if (given.fake) await measureGateway(given);
  else if (model === undefined) throw new UsageError("got no model, expected one, or --fake");
  else await measureWorkers(model, given);
  process.exit();
});

/** What takes turns. */
interface Setup {
  readonly kind: "cluster" | "direct";
  readonly workers: number;
  readonly cluster: Cluster;
  readonly turns: Measured[];
}

async function measureWorkers(model: string, given: Given): Promise<void> {
  const setups = await startSetups(model, given);
  console.log(`all started (load ${load().toFixed(1)})\n`);
  const { rounds, tokens } = given;
  await measure({
    contestants: setups,
    rounds,
    warmUps: 1,
    onRound: (round) => {
      if (round > 0) summarizeAll(setups);
    },
    run: async ({ kind, workers, cluster, turns }, round) => {
      const seconds = round < 0 ? 2 : given.seconds;
      const turn = await loadOn(cluster, workers * given.users[0]!, { seconds, tokens });
      const what = round < 0 ? "warming" : `round ${round + 1} of ${rounds}`;
      console.log(`${what}: ${kind}, workers ${workers}: ${turn.perSecond.toFixed(1)} tokens/s`);
      if (round >= 0) turns.push(turn);
      await pause(300); // what was stopped ends
    },
  });
  summarizeAll(setups);
  for (const { cluster } of setups) cluster.close();
}

/** Medians of the rounds so far; a ratio compares turns of the same round. */
function summarizeAll(setups: readonly Setup[]): void {
  const title = ["", "workers", "tokens/s", "least to most", "of N times one", ...roles];
  const rows = setups.map(({ kind, workers, turns }) => {
    const one = setups.find((other) => other.kind === kind)!;
    const speeds = turns.map(({ perSecond }) => perSecond);
    const ratios = speeds.map(
      (speed, at) => (speed * one.workers) / (one.turns[at]!.perSecond * workers),
    );
    const used = roles.map((role) => median(turns.map(({ cores }) => cores[role])));
    const gateway = used[roles.indexOf("gateway")]!;
    const { median: middle, min, max } = summarize(speeds);
    return [
      ...[kind, workers, middle.toFixed(1), `${min.toFixed(1)} to ${max.toFixed(1)}`],
      ...[median(ratios), ...used].map((value) => value.toFixed(2)),
      gateway > 0 ? (middle / gateway).toFixed(0) : "",
    ];
  });
  console.log("");
  printTable([...title, "tokens/s of a gateway's core"], rows);
  console.log("");
}

async function startSetups(model: string, given: Given): Promise<Setup[]> {
  const users = given.users[0]!;
  const own = given.cpus;
  const order = [...own, ...processors().filter((one) => !own.includes(one))];
  const pinned = (at: number): string[] => onlyOn([order[at % order.length]!]);
  const more = ["-m", model, "-a", "bench", "--threads", "1", "--parallel", String(users)];
  console.log(`processors of workers, in this order: ${order.join()}`);
  // Where there are any, those that never have a worker are for the rest: each number of workers finds the same.
  const spare = order.slice(Math.max(...given.workers));
  pinSelf(spare);
  const most = given.direct ? Math.max(...given.workers) : 0;
  // All at the same moment: most of a start is one thread that reads a file.
  const [servers, ...clusters] = await Promise.all([
    startServers(most, [...more, "-c", "512"], pinned),
    ...given.workers.map((workers) => {
      const others = spare.length > 0 ? spare : order.slice(workers);
      const startWorkers = ({ servers }: { servers: string }) =>
        Array.from({ length: workers }, (_, at) => {
          const args = ["worker", "--cluster", servers, ...more, "-c", "512"];
          return startLantern(args, { within: pinned(at) });
        });
      return start(startWorkers, onlyOn(others.length > 0 ? others : order));
    }),
  ]);
  const setups = clusters.map(
    (cluster, at): Setup => ({ kind: "cluster", workers: given.workers[at]!, cluster, turns: [] }),
  );
  if (!given.direct) return setups;
  const { urls, pids, close } = servers;
  const direct = given.workers.map((workers): Setup => {
    const some = { ...pids, workers: pids.workers.slice(0, workers) };
    const cluster = { urls: urls.slice(0, workers), pids: some, close };
    return { kind: "direct", workers, cluster, turns: [] };
  });
  // In turns with their counterparts.
  return setups.flatMap((setup, at) => [setup, direct[at]!]);
}

async function measureGateway(given: Given): Promise<void> {
  const title = ["streams", "tokens/s", "answers/s", ...roles, "µs of the gateway for a token"];
  const rows: (string | number)[][] = [];
  for (const users of given.users) {
    const fake = fileURLToPath(new URL("./cluster-fake-worker.ts", import.meta.url));
    const [first, rest] = pins();
    const cluster = await start(
      ({ servers }) => [startScript([fake, servers, String(given.rate)], { within: rest })],
      first,
    );
    const { perSecond, answers, cores, firsts } = await loadOn(cluster, users, given);
    cluster.close();
    rows.push([
      ...[users, perSecond.toFixed(0), answers.toFixed(1)],
      ...roles.map((role) => cores[role].toFixed(2)),
      ((1e6 * cores.gateway) / perSecond).toFixed(0),
      ...[0.5, 0.99].map((share) => quantile(firsts, share).toFixed(0)),
    ]);
  }
  printTable([...title, "first token, median ms", "99 %"], rows, 0);
}

/** The first core for the gateway, and the others for the rest, this process included. */
function pins(): [string[], string[]] {
  const [first, ...others] = processors();
  if (others.length === 0) return [[], []];
  pinSelf(others);
  return [onlyOn([first!]), onlyOn(others)];
}

/** This process with its clients, and what it starts without a command of its own: NATS. */
function pinSelf(processors: readonly number[]): void {
  if (!hasTaskset() || processors.length === 0) return;
  spawnSync("taskset", ["-a", "-p", "-c", processors.join(), String(process.pid)]);
}

/** A command that runs another one on these processors; none where there is no `taskset`. */
function onlyOn(processors: readonly number[]): string[] {
  return hasTaskset() ? ["taskset", "-c", processors.join()] : [];
}

/** Those that this process may use: it may be started by `taskset` itself. */
function allowedProcessors(): number[] {
  try {
    const status = readFileSync("/proc/self/status", "utf8");
    const ranges = /^Cpus_allowed_list:\s*(\S+)$/m.exec(status)![1]!.split(",");
    return ranges.flatMap((range) => {
      const [first, last = first] = range.split("-").map(Number) as [number, number?];
      return Array.from({ length: last - first + 1 }, (_, at) => first + at);
    });
  } catch {
    return Array.from({ length: availableParallelism() }, (_, at) => at);
  }
}

/** The processors of this machine: first one of each core, then the second hardware threads. */
function processors(): number[] {
  const all = allowedProcessors();
  const turnOf = (at: number): number => {
    try {
      const file = `/sys/devices/system/cpu/cpu${at}/topology/thread_siblings_list`;
      // "0,8" or "0-1": how many of its core come before it.
      const siblings = readFileSync(file, "utf8").trim().split(/[,-]/).map(Number);
      return siblings.indexOf(at);
    } catch {
      return 0; // the system does not say
    }
  };
  return all.toSorted((a, b) => turnOf(a) - turnOf(b) || a - b);
}

interface Cluster {
  /** Clients take turns. */
  readonly urls: readonly string[];
  /** Processes by role; the clients are this one. */
  readonly pids: Readonly<Record<(typeof roles)[number], readonly number[]>>;
  close(): void;
}

async function start(
  startWorkers: (place: { servers: string }) => readonly Promise<Started>[],
  within: readonly string[] = [],
): Promise<Cluster> {
  const nats = await startNats(1);
  const servers = nats.urls.join(",");
  const workers = await Promise.all(startWorkers({ servers }));
  const gateway = await startLantern(
    ["serve", "--cluster", servers, "--port", "0", "--no-web", "--no-batches", "--queue", "4096"],
    { within },
  );
  const url = gateway.ready.url as string;
  await announced(url);
  const pidOf = ({ child }: Started): number => child.pid!;
  return {
    urls: [url],
    pids: {
      ...{ gateway: [pidOf(gateway)], NATS: nats.pids(), workers: workers.map(pidOf) },
      clients: [process.pid],
    },
    close() {
      for (const { child } of [gateway, ...workers]) child.kill("SIGKILL");
      nats.close();
    },
  };
}

/** --direct. */
async function startServers(
  count: number,
  args: readonly string[],
  pinned: (at: number) => string[],
): Promise<Cluster> {
  const serve = ["serve", ...args, "--port", "0", "--no-web", "--no-batches", "--no-sessions"];
  const servers = await Promise.all(
    Array.from({ length: count }, (_, at) => startLantern(serve, { within: pinned(at) })),
  );
  return {
    urls: servers.map(({ ready }) => ready.url as string),
    pids: {
      ...{ gateway: [], NATS: [], clients: [process.pid] },
      workers: servers.map(({ child }) => child.pid!),
    },
    close() {
      for (const { child } of servers) child.kill("SIGKILL");
    },
  };
}

interface Measured extends Omit<Loaded, "used"> {
  /** The part of a core that each role took. */
  readonly cores: Readonly<Record<(typeof roles)[number], number>>;
}

async function loadOn(
  { urls, pids }: Cluster,
  users: number,
  { seconds, tokens }: Pick<Given, "seconds" | "tokens">,
): Promise<Measured> {
  const { used, ...loaded } = await underLoad(
    urls,
    users,
    { seconds, warmSeconds: 0.5, tokens },
    () => roles.map((role) => sum(pids[role].map(processorSeconds))),
  );
  const cores = Object.fromEntries(roles.map((role, at) => [role, used[at]]));
  return { ...loaded, cores: cores as Measured["cores"] };
}

/** Waits until the gateway has heard of the model: workers say every second what they have. */
async function announced(url: string): Promise<void> {
  for (let i = 0; i < 100; i++) {
    const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: unknown[] };
    if (data.length > 0) break;
    await pause(100);
  }
  await pause(1500); // and of all other workers
}

/** What a process and its threads have used of the processor; 0 where the system does not say. */
function processorSeconds(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
    return (Number(fields[11]) + Number(fields[12])) / 100;
  } catch {
    return 0;
  }
}
