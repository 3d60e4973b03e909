// lantern perplexity: how well a model predicts a text, by llama.cpp's method, and how far it is from another model
// whose distributions were saved. The running value is on stderr, the result on stdout. Definition:
// docs/use/perplexity.md.

import type { Command } from "commander";
import { defaultModel } from "../../../src/catalog/catalog.ts";
import {
  type BaseComparison,
  type Estimate,
  type ModelInfo,
  type PerplexityProgress,
  type PerplexityResult,
  perplexity,
  perplexityPicture,
  UsageError,
} from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import {
  forceHelp,
  jsonHelp,
  plotHelp,
  textFileHelp,
  windowHelp,
  windowsHelp,
} from "../flag-help.ts";
import { numberFlag, svgFlag } from "../flag-values.ts";
import { addModelFlags, type ModelFlags, openOptions } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { explanation, locateModel, sayWarnings } from "../load-model.ts";
import { type MeasuredModel, qualityPoint, sizeJson, sizesText } from "../perplexity-sizes.ts";
import { ShareBar } from "../progress.ts";
import { durationText, plural, tableText } from "../text.ts";

interface PerplexityFlags extends ModelFlags {
  file?: string;
  chunks?: number;
  klBase?: string;
  saveBase?: string;
  force?: boolean;
  special?: boolean;
  plot?: string;
  json?: boolean;
}

/** The interval of lines with the running value when stderr is not a terminal. */
const plainLineMs = 5000;

export const perplexityCommand: CommandBody = {
  examples: [
    "lantern perplexity -m model-Q4_0.gguf -f wiki.test.raw -c 256 --chunks 20",
    "lantern perplexity -m model-F16.gguf -f wiki.test.raw --save-base f16.base",
    "lantern perplexity -m model-Q4_0.gguf --kl-base f16.base",
    "lantern perplexity model-Q4_0.gguf model-Q8_0.gguf model-F16.gguf -f wiki.test.raw --plot sizes.svg",
  ],
  define(command, context) {
    defineFlags(command).action((models: string[], flags: PerplexityFlags) =>
      run(models, flags, context),
    );
  },
};

function defineFlags(command: Command): Command {
  addModelFlags(command, defaultModel)
    .argument("[models...]", "several models, to compare their sizes and perplexities on one text")
    .option("-f, --file <path>", textFileHelp)
    .option("--chunks <n>", windowsHelp, numberFlag({ integer: true, min: 1, max: 1 << 24 }))
    .option(
      "--save-base <path>",
      "save the probabilities of every token of the vocabulary to a file, for --kl-base (2 bytes for each, at every scored token)",
    )
    .option("--force", forceHelp)
    .option(
      "--kl-base <path>",
      "compare with the probabilities in this file (from --save-base or llama.cpp), on the text that it was made from",
    )
    .option("--special", "treat special tokens in the text as special, as in a chat")
    .option(
      "--parallel <n>",
      "how many windows are computed at the same time (default: 1)",
      numberFlag({ integer: true, min: 1, max: 1024 }),
    )
    .option("--plot <file.svg>", plotHelp, svgFlag)
    .option("--json", jsonHelp);
  const window = command.options.find(({ long }) => long === "--ctx-size")!;
  window.description = windowHelp;
  return command;
}

async function run(
  models: readonly string[],
  flags: PerplexityFlags,
  context: CliContext,
): Promise<void> {
  const { terminal } = context;
  if (flags.file === undefined && flags.klBase === undefined) {
    throw new UsageError(
      "perplexity: got no text, expected a file. Name one with -f, or saved probabilities with --kl-base",
    );
  }
  const names = [...(flags.model === undefined ? [] : [flags.model]), ...models];
  if (names.length === 0) names.push(defaultModel);
  if (names.length > 1 && flags.saveBase !== undefined) {
    throw new UsageError(
      `perplexity: --save-base: got ${names.length} models, expected one. Save the base of one model first`,
    );
  }
  using interrupt = interruptible(terminal);
  const text = await textOf(flags, context);
  if (leavesOut(flags) && names.length === 1) {
    const ways = [{ ...withoutPredictors(flags), sparse: "off" as const }, flags];
    const both: MeasuredModel[] = [];
    for (const [i, way] of ways.entries()) {
      const label = `perplexity, ${i === 0 ? "all neurons" : "sparse"}`;
      both.push(await measure(names[0]!, label, text, way, context, interrupt.signal));
    }
    terminal.out(flags.json ? `${JSON.stringify(sparseJson(both))}\n` : sparseText(both));
    return;
  }
  const measured: MeasuredModel[] = [];
  for (const [index, name] of names.entries()) {
    const label = names.length === 1 ? "perplexity" : `perplexity, ${index + 1} of ${names.length}`;
    measured.push(await measure(name, label, text, flags, context, interrupt.signal));
  }
  if (flags.plot !== undefined) {
    await terminal.writeText(flags.plot, await perplexityPicture(measured.map(qualityPoint)));
  }
  terminal.out(flags.json ? `${JSON.stringify(allJson(measured))}\n` : allText(measured));
  for (const { result } of measured) {
    if (result.warning) sayWarnings({ warnings: [result.warning] }, context);
  }
  if (flags.plot !== undefined) terminal.err(`Chart written to ${flags.plot}\n`);
}

/** Whether flags ask to leave neurons out: then both ways are measured. */
function leavesOut({ sparse, predictors, plot, saveBase, klBase }: PerplexityFlags): boolean {
  const isAsked = sparse === "on" || sparse === "predict" || predictors !== undefined;
  return isAsked && [plot, saveBase, klBase].every((path) => path === undefined);
}

function withoutPredictors({ predictors: _, ...flags }: PerplexityFlags): PerplexityFlags {
  return flags;
}

/** The results with all neurons, and without those that are left out, side by side. */
function sparseText(both: readonly MeasuredModel[]): string {
  const [all, sparse] = both.map(({ result }) => result);
  const change = 100 * (sparse!.perplexity.value / all!.perplexity.value - 1);
  const rows = [
    ["", "perplexity", "tokens/s"],
    ["all neurons", estimateText(all!.perplexity, 4), `${rateOf(all!)}`],
    ["sparse", estimateText(sparse!.perplexity, 4), `${rateOf(sparse!)}`],
  ];
  return `${tableText(rows)}\nsparse is ${numberText(change, 3)} % higher; ${howText(sparse!)}. A text is scored in batches, which need nearly all neurons: "npm run bench:sparse" times single tokens\n`;
}

function sparseJson(both: readonly MeasuredModel[]): object {
  const [all, sparse] = both.map(({ result }) => resultJson(result));
  return { all_neurons: all, sparse };
}

function allText(measured: readonly MeasuredModel[]): string {
  const [one] = measured;
  return measured.length === 1 ? resultText(one!.result) : sizesText(measured);
}

/** One model is one object, several are a list. */
function allJson(measured: readonly MeasuredModel[]): object {
  const [one] = measured;
  if (measured.length === 1) return resultJson(one!.result);
  return { models: measured.map((each) => ({ ...sizeJson(each), ...resultJson(each.result) })) };
}

async function measure(
  name: string,
  label: string,
  text: string | undefined,
  flags: PerplexityFlags,
  context: CliContext,
  signal: AbortSignal,
): Promise<MeasuredModel> {
  const path = await locateModel(name, context, signal);
  const progress = showProgress(context, label);
  let info: ModelInfo | undefined;
  try {
    const { contextSize, parallel, ...open } = openOptions(flags);
    const result = await perplexity(path, text, {
      ...(contextSize !== undefined && { contextSize }),
      ...(parallel !== undefined && { parallel }),
      ...(flags.chunks !== undefined && { chunks: flags.chunks }),
      ...(flags.klBase !== undefined && { base: flags.klBase }),
      ...(flags.saveBase !== undefined && { saveBase: flags.saveBase }),
      parseSpecial: flags.special ?? false,
      replace: flags.force ?? false,
      open: { ...open, onWarning: (warning) => sayWarnings({ warnings: [warning] }, context) },
      signal,
      onOpen: (opened) => {
        info = opened;
        sayWarnings(opened, context);
        if (flags.explain) context.asked(explanation(opened));
      },
      onProgress: progress.update,
    });
    return { path, info: info!, result };
  } finally {
    progress.done();
  }
}

async function textOf(
  flags: PerplexityFlags,
  { terminal }: CliContext,
): Promise<string | undefined> {
  if (flags.file === undefined) return undefined;
  return flags.file === "-" ? await terminal.readInput() : await terminal.readText(flags.file);
}

function showProgress(
  { terminal }: CliContext,
  label: string,
): {
  update(progress: PerplexityProgress): void;
  done(): void;
} {
  const bar = new ShareBar(terminal, label);
  let saidMs = terminal.now();
  return {
    update: (progress) => {
      const { window, windows, perplexity: value, base } = progress;
      const divergence = base ? `  KL divergence ${estimateText(base.divergence, 5)}` : "";
      const now = `${window} of ${windows}  ${estimateText(value, 4)}${divergence}`;
      bar.update(window / windows, now);
      if (terminal.errIsTerminal || terminal.now() - saidMs < plainLineMs) return;
      saidMs = terminal.now();
      terminal.err(`${label}: ${now}\n`);
    },
    done: () => bar.done(),
  };
}

function estimateText({ value, error }: Estimate, digits: number): string {
  return `${numberText(value, digits)} ± ${error.toFixed(digits)}`;
}

/** Without a minus sign on zero. */
function numberText(value: number, digits: number): string {
  return value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
}

function percentText({ value, error }: Estimate): string {
  return `${estimateText({ value: 100 * value, error: 100 * error }, 2)}%`;
}

function resultText(result: PerplexityResult): string {
  const { base } = result;
  const rows = [["perplexity", estimateText(result.perplexity, 4)], ...baseRows(base)];
  return `${tableText(rows)}\n${howText(result)}, ${durationText(result.ms / 1000)}, ${rateOf(result)} tokens/s\n`;
}

function howText({ windows, contextSize, scored }: PerplexityResult): string {
  return `${plural(windows, "window")} of ${plural(contextSize, "token")}, ${plural(scored, "token")} scored`;
}

function rateOf({ windows, contextSize, ms }: PerplexityResult): number {
  return Math.round((windows * contextSize * 1000) / ms);
}

function baseRows(base: BaseComparison | undefined): string[][] {
  if (!base) return [];
  const { divergence, change } = base;
  const spread = (["median", "p90", "p99", "p999", "max"] as const)
    .map((name) => `${spreadNames[name]} ${numberText(divergence[name], 5)}`)
    .join(", ");
  return [
    ["of the base", estimateText(base.perplexity, 4)],
    ["ratio", estimateText(base.ratio, 5)],
    ["KL divergence", `${estimateText(divergence, 5)}  (${spread})`],
    ["same most likely token", percentText(base.sameTop)],
    [
      "change of probability",
      `${percentText(change.mean)}  (root mean square ${percentText(change.rms)})`,
    ],
  ];
}

const spreadNames = {
  median: "median",
  p90: "90%",
  p99: "99%",
  p999: "99.9%",
  max: "max",
} as const;

function resultJson({ perplexity: value, base, ...result }: PerplexityResult): object {
  return {
    perplexity: value.value,
    error: value.error,
    window: result.contextSize,
    windows: result.windows,
    scored_tokens: result.scored,
    seconds: result.ms / 1000,
    uniform_guess: result.uniform,
    ...(result.warning !== undefined && { warning: result.warning }),
    ...(base && {
      base: {
        perplexity: base.perplexity,
        ratio: base.ratio,
        kl_divergence: base.divergence,
        same_top: base.sameTop,
        probability_change: base.change,
      },
    }),
  };
}
