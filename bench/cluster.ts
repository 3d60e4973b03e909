// How a cluster scales, and what its gateway can carry:
//
//   npm run bench:cluster -- MODEL.gguf [--workers 1,2,4] [--users 4] [--requests 24] [--tokens 64] [--direct] [--cpus 0,2,4,6]
//   npm run bench:cluster -- --fake [--users 16,64,256] [--tokens 64] [--rate 50]
//
// For each number of workers: as many processes of one thread, each on a core of its own where `taskset` is there (on no two
// hardware threads of one core while there are others), one NATS server and one gateway, on the cores that are left. `users` clients for each worker ask for streamed answers, one after the other, with different prompts. Printed are
// the tokens per second of all, that divided by what one worker gave (N workers: N is ideal), and what each process took of a
// core. With as many workers as cores, the gateway, NATS and the clients take from them. What a
// core of its own would carry follows from what the gateway took.
//
// --direct: the same without a cluster: each worker is a server of its own, with clients of its own. What N of these give is what the machine
// allows: N processes share its memory, its caches and its heat.
//
// --fake: one process of workers whose tokens cost nothing and come at --rate per second and answer, so that the gateway is what is
// measured: it has the first core for itself, everything else shares the others.

import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { Agent, type IncomingMessage, request } from "node:http";
import { availableParallelism, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { Command } from "commander";
import { type Started, startLantern, startScript } from "../test/cluster/processes.ts";
import { startNats } from "../test/support/nats-servers.ts";

interface Flags {
  workers: number[];
  users: number[];
  requests: number;
  tokens: number;
  fake?: boolean;
  direct?: boolean;
  cpus?: number[];
  rate: number;
}

const agent = new Agent({ keepAlive: true });

/** Whose part of a core is printed. */
const roles = ["gateway", "NATS", "workers", "clients"] as const;

function hasTaskset(): boolean {
  return spawnSync("taskset", ["-V"]).status === 0;
}

const counts = (text: string): number[] => text.split(",").map(positive);
function positive(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  throw new Error(`got "${text}", expected a whole number above 0`);
}

await new Command("bench:cluster")
  .argument("[model]", "a GGUF file")
  .option("--workers <counts>", "numbers of workers", counts, [1, 2])
  .option("--users <counts>", "clients for each worker; with --fake: of all", counts, [4])
  .option("--requests <count>", "answers for each client", positive, 6)
  .option("--tokens <count>", "tokens of an answer", positive, 64)
  .option("--direct", "no cluster: each worker is a server of its own")
  .option("--cpus <list>", "the processors of the workers, in this order", (text: string) =>
    text.split(",").map(Number),
  )
  .option("--fake", "workers that compute nothing: what the gateway carries")
  .option("--rate <count>", "tokens per second of a fake answer", positive, 50)
  .action(main)
  .parseAsync();

async function main(model: string | undefined, flags: Flags): Promise<void> {
  console.log(`${availableParallelism()} cores, load ${loadavg()[0]!.toFixed(1)} before\n`);
  if (flags.fake) await measureGateway(flags);
  else if (model === undefined) throw new Error("got no model, expected a GGUF file, or --fake");
  else await measureWorkers(model, flags);
  process.exit(0);
}

function row(cells: readonly (string | number)[]): void {
  console.log(`| ${cells.join(" | ")} |`);
}

async function measureWorkers(model: string, flags: Flags): Promise<void> {
  row(["workers", "tokens/s", "of N times one", ...roles, "tokens/s of a gateway's core"]);
  row(["---:", "---:", "---:", ...roles.map(() => "---:"), "---:"]);
  let one: number | undefined;
  const report = (workers: number, { perSecond, cores }: Measured): void => {
    one ??= perSecond / workers;
    const used = roles.map((role) => cores[role].toFixed(2));
    const carried = cores.gateway > 0 ? (perSecond / cores.gateway).toFixed(0) : "";
    row([
      workers,
      perSecond.toFixed(0),
      (perSecond / (one * workers)).toFixed(2),
      ...used,
      carried,
    ]);
  };
  for (const workers of flags.workers) {
    const users = flags.users[0]!;
    const own = flags.cpus ?? [];
    const order = [...own, ...processors().filter((one) => !own.includes(one))];
    const others = order.slice(workers);
    const onOthers = onlyOn(others.length > 0 ? others : order);
    const pinned = (at: number): string[] => onlyOn([order[at % order.length]!]);
    const more = ["-m", model, "-a", "bench", "--threads", "1", "--parallel", String(users)];
    if (flags.direct) {
      const cluster = await startServers(workers, [...more, "-c", "512"], pinned);
      report(workers, await measure(cluster, workers * users, flags));
      continue;
    }
    const cluster = await start(
      ({ servers }) =>
        Array.from({ length: workers }, (_, at) => {
          const args = ["worker", "--cluster", servers, ...more, "-c", "512"];
          return startLantern(args, { within: pinned(at) });
        }),
      onOthers,
    );
    report(workers, await measure(cluster, workers * users, flags));
  }
}

async function measureGateway(flags: Flags): Promise<void> {
  const title = ["streams", "tokens/s", "answers/s", ...roles, "µs of the gateway for a token"];
  row([...title, "first token, median ms", "99 %"]);
  row([...title, "", ""].map(() => "---:"));
  for (const users of flags.users) {
    const fake = fileURLToPath(new URL("./cluster-fake-worker.ts", import.meta.url));
    const [first, rest] = pins();
    const cluster = await start(
      ({ servers }) => [startScript([fake, servers, String(flags.rate)], { within: rest })],
      first,
    );
    const { perSecond, answers, cores, firsts } = await measure(cluster, users, flags);
    const at = (share: number): string => firsts[Math.floor(share * firsts.length)]!.toFixed(0);
    row([
      ...[users, perSecond.toFixed(0), answers.toFixed(1)],
      ...roles.map((role) => cores[role].toFixed(2)),
      ...[((1e6 * cores.gateway) / perSecond).toFixed(0), at(0.5), at(0.99)],
    ]);
  }
}

/** The first core for the gateway, and the others for the rest, this process included. */
function pins(): [string[], string[]] {
  const [first, ...others] = processors();
  if (others.length === 0) return [[], []];
  if (hasTaskset()) spawnSync("taskset", ["-a", "-p", "-c", others.join(), String(process.pid)]);
  return [onlyOn([first!]), onlyOn(others)];
}

/** A command that runs another one on these processors; none where there is no `taskset`. */
function onlyOn(processors: readonly number[]): string[] {
  return hasTaskset() ? ["taskset", "-c", processors.join()] : [];
}

/** The processors of this machine: first one of each core, then the second hardware threads. */
function processors(): number[] {
  const all = Array.from({ length: availableParallelism() }, (_, at) => at);
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

interface Measured {
  readonly perSecond: number;
  readonly answers: number;
  /** Milliseconds to each first token, in order. */
  readonly firsts: readonly number[];
  /** The part of a core that each role took. */
  readonly cores: Readonly<Record<(typeof roles)[number], number>>;
}

async function measure(cluster: Cluster, users: number, flags: Flags): Promise<Measured> {
  const { urls, pids } = cluster;
  try {
    const warm = Array.from({ length: users }, (_, at) => answer(urls[at % urls.length]!, -at, 16));
    await Promise.all(warm); // everywhere
    const used = (): number[] => roles.map((role) => sum(pids[role].map(processorSeconds)));
    const before = used();
    const began = performance.now();
    let tokens = 0;
    const firsts: number[] = [];
    const clients = Array.from({ length: users }, async (_, client) => {
      for (let i = 0; i < flags.requests; i++) {
        const asked = performance.now();
        const url = urls[client % urls.length]!;
        const found = await answer(url, client * flags.requests + i + 1, flags.tokens);
        tokens += found.tokens; // after it: others count meanwhile
        firsts.push(found.firstAt - asked);
      }
    });
    await Promise.all(clients);
    const seconds = (performance.now() - began) / 1000;
    const after = used();
    const cores = Object.fromEntries(
      roles.map((role, at) => [role, (after[at]! - before[at]!) / seconds]),
    ) as Measured["cores"];
    return {
      ...{ perSecond: tokens / seconds, answers: (users * flags.requests) / seconds, cores },
      firsts: firsts.toSorted((a, b) => a - b),
    };
  } finally {
    cluster.close();
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

/** Waits until the gateway has heard of the model: workers say every second what they have. */
async function announced(url: string): Promise<void> {
  for (let i = 0; i < 100; i++) {
    const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: unknown[] };
    if (data.length > 0) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await new Promise((resolve) => setTimeout(resolve, 1500)); // and of all other workers
}

/** A streamed answer: the number of its tokens, and when the first came. */
async function answer(
  url: string,
  at: number,
  tokens: number,
): Promise<{ tokens: number; firstAt: number }> {
  const body = JSON.stringify({
    ...{ model: "bench", prompt: `${at} once there was a ${"small ".repeat(Math.abs(at) % 7)}` },
    ...{ max_tokens: tokens, ignore_eos: true, temperature: 1, seed: Math.abs(at) },
    ...{ stream: true, stream_options: { include_usage: true } },
  });
  // Not fetch(): its streams take several times as much of the processor, which clients share with everybody here.
  const asked = request(`${url}/v1/completions`, {
    ...{ method: "POST", agent, headers: { "content-type": "application/json" } },
  });
  asked.end(body);
  const [response] = (await once(asked, "response")) as [IncomingMessage];
  const parts: Uint8Array[] = [];
  let firstAt = 0;
  response.on("data", (part: Uint8Array) => {
    firstAt ||= performance.now();
    parts.push(part);
  });
  await once(response, "end");
  const text = Buffer.concat(parts).toString("utf8");
  const usage = [...text.matchAll(/"completion_tokens":(\d+)/g)].at(-1);
  if (response.statusCode !== 200 || !usage) {
    throw new Error(`the gateway answered ${response.statusCode}: ${text.slice(0, 300)}`);
  }
  return { tokens: Number(usage[1]), firstAt };
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
