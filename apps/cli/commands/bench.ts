// lantern bench: the speed of a model's prefill and decode on this machine, for every combination of the requested opt
// levels and thread counts. These alternate, repetition by repetition, so that a machine that warms up or gets busy
// affects all alike. The exact definition: ../bench/measure.ts and docs/use/benchmarks.md.

import { type Command, Option } from "commander";
import { defaultModel } from "../../../src/catalog/catalog.ts";
import {
  ContextError,
  defaultKvType,
  type HeldType,
  type Isa,
  inspect,
  type KvType,
  type OpenOptions,
  type OptLevel,
  UsageError,
} from "../../../src/index.ts";
import { openTable } from "../../../src/options/open.ts";
import { contextFor } from "../bench/measure.ts";
import {
  type BenchOutputFlags,
  bestOptLevel,
  disturbedNote,
  jsonOption,
  levelsOption,
  markdownOption,
  statusLine,
  threadsOption,
} from "../bench/options.ts";
import { benchSvg } from "../bench/picture.ts";
import { type BenchReport, type ComputedMemory, reportJson, reportText } from "../bench/report.ts";
import { type BenchPlan, runRounds } from "../bench/rounds.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { addCpuFlags, type CpuFlags, cpuFlags } from "../cpu-flags.ts";
import { bestLevel, modelHelp, plotHelp } from "../flag-help.ts";
import { numberFlag, numberListFlag, svgFlag } from "../flag-values.ts";
import {
  addCacheTypeFlags,
  cacheTypes,
  type DraftFlags,
  isaOption,
  kvTypeOf,
  modelDraftOption,
  modelOption,
  openFlag,
  openOptions,
  tuneFileOption,
  weightsOption,
} from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel, sayWarnings } from "../load-model.ts";
import { addLogLevel } from "../logging.ts";
import { type LimitFlags, limitOption, measureOnce, wantsLimits } from "../machine-limits.ts";
import { type ProfileFlags, profileOption, takeProfile } from "../profile.ts";
import { addDraftTypeFlags, type SpeculateFlags } from "../speculate-flags.ts";
import { noColorHelp } from "../text.ts";
import { defineMatmul } from "./bench-matmul.ts";
import { defineServe } from "./bench-serve.ts";

interface BenchFlags
  extends BenchOutputFlags,
    CpuFlags,
    DraftFlags,
    LimitFlags,
    ProfileFlags,
    SpeculateFlags {
  mtp?: boolean;
  model?: string;
  threads?: number[];
  level?: OptLevel[];
  isa?: Isa;
  backend?: string;
  gpuLayers?: number | "all" | "auto";
  gpuFor?: "prompt" | "generation" | "auto";
  exact?: boolean;
  tuneFile?: string;
  weights?: HeldType;
  cacheType?: KvType;
  cacheTypeK?: KvType;
  cacheTypeV?: KvType;
  prompt: number[];
  predict: number[];
  depth: number[];
  plot?: string;
  repetitions: number;
  warmup: boolean;
}

/** The fraction of available memory that models may take together. */
const memoryShare = 0.7;

export const benchCommand: CommandBody = {
  examples: [
    "lantern bench -m model.gguf -t 1,2",
    "lantern bench -m model.gguf -p 25,100,500 -n 32 -d 0,2048,16384 --plot bench.svg",
    "lantern bench -m model.gguf -p 0 -n 32 -d 8192 -ctk q8_0 -ctv q4_0",
    "lantern bench -m model.gguf --level 1,2,3,4 -p 64 -n 16 -r 3 --markdown",
    "lantern bench matmul --type f32,q4_1 -t 1,2 --level 3,4",
    "lantern bench serve -m model.gguf --users 1,2,4,8 --sla 2s,20",
    "lantern bench matmul --tile 5x4,4x4 --type f32",
    "lantern bench matmul --seed-table",
  ],
  define(command, context) {
    command
      .addOption(modelOption(modelHelp(defaultModel)))
      .addOption(threadsOption())
      .addOption(levelsOption(bestLevel))
      .addOption(isaOption())
      .addOption(openFlag("backend"))
      .addOption(openFlag("gpuLayers"))
      .addOption(tuneFileOption())
      .addOption(openFlag("gpuFor"))
      .addOption(openFlag("exact"))
      .option("--no-exact", openTable.exact.noHelp)
      .addOption(weightsOption())
      .addOption(
        tokensOption(
          "-p, --prompt <n,...>",
          "lengths of prompts, in tokens; 0: do not measure prompts",
          128,
        ),
      )
      .addOption(
        tokensOption(
          "-n, --predict <n,...>",
          "tokens to generate; 0: do not measure generation",
          32,
        ),
      )
      .addOption(
        tokensOption("-d, --depth <n,...>", "tokens that are in the KV cache before each test", 0),
      )
      .option(
        "-r, --repetitions <n>",
        "repetitions of each test",
        numberFlag({ integer: true, min: 1, max: 1000 }),
        5,
      )
      .option("--no-warmup", "skip the warm-up run")
      .option("--plot <file.svg>", plotHelp, svgFlag)
      .option(
        "--speculate",
        "draft tokens, as run does: greedy text often repeats itself, so the speed is that of the text (docs/use/speculation.md)",
      )
      .addOption(openFlag("mtp"))
      .addOption(limitOption())
      .addOption(profileOption())
      .addOption(jsonOption())
      .addOption(markdownOption())
      .action((flags: BenchFlags) => bench(flags, context));
    addCpuFlags(addCacheTypeFlags(command, defaultKvType));
    addDraftTypeFlags(command)
      .addOption(modelDraftOption())
      .addOption(openFlag("draftThreads"))
      .addOption(openFlag("draftGpuLayers"));
    command.enablePositionalOptions();
    const inner = (name: string, summary: string): Command => {
      const made = command
        .command(name)
        .description(summary)
        .option("--no-color", noColorHelp)
        .on("option:no-color", () => command.parent?.setOptionValue("color", false));
      return addLogLevel(made, () => command.parent);
    };
    defineMatmul(inner("matmul", "measure single matmuls, in GFLOPS"), context);
    defineServe(inner("serve", "measure what many users of a server get at once"), context);
  },
};

async function bench(flags: BenchFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  const promptTokens = flags.prompt.filter((count) => count > 0);
  const generatedTokens = flags.predict.filter((count) => count > 0);
  if (promptTokens.length + generatedTokens.length === 0) {
    throw new UsageError(
      "bench: got -p 0 and -n 0, which leave nothing to measure. Drop one of them",
    );
  }
  const threads = flags.threads ?? [terminal.machine().cores];
  const levels = flags.level ?? [flags.isa === "wasm" ? 3 : await bestOptLevel()];
  if (typeof flags.profile === "string" && levels.length * threads.length > 1) {
    throw new UsageError(
      "bench: --profile with a file writes one trace, but several combinations would be measured. Give one --level and one -t",
    );
  }
  checkDrafts(flags);
  const path = await locate(flags, context);
  const deepest = Math.max(...flags.depth);
  const longest = deepest + Math.max(0, ...promptTokens);
  const written = deepest + Math.max(0, ...generatedTokens);
  const computed = await memoryAt(
    path,
    contextFor(longest, written),
    Math.max(longest, written + 1),
    flags.weights,
    kvTypeOf(flags),
  );
  const machine = terminal.machine();
  const limits = wantsLimits(flags, context);
  const measured = limits ? await measureOnce(context, {}) : undefined;
  using interrupt = interruptible(terminal); // not before: until here Ctrl-C only skips the measurement
  const plan: BenchPlan = {
    path,
    levels,
    threads,
    where: openOptions({
      ...(flags.isa && { isa: flags.isa }),
      ...cpuFlags(flags),
      ...cacheTypes(flags),
      ...(flags.backend !== undefined && { backend: flags.backend }),
      ...(flags.gpuLayers !== undefined && { gpuLayers: flags.gpuLayers }),
      ...(flags.tuneFile !== undefined && { tuneFile: flags.tuneFile }),
      ...(flags.gpuFor !== undefined && { gpuFor: flags.gpuFor }),
      ...(flags.exact !== undefined && { exact: flags.exact }),
      ...(flags.weights && { weights: flags.weights }),
      ...draftFlags(flags),
    }),
    speculates: flags.speculate ?? false,
    promptTokens,
    generatedTokens,
    depths: flags.depth,
    contextSize: contextFor(longest, written),
    repetitions: flags.repetitions,
    warmup: flags.warmup,
    memoryBytes: machine.freeBytes * memoryShare,
    modelBytes: computed.weightBytes + computed.kvBytes,
    limits,
    machine: measured,
    profileOf: flags.profile ? (model) => takeProfile(model, flags, context) : undefined,
  };
  const before = terminal.load();
  const outcome = await runRounds(plan, {
    signal: interrupt.signal,
    load: () => terminal.load(),
    status: statusLine(terminal),
  });
  const after = terminal.load();
  sayWarnings(outcome.info, context);
  const report: BenchReport = { ...outcome, machine, plan, computed, before, after };
  terminal.out(flags.json ? `${JSON.stringify(reportJson(report))}\n` : reportText(report, flags));
  if (flags.plot !== undefined) {
    await terminal.writeText(flags.plot, benchSvg(outcome.info.name, outcome.results));
    terminal.err(`Chart written to ${flags.plot}\n`);
  }
  const note = disturbedNote(outcome.results);
  if (note) terminal.err(`${context.color().err.red(note)}\n`);
}

/** The flags of the drafter, and of the number of drafted tokens. */
function draftFlags(flags: BenchFlags): DraftFlags & SpeculateFlags & { mtp?: boolean } {
  const { modelDraft, threadsDraft, gpuLayersDraft, mtp } = flags;
  const { specType, specDraftNMax, specDraftNMin, specDraftPMin } = flags;
  return {
    ...(modelDraft !== undefined && { modelDraft }),
    ...(threadsDraft !== undefined && { threadsDraft }),
    ...(gpuLayersDraft !== undefined && { gpuLayersDraft }),
    ...(mtp && { mtp }),
    ...(specType !== undefined && { specType }),
    ...(specDraftNMax !== undefined && { specDraftNMax }),
    ...(specDraftNMin !== undefined && { specDraftNMin }),
    ...(specDraftPMin !== undefined && { specDraftPMin }),
  };
}

function checkDrafts(flags: BenchFlags): void {
  if (flags.speculate || Object.keys(draftFlags(flags)).length === 0) return;
  throw new UsageError(
    "bench: got flags of drafts, but drafts are measured only with --speculate. Add it, or drop them",
  );
}

async function locate(flags: BenchFlags, context: CliContext): Promise<string> {
  using interrupt = interruptible(context.terminal);
  return await locateModel(flags.model ?? defaultModel, context, interrupt.signal);
}

/** The computed memory of the model with this context, before anything is loaded; refuses a context that it does not have. */
async function memoryAt(
  path: string,
  contextSize: number,
  needed: number,
  weights: HeldType | undefined,
  kvType: OpenOptions["kvType"],
): Promise<ComputedMemory> {
  const { memory, totalBytes } = await inspect(path, { contextSize, weights, kvType });
  if (!memory) return { weightBytes: totalBytes, kvBytes: 0, workBytes: 0, contextSize };
  if (memory.contextSize < needed) {
    throw new ContextError(
      `bench: -p, -n and -d need a context of ${needed} tokens, but this model was trained for ${memory.contextSize}. Give smaller ones`,
    );
  }
  const { weightBytes, kvBytes, activationBytes: workBytes } = memory;
  return { weightBytes, kvBytes, workBytes, contextSize: memory.contextSize };
}

function tokensOption(flags: string, help: string, usual: number): Option {
  const parse = numberListFlag({ integer: true, min: 0, max: 1 << 20 });
  return new Option(flags, help).argParser(parse).default([usual], String(usual));
}
