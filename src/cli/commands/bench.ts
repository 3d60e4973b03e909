// lantern bench: how fast a model's prefill and decode are on this machine, for every combination of the requested opt
// levels and thread counts. These take turns, repetition by repetition, so that a machine that warms up or gets busy
// affects all alike. What exactly is measured: ../bench/measure.ts and docs/benchmarks.md.

import type { Command } from "commander";
import { defaultModel } from "../../catalog/catalog.ts";
import { inspect, type ModelInfo, type OptLevel, UsageError } from "../../index.ts";
import type { MachineFacts, MachineLoad } from "../../platform/node-cli.ts";
import { rateText, summarize } from "../bench/measure.ts";
import {
  type BenchOutputFlags,
  bestOptLevel,
  disturbedNote,
  jsonOption,
  levelsOption,
  machineText,
  markdownOption,
  statusLine,
  threadsOption,
} from "../bench/options.ts";
import { renderTable } from "../bench/render.ts";
import { type BenchPlan, type BenchProfile, type BenchResult, runRounds } from "../bench/rounds.ts";
import type { CliCommand, CliContext } from "../command.ts";
import { backendHelp, bestLevel, modelHelp, noColorHelp } from "../flag-help.ts";
import { numberFlag } from "../flag-values.ts";
import {
  exactOption,
  gpuForOption,
  gpuLayersOption,
  modelOption,
  openOptions,
  tuneFileOption,
} from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel } from "../load-model.ts";
import {
  type LimitFlags,
  limitOption,
  measureOnce,
  percentText,
  wantsLimits,
} from "../machine-limits.ts";
import {
  type ProfileFlags,
  profileJson,
  profileOption,
  profileText,
  takeProfile,
} from "../profile.ts";
import { bytesText, countText } from "../text.ts";
import { defineMatmul } from "./bench-matmul.ts";
import { defineServe } from "./bench-serve.ts";

interface BenchFlags extends BenchOutputFlags, LimitFlags, ProfileFlags {
  model?: string;
  threads?: number[];
  level?: OptLevel[];
  backend?: string;
  gpuLayers?: number | "all" | "auto";
  gpuFor?: "prompt" | "generation" | "auto";
  exact?: boolean;
  tuneFile?: string;
  prompt: number;
  predict: number;
  repetitions: number;
  warmup: boolean;
}

/** The fraction of available memory that models may take together. */
const memoryShare = 0.7;

export const benchCommand: CliCommand = {
  name: "bench",
  summary: "measure how fast a model runs on this machine",
  examples: [
    "lantern bench -m model.gguf -t 1,2",
    "lantern bench -m model.gguf --level 1,2,3,4 -p 64 -n 16 -r 3 --markdown",
    "lantern bench matmul --type f32,q4_1 -t 1,2 --level 3,4",
    "lantern bench serve -m model.gguf --users 1,2,4,8 --sla 2s,20",
  ],
  define(command, context) {
    command
      .addOption(modelOption(modelHelp(defaultModel)))
      .addOption(threadsOption())
      .addOption(levelsOption(bestLevel))
      .option("--backend <name>", backendHelp)
      .addOption(gpuLayersOption())
      .addOption(tuneFileOption())
      .addOption(gpuForOption())
      .addOption(exactOption())
      .option(
        "-p, --prompt <n>",
        "length of the prompt, in tokens; 0: do not measure prompts",
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
        "repetitions of each test",
        numberFlag({ integer: true, min: 1, max: 1000 }),
        5,
      )
      .option("--no-warmup", "skip the warm-up run")
      .addOption(limitOption())
      .addOption(profileOption())
      .addOption(jsonOption())
      .addOption(markdownOption())
      .action((flags: BenchFlags) => bench(flags, context));
    command.enablePositionalOptions();
    const inner = (name: string, summary: string): Command =>
      command
        .command(name)
        .description(summary)
        .option("--no-color", noColorHelp)
        .on("option:no-color", () => command.parent?.setOptionValue("color", false));
    defineMatmul(inner("matmul", "measure single matmuls, in GFLOPS"), context);
    defineServe(inner("serve", "measure what many users of a server get at once"), context);
  },
};

async function bench(flags: BenchFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  if (flags.prompt === 0 && flags.predict === 0) {
    throw new UsageError(
      "bench: got -p 0 and -n 0, which leave nothing to measure. Drop one of them",
    );
  }
  const threads = flags.threads ?? [terminal.machine().cores];
  const levels = flags.level ?? [await bestOptLevel()];
  if (typeof flags.profile === "string" && levels.length * threads.length > 1) {
    throw new UsageError(
      "bench: --profile with a file writes one trace, but several combinations would be measured. Give one --level and one -t",
    );
  }
  const path = await locate(flags, context);
  const machine = terminal.machine();
  const limits = wantsLimits(flags, context);
  const measured = limits ? await measureOnce(context, {}) : undefined;
  using interrupt = interruptible(terminal); // not before: until here Ctrl-C only skips the measurement
  const plan: BenchPlan = {
    path,
    levels,
    threads,
    where: openOptions({
      ...(flags.backend !== undefined && { backend: flags.backend }),
      ...(flags.gpuLayers !== undefined && { gpuLayers: flags.gpuLayers }),
      ...(flags.tuneFile !== undefined && { tuneFile: flags.tuneFile }),
      ...(flags.gpuFor !== undefined && { gpuFor: flags.gpuFor }),
      ...(flags.exact && { exact: true }),
    }),
    promptTokens: flags.prompt,
    generatedTokens: flags.predict,
    repetitions: flags.repetitions,
    warmup: flags.warmup,
    memoryBytes: machine.freeBytes * memoryShare,
    modelBytes: await modelBytes(path),
    limits,
    machine: measured,
    profileOf: flags.profile ? (model) => takeProfile(model, flags, context) : undefined,
  };
  const before = terminal.load();
  const { info, results, profiles } = await runRounds(plan, {
    signal: interrupt.signal,
    load: () => terminal.load(),
    status: statusLine(terminal),
  });
  const after = terminal.load();
  const report: BenchReport = { info, machine, plan, results, profiles, before, after };
  terminal.out(flags.json ? `${JSON.stringify(reportJson(report))}\n` : reportText(report, flags));
  const note = disturbedNote(results);
  if (note) terminal.err(`${context.color().err.red(note)}\n`);
}

async function locate(flags: BenchFlags, context: CliContext): Promise<string> {
  using interrupt = interruptible(context.terminal);
  return await locateModel(flags.model ?? defaultModel, context, interrupt.signal);
}

async function modelBytes(path: string): Promise<number> {
  const { memory, totalBytes } = await inspect(path);
  return memory?.weightBytes ?? totalBytes;
}

interface BenchReport {
  info: ModelInfo;
  machine: MachineFacts;
  plan: BenchPlan;
  results: readonly BenchResult[];
  profiles: readonly BenchProfile[];
  before: MachineLoad;
  after: MachineLoad;
}

const testNames: Record<BenchResult["kind"], string> = { prompt: "pp", generation: "tg" };

function reportJson(bench: BenchReport): object {
  const { info, machine, plan, results, profiles, before, after } = bench;
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
      level: result.level,
      threads: result.threads,
      test: testNames[result.kind] + result.tokens,
      tokens_per_second: summarize(result.samples),
      samples: result.samples,
      others_cores: result.othersCores,
      limit: limitJson(result),
    })),
    ...(profiles.length > 0 && {
      profiles: profiles.map(({ level, threads, report }) => ({
        level,
        threads,
        profile: profileJson(report),
      })),
    }),
  };
}

/** The median compared with the most that this machine allows. */
function limitJson({ limit, samples }: BenchResult): object | null {
  if (!limit) return null;
  const { resource, tokensPerSecond } = limit;
  const fraction = summarize(samples).median / tokensPerSecond;
  return { resource, tokens_per_second: tokensPerSecond, fraction };
}

function limitCells({ limit, samples }: BenchResult): string[] {
  if (!limit) return [];
  const { resource, tokensPerSecond } = limit;
  const fraction = summarize(samples).median / tokensPerSecond;
  return [rateText(tokensPerSecond), percentText(fraction), resource];
}

function reportText(report: BenchReport, { markdown = false }: BenchOutputFlags): string {
  const { info, machine, results, profiles, before, after } = report;
  const rows = results.map((result) => {
    const { median, min, max } = summarize(result.samples);
    return [
      String(result.level),
      String(result.threads),
      testNames[result.kind] + result.tokens,
      rateText(median),
      rateText(min),
      rateText(max),
      result.othersCores.toFixed(2),
      ...limitCells(result),
    ];
  });
  const header = ["level", "threads", "test", "tokens/s", "min", "max", "others"];
  if (results.some(({ limit }) => limit)) header.push("limit", "of limit", "limited by");
  const table = renderTable({ header, rows, right: [1, 3, 4, 5, 6, 7, 8] }, markdown);
  const model = `${info.name}: ${info.architecture}, ${countText(info.parameters)} parameters, ${info.weightType}, ${bytesText(info.weightBytes)}`;
  const where = profiles.map(
    ({ level, threads, report: profile }) =>
      `\nopt level ${level}, ${threads} thread${threads === 1 ? "" : "s"}\n\n${profileText(profile, markdown)}`,
  );
  return `${model}\n${machineText(machine, before, after)}\n\n${table}${where.join("")}`;
}
