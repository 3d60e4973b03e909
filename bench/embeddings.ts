// Lantern beside llama.cpp (node-llama-cpp) as makers of embeddings, on the same files: texts per second of both, and the ratio.
//
//   node bench/embeddings.ts MODEL.gguf ... [-t 1,2] [-p 128,512] [-n 8] [-r 3]
//
// Both run in this process and take turns. Lantern gets all texts of a round at once, llama.cpp one after the other: its package
// has no other way. Texts are random tokens.

import { basename } from "node:path";
import { Command } from "commander";
import { LanternError } from "../src/base/errors.ts";
import { rateText, summarize, tokenSource } from "../src/cli/bench/measure.ts";
import { machineText, threadsOption } from "../src/cli/bench/options.ts";
import { renderTable } from "../src/cli/bench/render.ts";
import { numberFlag, numberListFlag } from "../src/cli/flag-values.ts";
import { open } from "../src/index.ts";
import { nodeTerminal, type Terminal } from "../src/platform/node-cli.ts";
import { type Llama, llamaEmbedder, loadLlama } from "./llama-cpp.ts";

interface Flags {
  threads?: number[];
  prompt: number[];
  texts: number;
  repetitions: number;
}

/** Makes the embeddings of these texts. */
type Embed = (texts: readonly (readonly number[])[]) => Promise<unknown>;

async function main(terminal: Terminal): Promise<void> {
  const count = { integer: true, min: 1, max: 1 << 16 } as const;
  await new Command("bench:embeddings")
    .argument("<models...>", "GGUF files")
    .addOption(threadsOption())
    .option("-p, --prompt <n,...>", "tokens of a text", numberListFlag(count), [128, 512])
    .option("-n, --texts <n>", "texts of a round", numberFlag(count), 8)
    .option("-r, --repetitions <n>", "rounds", numberFlag(count), 3)
    .action((models: string[], flags: Flags) => compare(models, flags, terminal))
    .parseAsync();
}

async function compare(models: string[], flags: Flags, terminal: Terminal): Promise<void> {
  const llama = await loadLlama();
  const before = terminal.load();
  const rows: string[][] = [];
  for (const path of models) {
    for (const threads of flags.threads ?? [terminal.machine().cores]) {
      rows.push(...(await compareOnce(llama, path, threads, flags)));
    }
  }
  const header = ["model", "threads", "tokens", "Lantern", "llama.cpp", "ratio"];
  terminal.out(`${machineText(terminal.machine(), before, terminal.load())}\n`);
  terminal.out(`texts/s, median of ${flags.repetitions} rounds of ${flags.texts} texts\n\n`);
  terminal.out(renderTable({ header, rows, right: [1, 2, 3, 4, 5] }, false));
}

async function compareOnce(
  llama: Llama,
  path: string,
  threads: number,
  { prompt, texts, repetitions }: Flags,
): Promise<string[][]> {
  const contextSize = Math.max(...prompt) + 8; // llama.cpp may add tokens at both ends
  await using model = await open(path, { contextSize, threads });
  const peer = await llamaEmbedder(llama, path, threads, contextSize);
  try {
    const next = tokenSource(model.info.vocabSize);
    const sides: Embed[] = [
      async (input) => await model.embed(input),
      async (input) => {
        for (const tokens of input) await peer.embed(tokens);
      },
    ];
    const rows: string[][] = [];
    for (const tokens of prompt) {
      const speeds: number[][] = [[], []];
      for (let round = -1; round < repetitions; round++) {
        const input = Array.from({ length: texts }, () => next(tokens));
        for (const side of round % 2 === 0 ? [0, 1] : [1, 0]) {
          const started = performance.now();
          await sides[side]!(input);
          const speed = (texts * 1000) / (performance.now() - started);
          if (round >= 0) speeds[side]!.push(speed); // the first one warms up
        }
      }
      const [own, other] = speeds.map((each) => summarize(each).median) as [number, number];
      const cells = [basename(path), threads, tokens, rateText(own), rateText(other)];
      rows.push([...cells.map(String), (own / other).toFixed(2)]);
    }
    return rows;
  } finally {
    await peer.dispose();
  }
}

const terminal = nodeTerminal();
try {
  await main(terminal);
} catch (error) {
  if (!(error instanceof LanternError)) throw error;
  terminal.err(`${error.message}\n`);
  process.exitCode ??= 1;
}
