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
  rateText,
  summarize,
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
import { renderTable } from "../src/cli/bench/render.ts";
import { numberFlag } from "../src/cli/flags.ts";
import { open } from "../src/index.ts";
import { nodeTerminal, type Terminal } from "../src/platform/node-cli.ts";
import { type Llama, type LlamaContestant, llamaContestant, loadLlama } from "./llama-cpp.ts";
import { QuietWatch } from "./quiet.ts";

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

interface Speeds {
  prompt: number[];
  generation: number[];
}

/** One model, level and thread count. */
interface Line {
  model: string;
  type: string;
  level: number;
  threads: number;
  lantern: Speeds;
  llama: Speeds;
  /** Why its rounds could not be quiet; undefined: they were. */
  disturbed: string | undefined;
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
  const facts = `${machineText(terminal.machine(), before, terminal.load())}; llama.cpp ${llama.llamaCppRelease.release}`;
  terminal.out(
    flags.json ? jsonText(lines, facts, flags.force === true) : reportText(lines, facts, flags),
  );
  if (lines.some(({ disturbed }) => disturbed) && !flags.force) process.exitCode = busyExitCode;
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
    const { weightType, vocabSize } = model.info;
    const line: Line = {
      model: basename(path),
      type: weightType,
      level,
      threads,
      lantern: { prompt: [], generation: [] },
      llama: { prompt: [], generation: [] },
      disturbed: undefined,
    };
    await runRounds(bench, line, lanternContestant(model), peer, tokenSource(vocabSize));
    return line;
  } finally {
    await peer.dispose();
  }
}

/** Fills the line with `repetitions` quiet rounds, or, after twice as many tries, with what there was. */
async function runRounds(
  bench: Bench,
  line: Line,
  lantern: Contestant,
  llama: Contestant,
  next: (count: number) => number[],
): Promise<void> {
  const { flags, watch } = bench;
  const sides = [
    { contestant: lantern, speeds: line.lantern },
    { contestant: llama, speeds: line.llama },
  ];
  for (const { contestant } of sides) {
    await contestant.prompt(next(flags.prompt));
    await contestant.generate(next(1)[0]!, Math.min(4, flags.predict));
  }
  const disturbedRounds: string[] = [];
  for (let done = 0; done < flags.repetitions; ) {
    bench.status(`${line.model}, ${line.threads} threads: round ${done + 1}`);
    const prompt = next(flags.prompt);
    const first = next(1)[0]!;
    watch.begin();
    const measured: [Speeds, number, number][] = [];
    for (const { contestant, speeds } of done % 2 === 0 ? sides : sides.toReversed()) {
      const promptSpeed = await contestant.prompt(prompt);
      measured.push([speeds, promptSpeed, await contestant.generate(first, flags.predict)]);
    }
    const disturbance = watch.disturbance();
    if (disturbance !== undefined) {
      disturbedRounds.push(disturbance);
      if (disturbedRounds.length <= flags.repetitions && !flags.force) continue;
      line.disturbed = disturbance;
    }
    for (const [speeds, promptSpeed, generationSpeed] of measured) {
      speeds.prompt.push(promptSpeed);
      speeds.generation.push(generationSpeed);
    }
    done++;
  }
}

function jsonText(lines: readonly Line[], machine: string, force: boolean): string {
  const side = (speeds: Speeds) => ({
    prompt: { ...summarize(speeds.prompt), samples: speeds.prompt },
    generation: { ...summarize(speeds.generation), samples: speeds.generation },
  });
  const results = lines.map((line) => ({
    model: line.model,
    type: line.type,
    level: line.level,
    threads: line.threads,
    lantern: side(line.lantern),
    llama_cpp: side(line.llama),
    ratio:
      line.disturbed && !force
        ? null
        : { prompt: ratio(line, "prompt"), generation: ratio(line, "generation") },
    disturbed: line.disturbed ?? null,
  }));
  return `${JSON.stringify({ machine, results })}\n`;
}

function reportText(lines: readonly Line[], facts: string, flags: PeersFlags): string {
  const pp = `pp${flags.prompt}`;
  const tg = `tg${flags.predict}`;
  const header = ["model", "level", "threads"];
  for (const test of [pp, tg]) header.push(`${test} Lantern`, "llama.cpp", "ratio");
  const rows = lines.map((line) => {
    const cells = [line.model, String(line.level), String(line.threads)];
    if (line.disturbed && !flags.force) return [...cells, `not reported: ${line.disturbed}`];
    const mark = line.disturbed ? "*" : "";
    for (const test of ["prompt", "generation"] as const) {
      const [ours, theirs] = [summarize(line.lantern[test]), summarize(line.llama[test])];
      cells.push(rateText(ours.median), rateText(theirs.median));
      cells.push(`${ratio(line, test).toFixed(2)}${mark}`);
    }
    return cells;
  });
  const table = renderTable(
    { header, rows, right: [2, 3, 4, 5, 6, 7, 8] },
    flags.markdown ?? false,
  );
  const disturbed = lines.find((line) => line.disturbed)?.disturbed;
  const note = disturbed && flags.force ? `\n* The machine was busy: ${disturbed}.\n` : "";
  return `${facts}\ntokens/s, median of ${flags.repetitions}\n\n${table}${note}`;
}

function ratio(line: Line, test: keyof Speeds): number {
  return summarize(line.lantern[test]).median / summarize(line.llama[test]).median;
}

const terminal = nodeTerminal();
try {
  await main(terminal);
} catch (error) {
  if (!(error instanceof LanternError)) throw error;
  terminal.err(`${error.message}\n`);
  process.exitCode ??= 1;
}
