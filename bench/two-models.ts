// Two models that generate at once in one process, as `lantern serve -m A -m B` has them: how long both together take beside
// one after the other. 1 means that sharing the cores costs nothing.
//
//   node bench/two-models.ts A.gguf B.gguf [-t 2] [-n 200] [-r 7] [--json]
//
// In turns: A, B, both at once. Prints the median of the ratios, tokens per second, CPU time for each token (which says what
// sharing costs also on a busy machine) and the load average.

import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { type Model, open } from "../src/index.ts";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", short: "t" },
    tokens: { type: "string", short: "n", default: "200" },
    rounds: { type: "string", short: "r", default: "7" },
    json: { type: "boolean", default: false },
  },
});
if (positionals.length !== 2) {
  console.error(
    "usage: node bench/two-models.ts A.gguf B.gguf [-t THREADS] [-n TOKENS] [-r ROUNDS]",
  );
  process.exit(2);
}

interface Run {
  tokens: number;
  ms: number;
  cpuMs: number;
}

async function generate(model: Model): Promise<number> {
  const options = { maxTokens: Number(flags.tokens), temperature: 0, ignoreEos: true };
  const { timings } = await model.generate("Once upon a time", options).result;
  return timings.generatedTokens;
}

async function timed(...models: readonly Model[]): Promise<Run> {
  const before = process.cpuUsage();
  const started = performance.now();
  const counts = await Promise.all(models.map(generate));
  const ms = performance.now() - started;
  const { user, system } = process.cpuUsage(before);
  return { tokens: counts.reduce((a, b) => a + b), ms, cpuMs: (user + system) / 1000 };
}

function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1]!;
}

const threads = {
  speculate: false,
  ...(flags.threads !== undefined && { threads: Number(flags.threads) }),
};
const [a, b] = [await open(positionals[0]!, threads), await open(positionals[1]!, threads)];
await timed(a);
await timed(b);
const rounds: { alone: Run[]; both: Run; load: number }[] = [];
for (let round = 0; round < Number(flags.rounds); round++) {
  const load = loadavg()[0]!;
  rounds.push({ alone: [await timed(a), await timed(b)], both: await timed(a, b), load });
}
await Promise.all([a.dispose(), b.dispose()]);

const speed = ({ tokens, ms }: Run): number => (1000 * tokens) / ms;
const cpu = ({ tokens, cpuMs }: Run): number => cpuMs / tokens;
const facts = {
  models: positionals.map((path) => path.split("/").at(-1)),
  rounds: rounds.length,
  tokens_per_second: [0, 1].map((i) => Math.round(median(rounds.map((r) => speed(r.alone[i]!))))),
  together: Math.round(median(rounds.map((r) => speed(r.both)))),
  cpu_ms_per_token: [0, 1].map((i) =>
    Number(median(rounds.map((r) => cpu(r.alone[i]!))).toFixed(2)),
  ),
  together_cpu_ms: Number(median(rounds.map((r) => cpu(r.both))).toFixed(2)),
  ratio: Number(
    median(rounds.map((r) => r.alone.reduce((sum, { ms }) => sum + ms, 0) / r.both.ms)).toFixed(2),
  ),
  load_average: [Math.min(...rounds.map((r) => r.load)), Math.max(...rounds.map((r) => r.load))],
};
if (flags.json) console.log(JSON.stringify(facts));
else {
  const [first, second] = facts.tokens_per_second;
  console.log(
    `${facts.models.join(" and ")}: alone ${first} and ${second} tokens/s, together ${facts.together}; ` +
      `one after the other they take ${facts.ratio} times as long as at once; ` +
      `CPU per token ${facts.cpu_ms_per_token.join(" and ")} ms alone, ${facts.together_cpu_ms} ms together; ` +
      `medians of ${facts.rounds}, load average ${facts.load_average.map((l) => l.toFixed(1)).join("-")}`,
  );
}
