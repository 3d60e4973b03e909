// How a cluster scales, and what its gateway can carry:
//
//   npm run bench:cluster -- MODEL.gguf [--workers 1,2,4] [--users 4] [--requests 24] [--tokens 64]
//
// For each number of workers: as many processes of one thread, each on a core of its own where `taskset` is there, one NATS server
// and one gateway. `users` clients for each worker ask for streamed answers, one after the other, with different prompts. Printed are
// the tokens per second of all, that divided by what one worker gave (N workers: N is ideal), and what the gateway and NATS took of a
// core, from which follows how many tokens per second a gateway carries that has a core for itself. The gateway, NATS and
// the clients share the machine with the workers: with as many workers as cores, they take from them.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { Command } from "commander";
import { startLantern } from "../test/cluster/processes.ts";
import { startNats } from "../test/support/nats-servers.ts";

interface Flags {
  workers: number[];
  users: number;
  requests: number;
  tokens: number;
}

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
  .argument("<model>", "a GGUF file")
  .option("--workers <counts>", "numbers of workers", counts, [1, 2])
  .option("--users <count>", "clients for each worker", positive, 4)
  .option("--requests <count>", "answers for each client", positive, 6)
  .option("--tokens <count>", "tokens of an answer", positive, 64)
  .action(main)
  .parseAsync();

async function main(model: string, flags: Flags): Promise<void> {
  const cores = availableParallelism();
  console.log(`${cores} cores, load ${loadavg()[0]!.toFixed(1)} before\n`);
  console.log(
    "| workers | tokens/s | of N times one | answers/s | gateway, core | tokens/s a gateway's core carries |",
  );
  console.log("|---:|---:|---:|---:|---:|---:|");
  let one: number | undefined;
  for (const workers of flags.workers) {
    const { perSecond, answersPerSecond, gatewayCore } = await measure(model, workers, flags);
    one ??= perSecond / workers;
    const cells = [
      perSecond.toFixed(0),
      (perSecond / (one * workers)).toFixed(2),
      answersPerSecond.toFixed(1),
    ];
    cells.push(gatewayCore.toFixed(2), (perSecond / gatewayCore).toFixed(0));
    console.log(`| ${workers} | ${cells.join(" | ")} |`);
  }
  process.exit(0);
}

interface Measured {
  readonly perSecond: number;
  readonly answersPerSecond: number;
  /** The part of a core that the gateway took. */
  readonly gatewayCore: number;
}

async function measure(model: string, workers: number, flags: Flags): Promise<Measured> {
  const nats = await startNats(1);
  const servers = nats.urls.join(",");
  const cores = availableParallelism();
  const started = await Promise.all(
    Array.from({ length: workers }, (_, at) => {
      const args = ["worker", "--cluster", servers, "-m", model, "-a", "bench", "--threads", "1"];
      const within = hasTaskset() ? ["taskset", "-c", String(at % cores)] : [];
      return startLantern([...args, "--parallel", String(flags.users), "-c", "512"], { within });
    }),
  );
  const gateway = await startLantern([
    "serve",
    "--cluster",
    servers,
    "--port",
    "0",
    "--no-web",
    "--no-batches",
  ]);
  const url = gateway.ready.url as string;
  try {
    await announced(url);
    await answer(url, 0, 8); // everything is warm
    const before = processorSeconds(gateway.child.pid!);
    const began = performance.now();
    let tokens = 0;
    const clients = Array.from({ length: workers * flags.users }, async (_, client) => {
      for (let i = 0; i < flags.requests; i++) {
        const written = await answer(url, client * flags.requests + i + 1, flags.tokens);
        tokens += written; // after it: others count meanwhile
      }
    });
    await Promise.all(clients);
    const seconds = (performance.now() - began) / 1000;
    return {
      perSecond: tokens / seconds,
      answersPerSecond: (clients.length * flags.requests) / seconds,
      gatewayCore: (processorSeconds(gateway.child.pid!) - before) / seconds,
    };
  } finally {
    for (const { child } of [gateway, ...started]) child.kill("SIGKILL");
    nats.close();
  }
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

/** A streamed answer: the number of its tokens. */
async function answer(url: string, at: number, tokens: number): Promise<number> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      ...{
        model: "bench",
        prompt: `${at} once there was a ${"small ".repeat(at % 7)}`,
        stream: true,
      },
      ...{ max_tokens: tokens, ignore_eos: true, temperature: 1, seed: at },
      stream_options: { include_usage: true },
    }),
  });
  const text = await response.text();
  const usage = [...text.matchAll(/"completion_tokens":(\d+)/g)].at(-1);
  if (response.status !== 200 || !usage) {
    throw new Error(`the gateway answered ${response.status}: ${text.slice(0, 300)}`);
  }
  return Number(usage[1]);
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
