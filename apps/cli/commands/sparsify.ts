// lantern sparsify: makes a file of predictors, with which --predictors leaves out neurons of ReLU networks before they are computed; with
// --order a model whose neurons lie in the order of how often they are open, for --hot-neurons.
// src/tools/sparsify/ does the work; this file has the flags, a progress bar and a table. docs/use/sparse.md.

import {
  type OptLevel,
  type OrderResult,
  orderNeurons,
  type SparsifyProgress,
  type SparsifyResult,
  sparsify,
  UsageError,
} from "../../../src/index.ts";
import type { CliContext, CommandBody } from "../command.ts";
import { forceHelp, jsonHelp } from "../flag-help.ts";
import { numberFlag } from "../flag-values.ts";
import { openFlag } from "../flags.ts";
import { interruptible } from "../interrupt.ts";
import { locateModel } from "../load-model.ts";
import { ShareBar } from "../progress.ts";
import { bytesText, durationText, plural, tableText } from "../text.ts";

interface SparsifyFlags {
  corpus?: string;
  output?: string;
  order?: boolean;
  rank?: number;
  tokens?: number;
  recall?: number;
  type?: string;
  threads?: number;
  level?: OptLevel;
  force?: boolean;
  json?: boolean;
}

export const sparsifyCommand: CommandBody = {
  examples: [
    "lantern sparsify model-q4_0.gguf --corpus text.txt -o model.predictors.gguf",
    "lantern perplexity -m model-q4_0.gguf -f other.txt --predictors model.predictors.gguf",
    "lantern run -m model-q4_0.gguf --predictors model.predictors.gguf",
    "lantern sparsify model-q4_0.gguf --corpus text.txt --order -o ordered.gguf",
    "lantern run -m ordered.gguf -ngl all --hot-neurons 0.25 --sparse on",
  ],
  define(command, context) {
    command
      .argument("<model>", "the model, as it will be used: a GGUF file in Q4_0 or Q8_0")
      .option("--corpus <path>", "the text to fit them to, like those that the model will read")
      .option(
        "-o, --output <path>",
        "the file to write (default: predictors.gguf, with --order ordered.gguf)",
      )
      .option(
        "--order",
        "write the model itself, with the neurons first that the text opens most often, for --hot-neurons; no predictors",
      )
      .option(
        "--rank <n>",
        "inner size of a predictor, a multiple of 32: more finds more, and takes longer (default: 256)",
        numberFlag({ integer: true, min: 32, max: 4096 }),
      )
      .option(
        "--tokens <n>",
        "read at most this many tokens of the text (default: 2048)",
        numberFlag({ integer: true, min: 1, max: 1 << 24 }),
      )
      .option(
        "--recall <x>",
        "the part of neurons above zero that must be found; more computes more (default: 0.98)",
        numberFlag({ min: 0.5, max: 1 }),
      )
      .option("--type <type>", "type of the predictors: q8_0, q4_0 or f16 (default: q8_0)")
      .addOption(openFlag("threads"))
      .addOption(openFlag("level"))
      .option("--force", forceHelp)
      .option("--json", jsonHelp)
      .action((model: string, flags: SparsifyFlags) => run(model, flags, context));
  },
};

async function run(model: string, flags: SparsifyFlags, context: CliContext): Promise<void> {
  const { terminal } = context;
  if (flags.corpus === undefined) {
    throw new UsageError("sparsify: got no text, expected a file. Name one with --corpus");
  }
  using interrupt = interruptible(terminal);
  const { signal } = interrupt;
  const text = await terminal.readText(flags.corpus);
  const path = await locateModel(model, context, signal);
  const output = flags.output ?? (flags.order ? "ordered.gguf" : "predictors.gguf");
  const bar = new ShareBar(terminal, "sparsify");
  const shared = {
    ...(flags.tokens !== undefined && { tokens: flags.tokens }),
    ...(flags.threads !== undefined && { threads: flags.threads }),
    ...(flags.level !== undefined && { level: flags.level }),
    replace: flags.force ?? false,
    signal,
    onProgress: ({ what, done }: SparsifyProgress) => bar.update(done, what),
  };
  const print = (result: object, table: string, end: string): void => {
    bar.done();
    terminal.out(flags.json ? `${JSON.stringify({ output, ...result })}\n` : table);
    if (!flags.json) terminal.err(end);
  };
  try {
    if (flags.order) {
      const unused = (["rank", "recall", "type"] as const).find(
        (name) => flags[name] !== undefined,
      );
      if (unused !== undefined) {
        throw new UsageError(`sparsify: --${unused} is of predictors. Leave it out, or --order`);
      }
      const result = await orderNeurons(path, text, output, shared);
      print(result, orderText(result), orderEnd(result, output));
      return;
    }
    const result = await sparsify(path, text, output, {
      ...shared,
      ...(flags.rank !== undefined && { rank: flags.rank }),
      ...(flags.recall !== undefined && { recall: flags.recall }),
      ...(flags.type !== undefined && { type: flags.type }),
    });
    print(result, resultText(result), endText(result, output));
  } finally {
    bar.done();
  }
}

const percent = (part: number) => `${(100 * part).toFixed(1)}%`;

function resultText({ layers }: SparsifyResult): string {
  const heads = ["layer", "above zero", "computed", "recall", "precision"];
  const rows = layers.map(({ layer, open, computed, recall, precision }) => [
    String(layer),
    ...[open, computed, recall, precision].map(percent),
  ]);
  return `${tableText([heads, ...rows], [0, 1, 2, 3, 4])}\n`;
}

function endText({ layers, rank, tokens, bytes, ms }: SparsifyResult, output: string): string {
  return `${output}: ${bytesText(bytes)}, ${plural(layers.length, "layer")} of rank ${rank}, ${plural(tokens, "token")} in ${durationText(ms / 1000)}; the table is of a tenth of them, which were not fitted\n`;
}

/** The share of open neurons on a GPU that holds this share of all neurons. */
function orderText({ layers }: OrderResult): string {
  const heads = ["layer", "above zero", "first 10%", "first 25%", "first 50%"];
  const rows = layers.map(({ layer, open, firstTenth, firstQuarter, firstHalf }) => [
    String(layer),
    ...[open, firstTenth, firstQuarter, firstHalf].map(percent),
  ]);
  return `${tableText([heads, ...rows], [0, 1, 2, 3, 4])}\n`;
}

function orderEnd({ tokens, bytes, ms }: OrderResult, output: string): string {
  return `${output}: ${bytesText(bytes)}, ${plural(tokens, "token")} in ${durationText(ms / 1000)}; of all neurons that were above zero, so many are among the first ones now\n`;
}
