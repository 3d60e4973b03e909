// lantern bench: how fast a model reads prompts and generates on this machine, for every combination of the opt levels
// and thread counts asked for. These take turns, repetition by repetition, so that a machine that warms up or gets busy
// treats them alike. What exactly is measured: ../bench/measure.ts and docs/benchmarks.md.

import { Option } from "commander";
import { defaultModel } from "../../catalog/catalog.ts";
import { inspect, type ModelInfo, UsageError } from "../../index.ts";
import type { MachineFacts, MachineLoad, Terminal } from "../../platform/node-cli.ts";
import { quietCores } from "../bench/machine-load.ts";
import { rateText, summarize } from "../bench/measure.ts";
import { renderTable } from "../bench/render.ts";
import { type BenchPlan, type BenchResult, runRounds } from "../bench/rounds.ts";
import type { CliCommand, CliContext } from "../command.ts";
import { numberFlag, numberListFlag } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel } from "../load-model.ts";
import { bytesText, countText } from "../text.ts";

export interface BenchOutputFlags {
  json?: boolean;
  markdown?: boolean;
}

interface BenchFlags extends BenchOutputFlags {
  model?: string;
  threads?: number[];
  level?: number[];
  prompt: number;
  predict: number;
  repetitions: number;
  warmup: boolean;
}

/** Of the free memory, the share that models may take together. */
const memoryShare = 0.7;

export const benchCommand: CliCommand = {
  name: "bench",
  summary: "measure how fast a model runs on this machine",
  examples: [
    "lantern bench -m model.gguf -t 1,2",
    "lantern bench -m model.gguf --level 1,2,3 -p 64 -n 16 -r 3 --markdown",
  ],
  define(command, context) {
    command
      .option(
        "-m, --model <model>",
        `model file, or a name of "lantern models" (default: ${defaultModel})`,
      )
      .addOption(threadsOption())
      .addOption(levelsOption())
      .option(
        "-p, --prompt <n>",
        "tokens of the prompt; 0: do not measure prompts",
        numberFlag({ integer: true, min: 0, max: 1 << 20 }),
        128,
      )
      .option(
        "-n, --predict <n>",
        "tokens to generate; 0: do not measure generation",
        numberFlag({ integer: true, min: 0, max: 1 << 20 }),
        32,
      )
      .option(
        "-r, --repetitions <n>",
        "how often each is measured",
        numberFlag({ integer: true, min: 1, max: 1000 }),
        5,
      )
      .option("--no-warmup", "measure from the first run on")
      .addOption(jsonOption())
      .addOption(markdownOption())
      .action((flags: BenchFlags) => bench(flags, context));
  },
};

export function threadsOption(): Option {
  const flag = numberListFlag({ integer: true, min: 1, max: 1024 });
  return new Option("-t, --threads <n,...>", "compute threads (default: all cores)").argParser(
    flag,
  );
}

export function levelsOption(): Option {
  return new Option(
    "--level <n,...>",
    "opt levels: 1 naive, 2 SIMD, 3 SIMD and tiles (default: the engine's own choice)",
  ).argParser(numberListFlag({ integer: true, min: 1, max: 3 }));
}

export function jsonOption(): Option {
  return new Option("--json", "print one JSON object").conflicts("markdown");
}

export function markdownOption(): Option {
  return new Option("--markdown", "print a Markdown table");
}

async function bench(flags: BenchFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  if (flags.prompt === 0 && flags.predict === 0) {
    throw new UsageError("bench: -p 0 and -n 0 leave nothing to measure: leave one of them out");
  }
  using interrupt = interruptible(terminal);
  const path = await locateModel(flags.model ?? defaultModel, context, interrupt.signal);
  const machine = terminal.machine();
  const plan: BenchPlan = {
    path,
    levels: flags.level ?? [undefined],
    threads: flags.threads ?? [machine.cores],
    promptTokens: flags.prompt,
    generatedTokens: flags.predict,
    repetitions: flags.repetitions,
    warmup: flags.warmup,
    memoryBytes: machine.freeBytes * memoryShare,
    modelBytes: await modelBytes(path),
  };
  const before = terminal.load();
  const { info, results } = await runRounds(plan, {
    signal: interrupt.signal,
    load: () => terminal.load(),
    status: statusLine(terminal),
  });
  const report: BenchReport = { info, machine, plan, results, before, after: terminal.load() };
  terminal.out(flags.json ? `${JSON.stringify(reportJson(report))}\n` : reportText(report, flags));
  const note = disturbedNote(results);
  if (note) terminal.err(`${context.color().err.red(note)}\n`);
}

async function modelBytes(path: string): Promise<number> {
  const { memory, totalBytes } = await inspect(path);
  return memory?.weightBytes ?? totalBytes;
}

/** One line on stderr that is written over, where stderr is a terminal; "" removes it. */
export function statusLine(terminal: Terminal): (text: string) => void {
  return (text) => {
    if (terminal.errIsTerminal) terminal.err(`\r${text.slice(0, terminal.columns - 1)}\x1b[K`);
  };
}

interface BenchReport {
  info: ModelInfo;
  machine: MachineFacts;
  plan: BenchPlan;
  results: readonly BenchResult[];
  before: MachineLoad;
  after: MachineLoad;
}

const testNames: Record<BenchResult["kind"], string> = { prompt: "pp", generation: "tg" };

function reportJson({ info, machine, plan, results, before, after }: BenchReport): object {
  return {
    model: {
      name: info.name,
      architecture: info.architecture,
      parameters: info.parameters,
      type: info.weightType,
      bytes: info.weightBytes,
    },
    machine: {
      cpu: machine.cpu,
      cores: machine.cores,
      memory_bytes: machine.memoryBytes,
      system: machine.system,
    },
    load: { before: before.loadAverage ?? null, after: after.loadAverage ?? null },
    repetitions: plan.repetitions,
    warmup: plan.warmup,
    results: results.map((result) => ({
      level: result.level ?? null,
      threads: result.threads,
      test: testNames[result.kind] + result.tokens,
      tokens_per_second: summarize(result.samples),
      samples: result.samples,
      others_cores: result.othersCores,
    })),
  };
}

function reportText(report: BenchReport, { markdown = false }: BenchOutputFlags): string {
  const { info, machine, results, before, after } = report;
  const rows = results.map((result) => {
    const { median, min, max } = summarize(result.samples);
    return [
      result.level === undefined ? "default" : String(result.level),
      String(result.threads),
      testNames[result.kind] + result.tokens,
      rateText(median),
      rateText(min),
      rateText(max),
      result.othersCores.toFixed(2),
    ];
  });
  const header = ["level", "threads", "test", "tokens/s", "min", "max", "others"];
  const table = renderTable({ header, rows, right: [1, 3, 4, 5, 6] }, markdown);
  const model = `${info.name}: ${info.architecture}, ${countText(info.parameters)} parameters, ${info.weightType}, ${bytesText(info.weightBytes)}`;
  return `${model}\n${machineText(machine, before, after)}\n\n${table}`;
}

export function machineText(
  machine: MachineFacts,
  before: MachineLoad,
  after: MachineLoad,
): string {
  const facts = `${machine.cpu}, ${machine.cores} cores, ${machine.system}`;
  if (before.loadAverage === undefined || after.loadAverage === undefined) return facts;
  return `${facts}; load ${before.loadAverage.toFixed(2)} before, ${after.loadAverage.toFixed(2)} after`;
}

export function disturbedNote(results: readonly { othersCores: number }[]): string | undefined {
  const worst = Math.max(...results.map(({ othersCores }) => othersCores));
  if (worst <= quietCores) return undefined;
  return `Other processes used up to ${worst.toFixed(2)} cores meanwhile: these speeds are not this machine's best.`;
}
