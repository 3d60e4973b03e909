// What a profile costs: the same model opened with and without one, answers of both in turns, medians. Nothing is
// asserted. On a busy machine the CPU time of the process says more than the clock, so both are given.
//
//   node bench/profile-overhead.ts MODEL [tokens] [rounds] [threads]

import { availableParallelism, loadavg } from "node:os";
import { type Model, open } from "../src/index.ts";

const [path, tokens = "64", rounds = "15", asked] = process.argv.slice(2);
if (!path) {
  console.error("usage: node bench/profile-overhead.ts MODEL [tokens] [rounds] [threads]");
  process.exit(2);
}
const threads = Number(asked ?? availableParallelism());

/** Of one answer. */
interface Cost {
  /** By the engine's clock, per token. */
  readonly ms: number;
  /** Of all threads of this process, per token. */
  readonly cpuMs: number;
}

interface Side {
  readonly model: Model;
  readonly costs: Cost[];
}

const sides: readonly [Side, Side] = [
  { model: await open(path, { threads, profile: false, speculate: false }), costs: [] },
  { model: await open(path, { threads, profile: true, speculate: false }), costs: [] },
];

for (let round = -2; round < Number(rounds); round++) {
  for (const { model, costs } of round % 2 === 0 ? sides : sides.toReversed()) {
    const cost = await answer(model);
    if (round >= 0) costs.push(cost); // the first two warm up
  }
}
for (const { model } of sides) await model.dispose();

console.log(
  `${threads} threads, load ${loadavg()[0]!.toFixed(2)}; ${tokens} tokens written, median of ${rounds} rounds in turns`,
);
for (const [key, name] of [
  ["ms", "clock"],
  ["cpuMs", "CPU time"],
] as const) {
  const [off, on] = sides.map(({ costs }) => median(costs.map((cost) => cost[key])));
  // Neighbours in time meet the same machine: the median of their ratios is steadier than the ratio of medians.
  const ratios = sides[1].costs.map((cost, i) => cost[key] / sides[0].costs[i]![key]);
  console.log(
    `${name}: ${off!.toFixed(3)} ms per token without, ${on!.toFixed(3)} with: ${percent(on! / off!)}; median of the rounds' ratios ${percent(median(ratios))}`,
  );
}

async function answer(model: Model): Promise<Cost> {
  const before = process.cpuUsage();
  const options = { temperature: 0, ignoreEos: true, maxTokens: Number(tokens) };
  const { timings } = await model.generate([1], options).result;
  const { user, system } = process.cpuUsage(before);
  return {
    ms: timings.generatedMs / Number(tokens),
    cpuMs: (user + system) / 1000 / Number(tokens),
  };
}

function percent(ratio: number): string {
  return `${ratio >= 1 ? "+" : ""}${((ratio - 1) * 100).toFixed(1)}%`;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}
