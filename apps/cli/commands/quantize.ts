// lantern quantize: a model as a GGUF file with fewer bits, and with --report its costs: size, errors, expected speed,
// perplexity. src/tools/quantize/api.ts does the work; this file has the flags, a progress bar and a table.
// docs/use/quantize.md.

import type { Command } from "commander";
import {
  compareQuantized,
  perplexityPicture,
  type QuantizedComparison,
  type QuantizeOptions,
  type QuantizeResult,
  quantize,
  UsageError,
} from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { forceHelp, jsonHelp, plotHelp, windowHelp, windowsHelp } from "../flag-help.ts";
import { numberFlag, repeatedFlag, svgFlag } from "../flag-values.ts";
import { openFlag } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel } from "../load-model.ts";
import { ProgressBar, ShareBar } from "../progress.ts";
import { quantizeReportText, writtenTypesText } from "../quantize-text.ts";
import { bytesText, durationText } from "../text.ts";

interface QuantizeFlags {
  tensorType?: string[];
  imatrix?: string;
  threads?: number;
  pure?: boolean;
  leaveOutputTensor?: boolean;
  allowRequantize?: boolean;
  dryRun?: boolean;
  force?: boolean;
  report?: boolean;
  text?: string;
  ctxSize?: number;
  chunks?: number;
  plot?: string;
  json?: boolean;
}

export const quantizeCommand: CommandBody = {
  examples: [
    "lantern quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M",
    "lantern quantize ./Qwen3-0.6B qwen3-q4_k_m.gguf Q4_K_M",
    "lantern quantize model-f16.gguf model-q4_0.gguf Q4_0 --tensor-type attn_v=q8_0 --report",
    "lantern quantize model-f16.gguf small.gguf IQ2_M --imatrix model.imatrix.gguf",
  ],
  define(command, context) {
    defineFlags(command).action((input: string, output: string, type: string, flags) =>
      run({ input, output, type }, flags as QuantizeFlags, context),
    );
  },
};

function defineFlags(command: Command): Command {
  return command
    .argument(
      "<input>",
      "a GGUF file, a Hugging Face folder or a llama2.c file, in F32, F16 or BF16; or the name of such a model",
    )
    .argument("<output>", "the file to write")
    .argument(
      "<type>",
      "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M, Q6_K, IQ4_NL, IQ4_XS, IQ3_S, IQ3_M, MXFP4_MOE, TQ1_0, TQ2_0, F16, BF16 or F32; with --imatrix also Q2_K_S, IQ3_XXS, IQ3_XS, IQ2_XXS, IQ2_XS, IQ2_S, IQ2_M, IQ1_S and IQ1_M",
    )
    .option(
      "--tensor-type <pattern=type>",
      "type for the tensors whose names match this regular expression; repeatable",
      repeatedFlag,
    )
    .option("--imatrix <file>", 'importance matrix from "lantern imatrix" or llama.cpp')
    .addOption(openFlag("threads"))
    .option("--pure", "use one type for all matrices instead of llama.cpp's mix of types")
    .option("--leave-output-tensor", "keep output.weight as it is")
    .option(
      "--allow-requantize",
      "allow an input that is quantized already, although it loses quality twice",
    )
    .option("--dry-run", "only show what would be written")
    .option("--force", forceHelp)
    .option(
      "--report",
      "show the error of each tensor, and this machine's speed limit before and after",
    )
    .option(
      "-f, --text <file>",
      "with --report: measure the perplexity on this text, before and after",
    )
    .option("-c, --ctx-size <n>", windowHelp, numberFlag({ integer: true, min: 4, max: 1 << 24 }))
    .option("--chunks <n>", windowsHelp, numberFlag({ integer: true, min: 1, max: 1 << 24 }))
    .option("--plot <file.svg>", plotHelp, svgFlag)
    .option("--json", jsonHelp);
}

interface Files {
  input: string;
  output: string;
  type: string;
}

async function run(files: Files, flags: QuantizeFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  if (flags.text !== undefined && (!flags.report || flags.dryRun)) {
    throw new UsageError(
      "quantize: --text needs --report, and --dry-run makes no report. Drop --text or --dry-run",
    );
  }
  if (flags.plot !== undefined && flags.text === undefined) {
    throw new UsageError(
      "quantize: --plot draws perplexities, which need --report and --text. Add both, or drop --plot",
    );
  }
  using interrupt = interruptible(terminal);
  const { signal } = interrupt;
  const text = flags.text === undefined ? undefined : await terminal.readText(flags.text);
  const input = await locateModel(files.input, context, signal);
  const bar = new ProgressBar(terminal, { label: files.type, plainLines: true });
  let result: QuantizeResult;
  try {
    result = await quantize(input, files.output, files.type, {
      ...optionsOf(flags),
      signal,
      onWarning: (warning) => terminal.err(`Warning: ${warning}.\n`),
      onProgress: ({ loadedBytes, totalBytes }) => bar.update(loadedBytes, totalBytes),
    });
  } finally {
    bar.done();
  }
  const more =
    flags.report && !flags.dryRun
      ? await comparison(input, files.output, text, flags, context, signal)
      : undefined;
  if (flags.plot !== undefined && more) {
    await terminal.writeText(flags.plot, await perplexityPicture(pointsOf(files, result, more)));
  }
  terminal.out(outputText(result, more, flags));
  if (flags.plot !== undefined) terminal.err(`Chart written to ${flags.plot}\n`);
  for (const { name, note } of result.tensors) {
    if (note?.startsWith("it keeps")) terminal.err(`Note: ${note.replace("it", name)}.\n`);
  }
  if (!flags.json && !flags.dryRun) terminal.err(`${writtenText(files.output, result)}\n`);
}

/** Both files, by their sizes. */
function pointsOf(
  { input }: Files,
  { bytesBefore, bytesAfter, parameters, type }: QuantizeResult,
  { perplexity: { before, after } }: QuantizedComparison,
): Parameters<typeof perplexityPicture>[0] {
  const model = input.split(/[\\/]/).at(-1)!;
  const point = (label: string, bytes: number, { value, error }: NonNullable<typeof before>) => ({
    model,
    label,
    bytesPerWeight: bytes / parameters,
    perplexity: value,
    error,
  });
  return [point("before", bytesBefore, before!), point(type, bytesAfter, after!)];
}

function optionsOf(flags: QuantizeFlags): QuantizeOptions {
  return {
    ...(flags.tensorType && { tensorTypes: flags.tensorType }),
    ...(flags.imatrix !== undefined && { imatrix: flags.imatrix }),
    ...(flags.threads !== undefined && { threads: flags.threads }),
    pure: flags.pure ?? false,
    leaveOutput: flags.leaveOutputTensor ?? false,
    allowRequantize: flags.allowRequantize ?? false,
    measure: flags.report ?? false,
    replace: flags.force ?? false,
    dryRun: flags.dryRun ?? false,
  };
}

function outputText(
  result: QuantizeResult,
  more: QuantizedComparison | undefined,
  { json, report, dryRun }: QuantizeFlags,
): string {
  if (json) return `${JSON.stringify({ ...result, ...more })}\n`;
  return report || dryRun ? quantizeReportText(result, more) : "";
}

function writtenText(output: string, result: QuantizeResult): string {
  const { bytesBefore, bytesAfter, parameters, ms } = result;
  const bits = ((bytesAfter * 8) / parameters).toFixed(2);
  return `${output}: ${result.type}, ${bytesText(bytesBefore)} -> ${bytesText(bytesAfter)} (${bits} bits per weight) in ${durationText(ms / 1000)}\n${writtenTypesText(result)}`;
}

/** Compares both files by this machine's limits and on a text. */
async function comparison(
  input: string,
  output: string,
  text: string | undefined,
  flags: QuantizeFlags,
  { terminal }: CliContext,
  signal: AbortSignal,
): Promise<QuantizedComparison> {
  const bars = {
    before: new ShareBar(terminal, "perplexity before"),
    after: new ShareBar(terminal, "perplexity after"),
  };
  try {
    return await compareQuantized(input, output, {
      text,
      contextSize: flags.ctxSize,
      chunks: flags.chunks,
      signal,
      onProgress: ({ of, window, windows }) =>
        bars[of].update(window / windows, `${window} of ${windows} windows`),
    });
  } finally {
    bars.before.done();
    bars.after.done();
  }
}
