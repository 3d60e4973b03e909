// Lantern beside llama.cpp (node-llama-cpp) on the same files: prompt and generation speed of both, and the ratio.
//
//   npm run bench:peers -- MODEL.gguf ... [-t 1,2] [-p 128] [-n 32] [-r 5] [--level 4] [--json | --markdown] [--force]
//
// Both run in this process and take turns, in alternating order. A round that something disturbed is measured again; a
// line whose rounds were never quiet is marked and gets no ratio, unless --force says that it should.

import { basename } from "node:path";
import { Command } from "commander";
import { LanternError } from "../src/base/errors.ts";
import {
  type Contestant,
  contextFor,
  lanternContestant,
  tokenSource,
} from "../src/cli/bench/measure.ts";
import { bestOptLevel, levelsOption, machineText, statusLine } from "../src/cli/bench/options.ts";
import { type OptLevel, open } from "../src/index.ts";
import { nodeTerminal, type Terminal } from "../src/platform/node-cli.ts";
import { type Llama, type LlamaContestant, llamaContestant, loadLlama } from "./llama-cpp.ts";
import { QuietWatch } from "./quiet.ts";
import {
  addCompareFlags,
  type CompareFlags,
  type Line,
  report,
  runRounds,
  type Side,
  settle,
} from "./side-by-side.ts";

interface PeersFlags extends CompareFlags {
  level?: OptLevel[];
}

interface Bench {
  llama: Llama;
  flags: PeersFlags;
  terminal: Terminal;
  watch: QuietWatch;
  status(text: string): void;
}

async function main(terminal: Terminal): Promise<void> {
  const program = addCompareFlags(new Command("bench:peers").argument("<models...>", "GGUF files"))
    .addOption(levelsOption("4 where it can be run, otherwise 3"))
    .action((models: string[], flags: PeersFlags) => compare(models, flags, terminal));
  await program.parseAsync();
}

async function compare(models: string[], flags: PeersFlags, terminal: Terminal): Promise<void> {
  const llama = await loadLlama();
  const watch = new QuietWatch(terminal);
  const before = terminal.load();
  await settle(watch, flags);
  const bench: Bench = { llama, flags, terminal, watch, status: statusLine(terminal) };
  const lines: Line[] = [];
  for (const model of models) {
    for (const threads of flags.threads ?? [terminal.machine().cores]) {
      for (const level of flags.level ?? [await bestOptLevel()]) {
        lines.push(await compareOnce(bench, model, threads, level));
      }
    }
  }
  bench.status("");
  const facts = `${machineText(terminal.machine(), before, terminal.load())}; llama.cpp ${llama.llamaCppRelease.release}`;
  report(terminal, lines, facts, flags);
}

async function compareOnce(
  bench: Bench,
  path: string,
  threads: number,
  level: OptLevel,
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
    const name = `${basename(path)}${flags.level ? `, level ${level}` : ""}`;
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
