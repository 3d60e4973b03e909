// Generation with one and with two threads (or as many as there are cores), first alone, then while other processes keep
// half of the cores busy: threads must not make it slower. (Engines with a barrier between ops become several times
// slower with all threads than with one.)
//
//   node bench/busy.ts MODEL [tokens]

import { spawn } from "node:child_process";
import { availableParallelism, loadavg } from "node:os";
import { type Model, open } from "../src/index.ts";

const [path, tokens = "24"] = process.argv.slice(2);
if (!path) {
  console.error("usage: node bench/busy.ts MODEL [tokens]");
  process.exit(2);
}
const cores = availableParallelism();
const rounds = 5;
const models = new Map<number, Model>();
for (const threads of [1, cores])
  models.set(threads, await open(path, { threads, speculate: false }));

console.log(
  `${cores} cores, load ${loadavg()[0]!.toFixed(2)} before; tokens/s, median of ${rounds}`,
);
await compare("alone");
const busy = Array.from({ length: Math.ceil(cores / 2) }, () =>
  spawn(process.execPath, ["-e", "for (;;) {}"], { stdio: "ignore" }),
);
await compare(`beside ${busy.length} busy process${busy.length > 1 ? "es" : ""}`);
for (const process of busy) process.kill();
for (const model of models.values()) await model.dispose();

/** Alternates the thread counts, round by round. */
async function compare(situation: string): Promise<void> {
  const speeds = new Map([...models.keys()].map((threads) => [threads, [] as number[]]));
  for (let round = -1; round < rounds; round++) {
    for (const [threads, model] of models) {
      const speed = await generationSpeed(model);
      if (round >= 0) speeds.get(threads)!.push(speed); // the first round warms up
    }
  }
  const [one, all] = [...speeds.values()].map(median) as [number, number];
  console.log(
    `${situation}: 1 thread ${one.toFixed(2)}, ${cores} threads ${all.toFixed(2)}, ratio ${(all / one).toFixed(2)}`,
  );
}

async function generationSpeed(model: Model): Promise<number> {
  const options = { temperature: 0, ignoreEos: true, maxTokens: Number(tokens) + 1 };
  const { timings } = await model.generate([1], options).result;
  return ((timings.generatedTokens - 1) / timings.generatedMs) * 1000;
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}
