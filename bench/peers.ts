// Lantern beside llama.cpp (node-llama-cpp) on the same files: prompt and generation speed of both, and the ratio.
//
//   npm run bench:peers -- MODEL.gguf ... [-t 1,2] [-p 128] [-n 32] [-r 5] [--level 3] [--json | --markdown] [--force]
//
// Both run in this process and take turns, in alternating order. A round that something disturbed is measured again; a
// line whose rounds were never quiet is marked and gets no ratio, unless --force says that it should.

import { basename } from "node:path";
import { Command, Option } from "commander";
import { LanternError, SourceError } from "../src/base/errors.ts";
import {
  type Contestant,
  contextFor,
  lanternContestant,
  tokenSource,
} from "../src/cli/bench/measure.ts";
import {
  jsonOption,
  levelsOption,
  machineText,
  markdownOption,
  statusLine,
  threadsOption,
} from "../src/cli/bench/options.ts";
import { numberFlag } from "../src/cli/flags.ts";
import { open } from "../src/index.ts";
import { nodeTerminal, type Terminal } from "../src/platform/node-cli.ts";
import { type Llama, type LlamaContestant, llamaContestant, loadLlama } from "./llama-cpp.ts";
import { QuietWatch } from "./quiet.ts";
import { jsonText, type Line, reportText, runRounds, type Side } from "./side-by-side.ts";

interface PeersFlags {
  threads?: number[];
  level: (1 | 2 | 3)[];
  prompt: number;
  predict: number;
  repetitions: number;
  wait: number;
  force?: boolean;
  json?: boolean;
  markdown?: boolean;
}

interface Bench {
  llama: Llama;
  flags: PeersFlags;
  terminal: Terminal;
  watch: QuietWatch;
  status(text: string): void;
}

const busyExitCode = 3;

async function main(terminal: Terminal): Promise<void> {
  const count = numberFlag({ integer: true, min: 1, max: 1 << 20 });
  const program = new Command("bench:peers")
    .argument("<models...>", "GGUF files")
    .addOption(threadsOption())
    .addOption(levelsOption().default([3], "3"))
    .option("-p, --prompt <n>", "tokens of the prompt", count, 128)
    .option("-n, --predict <n>", "tokens to generate", count, 32)
    .option("-r, --repetitions <n>", "rounds", count, 5)
    .option("--wait <s>", "seconds to wait for a quiet machine", numberFlag({ min: 0 }), 60)
    .addOption(new Option("--force", "report also what was measured on a busy machine"))
    .addOption(jsonOption())
    .addOption(markdownOption())
    .action((models: string[], flags: PeersFlags) => compare(models, flags, terminal));
  await program.parseAsync();
}

async function compare(models: string[], flags: PeersFlags, terminal: Terminal): Promise<void> {
  const llama = await loadLlama();
  const watch = new QuietWatch(terminal);
  const before = terminal.load();
  const busy = await watch.settle(flags.force ? 0 : flags.wait);
  if (busy !== undefined && !flags.force) {
    process.exitCode = busyExitCode;
    throw new SourceError(
      `bench: the machine is busy: ${busy}, also after ${flags.wait} s. End what runs, or measure all the same with --force`,
    );
  }
  const bench: Bench = { llama, flags, terminal, watch, status: statusLine(terminal) };
  const lines: Line[] = [];
  for (const model of models) {
    for (const threads of flags.threads ?? [terminal.machine().cores]) {
      for (const level of flags.level) {
        lines.push(await compareOnce(bench, model, threads, level));
      }
    }
  }
  bench.status("");
  const { force = false } = flags;
  const facts = `${machineText(terminal.machine(), before, terminal.load())}; llama.cpp ${llama.llamaCppRelease.release}`;
  terminal.out(
    flags.json
      ? jsonText(lines, facts, force)
      : reportText(lines, {
          facts,
          promptTokens: flags.prompt,
          generatedTokens: flags.predict,
          repetitions: flags.repetitions,
          force,
          markdown: flags.markdown ?? false,
        }),
  );
  if (lines.some(({ disturbed }) => disturbed) && !force) process.exitCode = busyExitCode;
}

async function compareOnce(
  bench: Bench,
  path: string,
  threads: number,
  level: 1 | 2 | 3,
): Promise<Line> {
  const { flags, status } = bench;
  const contextSize = contextFor(flags.prompt, flags.predict);
  status(`${path}, ${threads} threads: loading`);
  await using model = await open(path, { contextSize, threads, level });
  const peer: LlamaContestant = await llamaContestant(bench.llama, path, threads, contextSize);
  try {
    const next = tokenSource(model.info.vocabSize);
    const sides = [
      side("Lantern", lanternContestant(model), flags),
      side("llama.cpp", peer, flags),
    ] as const;
    const input = () => ({ prompt: next(flags.prompt), first: next(1)[0]! });
    for (const one of sides) await one.measure(input()); // warms up
    const name = `${basename(path)}${level === 3 ? "" : `, level ${level}`}`;
    const disturbed = await runRounds(sides, input, bench.watch, {
      repetitions: flags.repetitions,
      force: flags.force ?? false,
      onRound: (done) => status(`${name}, ${threads} threads: round ${done + 1}`),
    });
    return { model: name, threads, sides, disturbed };
  } finally {
    await peer.dispose();
  }
}

interface Input {
  prompt: number[];
  first: number;
}

function side(name: string, contestant: Contestant, { predict }: PeersFlags): Side<Input> {
  return {
    name,
    samples: [],
    measure: async ({ prompt, first }) => ({
      prompt: await contestant.prompt(prompt),
      generation: await contestant.generate(first, predict),
    }),
  };
}

const terminal = nodeTerminal();
try {
  await main(terminal);
} catch (error) {
  if (!(error instanceof LanternError)) throw error;
  terminal.err(`${error.message}\n`);
  process.exitCode ??= 1;
}
