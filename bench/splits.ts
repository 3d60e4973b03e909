// Whether a model's text is the same at every split between the processor and this machine's GPU, and what that costs:
//
//   npm run bench:splits -- MODEL.gguf ... [--tokens 32] [--layers 0,1,7] [--prompt TEXT] [--inexact] [--json]
//
// Greedy text at every -ngl with --exact, against that of the processor alone: the same tokens, and the same log
// probabilities to the last bit. --inexact compares the fast kernels instead. Speeds are those of open().

import { basename } from "node:path";
import { Command } from "commander";
import { type OpenOptions, open } from "../src/index.ts";

interface Flags {
  tokens: number;
  layers?: number[];
  prompt: string;
  inexact?: boolean;
  json?: boolean;
}

interface Row {
  model: string;
  gpuLayers: number;
  exact: boolean;
  /** The first token that is another; -1: all are the same. */
  differsAt: number;
  /** Log probabilities that are not the same bits. */
  otherBits: number;
  loadSeconds: number;
  promptPerSecond: number;
  generatedPerSecond: number;
}

interface Answer {
  ids: readonly number[];
  logprobs: readonly number[];
  layers: number;
  loadSeconds: number;
  promptPerSecond: number;
  generatedPerSecond: number;
}

const count = (text: string): number => {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 0) return value;
  throw new Error(`expected a whole number of at least 0, got "${text}"`);
};

const program = new Command("bench:splits")
  .argument("<model...>", "GGUF files")
  .option("--tokens <n>", "tokens to generate", count, 32)
  .option("--layers <list>", "values of -ngl (default: all)", (text) => text.split(",").map(count))
  .option("--prompt <text>", "what the text goes on with", "Once upon a time")
  .option("--inexact", "the fast kernels, not the exact ones")
  .option("--json", "a line of JSON for each split");

async function answer(path: string, options: OpenOptions, flags: Flags): Promise<Answer> {
  const begin = performance.now();
  await using model = await open(path, { contextSize: 512, speculate: false, ...options });
  const loadSeconds = (performance.now() - begin) / 1000;
  const generation = model.generate(flags.prompt, {
    temperature: 0,
    maxTokens: flags.tokens,
    ignoreEos: true,
    logprobs: 2,
  });
  const logprobs: number[] = [];
  for await (const { logprob = 0, top = [] } of generation.tokens()) {
    logprobs.push(logprob, ...top.map((other) => other.logprob));
  }
  const { tokenIds, timings } = await generation.result;
  return {
    ids: tokenIds,
    logprobs,
    layers: model.info.layers,
    loadSeconds,
    promptPerSecond: timings.promptTokens / (timings.promptMs / 1000),
    generatedPerSecond: timings.generatedTokens / (timings.generatedMs / 1000),
  };
}

function compare(path: string, gpuLayers: number, exact: boolean, a: Answer, b: Answer): Row {
  const { loadSeconds, promptPerSecond, generatedPerSecond } = a;
  return {
    model: basename(path),
    gpuLayers,
    exact,
    differsAt: b.ids.findIndex((id, i) => id !== a.ids[i]),
    otherBits: b.logprobs.filter((value, i) => !Object.is(value, a.logprobs[i])).length,
    loadSeconds,
    promptPerSecond,
    generatedPerSecond,
  };
}

function show(row: Row, flags: Flags): void {
  if (flags.json) {
    console.log(JSON.stringify(row));
    return;
  }
  const same = row.differsAt < 0 ? "the same text" : `differs from token ${row.differsAt} on`;
  const speeds = `prompt ${row.promptPerSecond.toFixed(1)}, generation ${row.generatedPerSecond.toFixed(1)} tokens/s`;
  console.log(
    `${row.model} -ngl ${row.gpuLayers}${row.exact ? " --exact" : ""}: ${same}, ${row.otherBits} other bits; ${speeds}`,
  );
}

async function main(): Promise<void> {
  const flags = program.parse().opts<Flags>();
  let wrong = 0;
  for (const path of program.args) {
    const alone = await answer(path, { gpuLayers: 0 }, flags);
    show(compare(path, 0, false, alone, alone), flags);
    const every = Array.from({ length: alone.layers + 1 }, (_, i) => i + 1);
    for (const gpuLayers of flags.layers ?? every) {
      const exact = !flags.inexact;
      const row = compare(
        path,
        gpuLayers,
        exact,
        await answer(path, { gpuLayers, exact }, flags),
        alone,
      );
      show(row, flags);
      if (row.differsAt >= 0 || (exact && row.otherBits > 0)) wrong++;
    }
  }
  process.exitCode = wrong > 0 ? 1 : 0;
}

await main();
