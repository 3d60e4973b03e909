// lantern tune: measures every way to compute a model's matmuls on this machine and stores the times; "analyze"
// summarizes a file of times, "test" measures some of them again.

import { type Command, Option } from "commander";
import { isDisturbed, othersCores, quietCores } from "../../../src/base/machine-load.ts";
import {
  analyzeTune,
  checkTune,
  compareTunes,
  correctedTune,
  type HeldType,
  readTune,
  rememberedGpuTune,
  rememberedTune,
  rememberTune,
  type TuneFile,
  type TuneOptions,
  testTune,
  tune,
  tunePostponedUntil,
  tuneSvg,
  tuneText,
  UsageError,
} from "../../../src/index.ts";
import {
  backgroundTuneText,
  killAfterMs,
  lastBackgroundTune,
  tuneInBackground,
} from "../background-tune.ts";
import { threadsOption } from "../bench/options.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { jsonHelp } from "../flag-help.ts";
import { numberFlag, numberListFlag, svgFlag } from "../flag-values.ts";
import { modelOption, weightsOption } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel } from "../load-model.ts";
import { ShareBar } from "../progress.ts";
import { analysisText, crossingsText, layersText, testErrors, testText } from "../tune-text.ts";

interface TuneFlags {
  backend: string;
  model?: string;
  shapes?: string;
  type?: string;
  weights?: HeldType;
  threads?: number[];
  mStep?: number;
  mNum?: number;
  tokens?: number[];
  /** false: --no-native. */
  native: boolean;
  quick?: boolean;
  full?: boolean;
  file?: string;
  json?: boolean;
  force?: boolean;
}

const count = numberFlag({ integer: true, min: 1, max: 1024 });

export const tuneCommand: CommandBody = {
  examples: [
    "lantern tune -m model.gguf --quick",
    "lantern tune --shapes 7b --type q4_0,q4_1 -t 1,2",
    "lantern tune -m model.gguf --backend cpu,webgpu",
    "lantern tune analyze --svg tune.svg",
    "lantern tune analyze cpu.txt gpu.txt",
    "lantern tune test",
    "lantern tune status",
  ],
  define(command, context) {
    command
      .option(
        "--backend <name,...>",
        "backends to tune, separated by commas: cpu, webgpu (a GPU)",
        "cpu",
      )
      .addOption(modelOption("the model whose matrices are measured: their shapes and types"))
      .addOption(
        new Option(
          "--shapes <name>",
          'measure the shapes of a model instead: 7b, 13b, 30b, 65b, 70b (Llama), or a name from "lantern limits --list"',
        ).conflicts("model"),
      )
      .addOption(
        new Option(
          "--type <name,...>",
          "with --shapes: types of the weights (default: q4_0)",
        ).conflicts("model"),
      )
      .addOption(weightsOption().conflicts("shapes"))
      .addOption(threadsOption("thread counts to measure (default: 1 and all cores)"))
      .option(
        "--m-step <n>",
        "measure 1 to 8 tokens, and every multiple of this many (default: 8)",
        count,
      )
      .option("--m-num <n>", "measure up to --m-step times this many tokens (default: 16)", count)
      .addOption(
        new Option("--tokens <n,...>", "measure exactly these numbers of tokens instead")
          .argParser(numberListFlag({ integer: true, min: 1, max: 4096 }))
          .conflicts(["mStep", "mNum"]),
      )
      .addOption(
        new Option(
          "--quick",
          "measure only the shape with the most weights of each type, on all cores (a few seconds)",
        ).conflicts(["full", "mStep", "mNum"]),
      )
      .option("--full", "measure whole matrices, in more rounds")
      .option("--no-native", "tune WebAssembly kernels instead of machine code")
      .option("--file <path>", "also write the times to this file")
      .option("--force", "use the times even if other programs were busy during the measurement")
      .option("--json", jsonHelp)
      .action((flags: TuneFlags) => measure(flags, context));
    defineAnalyze(command.command("analyze"), context);
    defineTest(command.command("test"), context);
    defineStatus(command.command("status"), context);
    defineBackground(command.command("background", { hidden: true }), context);
  },
};

interface AnalyzeFlags {
  svg?: string;
  json?: boolean;
}

function defineAnalyze(command: Command, context: CliContext): void {
  command
    .description("show what was measured: the effect of tokens and threads, crossovers, speedup")
    .argument("[file]", 'file from "lantern tune --file" (default: the times in use)')
    .argument("[gpu-file]", "the GPU's file, to compare it with the CPU's")
    .option("--svg <file.svg>", "also write a chart", svgFlag)
    .option("--json", jsonHelp)
    .action(async (name: string | undefined, gpuName: string | undefined, flags: AnalyzeFlags) => {
      const { terminal } = context;
      const file = await fileOf(name, context);
      const analysis = analyzeTune(file);
      if (flags.svg !== undefined) await terminal.writeText(flags.svg, tuneSvg(file));
      // Beside the processor's own times: the GPU's for the same matmuls.
      const gpu =
        gpuName === undefined
          ? name === undefined
            ? await rememberedGpuTune()
            : undefined
          : await fileOf(gpuName, context);
      const backends = gpu ? compareTunes(file, gpu) : [];
      terminal.out(
        flags.json
          ? `${JSON.stringify({ ...analysis, backends, ...(gpu && { layers: analyzeTune(gpu).layers }) })}\n`
          : `${analysisText(file, analysis)}${crossingsText(backends)}${gpu ? layersText(analyzeTune(gpu)) : ""}`,
      );
      if (flags.svg !== undefined) terminal.err(`Chart written to ${flags.svg}\n`);
    });
}

function defineTest(command: Command, context: CliContext): void {
  command
    .description("measure some points of a file again and compare them with its times")
    .argument("[file]", 'file from "lantern tune --file" (default: the times in use)')
    .option("--points <n>", "how many points to measure", count, 12)
    .option("--json", jsonHelp)
    .action(async (name: string | undefined, flags: { points: number; json?: boolean }) => {
      const { terminal } = context;
      const file = await fileOf(name, context);
      const { points } = flags;
      const tested = await watched(context, "testing", (watch) =>
        testTune({ file, points, ...watch }),
      );
      const json = { points: tested, ...testErrors(tested) };
      terminal.out(flags.json ? `${JSON.stringify(json)}\n` : testText(tested));
      const corrected = correctedTune(file, tested);
      if (!corrected) return;
      const slower = tested.filter(({ isSlower }) => isSlower).length;
      const [what, they] =
        slower === 1 ? ["1 choice is", "it is"] : [`${slower} choices are`, "they are"];
      if (name === undefined) await rememberTune(corrected);
      terminal.err(
        name === undefined
          ? `${what} slower than the default: ${they} no longer used.\n`
          : `${what} slower than the default. "lantern tune" makes a new file.\n`,
      );
    });
}

function defineStatus(command: Command, context: CliContext): void {
  command
    .description(
      'what was tuned in the background after "lantern run", when, and when it tries again',
    )
    .option("--json", jsonHelp)
    .action(async (flags: { json?: boolean }) => {
      const last = await lastBackgroundTune(context);
      const until = await tunePostponedUntil();
      context.terminal.out(
        flags.json
          ? `${JSON.stringify({ last: last ?? null, postponed_until: until ?? null })}\n`
          : `${backgroundTuneText(last, until)}\n`,
      );
    });
}

/** The command that `run` starts when it ends. */
function defineBackground(command: Command, context: CliContext): void {
  command
    .addOption(modelOption("the model").makeOptionMandatory())
    .addOption(weightsOption())
    .action(async ({ model, weights }: { model: string; weights?: HeldType }) => {
      const { beInBackground } = await import("../../../src/platform/node-background.ts");
      beInBackground(killAfterMs);
      using interrupt = interruptible(context.terminal);
      const flags = { tune: true, ...(weights && { weights }) };
      await tuneInBackground(model, flags, context, interrupt.signal);
    });
}

async function measure(flags: TuneFlags, context: CliContext): Promise<void> {
  const backends = [...new Set(flags.backend.split(","))];
  if (flags.file !== undefined && backends.length > 1) {
    throw new UsageError(
      "tune: got several backends, but --file takes the times of one. Give one --backend, or drop --file",
    );
  }
  // Errors of flags are reported before anything is downloaded or measured.
  if (flags.file !== undefined) await context.terminal.checkWritable(flags.file);
  const given = optionsOf(flags);
  if (flags.model === undefined) await checkAll(backends, given);
  const model = flags.model === undefined ? undefined : await locateModel(flags.model, context);
  const options = { ...given, ...(model !== undefined && { model }) };
  if (model !== undefined) await checkAll(backends, options);
  for (const backend of backends) await measureOne({ ...options, backend }, flags, context);
}

function optionsOf(flags: TuneFlags): TuneOptions {
  return {
    ...(flags.shapes !== undefined && { shapes: flags.shapes }),
    ...(flags.type !== undefined && { types: flags.type.split(",") }),
    ...(flags.weights !== undefined && { weights: flags.weights }),
    ...(flags.threads && { threads: flags.threads }),
    ...(flags.mStep !== undefined && { mStep: flags.mStep }),
    ...(flags.mNum !== undefined && { mNum: flags.mNum }),
    ...(flags.tokens && { tokens: flags.tokens }),
    native: flags.native,
    mode: flags.full ? "full" : flags.quick ? "quick" : "normal",
  };
}

async function checkAll(backends: readonly string[], options: TuneOptions): Promise<void> {
  for (const backend of backends) await checkTune({ ...options, backend });
}

async function measureOne(
  options: TuneOptions,
  flags: TuneFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  const before = terminal.load();
  let others = 0;
  const remember = (): boolean => {
    others = othersCores(before, terminal.load());
    return flags.force === true || !isDisturbed(others, terminal.machine().cores);
  };
  const {
    file,
    place,
    notes = [],
  } = await watched(context, "tuning", (watch) => tune({ ...options, remember, ...watch }));
  if (flags.file !== undefined) await terminal.writeText(flags.file, tuneText(file));
  const analysis = analyzeTune(file);
  terminal.out(flags.json ? `${JSON.stringify(analysis)}\n` : analysisText(file, analysis));
  for (const note of notes) terminal.err(`${note}\n`);
  for (const where of [place, flags.file]) if (where) terminal.err(`Times written to ${where}\n`);
  if (place === undefined) {
    const text = `The times are not used: other programs used ${others.toFixed(1)} cores during the measurement, and a wrong choice of kernels would stay in use for weeks. Run the command again when the machine is idle, or with --force.`;
    terminal.err(`${context.color().err.red(text)}\n`);
  }
}

interface Watch {
  signal: AbortSignal;
  onProgress: (share: number, now: string) => void;
}

/** Runs with a progress bar and Ctrl-C, and reports other programs that disturbed it. */
async function watched<T>(
  context: CliContext,
  label: string,
  work: (watch: Watch) => Promise<T>,
): Promise<T> {
  const { terminal } = context;
  using interrupt = interruptible(terminal);
  const bar = new ShareBar(terminal, label);
  const before = terminal.load();
  try {
    return await work({
      signal: interrupt.signal,
      onProgress: (share, now) => bar.update(share, now),
    });
  } finally {
    bar.done();
    const others = othersCores(before, terminal.load());
    if (others > quietCores) {
      const text = `Other programs used ${others.toFixed(1)} cores during the measurement: the times may be wrong.`;
      terminal.err(`${context.color().err.red(text)}\n`);
    }
  }
}

async function fileOf(name: string | undefined, context: CliContext): Promise<TuneFile> {
  if (name === undefined) return await rememberedTune();
  return readTune(await context.terminal.readText(name), name);
}
